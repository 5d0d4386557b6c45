"""Which distributors have work to do: one bit trick for a record, against sets of levels in the same run."""

from collections.abc import Callable

from benchmarks._harness import Report, Scale, repeated, turns

from keyshared.copyflags import CopyFlags

RECORDS = 20_000
REPEATS = 11
DEPTHS = (2, 4, 8, 16)
STEP = 16
SET_BOUND = 1.5


def every_arrival(levels: list[int]) -> list[CopyFlags]:
    """Flags as records carry them: none, or those of levels crossed from the highest down."""
    return [CopyFlags.of(*levels[:count]) for count in range(len(levels) + 1)]


def by_sets(own: list[int]) -> Callable[[frozenset[int]], list[int]]:
    """Decide literally by the rule: every crossed level is above the own one."""

    def due(crossed: frozenset[int]) -> list[int]:
        return [level for level in own if not any(each <= level for each in crossed)]

    return due


def by_lowest(own: list[int]) -> Callable[[frozenset[int]], list[int]]:
    """Decide with a thought: only the lowest crossed level matters."""

    def due(crossed: frozenset[int]) -> list[int]:
        lowest = min(crossed, default=None)
        return own if lowest is None else [level for level in own if level < lowest]

    return due


def by_level(own: list[int]) -> Callable[[CopyFlags], list[int]]:
    def due(flags: CopyFlags) -> list[int]:
        return [level for level in own if flags.is_due(level)]

    return due


def at_once(own: list[int]) -> Callable[[CopyFlags], CopyFlags]:
    levels = CopyFlags.of(*own)

    def due(flags: CopyFlags) -> CopyFlags:
        return flags.due(levels)

    return due


def run(scale: Scale) -> list[Report]:
    report = Report("copy flags", ("ns", "to due()"), ["what is due of all levels of a cluster, for one record"])
    for depth in DEPTHS:
        own = [STEP * level for level in range(depth, 0, -1)]
        arrivals = every_arrival(own)
        flags = (arrivals * (scale.size(RECORDS) // len(arrivals) + 1))[: scale.size(RECORDS)]
        crossed = [frozenset(each.levels) for each in flags]
        found = turns(
            {
                "due()": repeated(at_once(own), flags),
                "is_due() level by level": repeated(by_level(own), flags),
                "set, lowest level": repeated(by_lowest(own), crossed),
                "set, level by level": repeated(by_sets(own), crossed),
            },
            scale.repeats(REPEATS),
        )
        for name, nanoseconds in found.items():
            report.add(f"{depth} levels, {name}", nanoseconds, nanoseconds / found["due()"])
        report.judge(
            f"set / due(), {depth} levels", found["set, lowest level"] / found["due()"], SET_BOUND, at_most=False
        )
    return [report]
