"""Globs and filters against fnmatch in the same run; many patterns on many consumers; long keys."""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from itertools import count
from time import process_time_ns

from benchmarks._harness import Report, Scale, Timed, repeated, turns

from keyshared.config import DispatcherConfig, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.glob import Glob, KeyFilter
from keyshared.ring import HashRing

KEYS = 4_500
REPEATS = 11
FEW_REPEATS = 5  # of cases whose heap takes longer to be collected than they take
FILTERS = {
    "exact": ["eu-west-1-order"],
    "100 exact": [f"eu-west-{number}-order" for number in range(100)],
    "prefix": ["eu-*"],
    "middle star": ["eu-*-order"],
    "question mark": ["eu-west-?-order"],
    "mixed": ["payment", "ship*", "eu-west-?", "us-*-order"],
}
CONSUMERS = 8
PATTERNS = (10, 100, 1_000, 10_000)  # on each of them
JUDGED = 1_000
BOUND_US = 100
NEW_KEYS = 400
KINDS = {
    "exact": "eu-west-{0}-{1}-order",
    "prefix": "eu-west-{0}-*",
    "suffix": "*-{0}-order",
    "inner star": "eu-west-{0}-*-order",
    "two stars": "*-{0}-*",
    "question mark": "eu-west-?-{0}-order",
    "star and question mark": "*?{0}-?*",
}
LENGTHS = (20_000, 200_000, 2_000_000)


def fnmatched(patterns: list[str]) -> Callable[[str], bool]:
    def accepts(key: str) -> bool:
        return any(fnmatchcase(key, pattern) for pattern in patterns)

    return accepts


def against_fnmatch(scale: Scale) -> Report:
    count = scale.size(KEYS)
    keys = [f"{region}-west-{number}-order" for number in range(count // 3) for region in ("eu", "us", "ap")]
    encoded = [key.encode() for key in keys]
    report = Report("glob", ("ns", "fnmatch ns", "fnmatch/this"), ["one key against a consumer's filter"])
    for name, patterns in FILTERS.items():
        cases = {
            "this": repeated(KeyFilter(patterns).accepts, encoded),
            "fnmatch": repeated(fnmatched(patterns), keys),
        }
        found = turns(cases, scale.repeats(REPEATS))
        report.add(name, found["this"], found["fnmatch"], found["fnmatch"] / found["this"])
    return report


def new_keys(dispatcher: KeySharedDispatcher[None], patterns: int, size: int) -> Timed:
    """Offer keys that were never there before; about half of them are accepted. What is delivered is acked unseen."""
    offsets = count()

    def once() -> tuple[int, int]:
        spent = 0
        for _ in range(size):
            offset = next(offsets)
            key = b"eu-west-%d-%d-order" % (offset * 7_919 % (2 * CONSUMERS * patterns), offset)
            started = process_time_ns()
            effects = dispatcher.offer(offset, key)
            spent += process_time_ns() - started
            for effect in effects:
                if isinstance(effect, Deliver):
                    dispatcher.ack(*effect.receipt)
        return spent, size

    return once


def filtered(forms: Sequence[str], patterns: int) -> KeySharedDispatcher[None]:
    """A dispatcher whose consumers have that many patterns each, their forms in turn."""
    dispatcher: KeySharedDispatcher[None] = KeySharedDispatcher(HashRing(), DispatcherConfig(unmatched=Unmatched.SKIP))
    for number in range(CONSUMERS):
        own = range(number, CONSUMERS * patterns, CONSUMERS)
        dispatcher.add_consumer(
            f"c{number}", filters=[forms[each // CONSUMERS % len(forms)].format(each, each % 10) for each in own]
        )
    return dispatcher


def many_patterns(scale: Scale) -> Report:
    columns = tuple(f"{patterns:,}, us" for patterns in PATTERNS)
    report = Report("filters", columns, [f"an offer of a new key; patterns on each of {CONSUMERS} consumers"])
    kinds = {kind: [form] for kind, form in KINDS.items()} | {"all of these": list(KINDS.values())}
    for kind, forms in kinds.items():
        sizes = {patterns: scale.size(patterns) if patterns > JUDGED else patterns for patterns in PATTERNS}
        cases = {
            patterns: new_keys(filtered(forms, size), size, scale.size(NEW_KEYS)) for patterns, size in sizes.items()
        }
        found = {patterns: spent / 1_000 for patterns, spent in turns(cases, scale.repeats(FEW_REPEATS)).items()}
        report.add(kind, *found.values())
        report.judge(f"us for a new key, {CONSUMERS} x {JUDGED:,} patterns: {kind}", found[JUDGED], BOUND_US)
    return report


def long_keys(scale: Scale) -> Report:
    glob = Glob("*a*a*a*a*b*c")
    lengths = [scale.size(length) for length in LENGTHS]
    cases = {length: repeated(glob.matches, [b"a" * length + b"c"]) for length in lengths}
    found = turns(cases, scale.repeats(REPEATS))
    report = Report("long keys", ("us", "ns per byte"), ["*a*a*a*a*b*c on a's: linear, where backtracking is not"])
    for length, nanoseconds in found.items():
        report.add(f"{length:,} bytes", nanoseconds / 1_000, nanoseconds / length)
    return report


def run(scale: Scale) -> list[Report]:
    return [against_fnmatch(scale), many_patterns(scale), long_keys(scale)]
