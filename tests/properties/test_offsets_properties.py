"""Translation of offsets against a scan of both logs, under lag, outages and clocks that differ.

First any logs at all, drawn by Hypothesis; then logs of a seeded simulation, whose figures are those of the
documentation. Translations with the faults seen in the field have to lose records in both.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.clusters import ORIGINS, PER_ORIGIN, RUNS, TROUBLES, Cost, Record, Trouble, World, cost, worlds
from tests.translations import (
    POSITION,
    by_provenance,
    by_timestamp,
    indexed,
    with_planned_margin,
    with_required_margin,
)

from keyshared.copyflags import CopyFlags
from keyshared.offsets import (
    Declined,
    GroupCommit,
    GroupTimestamp,
    OffsetCommitter,
    OffsetDistributor,
    OffsetLookup,
    ProvenanceVector,
    TargetGroup,
    required_margin,
)

ROOT = Path(__file__).resolve().parents[2]
TIMESTAMPS = st.integers(0, 60)


@st.composite
def drawn_worlds(draw: st.DrawFn) -> World:
    """Two logs with the same records, each origin's in its own order; the clusters' timestamps may differ."""
    sizes = draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 6), min_size=1))
    labels = [origin for origin, size in sizes.items() for _ in range(size)]
    created = {origin: draw(st.lists(TIMESTAMPS, min_size=size, max_size=size)) for origin, size in sizes.items()}
    source = _numbered(draw(st.permutations(labels)), created)
    target = _numbered(draw(st.permutations(labels)), created)
    if draw(st.booleans()):  # LogAppendTime
        target = [record._replace(timestamp=draw(TIMESTAMPS)) for record in target]
    return World(tuple(source), tuple(target), draw(st.integers(1, len(source))))


def _numbered(origins: list[str], created: dict[str, list[int]]) -> list[Record]:
    seen = dict.fromkeys(created, 0)
    records: list[Record] = []
    for origin in origins:
        records.append(Record(origin, seen[origin], created[origin][seen[origin]]))
        seen[origin] += 1
    return records


def scanned(world: World, margin: int, source_start: int = 0, target_start: int = 0) -> int:
    """The result in the plainest words: all records of both logs looked at, one by one."""
    remaining = list(enumerate(world.source))[source_start:]
    below = [record for offset, record in remaining if offset < world.processed]
    last = below[-1] if below else remaining[0][1]
    for offset, record in list(enumerate(world.target))[target_start:]:
        if record.timestamp >= last.timestamp - margin:
            return offset
    return len(world.target)


@given(drawn_worlds(), st.integers(0, 70), st.integers(0, 12), st.integers(0, 12), st.sampled_from([1, 2, 5]))
def test_the_result_is_what_a_scan_of_both_logs_finds_or_safely_below(
    world: World, margin: int, source_start: int, target_start: int, interval: int
) -> None:
    assume(source_start < len(world.source))
    source = indexed([record.timestamp for record in world.source], interval)
    target = indexed([record.timestamp for record in world.target], interval)
    source.truncate(source_start)
    target.truncate(min(target_start, target.end))
    sent = OffsetDistributor(margin_ms=margin).translate(GroupCommit(POSITION, world.processed), source)
    assert isinstance(sent, GroupTimestamp)
    planned = OffsetCommitter().propose(sent, TargetGroup(), target)
    assert isinstance(planned, GroupCommit)
    expected = scanned(world, margin, source_start, target.start)
    assert target.start <= planned.offset <= expected
    assert interval > 1 or planned.offset == expected


@given(drawn_worlds(), st.sampled_from([1, 2, 5]))
def test_with_the_required_margin_nothing_is_ever_lost(world: World, interval: int) -> None:
    last = world.source[world.processed - 1].timestamp
    margin = required_margin(last, world.unprocessed_timestamps)
    assert 0 == world.lost(by_timestamp(world, margin, interval=interval))


@given(drawn_worlds())
def test_one_millisecond_less_loses_if_the_oldest_comes_first(world: World) -> None:
    last = world.source[world.processed - 1].timestamp
    margin = required_margin(last, world.unprocessed_timestamps)
    assume(margin > 0)
    oldest_first = sorted(world.target, key=lambda record: (record[:2] in world.done, record.timestamp))
    worst = replace(world, target=tuple(oldest_first))
    assert 0 == worst.lost(by_timestamp(worst, margin))
    assert 0 < worst.lost(by_timestamp(worst, margin - 1))


@given(drawn_worlds())
def test_a_vector_loses_nothing_and_as_a_filter_repeats_nothing(world: World) -> None:
    resume = by_provenance(world)
    assert 0 == world.lost(resume)
    assert [record[:2] for record in world.target if record[:2] not in world.done] == filtered(world, resume)


@given(drawn_worlds(), st.data())
def test_records_that_were_copied_twice_pass_the_filter_once(world: World, data: st.DataObject) -> None:
    """A link that was rewound copies a stretch again; the second time nothing of it is new."""
    start = data.draw(st.integers(0, len(world.target)))
    stop = data.draw(st.integers(start, len(world.target)))
    again = replace(world, target=world.target[:stop] + world.target[start:])
    resume = by_provenance(again)
    assert 0 == again.lost(resume)
    assert [record[:2] for record in world.target if record[:2] not in world.done] == filtered(again, resume)


def filtered(world: World, resume: int) -> list[tuple[str, int]]:
    """What a consumer processes that resumes there and asks the vector about each record."""
    vector = ProvenanceVector()
    for origin, offset, _ in world.source[: world.processed]:
        vector.observe(origin, offset)
    return [record[:2] for record in world.target[resume:] if vector.observe(*record[:2])]


vectors = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)).map(ProvenanceVector)
sources = [(origin, offset) for origin in "abc" for offset in range(12)]


@given(vectors, vectors)
def test_a_merged_vector_covers_what_either_covers(one: ProvenanceVector, other: ProvenanceVector) -> None:
    merged = one.copy()
    merged.merge(other)
    assert [one.covers(*each) or other.covers(*each) for each in sources] == [merged.covers(*each) for each in sources]


@given(vectors, st.dictionaries(st.sampled_from("abcd"), st.integers(0, 11)))
def test_compacting_changes_no_answer_about_what_remains(vector: ProvenanceVector, earliest: dict[str, int]) -> None:
    before = {source: vector.covers(*source) for source in sources if source[1] >= earliest.get(source[0], 0)}
    size = len(vector)
    gone = vector.compact(earliest)
    assert before == {source: vector.covers(*source) for source in before}
    assert size - len(gone) == len(vector)
    assert not any(offset < earliest.get(origin, 0) for origin, offset in vector.positions.items())


@given(vectors)
def test_json_goes_there_and_back(vector: ProvenanceVector) -> None:
    assert vector == ProvenanceVector.from_json(vector.to_json())


moves = st.tuples(st.none() | st.integers(-10, 80), st.booleans(), st.integers(0, 3))


def check_that_groups_only_go_forward(
    committer: OffsetCommitter, timestamps: list[int], steps: list[tuple[int | None, bool, int]]
) -> None:
    """Any timestamps in any order, while the log grows and the group now and then becomes active and commits."""
    log = indexed([])
    group = TargetGroup()
    for timestamp, active, grown in steps:
        for stamped in timestamps[log.end : log.end + grown]:
            log.append(log.end, stamped)
        group = replace(group, active=active)
        plan = committer.propose(GroupTimestamp(POSITION, timestamp, CopyFlags(1)), group, log)
        if isinstance(plan, Declined):
            continue
        assert not group.active
        assert group.committed is None or plan.offset > group.committed
        assert log.start <= plan.offset <= log.end
        group = TargetGroup(active, plan.offset, plan.metadata)


@given(st.lists(TIMESTAMPS, max_size=20), st.lists(moves, max_size=12))
def test_a_group_only_ever_goes_forward_and_only_while_it_is_not_active(
    timestamps: list[int], steps: list[tuple[int | None, bool, int]]
) -> None:
    check_that_groups_only_go_forward(OffsetCommitter(), timestamps, steps)


# The simulation


def test_both_clusters_get_every_record_once_and_each_origins_in_order() -> None:
    for trouble in TROUBLES:
        for each in worlds(trouble):
            for log in (each.source, each.target):
                expected = [(origin, offset) for origin in ORIGINS for offset in range(PER_ORIGIN)]
                assert expected == sorted((record[:2] for record in log), key=lambda r: ORIGINS.index(r[0]))


def planned(trouble: Trouble) -> Callable[[World], int]:
    """The margin that somebody would plan who knows the worst."""
    skew = trouble.skew + (trouble.append_time_behind or 0)
    return lambda world: with_planned_margin(world, lag_ms=trouble.lag, outage_ms=trouble.outage, skew_ms=skew)


METHODS: dict[str, Callable[[Trouble], Callable[[World], int]]] = {
    "timestamp, margin 0": lambda _: lambda world: by_timestamp(world, 0),
    "timestamp, margin 60 s": lambda _: by_timestamp,
    "timestamp, `margin_for`": planned,
    "timestamp, `required_margin`": lambda _: with_required_margin,
    "provenance vector": lambda _: by_provenance,
}


@pytest.fixture(scope="module")
def figures() -> dict[tuple[str, str], Cost]:
    return {
        (method, trouble.name): cost(trouble, translate(trouble))
        for trouble in TROUBLES
        for method, translate in METHODS.items()
    }


def test_a_margin_of_60_s_is_enough_for_5_s_of_lag_only(figures: dict[tuple[str, str], Cost]) -> None:
    losses = {trouble.name: figures["timestamp, margin 60 s", trouble.name].runs_with_loss for trouble in TROUBLES}
    assert 0 == losses.pop("lag 5 s")
    assert all(lossy > 0 for lossy in losses.values())


def test_without_a_margin_even_a_short_lag_loses(figures: dict[tuple[str, str], Cost]) -> None:
    assert all(figures["timestamp, margin 0", trouble.name].runs_with_loss > RUNS // 10 for trouble in TROUBLES)


def test_a_target_that_stamps_records_with_a_slow_clock_loses_nearly_always(
    figures: dict[tuple[str, str], Cost],
) -> None:
    assert figures["timestamp, margin 60 s", TROUBLES[-1].name].runs_with_loss > RUNS * 9 // 10


@pytest.mark.parametrize("method", ["timestamp, `margin_for`", "timestamp, `required_margin`", "provenance vector"])
def test_what_is_said_to_lose_nothing_loses_nothing(method: str, figures: dict[tuple[str, str], Cost]) -> None:
    assert [0] * len(TROUBLES) == [figures[method, trouble.name].runs_with_loss for trouble in TROUBLES]


def test_the_vector_reads_less_again_than_any_other_way_without_loss(figures: dict[tuple[str, str], Cost]) -> None:
    for trouble in TROUBLES:
        safe = [
            figures[method, trouble.name].read_again
            for method in METHODS
            if figures[method, trouble.name].runs_with_loss == 0
        ]
        assert min(safe) == figures["provenance vector", trouble.name].read_again


def test_with_one_origin_no_margin_is_needed() -> None:
    """Its records lie in the same order everywhere, so the last processed one is at or behind the result."""
    for trouble in TROUBLES[:4]:
        for each in worlds(trouble):
            source, target = (tuple(r for r in log if r.origin == "ap") for log in (each.source, each.target))
            world = World(source, target, each.processed % len(source) + 1)
            assert 0 == world.lost(by_timestamp(world, 0))


def test_the_documentation_prints_these_figures(figures: dict[tuple[str, str], Cost]) -> None:
    page = (ROOT / "docs" / "offsets.md").read_text("utf-8")
    assert f"{RUNS} runs" in page
    for method in METHODS:
        cells = [f"{lossy} / {again:.1f}" for lossy, again in (figures[method, trouble.name] for trouble in TROUBLES)]
        assert re.search(rf"^\| {re.escape(method)} \| {re.escape(' | '.join(cells))} \|$", page, re.MULTILINE), cells


# Translations that must be caught


class LastInsteadOfNext(OffsetDistributor):
    """Takes the committed offset for the last one processed."""

    def translate(self, commit: GroupCommit, log: OffsetLookup) -> GroupTimestamp | Declined:
        return OffsetDistributor.translate(self, replace(commit, offset=commit.offset + 1), log)


class ForgetsTheMargin(OffsetDistributor):
    """Sends the timestamp itself."""

    def translate(self, commit: GroupCommit, log: OffsetLookup) -> GroupTimestamp | Declined:
        return OffsetDistributor(self.level, 0).translate(commit, log)


class LatestOfBounds(OffsetDistributor):
    """Sends the later end of the bounds of a timestamp."""

    def translate(self, commit: GroupCommit, log: OffsetLookup) -> GroupTimestamp | Declined:
        sent = OffsetDistributor.translate(self, commit, log)
        bounds = log.find_timestamp(commit.offset - 1)
        if isinstance(sent, Declined) or bounds is None:
            return sent
        return replace(sent, timestamp_epoch_ms=bounds.high - self.margin_ms)


class OnePositionForAll(ProvenanceVector):
    """Keeps the greatest offset of all origins, as if they counted together."""

    __slots__ = ()

    def covers(self, origin: str, offset: int) -> bool:
        return super().covers(origin, offset) or offset <= max(self.positions.values(), default=-1)


class MovesBackwards(OffsetCommitter):
    """Commits what it found, wherever the group stands."""

    def propose(
        self, sent: GroupTimestamp, group: TargetGroup, log: OffsetLookup, *, offset: int | None = None
    ) -> GroupCommit | Declined:
        return OffsetCommitter.propose(self, sent, replace(group, committed=None), log, offset=offset)


class TouchesActiveGroups(OffsetCommitter):
    """Commits for a group that commits for itself."""

    def propose(
        self, sent: GroupTimestamp, group: TargetGroup, log: OffsetLookup, *, offset: int | None = None
    ) -> GroupCommit | Declined:
        return OffsetCommitter.propose(self, sent, replace(group, active=False), log, offset=offset)


@pytest.mark.parametrize("broken", [LastInsteadOfNext, ForgetsTheMargin, LatestOfBounds])
def test_a_broken_distributor_loses_records(broken: type[OffsetDistributor]) -> None:
    lost: dict[type[OffsetDistributor], int] = {OffsetDistributor: 0, broken: 0}
    for each in worlds(TROUBLES[1]):
        margin = required_margin(each.source[each.processed - 1].timestamp, each.unprocessed_timestamps)
        for distributor in lost:
            lost[distributor] += each.lost(by_timestamp(each, margin, interval=4, distributor=distributor))
    assert 0 == lost[OffsetDistributor] < lost[broken]


def test_a_vector_over_all_origins_loses_records() -> None:
    assert cost(TROUBLES[0], lambda world: by_provenance(world, OnePositionForAll)).runs_with_loss > 0


@pytest.mark.parametrize("broken", [MovesBackwards, TouchesActiveGroups])
def test_a_broken_committer_is_caught(broken: type[OffsetCommitter]) -> None:
    steps = [(5, False, 3), (90, False, 0), (8, False, 3), (70, True, 3), (None, False, 0)]
    check_that_groups_only_go_forward(OffsetCommitter(), [3, 5, 9, 9, 12], steps)
    with pytest.raises(AssertionError):
        check_that_groups_only_go_forward(broken(), [3, 5, 9, 9, 12], steps)
