"""Globs and filters against fnmatch in the same run; and a pattern that makes backtracking matchers explode."""

from collections.abc import Callable
from fnmatch import fnmatchcase

from benchmarks._harness import Report, Scale, repeated, turns

from keyshared.glob import Glob, KeyFilter

KEYS = 4_500
REPEATS = 11
FILTERS = {
    "exact": ["eu-west-1-order"],
    "100 exact": [f"eu-west-{number}-order" for number in range(100)],
    "prefix": ["eu-*"],
    "middle star": ["eu-*-order"],
    "question mark": ["eu-west-?-order"],
    "mixed": ["payment", "ship*", "eu-west-?", "us-*-order"],
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
    return [against_fnmatch(scale), long_keys(scale)]
