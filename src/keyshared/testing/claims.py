"""What a system claims to promise, as values or as TOML, and what the checker says about that."""

import tomllib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final

from keyshared.testing.errors import ClaimsError
from keyshared.testing.history import Event

__all__ = ["JUDGED", "NEVER_JUDGED", "USUAL", "Claims", "Promise", "Unjudged", "Violation", "read_claims"]


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


NEVER_JUDGED: Final = {
    Promise.RESUME: "compare the history after a restart with the one without",
    Promise.DETERMINISM: "compare two histories of the same inputs",
    Promise.ISOLATION: "a history does not tell where payloads are",
    Promise.TOKEN_BUDGET: "a history does not tell what a token holds",
    Promise.GROUP_FAIRNESS: "a history does not tell which groups are open",
    Promise.HEALTH_ADDS_UP: "a history does not tell what the system counts",
}
"""What no history shows, and why."""

JUDGED: Final = frozenset(Promise).difference(NEVER_JUDGED)
"""What one history can show."""

USUAL: Final = frozenset({Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.BOUNDS, Promise.NO_LOSS})
"""What to claim first of a system that hands the messages of a key to one handler at a time, in order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Which promises a system makes, with its numbers. A promise that is not claimed is not judged.

    Attributes:
        promises: The claimed promises, as `Promise` or as their ids.
        per_key: How many deliveries of a key may be open at once; None: any number.
        batches: Whether the open deliveries of a key are a batch: made in one turn, and followed by the next one when
            all of it has ended. ``per_key`` is then how many messages a batch may have.
        limit_of: How many deliveries of a key may be open at once, by the key; the smaller of this and ``per_key``
            counts.
        latest_only: Whether a message that was never delivered is given up when a newer one of its key is published.
            A function says it of a key.
        per_consumer: How many deliveries a consumer may have open at once if the history tells no limit of it; None:
            any number.
        max_tracked: How many messages may be outstanding at once; None: any number.
        unit_of: Which unit a key is in, if several keys are handed over together (those of a slot, say): one-holder is
            then judged for units, and progress where the history says `Quiet`. None: each key is a unit.
        total_order: Whether the whole log is ordered as if it had one key, which is written ``b""`` in `Owned`.
        open_at_once: How many deliveries may be open at once, of all consumers together; None: any number.
        fairness: How many times a ready key may be passed over: its consumer is handed another key whose turn began
            later. 0: keys are served in the order in which they became ready. None: any number, for instance because
            groups of keys take turns.
        max_attempts: How many times a message may fail (be nacked, or expire) before it is not delivered again.
            None: any number.
        nack_holds_key: Whether a message that was given back, expired or released holds the newer ones of its key.
        ack_timeout_ms: Set it only if the history does not tell of expiries: a delivery that is this old has expired.
        tolerance_ms: How much earlier or later than it should something may happen that waits for a time: an expiry by
            ``ack_timeout_ms``, the end of a hold, of a delay that was asked for, and of a linger.
        cursor_keeps_up: Whether the cursor is always committed as far as it can be when the history says `Quiet`.
        rewinds: Whether the log may be read again from the cursor (see `Rewound`): messages that were done above the
            cursor may then be delivered again.
        tells_done: Whether the system reports of each message once that it is done, at the latest when it is quiet.
        sessions: Whether consumers keep state for keys, so that a key is delivered only within a session of it.
        linger_ms: For how long nothing of a key is open before its session ends as idle; None: that is not judged.
        may_drop: Whether a policy that gives messages up was chosen.
        may_skip: Whether messages that no consumer can get may be skipped.
        may_dead_letter: Whether messages may end in a dead-letter store.

    Raises:
        ClaimsError: A number that is no int, or too small, or a promise that does not exist.

    Example:
        >>> Claims(promises={"affinity"}).promises == {Promise.AFFINITY}
        True
        >>> Claims(per_key=0)
        Traceback (most recent call last):
        keyshared.testing.errors.ClaimsError: per_key is 0; it must be an int of at least 1, or None
    """

    promises: frozenset[Promise] | frozenset[str] | set[Promise] | set[str] = JUDGED
    per_key: int | None = 1
    batches: bool = False
    limit_of: Callable[[bytes], int] | None = None
    latest_only: bool | Callable[[bytes], bool] = False
    per_consumer: int | None = None
    max_tracked: int | None = None
    unit_of: Callable[[bytes], Hashable] | None = None
    total_order: bool = False
    open_at_once: int | None = None
    fairness: int | None = None
    max_attempts: int | None = None
    nack_holds_key: bool = True
    ack_timeout_ms: int | None = None
    tolerance_ms: int = 0
    cursor_keeps_up: bool = False
    rewinds: bool = False
    tells_done: bool = False
    sessions: bool = False
    linger_ms: int | None = None
    may_drop: bool = False
    may_skip: bool = False
    may_dead_letter: bool = False

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < least):
                raise ClaimsError(name, value, f"be an int of at least {least}, or None")
        if type(self.tolerance_ms) is not int or self.tolerance_ms < 0:
            raise ClaimsError("tolerance_ms", self.tolerance_ms, "be an int of at least 0")
        if self.ack_timeout_ms is not None and self.tolerance_ms >= self.ack_timeout_ms:
            raise ClaimsError("tolerance_ms", self.tolerance_ms, "be less than ack_timeout_ms")
        for each in fields(self):
            value = getattr(self, each.name)
            if each.type is bool and type(value) is not bool:
                raise ClaimsError(each.name, value, "be a bool")
        self._check_functions()
        try:
            claimed = frozenset(_IDS[promise] for promise in self.promises)
        except (TypeError, KeyError):
            raise ClaimsError("promises", self.promises, f"hold ids of {', '.join(Promise)}") from None
        object.__setattr__(self, "promises", claimed)

    def _check_functions(self) -> None:
        if type(self.latest_only) is not bool and not callable(self.latest_only):
            raise ClaimsError("latest_only", self.latest_only, "be a bool, or a function of a key")
        if callable(self.latest_only) and self.total_order:
            raise ClaimsError("latest_only", self.latest_only, "be a bool with total_order: everything is one key")
        for name, whole in _ONE_LANE.items():
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ClaimsError(name, function, "be a function of a key, or None")
            if function is not None and self.total_order:
                raise ClaimsError(name, function, f"be None with total_order, where everything is {whole}")


