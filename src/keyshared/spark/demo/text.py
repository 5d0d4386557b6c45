"""The demo's summary, drawn by rich: facts and tables in colours; plain text for a file or a pipe. Needs no Spark."""

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from keyshared.spark.keystats.bucket_report import BucketReport, times
from keyshared.spark.pages.page import duration, listed
from keyshared.spark.replays.replay_report import ReplayReport

__all__ = ["columns", "headed", "paragraph", "promises", "sections", "summary", "tell"]

_LINE: Final = 100
_WIDEST: Final = 40  # of a cell: keys may be long
_ENDLESS: Final = 10_000  # columns of a file or a pipe, which has none: nothing is cut or wrapped for them


def tell(out: TextIO, *parts: RenderableType) -> None:
    """Write parts to a stream: with colours, and as wide as it is, if it is a terminal, else as plain text.

    Args:
        out: Where to.
        parts: What `columns`, `paragraph` and `summary` return, and texts.
    """
    terminal = out.isatty()
    console = Console(
        file=out, force_terminal=terminal, force_jupyter=False, width=None if terminal else _ENDLESS, highlight=False
    )
    if terminal:
        console.print(*parts, sep="\n")
        return
    with console.capture() as plain:
        console.print(*parts, sep="\n")
    out.writelines(f"{line.rstrip(' ')}\n" for line in plain.get().removesuffix("\n").split("\n"))


def summary(report: ReplayReport) -> RenderableType:
    """Return the figures of a report, for `tell`.

    Args:
        report: What the replay found.
    """
    return sections(
        Group(Text(report.title, style="bold"), paragraph(report.source)),
        _facts(report),
        headed("share of each consumer", _loads(report)),
        headed("keys moved", _moves(report)),
        headed("hottest keys", _hottest(report)),
        *(() if report.buckets is None else (_boundaries(report.buckets), _hot_slots(report.buckets))),
        headed("violations", promises(report.violations or (), "violations", unjudged=report.unjudged)),
        *(paragraph(f"{promise} was not judged: {why}") for promise, why in report.unjudged.items()),
    )


def sections(*parts: RenderableType) -> RenderableType:
    """Return parts with an empty line between two."""
    return Group(*list(_between(parts))[1:])


def headed(head: str, part: RenderableType) -> RenderableType:
    """Return a part below its head."""
    return Group(Text(head, style="bold"), part)


def paragraph(text: str) -> RenderableType:
    """Return a text that is broken into lines that can be read."""
    return Constrain(Text(text), _LINE)


def promises(
    counts: Iterable[tuple[str, int]], what: str, *, widest: int = _WIDEST, unjudged: Container[str] = ()
) -> RenderableType:
    """Return a table of promises, and how often each was broken.

    Args:
        counts: Both.
        what: Head of the second column.
        widest: As in `columns`.
        unjudged: Promises that could not be judged.
    """
    rows = [(name, _count(count, judged=name not in unjudged)) for name, count in counts]
    return columns(rows, heads=("promise", what), widest=widest)


def columns(
    rows: Iterable[Sequence[str | Text]],
    *,
    heads: Sequence[str] = (),
    left: Container[int] = (0,),
    widest: int = _WIDEST,
    folded: bool = False,
) -> RenderableType:
    """Align cells: text to the left, numbers to the right.

    Args:
        rows: All of the same length, texts as they are: nothing in them is markup.
        heads: As many; nothing for none.
        left: Which columns hold text.
        widest: Longer cells are cut.
        folded: They go on in the next line instead.

    Example:
        >>> import sys
        >>> tell(sys.stdout, columns([("N725MQ", "575"), ("N7", "9")], heads=("key", "messages")))
          key     messages
          N725MQ       575
          N7             9
    """
    cells = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=bool(heads), header_style="dim")
    for index in range(len(heads) or len(cells[0])):
        table.add_column(
            Text(heads[index] if heads else ""),
            justify="left" if index in left else "right",
            no_wrap=not folded,
            overflow="fold" if folded else "ellipsis",
            max_width=widest,
        )
    for row in cells:
        table.add_row(*row)
    return Padding(table, (0, 0, 0, 2), expand=False)


