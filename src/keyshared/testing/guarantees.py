"""What a system claims to promise, and what the checker says about that."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from keyshared.testing.errors import GuaranteesError
from keyshared.testing.history import Happening

__all__ = ["JUDGED", "Guarantees", "Promise", "Unjudged", "Violation"]


class Promise(StrEnum):
    """The promises by their stable ids; docs/contract.md explains each."""

    ONE_HOLDER = "one-holder"
    KEY_ORDER = "key-order"
    SAFE_CURSOR = "safe-cursor"
    NO_LOSS = "no-loss"
    SETTLED_ONCE = "settled-once"
    BOUNDS = "bounds"
    WHOLE_BATCH = "whole-batch"
    LATEST_ONLY = "latest-only"
    ONE_SESSION = "one-session"
    REDRIVE_ORDER = "redrive-order"
    AFFINITY = "affinity"
    MINIMAL_MOVE = "minimal-move"
    ISOLATION = "isolation"
    FAIRNESS = "fairness"
    GROUP_FAIRNESS = "group-fairness"
    PROGRESS = "progress"
    FENCE = "fence"
    ATTEMPTS = "attempts"
    NOT_EARLY = "not-early"
    REASON_TRAVELS = "reason-travels"
    HEALTH_ADDS_UP = "health-adds-up"
    TOKEN_BUDGET = "token-budget"  # noqa: S105  # no password: the token that a restart goes on from
    RESUME = "resume"
    DETERMINISM = "determinism"


JUDGED: Final = frozenset(Promise) - {Promise.RESUME, Promise.DETERMINISM}
"""What one history can show. Resume and determinism need two histories to compare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantees:
    """Which promises a system makes, with its numbers. What is not claimed is not judged.

    Attributes:
        promises: The claimed promises, as `Promise` or as their ids.
        per_key: How many deliveries of a key may be open at once; None: any number.
        batches: Whether the open deliveries of a key are a batch: made in one turn, and followed by the next one when
            all of it has ended. ``per_key`` is then how many messages a batch may have.
        limit_of: How many deliveries of a key may be open at once, by the key; the smaller of this and ``per_key``
            counts.
        latest_only: Whether a message that was never delivered is given up when a newer one of its key is published.
            A function says it of a key.
        per_consumer: How many deliveries a consumer may have open at once for which the history tells no limit; None:
            any number.
        window: How many outstanding messages may be in memory at once (those that are not spilled); the lowest one may
            be loaded beyond that. None: any number, for instance because `Published` tells of the whole log.
        max_tracked: How many messages may be outstanding at once; None: any number.
        spills: Whether what has to wait may be without its payload. If not, isolation is not judged: it is given up.
        waiting_per_key: How many messages of a key may wait when another one of it is let in; None: any number.
        waiting_per_consumer: The same of all keys that are owned by one consumer.
        look_ahead: How many messages may wait in all when another one is let in, by how many consumers are connected;
            None: any number.
        token_bytes: How long the text of a restart token should be at most, in the form of `CursorToken`; None: any
            length.
        unit_of: Which unit a key is in, if several keys are handed over as a whole (those of a slot, say): then
            one-holder is judged for units, and progress where the history says `Quiet`. None: a key. It has to be the
            same for ever; runs of slots, which change with the placement, cannot be told.
        total_order: Whether the whole log is ordered as if it had one key, which is written ``b""`` in `Owned`.
        open_at_once: How many deliveries may be open at once, of all consumers together; None: any number.
        group_of: Which group a key is in, if groups of keys take turns; then fairness is judged within a group only.
        weight_of: How many turns a group may have while another one waits; None: one.
        fairness: How many times a key that is ready may be passed over: its consumer is handed something else, whose
            turn began later. 0: keys are served in the order in which they became ready. None: any number.
        max_attempts: How many times a message may fail (be nacked, or expire) before it is not delivered again, but
            dead-lettered, dropped or kept back. None: any number.
        nack_holds_key: Whether a message that was given back, expired or released holds the newer ones of its key.
        ack_timeout_ms: Set it only if the history does not tell of expiries: a delivery that is this old may have
            expired, so it no longer proves anything against a delivery elsewhere.
        tolerance_ms: How much earlier or later than it should something may happen that waits for a time: an expiry
            that the history does not tell, and the end of a hold, of a delay that was asked for, and of a linger.
        progress_ms: Within what time something that can be delivered is delivered. None: judged only where the
            history says `Quiet`.
        cursor_keeps_up: Whether the cursor is always committed as far as it can be when the history says `Quiet`.
        tells_done: Whether the system says of each message once that it is done, at the latest when it is quiet.
        measures: Whether the system counts how many messages are done, also over a restart.
        sessions: Whether consumers keep something for keys, so that nothing of a key goes out but in a session of it.
        linger_ms: For how long nothing of a key is open before its session ends as idle; None: that is not judged.
        may_drop: Whether a policy that gives messages up was chosen.
        may_skip: Whether messages that nobody can get may be skipped.
        may_dead_letter: Whether messages may end in a dead-letter store.

    Raises:
        GuaranteesError: A number that is no int, or too small, or a promise that does not exist.

    Example:
        >>> Guarantees(promises={"affinity"}).promises == {Promise.AFFINITY}
        True
        >>> Guarantees(per_key=0)
        Traceback (most recent call last):
        keyshared.testing.errors.GuaranteesError: per_key is 0; it must be an int of at least 1, or None
    """

    promises: frozenset[Promise] | frozenset[str] | set[str] = JUDGED
    per_key: int | None = 1
    batches: bool = False
    limit_of: Callable[[bytes], int] | None = None
    latest_only: bool | Callable[[bytes], bool] = False
    per_consumer: int | None = None
    window: int | None = None
    max_tracked: int | None = None
    spills: bool = True
    waiting_per_key: int | None = None
    waiting_per_consumer: int | None = None
    look_ahead: Callable[[int], int] | None = None
    token_bytes: int | None = None
    unit_of: Callable[[bytes], Hashable] | None = None
    total_order: bool = False
    open_at_once: int | None = None
    group_of: Callable[[bytes], Hashable] | None = None
    weight_of: Callable[[Any], int] | None = None
    fairness: int | None = None
    max_attempts: int | None = None
    nack_holds_key: bool = True
    ack_timeout_ms: int | None = None
    tolerance_ms: int = 0
    progress_ms: int | None = None
    cursor_keeps_up: bool = False
    tells_done: bool = False
    measures: bool = False
    sessions: bool = False
    linger_ms: int | None = None
    may_drop: bool = False
    may_skip: bool = False
    may_dead_letter: bool = False

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise GuaranteesError(name, value, f"be an int of at least {least}, or None")
        if type(self.tolerance_ms) is not int or self.tolerance_ms < 0:
            raise GuaranteesError("tolerance_ms", self.tolerance_ms, "be an int of at least 0")
        if self.ack_timeout_ms is not None and self.tolerance_ms >= self.ack_timeout_ms:
            raise GuaranteesError("tolerance_ms", self.tolerance_ms, "be less than ack_timeout_ms")
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type is bool and type(value) is not bool:
                raise GuaranteesError(each.name, value, "be a bool")
        self._check_functions()
        try:
            claimed = frozenset(_IDS[promise] for promise in self.promises)
        except (TypeError, KeyError):
            raise GuaranteesError("promises", self.promises, f"hold ids of {', '.join(Promise)}") from None
        object.__setattr__(self, "promises", claimed)

    def _check_functions(self) -> None:
        if type(self.latest_only) is not bool and not callable(self.latest_only):
            raise GuaranteesError("latest_only", self.latest_only, "be a bool, or a function of a key")
        if callable(self.latest_only) and self.total_order:
            raise GuaranteesError("latest_only", self.latest_only, "be a bool with total_order: everything is one key")
        for name, of in _FUNCTIONS.items():
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise GuaranteesError(name, function, f"be a function of {of}, or None")
            if function is not None and self.total_order and name in _ONE_LANE:
                raise GuaranteesError(
                    name, function, f"be None with total_order, where everything is {_ONE_LANE[name]}"
                )


