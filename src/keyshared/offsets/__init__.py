"""Consumer groups that move between clusters: translated offsets, their metadata, and where records came from.

A bad argument raises `ArgumentError` (a setting `ConfigError`) and changes nothing; docstrings name other errors.
"""

from keyshared.offsets.commit_metadata import (
    MAX_METADATA_BYTES,
    CommitMetadata,
    MetadataProblem,
    OffsetEnvelope,
    compose_metadata,
    parse_metadata,
)
from keyshared.offsets.index import DEFAULT_INTERVAL, Bounds, OffsetIndex
from keyshared.offsets.provenance import ProvenanceVector
from keyshared.offsets.translate import (
    DEFAULT_MARGIN_MS,
    Declined,
    DeclineReason,
    GroupCommit,
    GroupPartition,
    GroupTimestamp,
    OffsetCommitter,
    OffsetDistributor,
    OffsetLookup,
    TargetGroup,
    margin_for,
    required_margin,
)

__all__ = [
    "DEFAULT_INTERVAL",
    "DEFAULT_MARGIN_MS",
    "MAX_METADATA_BYTES",
    "Bounds",
    "CommitMetadata",
    "DeclineReason",
    "Declined",
    "GroupCommit",
    "GroupPartition",
    "GroupTimestamp",
    "MetadataProblem",
    "OffsetCommitter",
    "OffsetDistributor",
    "OffsetEnvelope",
    "OffsetIndex",
    "OffsetLookup",
    "ProvenanceVector",
    "TargetGroup",
    "compose_metadata",
    "margin_for",
    "parse_metadata",
    "required_margin",
]
