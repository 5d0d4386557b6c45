"""Every setting of the dispatcher, checked once, with the precedent of each default beside it; the rules of keys."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, Self

from keyshared._checks import (
    check_bool,
    check_callable,
    check_enum,
    check_int,
    check_kind,
    check_position,
    check_text,
    configuration,
)
from keyshared.config.limits import GroupLimits, KeySessions, LookAhead
from keyshared.config.retry import Backoff, Poison, RetryPolicy
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
    "Rules",
    "Unmatched",
    "check_rules",
    "settings_from_json",
    "settings_to_json",
]

DEFAULT_WINDOW: Final = (
    10_000  # Danube's published page and its upper bound; Pulsar reads ahead up to 40 000 a subscription
)
DEFAULT_MAX_TRACKED: Final = (
    1_000_000  # an offset costs some hundred bytes; Pulsar persists 10 000 ack holes, then forgets them
)
DEFAULT_MAX_IN_FLIGHT_PER_CONSUMER: Final = (
    50  # in 30 s that is 0.6 s a message, as Kafka's 500 records in 5 min; Danube and Pulsar's receiver queue 1 000
)
DEFAULT_MAX_IN_FLIGHT_PER_KEY: Final = (
    1  # Danube 1, SQS FIFO 1 a group (or a batch), parallel-consumer 1 a key; Pulsar unlimited
)
DEFAULT_MAX_LOADED_PER_KEY: Final = 1_000  # a tenth of the window, so that one hot key leaves capacity for others
DEFAULT_ACK_TIMEOUT_MS: Final = 30_000  # Danube 30 s, SQS visibility 30 s; Pulsar's is off by default
DEFAULT_INACTIVE_GRACE_MS: Final = 3_000  # Danube 6 heartbeats of 500 ms


class OnEvict(StrEnum):
    """The policy for the open deliveries of a consumer that is evicted."""

    REDELIVER = "redeliver"  # at least once
    DROP = "drop"  # at most once: they are settled and reported as dropped


class Unmatched(StrEnum):
    """The policy for a message whose key no connected consumer accepts.

    A message whose key a consumer accepts, but no consumer owns, waits: its slot is a hole, or the consumers that
    accept it own nothing. Only `ERROR` refuses it too.
    """

    HOLD = "hold"  # waits for a consumer that accepts it
    SKIP = "skip"  # settled and reported as skipped (Danube): a restart of its only consumer loses it
    ERROR = "error"  # the offer raises, also for a key that no consumer owns


class DrainUnit(StrEnum):
    """The unit that moves as a whole: the new owner gets nothing of it while others have open deliveries of it."""

    KEY = "key"  # one key (SQS FIFO a group, parallel-consumer a key)
    HASH = "hash"  # every key of a slot of the placement (Pulsar's PIP-379)
    RANGE = "range"  # every key of a run of slots with one owner (Celeriant)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatcherConfig:
    """Limits, times and policies of a `KeySharedDispatcher`.

    Args:
        window: Messages whose payload the host keeps, at most. ``pull(only=)`` may load one more, the lowest one.
        max_tracked: Outstanding messages, loaded or not.
        max_in_flight_per_consumer: Open deliveries of a consumer that sets no limit of its own. A delivery that its
            consumer has not begun times out too: keep the limit below ``ack_timeout_ms`` by the time of one message.
        max_in_flight_per_key: Open deliveries of one key, always at one consumer; ``Rules(limit_of=...)`` replaces it.
        max_in_flight: Open deliveries of all consumers together; None for no limit but theirs.
        batch_per_key: Messages of one key that go out in one turn; above 1 they are a batch, and nothing more of the
            key goes out until all of it has ended.
        max_loaded_per_key: Loaded messages of one key; more of them are tracked without their payload.
        ack_timeout_ms: How long a delivery may stay open without an answer; None for ever.
        retry: How often and how late a failed message is delivered again.
        poison: What becomes of a message whose retries are exhausted.
        archive_blocked: Whether a message goes to the dead letters before it is blocked. Only with ``Poison.BLOCK``.
        quarantine: Whether the newer messages of its key follow a dead letter, in order, until the key is unblocked.
            Only with ``Poison.DEAD_LETTER``.
        on_evict: What becomes of the open deliveries of an evicted consumer.
        unmatched: What becomes of a message whose key no connected consumer accepts.
        inactive_grace_ms: How long an inactive consumer keeps its keys; None for ever.
        drain_timeout_ms: How long a key that moved waits for the previous owner's deliveries; None for ever.
        ordering_required: Whether the whole subscription is one lane: every message gets the key ``b""``.
        redrive: Whether dead letters may come back with ``redrive``.
        unit: What a consumer has to finish before anything of it goes to the next owner. Units above a key refuse
            filters: with them two keys of one slot may rightly be at two consumers.
        latest_only: Whether a newer message of a key replaces those that wait for their first delivery;
            ``Rules(latest_only=...)`` decides for single keys.
        measure: Whether ages and counts are kept for `health`.
        start: The value of ``resume_offset`` before the first offer.
        group: The limits of each group of keys for which none are set; groups need `Rules`.
        tell_settled: Whether each offered message gets one `Done` when it is settled.
        spill: Whether the payload of a message that waits may be dropped and loaded again. False: the host keeps every
            payload, ``window`` bounds all outstanding messages, ``max_tracked`` and ``max_loaded_per_key`` are unused.
        max_waiting_per_key: Messages of one key that may wait, open ones not counted; once the limit is reached,
            offering that key raises. Needs ``spill=False``; None for no limit.
        look_ahead: How many messages may wait, by the number of connected consumers; None for no such limit.
        max_ack_holes: Settled stretches above the lowest outstanding message; with more of them only the lowest
            message goes out. Bounds the cursor token. None for no bound. Refused together with settings under which
            the lowest message could wait for another one: ``redrive``, ``latest_only``, ``max_in_flight``, groups.
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
    archive_blocked: bool = False
    quarantine: bool = False
    on_evict: OnEvict = OnEvict.REDELIVER
    unmatched: Unmatched = Unmatched.HOLD
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
    look_ahead: LookAhead | None = None
    max_ack_holes: int | None = None
    sessions: KeySessions | None = None

    @configuration()
    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            check_int(name, getattr(self, name), least)
        for name, (least, alternative) in _LEAST_OR_NONE.items():
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), least, alternative)
        for name in _SWITCHES:
            check_bool(name, getattr(self, name))
        for name, kind in _ENUMS.items():
            check_enum(name, getattr(self, name), kind)
        for name, values in _PARTS.items():
            if getattr(self, name) is not None or name not in _MAY_BE_NONE:
                check_kind(name, getattr(self, name), values, ", or None" if name in _MAY_BE_NONE else "")
        if self.start is not None:
            check_position("start", self.start, "be None or an int")
        check_int("retry.max_delay_ms", self.retry.max_delay_ms, 0)
        self._check_memory()
        self._check_together()

    def to_json(self) -> dict[str, object]:
        """Return every setting as plain data that JSON can hold, for snapshots and logs.

        Returns:
            A dict that `from_json` accepts.

        Example:
            >>> DispatcherConfig(poison=Poison.BLOCK).to_json()["poison"]
            'block'
        """
        return settings_to_json(self)

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Rebuild a configuration from `to_json`.

        Args:
            data: What `to_json` returned, or what JSON made of it. An absent setting takes its default.

        Returns:
            An equal configuration.

        Raises:
            SnapshotError: A setting is unknown, of the wrong type or out of range.

        Example:
            >>> config = DispatcherConfig(window=100)
            >>> DispatcherConfig.from_json(config.to_json()) == config == DispatcherConfig.from_json({"window": 100})
            True
        """
        config: Self = settings_from_json("config", data, cls, _PARTS | _ENUMS | {"backoff": Backoff})
        return config

    def _check_memory(self) -> None:
        if self.max_waiting_per_key is not None and self.spill:
            raise ArgumentError(
                "max_waiting_per_key", self.max_waiting_per_key, "be None unless spill is False: spilled messages wait"
            )
        if not self.spill:
            return
        if self.max_tracked < self.window:
            raise ArgumentError("max_tracked", self.max_tracked, f"be at least window, {shown(self.window)}")
        for name in ("max_in_flight_per_key", "batch_per_key"):
            if self.max_loaded_per_key < getattr(self, name):
                requirement = f"be at least {name}, {shown(getattr(self, name))}: open deliveries are loaded"
                raise ArgumentError("max_loaded_per_key", self.max_loaded_per_key, requirement)

    def _check_together(self) -> None:
        """Refuse each setting of `_REFUSED` that is set together with another one that rules it out."""
        for name, value, other, is_set, why in (
            ("batch_per_key", 1, "max_in_flight_per_key above 1", self.max_in_flight_per_key > 1, _ONE_OR_OTHER),
            ("batch_per_key", 1, "latest_only", self.latest_only, "there would never be two messages for a batch"),
            ("archive_blocked", False, "another policy than BLOCK", self.poison is not Poison.BLOCK, _NO_BLOCK),
            ("quarantine", False, "another policy than DEAD_LETTER", self.poison is not Poison.DEAD_LETTER, _NO_LETTER),
            ("max_ack_holes", None, "max_in_flight", self.max_in_flight is not None, _LOWEST_WAITS),
            ("max_ack_holes", None, "redrive", self.redrive, _LOWEST_WAITS),
            ("max_ack_holes", None, "latest_only", self.latest_only, "replaced messages are settled all the same"),
            ("latest_only", False, "ordering_required", self.ordering_required, _GIVES_UP),
            ("unit", DrainUnit.KEY, "ordering_required", self.ordering_required, "there is one lane to drain"),
        ):
            if is_set and getattr(self, name) != value:
                raise ArgumentError(name, getattr(self, name), f"be {shown(value)} with {other}: {why}")
        if self.ordering_required:
            for name, wanted, given in (
                ("unmatched", "HOLD or ERROR", self.unmatched is not Unmatched.SKIP),
                ("on_evict", "REDELIVER", self.on_evict is OnEvict.REDELIVER),
                ("poison", "BLOCK", self.poison is Poison.BLOCK),
            ):
                if not given:
                    raise ArgumentError(name, getattr(self, name), f"be {wanted} with ordering_required: {_GIVES_UP}")


_LEAST: Final = {
    "window": 1,
    "max_tracked": 1,
    "max_in_flight_per_consumer": 1,
    "max_in_flight_per_key": 1,
    "batch_per_key": 1,
    "max_loaded_per_key": 1,
}
_LEAST_OR_NONE: Final = {
    "max_in_flight": (1, ", or None for no limit"),
    "max_waiting_per_key": (1, ", or None for no limit"),
    "max_ack_holes": (0, ", or None for no bound"),
    "ack_timeout_ms": (1, ", or None for never"),
    "inactive_grace_ms": (0, ", or None for never"),
    "drain_timeout_ms": (0, ", or None for never"),
}
_SWITCHES: Final = (
    *("archive_blocked", "latest_only", "measure", "ordering_required", "quarantine", "redrive", "spill"),
    "tell_settled",
)
_ENUMS: Final[dict[str, type[StrEnum]]] = {
    "poison": Poison,
    "on_evict": OnEvict,
    "unmatched": Unmatched,
    "unit": DrainUnit,
}
_PARTS: Final[dict[str, type]] = {
    "retry": RetryPolicy,
    "group": GroupLimits,
    "look_ahead": LookAhead,
    "sessions": KeySessions,
}
_MAY_BE_NONE: Final = frozenset({"look_ahead", "sessions"})
_ONE_OR_OTHER: Final = "a key is worked on in batches or in a pipeline"
_NO_BLOCK: Final = "no message is blocked"
_NO_LETTER: Final = "a key follows only its dead letter"
_LOWEST_WAITS: Final = "the lowest message could wait for another one, which may not go out"
_GIVES_UP: Final = "a message would go out although an older one was given up"


def settings_to_json(settings: Any) -> dict[str, object]:  # noqa: ANN401 - any dataclass of settings
    """Return the fields of a dataclass of settings as plain data; a part that is such a dataclass likewise."""
    values: dict[str, object] = {}
    for each in fields(settings):
        value = getattr(settings, each.name)
        if hasattr(value, "__dataclass_fields__"):
            value = settings_to_json(value)
        values[each.name] = value.value if isinstance(value, StrEnum) else value
    return values


def settings_from_json(  # the result is of that kind
    parameter: str, data: object, kind: type[Any], kinds: Mapping[str, type[Any]]
) -> Any:  # noqa: ANN401
    """Build a dataclass of settings from plain data, in which absent fields take their defaults.

    Args:
        parameter: What the data is called in an error.
        data: What `settings_to_json` returned.
        kind: The dataclass.
        kinds: The enumeration or the dataclass of each field, in it or in a part of it, that is one.

    Raises:
        SnapshotError: A field is unknown, required and absent, of the wrong type or out of range.
    """
    known = {each.name: each for each in fields(kind)}
    needed = {name for name, each in known.items() if each.default is MISSING and each.default_factory is MISSING}
    if not isinstance(data, dict) or not needed <= set(data) <= set(known):
        given = list(data) if isinstance(data, dict) else data
        raise SnapshotError(parameter, given, f"be a dict with fields of {', '.join(known)}")
    values: dict[str, Any] = dict(data)
    try:
        for name in values.keys() & kinds.keys():
            if issubclass(kinds[name], StrEnum):
                values[name] = _member(kinds[name], name, values[name])
            elif values[name] is not None:
                values[name] = settings_from_json(f"{parameter}.{name}", values[name], kinds[name], kinds)
        return kind(**values)
    except SnapshotError:
        raise
    except ArgumentError as error:
        raise SnapshotError(f"{parameter}: {error.parameter}", error.value, error.requirement) from error


def _member(kind: type[StrEnum], parameter: str, value: object) -> StrEnum:
    for member in kind:
        if member.value == value:
            return member
    raise ArgumentError(parameter, value, f"be one of {', '.join(kind)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Functions of a key, and a name for this version of them.

    The dispatcher calls a function when the first message of a key is offered, and not again until the key comes back
    after all of its messages were settled. A function has to return the same value for the same key as long as the mark
    is the same. If a function raises, or returns a value of another type, the offer raises `ConfigError` and has
    changed nothing.

    Args:
        mark: The name of this version of the functions. A snapshot of another mark is refused.
        group_of: The group that a key is in; None is the group ``""``.
        limit_of: How many deliveries of the key may be open, at least 1. Replaces ``max_in_flight_per_key``; a batch of
            the key has at most as many messages. Never more than ``max_loaded_per_key`` are open.
        latest_only: Whether a newer message of the key takes the place of an older one that was never delivered.

    Raises:
        ConfigError: The mark is no text, or empty, or a function cannot be called.

    Example:
        >>> rules = Rules(mark="tenants-1", group_of=lambda key: key.partition(b"/")[0].decode())
        >>> rules.group_of(b"acme/order-7")
        'acme'
    """

    mark: str
    group_of: Callable[[bytes], str | None] | None = None
    limit_of: Callable[[bytes], int] | None = None
    latest_only: Callable[[bytes], bool] | None = None

    @configuration()
    def __post_init__(self) -> None:
        check_text("mark", self.mark)
        for name in ("group_of", "limit_of", "latest_only"):
            function = getattr(self, name)
            if function is not None:
                check_callable(name, function, "the bytes of a key, or be None")


def check_rules(rules: object, config: DispatcherConfig) -> Rules:
    """Return rules that fit a configuration.

    Raises:
        ArgumentError: They are no `Rules`.
        ConfigError: They contradict the configuration.
    """
    given = check_kind("rules", rules, Rules, ", or None")
    for function, setting, is_set, why in (
        ("group_of", "ordering_required", config.ordering_required, "its one lane is in one group"),
        ("limit_of", "ordering_required", config.ordering_required, "its one lane has one limit"),
        ("latest_only", "ordering_required", config.ordering_required, "its one lane has messages of many keys"),
        ("group_of", "max_ack_holes", config.max_ack_holes is not None, "the lowest message could wait for its group"),
        (
            "latest_only",
            "max_ack_holes",
            config.max_ack_holes is not None,
            "replaced messages are settled all the same",
        ),
        ("latest_only", "latest_only", config.latest_only, "that is set for every key already"),
    ):
        if is_set and getattr(given, function) is not None:
            with configuration():
                raise ArgumentError("rules", given, f"have no {function} with {setting}: {why}")
    return given
