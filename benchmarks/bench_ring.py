"""Who owns a key: the ring against uhashring in the same run."""

from benchmarks._harness import Report, Scale, repeated, turns
from uhashring import HashRing as UHashRing

from keyshared.ring import HashRing

CONSUMERS = 100
VNODES = 100
LOOKUPS = 20_000
REPEATS = 11
LOOKUP_BOUND = 2.0


def run(scale: Scale) -> list[Report]:
    names = [f"consumer-{number}" for number in range(CONSUMERS)]
    keys = [f"customer-{number}" for number in range(scale.size(LOOKUPS))]
    encoded = [key.encode() for key in keys]
    ranges = HashRing(names, vnodes=VNODES).ranges
    cases = {
        "uhashring get_node(str)": repeated(UHashRing(names, vnodes=VNODES).get_node, keys),
        "owner_of(str)": repeated(ranges.owner_of, keys),
        "owner_of(bytes)": repeated(ranges.owner_of, encoded),
    }
    found = turns(cases, scale.repeats(REPEATS))
    base = found["uhashring get_node(str)"]
    report = Report("ring", ("ns", "uhashring/this"), [f"{CONSUMERS} consumers x {VNODES} points"])
    for name, nanoseconds in found.items():
        report.add(name, nanoseconds, base / nanoseconds)
    for name in ("owner_of(str)", "owner_of(bytes)"):
        report.judge(f"uhashring / {name}", base / found[name], LOOKUP_BOUND, at_most=False)
    return [report]
