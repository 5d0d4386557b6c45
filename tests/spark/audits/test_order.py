"""The audit as a Spark job: whatever the screen leaves out, the answer is the checker's, however rows are spread."""

from collections.abc import Callable, Iterator
from functools import reduce
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest
from tests.spark.attempts import Attempt, lane_history, obvious
from tests.spark.settings import SHUFFLE_PARTITIONS, settings

from keyshared.errors import ArgumentError

pyspark = pytest.importorskip("pyspark")
from pyspark.sql import DataFrame  # noqa: E402 - needs pyspark
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark
from tests.spark.since import JOB_FAILED  # noqa: E402 - needs pyspark

from keyshared.spark.audits import screen  # noqa: E402 - needs pyspark
from keyshared.spark.audits.delivery_history import history_of  # noqa: E402 - needs pyspark
from keyshared.spark.audits.order import check_order, count_by_promise, judge_batches  # noqa: E402 - needs pyspark
from keyshared.spark.replays.schemas import VIOLATION_SCHEMA  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row: TypeAlias = tuple[str, bytes | None, Attempt]
Offered: TypeAlias = tuple[str, int, bytes | None]
Found: TypeAlias = tuple[Any, ...]
Only: TypeAlias = Callable[..., DataFrame]

SCHEMA = (
    "topic_partition string, key binary, offset long, consumer string, attempt int, sequence long, end_sequence long, "
    "settled_sequence long"
)
OFFERED = "topic_partition string, offset long, key binary"
NOTHING = {"one-holder": 0, "key-order": 0, "no-loss": 0, "fence": 0}


def frame(spark: "SparkSession", rows: list[Row]) -> DataFrame:
    return spark.createDataFrame([(where, key, *attempt) for where, key, attempt in rows], SCHEMA)


def clean_log(rng: Random, limit: int) -> list[Row]:
    keyed: list[Row] = [
        (where, key, row._replace(offset=4 * row.offset + number))  # a message has one key
        for where in ("EWR", "JFK")
        for number, key in enumerate((b"", b"N1", "é".encode(), b"\xff\x00"))
        for row in lane_history(rng, 12, limit)
    ]
    # all of them overlap, at different consumers, newest first: without a key there is no order
    keyless: list[Row] = [
        ("JFK", None, Attempt(1000 + i, "abc"[i % 3], 1, 1000 + i, 2000 + i, 2000 + i)) for i in range(9)
    ]
    return keyed + keyless


def damaged(rows: list[Row], rng: Random) -> Iterator[Row]:
    """Some deliveries go elsewhere, end late, settle nothing, belong to another message or come again."""
    for where, key, row in rows:
        fate = rng.randrange(20)
        if fate == 0 and row.end_sequence is not None:
            late = row.end_sequence + 9
            yield where, key, row._replace(consumer="z", end_sequence=late, settled_sequence=late)
        elif fate == 1:
            yield where, key, row._replace(settled_sequence=None)
        elif fate == 2:
            yield where, key, row._replace(offset=row.offset + 8)
        elif fate == 3 and row.end_sequence is not None:
            again = row.sequence + 5
            yield where, key, row
            yield where, key, row._replace(sequence=again, end_sequence=again + 3, settled_sequence=again + 3)
        else:
            yield where, key, row


def small_log(rng: Random, where: str) -> Iterator[Row]:
    """A few deliveries of a few messages: each is judged for itself, so every condition decides somewhere."""
    rows = rng.randrange(1, 5)
    tidy = rng.random() < 0.5  # one after the other, in order
    now, attempts = 0, dict.fromkeys(range(rows), 0)
    starts = sorted(rng.sample(range(8), rows))
    for number in range(rows):
        start = now if tidy else starts[number]
        end = start + rng.randrange(1, 4)
        now = end + rng.randrange(2)
        offset = number if tidy and rng.random() < 0.9 else rng.randrange(rows)
        settled = end if tidy and rng.random() < 0.9 else rng.choice([None, end, end, end + 1])
        attempts[offset] += 1
        attempt = attempts[offset] if rng.random() < 0.9 else rng.randrange(1, 4)
        row = Attempt(offset, rng.choice("ab"), attempt, start, end, settled)
        key = b"kl"[offset % 2 :][:1] if rng.random() < 0.95 else rng.choice([b"k", b"l", b"", None])
        yield where, key, row._replace(end_sequence=None, settled_sequence=None) if rng.random() < 0.05 else row


def small_offered(rng: Random, where: str, rows: list[Row]) -> Iterator[Offered]:
    """What the rows say was there, but for a few mistakes; of some of them nothing."""
    if rng.random() < 0.05:
        return
    keys: dict[int, bytes | None] = {row.offset: key for _, key, row in reversed(rows)}
    for offset in range(max(keys) + rng.choice([1, 1, 1, 2])):
        if rng.random() < 0.95:
            yield where, offset, keys.get(offset, b"k") if rng.random() < 0.98 else rng.choice([None, b"l"])
            if rng.random() < 0.05:
                yield where, offset, rng.choice([keys.get(offset), b"m"])


