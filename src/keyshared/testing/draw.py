"""Draw schedules at random, by a seed: few names and keys that meet again and again, and another mix each time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, TypeVar

from keyshared.testing.driver import ABILITIES
from keyshared.testing.steps import (
    NEEDS,
    Ack,
    AckLate,
    AckThrough,
    BeginAck,
    BeginReceive,
    Connect,
    Disconnect,
    Fail,
    FinishAck,
    FinishReceive,
    Flap,
    KillAt,
    Nack,
    NackLate,
    Poll,
    Postpone,
    Publish,
    PublishLater,
    PublishMany,
    ReadOn,
    Restart,
    Schedule,
    Step,
    StopReading,
    Wait,
)

__all__ = ["COLLIDING", "DELAYS_MS", "FILTERS", "KEYS", "NAMES", "World", "draw_schedule"]

COLLIDING: Final = (
    (b"Aa", b"BB"),  # Java's String.hashCode
    (b"plumless", b"buckeroo"),  # CRC-32
    (b"k176", b"k358"),  # the slot of keyshared's own hash
)
"""Different keys of one hash: a system that tells keys apart by their hash takes them for one."""

KEYS: Final[tuple[bytes, ...]] = (
    *(b"a", b"b", b"c", b"d", b""),
    *(key for pair in COLLIDING for key in pair),
    *("ключ".encode(), "e\u0301".encode(), b"\xff\x00", b"a b", b"a/0"),
)
"""Keys that find faults: some plain ones, the empty one, colliding ones, Unicode (one not normalised), no UTF-8."""

NAMES: Final = ("c1", "c2", "c3", "c11", "g2/c1")
"""Names that find faults: of names with digits at the end a number may be appended, and a group's prefix stripped."""

FILTERS: Final[tuple[tuple[str, ...], ...]] = ((), ("a",), ("b", "c*"), ("*",), ("?",))
"""What consumers may want: everything, one key, some, everything again, all keys of one character."""

DELAYS_MS: Final = (1, 10, 100, 1_000)
"""Milliseconds that pass, besides the timeouts of a system."""

_Option = TypeVar("_Option")

