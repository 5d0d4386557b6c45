"""When to split, rebucket or merge: one row per rule, the equalities on both sides, and what may never happen."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.buckets import BucketLayout
from keyshared.errors import ArgumentError, MisuseError
from keyshared.segments import (
    AutoScale,
    Decision,
    LastActions,
    Merge,
    NoAction,
    Rates,
    Rebucket,
    SegmentLoad,
    SegmentMap,
    Split,
    apply_decision,
    decide,
)
from keyshared.segments import ScaleReason as Reason

NOW = 10_000_000
OLD = NOW - 600_000
POLICY = AutoScale()
NO = Reason.NO_SURPLUS


def load(msg_in: Any = 0, bytes_in: Any = 0, msg_out: Any = 0, bytes_out: Any = 0, since: int = OLD) -> SegmentLoad:
    return SegmentLoad(Rates(msg_in, bytes_in, msg_out, bytes_out), since)


def cold(*segments: int, since: int = OLD) -> dict[int, SegmentLoad]:
    return {segment: load(since=since) for segment in segments}


def ask(
    segments: SegmentMap,
    loads: Mapping[int, SegmentLoad],
    consumers: int = 0,
    last: LastActions | None = None,
    **policy: Any,
) -> Decision:
    return decide(segments, loads, {"s": consumers}, AutoScale(**policy), now_ms=NOW, last=last or LastActions())


def topic(n: int, budget: int = 4) -> SegmentMap:
    return SegmentMap.equal_width(n, budget=budget)


def test_the_defaults_are_pulsars() -> None:
    assert POLICY == AutoScale(
        max_segments=64,
        min_segments=1,
        max_merges=10,
        max_buckets=1_024,
        split_cooldown_ms=60_000,
        rebucket_cooldown_ms=60_000,
        merge_cooldown_ms=300_000,
        merge_window_ms=300_000,
        split_floor=1_000,
        split=Rates(10_000, 50_000_000, 50_000, 250_000_000),
        merge=Rates(1_000, 5_000_000, 5_000, 25_000_000),
    )


BUSY = {0: load(1_500), 1: load(2_000)}
FRESH = cold(0, 1, 2, 3, 4, since=NOW)
FOR_CONSUMERS: list[tuple[str, Decision, Decision]] = [
    (
        "the busiest segment is split for surplus consumers",
        Split(1, Reason.CONSUMERS),
        ask(topic(2), BUSY, 3),
    ),
    (
        "as many consumers as segments are no surplus",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(2), BUSY, 2),
    ),
    (
        "of equally busy ones the lowest id is split",
        Split(0, Reason.CONSUMERS),
        ask(topic(2), {0: load(2_000), 1: load(2_000)}, 3),
    ),
    (
        "the lowest id, wherever its range is",
        Split(1, Reason.CONSUMERS),
        ask(topic(2).split(0), {i: load(1_000) for i in (1, 2, 3)}, 4),
    ),
    (
        "the floor itself is enough traffic",
        Split(0, Reason.CONSUMERS),
        ask(topic(1), {0: load(1_000)}, 5),
    ),
    (
        "just below the floor it is not",
        Rebucket((0,), 8, Reason.BELOW_SPLIT_FLOOR),
        ask(topic(1), {0: load(999.999)}, 5),
    ),
    (
        "messages out are no reason to split for consumers",
        Rebucket((0,), 8, Reason.BELOW_SPLIT_FLOOR),
        ask(topic(1), {0: load(0, 0, 49_000, 0)}, 5),
    ),
    (
        "a segment without a record is idle",
        Rebucket((0,), 8, Reason.BELOW_SPLIT_FLOOR),
        ask(topic(1), {}, 5),
    ),
    (
        "within the split cool-down nothing, not even buckets",
        NoAction((Reason.SPLIT_COOLDOWN, Reason.SPLIT_COOLDOWN, Reason.NO_COLD_PAIR)),
        ask(topic(2), BUSY, 9, LastActions(split_ms=NOW - 59_999)),
    ),
    (
        "the cool-down ends with its last millisecond",
        Split(1, Reason.CONSUMERS),
        ask(topic(2), BUSY, 9, LastActions(split_ms=NOW - 60_000)),
    ),
    (
        "at the limit of segments buckets serve the surplus",
        Rebucket((0, 1), 4, Reason.AT_MAX_SEGMENTS),
        ask(topic(2), BUSY, 5, max_segments=2),
    ),
    (
        "as many consumers as buckets need nothing",
        NoAction((Reason.BUCKETS_SUFFICE, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(2), FRESH, 4),
    ),
    (
        "within the rebucket cool-down nothing",
        NoAction((Reason.REBUCKET_COOLDOWN, Reason.NOT_HOT, Reason.AT_MIN_SEGMENTS)),
        ask(topic(1), FRESH, 5, LastActions(rebucket_ms=NOW - 59_999)),
    ),
    (
        "and at its end the rebucketing",
        Rebucket((0,), 8, Reason.BELOW_SPLIT_FLOOR),
        ask(topic(1), FRESH, 5, LastActions(rebucket_ms=NOW - 60_000)),
    ),
    (
        "a power of two is not rounded up",
        Rebucket((0,), 8, Reason.BELOW_SPLIT_FLOOR),
        ask(topic(1), FRESH, 8),
    ),
    (
        "one more is",
        Rebucket((0,), 16, Reason.BELOW_SPLIT_FLOOR),
        ask(topic(1), FRESH, 9),
    ),
    (
        "the limit of buckets holds, power of two or not",
        Rebucket((0,), 7, Reason.BELOW_SPLIT_FLOOR),
        ask(topic(1), FRESH, 5_000, max_buckets=7),
    ),
    (
        "at the limit of buckets the rest stays idle",
        NoAction((Reason.BUCKETS_AT_MAX, Reason.NOT_HOT, Reason.AT_MIN_SEGMENTS)),
        ask(topic(1, budget=8), FRESH, 5_000, max_buckets=8),
    ),
    (
        "all segments are rebucketed at once",
        Rebucket((0, 1, 2, 3), 4, Reason.AT_MAX_SEGMENTS),
        ask(topic(4), FRESH, 10, max_segments=4),
    ),
    (
        "but not those that have enough",
        Rebucket((1, 2, 3), 4, Reason.AT_MAX_SEGMENTS),
        ask(topic(4).rebucket(0, BucketLayout.equal_width(4)), FRESH, 10, max_segments=4),
    ),
    (
        "a segment of one hash is no candidate, however busy",
        Split(2, Reason.CONSUMERS),
        ask(topic(1).split(0, at=1), {1: load(9_000), 2: load(1_000)}, 3),
    ),
]
SPLIT = (10_000, 50_000_000, 50_000, 250_000_000)
FOR_LOAD: list[tuple[str, Decision, Decision]] = [
    *(
        (
            f"above the threshold: {reason}",
            Split(0, reason),
            ask(topic(1), {0: load(*[SPLIT[i] + 1 if i == rate else 0 for i in range(4)])}),
        )
        for rate, reason in enumerate((Reason.MSG_IN, Reason.BYTES_IN, Reason.MSG_OUT, Reason.BYTES_OUT))
    ),
    (
        "the threshold itself is under it",
        NoAction((NO, Reason.NOT_HOT, Reason.AT_MIN_SEGMENTS)),
        ask(topic(1), {0: load(*SPLIT)}),
    ),
    (
        "exactly, not by rounded quotients",
        Split(0, Reason.MSG_IN),
        ask(topic(1), {0: load(Fraction(10**25 + 1, 10**21))}),
    ),
    (
        "the hottest segment, by its worst rate",
        Split(1, Reason.BYTES_OUT),
        ask(topic(2), {0: load(11_000), 1: load(10_900, 0, 0, 300_000_000)}),
    ),
    (
        "of equally hot ones the lowest id",
        Split(0, Reason.MSG_IN),
        ask(topic(2), {0: load(11_000), 1: load(11_000)}),
    ),
    (
        "no split beyond the limit",
        NoAction((NO, Reason.AT_MAX_SEGMENTS, Reason.NO_COLD_PAIR)),
        ask(topic(2), {0: load(11_000), 1: load(11_000)}, max_segments=2),
    ),
    (
        "no split in the cool-down",
        NoAction((NO, Reason.SPLIT_COOLDOWN, Reason.AT_MIN_SEGMENTS)),
        ask(topic(1), {0: load(11_000)}, 0, LastActions(split_ms=NOW - 1)),
    ),
    (
        "other cool-downs do not matter",
        Split(0, Reason.MSG_IN),
        ask(topic(1), {0: load(11_000)}, 0, LastActions(rebucket_ms=NOW, merge_ms=NOW)),
    ),
    (
        "a split goes before a merge",
        Split(2, Reason.MSG_IN),
        ask(topic(3), {**cold(0, 1), 2: load(11_000)}),
    ),
    (
        "a split for load when consumers have what they need",
        Split(1, Reason.MSG_IN),
        ask(topic(2), {0: load(900), 1: load(0, 60_000_000)} | {1: load(11_000)}, 2),
    ),
]
EIGHTS = topic(2, budget=16)
LINE = topic(1).split(0).merge(1, 2).split(3)
FOR_COLD: list[tuple[str, Decision, Decision]] = [
    ("two quiet neighbours are merged", Merge(0, 1, Reason.COLD), ask(topic(2), cold(0, 1))),
    (
        "the seam of the ring parts neighbours",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(3), cold(0, 2) | {1: load(1_000)}),
    ),
    *(
        (
            f"the threshold itself is not quiet: rate {rate}",
            NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
            ask(topic(2), cold(0) | {1: load(*[bound if i == rate else 0 for i in range(4)])}),
        )
        for rate, bound in enumerate((1_000, 5_000_000, 5_000, 25_000_000))
    ),
    (
        "just below it is",
        Merge(0, 1, Reason.COLD),
        ask(topic(2), cold(0) | {1: load(999.9, 4_999_999, 4_999, 24_999_999)}),
    ),
    (
        "a segment without a record is not quiet",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(2), cold(0)),
    ),
    (
        "quiet for less than the window is not enough",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(2), cold(0) | cold(1, since=NOW - 299_999)),
    ),
    ("the window itself is", Merge(0, 1, Reason.COLD), ask(topic(2), cold(0, 1, since=NOW - 300_000))),
    (
        "a record from the future is not old",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(2), cold(0, 1, since=NOW + 1), merge_window_ms=0),
    ),
    (
        "no merge below the limit",
        NoAction((NO, Reason.NOT_HOT, Reason.AT_MIN_SEGMENTS)),
        ask(topic(2), cold(0, 1), min_segments=2),
    ),
    (
        "no merge in the cool-down",
        NoAction((NO, Reason.NOT_HOT, Reason.MERGE_COOLDOWN)),
        ask(topic(2), cold(0, 1), 0, LastActions(merge_ms=NOW - 299_999)),
    ),
    ("and at its end the merge", Merge(0, 1, Reason.COLD), ask(topic(2), cold(0, 1), 0, LastActions(merge_ms=OLD))),
    (
        "the quietest pair",
        Merge(2, 3, Reason.COLD),
        ask(topic(4), {0: load(900), 1: load(900), 2: load(10), 3: load(10)}),
    ),
    ("of equally quiet pairs the lowest range", Merge(0, 1, Reason.COLD), ask(topic(4), cold(0, 1, 2, 3))),
    (
        "a lineage of as many merges as allowed is not merged",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(LINE, cold(4, 5), max_merges=1),
    ),
    ("one of fewer is", Merge(4, 5, Reason.COLD), ask(LINE, cold(4, 5), max_merges=2)),
    (
        "what consumers would at once split again is not merged",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(2), {0: load(900), 1: load(900)}, 2),
    ),
    (
        "not even if the two come to the floor exactly",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(2), {0: load(500), 1: load(500)}, 2),
    ),
    ("below the floor they are merged", Merge(0, 1, Reason.COLD), ask(topic(2), {0: load(500), 1: load(499.9)}, 2)),
    ("and where the segments left suffice", Merge(0, 1, Reason.COLD), ask(topic(2), {0: load(900), 1: load(900)}, 1)),
    (
        "nor is anything merged while another segment would be split for the one that is lost",
        NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(topic(3), cold(0, 1) | {2: load(1_000)}, 3),
    ),
    (
        "where no segment may be added, nothing is split again",
        Merge(0, 1, Reason.COLD),
        ask(topic(3), {0: load(900), 1: load(900), 2: load(2_000)}, 3, max_segments=2),
    ),
    (
        "buckets that consumers use are not clamped away",
        NoAction((Reason.BUCKETS_SUFFICE, Reason.NOT_HOT, Reason.NO_COLD_PAIR)),
        ask(EIGHTS, cold(0, 1), 9, max_buckets=8),
    ),
    ("those that nobody uses are", Merge(0, 1, Reason.COLD), ask(EIGHTS, cold(0, 1), 8, max_buckets=8)),
    (
        "a merge that loses no bucket is fine, however many consumers wait for one",
        Merge(0, 1, Reason.COLD),
        ask(topic(2, budget=8), cold(0, 1), 20, LastActions(rebucket_ms=NOW), max_buckets=8),
    ),
]


@pytest.mark.parametrize(
    ("expected", "actual"),
    [row[1:] for row in (*FOR_CONSUMERS, *FOR_LOAD, *FOR_COLD)],
    ids=[row[0] for row in (*FOR_CONSUMERS, *FOR_LOAD, *FOR_COLD)],
)
def test_rule(expected: Decision, actual: Decision) -> None:
    assert expected == actual


@pytest.mark.parametrize("name", ["split_ms", "rebucket_ms", "merge_ms"])
@pytest.mark.parametrize("value", ["x", float("nan"), 1.5, True])
def test_an_instant_of_the_last_action_is_an_int_or_none(name: str, value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is .*; it must be an int, or None for never"):
        LastActions(**{name: value})
    assert LastActions() == LastActions(**{name: None})


def test_the_subscription_with_most_consumers_counts_not_the_sum() -> None:
    two_each = decide(topic(2), FRESH, {"a": 2, "b": 2}, POLICY, now_ms=NOW)
    assert NoAction((NO, Reason.NOT_HOT, Reason.NO_COLD_PAIR)) == two_each
    assert two_each == decide(topic(2), FRESH, {}, POLICY, now_ms=NOW)
    assert Rebucket((0, 1), 4, Reason.BELOW_SPLIT_FLOOR) == decide(
        topic(2), FRESH, {"a": 1, "b": 5}, POLICY, now_ms=NOW
    )


def test_every_reason_is_given_by_some_row() -> None:
    given_reasons: set[Reason] = set()
    for _, decision, _ in (*FOR_CONSUMERS, *FOR_LOAD, *FOR_COLD):
        given_reasons |= set(decision.reasons) if isinstance(decision, NoAction) else {decision.reason}
    assert set(Reason) == given_reasons


@pytest.mark.parametrize(("buckets", "each"), [(1, 1), (2, 1), (3, 2), (4, 2), (1_023, 512), (1_024, 512)])
def test_a_split_takes_no_bucket_away(buckets: int, each: int) -> None:
    segments = SegmentMap.equal_width(budget=buckets)
    halves = apply_decision(segments, Split(0, Reason.MSG_IN), POLICY)

    assert [each, each] == [len(segment.layout) for segment in halves.active]


def test_a_decision_becomes_the_next_map() -> None:
    segments = topic(2)

    assert segments.split(1) == apply_decision(segments, Split(1, Reason.MSG_IN), POLICY)
    assert segments.merge(0, 1, max_buckets=3) == apply_decision(
        segments, Merge(0, 1, Reason.COLD), AutoScale(max_buckets=3)
    )
    eight = BucketLayout.equal_width(8)
    both = apply_decision(segments, Rebucket((0, 1), 8, Reason.AT_MAX_SEGMENTS), POLICY)
    assert segments.rebucket(0, eight).rebucket(1, eight) == both
    assert segments is apply_decision(segments, NoAction((NO, NO, NO)), POLICY)
    with pytest.raises(MisuseError):
        apply_decision(segments.split(1), Split(1, Reason.MSG_IN), POLICY)
    with pytest.raises(ArgumentError, match="one that decide"):
        apply_decision(segments, "split", POLICY)  # type: ignore[arg-type]  # on purpose


counts = st.dictionaries(st.sampled_from("ab"), st.integers(0, 40), max_size=2)
rates = st.tuples(*(st.sampled_from([0, 1, 900, 1_000, 20_000]) for _ in range(2)))


@given(counts, st.lists(rates, max_size=30), st.integers(1, 6), st.integers(1, 16), st.integers(1, 6))
def test_steady_traffic_comes_to_rest_and_no_consumer_loses_its_bucket(
    consumers: dict[str, int], drawn: list[tuple[int, int]], n: int, max_buckets: int, max_segments: int
) -> None:
    # a policy without pauses, so that every evaluation may act
    policy = AutoScale(
        max_segments=max(n, max_segments),
        max_buckets=max_buckets,
        split_cooldown_ms=0,
        rebucket_cooldown_ms=0,
        merge_cooldown_ms=0,
        merge_window_ms=0,
        max_merges=3,
    )
    segments = SegmentMap.equal_width(n, budget=min(4, max_buckets))
    # by id, so traffic that moved with a change is new traffic; successors without a record are idle
    loads = {i: load(msg_in=a, msg_out=b) for i, (a, b) in enumerate(drawn)}
    most = max(consumers.values(), default=0)
    for _ in range(200):
        decision = decide(segments, loads, consumers, policy, now_ms=NOW)
        served = min(most, segments.stats().buckets)
        segments = apply_decision(segments, decision, policy)
        if isinstance(decision, NoAction):
            break
        assert len(segments.active) <= policy.max_segments
        assert min(most, segments.stats().buckets) >= served
    else:
        pytest.fail("the topic swings")


@pytest.mark.parametrize(
    "fields",
    [
        {"min_segments": 0},
        {"min_segments": 65},
        {"max_segments": 0},
        {"max_merges": -1},
        {"max_buckets": 0},
        {"max_buckets": 40_000},
        {"split_cooldown_ms": -1},
        {"rebucket_cooldown_ms": 1.0},
        {"merge_cooldown_ms": True},
        {"merge_window_ms": None},
        {"split_floor": -1},
        {"split": (1, 1, 1, 1)},
        {"merge": None},
        {"merge": Rates(10_000, 0, 0, 0)},
        {"merge": Rates(5_000.5, 0, 0, 0)},
        {"split": Rates(10_000, 50_000_000, 50_000, 0)},
    ],
    ids=str,
)
def test_a_policy_that_can_never_work_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        AutoScale(**fields)


def test_thresholds_that_would_let_a_topic_swing_are_refused_by_name() -> None:
    assert AutoScale(merge=Rates(1_000, 25_000_000, 5_000, 5)).merge.bytes_in == 25_000_000  # half of it is far enough
    with pytest.raises(ArgumentError) as refused:
        AutoScale(merge=Rates(1_000, 25_000_001, 5_000, 5))

    told = "merge.bytes_in is 25000001; it must be at most half of split.bytes_in, which is 50000000, or two quiet"
    assert told in str(refused.value)
    assert "lower the one or raise the other" in str(refused.value)


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf"), True, "1", None])
def test_a_rate_is_a_finite_number(rate: Any) -> None:
    with pytest.raises(ArgumentError, match="bytes_in is"):
        Rates(bytes_in=rate)


@pytest.mark.parametrize("fields", [(None, 0), (Rates(), 1.5), (Rates(), True)])
def test_a_load_is_rates_and_an_instant(fields: Any) -> None:
    with pytest.raises(ArgumentError):
        SegmentLoad(*fields)


@pytest.mark.parametrize(
    "changed",
    [
        {"segments": None},
        {"policy": None},
        {"now_ms": 1.5},
        {"now_ms": None},
        {"consumers": {"s": -1}},
        {"consumers": {"s": True}},
    ],
    ids=str,
)
def test_a_question_that_makes_no_sense_is_refused(changed: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"segments": topic(1), "loads": {}, "consumers": {}, "policy": POLICY, "now_ms": NOW}
    with pytest.raises(ArgumentError):
        decide(**{**arguments, **changed})
