"""Whether a group was enough, and who is the cause: every figure against plain loops over the collected deliveries."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.spark.replays.test_replay_report import Page

pyspark = pytest.importorskip("pyspark")
import pyarrow as pa  # noqa: E402 - needs pyspark
from pyspark.sql import DataFrame, Row  # noqa: E402 - as above
from pyspark.sql import functions as F  # noqa: E402, N812 - as above
from pyspark.sql.pandas.types import to_arrow_schema  # noqa: E402 - as above

from keyshared.config import DispatcherConfig, Rules  # noqa: E402 - as above
from keyshared.hashing.named import XXH64_SEED_42  # noqa: E402 - as above
from keyshared.simulate import Crash, Fixed, Group, Join, Leave, SetLimit, SimulatedConsumer  # noqa: E402 - as above
from keyshared.spark.frames.tables import frame_of  # noqa: E402 - as above
from keyshared.spark.replays.cause_figures import hot_keys  # noqa: E402 - as above
from keyshared.spark.replays.enough_figures import enough  # noqa: E402 - as above
from keyshared.spark.replays.enough_report import Enough, Series  # noqa: E402 - as above
from keyshared.spark.replays.intervals import Replayed  # noqa: E402 - as above
from keyshared.spark.replays.partition import DeliveryRow, SummaryRow, replay_partition  # noqa: E402 - as above
from keyshared.spark.replays.replay import Replay, replay, summary_fields  # noqa: E402 - as above
from keyshared.spark.replays.replay_figures import _ended, replay_report  # noqa: E402 - as above
from keyshared.spark.replays.replay_report import ReplayReport, html  # noqa: E402 - as above
from keyshared.spark.replays.schemas import DELIVERY_SCHEMA, SUMMARY_SCHEMA  # noqa: E402 - as above
from keyshared.spark.replays.stays import State  # noqa: E402 - as above

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_000_000
ENOUGH = 60
PLAN = Group(
    consumers=[SimulatedConsumer("ann", Fixed(7), limit=4, concurrency=2), SimulatedConsumer("bob", Fixed(5), limit=2)],
    changes=[
        Crash(START + 90, "bob"),
        Join(START + 200, SimulatedConsumer("eve", Fixed(5), limit=1)),
        Leave(START + 300, "ann", drain_ms=None),
    ],
)


@pytest.fixture(scope="module")
def replayed(spark: "SparkSession") -> Iterator[Replay]:
    number = F.col("id")
    key = F.when(number % 3 == 0, F.lit("hot")).when(number % 10 != 5, F.concat(F.lit("k"), number % 31))
    log = spark.range(300).select(
        F.concat(F.lit("p"), number % 2).alias("topic_partition"),
        number.alias("offset"),
        key.alias("key"),
        (number + START).alias("at_ms"),
    )
    with replay(log, PLAN, partitions=1) as result:
        yield result


@pytest.fixture(scope="module")
def rows(replayed: Replay) -> list[Row]:
    found: list[Row] = replayed.deliveries.collect()
    return found


@pytest.fixture(scope="module")
def found(replayed: Replay) -> ReplayReport:
    return replay_report(
        replayed.deliveries,
        replayed.summaries,
        PLAN,
        title="t",
        source="s",
        hottest=3,
        buckets=None,
        enough_ms=ENOUGH,
        epoch_ms=7,
    )


def available(row: Row) -> int:
    at: int = row["delivered_ms"] - row["wait_ms"]
    return at


def test_use_and_lag_are_those_of_every_single_millisecond(found: ReplayReport, rows: list[Row]) -> None:
    assert found.enough is not None
    last = found.span_ms + START
    held: Counter[tuple[str, str, int]] = Counter()
    waiting: Counter[tuple[str, str, int]] = Counter()
    for row in rows:
        place = row["topic_partition"], row["consumer"]
        held.update(
            (*place, t) for t in range(row["delivered_ms"], last if row["ended_ms"] is None else row["ended_ms"])
        )
        waiting.update((*place, t) for t in range(available(row), row["delivered_ms"]))
    hands = {"ann": 2, "bob": 1, "eve": 1}
    ended = max(row["ended_ms"] for row in rows if row["consumer"] == "ann")
    here = {"ann": range(START, ended), "bob": range(START, START + 90), "eve": range(START + 200, last)}
    assert any(held[place, "bob", START + 100] for place in ("p0", "p1"))  # of what it had when it crashed
    width = found.enough.width_ms
    intervals = [range(at, min(at + width, last)) for at in range(START, last, width)]
    for series in found.enough.use:
        name = series.name
        expected: list[object] = []
        for interval in intervals:
            there = sum(t in here[name] for t in interval)
            worked = sum(
                min(hands[name], held[place, name, t]) for place in ("p0", "p1") for t in interval if t in here[name]
            )
            if there:
                expected.append((interval.start - START, pytest.approx(min(1, worked / (2 * hands[name] * there)))))
        assert expected == list(series.points), name
    lags: Counter[tuple[str, int]] = Counter()
    for (where, who, t), number in waiting.items():
        for of in (where, who, "all"):
            lags[of, (t - START) // width] += number
    shown = [*found.enough.consumers, *found.enough.topic_partitions]
    assert {"ann", "bob", "eve", "p0", "p1"} == {series.name for series in shown}
    for series in (*shown, Series("all", found.enough.waiting)):
        lag: list[object] = [
            (number * width, pytest.approx(lags[series.name, number] / width)) for number in range(len(intervals))
        ]
        assert lag == list(series.points), series.name
    assert max(series.peak for series in found.enough.use) > 0.5


def test_use_is_that_of_the_room_that_there_was(spark: "SparkSession") -> None:
    plan = Group(
        consumers=[
            SimulatedConsumer("one", Fixed(30), limit=1, concurrency=4),
            SimulatedConsumer("two", Fixed(20), limit=2),
        ],
        changes=[
            Leave(200, "two", drain_ms=None),
            SetLimit(400, "one", 3),
            Join(700, SimulatedConsumer("two", Fixed(50), limit=6, concurrency=2)),
        ],
    )
    log = spark.range(400).selectExpr("'p' topic_partition", "id offset", "concat('k', id) key", "id * 2 at_ms")
    with replay(log, plan, partitions=1) as result:
        rows = result.deliveries.collect()
        found = replay_report(result.deliveries, result.summaries, plan, title="", source="", hottest=1, buckets=None)
    assert found.enough is not None
    drained = max(row["ended_ms"] for row in rows if row["consumer"] == "two" and row["delivered_ms"] < 700)

    def room(name: str, t: int) -> int:
        if name == "one":
            return 1 if t < 400 else 3
        return 1 if t < drained else 0 if t < 700 else 2

    assert [("two", drained, 700, State.AWAY)] == [
        tuple(stay) for stay in found.enough.stays if stay.state is State.AWAY
    ]
    held = Counter((row["consumer"], t) for row in rows for t in range(row["delivered_ms"], row["ended_ms"]))
    for series in found.enough.use:
        expected: list[object] = []
        for at in range(0, found.span_ms, found.enough.width_ms):
            times = range(at, min(at + found.enough.width_ms, found.span_ms))
            rooms = [room(series.name, t) for t in times]
            worked = sum(min(held[series.name, t], here) for t, here in zip(times, rooms, strict=True))
            if any(rooms):
                expected.append((at, pytest.approx(worked / sum(rooms))))
        assert expected == list(series.points), series.name
    assert max(series.peak for series in found.enough.use) == 1  # it works all the time


def test_what_was_done_again_and_open_is_that_of_every_single_millisecond(found: ReplayReport, rows: list[Row]) -> None:
    assert found.flow is not None
    last = found.span_ms + START
    width = found.flow.width_ms
    starts = range(START, last, width)
    done: Counter[tuple[str, int]] = Counter()
    again: Counter[tuple[str, int]] = Counter()
    opened: Counter[tuple[str, int]] = Counter()
    for row in rows:
        for name in (row["consumer"], "all"):
            if row["outcome"] == "acked":
                # the last interval has its end, too
                done[name, min((row["ended_ms"] - START) // width, len(starts) - 1)] += 1
            if row["attempt"] > 1:
                again[name, (row["delivered_ms"] - START) // width] += 1
            until = last if row["ended_ms"] is None else row["ended_ms"]
            opened.update((name, (t - START) // width) for t in range(row["delivered_ms"], until))
    works = (found.flow.everybody, *found.flow.consumers)
    assert ["all", "ann", "bob", "eve"] == [work.name for work in works]
    for work in works:
        places = [(number * width, (work.name, number)) for number in range(len(starts))]
        assert [(at, done[place]) for at, place in places] == list(work.done), work.name
        assert [(at, again[place]) for at, place in places] == list(work.again), work.name
        expected: list[object] = [(at, pytest.approx(opened[place] / width)) for at, place in places]
        assert expected == list(work.unacked), work.name
    assert sum(again.values()) > 0  # bob crashes with something in his hands
    assert sum(row["outcome"] == "acked" for row in rows) == sum(number for _, number in found.flow.everybody.done)


def test_a_topic_partition_is_behind_while_something_waits_for_too_long(found: ReplayReport, rows: list[Row]) -> None:
    assert found.enough is not None
    late = [row for row in rows if row["wait_ms"] > ENOUGH]
    moments: dict[str, set[int]] = defaultdict(set)
    for row in late:
        moments[row["topic_partition"]] |= set(range(available(row) + ENOUGH, row["delivered_ms"]))
    expected = []
    for place, times in moments.items():
        runs = [[t for _, t in run] for _, run in groupby(enumerate(sorted(times)), key=lambda each: each[1] - each[0])]
        longest = max(runs, key=len)
        of_place = [row["wait_ms"] for row in late if row["topic_partition"] == place]
        expected.append(
            (place, longest[0] - START, longest[-1] + 1 - START, max(of_place), len(of_place), len(runs), len(times))
        )
    assert sorted(expected, key=lambda each: (-each[-1], each[0])) == [
        (b.topic_partition, b.from_ms, b.until_ms, b.longest_ms, b.late, b.stretches, b.total_ms)
        for b in found.enough.behind
    ]
    assert expected
    assert len(expected) == found.enough.behind_count
    assert min(map(min, moments.values())) - START == found.enough.behind_from_ms
    assert max(map(max, moments.values())) + 1 - START == found.enough.behind_until_ms


def test_keys_and_slots_explain_the_wait_that_was_theirs(found: ReplayReport, rows: list[Row]) -> None:
    waits: Counter[bytes] = Counter()
    messages: Counter[bytes] = Counter()
    held: Counter[tuple[str, bytes]] = Counter()
    times: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for row in rows:
        if row["key"] is not None:
            key = bytes(row["key"])
            waits[key] += row["wait_ms"]
            lane = row["topic_partition"], key
            held[lane] += 0 if row["ended_ms"] is None else row["ended_ms"] - row["delivered_ms"]
            if row["attempt"] == 1:
                messages[key] += 1
                times[lane].append(available(row))
    assert sum(row["wait_ms"] for row in rows) == found.wait_ms
    for keys, counter in ((found.slow_keys, waits), (found.hot_keys, messages)):
        expected = sorted(counter, key=lambda key: (-counter[key], key))[:3]
        assert [key.decode() for key in expected] == [key.key for key in keys]
        for key, told in zip(expected, keys, strict=True):
            spans = {lane: max(times[lane]) - min(times[lane]) for lane in times if lane[1] == key}
            worst = max((lane for lane in spans if spans[lane]), key=lambda lane: held[lane] / spans[lane])
            assert (waits[key], messages[key], held[worst], spans[worst]) == (
                told.wait_ms,
                told.messages,
                told.held_ms,
                told.arrivals_ms,
            )
            assert held[worst] / spans[worst] == told.need
    assert "hot" == found.slow_keys[0].key
    assert (found.slow_keys[0].need or 0) > 1  # two messages in 6 ms, each 5 or 7 ms
    by_slot: Counter[int] = Counter()
    for key, wait_ms in waits.items():
        by_slot[XXH64_SEED_42.function(key) >> 32 & 0xFFFF] += wait_ms
    assert by_slot[found.slow_slots[0].slot] == found.slow_slots[0].wait_ms
    assert by_slot.most_common(1)[0][1] == found.slow_slots[0].wait_ms


def reported(spark: "SparkSession", rows: str, plan: Group, enough_ms: int | None = None) -> ReplayReport:
    """What is found in a replay of messages: topic-partition, offset, key and time as SQL of `range(400)`."""
    with replay(spark.range(400).selectExpr(*rows.split("; ")), plan, partitions=1) as result:
        return replay_report(
            result.deliveries,
            result.summaries,
            plan,
            title="",
            source="",
            hottest=5,
            buckets=None,
            enough_ms=enough_ms,
        )


class Frames(NamedTuple):
    """What a replay gives, made in this process: without the jobs of a whole page."""

    deliveries: DataFrame
    summaries: DataFrame
    replayed: Replayed

    def enough(self, enough_ms: int) -> Enough:
        return enough(self.deliveries, self.summaries, self.replayed, {}, shown=[], enough_ms=enough_ms, asked=True)


def frames(spark: "SparkSession", arrivals: Iterable[int], plan: Group, *, key: str = "k{}", places: int = 1) -> Frames:
    """A message arrives at each of these times, with a key of its own if none is given."""
    found = [
        row
        for place in range(places)
        for row in replay_partition(
            (
                (f"p{place}", offset, key.format(offset), at_ms, None)
                for offset, at_ms in enumerate(arrivals)
                if offset % places == place
            ),
            plan,
        )
    ]
    summed: list[dict[str, Any]] = [summary_fields(row) for row in found if isinstance(row, SummaryRow)]
    told = [dict(zip(DELIVERY_SCHEMA.names, row, strict=True)) for row in found if isinstance(row, DeliveryRow)]
    deliveries, summaries = (
        frame_of(spark, pa.Table.from_pylist(rows, to_arrow_schema(schema)))
        for rows, schema in ((told, DELIVERY_SCHEMA), (summed, SUMMARY_SCHEMA))
    )
    first, last = min(row["start_ms"] for row in summed), max(row["end_ms"] for row in summed)
    return Frames(deliveries, summaries, Replayed(plan, first, last, places, _ended(deliveries, plan, last)))


@pytest.mark.parametrize(
    ("consumer", "config", "rules", "need"),
    [
        (SimulatedConsumer("a", Fixed(15), limit=1), {"max_in_flight_per_key": 8}, None, 1.5),
        (SimulatedConsumer("a", Fixed(60), limit=4, concurrency=4), {"max_in_flight_per_key": 8}, None, 1.5),
        (SimulatedConsumer("a", Fixed(20), concurrency=4), {"max_in_flight_per_key": 4}, None, 0.5),
        (SimulatedConsumer("a", Fixed(15)), {"batch_per_key": 10}, None, 1.5),
        (SimulatedConsumer("a", Fixed(150), takes_batches=True), {"batch_per_key": 10}, None, 1.5),
        (SimulatedConsumer("a", Fixed(30), concurrency=4), {}, Rules(mark="four", limit_of=lambda _: 4), 0.75),
    ],
)
def test_a_key_needs_its_part_of_what_a_consumer_has_of_it(
    spark: "SparkSession", consumer: SimulatedConsumer, config: dict[str, Any], rules: Rules | None, need: float
) -> None:
    plan = Group(consumers=[consumer], config=DispatcherConfig(**config), rules=rules)
    [key] = hot_keys(frames(spark, range(0, 2_000, 10), plan, key="k").deliveries, 1, plan).hottest
    assert key.need == pytest.approx(need, rel=0.1)
    assert (key.wait_ms > 0) == (need > 1)


def test_a_key_needs_what_it_needs_in_one_topic_partition(spark: "SparkSession") -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(60))])
    arrivals = (number // 4 * 100 for number in range(400))
    [key] = hot_keys(frames(spark, list(arrivals), plan, key="k", places=4).deliveries, 1, plan).hottest
    assert 0 == key.wait_ms
    assert key.need == pytest.approx(0.6, rel=0.02)


def test_what_a_crashed_consumer_has_in_its_hands_is_no_work(spark: "SparkSession") -> None:
    plan = Group(
        consumers=[SimulatedConsumer("a", Fixed(100))],
        changes=[Crash(30_150, "a")],
        config=DispatcherConfig(inactive_grace_ms=None, ack_timeout_ms=None),
        start_ms=0,
        until_ms=59_900,
    )
    found = reported(spark, "'p' topic_partition; id offset; 'k' key; id * 1000 + 100 at_ms", plan)
    assert found.enough is not None
    at, use = found.enough.use[0].points[-1]
    here = range(at, 30_150)
    assert use == pytest.approx(sum(100 <= t % 1000 < 200 for t in here) / len(here))


def test_what_was_left_in_the_end_never_caught_up(spark: "SparkSession") -> None:
    rows = "if(id < 300, 'p', 'q') topic_partition; id offset; concat('k', id) key; id * 10 + id div 300 * 999 at_ms"
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(200), limit=1)], until_ms=25_000)
    found = reported(spark, rows, plan, enough_ms=1_000)
    assert found.enough is not None
    assert (2, 1, None) == (found.enough.behind_count, found.enough.behind_left, found.enough.behind_until_ms)
    assert {"p": True, "q": False} == {each.topic_partition: each.until_ms is None for each in found.enough.behind}
    text = Page(html(found)).text
    assert "; 1 had not caught up by the end." in text
    assert "not by the end" in text


def test_what_is_in_hand_in_the_end_waits_for_nothing(spark: "SparkSession") -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10), limit=1)], until_ms=4_005)
    found = frames(spark, [*[0] * 20, *range(1_000, 6_000, 100)], plan).enough(50)
    assert (1, 0, 0, 190) == (found.behind_count, found.behind_left, found.left, found.behind_until_ms)


def test_what_waits_for_ever_is_left(spark: "SparkSession") -> None:
    plan = Group(consumers=[SimulatedConsumer("a", Fixed(10))], changes=[Crash(1_050, "a")])
    found = frames(spark, range(0, 4_000, 100), plan).enough(50)
    assert (0, 0, 1) == (found.behind_count, found.behind_left, found.left)


def test_who_still_drains_in_the_end_is_not_away(spark: "SparkSession") -> None:
    busy = SimulatedConsumer("a", Fixed(200), limit=5, concurrency=5)
    plan = Group(
        consumers=[busy, SimulatedConsumer("b", Fixed(5))], changes=[Leave(500, "a", drain_ms=None)], until_ms=550
    )
    stays = frames(spark, range(0, 600, 10), plan).replayed.stays
    assert [("a", 0, 500, State.UP), ("a", 500, 550, State.DRAINING)] == [
        stay for stay in stays if stay.consumer == "a"
    ]


def test_a_change_is_the_same_in_topic_partitions_that_begin_later(spark: "SparkSession") -> None:
    pair = [SimulatedConsumer("a", Fixed(1)), SimulatedConsumer("b", Fixed(1))]
    again = Join(100, SimulatedConsumer("a", Fixed(1)))
    plan = Group(
        consumers=pair, changes=[Join(0, SimulatedConsumer("c", Fixed(1))), Leave(50, "a"), again, Leave(150, "a")]
    )
    rows = "if(id < 300, 'A', 'B') topic_partition; id offset; concat('k', id) key; if(id < 300, id, id - 180) at_ms"
    found = reported(spark, rows, plan).changes
    expected = [(0, "c", "joins"), (50, "a", "leaves"), (100, "a", "joins"), (150, "a", "leaves")]
    assert expected == [(change.at_ms, change.consumer, change.what) for change in found]
    assert [0, 50, 100, 180] == [change.keys for change in found]


def held_by(own: list[Row], last: int, *, is_key: bool) -> list[tuple[str, str, int, int, int, int]]:
    """Who had it when: of a key each run of deliveries to one consumer, of a topic-partition each consumer."""
    runs: dict[tuple[str, int, str], list[Row]] = defaultdict(list)
    for place, here in groupby(
        sorted(own, key=lambda row: (row["topic_partition"], row["sequence"])), key=lambda r: r[0]
    ):
        for number, (who, run) in enumerate(groupby(here, key=lambda row: row["consumer"])):
            runs[place, number if is_key else 0, who] += run
    found = [
        (
            who,
            place,
            min(row["delivered_ms"] for row in run) - START,
            max(last if row["ended_ms"] is None else row["ended_ms"] for row in run) - START,
            len(run),
            sum(row["attempt"] > 1 for row in run),
        )
        for (place, _, who), run in runs.items()
    ]
    most = sorted(found, key=lambda each: (-each[4], each[2], each[1], each[0]))[:12]
    return sorted(most, key=lambda each: (each[2], each[1], each[0]))


def test_a_single_topic_partition_or_key_has_its_own_waits_owners_and_ends(
    replayed: Replay, found: ReplayReport, rows: list[Row]
) -> None:
    assert found.enough is not None
    last, width = found.span_ms + START, found.enough.width_ms
    keys = list(dict.fromkeys(key.key for key in (*found.slow_keys, *found.hot_keys)))
    assert {"p0", "p1"} == {subject.name for subject in found.subjects if not subject.is_key}
    assert keys == [subject.name for subject in found.subjects if subject.is_key]
    by_anchor = {subject.anchor: subject.name for subject in found.subjects}
    assert all(key.key == by_anchor[key.anchor] for key in (*found.slow_keys, *found.hot_keys))
    changes = {row["topic_partition"]: row["moved_keys"] for row in replayed.summaries.collect()}
    for subject in found.subjects:
        column, name = ("key", subject.name.encode()) if subject.is_key else ("topic_partition", subject.name)
        own = [row for row in rows if row[column] == name]
        waits = sorted(row["wait_ms"] for row in own)
        assert (len(own), sum(row["attempt"] > 1 for row in own)) == (subject.deliveries, subject.again)
        assert [waits[-(-len(own) // 2) - 1], waits[-(-99 * len(own) // 100) - 1], waits[-1]] == [
            subject.wait_p50_ms,
            subject.wait_p99_ms,
            subject.wait_max_ms,
        ]
        assert Counter(row["outcome"] for row in own) == dict(subject.outcomes)
        waiting = Counter((t - START) // width for row in own for t in range(available(row), row["delivered_ms"]))
        lag: list[object] = [(at, pytest.approx(waiting[at // width] / width)) for at in range(0, found.span_ms, width)]
        assert lag == list(subject.lag)
        assert held_by(own, last, is_key=subject.is_key) == [tuple(each) for each in subject.holdings]
        moved = [] if subject.is_key else [change for change in changes[subject.name] if change["moved"]]
        assert [(c["at_ms"] - START, c["moved"], c["keys"]) for c in moved] == [
            (move.at_ms, move.moved, move.keys) for move in subject.moves
        ]
    assert any(len({each.consumer for each in subject.holdings}) > 1 for subject in found.subjects if subject.is_key)
    assert any(subject.moves for subject in found.subjects)


def test_waits_after_a_change_are_those_of_what_came_before_the_next(found: ReplayReport, rows: list[Row]) -> None:
    assert ["eve", "ann", "bob"] == [change.consumer for change in found.changes]  # bob is evicted after its grace
    ends = [*(change.at_ms + START for change in found.changes), 10**12]
    for change, (begin, end) in zip(found.changes, pairwise(ends), strict=True):
        waits = sorted(row["wait_ms"] for row in rows if begin <= available(row) < end)
        assert sum(waits) == change.wait_ms
        assert (None if not waits else waits[-(-99 * len(waits) // 100) - 1]) == change.p99_ms


def test_the_calendar_begins_when_the_first_thing_happened(found: ReplayReport) -> None:
    assert START + 7 == found.epoch_ms
    assert found.enough is not None
    assert ["up", "draining", "away"] == [stay.state for stay in found.enough.stays if stay.consumer == "ann"]
