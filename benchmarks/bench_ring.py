"""Owner lookup, joins and leaves of the hash ring; the lookup against uhashring in the same run."""

from collections.abc import Callable

from benchmarks._harness import Report, Scale, repeated, timed, turns
from uhashring import HashRing as UHashRing

from keyshared.ring import HashRing

CONSUMERS = 100
VNODES = 100
KEYS = 20_000
REPEATS = 11
LOOKUP_BOUND = 2.0


def first_of_walk(ring: HashRing) -> Callable[[int], object]:
    ranges = ring.ranges

    def first(slot: int) -> object:
        return next(ranges.walk(slot))

    return first


def join_and_leave(ring: HashRing, times: int) -> Callable[[], int]:
    def run() -> int:
        for _ in range(times):
            ring.add("newcomer")
            ring.remove("newcomer")
        return 2 * times

    return run


def run(scale: Scale) -> list[Report]:
    names = [f"consumer-{number}" for number in range(CONSUMERS)]
    keys = [f"customer-{number}" for number in range(scale.size(KEYS))]
    encoded = [key.encode() for key in keys]
    ring = HashRing(names, vnodes=VNODES)
    other = UHashRing(names, vnodes=VNODES)
    danube = HashRing.danube(range(CONSUMERS))
    found = turns(
        {
            "uhashring get_node(str)": repeated(other.get_node, keys),
            "owner_of(str)": repeated(ring.ranges.owner_of, keys),
            "owner_of(bytes)": repeated(ring.ranges.owner_of, encoded),
            "danube owner_of(bytes)": repeated(danube.ranges.owner_of, encoded),
            "first of walk(slot)": repeated(first_of_walk(ring), range(0, 65536, 65536 // len(keys))),
            "join or leave": timed(join_and_leave(ring, scale.repeats(5))),
        },
        scale.repeats(REPEATS),
    )
    base = found["uhashring get_node(str)"]
    report = Report("ring", ("ns", "uhashring/this"), [f"{CONSUMERS} consumers x {VNODES} points"])
    for name, nanoseconds in found.items():
        report.add(name, nanoseconds, base / nanoseconds)
    for name in ("owner_of(str)", "owner_of(bytes)"):
        report.judge(f"uhashring / {name}", base / found[name], LOOKUP_BOUND, at_most=False)
    return [report]
