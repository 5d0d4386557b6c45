"""Per-key ordered, multi-consumer dispatch: pure, sans-IO primitives and the dispatcher that composes them."""

from keyshared.assigned import AssignedRanges
from keyshared.autosplit import AutoSplit
from keyshared.batcher import BucketBatcher
from keyshared.boundaries import balanced_boundaries
from keyshared.buckets import BucketLayout
from keyshared.config import DispatcherConfig, DrainUnit, OnEvict, Unmatched
from keyshared.copyflags import CopyFlags
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.distribution import DistributionTree
from keyshared.draining import DrainingHashes
from keyshared.draintracker import DrainTracker
from keyshared.exclusive import ExclusiveRanges
from keyshared.glob import Glob, KeyFilter
from keyshared.leaseconfig import LeaseConfig
from keyshared.leases import LeaseQueue
from keyshared.offsetindex import OffsetIndex
from keyshared.offsets import OffsetCommitter, OffsetDistributor
from keyshared.pendingacks import PendingAcks
from keyshared.provenance import ProvenanceVector
from keyshared.ranges import HashRange, RangeMap
from keyshared.registryview import RegistryView
from keyshared.retry import Backoff, Poison, RetryPolicy
from keyshared.ring import HashRing
from keyshared.schemaids import SchemaDistribution
from keyshared.segments import SegmentMap
from keyshared.spread import BucketPlacement
from keyshared.subjects import NamePattern, NameTranslation
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
