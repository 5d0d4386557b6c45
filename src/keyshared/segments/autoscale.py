"""Autoscaling by splits, rebucketings and merges: a pure function from load and consumers to at most one action.

Three passes, and the first that finds something to do decides. Consumers: if a subscription has more of them than there
are segments, a busy topic gets another segment, and a quiet one more buckets. Load: the segment that exceeds a
threshold most is split. Cold: two quiet neighbours are merged.

No merge makes a split possible: not for load, because a threshold to split is at least twice that to merge, and not for
consumers, because nothing is merged while they would get the segment back at once. So under constant load a topic comes
to rest. No rebucketing and no split takes buckets away. A merger may, where the merged segment would have more than the
policy allows, but never one that a consumer has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import pairwise
from math import inf
from typing import Final, TypeAlias

from keyshared._checks import check_int, check_kind, check_mapping, check_number, configuration
from keyshared.buckets.layout import BucketLayout
from keyshared.errors import ArgumentError, shown
from keyshared.placement.range_map import Weight
from keyshared.segments.map import DEFAULT_MAX_BUCKETS, SegmentMap
from keyshared.segments.segment import Segment

__all__ = [
    "AutoScale",
    "Decision",
    "LastActions",
    "Merge",
    "NoAction",
    "Rates",
    "Rebucket",
    "ScaleReason",
    "SegmentLoad",
    "Split",
    "apply_decision",
    "decide",
]

_DIVISIBLE: Final = 2
_RATES: Final = ("msg_in", "bytes_in", "msg_out", "bytes_out")
_TOO_NEAR: Final = (
    "be at most half of split.{name}, which is {hot!r}, or two quiet neighbours become a segment that is split again; "
    "lower the one or raise the other"
)


class ScaleReason(StrEnum):
    """Why something is done, or why a pass does nothing."""

    CONSUMERS = "more consumers than segments"
    MSG_IN = "messages in above the split threshold"
    BYTES_IN = "bytes in above the split threshold"
    MSG_OUT = "messages out above the split threshold"
    BYTES_OUT = "bytes out above the split threshold"
    BELOW_SPLIT_FLOOR = "more consumers than buckets, and too little traffic for another segment"
    AT_MAX_SEGMENTS = "no segment can be added"
    COLD = "two quiet neighbours"
    NO_SURPLUS = "no more consumers than segments"
    BUCKETS_SUFFICE = "every consumer has a bucket"
    BUCKETS_AT_MAX = "no bucket can be added"
    SPLIT_COOLDOWN = "too soon after a split"
    REBUCKET_COOLDOWN = "too soon after a rebucketing"
    MERGE_COOLDOWN = "too soon after a merge"
    NOT_HOT = "no segment above a split threshold"
    AT_MIN_SEGMENTS = "no segment can be spared"
    NO_COLD_PAIR = "no two neighbours that are quiet for long enough and may be merged"


@dataclass(frozen=True, slots=True)
class Rates:
    """Traffic of a segment, or a threshold for it: messages and bytes in and out, each per second and at least 0."""

    msg_in: Weight = 0
    bytes_in: Weight = 0
    msg_out: Weight = 0
    bytes_out: Weight = 0

    def __post_init__(self) -> None:
        for name, value in zip(_RATES, self.values, strict=True):
            check_number(name, value)

    @property
    def values(self) -> tuple[Weight, Weight, Weight, Weight]:
        """All four, in the order of the arguments."""
        return self.msg_in, self.bytes_in, self.msg_out, self.bytes_out


_SPLIT_REASONS: Final = (ScaleReason.MSG_IN, ScaleReason.BYTES_IN, ScaleReason.MSG_OUT, ScaleReason.BYTES_OUT)


@dataclass(frozen=True, slots=True)
class SegmentLoad:
    """A segment's traffic: the latest record, and when it was written.

    Records are written when rates change, so an old one means steady traffic.
    """

    rates: Rates
    since_ms: int

    def __post_init__(self) -> None:
        check_kind("rates", self.rates, Rates)
        check_int("since_ms", self.since_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoScale:
    """The policy of `decide`.

    Args:
        max_segments: No split beyond.
        min_segments: No merge below.
        max_merges: No merge of a segment with so many in its lineage: one that is split and merged again and again
            stays split at some point.
        max_buckets: The most buckets of a segment.
        split_cooldown_ms: Time between two splits, by hand or not.
        rebucket_cooldown_ms: Time between two rebucketings.
        merge_cooldown_ms: Time between two merges.
        merge_window_ms: How long a segment must have been quiet to be merged.
        split_floor: Messages in per second from which surplus consumers are worth a segment.
        split: Above any of these a segment is split.
        merge: Below all of these it is quiet; each is at most half of that to split, or two quiet neighbours could
            become a segment that is split again.

    Source:
        PIP-483, PIP-486, and the settings of Pulsar's broker named beside the defaults.
    """

    max_segments: int = 64  # scalableTopicMaxSegments
    min_segments: int = 1  # scalableTopicMinSegments
    max_merges: int = 10  # scalableTopicMaxDagDepth
    max_buckets: int = DEFAULT_MAX_BUCKETS
    split_cooldown_ms: int = 60_000  # scalableTopicSplitCooldownSeconds
    rebucket_cooldown_ms: int = 60_000  # scalableTopicRebucketCooldownSeconds
    merge_cooldown_ms: int = 300_000  # scalableTopicMergeCooldownSeconds
    merge_window_ms: int = 300_000  # scalableTopicMergeWindowSeconds
    split_floor: Weight = 1_000  # scalableTopicSplitVsRebucketMinMsgRateInThreshold
    split: Rates = Rates(10_000, 50_000_000, 50_000, 250_000_000)  # scalableTopicSplit...Threshold
    merge: Rates = Rates(1_000, 5_000_000, 5_000, 25_000_000)  # scalableTopicMerge...Threshold

    @configuration()
    def __post_init__(self) -> None:
        for name in ("min_segments", "max_buckets"):
            check_int(name, getattr(self, name), 1)
        for name in ("max_merges", "split_cooldown_ms", "rebucket_cooldown_ms", "merge_cooldown_ms", "merge_window_ms"):
            check_int(name, getattr(self, name), 0)
        check_int("max_segments", self.max_segments, self.min_segments)
        BucketLayout.equal_width(self.max_buckets)  # raises
        check_number("split_floor", self.split_floor)
        for thresholds in (self.split, self.merge):
            check_kind("thresholds", thresholds, Rates)
        for name, hot, cold in zip(_RATES, self.split.values, self.merge.values, strict=True):
            if not hot:
                raise ArgumentError(f"split.{name}", hot, "be above 0, or every segment would be split")
            if 2 * Fraction(cold) > Fraction(hot):
                raise ArgumentError(f"merge.{name}", cold, _TOO_NEAR.format(name=name, hot=hot))


@dataclass(frozen=True, slots=True, kw_only=True)
class LastActions:
    """The instants of the last split, rebucketing and merge, by hand or not; None for never."""

    split_ms: int | None = None
    rebucket_ms: int | None = None
    merge_ms: int | None = None

    def __post_init__(self) -> None:
        for name in ("split_ms", "rebucket_ms", "merge_ms"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), alternative=", or None for never")


_NEVER: Final = LastActions()


@dataclass(frozen=True, slots=True)
class Split:
    """Split a segment in the middle; each half gets half of its buckets, rounded up."""

    segment: int
    reason: ScaleReason


@dataclass(frozen=True, slots=True)
class Rebucket:
    """Raise the number of buckets of segments, lowest id first; ``reason`` says why buckets, and no segment."""

    segments: tuple[int, ...]
    buckets: int
    reason: ScaleReason


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge two neighbours, the lower one first, into one segment."""

    first: int
    second: int
    reason: ScaleReason


