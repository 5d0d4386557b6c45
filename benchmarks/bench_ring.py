"""Owner lookup, joins and leaves of the hash ring; the lookup against uhashring in the same run."""

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

from uhashring import HashRing as UHashRing

from keyshared.ring import HashRing

CONSUMERS = 100
VNODES = 100
KEYS = [f"customer-{i}" for i in range(20_000)]
REPEATS = 11


def lookups(owner_of: Callable[[str], object], keys: list[str]) -> Callable[[], int]:
    def run() -> int:
        for key in keys:
            owner_of(key)
        return len(keys)

    return run


def byte_lookups(owner_of: Callable[[bytes], object]) -> Callable[[], int]:
    keys = [key.encode() for key in KEYS]

    def run() -> int:
        for key in keys:
            owner_of(key)
        return len(keys)

    return run


def first_of_walk(ring: HashRing) -> Callable[[], int]:
    ranges = ring.ranges

    def run() -> int:
        for slot in range(0, 65536, 8):
            next(ranges.walk(slot))
        return 8192

    return run


def join_and_leave(ring: HashRing) -> Callable[[], int]:
    def run() -> int:
        ring.add("newcomer")
        ring.remove("newcomer")
        return 2

    return run


def interleaved(cases: dict[str, Callable[[], int]]) -> dict[str, float]:
    """Give the median nanoseconds per operation; the cases take turns, so that a busy machine slows all of them."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(REPEATS):
        for name, run in cases.items():
            started = perf_counter_ns()
            operations = run()
            times[name].append((perf_counter_ns() - started) / operations)
    return {name: median(values) for name, values in times.items()}


def main() -> None:
    names = [f"consumer-{i}" for i in range(CONSUMERS)]
    ring = HashRing(names, vnodes=VNODES)
    other = UHashRing(names, vnodes=VNODES)
    danube = HashRing.danube(range(CONSUMERS))
    results = interleaved(
        {
            "uhashring get_node(str)": lookups(other.get_node, KEYS),
            "keyshared owner_of(str)": lookups(ring.ranges.owner_of, KEYS),
            "keyshared owner_of(bytes)": byte_lookups(ring.ranges.owner_of),
            "keyshared danube owner_of(bytes)": byte_lookups(danube.ranges.owner_of),
            "keyshared first of walk(slot)": first_of_walk(ring),
            "keyshared join or leave": join_and_leave(ring),
        }
    )
    base = results["uhashring get_node(str)"]
    print(f"{CONSUMERS} consumers x {VNODES} points, {len(KEYS)} keys, median of {REPEATS} interleaved repeats")
    for name, nanoseconds in results.items():
        print(f"{name:36}{nanoseconds:14,.0f} ns{base / nanoseconds:10.2f} x uhashring")


if __name__ == "__main__":
    main()
