"""Who owns which slot: what every way to build a placement has in common, and the ways beside the ring."""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from keyshared.placement.protocol import Placement

if TYPE_CHECKING:
    from keyshared.placement.assigned import AssignedRanges, Unowned, member_name
    from keyshared.placement.autosplit import AutoSplit
    from keyshared.placement.exclusive import Declared, ExclusiveRanges
    from keyshared.placement.sole_owner import SoleOwner

__all__ = [
    "AssignedRanges",
    "AutoSplit",
    "Declared",
    "ExclusiveRanges",
    "Placement",
    "SoleOwner",
    "Unowned",
    "member_name",
]

_LATER: Final = {
    "assigned": (
        "AssignedRanges",
        "Unowned",
        "member_name",
    ),
    "autosplit": ("AutoSplit",),
    "exclusive": (
        "Declared",
        "ExclusiveRanges",
    ),
    "sole_owner": ("SoleOwner",),
}
"""Modules that are loaded when one of their names is asked for: ``import keyshared`` needs the protocol alone."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
