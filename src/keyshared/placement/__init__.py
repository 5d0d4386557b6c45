"""The owner of each slot: the value, and the protocol of everything that builds it.

The ways to build it: `HashRing` in `keyshared.ring`, Pulsar's `AutoSplit` in `keyshared.placement.autosplit`, Pulsar's
`ExclusiveRanges` and Celeriant's `AssignedRanges` in `keyshared.placement.assigned`, and `keyshared.buckets`.

>>> from keyshared.ring import HashRing
>>> placement = HashRing(["a"])
>>> {move.new for move in placement.add("b")}            # slots move to the newcomer only
{'b'}
>>> placement.ranges.owner_of("order-1")
'a'
"""

from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import HashRange, Moved, RangeMap, Weight, gained, lost

__all__ = ["HashRange", "Moved", "Placement", "RangeMap", "Weight", "gained", "lost"]
