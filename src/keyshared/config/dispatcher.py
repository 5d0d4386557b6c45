"""Every knob of the dispatcher, checked once, with the precedent of each default beside it."""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Self, TypeAlias, TypeVar

from keyshared._checks import check_bool, check_enum, check_int, check_kind, check_position, configuration
from keyshared.config.groups import GroupLimits
from keyshared.config.look_ahead import LookAhead
from keyshared.config.retry import Backoff, Poison, RetryPolicy
from keyshared.config.sessions import KeySessions
from keyshared.cursor import LEAST_TOKEN_BUDGET
from keyshared.errors import ArgumentError, SnapshotError, shown

__all__ = [
    "DEFAULT_ACK_TIMEOUT_MS",
    "DEFAULT_INACTIVE_GRACE_MS",
    "DEFAULT_MAX_IN_FLIGHT_PER_CONSUMER",
    "DEFAULT_MAX_IN_FLIGHT_PER_KEY",
    "DEFAULT_MAX_LOADED_PER_KEY",
    "DEFAULT_MAX_TRACKED",
    "DEFAULT_WINDOW",
    "DispatcherConfig",
    "DrainUnit",
    "OnEvict",
    "Unmatched",
]

DEFAULT_WINDOW: Final = (
    10_000  # Danube's published page and its upper bound; Pulsar reads ahead up to 40 000 a subscription
)
DEFAULT_MAX_TRACKED: Final = (
    1_000_000  # an offset costs some hundred bytes; Pulsar persists 10 000 ack holes, then forgets them
)
DEFAULT_MAX_IN_FLIGHT_PER_CONSUMER: Final = (
    1_000  # Danube 1 000, Pulsar's receiver queue 1 000 (its unacked limit is 50 000)
)
DEFAULT_MAX_IN_FLIGHT_PER_KEY: Final = (
    1  # Danube 1, SQS FIFO 1 a group (or a batch), parallel-consumer 1 a key; Pulsar unlimited
)
DEFAULT_MAX_LOADED_PER_KEY: Final = 1_000  # a tenth of the window, so that one hot key leaves room for others
DEFAULT_ACK_TIMEOUT_MS: Final = 30_000  # Danube 30 s, SQS visibility 30 s; Pulsar's is off by default
DEFAULT_INACTIVE_GRACE_MS: Final = 3_000  # Danube 6 heartbeats of 500 ms


_Kind = TypeVar("_Kind", bound=StrEnum)


class OnEvict(StrEnum):
    """What becomes of the open deliveries of a consumer that is evicted."""

    REDELIVER = "redeliver"  # at least once
    DROP = "drop"  # at most once: they are settled and reported as dropped


class Unmatched(StrEnum):
    """What becomes of a message that no consumer's filters accept.

    A message that they accept, but that nobody owns, waits: its slot is a hole, or those who accept it own nothing.
    Only the policy to raise is asked about it too.
    """

    SKIP = "skip"  # settled and reported as skipped (Danube)
    HOLD = "hold"  # waits for a consumer that accepts it
    ERROR = "error"  # the offer raises, also for a key that nobody owns


