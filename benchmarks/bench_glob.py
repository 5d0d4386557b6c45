"""Globs and filters against fnmatch in the same run; and a pattern that makes backtracking matchers explode."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from statistics import median
from time import perf_counter_ns

from keyshared.glob import Glob, KeyFilter

KEYS = [f"{region}-west-{i}-order" for i in range(1500) for region in ("eu", "us", "ap")]
REPEATS = 11
FILTERS = {
    "exact": ["eu-west-1-order"],
    "100 exact": [f"eu-west-{i}-order" for i in range(100)],
    "prefix": ["eu-*"],
    "middle star": ["eu-*-order"],
    "question mark": ["eu-west-?-order"],
    "mixed": ["payment", "ship*", "eu-west-?", "us-*-order"],
}


def matched(accepts: Callable[[bytes], bool], keys: list[bytes]) -> Callable[[], int]:
    def run() -> int:
        for key in keys:
            accepts(key)
        return len(keys)

    return run


def fnmatched(patterns: list[str], keys: list[str]) -> Callable[[], int]:
    def run() -> int:
        for key in keys:
            any(fnmatchcase(key, pattern) for pattern in patterns)
        return len(keys)

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
    encoded = [key.encode() for key in KEYS]
    print(f"{len(KEYS)} keys, median of {REPEATS} interleaved repeats")
    for name, patterns in FILTERS.items():
        mine = KeyFilter(patterns).accepts
        result = interleaved({"keyshared": matched(mine, encoded), "fnmatch": fnmatched(patterns, KEYS)})
        ratio = result["fnmatch"] / result["keyshared"]
        print(f"{name:16}{result['keyshared']:10,.0f} ns{result['fnmatch']:12,.0f} ns fnmatch{ratio:10.2f} x")
    for size in (1_000, 10_000, 100_000):
        glob = Glob("*a*a*a*a*b*c")
        result = interleaved({"glob": matched(glob.matches, [b"a" * size + b"c"])})
        print(f"*a*a*a*a*b*c on {size:>7,} characters: {result['glob'] / 1000:10,.1f} us")


if __name__ == "__main__":
    main()