_ONE_LANE: Final = {"limit_of": "one key", "unit_of": "one unit"}
_IDS: Final[dict[str, Promise]] = {promise.value: promise for promise in Promise}
_LEAST: Final = {
    "per_key": 1,
    "per_consumer": 0,
    "max_tracked": 1,
    "open_at_once": 1,
    "fairness": 0,
    "max_attempts": 1,
    "ack_timeout_ms": 1,
    "linger_ms": 0,
}


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise and its proof.

    Attributes:
        promise: Which.
        explanation: What is wrong, in one sentence.
        proof: Positions in the history, in order, of what proves it. The fault shows at the last one.
        excerpt: The events at these positions, one in a line; of many, the first and the last.
        events: The events at these positions, all of them.
        offset: The message that was overtaken (key-order) or is lost (no-loss). None for all else.
    """

    promise: Promise
    explanation: str
    proof: tuple[int, ...]
    excerpt: str
    events: tuple[Event, ...] = field(default=(), repr=False)
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


def read_claims(text: str) -> Claims:
    r"""Read claims from TOML; fields that are not written have the defaults of `Claims`.

    Args:
        text: Names of `Claims` with their values; a number without a limit is ``"any"``. Functions (``unit_of``,
            ``limit_of``) cannot be written.

    Raises:
        ClaimsError: The text is no TOML, or claims something that does not exist, or that can never be kept.

    Example:
        >>> claims = read_claims('promises = ["key-order", "no-loss"]\nper_key = "any"\nmay_drop = true')
        >>> sorted(claims.promises), claims.per_key, claims.may_drop
        ([<Promise.KEY_ORDER: 'key-order'>, <Promise.NO_LOSS: 'no-loss'>], None, True)
        >>> read_claims("per_keys = 2")
        Traceback (most recent call last):
        keyshared.testing.errors.ClaimsError: per_keys is 2; it must be left out: no claim that can be written
    """
    if not isinstance(text, str):
        raise ClaimsError("text", text, "be a str")
    try:
        claims: dict[str, Any] = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClaimsError("text", text, f"be TOML ({error})") from None
    for name, value in claims.items():
        if name not in _WRITABLE:
            raise ClaimsError(name, value, "be left out: no claim that can be written")
        if value == _ANY and name in _NUMBERS:
            claims[name] = None
    return Claims(**claims)


_ANY: Final = "any"  # TOML has no null
_NUMBERS: Final = frozenset(each.name for each in fields(Claims) if each.type == int | None)
_FLAGS: Final = frozenset({"latest_only", *(each.name for each in fields(Claims) if each.type is bool)})
_WRITABLE: Final = _NUMBERS | _FLAGS | {"promises", "tolerance_ms"}