def by_spark(violations: DataFrame) -> list[Found]:
    columns = ["promise", "topic_partition", "key", "offset", "other_offset", "sequence", "explanation"]
    rows: Any = [tuple(row) for row in violations.select(columns).collect()]  # the tuple is right by VIOLATION_SCHEMA
    return sorted(((*row[:2], None if row[2] is None else bytes(row[2]), *row[3:]) for row in rows), key=repr)


def judged(log: DataFrame, offered: DataFrame | None, only: Only | None) -> DataFrame:
    """What `check_order` does, behind another screen or none."""
    return history_of(log, offered, only=only, with_outcomes=False).mapInArrow(judge_batches, VIOLATION_SCHEMA)


def by_name(frames: dict[str, DataFrame]) -> dict[str, list[Found]]:
    """The rows of several frames in one job: planning many costs more than the rows."""
    named = (each.withColumn("name", F.lit(name)) for name, each in frames.items())
    rows: list[Any] = [*map(tuple, reduce(DataFrame.unionAll, named).collect())]
    found: dict[str, list[Found]] = {name: [] for name in frames}
    for *row, name in rows:
        row[2] = None if row[2] is None else bytes(row[2])
        found[name].append(tuple(row))
    return {name: sorted(own, key=repr) for name, own in found.items()}


class Small(NamedTuple):
    """Many small logs in one frame, and what was offered."""

    rows: list[Row]
    log: DataFrame
    offers: dict[str, DataFrame | None]


@pytest.fixture(scope="module")
def small(spark: "SparkSession") -> Small:
    rng = Random(11)
    rows: list[Row] = []
    offered: list[Offered] = []
    for number in range(600):
        own = list(small_log(rng, f"small-{number}"))
        rows += own
        offered += small_offered(rng, f"small-{number}", own)
    for limit in (1, 3):
        more = list(damaged(clean_log(rng, limit), rng))
        rows += [(f"{where}-{limit}", *row) for where, *row in more]  # type: ignore[misc]  # as they were
        offered += {(f"{where}-{limit}", row.offset, key) for where, key, row in more}
    told = spark.createDataFrame(offered, OFFERED)
    offers = {"nothing offered": None, "offered": told, "offered without keys": told.drop("key")}
    return Small(rows, frame(spark, rows), offers)


@pytest.fixture(scope="module")
def unscreened(small: Small) -> dict[str, list[Found]]:
    return by_name({name: judged(small.log, offered, None) for name, offered in small.offers.items()})


def test_the_screen_hides_no_violation_and_makes_none(small: Small, unscreened: dict[str, list[Found]]) -> None:
    screened = {name: check_order(small.log, offered=offered) for name, offered in small.offers.items()}
    assert unscreened == by_name(screened)
    for found in unscreened.values():
        assert {*NOTHING} == {row[0] for row in found}
        assert 150 < len({row[1] for row in found}) < 550  # both kinds of log are there in numbers


def without_column(name: str) -> Only:
    """The screen, for which something is never so."""
    return lambda rows, **options: screen.doubtful(rows.withColumn(name, F.lit(False)), **options)