_FUNCTIONS: Final = {
    "limit_of": "a key",
    "unit_of": "a key",
    "group_of": "a key",
    "weight_of": "a group",
    "look_ahead": "a number of consumers",
}
_ONE_LANE: Final = {"group_of": "one key", "limit_of": "one key", "unit_of": "one unit"}
_IDS: Final[dict[str, Promise]] = {promise.value: promise for promise in Promise}
_LEAST: Final = {
    "per_key": 1,
    "per_consumer": 0,
    "window": 1,
    "max_tracked": 1,
    "open_at_once": 1,
    "waiting_per_key": 1,
    "waiting_per_consumer": 1,
    "token_bytes": 1,
    "fairness": 0,
    "max_attempts": 1,
    "ack_timeout_ms": 1,
    "progress_ms": 0,
    "linger_ms": 0,
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise and its proof.

    Attributes:
        promise: Which.
        explanation: What is wrong, in one sentence.
        proof: Positions in the history, in order, of what proves it: read alone, they show the fault. The last one is
            where it shows.
        excerpt: The happenings at these positions, one in a line; of many, the first and the last.
        happenings: The happenings at these positions, all of them.
        offset: Of a message that was overtaken (key-order), or that is lost (no-loss): which. None for all else.
    """

    promise: Promise
    explanation: str
    proof: tuple[int, ...]
    excerpt: str
    happenings: tuple[Happening, ...] = field(default=(), repr=False)
    offset: int | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"{self.promise}: {self.explanation}\n{self.excerpt}"


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A promise that is claimed and that the history does not show, or not in full.

    Attributes:
        promise: Which.
        reason: What would have to be in the history.
    """

    promise: Promise
    reason: str

    def __str__(self) -> str:
        return f"{self.promise}: not judged: {self.reason}"
