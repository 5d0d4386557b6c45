"""What all benchmarks share: how time is taken, what a measurement and a verdict look like, and how they are printed.

Times are medians over repeats in which the cases take turns, so that a busy machine slows all of them alike. Compare ratios, not nanoseconds.
Processor time is measured, with the garbage collector on and everything collected before each repeat.
"""

import gc
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from statistics import median
from time import process_time_ns
from typing import TypeVar

__all__ = ["Report", "Row", "Scale", "Verdict", "timed", "turns"]

_Case = TypeVar("_Case", bound=Hashable)

Timed = Callable[[], tuple[int, int]]
"""Runs a case once: nanoseconds, and how many operations they paid for."""


@dataclass(frozen=True)
class Scale:
    """How much is measured: everything, or just enough to see that every benchmark still runs."""

    quick: bool = False

    def repeats(self, full: int) -> int:
        return 1 if self.quick else full

    def size(self, full: int) -> int:
        """A number of messages; quick: a twentieth."""
        return full // 20 if self.quick else full


@dataclass(frozen=True)
class Row:
    """One measured value."""

    case: str
    subject: str
    value: float
    unit: str
    ratio: float | None = None
    against: str = ""

    def __str__(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:9.2f} x {self.against}"
        return f"  {self.case:44}{self.subject:28}{self.value:14,.1f} {self.unit:10}{ratio}".rstrip()


@dataclass(frozen=True)
class Verdict:
    """Whether a target is met. ``at_most`` or, for speed-ups, at least."""

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
        return f"  {outcome:8}{self.target:76}{self.measured:10.2f}   {word} {self.bound:g}"


@dataclass
class Report:
    """What one benchmark found."""

    title: str
    notes: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [self.title, *(f"  ({note})" for note in self.notes), *map(str, self.rows), *map(str, self.verdicts)]
        return "\n".join(lines)


def timed(run: Callable[[], int]) -> Timed:
    """Time a case that needs no preparation; it returns how many operations it did."""

    def once() -> tuple[int, int]:
        started = process_time_ns()
        operations = run()
        return process_time_ns() - started, operations

    return once


def turns(cases: Mapping[_Case, Timed], repeats: int) -> dict[_Case, float]:
    """Give the median nanoseconds per operation of each case; the cases take turns."""
    times: dict[_Case, list[float]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, once in cases.items():
            gc.collect()
            nanoseconds, operations = once()
            times[name].append(nanoseconds / operations)
    return {name: median(values) for name, values in times.items()}