@dataclass(frozen=True, slots=True)
class NoAction:
    """Leave the topic as it is; ``reasons`` are those of the passes: consumers, load, cold."""

    reasons: tuple[ScaleReason, ScaleReason, ScaleReason]


Decision: TypeAlias = Split | Rebucket | Merge | NoAction


@dataclass(frozen=True, slots=True)
class _Situation:
    segments: SegmentMap
    loads: Mapping[int, SegmentLoad]
    consumers: int
    policy: AutoScale
    now: int
    last: LastActions
    capacity: int  # buckets of all active segments

    def rates(self, segment: Segment) -> Rates:
        load = self.loads.get(segment.id)
        return load.rates if load is not None else Rates()

    def cooling(self, last: int | None, cooldown: int) -> bool:
        return last is not None and self.now - last < cooldown

    @property
    def divisible(self) -> list[Segment]:
        """Return what could be split, lowest id first, if a segment may be added."""
        able = (segment for segment in self.segments.active if len(segment.range) >= _DIVISIBLE)
        return sorted(able, key=lambda segment: segment.id)

    @property
    def splittable(self) -> list[Segment]:
        """Return what can be split now, lowest id first."""
        return self.divisible if len(self.segments.active) < self.policy.max_segments else []


def decide(
    segments: SegmentMap,
    loads: Mapping[int, SegmentLoad],
    consumers: Mapping[str, int],
    policy: AutoScale,
    *,
    now_ms: int,
    last: LastActions = _NEVER,
) -> Decision:
    """Decide what to do with a topic now: one action, or `NoAction` with the reason of each pass.

    A segment without a load record counts as idle where it might be split, and never as quiet where it might be merged.

    Args:
        segments: The map.
        loads: By segment.
        consumers: How many ordered consumers each subscription has; the greatest number counts.
        policy: Thresholds and limits.
        now_ms: On the clock of the loads and of ``last``.
        last: When something was done last.

    Complexity:
        O(n log n), n active segments.

    Source:
        PIP-483 and PIP-486; differs: rates are compared exactly, a segment of one hash is never split, a split takes
        no bucket away, and segments that consumers would split again at once are never merged.

    Example:
        >>> quiet = SegmentMap.equal_width()
        >>> decide(quiet, {}, {"orders": 5}, AutoScale(), now_ms=0) == Rebucket((0,), 8, ScaleReason.BELOW_SPLIT_FLOOR)
        True
        >>> busy = {0: SegmentLoad(Rates(msg_in=1_000), since_ms=0)}
        >>> decide(quiet, busy, {"orders": 5}, AutoScale(), now_ms=0) == Split(0, ScaleReason.CONSUMERS)
        True
    """
    check_kind("segments", segments, SegmentMap)
    check_kind("policy", policy, AutoScale)
    check_kind("last", last, LastActions)
    for segment, load in check_mapping("loads", loads).items():
        check_kind(f"load of {shown(segment)}", load, SegmentLoad)
    check_int("now_ms", now_ms)
    for name, count in check_mapping("consumers", consumers).items():
        check_int(f"consumers of {shown(name)}", count, 0)
    most = max(consumers.values(), default=0)
    situation = _Situation(segments, loads, most, policy, now_ms, last, segments.stats().buckets)
    for_consumers = _serve_consumers(situation)
    if not isinstance(for_consumers, ScaleReason):
        return for_consumers
    hot = _split_hottest(situation)
    if not isinstance(hot, ScaleReason):
        return hot
    cold = _merge_coldest(situation)
    return NoAction((for_consumers, hot, cold)) if isinstance(cold, ScaleReason) else cold


