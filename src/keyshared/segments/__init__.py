"""Scalable topics: segments that split, merge and rebucket, and the order of keys across that.

A bad argument raises `ArgumentError` (a setting `ConfigError`) and changes nothing; docstrings name other errors.

>>> segments = SegmentMap.equal_width(2)
>>> halves = segments.split(1)
>>> halves.active_ids, halves.successors(1)
((0, 2, 3), (2, 3))
"""

from keyshared.segments.autoscale import (
    AutoScale,
    Decision,
    LastActions,
    Merge,
    NoAction,
    Rates,
    Rebucket,
    ScaleReason,
    SegmentLoad,
    Split,
    apply_decision,
    decide,
)
from keyshared.segments.map import (
    DEFAULT_BUCKET_BUDGET,
    DEFAULT_MAX_BUCKETS,
    Location,
    SegmentMap,
    SegmentStats,
    buckets_for_budget,
)
from keyshared.segments.producer import PublishEntry, SegmentProducer
from keyshared.segments.readers import assign_round_robin
from keyshared.segments.rollover import SegmentProgress, SegmentState, removable
from keyshared.segments.segment import Segment

__all__ = [
    "DEFAULT_BUCKET_BUDGET",
    "DEFAULT_MAX_BUCKETS",
    "AutoScale",
    "Decision",
    "LastActions",
    "Location",
    "Merge",
    "NoAction",
    "PublishEntry",
    "Rates",
    "Rebucket",
    "ScaleReason",
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
