"""What all benchmarks share: the measuring of time, tables, verdicts, and the printing of both.

Times are medians over repeats in which the cases take turns, so that a busy machine slows all of them alike. Compare
ratios, not nanoseconds. They are processor time, with the garbage collector on; everything is collected before each
repeat.
"""

import gc
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import process_time_ns
from typing import TypeVar

import keyshared

_Case = TypeVar("_Case", bound=Hashable)
_Argument = TypeVar("_Argument")

Timed = Callable[[], tuple[int, int]]
"""Runs a case once: nanoseconds, and how many operations they paid for."""


def bound_of(*, pure: float, compiled: float) -> float:
    """Return the bound of the build that runs."""
    return compiled if keyshared.COMPILED else pure


@dataclass(frozen=True)
class Scale:
    """The amount of measuring: everything, or just enough to see that every benchmark still runs."""

    quick: bool = False

    def repeats(self, full: int) -> int:
        return 1 if self.quick else full

    def size(self, full: int) -> int:
        """Return a number of messages; quick: a twentieth."""
        return full // 20 if self.quick else full


@dataclass(frozen=True)
class Row:
    """The measurements of one case, column by column."""

    case: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Verdict:
    """Return whether a target is met: ``at_most`` or, for speed-ups, at least."""

    target: str
    measured: float
    bound: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound

    def __str__(self) -> str:
        word = "at most" if self.at_most else "at least"
        outcome = "PASS" if self.met else "MISSED"
        return f"{outcome:8}{self.measured:10.2f}  {word} {self.bound:<8g}"


@dataclass
class Report:
    """The result of one benchmark: a table, and verdicts about the targets."""

    title: str
    columns: tuple[str, ...]
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def add(self, case: str, *values: float) -> None:
        self.rows.append(Row(case, values))

    def judge(self, target: str, measured: float, bound: float, *, at_most: bool = True) -> None:
        self.verdicts.append(Verdict(f"{self.title}: {target}", measured, bound, at_most))

    def __str__(self) -> str:
        widths = [max(12, len(column) + 2) for column in self.columns]
        head = "".join(f"{column:>{width}}" for column, width in zip(self.columns, widths, strict=True))
        lines = [self.title, *(f"  ({note})" for note in self.notes), f"  {'':44}{head}"]
        for row in self.rows:
            cells = (f"{_shown(value):>{width}}" for value, width in zip(row.values, widths, strict=True))
            lines.append(f"  {row.case:44}{''.join(cells)}")
        return "\n".join(lines)


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def timed(run: Callable[[], int]) -> Timed:
    """Time a case that needs no preparation; it returns how many operations it did."""

    def once() -> tuple[int, int]:
        started = process_time_ns()
        operations = run()
        return process_time_ns() - started, operations

    return once


def repeated(call: Callable[[_Argument], object], arguments: Sequence[_Argument]) -> Timed:
    """Time one call per argument."""

    def run() -> int:
        for argument in arguments:
            call(argument)
        return len(arguments)

    return timed(run)


def turns(cases: Mapping[_Case, Timed], repeats: int) -> dict[_Case, float]:
    """Return the median nanoseconds per operation of each case; the cases take turns."""
    times: dict[_Case, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, once in cases.items():
            gc.collect()
            nanoseconds, operations = once()
            times[name].append(nanoseconds / operations)
    return {name: median(values) for name, values in times.items()}
