"""Per-key ordered, multi-consumer dispatch: pure, sans-IO primitives and the dispatcher that composes them."""

from keyshared.buckets.batcher import BucketBatcher
from keyshared.buckets.boundaries import balanced_boundaries
from keyshared.buckets.layout import BucketLayout
from keyshared.buckets.placement import BucketPlacement
from keyshared.config import DispatcherConfig, DrainUnit, OnEvict, Unmatched
from keyshared.copyflags import CopyFlags
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.distribution.tree import DistributionTree
from keyshared.draining import DrainingHashes
from keyshared.draintracker import DrainTracker
from keyshared.glob import Glob, KeyFilter
from keyshared.leases.config import LeaseConfig
from keyshared.leases.queue import LeaseQueue
from keyshared.offsets.index import OffsetIndex
from keyshared.offsets.provenance import ProvenanceVector
from keyshared.offsets.translate import OffsetCommitter, OffsetDistributor
from keyshared.pendingacks import PendingAcks
from keyshared.placement.assigned import AssignedRanges
from keyshared.placement.autosplit import AutoSplit
from keyshared.placement.exclusive import ExclusiveRanges
from keyshared.ranges import HashRange, RangeMap
from keyshared.retry import Backoff, Poison, RetryPolicy
from keyshared.ring import HashRing
from keyshared.segments.map import SegmentMap
from keyshared.subjects.names import NamePattern, NameTranslation
from keyshared.subjects.registry import RegistryView
from keyshared.subjects.schemas import SchemaDistribution
from keyshared.window import InFlightWindow

__version__ = "0.1.0"

__all__ = [
    "AssignedRanges",
    "AutoSplit",
    "Backoff",
    "BucketBatcher",
    "BucketLayout",
    "BucketPlacement",
    "ContiguousCursor",
    "CopyFlags",
    "DispatcherConfig",
    "DistributionTree",
    "DrainTracker",
    "DrainUnit",
    "DrainingHashes",
    "ExclusiveRanges",
    "Glob",
    "HashRange",
    "HashRing",
    "InFlightWindow",
    "KeyFilter",
    "KeySharedDispatcher",
    "LeaseConfig",
    "LeaseQueue",
    "NamePattern",
    "NameTranslation",
    "OffsetCommitter",
    "OffsetDistributor",
    "OffsetIndex",
    "OnEvict",
    "PendingAcks",
    "Poison",
    "ProvenanceVector",
    "RangeMap",
    "RegistryView",
    "RetryPolicy",
    "SchemaDistribution",
    "SegmentMap",
    "Unmatched",
    "balanced_boundaries",
]
