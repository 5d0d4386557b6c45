"""Delivery logs as histories: what each row tells, in order, and what the checker says of it."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest
from tests.spark.attempts import Attempt, lane_history, obvious

from keyshared.errors import ArgumentError
from keyshared.testing import Violation, check_history, from_rows
from keyshared.testing.history import (
    Acked,
    AtRest,
    Connected,
    Delivered,
    Expired,
    Happening,
    Nacked,
    Published,
    Released,
    Settled,
    SettledBy,
)

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.audits.audit import audit  # noqa: E402 - needs pyspark
from keyshared.spark.audits.delivery_history import DELIVERY_GUARANTEES, delivery_history  # noqa: E402 - needs pyspark
from keyshared.spark.audits.order import check_order  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Row: TypeAlias = tuple[Any, ...]
Audited: TypeAlias = list[Any]  # rows of violations

FULL = (
    "topic_partition string, offset long, key binary, consumer string, attempt int, delivered_ms long, ended_ms long, "
    "outcome string, sequence long, end_sequence long, settled_sequence long"
)
SLIM = (
    "topic_partition string, offset long, key binary, consumer string, attempt int, sequence long, end_sequence long, "
    "settled_sequence long"
)
OFFERED = "topic_partition string, offset long, key binary"


def told(history: "DataFrame") -> dict[str, list[Happening]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in history.orderBy("topic_partition", "sequence").collect():
        rows.setdefault(row.topic_partition, []).append(row.asDict())
    found: dict[str, list[Happening]] = {}
    for topic_partition, own in rows.items():
        assert list(range(len(own))) == [each.pop("sequence") for each in own]
        for each in own:
            del each["topic_partition"]
            each["key"] = None if each["key"] is None else bytes(each["key"])
        found[topic_partition] = list(from_rows(own))
    return found


# Each topic-partition is a case of its own: a job of Spark costs far more than the rows in it.
LOG: list[Row] = [
    ("p", 5, b"k", "a", 1, 10, 20, "nacked", 1, 2, None),
    ("p", 5, b"k", "b", 2, 21, 30, "timed_out", 3, 4, 9),  # a late ack, or a policy: the log does not say
    ("p", 2, None, "a", 1, 12, 13, "evicted", 5, 6, None),
    ("p", 2, None, "b", 2, 14, 15, "acked", 7, 8, 8),
    ("q", 2, b"", "b", 1, 14, None, "open", 0, None, None),
    ("ends", 1, b"k", "a", 1, None, None, None, 0, 4, 5),
    ("ends", 2, b"k", "b", 1, None, None, None, 5, 6, 6),
    ("ends", 3, b"l", "a", 1, None, None, None, 4, 5, 5),
    ("keys", 1, b"k", "a", 1, None, None, None, 0, 1, 1),
    ("keys", 1, b"l", "a", 2, None, None, None, 2, 3, 3),
]
LOG_OF_OFFERED: list[Row] = [
    ("over", 3, b"k", "a", 1, 0, 1, 1),
    ("over", 8, b"k", "a", 1, 2, None, None),
    ("over", 6, b"l", "a", 1, 2, 3, 3),
    ("keys", 1, b"k", "a", 1, 0, 1, 1),
    ("keys", 1, b"l", "a", 2, 2, 3, 3),
    ("stray", 1, b"k", "a", 1, 0, 1, 1),
    ("stray", 2, b"k", "a", 1, 2, 3, 3),
    ("again", 0, b"k", "a", 1, 0, 1, None),
    ("again", 0, b"k", "b", 2, 2, None, None),
    ("again", 7, b"l", "a", 1, 4, 5, 5),
    ("nowhere", 4, b"k", "a", 1, 0, 1, 1),
    ("nowhere", 5, b"k", "a", 1, 2, 3, 3),
]
WAS_OFFERED: list[Row] = [
    *(("over", offset, key) for offset, key in ((3, b"k"), (4, None), (6, b"l"), (8, b"k"), (9, b"m"))),
    ("keys", 1, b"m"),
    ("stray", 2, b"k"),
    ("again", 7, b"l"),
]


@pytest.fixture(scope="module")
def plain(spark: "SparkSession") -> "Iterator[DataFrame]":
    """The history of a log with all columns, of which nobody knows what was offered."""
    history = delivery_history(spark.createDataFrame(LOG, FULL)).persist()
    yield history
    history.unpersist()


@pytest.fixture(scope="module")
def plain_told(plain: "DataFrame") -> dict[str, list[Happening]]:
    return told(plain)


@pytest.fixture(scope="module")
def over(spark: "SparkSession") -> "Iterator[DataFrame]":
    """The history of a log without times, with all that was offered."""
    log, offered = spark.createDataFrame(LOG_OF_OFFERED, SLIM), spark.createDataFrame(WAS_OFFERED, OFFERED)
    history = delivery_history(log, offered=offered).persist()
    yield history
    history.unpersist()


@pytest.fixture(scope="module")
def over_told(over: "DataFrame") -> dict[str, list[Happening]]:
    return told(over)


@pytest.fixture(scope="module")
def over_found(over: "DataFrame") -> Audited:
    with audit(over, DELIVERY_GUARANTEES) as found:
        return found.violations.collect()


def test_a_delivery_says_what_happened_to_its_message(
    plain: "DataFrame", plain_told: dict[str, list[Happening]]
) -> None:
    expected: dict[str, list[Happening]] = {
        "p": [
            Published(offset=2),  # the lowest first, and none later than a newer one
            Published(offset=5, key=b"k"),
            Delivered(offset=5, key=b"k", consumer="a", attempt=1, at_ms=10),
            Nacked(offset=5, consumer="a", attempt=1, counted=True, at_ms=20),
            Delivered(offset=5, key=b"k", consumer="b", attempt=2, at_ms=21),
            Expired(offset=5, consumer="b", attempt=2, at_ms=30),
            Delivered(offset=2, consumer="a", attempt=1, at_ms=12),
            Released(offset=2, consumer="a", attempt=1, reason="evicted", at_ms=13),
            Delivered(offset=2, consumer="b", attempt=2, at_ms=14),
            Acked(offset=2, consumer="b", attempt=2, counted=True, at_ms=15),
            Settled(offset=5, reason=SettledBy.OPERATOR),
        ],
        "q": [Published(offset=2, key=b""), Delivered(offset=2, key=b"", consumer="b", attempt=1, at_ms=14)],
    }
    assert expected == {name: plain_told[name] for name in ("p", "q")}
    positions = plain.filter("topic_partition = 'p' and happening = 'delivered'").select("x_position").collect()
    assert [1, 3, 5, 7] == sorted(row[0] for row in positions)


def test_what_was_offered_is_published_in_time_and_the_history_is_over(
    over_told: dict[str, list[Happening]], over_found: Audited
) -> None:
    expected: list[Happening] = [
        Published(offset=3, key=b"k"),
        Delivered(offset=3, key=b"k", consumer="a", attempt=1),
        Acked(offset=3, consumer="a", attempt=1, counted=True),
        Published(offset=4),
        Published(offset=6, key=b"l"),
        Published(offset=8, key=b"k"),
        Delivered(offset=6, key=b"l", consumer="a", attempt=1),
        Delivered(offset=8, key=b"k", consumer="a", attempt=1),
        Acked(offset=6, consumer="a", attempt=1, counted=True),
        Published(offset=9, key=b"m"),
        Released(offset=8, consumer="a", attempt=1, reason="the history is over"),
        Connected(consumer="(anybody)"),
        AtRest(),
    ]
    assert expected == over_told["over"]
    lost = sorted((row.promise, row.offsets) for row in over_found if row.topic_partition == "over")
    assert [("no-loss", [4]), ("no-loss", [8]), ("no-loss", [9])] == lost


def test_ends_come_before_settlements_and_those_before_starts_at_one_position(
    plain_told: dict[str, list[Happening]],
) -> None:
    history = plain_told["ends"]
    assert [] == check_history(history, DELIVERY_GUARANTEES)
    names = [type(happening).__name__ for happening in history]
    assert ["Released", "Published", "Published", "Delivered", "Acked", "Settled", "Delivered", "Acked"] == names[2:]


def test_keys_of_messages_are_those_that_were_offered_or_else_delivered(
    spark: "SparkSession", plain_told: dict[str, list[Happening]], over_told: dict[str, list[Happening]]
) -> None:
    assert Published(offset=1, key=b"k") == plain_told["keys"][0]
    assert Published(offset=1, key=b"m") == over_told["keys"][0]
    log = spark.createDataFrame([row for row in LOG_OF_OFFERED if row[0] == "keys"], SLIM)
    offered = spark.createDataFrame([("keys", 1)], "topic_partition string, offset long")
    keys_are_texts = told(delivery_history(log.withColumn("key", F.col("key").cast("string")), offered=offered))
    assert [Published(offset=1, key=b"k"), *over_told["keys"][1:]] == keys_are_texts["keys"]


def test_what_was_never_offered_is_accused_once_even_if_it_is_the_first(over_found: Audited) -> None:
    found = sorted((row.topic_partition, row.promise, row.offsets) for row in over_found)
    never_offered = [each for each in found if each[0] not in {"over", "keys"}]
    assert [
        ("again", "no-loss", [0]),
        ("nowhere", "no-loss", [4]),
        ("nowhere", "no-loss", [5]),
        ("stray", "no-loss", [1, 2]),  # 2 was published, and 1 was left out
    ] == never_offered


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda log: log.drop("end_sequence"), "'end_sequence'; it must be a column of the frame"),
        (lambda log: log.withColumn("outcome", F.lit(1)), "'outcome'; it must be string, and it is int"),
        (lambda log: log.withColumn("ended_ms", F.lit(1.5)), "'ended_ms'; it must be long or int, and it is"),
    ],
)
def test_a_wrong_column_is_refused_before_any_job(spark: "SparkSession", change: Any, why: str) -> None:
    log = spark.createDataFrame([], FULL).withColumn("offset", F.raise_error(F.lit("a job was started")).cast("long"))
    with pytest.raises(ArgumentError, match=why):
        delivery_history(change(log))
    with pytest.raises(ArgumentError, match="'offset'; it must be a column of the frame"):
        delivery_history(log, offered=log.drop("offset"))
    with pytest.raises(ArgumentError, match="'key'; it must be string or binary, and it is int"):
        delivery_history(log, offered=log.withColumn("key", F.lit(1)))


def lanes(name: str, random: Random, *, damage: bool) -> list[Row]:
    """A log of many lanes, whose positions are drawn from one counter for each topic-partition."""
    rows: list[Row] = []
    for where in (f"{name}-{number}" for number in range(12)):
        base = 0
        for key in (b"a", b"b", b"\xff"):
            lane = lane_history(random, 14, random.choice([1, 3]))
            lane = [row._replace(offset=3 * row.offset + len(rows) % 3) for row in lane]
            if damage and random.random() < 0.7:
                lane = [*damaged(lane, random)]
            rows += [
                (where, row.offset * 3 + key[0] % 3, key, row.consumer, row.attempt, *moved(row, base)) for row in lane
            ]
            base += 1_000
    return rows


def moved(row: Attempt, base: int) -> tuple[int | None, ...]:
    return tuple(None if at is None else at + base for at in row[3:])


def damaged(lane: Sequence[Attempt], random: Random) -> list[Attempt]:
    """Some deliveries go elsewhere, and some that ended did not settle their message after all.

    What is delivered although it is done, or twice at once, is accused, and proves nothing against others.
    """
    found = list(lane)
    for _ in range(2):
        one = random.randrange(len(found))
        if random.random() < 0.5:
            found[one] = found[one]._replace(consumer="z")
        else:
            found[one] = found[one]._replace(settled_sequence=None)
    return found


def any_log(random: Random) -> list[tuple[bytes, Attempt]]:
    """A few deliveries of few messages at random, mostly broken: offsets are swapped, also between keys."""
    count = random.randrange(2, 5)
    positions = random.sample(range(4 * count), 3 * count)
    found, attempts = [], dict.fromkeys(range(3), 0)
    for start, end, later in sorted(sorted(positions[3 * n : 3 * n + 3]) for n in range(count)):
        offset = random.randrange(3)
        attempts[offset] += 1
        ends = None if random.random() < 0.2 else end
        settled = None if ends is None else random.choice([None, end, end, later])
        key = b"l" if random.random() < 0.1 else b"k"
        found.append((key, Attempt(offset, random.choice("ab"), attempts[offset], start, ends, settled)))
    return found


def contradicts_itself(log: Sequence[tuple[bytes, Attempt]]) -> bool:
    """A message has two keys, or goes out again while it is open or done, or is done while it is out again."""
    for key, row in log:
        for other_key, other in log:
            if other.offset != row.offset or other.sequence >= row.sequence:
                continue
            is_done = other.settled_sequence is not None
            if key != other_key or is_done or other.end_sequence is None or other.end_sequence > row.sequence:
                return True
    return False


def small_logs(random: Random, count: int) -> list[Row]:
    """Each is a topic-partition of its own, and none contradicts itself."""
    logs = [any_log(random) for _ in range(count)]
    return [
        (f"small-{number}", row.offset, key, *row[1:])
        for number, log in enumerate(logs)
        if not contradicts_itself(log)
        for key, row in log
    ]


CONTRADICTIONS: dict[str, tuple[list[Row], set[Row]]] = {
    # the rows without their topic-partition; which deliveries broke what
    "again while it is open": (
        [(1, b"k", "a", 1, 0, None, None), (1, b"k", "a", 2, 1, None, None)],
        {("one-holder", 1)},
    ),
    "and it replaces the older one, so its end leaves the message waiting": (
        [(1, b"k", "a", 1, 0, None, None), (1, b"k", "b", 2, 1, 2, None), (2, b"k", "a", 1, 3, None, None)],
        {("one-holder", 1), ("key-order", 3)},
    ),
    "or at two consumers, of which only the newer one still holds it": (
        [(1, b"k", "a", 1, 0, None, None), (1, b"k", "b", 2, 1, None, None), (2, b"k", "b", 1, 2, None, None)],
        {("one-holder", 1)},
    ),
    "again after it was settled: such a delivery holds nothing, and its end is one of nothing": (
        [(1, b"k", "a", 1, 0, 1, 1), (1, b"k", "a", 2, 2, 4, None), (2, b"k", "b", 1, 3, None, None)],
        {("no-loss", 2), ("fence", 4)},
    ),
    "and breaks no order": (
        [(1, b"k", "a", 1, 0, 1, None), (2, b"k", "a", 1, 2, 3, 3), (2, b"k", "a", 2, 4, None, None)],
        {("key-order", 2), ("no-loss", 4)},
    ),
    "settled through an older delivery while it is out again": (
        [(1, b"k", "a", 1, 0, 1, 3), (1, b"k", "a", 2, 2, None, None)],
        {("fence", 3)},
    ),
    "and what ends later ends what is done": (
        [(1, b"k", "a", 1, 0, 1, 3), (1, b"k", "a", 2, 2, 4, None)],
        {("fence", 3), ("fence", 4)},
    ),
    "settled through an older delivery while it waits: a late ack": (
        [(1, b"k", "a", 1, 0, 1, 4), (1, b"k", "a", 2, 2, 3, None)],
        set(),
    ),
    "a message with two keys: it has the first one": (
        [(1, b"k", "a", 1, 0, 1, None), (1, b"l", "b", 2, 2, None, None)],
        {("no-loss", 2)},
    ),
    "and is in the lane of that key only": (
        [(1, b"l", "b", 1, 0, 9, 9), (2, b"k", "b", 1, 3, 4, None), (2, b"l", "a", 2, 6, 7, None)],
        {("no-loss", 6)},
    ),
}


def blamed(log: "DataFrame", history: "DataFrame") -> tuple[set[Row], set[Row], Audited]:
    """Which deliveries broke what, by `check_order` and by `audit`, and all that this one said.

    What is stuck when a history is at rest is no delivery's fault: it is among all that was said only.
    """
    with audit(history, DELIVERY_GUARANTEES) as found:
        violations = found.violations.collect()
    delivered = history.filter("x_position is not null").select("topic_partition", "sequence", "x_position").collect()
    at = {(row.topic_partition, row.sequence): row.x_position for row in delivered}
    slow = {
        (row.promise, row.topic_partition, at[row.topic_partition, row.sequence])
        for row in violations
        if "AtRest()" not in row.excerpt
    }
    fast = {(row.promise, row.topic_partition, row.sequence) for row in check_order(log).collect()}
    return fast, slow, violations


def order_only(found: set[Row]) -> set[Row]:
    """One-holder and key-order, where a log does not contradict itself."""
    return {row for row in found if row[0] in {"one-holder", "key-order"} and row[1] not in CONTRADICTIONS}


def read_aloud(rows: Sequence[Row]) -> set[Row]:
    """Which deliveries broke what, by the promises alone; every message has one key."""
    lanes: dict[tuple[Any, ...], list[Attempt]] = {}
    for where, offset, key, *rest in rows:
        lanes.setdefault((where, key, offset if key is None else None), []).append(Attempt(offset, *rest))
    return {(found[0], where, found[-1]) for (where, *_), lane in lanes.items() for found in obvious(lane)}


class Both(NamedTuple):
    """What came of one log."""

    rows: list[Row]
    told: dict[str, list[Happening]]
    fast: set[Row]
    slow: set[Row]
    violations: Audited


@pytest.fixture(scope="module")
def both(spark: "SparkSession") -> Both:
    """A log of topic-partitions in order, damaged ones, small ones at random, and contradictions; and two audits."""
    rows = [
        *lanes("clean", Random(4), damage=False),
        *lanes("damaged", Random(9), damage=True),
        *small_logs(Random(5), 300),
        *((where, *row) for where, (contradiction, _) in CONTRADICTIONS.items() for row in contradiction),
    ]
    log = spark.createDataFrame(rows, SLIM)
    history = delivery_history(log).persist()
    fast, slow, violations = blamed(log, history)
    found = Both(rows, told(history), fast, slow, violations)
    history.unpersist()
    return found


def test_the_deliveries_that_broke_a_promise_are_blamed_and_no_others(both: Both) -> None:
    found = order_only(both.slow)
    assert order_only(read_aloud(both.rows)) == found
    kinds = {(promise, where.partition("-")[0]) for promise, where, _ in found}
    assert {(promise, kind) for promise in ("one-holder", "key-order") for kind in ("damaged", "small")} == kinds
    small, broken = ({w for w in places if w.startswith("small")} for places in (both.told, {row[1] for row in found}))
    assert 20 < len(broken) < len(small) - 20


def test_two_audits_blame_the_same_deliveries(both: Both) -> None:
    assert both.fast == both.slow


def test_what_is_said_of_a_log_that_contradicts_itself_is_as_documented(both: Both) -> None:
    """The smallest logs of each kind, see "Delivery logs" in docs/spark.md."""
    assert {where: verdict for where, (_, verdict) in CONTRADICTIONS.items()} == {
        where: {(promise, at) for promise, place, at in both.slow if place == where} for where in CONTRADICTIONS
    }


def test_the_history_of_a_log_is_what_the_checker_reads_in_process(both: Both) -> None:
    found: dict[str, list[Violation]] = {
        where: check_history(happenings, DELIVERY_GUARANTEES) for where, happenings in both.told.items()
    }
    assert {(where, each.explanation, each.proof) for where, broken in found.items() for each in broken} == {
        (row.topic_partition, row.explanation, tuple(row.proof)) for row in both.violations
    }
    assert both.violations
