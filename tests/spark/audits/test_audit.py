"""The audit as a Spark job: what the in-process checker says of each history, however the rows are spread."""

import gc
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from tests.properties.driving import Fast
from tests.testing.recorded import mutated, recorded
from tests.testing.slow_judge import contradicts
from tests.testing.tiny_histories import TinyWorld

from keyshared.errors import ArgumentError
from keyshared.testing import (
    Checker,
    Guarantees,
    GuaranteesError,
    HistoryError,
    Promise,
    Violation,
    check_history,
    from_rows,
    to_rows,
)
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    Delivered,
    Happening,
    Held,
    HoldReason,
    Published,
    Quiet,
    Released,
    SessionEnded,
    SessionEnds,
    Settled,
    SettledBy,
)
from keyshared.testing.rows import COLUMNS, KINDS

pyspark = pytest.importorskip("pyspark")
import pyarrow as pa  # noqa: E402 - comes with pyspark
from pyspark.sql import functions as F  # noqa: E402, N812 - needs pyspark

from keyshared.spark.audits import histories  # noqa: E402 - needs pyspark
from keyshared.spark.audits.audit import (  # noqa: E402 - needs pyspark
    AUDIT_SCHEMA,
    VERDICT_SCHEMA,
    Audit,
    VerdictRow,
    ViolationRow,
    _count,
    _rules,
    audit,
    audit_batches,
    audit_partition,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

Histories = dict[str, list[Happening]]

ARROW = {"int32": pa.int32(), "int64": pa.int64(), "string": pa.string(), "binary": pa.binary(), "bool": pa.bool_()}
HISTORY = pa.schema([(column.name, ARROW[column.arrow]) for column in COLUMNS])
BATCH = pa.schema([("topic_partition", pa.string()), ("sequence", pa.int64()), *HISTORY])
DDL = (
    "topic_partition string, sequence long, version int, happening string, at_ms long, offset long, key binary, "
    "consumer string, attempt long, counted boolean, reason string, until_ms long, limit long, drains boolean, "
    "resume_offset long, session long, count long"
)
STRICT = Guarantees(per_consumer=3, window=12, max_tracked=20, cursor_keeps_up=True)
LOOSE = Guarantees(per_key=None, nack_holds_key=False, ack_timeout_ms=40, progress_ms=30, may_skip=True)
TOTAL = Guarantees(total_order=True, may_drop=True, may_skip=True, may_dead_letter=True)
PLAIN: list[Happening] = [
    Published(offset=0, key=b"k"),
    Delivered(offset=0, key=b"k", consumer="a"),
    Acked(offset=0, consumer="a"),
]
KEY_OF_NONE: list[Happening] = [Published(offset=4), Settled(offset=4, reason=SettledBy.NOBODY)]


def grows(history: Sequence[Happening]) -> bool:
    offsets = [happening.offset for happening in history if isinstance(happening, Published)]
    return sorted(set(offsets)) == offsets


def random_histories(seed: int, count: int) -> Histories:
    """Of dispatchers, with mistakes and with times; and of what no system would do. One of them is long."""
    random = Random(seed)
    found: Histories = {}
    while len(found) < count:
        if random.random() < 0.4:
            history = TinyWorld(random).history(random.randrange(1, 60))
        else:
            history = recorded(Fast, random.randrange(10_000), random.randrange(1, 400 if not found else 60))[1]
            history = mutated(history, random, random.randrange(6)) if history else history
        if random.random() < 0.3:
            history = never_published(history)
        if history and grows(history) and not contradicts(history):
            found[f"t-{len(found)}"] = [*history, AtRest()] if random.random() < 0.3 else history
    return found


def never_published(history: Sequence[Happening]) -> list[Happening]:
    """A history whose last publication was not written down: nothing shows that before the end."""
    last = max((at for at, each in enumerate(history) if isinstance(each, Published)), default=None)
    return [each for at, each in enumerate(history) if at != last]


def flat(found: Histories, random: Random) -> list[tuple[Any, ...]]:
    """Rows of a table, in any order; sequences have gaps and begin anywhere."""
    rows = []
    for topic_partition, history in found.items():
        sequence = random.randrange(-5, 1 << 40)
        for row in to_rows(history):
            rows.append((topic_partition, sequence, *row.values()))
            sequence += random.choice([1, 1, 7])
    random.shuffle(rows)
    return rows


def frame(spark: "SparkSession", rows: list[tuple[Any, ...]]) -> "DataFrame":
    return spark.createDataFrame(rows, DDL)


def batches(rows: list[tuple[Any, ...]], random: Random) -> Iterator[pa.RecordBatch]:
    """The rows in order, in batches that are cut anywhere; some are empty."""
    table = pa.Table.from_pylist([dict(zip(BATCH.names, row, strict=True)) for row in sorted(rows)], schema=BATCH)
    table = table.combine_chunks()
    start = 0
    while start < len(table):
        size = random.choice([0, 1, 2, 9, 40])
        yield from table.slice(start, size).to_batches() or [pa.RecordBatch.from_pylist([], schema=BATCH)]
        start += size


def shown_by_the_end(history: Sequence[Happening], claims: Guarantees) -> list[Violation]:
    checker = Checker(claims)
    list(checker.violations(history))
    return checker.finish()


def checked(found: Histories, claims: Guarantees) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """What the in-process checker says: violations in order, and counts and what was not judged."""
    violations, verdicts = {}, {}
    for topic_partition, history in found.items():
        checker = Checker(claims)
        list(checker.violations(history))
        broken = check_history(history, claims)
        if broken:
            violations[topic_partition] = [
                (str(each.promise), each.explanation, list(each.proof), each.excerpt) for each in broken
            ]
        reasons = {each.promise: each.reason for each in checker.unjudged()}
        counts = {promise: sum(each.promise is promise for each in broken) for promise in claims.promises}
        verdicts[topic_partition] = {
            str(promise): (len(history), count, reasons.get(Promise(promise))) for promise, count in counts.items()
        }
    return violations, verdicts


def grouped(violations: Sequence[Any], verdicts: Sequence[Any]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The same from rows of an audit; those of a topic-partition in the order in which they came."""
    broken: dict[str, list[Any]] = defaultdict(list)
    judged: dict[str, Any] = defaultdict(dict)
    for row in violations:
        broken[row.topic_partition].append((row.promise, row.explanation, list(row.proof), row.excerpt))
    for row in verdicts:
        judged[row.topic_partition][row.promise] = (row.happenings, row.violations, row.unjudged)
    return broken, judged


def alike(found: tuple[dict[str, list[Any]], dict[str, Any]]) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The same with violations in one order: of a message that was overtaken they come when it is not lost."""
    return {name: sorted(broken) for name, broken in found[0].items()}, found[1]


def by_spark(result: Audit) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    with result:
        return grouped(result.violations.collect(), result.verdicts.collect())


def by_batches(
    found: Histories, claims: Guarantees, random: Random, *, most: int | None = None
) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """The same in process, from the function that a worker runs."""
    rows: dict[str, list[Any]] = {"violations": [], "verdicts": []}
    for packet in audit_batches(batches(flat(found, random), random), claims, most=most):
        for name, kind in (("violations", ViolationRow), ("verdicts", VerdictRow)):
            rows[name] += [kind(**row) for row in packet.column(name).to_pylist()[0]]
    return grouped(**rows)


@pytest.fixture(scope="module")
def many_histories(spark: "SparkSession") -> Iterator[tuple[Histories, "DataFrame"]]:
    """Twenty histories, and their rows in a frame that is kept."""
    found = random_histories(13, 20)
    log = frame(spark, flat(found, Random(1))).persist()
    yield found, log
    log.unpersist()


CLAIMS = {"strict": STRICT, "loose": LOOSE, "total": TOTAL}
EVERY_RUN = {("strict", 1), ("loose", 21), ("total", None)}


# How rows are spread has nothing to do with what is claimed: each once in every run, all pairs at night.
@pytest.mark.parametrize(
    ("claimed", "partitions"),
    [
        pytest.param(*pair, marks=[] if pair in EVERY_RUN else [pytest.mark.slow])
        for pair in product(CLAIMS, (1, 3, 21, None))
    ],
)
def test_the_job_says_what_the_checker_says_of_each_history_however_rows_are_spread(
    many_histories: tuple[Histories, "DataFrame"], claimed: str, partitions: int | None
) -> None:
    found, log = many_histories
    expected = checked(found, CLAIMS[claimed])
    kinds = {violation[0] for broken in expected[0].values() for violation in broken}
    assert {"one-holder", "safe-cursor", "no-loss", "fence"} <= kinds
    assert 2 < len(expected[0]) < 20, "some histories are clean, and some are not"
    assert any(shown_by_the_end(history, CLAIMS[claimed]) for history in found.values())
    assert alike(expected) == alike(by_spark(audit(log, CLAIMS[claimed], partitions=partitions)))


def test_arrow_batches_may_be_cut_anywhere() -> None:
    for seed in range(40):
        random = Random(seed)
        found, claims = random_histories(seed, 4), random.choice([STRICT, LOOSE, TOTAL])
        assert alike(checked(found, claims)) == alike(by_batches(found, claims, random))


def test_a_checker_that_is_shared_by_topic_partitions_would_be_noticed() -> None:
    """The broken variant: books that live on from one topic-partition to the next."""
    history = next(each for each in random_histories(4, 4).values() if any(isinstance(row, Published) for row in each))
    found = dict.fromkeys(("p", "q"), history)
    checker = Checker(STRICT)
    shared = {"p": list(checker.violations(found["p"]))}
    with pytest.raises(HistoryError, match="it must be greater than"):
        shared["q"] = list(checker.violations(found["q"]))
    rows = [(name, number, each) for name, history in found.items() for number, each in enumerate(history)]
    broken, _ = grouped(
        *([row for row in audit_partition(rows, STRICT) if isinstance(row, k)] for k in (ViolationRow, VerdictRow))
    )
    assert broken["p"] == broken["q"]


def test_a_partition_in_the_wrong_order_gives_another_answer_and_is_refused() -> None:
    rows = [("p", number, each) for number, each in enumerate(PLAIN)]
    with pytest.raises(HistoryError, match="sequence of row 1 is 0; it must be greater than 1, that of the row before"):
        list(audit_partition([rows[1], rows[0]], STRICT))
    with pytest.raises(ArgumentError, match="'p'; it must come in one piece: sort the partition by topic-partition"):
        list(audit_partition([rows[0], ("q", 0, PLAIN[0]), rows[1]], STRICT))


class TestViolations:
    def test_a_row_shows_where_what_and_why(self, spark: "SparkSession") -> None:
        history: list[Happening] = [
            Published(offset=0, key=b"k"),
            Published(offset=1, key=b"k"),
            Published(offset=2),
            Delivered(offset=0, key=b"k", consumer="a"),
            Delivered(offset=1, key=b"k", consumer="b"),
        ]
        rows = [("p", 10 * number, *row.values()) for number, row in enumerate(to_rows(history))]
        with audit(frame(spark, rows), Guarantees(promises={"one-holder"})) as found:
            [row] = found.violations.collect()
            assert AUDIT_SCHEMA.names == found.violations.columns
            assert {"one-holder": 1} == found.counts()
            assert {} == found.unjudged()
        assert ViolationRow(
            promise="one-holder",
            topic_partition="p",
            key=b"k",
            sequence=40,
            explanation="offset 1 went to 'b' while offset 0 of its key was open at 'a'",
            proof=(3, 4),
            offsets=(0, 1),
            excerpt="#3 Delivered(offset=0, key=b'k', consumer='a')\n#4 Delivered(offset=1, key=b'k', consumer='b')",
        ) == ViolationRow(
            **{**row.asDict(), "key": bytes(row.key), "proof": tuple(row.proof), "offsets": tuple(row.offsets)}
        )

    def test_what_only_the_end_shows_stands_at_the_last_row(self) -> None:
        """[no-loss] Of each topic-partition, with the proof where it was told."""
        told: Histories = {
            "p": [Published(offset=0), Delivered(offset=1, consumer="a"), Quiet()],
            "q": PLAIN,
            "r": [Published(offset=0), Delivered(offset=7, consumer="a", key=b"k")],
        }
        rows = [(name, 10 * number, each) for name, history in told.items() for number, each in enumerate(history)]
        claims = Guarantees(promises={"no-loss"})
        broken = [row for row in audit_partition(rows, claims) if isinstance(row, ViolationRow)]
        assert [("p", None, 20, (1,), (1,)), ("r", b"k", 10, (1,), (7,))] == [
            (row.topic_partition, row.key, row.sequence, row.proof, row.offsets) for row in broken
        ]
        assert "Delivered tells of offset 7, which was never published" == broken[-1].explanation
        counts = [row.violations for row in audit_partition(rows, claims, most=0) if isinstance(row, VerdictRow)]
        assert [1, 0, 1] == counts

    def test_what_is_lost_is_not_said_to_be_overtaken_too(self) -> None:
        """[key-order] As `check_history` says it, whatever is kept; it came in between, so that is another fault."""
        lost: list[Happening] = [
            Connected(consumer="a"),
            *(Published(offset=offset, key=b"k") for offset in range(4)),
            *(Published(offset=offset, key=b"l") for offset in (4, 5)),
        ]
        for offset in (1, 5, 2):
            lost += [Delivered(offset=offset, key=b"kkkkll"[offset : offset + 1], consumer="a", attempt=1)]
            lost += [Acked(offset=offset, consumer="a", attempt=1)]
        came: list[Happening] = [
            Delivered(offset=0, key=b"k", consumer="a", attempt=1),
            Released(offset=0, consumer="a", attempt=1),
            Delivered(offset=3, key=b"k", consumer="a", attempt=1),
            Acked(offset=3, consumer="a", attempt=1),
        ]
        told = {"p": [*lost, AtRest()], "q": [*lost, *came, AtRest(), *came[2:], AtRest()], "r": [*lost, *came]}
        counts = {"both": [0, 2, 4], "key-order": [3, 4, 4]}
        for name, claims in {"both": {"key-order", "no-loss"}, "key-order": {"key-order"}}.items():
            expected = checked(told, Guarantees(promises=claims))
            assert counts[name] == [each["key-order"][1] for each in expected[1].values()]
            for most in (None, 0, 1, 2, 3):
                found = by_batches(told, Guarantees(promises=claims), Random(0), most=most)
                assert expected[1] == found[1]
                kept = {n: [row for row in rows if row[0] == "key-order"][:most] for n, rows in expected[0].items()}
                shown = {n: [row for row in found[0].get(n, []) if row[0] == "key-order"] for n in kept}
                assert alike((kept, {})) == alike((shown, {})), most

    def test_a_message_without_a_key_has_none_and_a_message_stands_once(self) -> None:
        rows = [("p", number, each) for number, each in enumerate(KEY_OF_NONE)]
        [violation, _] = audit_partition(rows, Guarantees(promises={"no-loss"}))
        assert isinstance(violation, ViolationRow)
        assert (None, (0, 1), (4,)) == (violation.key, violation.proof, violation.offsets)

    def test_the_first_ones_are_kept_and_all_are_counted(self, spark: "SparkSession") -> None:
        found = random_histories(5, 12)
        rows = frame(spark, flat(found, Random(0)))
        every, verdicts = checked(found, STRICT)
        for most in (0, 1, 2):
            if most == 1:
                kept, told = by_spark(audit(rows, STRICT, most=most))
            else:
                kept, told = by_batches(found, STRICT, Random(most), most=most)
            assert verdicts == told
            expected = {
                name: [row for n, row in enumerate(broken) if [each[0] for each in broken[:n]].count(row[0]) < most]
                for name, broken in every.items()
            }
            assert alike(({name: broken for name, broken in expected.items() if broken}, {})) == alike((kept, {}))

    def test_more_violations_than_a_packet_holds_come_in_order(self) -> None:
        history: list[Happening] = [
            Published(offset=0),
            *(Committed(resume_offset=9_999 - number) for number in range(3_000)),
        ]
        rows = [("p", number, *row.values()) for number, row in enumerate(to_rows(history))]
        packets = list(audit_batches(batches(rows, Random(0)), Guarantees(promises={"safe-cursor"})))
        found = [row["sequence"] for packet in packets for row in packet.column("violations").to_pylist()[0]]
        assert len(packets) > 5
        assert sorted(found) == found
        assert 3_000 + 2_999 == len(found)  # passes what is outstanding, and goes back


class TestVerdicts:
    def test_what_was_not_judged_is_said_with_the_number_of_topic_partitions(self, spark: "SparkSession") -> None:
        told: Histories = {
            "p": [*PLAIN, Committed(resume_offset=1)],
            "q": [*PLAIN],
            "r": [*PLAIN, Connected(consumer="a")],
        }
        claims = Guarantees(promises={"safe-cursor", "one-holder", "determinism"})
        with audit(frame(spark, flat(told, Random(0))), claims) as found:
            assert {"one-holder": 0, "safe-cursor": 0, "determinism": 0} == found.counts()
            assert {
                "safe-cursor": {"the history tells of no Committed": 2},
                "determinism": {"it shows only where two histories of the same inputs are compared": 3},
            } == found.unjudged()
            assert VERDICT_SCHEMA.names == found.verdicts.columns
            assert 9 == found.verdicts.count()

    def test_nothing_was_found_in_no_history(self, spark: "SparkSession") -> None:
        with audit(frame(spark, []), STRICT) as found:
            assert dict.fromkeys(map(str, STRICT.promises), 0) == found.counts()
            assert {} == found.unjudged()


class TestColumns:
    def test_columns_that_are_null_may_be_missing_and_keys_may_be_texts(self, spark: "SparkSession") -> None:
        rows = [
            ("published", "é", 0, None, 1, 5),
            ("delivered", "é", 0, "a", 1, 6),
            ("delivered", "é", 0, "b", 1, 7),
        ]
        names = "happening string, Key string, offset int, consumer string, version long, at int"
        log = spark.createDataFrame(rows, names).withColumn("x_mine", F.lit(1)).withColumn("my.shard", F.lit("s"))
        with audit(log, Guarantees(promises={"one-holder"}), topic_partition="`My.shard`", sequence="`at`") as found:
            [row] = found.violations.collect()
        assert ("s", "é".encode(), 7) == (row.topic_partition, bytes(row.key), row.sequence)

    def test_columns_in_which_nothing_stands_are_not_carried(self, spark: "SparkSession") -> None:
        held = Held(offset=0, reason=HoldReason.RETRY, until_ms=5)
        told: Histories = {"p": [*PLAIN], "q": [PLAIN[0], held]}
        for histories_, empty in (({"p": told["p"]}, {"reason", "until_ms"}), (told, set())):
            log = frame(spark, flat(histories_, Random(0))).drop("version")
            counted = _count(log, _rules("topic_partition", "sequence"))
            assert {"counted", "limit", "drains", "count"} | empty == set(counted.empty)
            assert {name: len(history) for name, history in histories_.items()} == counted.sizes

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            (lambda log: log.drop("happening"), "'happening'; it must be a column of the frame"),
            (lambda log: log.drop("version"), "'version'; it must be a column of the frame"),
            (lambda log: log.drop("sequence"), "'sequence'; it must be a column of the frame"),
            (lambda log: log.withColumn("topic_partition", F.lit(3)), "'topic_partition'; it must be string, and it"),
            (
                lambda log: log.withColumn("sequence", F.lit("3")),
                "'sequence'; it must be long or int, and it is",
            ),
            (lambda log: log.withColumn("counted", F.lit(3)), "'counted'; it must be boolean, and it is int; cast it"),
            (lambda log: log.withColumn("key", F.lit(3)), "'key'; it must be binary or string, and it is int"),
            (lambda log: log.withColumn("attemptt", F.lit(3)), "'attemptt'; it must be one of version.*begin with x_"),
        ],
    )
    def test_a_wrong_column_is_refused_before_any_job(self, spark: "SparkSession", change: Any, told: str) -> None:
        fails = F.raise_error(F.lit("a job was started")).cast("long")
        log = frame(spark, flat({"p": [*PLAIN]}, Random(0))).withColumn("offset", fails)
        with pytest.raises(ArgumentError, match=told):
            audit(change(log), STRICT)

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            ({"guarantees": {"one-holder"}}, "guarantees is {'one-holder'}; it must be Guarantees, or None"),
            ({"partitions": 0}, "partitions is 0; it must be an int of at least 1, or None"),
            ({"most": -1}, "most is -1; it must be an int of at least 0, or None"),
            ({"most": True}, "most is True; it must be an int of at least 0"),
            ({"remembered_keys": -1}, "remembered_keys is -1; it must be an int of at least 0"),
        ],
    )
    def test_a_wrong_argument_is_refused(self, spark: "SparkSession", options: Any, told: str) -> None:
        with pytest.raises((ArgumentError, GuaranteesError), match=told):
            audit(frame(spark, []), **options)

    @pytest.mark.parametrize("name", ["topic_partition", "sequence"])
    def test_a_row_without_a_place_is_refused(self, spark: "SparkSession", name: str) -> None:
        log = frame(spark, flat({"p": [*PLAIN]}, Random(0)))
        log = log.withColumn(name, F.when(F.col("happening") != "acked", F.col(name)))
        with pytest.raises(
            ArgumentError, match=rf"{name} is '{name}'; it must not be NULL.* in any row, and it is in 1"
        ):
            audit(log)

    def test_a_row_that_is_no_happening_fails_the_job_and_is_named(self, spark: "SparkSession") -> None:
        log = frame(spark, flat({"p": [*PLAIN], "q": [*PLAIN]}, Random(0)))
        wrong = (F.col("happening") == "acked") & (F.col("topic_partition") == "q")
        for column, value, told in (
            ("consumer", F.lit(None).cast("string"), "consumer of row 2 is None; it must be there: acked needs it"),
            ("happening", F.lit("akced"), "happening of row 2 is 'akced'; it must be one of published"),
        ):
            broken = log.withColumn(column, F.when(wrong, value).otherwise(F.col(column)))
            failure = pytest.raises(pyspark.errors.PythonException, match=rf"{told}[^$]*in topic_partition 'q'")
            with audit(broken, STRICT) as found, failure:
                found.counts()

    def test_a_sequence_that_is_there_twice_fails_the_job(self, spark: "SparkSession") -> None:
        log = frame(spark, flat({"p": [*PLAIN]}, Random(0))).withColumn("sequence", F.lit(5))
        with (
            audit(log, STRICT) as found,
            pytest.raises(pyspark.errors.PythonException, match=r"sequence of row 1 is 5; it must be greater than 5"),
        ):
            found.counts()