_MOST_STATEMENTS: Final = 24  # before which a process is killed
_WEIGHTS: Final = (0, 0, 1, 1, 2)  # of a kind of step: some kinds are missing in each schedule
_ALWAYS: Final = 3
_FEW_KEYS: Final = 3
_ONE_HALF: Final = 0.5
_RARELY: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The material that schedules are made of.

    Attributes:
        can: Abilities of the driver.
        keys: What is published.
        names: What consumers are called.
        delays: Milliseconds that pass.
        filters: What consumers want.
        most_consumers: How many are connected at once.
        most_steps: How many steps a schedule has at most.
    """

    can: frozenset[str] = frozenset(ABILITIES)
    keys: Sequence[bytes | None] = KEYS
    names: Sequence[str] = NAMES
    delays: Sequence[int] = DELAYS_MS
    filters: Sequence[tuple[str, ...]] = FILTERS
    most_consumers: int = 3
    most_steps: int = 50


def draw_schedule(random: Random, world: World) -> Schedule:
    """Draw a schedule that begins with a join.

    Args:
        random: The dice.
        world: What it is made of.
    """
    return _Schedule(random, world).draw()


class _Schedule:
    """A schedule while it is drawn: who is connected is known, what the broker does is not."""

    def __init__(self, random: Random, world: World) -> None:
        self.random = random
        self.world = world
        self.names = self._some(world.names, 1, max(2, world.most_consumers))
        self.keys = self._some(world.keys[:_FEW_KEYS] if random.random() < _ONE_HALF else world.keys, 1, 3)
        if world.keys is KEYS and random.random() < _RARELY:
            self.keys = list(random.choice(COLLIDING))
        self.members: list[str] = []
        kinds = [kind for kind in _OFTEN + _RARE if NEEDS.get(kind, frozenset()) <= world.can]
        self.kinds = kinds
        self.weights = [_ALWAYS if kind in _OFTEN else random.choice(_WEIGHTS) for kind in kinds]
        dice = random.randint
        self.arguments: dict[type[Step], Callable[[], Sequence[Any]]] = {
            **dict.fromkeys((Ack, AckThrough, Nack), lambda: (dice(0, 7),)),
            **dict.fromkeys((AckLate, NackLate, FinishReceive, FinishAck), lambda: (dice(0, 3),)),
            Publish: lambda: (self.key(), random.choice([1, 1, 2, 3, 4])),
            PublishMany: lambda: (tuple(self.key() for _ in range(dice(1, 4))),),
            PublishLater: lambda: (self.key(), self.delay()),
            Postpone: lambda: (dice(0, 7), self.delay()),
            Fail: lambda: (dice(0, 7), dice(2, 6)),
            BeginAck: lambda: (dice(0, 7), dice(1, 3)),
            Wait: lambda: (self.delay(),),
            KillAt: lambda: (dice(1, _MOST_STATEMENTS),),
            Poll: self.poll,
        }
        self.prefixes = [kind for kind in _PREFIXES if NEEDS.get(kind, frozenset()) <= world.can]

    def draw(self) -> Schedule:
        random = self.random
        length = max(random.randint(1, self.world.most_steps), random.randint(1, self.world.most_steps))
        steps: list[Step] = [*self.step(Connect)]
        while len(steps) < length:
            if random.random() < _RARELY:
                steps += self.step(random.choice(self.prefixes))
            steps += self.step(random.choices(self.kinds, self.weights)[0])
        return tuple(steps[: self.world.most_steps])

    def step(self, kind: type[Step]) -> tuple[Step, ...]:
        """Draw a step of a kind; none if it needs a consumer and nobody is connected."""
        if kind in _OF_A_CONSUMER:
            return self.of_a_consumer(kind)
        arguments = self.arguments.get(kind)
        return (kind(*(arguments() if arguments is not None else ())),)

    def of_a_consumer(self, kind: type[Step]) -> tuple[Step, ...]:
        random = self.random
        if kind is Connect:
            others = [name for name in self.names if name not in self.members]
            if not others or len(self.members) >= self.world.most_consumers:
                return ()
            name = random.choice(others)
            self.members.append(name)
            return (Connect(name, random.choice(self.world.filters) if random.random() < _ONE_HALF else ()),)
        if not self.members:
            return ()
        name = random.choice(self.members)
        if kind is Disconnect:
            self.members.remove(name)
        if kind is StopReading:
            return (StopReading(name), *(Publish(self.key()) for _ in range(random.randint(0, 4))))
        if kind is BeginReceive:
            return (BeginReceive(name, random.randint(1, 3)),)
        make: Callable[[str], Step] = Disconnect if kind is Disconnect else Flap
        return (make(name),)

    def poll(self) -> tuple[tuple[str, ...], int | None]:
        most = self.random.choice([None, None, 1, 2]) if "receive_some" in self.world.can else None
        return tuple(self.random.sample(self.members, min(len(self.members), self.random.randint(1, 2)))), most

    def key(self) -> bytes | None:
        return self.random.choice(self.keys)

    def delay(self) -> int:
        return self.random.choice(self.world.delays)

    def _some(self, options: Sequence[_Option], least: int, most: int) -> list[_Option]:
        return self.random.sample(list(options), min(len(options), self.random.randint(least, most)))


_OFTEN: Final[tuple[type[Step], ...]] = (Publish, Ack)
_RARE: Final[tuple[type[Step], ...]] = (
    *(Connect, Connect, Disconnect, Flap, StopReading, ReadOn, AckLate, Nack, NackLate, Wait, Wait, AckThrough),
    *(Postpone, PublishLater, PublishMany, Fail, Restart, FinishReceive, BeginAck, FinishAck),
)
_PREFIXES: Final[tuple[type[Step], ...]] = (Poll, Poll, KillAt, BeginReceive)
_OF_A_CONSUMER: Final = frozenset({Connect, Disconnect, Flap, StopReading, BeginReceive})
