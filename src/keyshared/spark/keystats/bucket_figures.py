"""From the key statistics of a log to what they mean for bucket boundaries. Starts no job."""

from collections.abc import Sequence
from fractions import Fraction
from operator import attrgetter
from typing import Final

from keyshared.buckets.boundaries import Histogram, balanced_boundaries, bucket_loads, hot_slots, owner_loads
from keyshared.buckets.layout import BucketLayout
from keyshared.buckets.placement import BucketPlacement
from keyshared.spark.keystats.bucket_report import BucketReport, HotSlotKeys, LayoutLoads
from keyshared.spark.keystats.counts import KeyCounts
from keyshared.spark.pages.page import as_text

__all__ = ["BUCKETS", "CONSUMERS", "compare_layouts"]

BUCKETS: Final = 1_024
"""Enough buckets for hot keys to show: with a few for each consumer they drown in their neighbours."""

CONSUMERS: Final = tuple(f"c{number}" for number in range(1, 9))
"""The consumers that share buckets if none are named."""


def compare_layouts(
    counted: KeyCounts, consumers: Sequence[str], *, hottest: int, buckets: int = BUCKETS
) -> BucketReport:
    """Compare boundaries of equal width with balanced ones.

    Args:
        counted: Weight by bucket hash.
        consumers: The consumers that share the buckets.
        hottest: How many hot slots are wanted.
        buckets: How many buckets there are.

    Returns:
        The comparison.
    """
    loads = counted.weights
    layouts = {"equal widths": BucketLayout.equal_width(buckets), "balanced": balanced_boundaries(loads, buckets)}
    hot = hot_slots(loads, buckets)
    mean = Fraction(sum(loads.values())) / buckets
    return BucketReport(
        unit="messages" if loads == counted.messages else "weight",
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


def _hot_slot(counted: KeyCounts, slot: int, mean: Fraction) -> HotSlotKeys:
    shared = (0, 1) if slot == 1 else (slot,)  # hashes 0 and 1 are one to every layout
    counts = [counted.slots[one] for one in shared if one in counted.slots]
    hottest = max(counts, key=attrgetter("hot_weight"))
    load = sum(count.weight for count in counts)
    return HotSlotKeys(
        slot=slot,
        load=int(load),
        times_mean=Fraction(load) / mean,
        keys=sum(count.keys for count in counts),
        hot_key=as_text(hottest.hot_key),
        hot_load=int(hottest.hot_weight),
    )
