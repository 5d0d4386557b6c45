"""One segment of a scalable topic, and the form in which it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from keyshared._checks import check_int, check_kind
from keyshared.buckets.layout import HASH_STOP, BucketLayout
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.placement.range_map import HashRange

__all__ = ["Segment", "plain_segment", "segment_in"]

_FIELDS: Final = ("id", "start", "stop", "splits", "parents", "epoch", "merges")
_MOST_PARENTS: Final = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment, which never changes.

    Attributes:
        id: Never used again. Children have greater ids than their parents.
        range: The half-open range of segment hashes that it covers; those of PIP-468 are inclusive.
        layout: Its buckets, for life: its entries were batched by them.
        parents: Ids of those whose range it took over: none at first, one after a split or a rebucketing, two after a
            merge.
        epoch: Epoch of the map in which it first appeared.
        merges: Most merges on any way from it back to the beginning, its own included.
    """

    id: int
    range: HashRange
    layout: BucketLayout
    parents: tuple[int, ...] = ()
    epoch: int = 0
    merges: int = 0

    def __post_init__(self) -> None:
        for name, value in (("id", self.id), ("epoch", self.epoch), ("merges", self.merges)):
            check_int(name, value, 0)
        check_kind("layout", self.layout, BucketLayout)
        if check_kind("range", self.range, HashRange).stop > HASH_STOP:
            raise ArgumentError("range", self.range, f"end at {HASH_STOP} or before")
        parents = self.parents
        if type(parents) is not tuple or len(parents) > _MOST_PARENTS or any(type(one) is not int for one in parents):
            raise ArgumentError("parents", parents, f"be a tuple of at most {_MOST_PARENTS} ids")
        if list(parents) != sorted(set(parents)) or not all(0 <= parent < self.id for parent in parents):
            raise ArgumentError("parents", parents, f"be distinct ids below {self.id}, lowest first")


def plain_segment(segment: Segment) -> dict[str, object]:
    """Write a segment as JSON can express it; `segment_in` reads it."""
    span, splits = segment.range, list(segment.layout.splits)
    values = (segment.id, span.start, span.stop, splits, list(segment.parents), segment.epoch, segment.merges)
    return dict(zip(_FIELDS, values, strict=True))


def segment_in(data: object) -> Segment:
    """Read what `plain_segment` wrote."""
    if not isinstance(data, Mapping) or data.keys() != set(_FIELDS):
        raise SnapshotError("segment", data, f"be a mapping with the fields {', '.join(_FIELDS)}")
    splits, parents = data["splits"], data["parents"]
    if type(splits) is not list or type(parents) is not list:
        raise SnapshotError("segment", data, "have lists of splits and parents")
    piece, layout = HashRange(data["start"], data["stop"]), BucketLayout.from_splits(splits)
    return Segment(data["id"], piece, layout, tuple(parents), data["epoch"], data["merges"])
