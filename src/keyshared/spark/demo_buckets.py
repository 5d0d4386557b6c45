"""From the log to what its keys mean for bucket boundaries: one job, the rest are the core's own functions."""

from collections.abc import Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Final

from pyspark.sql import DataFrame

from keyshared.boundaries import Histogram, balanced_boundaries, bucket_loads, hot_slots, owner_loads
from keyshared.buckets import BucketLayout
from keyshared.spark.bucket_report import BucketReport, HotSlotKeys, LayoutLoads
from keyshared.spark.histogram import KeyHistogram, collect_histogram, key_histogram
from keyshared.spread import BucketPlacement

__all__ = ["BUCKETS", "bucket_report", "compare_layouts"]

BUCKETS: Final = 1_024
"""So many that hot keys show: with a few buckets for each consumer they drown in their neighbours."""


def bucket_report(log: DataFrame, consumers: Sequence[str], *, hottest: int) -> BucketReport:
    """Compare boundaries of equal width with balanced ones; runs one job.

    Args:
        log: The messages, with ``key``.
        consumers: Who shares the buckets.
        hottest: How many hot slots are wanted.

    Returns:
        The comparison.
    """
    return compare_layouts(collect_histogram(key_histogram(log)), consumers, hottest=hottest)


def compare_layouts(
    counted: KeyHistogram, consumers: Sequence[str], *, hottest: int, buckets: int = BUCKETS
) -> BucketReport:
    """Compare boundaries of equal width with balanced ones; needs no Spark.

    Args:
        counted: Messages by bucket hash.
        consumers: Who shares the buckets.
        hottest: How many hot slots are wanted.
        buckets: How many buckets there are.

    Returns:
        The comparison.
    """
    loads = counted.messages
    layouts = {"equal widths": BucketLayout.equal_width(buckets), "balanced": balanced_boundaries(loads, buckets)}
    hot = hot_slots(loads, buckets)
    mean = Fraction(sum(loads.values()), buckets)
    return BucketReport(
        layouts=tuple(_layout_loads(name, layout, loads, consumers) for name, layout in layouts.items()),
        hot_slots=tuple(_hot_slot(counted, one.slot, mean) for one in hot[:hottest]),
        hot_slot_count=len(hot),
    )


def _layout_loads(name: str, layout: BucketLayout, histogram: Histogram, consumers: Sequence[str]) -> LayoutLoads:
    loads = bucket_loads(histogram, layout)
    by_number, by_load = (
        owner_loads(histogram, placement.ranges)
        for placement in (BucketPlacement(layout, consumers), BucketPlacement.by_load(layout, loads, consumers))
    )
    return LayoutLoads(
        name=name,
        starts=layout.starts,
        buckets=tuple(map(int, loads)),
        by_number=tuple(int(by_number.get(consumer, 0)) for consumer in consumers),
        by_load=tuple(int(by_load.get(consumer, 0)) for consumer in consumers),
    )


def _hot_slot(counted: KeyHistogram, slot: int, mean: Fraction) -> HotSlotKeys:
    shared = (0, 1) if slot == 1 else (slot,)  # hashes 0 and 1 are one to every layout
    counts = [counted.slots[one] for one in shared if one in counted.slots]
    hottest = max(counts, key=attrgetter("hot_messages"))
    messages = sum(count.messages for count in counts)
    return HotSlotKeys(
        slot=slot,
        messages=messages,
        times_mean=messages / mean,
        keys=sum(count.keys for count in counts),
        hot_key=hottest.hot_key.decode(errors="backslashreplace"),
        hot_messages=hottest.hot_messages,
    )
