"""Why effects are tuples: what building one costs, against the frozen dataclass that would say the same."""

from dataclasses import dataclass

from benchmarks._harness import Report, Scale, repeated, turns

from keyshared.effects import Deliver

EFFECTS = 100_000
REPEATS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliverDataclass:
    offset: int
    key: bytes | None
    consumer: str
    attempt: int
    failures: int
    item: object


def new_tuple(offset: int) -> Deliver:
    return Deliver(offset, b"k", "c1", 1, 0, None)


def new_dataclass(offset: int) -> DeliverDataclass:
    return DeliverDataclass(offset=offset, key=b"k", consumer="c1", attempt=1, failures=0, item=None)


def run(scale: Scale) -> list[Report]:
    offsets = range(scale.size(EFFECTS))
    cases = {"tuple": repeated(new_tuple, offsets), "frozen dataclass": repeated(new_dataclass, offsets)}
    found = turns(cases, scale.repeats(REPEATS))
    report = Report("effects", ("ns", "to a tuple"), ["one Deliver, built"])
    for name, nanoseconds in found.items():
        report.add(name, nanoseconds, nanoseconds / found["tuple"])
    return [report]