def _count(count: int, *, judged: bool) -> Text:
    if count or judged:
        return Text(f"{count:,}", style="bold red" if count else "green")
    return Text("not judged", style="yellow")


def _between(parts: Iterable[RenderableType]) -> Iterator[RenderableType]:
    for part in parts:
        yield from (Text(), part)


def _facts(report: ReplayReport) -> RenderableType:
    largest = report.backlogs[0] if report.backlogs else None
    facts = (
        ("messages", f"{report.messages:,}"),
        ("keys", f"{report.keys:,}"),
        ("keyless messages", f"{report.keyless:,}"),
        ("topic-partitions", f"{report.topic_partitions:,}"),
        ("deliveries", f"{report.deliveries:,}"),
        ("redeliveries", f"{report.redeliveries:,}"),
        ("wait p50", duration(report.wait_p50_ms)),
        ("wait p99", duration(report.wait_p99_ms)),
        ("largest backlog", f"{largest.largest:,} in {largest.topic_partition}" if largest else "0"),
        ("from first to last", duration(report.span_ms)),
        *_speed(report),
        ("violations", f"{report.violation_count:,}"),
    )
    return columns(facts, left=(0, 1))


def _speed(report: ReplayReport) -> tuple[tuple[str, str], ...]:
    if report.seconds is None:
        return ()
    return (("replayed in", f"{report.seconds:.1f} s"), ("throughput", f"{report.throughput:,.0f} messages a second"))


def _loads(report: ReplayReport) -> RenderableType:
    total = report.deliveries or 1
    rows = [
        (
            load.consumer,
            f"{load.deliveries:,}",
            f"{load.deliveries / total:.1%}",
            f"{load.ideal / total:.1%}",
            f"{load.deliveries / load.ideal - 1:+.1%}" if load.ideal else "",
            f"{load.keys:,}",
            duration(load.wait_p50_ms),
            duration(load.wait_p99_ms),
        )
        for load in report.consumers
    ]
    heads = ("consumer", "deliveries", "share", "ideal", "off by", "keys", "wait p50", "wait p99")
    return columns(rows, heads=heads)


def _moves(report: ReplayReport) -> RenderableType:
    rows = [
        (
            f"{change.consumer} {change.what}",
            duration(change.at_ms),
            f"{change.keys_moved:,}",
            f"{change.keys:,}",
            f"{change.keys_moved / change.keys:.1%}" if change.keys else "",
            f"{change.ideal:.1%}",
        )
        for change in report.changes
    ]
    return columns(rows, heads=("change", "after", "keys moved", "of", "share", "ideal 1/N"))


def _hottest(report: ReplayReport) -> RenderableType:
    rows = [
        (
            hot.key,
            f"{hot.messages:,}",
            f"{hot.messages / report.messages:.2%}" if report.messages else "",
            duration(hot.wait_p99_ms),
            listed(hot.owners, " → "),
        )
        for hot in report.hot_keys
    ]
    return columns(rows, heads=("key", "messages", "share", "wait p99", "consumers"), left=(0, 4))


def _boundaries(report: BucketReport) -> RenderableType:
    rows = [(layout.name, *map(times, layout.imbalances)) for layout in report.layouts]
    heads = ("boundaries", "heaviest bucket", "heaviest consumer", "with owners by load")
    return headed(f"bucket boundaries: {report.title}, heaviest by mean", columns(rows, heads=heads))


def _hot_slots(report: BucketReport) -> RenderableType:
    rows = [
        (
            str(hot.slot),
            f"{hot.load:,}",
            times(hot.times_mean),
            f"{hot.keys:,}",
            hot.hot_key,
            f"{hot.hot_load:,}",
        )
        for hot in report.hot_slots
    ]
    heads = ("slot", report.unit, "by mean bucket", "keys", "hottest key", f"its {report.unit}")
    return Group(paragraph(f"hot slots: {report.about_hot_slots}"), columns(rows, heads=heads, left=(4,)))
