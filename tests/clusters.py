"""Two clusters that get the records of several origins in different orders, and what a translation of offsets costs.

Drawn from a seed, so that its figures can be printed in the documentation. It knows nothing of the code under test but
the translation that it is given.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import NamedTuple

ORIGINS = ("eu", "us", "ap")
PER_ORIGIN = 40
MEAN_GAP_MS = 4_000
RUNS = 100


class Record(NamedTuple):
    """One record on one cluster."""

    origin: str
    origin_offset: int
    timestamp: int


@dataclass(frozen=True)
class World:
    """What two clusters hold at the end, and how far the group has come on the first one."""

    source: tuple[Record, ...]
    target: tuple[Record, ...]
    processed: int  # of the source's records: the committed offset

    @property
    def done(self) -> set[tuple[str, int]]:
        return {record[:2] for record in self.source[: self.processed]}

    @property
    def unprocessed_timestamps(self) -> list[int]:
        """On the target: the clocks there decide what a timestamp finds."""
        return [record.timestamp for record in self.target if record[:2] not in self.done]

    def lost(self, resume: int) -> int:
        """How many records the group never sees if it resumes there."""
        return sum(record[:2] not in self.done for record in self.target[:resume])

    def read_again(self, resume: int) -> int:
        return sum(record[:2] in self.done for record in self.target[resume:])


@dataclass(frozen=True)
class Trouble:
    """What happens between the clusters: milliseconds."""

    name: str
    lag: int = 5_000
    outage: int = 0
    skew: int = 0
    append_time_behind: int | None = None  # the target stamps records itself, with a clock that is so far behind


TROUBLES = (
    Trouble("lag 5 s"),
    Trouble("lag 120 s", lag=120_000),
    Trouble("outage 150 s", outage=150_000),
    Trouble("skew 180 s", skew=180_000),
    Trouble("LogAppendTime, clock 120 s behind", append_time_behind=120_000),
)


def _arrivals(random: Random, created: list[int], trouble: Trouble, *, local: bool) -> list[int]:
    """When the records of one origin reach a cluster: never in another order than they were produced."""
    if local:
        return created
    down = random.randrange(created[-1])
    arrivals: list[int] = []
    for instant in created:
        arrival = instant + random.randint(0, trouble.lag)
        if down <= arrival < down + trouble.outage:
            arrival = down + trouble.outage
        arrivals.append(max(arrival, arrivals[-1] if arrivals else 0))
    return arrivals


def world(seed: int, trouble: Trouble) -> World:
    """Draw a world: each origin produces on a cluster of its own, the first is the source, the second the target."""
    random = Random(f"{trouble.name} {seed}")
    logs: tuple[list[tuple[int, Record]], list[tuple[int, Record]]] = ([], [])
    for origin in ORIGINS:
        skew = random.randint(-trouble.skew // 2, trouble.skew // 2)
        created: list[int] = []
        for _ in range(PER_ORIGIN):
            created.append((created[-1] if created else 1_000_000) + random.randint(1, 2 * MEAN_GAP_MS))
        for log, home in zip(logs, ORIGINS, strict=False):
            arrivals = _arrivals(random, created, trouble, local=origin == home)
            for offset, (instant, arrival) in enumerate(zip(created, arrivals, strict=True)):
                stamped = instant + skew
                if log is logs[1] and trouble.append_time_behind is not None:
                    stamped = arrival - trouble.append_time_behind
                log.append((arrival, Record(origin, offset, stamped)))
    source, target = (tuple(record for _, record in sorted(log, key=_arrival)) for log in logs)
    return World(source, target, random.randint(1, len(source) - 1))


def _arrival(entry: tuple[int, Record]) -> tuple[int, str, int]:
    return entry[0], entry[1].origin, entry[1].origin_offset


class Cost(NamedTuple):
    """What a way of translating costs over many worlds."""

    runs_with_loss: int
    read_again: float  # mean


@cache
def worlds(trouble: Trouble) -> tuple[World, ...]:
    """The worlds of a trouble: always the same ones."""
    return tuple(world(seed, trouble) for seed in range(RUNS))


def cost(trouble: Trouble, translate: Callable[[World], int]) -> Cost:
    """Translate in every world of a trouble."""
    resumed = [(each, translate(each)) for each in worlds(trouble)]
    lossy = sum(each.lost(resume) > 0 for each, resume in resumed)
    return Cost(lossy, sum(each.read_again(resume) for each, resume in resumed) / RUNS)