def sample(cls: type[Happening], number: int, *, full: bool) -> Happening:
    """A happening with all of its fields, or with those that it must have."""
    values: dict[str, Any] = {"offset": number, "key": b"k%d" % number, "at_ms": number, "attempt": number}
    values |= {"until_ms": -number, "limit": 1 << 62, "resume_offset": 0, "consumer": f"c{number}"}
    values |= {"session": number, "count": number}
    values |= {"counted": number % 2 == 0, "drains": number % 3 == 0, "reason": "a word"}
    reasons: dict[type[Happening], str] = {
        Held: list(HoldReason)[number % 6],
        SessionEnded: list(SessionEnds)[number % 5],
        Settled: list(SettledBy)[number % 4],
    }
    values["reason"] = reasons.get(cls, "a word")
    own = [each for each in fields(cls) if full or each.default is MISSING]
    return cls(**{each.name: values[each.name] for each in own})


class TestDecoding:
    def test_columns_are_read_as_rows_are(self) -> None:
        random = Random(0)
        for full in (0.0, 0.5, 1.0):
            history = [
                sample(cls, number, full=random.random() < full) for cls in KINDS.values() for number in range(8)
            ]
            random.shuffle(history)
            batch = pa.RecordBatch.from_pylist(list(to_rows(history)), schema=HISTORY)
            assert history == histories._decode_columns(batch)
            assert [*map(repr, history)] == [*map(repr, histories.decode(batch))]  # enums are enums, bools are bools

    def test_no_row_is_read_that_is_wrong(self) -> None:
        random = Random(1)
        wrong = 0
        for _ in range(1_500):
            history = [
                sample(random.choice(list(KINDS.values())), number, full=random.random() < 0.5) for number in (1, 2)
            ]
            rows = list(to_rows(history))
            row, name = random.choice(rows), random.choice(HISTORY.names)
            row[name] = random.choice([None, sample_value(name), row[name]])
            batch = pa.RecordBatch.from_pylist(rows, schema=HISTORY)
            try:
                expected: Any = list(from_rows(batch.to_pylist()))
            except HistoryError as error:
                wrong += 1
                assert histories._decode_columns(batch) is None
                with pytest.raises(HistoryError) as caught:
                    histories.decode(batch, 70)
                assert (error.number + 70, *error.args[1:]) == caught.value.args
            else:
                assert expected == histories._decode_columns(batch)
        assert 300 < wrong < 1_200

    @pytest.mark.parametrize("is_enabled", [True, False])
    def test_the_collector_is_left_as_it_was(self, monkeypatch: pytest.MonkeyPatch, *, is_enabled: bool) -> None:
        seen: list[bool] = []

        def fail(batch: pa.RecordBatch) -> None:
            seen.append(gc.isenabled())
            raise OSError(len(batch))

        batch = pa.RecordBatch.from_pylist(list(to_rows(PLAIN)), schema=HISTORY)
        monkeypatch.setattr(histories, "_decode_columns", fail)
        before = gc.isenabled()
        try:
            (gc.enable if is_enabled else gc.disable)()
            with pytest.raises(OSError, match="3"):
                histories.decode(batch)
            seen.append(gc.isenabled())
        finally:
            (gc.enable if before else gc.disable)()
        assert [False, is_enabled] == seen

    def test_texts_that_come_again_are_made_once(self) -> None:
        names = [f"consumer {number % 3}" for number in range(60)]
        told: list[Happening] = [Delivered(offset=number, consumer=name) for number, name in enumerate(names)]
        batch = pa.RecordBatch.from_pylist(list(to_rows(told)), schema=HISTORY)
        found = [each.consumer for each in histories.decode(batch) if isinstance(each, Delivered)]
        assert names == found
        assert 3 == len(set(map(id, found)))

    def test_values_survive_at_their_limits(self) -> None:
        most = (1 << 63) - 1
        history: list[Happening] = [
            Published(offset=-most - 1, key=b""),
            Published(offset=most, key=b"\xff\x00", at_ms=most),  # a float would lose its last digits
            Published(offset=most - 1, at_ms=None),
            Delivered(offset=0, key=None, consumer=""),
        ]
        assert history == histories.decode(pa.RecordBatch.from_pylist(list(to_rows(history)), schema=HISTORY))


def sample_value(name: str) -> Any:
    return {"int32": 2, "int64": 3, "string": "word", "binary": b"x", "bool": True}[
        next(column.arrow for column in COLUMNS if column.name == name)
    ]


def test_the_checker_on_a_worker_needs_no_hypothesis() -> None:
    code = (
        "import sys; sys.modules['hypothesis'] = None; sys.modules['pytest'] = None\n"
        "from keyshared.spark.audits.audit import audit_partition\n"
        "from keyshared.testing import Guarantees\n"
        "assert [] == list(audit_partition([], Guarantees()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
