"""One segment of a scalable topic, and what a set of them has to fulfil to be the segments of one topic."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from keyshared._checks import check_int, check_kind
from keyshared.buckets.layout import HASH_STOP, BucketLayout
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.placement.spans import HashRange

__all__ = [
    "Segment",
    "check_families",
    "check_segment",
    "check_tiles",
    "children_of",
    "plain_segment",
    "segment_in",
]

_FIELDS: Final = ("id", "start", "stop", "splits", "parents", "epoch", "merges")
_MOST_PARENTS: Final = 2
_MOST_CHILDREN: Final = 2


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


def check_segment(segment: object) -> None:
    """Refuse what is no segment, or one that could never be."""
    segment = check_kind("segment", segment, Segment)
    check_int("id", segment.id, 0)
    check_int("epoch", segment.epoch, 0)
    check_int("merges", segment.merges, 0)
    check_kind("layout", segment.layout, BucketLayout)
    if not _on_ring(segment.range):
        raise ArgumentError("range", segment.range, f"be a HashRange that ends at {HASH_STOP} or before")
    parents = segment.parents
    if type(parents) is not tuple or len(parents) > _MOST_PARENTS or any(type(parent) is not int for parent in parents):
        raise ArgumentError("parents", parents, f"be a tuple of at most {_MOST_PARENTS} ids")
    if list(parents) != sorted(set(parents)) or not all(0 <= parent < segment.id for parent in parents):
        raise ArgumentError("parents", parents, f"be distinct ids below {segment.id}, lowest first")


def _on_ring(piece: object) -> bool:
    return isinstance(piece, HashRange) and piece.stop <= HASH_STOP


def children_of(segments: Collection[Segment]) -> dict[int, tuple[int, ...]]:
    """Return the children of each segment that has some and is itself there, in the order of their ranges."""
    present = {segment.id for segment in segments}
    children: dict[int, tuple[int, ...]] = {}
    for segment in sorted(segments, key=lambda s: s.range):
        for parent in segment.parents:
            if parent in present:
                children[parent] = (*children.get(parent, ()), segment.id)
    return children


def check_families(segments: Mapping[int, Segment], children: Mapping[int, tuple[int, ...]]) -> None:
    """Check that every parent gave exactly its range to its children, in one step, later than it was born."""
    for parent_id, ids in children.items():
        parent, heirs = segments[parent_id], [segments[each] for each in ids]
        if any(heir.epoch != heirs[0].epoch or heir.epoch <= parent.epoch for heir in heirs):
            raise ArgumentError("epoch", heirs[0].epoch, f"be one for all children of {parent_id}, and after its own")
        if len(heirs) > 1 and [heir.parents for heir in heirs] != [(parent_id,)] * _MOST_CHILDREN:
            raise ArgumentError("parents", heirs[0].parents, f"tell how {parent_id} was split, merged or rebucketed")
    for segment in segments.values():
        known = sorted((segments[each] for each in segment.parents if each in segments), key=lambda s: s.range)
        if len(known) == len(segment.parents):
            _check_birth(segment, known, [segments[each] for each in children[known[0].id]] if known else [])


def _check_birth(segment: Segment, parents: list[Segment], siblings: list[Segment]) -> None:
    merges = max((parent.merges for parent in parents), default=0) + max(0, len(parents) - 1)
    if segment.merges != merges:
        raise ArgumentError("merges", segment.merges, f"be {merges}, as its parents tell")
    given = _hull([parent.range for parent in parents])
    if given != _hull([sibling.range for sibling in siblings]) or (parents and given is None):
        raise ArgumentError("range", segment.range, f"be what its parents {segment.parents} gave away")


def _hull(ranges: list[HashRange]) -> HashRange | None:
    """Return the range that neighbours cover together; None if there are none, or they leave a gap or overlap."""
    for lower, upper in pairwise(ranges):
        if lower.stop != upper.start:
            return None
    return HashRange(ranges[0].start, ranges[-1].stop) if ranges else None


def check_tiles(active: tuple[Segment, ...]) -> None:
    """Refuse active segments, in the order of their ranges, that leave a hole or overlap."""
    end = 0
    for segment in active:
        if segment.range.start != end:
            raise ArgumentError("start", segment.range.start, f"be {end}, where the active segment before it ends")
        end = segment.range.stop
    if end != HASH_STOP:
        raise ArgumentError("last stop", end, f"be {HASH_STOP}: the active segments cover the whole ring")


def plain_segment(segment: Segment) -> dict[str, object]:
    """Write a segment as JSON can express it; `segment_in` reads it."""
    span, splits = segment.range, list(segment.layout.splits)
    values = (segment.id, span.start, span.stop, splits, list(segment.parents), segment.epoch, segment.merges)
    return dict(zip(_FIELDS, values, strict=True))


def segment_in(data: object) -> Segment:
    """Read what `plain_segment` wrote; its values are not checked yet."""
    if not isinstance(data, Mapping) or data.keys() != set(_FIELDS):
        raise SnapshotError("segment", data, f"be a mapping with the fields {', '.join(_FIELDS)}")
    splits, parents = data["splits"], data["parents"]
    if type(splits) is not list or type(parents) is not list:
        raise SnapshotError("segment", data, "have lists of splits and parents")
    piece, layout = HashRange(data["start"], data["stop"]), BucketLayout.from_splits(splits)
    return Segment(data["id"], piece, layout, tuple(parents), data["epoch"], data["merges"])