def test_a_screen_that_is_too_coarse_is_found_out(
    small: Small, unscreened: dict[str, list[Found]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each forgets one thing: what was never delivered, what is odd, what never settled, how deliveries follow."""
    offered = small.offers["offered"]
    faults = {
        "never delivered": without_column("_first_row"),
        "two keys": without_column("_odd"),
        "unsettled": lambda rows, **_: screen.doubtful(rows, is_over=False),
    }
    frames = {name: judged(small.log, offered, fault) for name, fault in faults.items()}
    monkeypatch.setattr(screen, "_follows", lambda: F.lit(True))
    frames["order"] = judged(small.log, offered, screen.doubtful)
    expected = {*unscreened["offered"]}
    for name, found in by_name(frames).items():
        assert expected - {*found}, name


def test_every_small_log_that_breaks_a_promise_is_accused_and_no_other(
    small: Small, unscreened: dict[str, list[Found]]
) -> None:
    lanes: dict[tuple[Any, ...], list[Attempt]] = {}
    keys: dict[tuple[str, int], set[bytes | None]] = {}
    for where, key, row in small.rows:
        lanes.setdefault((where, key, row.offset if key is None else None), []).append(row)
        keys.setdefault((where, row.offset), set()).add(key)
    broken = {where for (where, *_), lane in lanes.items() if obvious(lane)}
    two_keys = {where for (where, _), found in keys.items() if len(found) > 1}
    accused = {row[1] for row in unscreened["nothing offered"]}
    assert broken | two_keys == accused


@pytest.mark.parametrize("limit", [1, 3])
def test_a_log_that_keeps_its_promises_has_no_violations(spark: "SparkSession", limit: int) -> None:
    rows = clean_log(Random(limit), limit)
    offered = spark.createDataFrame([(where, row.offset, key) for where, key, row in rows], OFFERED)
    assert NOTHING == count_by_promise(check_order(frame(spark, rows), offered=offered))


def test_neither_the_order_of_rows_nor_the_number_of_partitions_changes_anything(
    spark: "SparkSession", small: Small, unscreened: dict[str, list[Found]]
) -> None:
    for partitions in (1, 5):
        with settings(spark, {SHUFFLE_PARTITIONS: str(partitions)}):
            log = small.log.repartition(2 * partitions + 1, "offset", "consumer")
            assert unscreened["offered"] == by_spark(check_order(log, offered=small.offers["offered"]))


def test_lanes_that_run_one_by_one_are_never_shown_to_python(spark: "SparkSession") -> None:
    rows: list[Row] = [("t", b"k", row) for row in lane_history(Random(3), 50, 1) if row.settled_sequence is not None]
    rows = [(where, key, row._replace(settled_sequence=row.end_sequence)) for where, key, row in rows]
    rows += [("t", b"l", Attempt(999, "a", 1, 0, None, None))]
    offered = spark.createDataFrame([(where, row.offset, key) for where, key, row in rows], OFFERED)
    shown = [
        {row.offset for row in history_of(frame(spark, rows), told, only=screen.doubtful).collect()}
        for told in (None, offered)
    ]
    assert [set(), {None, 999}] == shown


def test_text_keys_and_binary_keys_are_the_same_keys(spark: "SparkSession") -> None:
    rows = [("t", "é", 2, "a", 1, 0, 1, 1), ("t", "é", 1, "a", 1, 2, 3, 3)]
    text = SCHEMA.replace("key binary", "key string")
    [violation] = check_order(spark.createDataFrame(rows, text)).collect()
    assert "é".encode() == bytes(violation["key"])


def test_what_was_offered_and_not_settled_is_lost(spark: "SparkSession") -> None:
    log = frame(
        spark,
        [
            ("t", b"k", Attempt(1, "a", 1, 0, 1, 1)),
            ("t", b"k", Attempt(2, "a", 1, 2, None, None)),
            ("t", None, Attempt(4, "a", 1, 3, 4, 4)),
            ("t", b"l", Attempt(6, "a", 1, 5, 6, 6)),  # what is lost was not overtaken
            ("u", b"k", Attempt(2, "a", 1, 0, 1, 1)),  # the same offset elsewhere is another message
        ],
    )
    offered = spark.createDataFrame(
        [("t", 1, "k"), ("t", 1, "k"), ("t", 2, "k"), ("t", 3, "k"), ("t", 5, "l"), ("t", 6, "l"), ("u", 2, "k")],
        "topic_partition string, offset long, key string",
    )
    stuck = "offset {} will never be delivered again: nothing is under way, and it has no answer"
    expected = [
        ("no-loss", "t", b"k", 2, None, None, stuck.format(2)),  # and 3 waits behind it
        ("no-loss", "t", None, 4, 5, 5, "Delivered tells of offset 4, which was never published"),
        ("no-loss", "t", b"l", 5, None, None, stuck.format(5)),
    ]
    violations = check_order(log, offered=offered)
    assert expected == sorted(by_spark(violations), key=lambda found: found[3])
    assert {**NOTHING, "no-loss": 3} == count_by_promise(violations)
    assert NOTHING == count_by_promise(check_order(log))  # without the log, 2 may just be outstanding


def test_a_fault_that_names_no_key_is_found_under_the_key_of_its_message(spark: "SparkSession") -> None:
    log = frame(spark, [("t", b"k", Attempt(1, "a", 1, 0, 1, 4)), ("t", b"k", Attempt(1, "a", 2, 2, 5, 5))])
    expected = [("fence", b"k", 1, 4), ("no-loss", b"k", 1, 5)]
    assert expected == [(row[0], *row[2:4], row[5]) for row in by_spark(check_order(log))]


def test_a_missing_column_is_refused_before_any_job(spark: "SparkSession") -> None:
    log = frame(spark, []).drop("settled_sequence")
    with pytest.raises(ArgumentError, match="'settled_sequence'; it must be a column of the frame"):
        check_order(log)


def test_a_column_of_the_wrong_type_is_refused_before_any_job(spark: "SparkSession") -> None:
    log = frame(spark, []).withColumn("offset", F.col("offset").cast("int"))
    with pytest.raises(ArgumentError, match="'offset'; it must be long, and it is int; cast it first"):
        check_order(log)
    with pytest.raises(ArgumentError, match="'topic_partition'; it must be a column of the frame"):
        check_order(frame(spark, []), offered=log.select("offset"))


@pytest.mark.parametrize(
    ("end", "settled", "said"),
    [
        (5, None, "end_sequence must not be at or before the delivery's own sequence"),
        (4, None, "end_sequence must not be at or before the delivery's own sequence"),
        (7, 6, "settled_sequence must not be before the delivery's end"),
        (None, 6, "settled_sequence must not be before the delivery's end"),
    ],
)
def test_positions_that_run_backwards_fail_the_job_with_a_text_that_says_which(
    spark: "SparkSession", end: int | None, settled: int | None, said: str
) -> None:
    log = frame(spark, [("t", b"k", Attempt(1, "a", 1, 5, end, settled))])
    with pytest.raises(JOB_FAILED, match=f"{said} in any row, and it is in .*'t', offset 1"):
        check_order(log).collect()
