"""What a line of progress says, and when it is due: plain values, no Spark, no clock."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["ProgressLines", "StageSeen"]

_REDRAW_S: Final = 0.25
_LOOK_S: Final = 1.0
_NONE: Final[Mapping[int, int]] = MappingProxyType({})
_SPARSE: Final = 0.1  # of the time that has passed: an hour has some 50 lines, a day 80


class StageSeen(NamedTuple):
    """A stage of a running job, at one moment.

    Attributes:
        number: Which; a stage keeps its number.
        tasks: How many tasks it has, one for each of its partitions.
        done: How many are done. A task that had to run again may count twice.
        rows: Rows that its tasks have told of so far; None if Spark does not say.
    """

    number: int
    tasks: int
    done: int
    rows: int | None


class _Begin(NamedTuple):
    """The look before a stage was seen, and the rows from Python that were there when it was."""

    at_s: float
    from_python: Mapping[int, int]


class ProgressLines:
    """Decides what a line says, and when the next one is due.

    A terminal shows one line that changes again and again. Elsewhere whole lines come, fewer the longer it takes: they
    stay in a notebook or a log. What is over soon says nothing at all.

    Args:
        doing: What is being done, for the reader.
        started_s: When it began, in seconds of any clock that never goes back; so are all other times.
        every_s: Seconds between two whole lines; later a tenth of the time that has passed, if that is more.
        quiet_s: Seconds in which nothing is written.
        terminal: Whether a line that changes takes the place of the one before.

    Example:
        >>> lines = ProgressLines("replaying", 0.0, every_s=5.0, quiet_s=2.0)
        >>> lines.look(1.0, [StageSeen(1, 8, 0, 0)])
        ''
        >>> lines.look(5.0, [StageSeen(1, 8, 3, 60_000)])
        'replaying: 3 of 8 tasks, 60,000 rows, 12,000 rows/s, 5.0 s'
        >>> lines.end(16.0, failed=False)
        'replaying: done in 16.0 s'
    """

    def __init__(self, doing: str, started_s: float, *, every_s: float, quiet_s: float, terminal: bool = False) -> None:
        self._doing = doing
        self._started_s = started_s
        self._every_s = every_s
        self._quiet_s = quiet_s
        self._terminal = terminal
        self._looked_s = started_s
        self._wrote_s: float | None = None
        self._began: dict[int, _Begin] = {}  # of each running stage, at the latest

    @property
    def pause_s(self) -> float:
        """How long to wait between two looks, in seconds."""
        return _REDRAW_S if self._terminal else _LOOK_S

    def look(self, now_s: float, stages: Iterable[StageSeen], from_python: Mapping[int, int] = _NONE) -> str:
        """Take what is running now.

        Rows count as those of the running stages, and their rate since the first of these began, which is as long ago
        as it can have been: since the look before the one that saw it first.

        Args:
            now_s: The time.
            stages: The stages that are running.
            from_python: Rows that Python has given back, by counter. Those that were there when the first of the
                running stages was seen belong to stages before it, and are left out.

        Returns:
            The line; often nothing.

        Complexity:
            O(stages that are running).
        """
        running = list(stages)
        new = _Begin(self._looked_s, from_python)
        self._began = {stage.number: self._began.get(stage.number, new) for stage in running}
        self._looked_s = now_s
        if now_s < self._due_s():
            return ""
        self._wrote_s = now_s
        told = [*self._told(now_s, running, from_python), f"{now_s - self._started_s:.1f} s"]
        return f"{self._doing}: {', '.join(told)}"

    def end(self, now_s: float, *, failed: bool) -> str:
        """Return the last line, when the work is over.

        Args:
            now_s: The time.
            failed: Whether there is no result.

        Returns:
            The line: nothing if there was none before, and it took less than the quiet time.
        """
        passed_s = now_s - self._started_s
        if self._wrote_s is None and passed_s < self._quiet_s:
            return ""
        return f"{self._doing}: {'failed after' if failed else 'done in'} {passed_s:.1f} s"

    def _due_s(self) -> float:
        """When the next line may be written."""
        quiet_s = self._started_s + self._quiet_s
        if self._terminal:
            return quiet_s
        if self._wrote_s is None:
            return max(quiet_s, self._started_s + self._every_s)
        return self._wrote_s + max(self._every_s, _SPARSE * (self._wrote_s - self._started_s))

    def _told(self, now_s: float, running: list[StageSeen], from_python: Mapping[int, int]) -> list[str]:
        if not running:
            return []
        tasks = sum(stage.tasks for stage in running)
        told = [f"{sum(min(stage.done, stage.tasks) for stage in running):,} of {tasks:,} tasks"]
        began = min(self._began.values(), key=lambda begin: begin.at_s)
        seconds = now_s - began.at_s
        rows = sum(stage.rows or 0 for stage in running)
        returned = sum(count - began.from_python.get(counter, 0) for counter, count in from_python.items())
        counts = [(count, what) for count, what in ((rows, "rows"), (returned, "rows from Python")) if count > 0]
        if counts and seconds > 0:
            (first, what), *others = counts
            told += [f"{first:,} {what}", f"{first / seconds:,.0f} rows/s"]
            told += [f"{count:,} {what}" for count, what in others]
        return told
