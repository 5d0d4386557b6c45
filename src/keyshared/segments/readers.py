"""Which consumer reads which active segment, when each segment has one reader."""

from collections.abc import Iterable

from keyshared._checks import check_kind, check_several, check_text, java_order
from keyshared.errors import ArgumentError
from keyshared.segments.map import SegmentMap

__all__ = ["assign_round_robin"]


def assign_round_robin(segments: SegmentMap, consumers: Iterable[str]) -> dict[int, str]:
    """Assign each active segment to one consumer: its name by the segment's id, in the order of the ranges.

    Empty without consumers; a name that is given twice is an ArgumentError. O(n + c log c), n active segments and c
    consumers.

    Source:
        PIP-468: segments by range, consumers by name as Java sorts it, by UTF-16 code units, in turns. It depends on
        nothing else, so all that know both lists agree; the price is that a join or a split may move most of the
        segments.

    Example:
        >>> assign_round_robin(SegmentMap.equal_width(3), ["b", "a"])
        {0: 'a', 1: 'b', 2: 'a'}
    """
    check_kind("segments", segments, SegmentMap)
    given = list(check_several("consumers", consumers, "names"))
    for name in given:
        check_text("consumer", name)
    names = sorted(set(given), key=java_order)
    if len(names) < len(given):
        raise ArgumentError("consumers", given, "be named once each")
    return {segment.id: names[i % len(names)] for i, segment in enumerate(segments.active)} if names else {}
