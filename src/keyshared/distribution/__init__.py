"""Copies between clusters, each exactly once: trees, what a record needs, and how a tree changes.

A bad argument raises `ArgumentError` (a setting `ConfigError`) and changes nothing; docstrings name other errors.

>>> from keyshared.copyflags import CopyFlags
>>> Distributor("cluster 1", 3, ["cluster 3"]).copies(CopyFlags())
(Copy(target='cluster 3', flags=CopyFlags(0b100)),)
"""

from keyshared.distribution.arrivals import RecordArrival, RecordFault, ReplicationReport, judge
from keyshared.distribution.change import LinkMove, LinkStart, Quiesced, Quiescence, TreeChange
from keyshared.distribution.distributor import Copy, CopyDecision, Distributor, Hop
from keyshared.distribution.pictures import dot, mermaid
from keyshared.distribution.replication import Replication
from keyshared.distribution.shape import LEVEL_STEP, MAX_DEPTH, Branch, Nested, Node
from keyshared.distribution.tree import MAX_LINKS, DistributionTree

__all__ = [
    "LEVEL_STEP",
    "MAX_DEPTH",
    "MAX_LINKS",
    "Branch",
    "Copy",
    "CopyDecision",
    "DistributionTree",
    "Distributor",
    "Hop",
    "LinkMove",
    "LinkStart",
    "Nested",
    "Node",
    "Quiesced",
    "Quiescence",
    "RecordArrival",
    "RecordFault",
    "Replication",
    "ReplicationReport",
    "TreeChange",
    "dot",
    "judge",
    "mermaid",
]
