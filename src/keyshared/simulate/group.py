"""A simulated subscription as data: its consumers, changes of membership, failures. Checked before anything runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from keyshared._checks import (
    check_bool,
    check_enum,
    check_int,
    check_kind,
    check_members,
    check_several,
    check_text,
    configuration,
)
from keyshared.config import DispatcherConfig, Rules
from keyshared.config.dispatcher import check_rules
from keyshared.errors import ArgumentError
from keyshared.glob import KeyFilter
from keyshared.hashing import Key, key_bytes
from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import Weight
from keyshared.ring import HashRing
from keyshared.simulate.service import AnswerModel, PerMessage, ServiceTime

__all__ = [
    "Arrival",
    "Change",
    "Crash",
    "Group",
    "Join",
    "Leave",
    "Pace",
    "Redrive",
    "Return",
    "SetLimit",
    "SetService",
    "SetWeight",
    "SimulatedConsumer",
    "Unblock",
]

DEFAULT_MAX_ATTEMPTS: Final = 1_000  # far beyond any retry policy in use, so only endless retries reach it


class Pace(StrEnum):
    """When messages arrive."""

    ARRIVALS = "arrivals"  # at their own ``at_ms``; later if there is no room then
    BACKLOG = "backlog"  # all of them are there already, and are read as fast as the window allows


class Arrival(NamedTuple):
    """One message of the log.

    Attributes:
        offset: Its offset; offsets grow strictly.
        key: Its key, or None.
        at_ms: When it arrives, with `Pace.ARRIVALS`. One that goes back arrives with the message before it.
        service_ms: How long it takes to work on, for `PerMessage`.
        not_before_ms: Before when it is not delivered, on the same clock; its key waits behind it. None: at once.
    """

    offset: int
    key: Key
    at_ms: int = 0
    service_ms: int | None = None
    not_before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SimulatedConsumer:
    """One consumer: a process with a local queue, like the clients of real brokers.

    It works on up to ``concurrency`` messages at once, in the order in which they came, and answers each when its
    service time is over. When a delivery is released, it is dropped if it still waits
    in the local queue; work that has begun is finished, and answered too late.

    Args:
        name: Its name.
        service: How long it works on a message.
        filters: Glob patterns of the keys it takes; none for all.
        weight: Its share of the keys, relative to the others'.
        limit: Deliveries that it may have open, queued ones included; None for the dispatcher's own limit.
        concurrency: Messages that it works on at once.
        takes_batches: It works on all of a batch of a key at once, for as long as the first message of it takes, and
            acks it up to the first message that fails. Needs a ``concurrency`` of 1; where ``config.batch_per_key`` is
            1 nothing comes as a batch, and it works on message after message.
        postpone_ms: For how long it gives back what it answers with `Answer.POSTPONE`.

    Raises:
        ConfigError: A field can never work.

    Example:
        >>> from keyshared.simulate import Fixed, Scaled
        >>> SimulatedConsumer("slow", Scaled(Fixed(10), 5)).service.duration_ms(0, 1, None)
        50
    """

    name: str
    service: ServiceTime = field(default_factory=PerMessage)
    filters: Sequence[str] = ()
    weight: Weight = 1
    limit: int | None = None
    concurrency: int = 1
    takes_batches: bool = False
    postpone_ms: int = 1_000

    @configuration()
    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_members("service", self.service, ServiceTime)
        object.__setattr__(self, "filters", KeyFilter(self.filters).patterns)
        if self.limit is not None:
            check_int("limit", self.limit, 0)
        check_int("concurrency", self.concurrency, 1)
        check_bool("takes_batches", self.takes_batches)
        if self.takes_batches and self.concurrency > 1:
            raise ArgumentError("concurrency", self.concurrency, "be 1 with takes_batches")
        check_int("postpone_ms", self.postpone_ms, 0)


@dataclass(frozen=True, slots=True)
class Join:
    """A consumer joins."""

    at_ms: int
    consumer: SimulatedConsumer


@dataclass(frozen=True, slots=True)
class Leave:
    """A consumer leaves; it goes on with its deliveries for ``drain_ms``: 0 not at all, None as long as it takes."""

    at_ms: int
    name: str
    drain_ms: int | None = 0


@dataclass(frozen=True, slots=True)
class Crash:
    """A consumer's process dies: its work is lost, it answers nothing, and the dispatcher calls it inactive."""

    at_ms: int
    name: str


@dataclass(frozen=True, slots=True)
class Return:
    """A consumer that crashed is back. If it has been evicted meanwhile, it joins again.

    Args:
        at_ms: When.
        name: Its name.
        resumed: It kept its list of open deliveries, and starts each of them again; otherwise they are sent again.
    """

    at_ms: int
    name: str
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class SetLimit:
    """A consumer may have another number of deliveries open."""

    at_ms: int
    name: str
    limit: int


@dataclass(frozen=True, slots=True)
class SetWeight:
    """A consumer's share of the keys changes."""

    at_ms: int
    name: str
    weight: Weight


@dataclass(frozen=True, slots=True)
class SetService:
    """A consumer becomes slower or faster; work that has begun goes on as before."""

    at_ms: int
    name: str
    service: ServiceTime


@dataclass(frozen=True, slots=True)
class Unblock:
    """The blocked messages of a key (None: of all messages without one) may go out again."""

    at_ms: int
    key: Key


@dataclass(frozen=True, slots=True)
class Redrive:
    """The dead letters of a key (None: of all messages without one) come back.

    Those with the lowest offsets come first, as many as there are free slots; the rest stays in the dead-letter store.
    """

    at_ms: int
    key: Key