def apply_decision(segments: SegmentMap, decision: Decision, policy: AutoScale) -> SegmentMap:
    """Return the next map: that of a decision, with the policy's bound for the buckets of a merged segment.

    Raises:
        MisuseError: The map has changed since, and does not allow it any more.
    """
    check_kind("segments", segments, SegmentMap)
    check_kind("policy", policy, AutoScale)
    match decision:
        case Split():
            # An odd number rounded down would be a bucket less for the consumers.
            buckets = -(-len(segments.segment(decision.segment).layout) // 2)
            return segments.split(decision.segment, layout=BucketLayout.equal_width(buckets))
        case Merge():
            return segments.merge(decision.first, decision.second, max_buckets=policy.max_buckets)
        case Rebucket():
            for segment in decision.segments:
                segments = segments.rebucket(segment, BucketLayout.equal_width(decision.buckets))
            return segments
        case NoAction():
            return segments
        case _:
            raise ArgumentError("decision", decision, "be one that decide() gave")


def _serve_consumers(now: _Situation) -> Split | Rebucket | ScaleReason:
    policy, active = now.policy, now.segments.active
    if now.consumers <= len(active):
        return ScaleReason.NO_SURPLUS
    busiest = max(now.splittable, key=lambda segment: (now.rates(segment).msg_in, -segment.id), default=None)
    if busiest is not None and now.rates(busiest).msg_in >= policy.split_floor:
        cooling = now.cooling(now.last.split_ms, policy.split_cooldown_ms)
        return ScaleReason.SPLIT_COOLDOWN if cooling else Split(busiest.id, ScaleReason.CONSUMERS)
    if now.consumers <= now.capacity:
        return ScaleReason.BUCKETS_SUFFICE
    if now.cooling(now.last.rebucket_ms, policy.rebucket_cooldown_ms):
        return ScaleReason.REBUCKET_COOLDOWN
    # all at once and to one number, so that it does not depend on the order in which consumers came
    needed = -(-now.consumers // len(active))
    target = min(1 << (needed - 1).bit_length(), policy.max_buckets)
    below = sorted(segment.id for segment in active if len(segment.layout) < target)
    if not below:
        return ScaleReason.BUCKETS_AT_MAX
    return Rebucket(
        tuple(below), target, ScaleReason.BELOW_SPLIT_FLOOR if busiest is not None else ScaleReason.AT_MAX_SEGMENTS
    )


def _split_hottest(now: _Situation) -> Split | ScaleReason:
    able = now.splittable
    if not able:
        return ScaleReason.AT_MAX_SEGMENTS
    if now.cooling(now.last.split_ms, now.policy.split_cooldown_ms):
        return ScaleReason.SPLIT_COOLDOWN
    hottest, why, most = None, ScaleReason.NOT_HOT, Fraction(1)
    thresholds = now.policy.split.values
    for segment in able:
        for rate, threshold, reason in zip(now.rates(segment).values, thresholds, _SPLIT_REASONS, strict=True):
            ratio = Fraction(rate) / Fraction(threshold)
            if ratio > most:
                hottest, why, most = segment, reason, ratio
    return Split(hottest.id, why) if hottest is not None else ScaleReason.NOT_HOT


def _merge_coldest(now: _Situation) -> Merge | ScaleReason:
    active, policy = now.segments.active, now.policy
    if len(active) <= policy.min_segments:
        return ScaleReason.AT_MIN_SEGMENTS
    if now.cooling(now.last.merge_ms, policy.merge_cooldown_ms):
        return ScaleReason.MERGE_COOLDOWN
    most = _most_that_consumers_leave(now)
    pairs = [
        pair
        for pair in pairwise(active)
        if all(_is_cold(now, each) for each in pair)
        and _keeps_buckets(now, *pair)
        and sum(Fraction(now.rates(each).msg_in) for each in pair) < most
    ]
    if not pairs:
        return ScaleReason.NO_COLD_PAIR
    lower, upper = min(pairs, key=lambda pair: sum(Fraction(rate) for each in pair for rate in now.rates(each).values))
    return Merge(lower.id, upper.id, ScaleReason.COLD)


def _is_cold(now: _Situation, segment: Segment) -> bool:
    load = now.loads.get(segment.id)
    if load is None or now.now - load.since_ms < now.policy.merge_window_ms or segment.merges >= now.policy.max_merges:
        return False
    return all(rate < bound for rate, bound in zip(load.rates.values, now.policy.merge.values, strict=True))


def _most_that_consumers_leave(now: _Situation) -> Weight:
    """Return the traffic below which a merged segment stays one: consumers must not get another segment at once.

    They would if they were more than the segments that are left, and any of these, merged or not, were worth a split.
    """
    left = len(now.segments.active) - 1
    if now.consumers <= left or left >= now.policy.max_segments:
        return inf
    busy = any(now.rates(segment).msg_in >= now.policy.split_floor for segment in now.divisible)
    return 0 if busy else now.policy.split_floor


def _keeps_buckets(now: _Situation, lower: Segment, upper: Segment) -> bool:
    """Return whether every consumer that has a bucket keeps one: buckets that the clamp costs cannot be won back."""
    together = len(lower.layout) + len(upper.layout)
    left = now.capacity - together + min(together, now.policy.max_buckets)
    return left >= min(now.consumers, now.capacity)
