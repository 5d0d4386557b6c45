"""The owner of each slot: the value, the protocol of everything that builds it, and the ways to build it.

`HashRing` is in `keyshared.ring`. `AutoSplit` and `ExclusiveRanges` are Pulsar's, `AssignedRanges` Celeriant's.

>>> from keyshared.placement import AutoSplit
>>> placement = AutoSplit(["a"])
>>> placement.add("b")                                   # the widest range is halved
[Moved(start=0, stop=32768, old='a', new='b')]
>>> placement.ranges.owner_of("order-1")
'a'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import HashRange, Moved, RangeMap, Weight, gained, lost

if TYPE_CHECKING:
    from keyshared.placement.assigned import AssignedRanges, Declared, ExclusiveRanges, Unowned, member_name
    from keyshared.placement.autosplit import AutoSplit

__all__ = [
    "AssignedRanges",
    "AutoSplit",
    "Declared",
    "ExclusiveRanges",
    "HashRange",
    "Moved",
    "Placement",
    "RangeMap",
    "Unowned",
    "Weight",
    "gained",
    "lost",
    "member_name",
]

_LATER: Final = {
    "assigned": (
        "AssignedRanges",
        "Declared",
        "ExclusiveRanges",
        "Unowned",
        "member_name",
    ),
    "autosplit": ("AutoSplit",),
}
"""Modules that are loaded when one of their names is asked for: ``import keyshared`` needs none of them."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        for module, names in _LATER.items():
            if name in names:
                return getattr(import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