class DrainUnit(StrEnum):
    """What is handed over as a whole when keys move: nothing of it goes out while somebody else holds some of it."""

    KEY = "key"  # one key (SQS FIFO a group, parallel-consumer a key)
    HASH = "hash"  # every key of a slot of the placement (Pulsar's PIP-379)
    RANGE = "range"  # every key of a run of slots with one owner (Celeriant)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig:
    """Limits, times and policies of a `KeySharedDispatcher`.

    Args:
        window: Messages that are loaded at once: outstanding ones whose payload the host keeps. ``pull(only=)`` may
            load one more, the lowest one.
        max_tracked: Offsets that are outstanding at once, loaded or not.
        max_in_flight_per_consumer: Open deliveries of a consumer that sets no limit of its own.
        max_in_flight_per_key: Open deliveries of one key, always at one consumer; counts for nothing where
            ``Rules(limit_of=...)`` says it of each key.
        max_in_flight: Open deliveries of all consumers together; None for no limit but theirs.
        batch_per_key: Messages of one key that go out in one turn; above 1 they are a batch, and nothing more of the
            key goes out until all of it has ended.
        max_loaded_per_key: Loaded messages of one key; more of them are tracked without their payload.
        ack_timeout_ms: How long a delivery stays open without an answer; None for ever.
        retry: How often and how late a failed message is delivered again.
        poison: What is done with it when that is exhausted.
        on_evict: What becomes of the open deliveries of an evicted consumer.
        unmatched: What becomes of a message that nobody accepts.
        inactive_grace_ms: How long an inactive consumer keeps its keys; None for ever.
        drain_timeout_ms: How long a key that moved waits for the previous owner's deliveries; None for ever.
        ordering_required: The whole subscription is one lane.
        redrive: Whether dead letters may come back with ``redrive``.
        unit: What a consumer has to finish before anything of it goes to the next owner. Units above a key know no
            filters: with them two keys of one slot may rightly be at two consumers.
        latest_only: Whether a message that waits for its first delivery is given up when a newer one of its key comes;
            ``Rules(latest_only=...)`` says it of some keys.
        measure: Whether ages and counts are kept for `health`.
        start: What ``resume_offset`` answers before the first offer.
        group: The limits of each group of keys for which none are set; groups need `Rules`.
        tell_settled: Whether each offered message gets one `Done` when it is settled.
        spill: Whether the payload of what has to wait may be dropped and loaded again. False: every payload is the
            host's to keep, ``window`` bounds all that is outstanding, and ``max_tracked`` and ``max_loaded_per_key``
            count for nothing.
        max_waiting_per_key: Messages of one key that may wait, those that are open not counted; beyond that an offer of
            the key is refused. Needs ``spill=False``; None for no limit.
        max_waiting_per_consumer: The same of all keys that one consumer owns.
        look_ahead: How many messages may wait for the consumers that are connected before there is no free slot; None
            for no such limit.
        token_bytes: How long the text of `cursor_token` should be at most: above three quarters of that only the lowest
            outstanding message goes out, until one half. At least 74; None for no such budget, and where ``redrive``,
            ``latest_only`` or ``max_in_flight`` is set or there are groups.
        sessions: Whether consumers are told when a key begins and ends at them, and how long that may take.

    Raises:
        ConfigError: A field is out of range, or two of them contradict each other.

    Example:
        >>> DispatcherConfig(window=100, poison=Poison.BLOCK).max_in_flight_per_key
        1
    """

    window: int = DEFAULT_WINDOW
    max_tracked: int = DEFAULT_MAX_TRACKED
    max_in_flight_per_consumer: int = DEFAULT_MAX_IN_FLIGHT_PER_CONSUMER
    max_in_flight_per_key: int = DEFAULT_MAX_IN_FLIGHT_PER_KEY
    max_in_flight: int | None = None
    batch_per_key: int = 1
    max_loaded_per_key: int = DEFAULT_MAX_LOADED_PER_KEY
    ack_timeout_ms: int | None = DEFAULT_ACK_TIMEOUT_MS
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    poison: Poison = Poison.DEAD_LETTER
    on_evict: OnEvict = OnEvict.REDELIVER
    unmatched: Unmatched = Unmatched.SKIP
    inactive_grace_ms: int | None = DEFAULT_INACTIVE_GRACE_MS
    drain_timeout_ms: int | None = None
    ordering_required: bool = False
    redrive: bool = False
    unit: DrainUnit = DrainUnit.KEY
    latest_only: bool = False
    measure: bool = False
    start: int | None = None
    group: GroupLimits = field(default_factory=GroupLimits)
    tell_settled: bool = False
    spill: bool = True
    max_waiting_per_key: int | None = None
    max_waiting_per_consumer: int | None = None
    look_ahead: LookAhead | None = None
    token_bytes: int | None = None
    sessions: KeySessions | None = None

    @configuration()
    def __post_init__(self) -> None:
        self._check_limits()
        self._check_waiting()
        self._check_times()
        self._check_kinds()
        if self.ordering_required:
            self._check_ordering()

    def to_json(self) -> dict[str, object]:
        """Every field as plain data that JSON can hold, for snapshots and logs.

        Returns:
            A dict that `from_json` takes back.

        Example:
            >>> DispatcherConfig(poison=Poison.BLOCK).to_json()["poison"]
            'BLOCK'
        """
        plain: dict[str, object] = {name: getattr(self, name) for name in _names(DispatcherConfig)}
        retry: dict[str, object] = {name: getattr(self.retry, name) for name in _names(RetryPolicy)}
        if self.sessions is not None:
            plain["sessions"] = {name: getattr(self.sessions, name) for name in _names(KeySessions)}
        plain["retry"] = retry | {"backoff": self.retry.backoff.value}
        plain["group"] = {name: getattr(self.group, name) for name in _names(GroupLimits)}
        if self.look_ahead is not None:
            plain["look_ahead"] = {name: getattr(self.look_ahead, name) for name in _names(LookAhead)}
        plain["poison"] = self.poison.name
        plain["on_evict"] = self.on_evict.value
        plain["unmatched"] = self.unmatched.value
        plain["unit"] = self.unit.value
        return plain

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Rebuild a configuration from `to_json`.

        Args:
            data: What `to_json` returned, or what JSON made of it.

        Returns:
            An equal configuration.

        Raises:
            SnapshotError: A field is missing, unknown, of the wrong type or out of range.

        Example:
            >>> config = DispatcherConfig(window=100)
            >>> DispatcherConfig.from_json(config.to_json()) == config
            True
        """
        values = _exact_fields("config", data, DispatcherConfig)
        retry = _exact_fields("config.retry", values["retry"], RetryPolicy)
        group = _exact_fields("config.group", values["group"], GroupLimits)
        try:
            retry["backoff"] = _member(Backoff, "backoff", retry["backoff"])
            values["retry"] = RetryPolicy(**retry)
            values["group"] = GroupLimits(**group)
            values["poison"] = Poison.from_name(values["poison"])
            values["on_evict"] = _member(OnEvict, "on_evict", values["on_evict"])
            values["unmatched"] = _member(Unmatched, "unmatched", values["unmatched"])
            values["unit"] = _member(DrainUnit, "unit", values["unit"])
            if values["look_ahead"] is not None:
                values["look_ahead"] = LookAhead(**_exact_fields("config.look_ahead", values["look_ahead"], LookAhead))
            if values["sessions"] is not None:
                values["sessions"] = KeySessions(**_exact_fields("config.sessions", values["sessions"], KeySessions))
            return cls(**values)
        except ArgumentError as error:
            parameter = f"config: {error.parameter}"
            raise SnapshotError(parameter, error.value, error.requirement) from error

    def _check_limits(self) -> None:
        for name in (
            "window",
            "max_tracked",
            "max_in_flight_per_consumer",
            "max_in_flight_per_key",
            "batch_per_key",
            "max_loaded_per_key",
        ):
            check_int(name, getattr(self, name), 1)
        if self.max_in_flight is not None:
            check_int("max_in_flight", self.max_in_flight, 1, ", or None for no limit")
        if self.spill and self.max_tracked < self.window:
            raise ArgumentError("max_tracked", self.max_tracked, f"be at least window, {shown(self.window)}")
        if self.batch_per_key > 1 and self.max_in_flight_per_key > 1:
            requirement = "be 1 with max_in_flight_per_key above 1: a key is worked on in batches or in a pipeline"
            raise ArgumentError("batch_per_key", self.batch_per_key, requirement)
        if self.batch_per_key > 1 and self.latest_only:
            requirement = "be 1 with latest_only: there would never be two messages for a batch"
            raise ArgumentError("batch_per_key", self.batch_per_key, requirement)
        for name in ("max_in_flight_per_key", "batch_per_key"):
            if self.spill and self.max_loaded_per_key < getattr(self, name):
                requirement = f"be at least {name}, {shown(getattr(self, name))}: what is in flight is loaded"
                raise ArgumentError("max_loaded_per_key", self.max_loaded_per_key, requirement)

    def _check_waiting(self) -> None:
        check_bool("spill", self.spill)
        for name in ("max_waiting_per_key", "max_waiting_per_consumer"):
            limit = getattr(self, name)
            if limit is None:
                continue
            check_int(name, limit, 1, ", or None for no limit")
            if self.spill:
                requirement = "be None unless spill is False: what is spilled waits without a limit of its own"
                raise ArgumentError(name, limit, requirement)
        if self.look_ahead is not None:
            check_kind("look_ahead", self.look_ahead, LookAhead, ", or None for no limit")
        if self.token_bytes is not None:
            check_int("token_bytes", self.token_bytes, LEAST_TOKEN_BUDGET, ", or None for no budget")
            if self.max_in_flight is not None:
                requirement = "be None with max_in_flight: the lowest message could wait for room in the subscription"
                raise ArgumentError("token_bytes", self.token_bytes, requirement)
            if self.redrive:
                requirement = (
                    "be None with redrive: the lowest message could wait for one that has come back and is held"
                )
                raise ArgumentError("token_bytes", self.token_bytes, requirement)
            if self.latest_only:
                requirement = "be None with latest_only: what is superseded is settled although nothing goes out"
                raise ArgumentError("token_bytes", self.token_bytes, requirement)

    def _check_times(self) -> None:
        for name, least in (("ack_timeout_ms", 1), ("inactive_grace_ms", 0), ("drain_timeout_ms", 0)):
            value = getattr(self, name)
            if value is not None:
                check_int(name, value, least, ", or None for never")

    def _check_kinds(self) -> None:
        check_kind("retry", self.retry, RetryPolicy)
        check_kind("group", self.group, GroupLimits)
        check_kind("poison", self.poison, Poison)
        check_enum("on_evict", self.on_evict, OnEvict)
        check_enum("unmatched", self.unmatched, Unmatched)
        check_bool("latest_only", self.latest_only)
        check_bool("measure", self.measure)
        check_bool("ordering_required", self.ordering_required)
        check_bool("redrive", self.redrive)
        check_bool("tell_settled", self.tell_settled)
        check_enum("unit", self.unit, DrainUnit)
        if self.sessions is not None:
            check_kind("sessions", self.sessions, KeySessions)
        if self.start is not None:
            check_position("start", self.start, "be None or an int")

    def _check_ordering(self) -> None:
        # Each of these would deliver a message although an older one was given up without the user's own settlement.
        if self.unmatched is Unmatched.SKIP:
            raise ArgumentError("unmatched", self.unmatched, "be HOLD or ERROR with ordering_required")
        if self.on_evict is OnEvict.DROP:
            raise ArgumentError("on_evict", self.on_evict, "be REDELIVER with ordering_required")
        if self.poison not in {Poison.BLOCK, Poison.BLOCK_AND_DEAD_LETTER}:
            raise ArgumentError("poison", self.poison, "be BLOCK or BLOCK_AND_DEAD_LETTER with ordering_required")
        if self.latest_only:
            raise ArgumentError("latest_only", self.latest_only, "be False with ordering_required")
        if self.unit is not DrainUnit.KEY:
            raise ArgumentError(
                "unit", self.unit, "be KEY with ordering_required: its one lane is all there is to drain"
            )


_Fields: TypeAlias = DispatcherConfig | GroupLimits | KeySessions | LookAhead | RetryPolicy


def _names(kind: type[_Fields]) -> list[str]:
    return [each.name for each in fields(kind)]


def _exact_fields(parameter: str, data: object, kind: type[_Fields]) -> dict[str, Any]:
    """A copy of the data if it has just the fields of that class; their values are not checked yet."""
    names = _names(kind)
    if not isinstance(data, dict) or set(data) != set(names):
        what = list(data) if isinstance(data, dict) else data
        raise SnapshotError(parameter, what, f"be a dict with exactly the fields {', '.join(names)}")
    return dict(data)


def _member(kind: type[_Kind], parameter: str, value: object) -> _Kind:
    for member in kind:
        if member.value == value:
            return member
    raise ArgumentError(parameter, value, f"be one of {', '.join(kind)}")
