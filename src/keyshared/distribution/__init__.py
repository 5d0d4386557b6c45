"""Copies between clusters, each exactly once: trees, what a record needs, and how a tree changes."""

from keyshared.distribution.change import Change, Drain, Follows, Moved, Quiesced
from keyshared.distribution.distributor import Copy, Distributor, Hop
from keyshared.distribution.pictures import dot, mermaid
from keyshared.distribution.replication import (
    Arrival,
    Case,
    Destroyed,
    Down,
    Produced,
    Replication,
    Report,
    Retreed,
    Step,
    Up,
    Work,
    judge,
    run,
)
from keyshared.distribution.shape import LEVEL_STEP, MAX_DEPTH, Branch, Nested, Node, Path, count_links, places
from keyshared.distribution.tree import MAX_LINKS, Decision, DistributionTree

__all__ = [
    "LEVEL_STEP",
    "MAX_DEPTH",
    "MAX_LINKS",
    "Arrival",
    "Branch",
    "Case",
    "Change",
    "Copy",
    "Decision",
    "Destroyed",
    "DistributionTree",
    "Distributor",
    "Down",
    "Drain",
    "Follows",
    "Hop",
    "Moved",
    "Nested",
    "Node",
    "Path",
    "Produced",
    "Quiesced",
    "Replication",
    "Report",
    "Retreed",
    "Step",
    "Up",
    "Work",
    "count_links",
    "dot",
    "judge",
    "mermaid",
    "places",
    "run",
]
