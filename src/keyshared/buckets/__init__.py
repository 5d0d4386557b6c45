"""Entry buckets (PIP-486): layouts, owners, boundaries, batches, and how far each bucket has come.

A bad argument raises `ArgumentError` (a setting `ConfigError`) and changes nothing; docstrings name other errors.

>>> layout = BucketLayout([0, 4096, 61440])
>>> layout.bucket_of(4095), layout.bucket_of(4096)
(0, 1)
"""

from keyshared.buckets.batcher import (
    KEYLESS_HASH,
    BatchLimits,
    BatchMessage,
    BatchStats,
    BucketBatcher,
    EntryBatch,
    Refitted,
    refit,
    refit_all,
)
from keyshared.buckets.boundaries import (
    Histogram,
    HotSlot,
    SlotLoad,
    balanced_boundaries,
    bucket_loads,
    hot_slots,
    imbalance,
    owner_loads,
)
from keyshared.buckets.checkpoints import BucketCheckpoints
from keyshared.buckets.layout import (
    BUCKET_HASH,
    HASH_STOP,
    BadStamp,
    BucketLayout,
    EntryPart,
    HashHalves,
    Route,
    Straddles,
    hash_halves,
    key_halves,
)
from keyshared.buckets.placement import BucketPlacement

__all__ = [
    "BUCKET_HASH",
    "HASH_STOP",
    "KEYLESS_HASH",
    "BadStamp",
    "BatchLimits",
    "BatchMessage",
    "BatchStats",
    "BucketBatcher",
    "BucketCheckpoints",
    "BucketLayout",
    "BucketPlacement",
    "EntryBatch",
    "EntryPart",
    "HashHalves",
    "Histogram",
    "HotSlot",
    "Refitted",
    "Route",
    "SlotLoad",
    "Straddles",
    "balanced_boundaries",
    "bucket_loads",
    "hash_halves",
    "hot_slots",
    "imbalance",
    "key_halves",
    "owner_loads",
    "refit",
    "refit_all",
]
