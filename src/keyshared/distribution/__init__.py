"""Copies between clusters, each exactly once: trees, what a record needs, and how a tree changes."""

from keyshared.distribution.arrivals import Case, RecordArrival, Report, judge
from keyshared.distribution.change import Follows, LinkMove, Quiesced, Quiescence, TreeChange
from keyshared.distribution.distributor import Copy, CopyDecision, Distributor, Hop
from keyshared.distribution.pictures import dot, mermaid
from keyshared.distribution.replication import (
    Destroyed,
    Down,
    RecordProduced,
    Replication,
    ReplicationStep,
    Retreed,
    Up,
    Work,
    run,
)
from keyshared.distribution.shape import LEVEL_STEP, MAX_DEPTH, Branch, Nested, Node, Path, count_links, places
from keyshared.distribution.tree import MAX_LINKS, DistributionTree

__all__ = [
    "LEVEL_STEP",
    "MAX_DEPTH",
    "MAX_LINKS",
    "Branch",
    "Case",
    "Copy",
    "CopyDecision",
    "Destroyed",
    "DistributionTree",
    "Distributor",
    "Down",
    "Follows",
    "Hop",
    "LinkMove",
    "Nested",
    "Node",
    "Path",
    "Quiesced",
    "Quiescence",
    "RecordArrival",
    "RecordProduced",
    "Replication",
    "ReplicationStep",
    "Report",
    "Retreed",
    "TreeChange",
    "Up",
    "Work",
    "count_links",
    "dot",
    "judge",
    "mermaid",
    "places",
    "run",
]
