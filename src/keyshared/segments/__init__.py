"""Scalable topics: segments that split, merge and rebucket, and the order of keys across that."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from keyshared.segments.map import (
    DEFAULT_BUCKET_BUDGET,
    DEFAULT_MAX_BUCKETS,
    Location,
    SegmentMap,
    SegmentStats,
    assign_round_robin,
    buckets_for_budget,
)
from keyshared.segments.segment import Segment

if TYPE_CHECKING:
    from keyshared.segments.autoscale import (
        AutoScale,
        Decision,
        LastActions,
        Merge,
        NoAction,
        Rates,
        Reason,
        Rebucket,
        SegmentLoad,
        Split,
        apply_decision,
        decide,
    )
    from keyshared.segments.producer import Publish, SegmentProducer
    from keyshared.segments.rollover import SegmentProgress, SegmentState, removable

__all__ = [
    "DEFAULT_BUCKET_BUDGET",
    "DEFAULT_MAX_BUCKETS",
    "AutoScale",
    "Decision",
    "LastActions",
    "Location",
    "Merge",
    "NoAction",
    "Publish",
    "Rates",
    "Reason",
    "Rebucket",
    "Segment",
    "SegmentLoad",
    "SegmentMap",
    "SegmentProducer",
    "SegmentProgress",
    "SegmentState",
    "SegmentStats",
    "Split",
    "apply_decision",
    "assign_round_robin",
    "buckets_for_budget",
    "decide",
    "removable",
]

_LATER: Final = {
    "autoscale": (
        "AutoScale",
        "Decision",
        "LastActions",
        "Merge",
        "NoAction",
        "Rates",
        "Reason",
        "Rebucket",
        "SegmentLoad",
        "Split",
        "apply_decision",
        "decide",
    ),
    "producer": (
        "Publish",
        "SegmentProducer",
    ),
    "rollover": (
        "SegmentProgress",
        "SegmentState",
        "removable",
    ),
}
"""Modules that are loaded when one of their names is asked for: most programs need none of them."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