Change: TypeAlias = Join | Leave | Crash | Return | SetLimit | SetWeight | SetService | Unblock | Redrive


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A whole subscription, as data.

    Args:
        consumers: The consumers at the start, in order of joining.
        changes: Later changes of them; kept in order of time, at one instant in the given order.
        placement: Where keys go; copied.
        config: The dispatcher's limits, times and policies.
        rules: Its functions of a key.
        answers: What consumers answer; the first model that does not say ack decides.
        pace: When messages arrive.
        archive_ms: How long a dead letter takes to be written.
        load_ms: How long a spilled message takes to be read again.
        flush_ms: How long a consumer takes to flush what it keeps for a key.
        start_ms: When it begins; None for the first arrival or change, whichever is earlier, or with
            `Pace.BACKLOG` for 0.
        until_ms: Nothing later than this happens; None for no end.
        max_attempts: A message that is delivered more often stops the simulation: it would never come to rest.
        count_moved_keys: Count how many of the keys seen so far each change of membership moved, exactly. Remembers
            every key.

    Raises:
        ConfigError: A field can never work, or a change does not fit: a consumer leaves that never joined, returns that
            never crashed, or joins twice; or a change comes before the start.

    Example:
        >>> from keyshared.simulate import Fixed
        >>> Group(consumers=[SimulatedConsumer("a", Fixed(10))], changes=[Crash(1_000, "b")])
        Traceback (most recent call last):
        ...
        keyshared.errors.ConfigError: changes is Crash(at_ms=1000, name='b'); it must come while 'b' is up
    """

    consumers: Sequence[SimulatedConsumer] = ()
    changes: Sequence[Change] = ()
    placement: Placement = field(default_factory=HashRing)
    config: DispatcherConfig = field(default_factory=DispatcherConfig)
    rules: Rules | None = None
    answers: Sequence[AnswerModel] = ()
    pace: Pace = Pace.ARRIVALS
    archive_ms: int = 0
    load_ms: int = 0
    flush_ms: int = 0
    start_ms: int | None = None
    until_ms: int | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    count_moved_keys: bool = True

    @configuration()
    def __post_init__(self) -> None:
        for name in ("consumers", "changes", "answers"):
            object.__setattr__(self, name, tuple(check_several(name, getattr(self, name), name)))
        self._check_settings()
        for consumer in self.consumers:
            check_kind("consumers", consumer, SimulatedConsumer)
        for model in self.answers:
            check_members("answers", model, AnswerModel)
        for change in self.changes:
            self._check_change(change)
        object.__setattr__(self, "placement", self.placement.copy())
        object.__setattr__(self, "changes", tuple(sorted(self.changes, key=lambda change: change.at_ms)))
        self._check_presence()

    def _check_settings(self) -> None:
        check_kind("config", self.config, DispatcherConfig)
        if self.rules is not None:
            check_rules(self.rules, self.config)
        if not callable(getattr(self.placement, "copy", None)) or not hasattr(self.placement, "ranges"):
            raise ArgumentError("placement", self.placement, "be a placement such as HashRing()")
        check_enum("pace", self.pace, Pace)
        for name, least in (("archive_ms", 0), ("load_ms", 0), ("flush_ms", 0), ("max_attempts", 1)):
            check_int(name, getattr(self, name), least)
        for name in ("start_ms", "until_ms"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 0)
        check_bool("count_moved_keys", self.count_moved_keys)

    def _check_change(self, change: object) -> None:
        if not isinstance(change, Change):
            raise ArgumentError("changes", change, "hold changes such as Join or Crash only")
        check_int("at_ms", change.at_ms, 0)
        start = self.start_ms or 0
        if change.at_ms < start:
            raise ArgumentError("changes", change, f"not come before the start, {start}")
        match change:
            case Join(_, consumer):
                check_kind("consumer", consumer, SimulatedConsumer)
            case Leave(_, _, drain_ms) if drain_ms is not None:
                check_int("drain_ms", drain_ms, 0)
            case SetLimit(_, _, limit):
                check_int("limit", limit, 0)
            case SetService(_, _, service):
                check_members("service", service, ServiceTime)
            case Redrive(_, key) | Unblock(_, key):
                key_bytes(key)
            case _:
                pass  # a weight is checked by the placement, which alone knows what it can do
        if isinstance(change, Redrive) and not self.config.redrive:
            raise ArgumentError("changes", change, "come with DispatcherConfig(redrive=True)")

    def _check_presence(self) -> None:
        """Follow each consumer through the plan; raise if a change does not fit what it is then."""
        presence: dict[str, str] = {}
        for consumer in self.consumers:
            if consumer.name in presence:
                raise ArgumentError("consumers", consumer.name, "be named once")
            presence[consumer.name] = "up"
        for change in self.changes:
            if isinstance(change, Redrive | Unblock):
                continue
            name = change.consumer.name if isinstance(change, Join) else change.name
            allowed, after = _PRESENCE[type(change)]
            before = presence.get(name, "absent")
            if before not in allowed:
                raise ArgumentError("changes", change, f"come while {name!r} is {' or '.join(allowed)}")
            presence[name] = after or before


# What a consumer may be when a change comes, and what it is after it; None for the same. Whether one that is down has
# been evicted, only the run knows.
_HERE: Final = ("up", "down")
_PRESENCE: Final[dict[type, tuple[tuple[str, ...], str | None]]] = {
    Join: (("absent",), "up"),
    Leave: (_HERE, "absent"),
    Crash: (("up",), "down"),
    Return: (("down",), "up"),
    SetLimit: (_HERE, None),
    SetWeight: (_HERE, None),
    SetService: (_HERE, None),
}
