"""What is to be simulated: who consumes, what changes when, who fails at what. Values, checked before anything runs."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from keyshared._checks import check_bool, check_enum, check_int, check_kind, check_several, check_text, configuration
from keyshared.config import DispatcherConfig, Rules
from keyshared.config.rules import check_rules
from keyshared.errors import ArgumentError
from keyshared.glob import KeyFilter
from keyshared.hashing.named import Key, key_bytes
from keyshared.placement.protocol import Placement
from keyshared.placement.ranges import Weight
from keyshared.ring import HashRing
from keyshared.simulate.service import AnswerModel, PerMessage, ServiceTime, check_service

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

    It takes whatever is delivered to it, works on up to ``concurrency`` messages at once, in the order in which they
    came, and answers each when its service time is over. When a delivery is released, it is dropped if it still waits
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
        check_service("service", self.service)
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
    """A consumer joins.

    Args:
        at_ms: When.
        consumer: Who.
    """

    at_ms: int
    consumer: SimulatedConsumer


@dataclass(frozen=True, slots=True)
class Leave:
    """A consumer leaves in good order.

    Args:
        at_ms: When.
        name: Who.
        drain_ms: How long it may go on with what it has; 0 for not at all, None for as long as it takes.
    """

    at_ms: int
    name: str
    drain_ms: int | None = 0


@dataclass(frozen=True, slots=True)
class Crash:
    """A consumer's process dies: its work is lost, it answers nothing, and the dispatcher calls it inactive.

    Args:
        at_ms: When.
        name: Who.
    """

    at_ms: int
    name: str


@dataclass(frozen=True, slots=True)
class Return:
    """A consumer that crashed is back. If it has been evicted meanwhile, it joins again.

    Args:
        at_ms: When.
        name: Who.
        resumed: It kept its list of open deliveries, and starts each of them again; otherwise they are sent again.
    """

    at_ms: int
    name: str
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class SetLimit:
    """A consumer may hold more or less.

    Args:
        at_ms: When.
        name: Who.
        limit: Deliveries that it may have open.
    """

    at_ms: int
    name: str
    limit: int


@dataclass(frozen=True, slots=True)
class SetWeight:
    """A consumer's share of the keys changes.

    Args:
        at_ms: When.
        name: Who.
        weight: The new weight.
    """

    at_ms: int
    name: str
    weight: Weight


@dataclass(frozen=True, slots=True)
class SetService:
    """A consumer becomes slower or faster; work that has begun goes on as before.

    Args:
        at_ms: When.
        name: Who.
        service: How long it works on a message from now on.
    """

    at_ms: int
    name: str
    service: ServiceTime


@dataclass(frozen=True, slots=True)
class Unblock:
    """Somebody has looked at the blocked messages of a key and lets them go out again.

    Args:
        at_ms: When.
        key: Which key; None for all messages without one.
    """

    at_ms: int
    key: Key


@dataclass(frozen=True, slots=True)
class Redrive:
    """Somebody has mended what was wrong with the messages of a key, and brings its dead letters back.

    Those with the lowest offsets come first, as many as there are free slots; the rest stays in the dead-letter store.

    Args:
        at_ms: When.
        key: Which key; None for all messages without one.
    """

    at_ms: int
    key: Key


Change: TypeAlias = Join | Leave | Crash | Return | SetLimit | SetWeight | SetService | Unblock | Redrive


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A whole subscription, as data.

    Args:
        consumers: Who is there from the start, in order of joining.
        changes: What happens later; kept in order of time, at one instant in the given order.
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
        ConfigError: A field can never work, or a change does not fit: somebody leaves who never joined, comes back who
            never crashed, joins twice, or something happens before the start.

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
            object.__setattr__(self, name, _as_tuple(name, getattr(self, name)))
        self._check_values()
        self._check_parts()
        object.__setattr__(self, "placement", self.placement.copy())
        object.__setattr__(self, "changes", tuple(sorted(self.changes, key=lambda change: change.at_ms)))
        self._check_story()

    def _check_values(self) -> None:
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

    def _check_parts(self) -> None:
        for consumer in self.consumers:
            check_kind("consumers", consumer, SimulatedConsumer)
        for model in self.answers:
            if not callable(getattr(model, "answer", None)) or not hasattr(model, "reason"):
                requirement = "hold models such as Poisoned(keys), with a method answer and an attribute reason"
                raise ArgumentError("answers", model, requirement)
        start = 0 if self.start_ms is None else self.start_ms
        for change in self.changes:
            _check_change(change)
            if change.at_ms < start:
                raise ArgumentError("changes", change, f"not come before the start, {start}")
            if isinstance(change, Redrive) and not self.config.redrive:
                raise ArgumentError("changes", change, "come with DispatcherConfig(redrive=True)")

    def _check_story(self) -> None:
        """Follow everybody through the plan; raise if somebody is to do what their state does not allow."""
        state: dict[str, _Presence] = {}
        for consumer in self.consumers:
            if consumer.name in state:
                raise ArgumentError("consumers", consumer.name, "be named once")
            state[consumer.name] = _Presence.UP
        for change in self.changes:
            if isinstance(change, Redrive | Unblock):
                continue
            name = change.consumer.name if isinstance(change, Join) else change.name
            allowed, after = _STORY[type(change)]
            before = state.get(name, _Presence.ABSENT)
            if before not in allowed:
                raise ArgumentError("changes", change, f"come while {name!r} is {' or '.join(allowed)}")
            state[name] = before if after is None else after


class _Presence(StrEnum):
    """What a plan alone can tell about a consumer; whether one that is down has been evicted, only the run can."""

    ABSENT = "absent"
    UP = "up"
    DOWN = "down"


_HERE: Final = (_Presence.UP, _Presence.DOWN)
_STORY: Final[dict[type, tuple[tuple[_Presence, ...], _Presence | None]]] = {
    Join: ((_Presence.ABSENT,), _Presence.UP),
    Leave: (_HERE, _Presence.ABSENT),
    Crash: ((_Presence.UP,), _Presence.DOWN),
    Return: ((_Presence.DOWN,), _Presence.UP),
    SetLimit: (_HERE, None),
    SetWeight: (_HERE, None),
    SetService: (_HERE, None),
}


def _as_tuple(name: str, values: Iterable[object]) -> tuple[object, ...]:
    return tuple(check_several(name, values, name))


def _check_change(change: object) -> None:
    if not isinstance(change, Change):
        raise ArgumentError("changes", change, "hold changes such as Join or Crash only")
    check_int("at_ms", change.at_ms, 0)
    match change:
        case Join(_, consumer):
            check_kind("consumer", consumer, SimulatedConsumer)
        case Leave(_, _, drain_ms):
            if drain_ms is not None:
                check_int("drain_ms", drain_ms, 0)
        case SetLimit(_, _, limit):
            check_int("limit", limit, 0)
        case SetService(_, _, service):
            check_service("service", service)
        case Redrive(_, key) | Unblock(_, key):
            key_bytes(key)
        case _:
            pass  # a weight is checked by the placement, which alone knows what it can do
