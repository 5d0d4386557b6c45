"""Copies between clusters, each exactly once: trees, what a record needs, and how a tree changes."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from keyshared.distribution.change import Follows, LinkMove, Quiesced, Quiescence, TreeChange
from keyshared.distribution.distributor import Copy, Distributor, Hop
from keyshared.distribution.shape import LEVEL_STEP, MAX_DEPTH, Branch, Nested, Node, Path, count_links, places
from keyshared.distribution.tree import MAX_LINKS, CopyDecision, DistributionTree

if TYPE_CHECKING:
    from keyshared.distribution.pictures import dot, mermaid
    from keyshared.distribution.replication import (
        Case,
        Destroyed,
        Down,
        RecordArrival,
        RecordProduced,
        Replication,
        ReplicationStep,
        Report,
        Retreed,
        Up,
        Work,
        judge,
        run,
    )

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

_LATER: Final = {
    "pictures": (
        "dot",
        "mermaid",
    ),
    "replication": (
        "RecordArrival",
        "Case",
        "Destroyed",
        "Down",
        "RecordProduced",
        "Replication",
        "Report",
        "Retreed",
        "ReplicationStep",
        "Up",
        "Work",
        "judge",
        "run",
    ),
}
"""Modules that are loaded when one of their names is asked for: most programs need none of them."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
