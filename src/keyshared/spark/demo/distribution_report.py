"""What the distribution demo found, as plain values, as text and as a page. Plain Python; needs no Spark."""

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from keyshared.distribution.distributor import Hop
from keyshared.distribution.tree import DistributionTree
from keyshared.spark.demo import text
from keyshared.spark.demo.text import columns, headed, paragraph, sections
from keyshared.spark.pages.page import as_html, duration
from keyshared.spark.pages.parts import Drawing, Page, Section, Table, promises
from keyshared.spark.pages.treechart import on_every_screen, tree_chart

__all__ = ["ClusterLog", "DistributionReport", "Failover", "html", "summary"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterLog:
    """What lies on one cluster.

    Attributes:
        cluster: Which.
        produced: Messages that were produced there.
        received: Copies that came from other clusters.
        sent: Copies that its distributors made.
    """

    cluster: str
    produced: int
    received: int
    sent: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Failover:
    """How the consumer groups of a cluster went on at another one, by one way to translate their offsets.

    Attributes:
        way: Which.
        promised: Whether it promises to lose nothing under what happened.
        lost: Messages, for each group, that the groups never see.
        again: Messages, for each group, that they read once more.
    """

    way: str
    promised: bool
    lost: int
    again: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributionReport:
    """What the demo found.

    Attributes:
        title: Headline of the page.
        source: What happened, for the reader.
        tree: The distribution as it was in the end.
        moved: The links that a change of the target has touched, old and new.
        messages: How many there are.
        seconds: How long the job took.
        faults: Of the distribution, by name, zeros included: the exit status is made of these and of `failovers`.
        clusters: In the order of the tree.
        links: How many copies each link made.
        groups: Consumer groups and topic-partitions that failed over.
        failovers: One for each way of translation.
    """

    title: str
    source: str
    tree: DistributionTree
    moved: tuple[Hop, ...]
    messages: int
    seconds: float
    faults: tuple[tuple[str, int], ...]
    clusters: tuple[ClusterLog, ...]
    links: tuple[tuple[Hop, int], ...]
    groups: int
    failovers: tuple[Failover, ...]

    @property
    def broken(self) -> tuple[tuple[str, int], ...]:
        """Every promise by name, with how often it was broken."""
        promised = [(f"lost in failover ({way.way})", way.lost) for way in self.failovers if way.promised]
        return *self.faults, *promised

    @property
    def broken_count(self) -> int:
        """All of them together."""
        return sum(count for _, count in self.broken)


def summary(report: DistributionReport) -> RenderableType:
    """Return the figures of a report, for `keyshared.spark.demo.text.tell`.

    Args:
        report: What was found.
    """
    facts = (
        ("messages", f"{report.messages:,}"),
        ("copies", f"{sum(count for _, count in report.links):,}"),
        ("clusters", f"{len(report.clusters)}"),
        ("done in", f"{report.seconds:.1f} s"),
    )
    clusters = [(log.cluster, *(f"{n:,}" for n in (log.produced, log.received, log.sent))) for log in report.clusters]
    links = [(hop.cluster, f"{hop.level}", hop.target, f"{count:,}") for hop, count in report.links]
    ways = [(way.way, f"{way.lost:,}", f"{way.again:,}", _promised(way)) for way in report.failovers]
    return sections(
        Group(Text(report.title, style="bold"), paragraph(report.source)),
        columns(facts),
        headed("records of each cluster", columns(clusters, heads=("cluster", "produced", "received", "sent"))),
        headed("copies of each link", columns(links, heads=("from", "level", "to", "copies"), left=(0, 2))),
        headed(
            f"failover of {report.groups} groups and topic-partitions",
            columns(ways, heads=("offsets by", "lost", "read again", "promise"), left=(0, 3)),
        ),
        headed("promises", text.promises(report.broken, "broken", widest=60)),
    )


def html(report: DistributionReport) -> str:
    """Make the page.

    Args:
        report: What to show.

    Returns:
        A complete HTML document that refers to nothing outside itself.

    Complexity:
        O(size of the report).
    """
    return as_html(Page(report.title, report.source, (promises(report.broken),), tuple(_sections(report))))


def _sections(report: DistributionReport) -> Iterator[Section]:
    copies = sum(count for _, count in report.links)
    note = (
        f"{report.messages:,} messages, {copies:,} copies in {duration(report.seconds * 1_000)}. Arcs are links, "
        "thicker the more they carried; those that the change of a target has touched are solid."
    )
    carried, title = dict(report.links), "the tree and its links"
    chart = on_every_screen(
        lambda width: tree_chart(report.tree, carried, title=title, marked=report.moved, width=width)
    )
    rows = tuple((hop.cluster, hop.level, hop.target, count) for hop, count in report.links)
    copied = Table("Copies of each link", ("from", "level", "to", "copies"), rows)
    yield Section("The tree", note, (Drawing(chart), copied))
    logs = tuple((log.cluster, log.produced, log.received, log.sent) for log in report.clusters)
    note = "Produced and received together are all messages, on every cluster."
    recorded = Table("Records", ("cluster", "produced", "received", "sent"), logs)
    yield Section("Records of each cluster", note, (recorded,))
    ways = tuple((way.way, way.lost, way.again, _promised(way)) for way in report.failovers)
    note = (
        f"{report.groups} groups and topic-partitions went on at another cluster. A margin promises nothing if lag and "
        "outage exceed it."
    )
    translated = Table("Ways to translate offsets", ("offsets by", "lost", "read again", "promise"), ways)
    yield Section("Failover", note, (translated,))


def _promised(way: Failover) -> str:
    return "no loss" if way.promised else "none"
