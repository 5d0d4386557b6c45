"""What the keys of a log mean for bucket boundaries, as plain values and as a part of the page. Needs no Spark."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

from keyshared.buckets.boundaries import imbalance
from keyshared.buckets.layout import HASH_STOP
from keyshared.spark.pages.page import Figure, named
from keyshared.spark.pages.parts import Line, Lines, Section, Table

__all__ = ["BucketReport", "HotSlotKeys", "LayoutLoads", "as_figure", "bucket_section", "times"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutLoads:
    """How loads spread over the buckets of one layout, and over consumers that own them.

    Attributes:
        name: What to call the layout.
        starts: The first hash of each bucket.
        buckets: Load of each bucket.
        by_number: Load of each consumer if all own as many buckets.
        by_load: Load of each consumer if buckets are given out by load.
    """

    name: str
    starts: tuple[int, ...]
    buckets: tuple[int, ...]
    by_number: tuple[int, ...]
    by_load: tuple[int, ...]

    @property
    def imbalances(self) -> tuple[Fraction, Fraction, Fraction]:
        """The heaviest divided by the mean: of the buckets, of the consumers by number, of the consumers by load."""
        return imbalance(self.buckets), imbalance(self.by_number), imbalance(self.by_load)


@dataclass(frozen=True, kw_only=True, slots=True)
class HotSlotKeys:
    """A slot that alone is heavier than a bucket should be, whose keys no boundary can separate.

    Attributes:
        slot: The bucket hash.
        load: What it carries.
        times_mean: That load divided by the mean of a bucket.
        keys: How many keys share it.
        hot_key: The hottest of them, as text for people.
        hot_load: What that one carries.
    """

    slot: int
    load: int
    times_mean: Fraction
    keys: int
    hot_key: str
    hot_load: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BucketReport:
    """Ways to lay out buckets, compared on one log.

    Attributes:
        unit: What loads are in.
        layouts: The ways, all with as many buckets and consumers.
        hot_slots: The hottest of the slots that exceed the mean of a bucket, hottest first.
        hot_slot_count: How many such slots there are.
    """

    unit: str = "messages"
    layouts: tuple[LayoutLoads, ...]
    hot_slots: tuple[HotSlotKeys, ...]
    hot_slot_count: int

    @property
    def title(self) -> str:
        """What is compared."""
        return f"{len(self.layouts[0].buckets):,} buckets, {len(self.layouts[0].by_number):,} consumers"

    @property
    def about_hot_slots(self) -> str:
        """Describe in a sentence how much of the unevenness no boundary can remove."""
        return (
            f"{self.hot_slot_count:,} slots carry more than the mean of a bucket: their buckets stay heavy wherever "
            "boundaries are, and keys in one slot cannot be separated."
        )


def times(ratio: Fraction) -> str:
    """Write a ratio the way people read it.

    Args:
        ratio: The heaviest divided by the mean.

    Returns:
        Like "1.82".
    """
    return f"{float(ratio):.2f}"


def as_figure(ratio: Fraction) -> Figure:
    """Return a ratio for a table.

    Args:
        ratio: The heaviest divided by the mean.
    """
    return Figure(times(ratio), float(ratio))


def bucket_section(report: BucketReport) -> Section:
    """Return the part of a page.

    Args:
        report: What to show. Keys may contain anything.

    Returns:
        A section with a chart and tables.

    Complexity:
        O(buckets), drawn with a number of points that has a limit.
    """
    heaviest = max(max(layout.buckets) for layout in report.layouts)
    chart = Lines(
        about=f"{report.unit} of each bucket, over the bucket hashes; at most {heaviest:,}",
        lines=tuple(Line(layout.name, tuple(_points(layout))) for layout in report.layouts),
        value=f"{report.unit} of a bucket",
        clock=None,
        over="bucket hash",
    )
    ratios = Table(
        "The heaviest by the mean",
        ("boundaries", "heaviest bucket / mean", "heaviest consumer / mean", "with owners by load"),
        tuple((layout.name, *(as_figure(ratio) for ratio in layout.imbalances)) for layout in report.layouts),
    )
    hottest = Table(
        "Slots that carry more than the mean of a bucket",
        ("slot", report.unit, "by mean bucket", "keys", "hottest key", f"its {report.unit}"),
        tuple(
            (
                slot.slot,
                slot.load,
                as_figure(slot.times_mean),
                slot.keys,
                named(slot.hot_key),
                slot.hot_load,
            )
            for slot in report.hot_slots
        ),
    )
    note = f"{report.title}: of equal width, and placed by the {report.unit} of each hash. {report.about_hot_slots}"
    return Section("Bucket boundaries", note, (chart, ratios, hottest))


def _points(layout: LayoutLoads) -> list[tuple[float, float]]:
    return list(chain(zip(layout.starts, layout.buckets, strict=True), [(HASH_STOP, layout.buckets[-1])]))
