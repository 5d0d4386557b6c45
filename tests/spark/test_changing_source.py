"""A source that grows whenever it is read: each job says what is true of one read, or that the source has changed."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest
from tests.spark.settings import SHUFFLE_PARTITIONS, settings

from keyshared import HashRing
from keyshared.distribution import DistributionTree
from keyshared.simulate import Fixed, Group, SimulatedConsumer

pyspark = pytest.importorskip("pyspark")
from tests.spark.growing import growing, reads_of  # noqa: E402 - needs pyspark
from tests.spark.since import JOB_FAILED  # noqa: E402 - needs pyspark

from keyshared import spark as ks  # noqa: E402 - needs pyspark
from keyshared.spark.replays.messages import packed_messages  # noqa: E402 - needs pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True, scope="module")
def _two_tasks(spark: "SparkSession") -> Iterator[None]:
    """Enough for topic-partitions to stand apart, and each task that runs Python costs more than its rows."""
    with settings(spark, {SHUFFLE_PARTITIONS: "2"}):
        yield


Rows: TypeAlias = list[tuple[Any, ...]]
Job: TypeAlias = Callable[["DataFrame"], object]

PLAN = Group(consumers=[SimulatedConsumer("a", Fixed(1)), SimulatedConsumer("b", Fixed(1))])
PLACES = ("p0", "p1", "p2")  # one more with each read

LOG = "topic_partition string, offset long, key string, at_ms long"
LOGS: list[Rows] = [
    [(name, offset, "k", offset) for name in PLACES[: number + 1] for offset in range(5 + number)]
    for number in range(len(PLACES))
]
DELIVERIES = (
    "topic_partition string, offset long, key string, consumer string, attempt int, sequence long, end_sequence long, "
    "settled_sequence long"
)
OPEN: Rows = [("p0", 0, "k", "a", 1, 0, 2, 2), ("p0", 1, "l", "a", 1, 3, None, None)]
BROKEN: Rows = [("p0", 2, "k", "a", 1, 10, 12, 12), ("p0", 3, "k", "b", 1, 11, 13, 13)]
DELIVERED: list[Rows] = [OPEN, [OPEN[0], ("p0", 1, "l", "a", 1, 3, 4, 4), *BROKEN]]
HISTORY = (
    "topic_partition string, sequence long, happening string, offset long, key string, consumer string, attempt long, "
    "version int"
)
HISTORIES: list[Rows] = [
    [
        row
        for name in PLACES[: number + 1]
        for row in (
            (name, 1, "published", 0, "k", None, None, 1),
            (name, 2, "published", 1, "k", None, None, 1),
            (name, 3, "delivered", 0, "k", "a", 1, 1),
            *([(name, 4, "delivered", 1, "k", "b", 1, 1)] if name == "p1" else []),  # one-holder is broken
        )
    ]
    for number in range(2)
]
RECORDS = "topic_partition string, offset long, timestamp_epoch_ms long, origin string, origin_offset long"
TARGET: list[Rows] = [
    [("p", 70 + i, 100 + i, "eu", i // 2) for i in range(count)]
    for count in (2, 5)  # all of it is processed: what counts is where the log ends
]
COPIES = "message_id string, cluster string, flags long"
COPIED: list[Rows] = [[("m", "c1", None)], [("m", "c1", None), ("m", "c2", 1), ("n", "c1", None)]]
TREE = DistributionTree({1: ["c1", "c2"]})
COMMANDS = "topic_partition string, sequence long, at_ms long, command string, offset long, consumer string"
COMMANDED: list[Rows] = [
    [(name, 0, 0, "add_consumer", None, "a"), *((name, 1 + i, 10 * i, "offer", i, None) for i in range(1 + number))]
    for number, name in enumerate(("p", "p"))
]


def replayed(log: "DataFrame") -> object:
    with ks.replay(log, PLAN) as found:
        deliveries = found.deliveries.groupBy("topic_partition").count().collect()
        summaries = found.summaries.select("topic_partition", "messages").collect()
    assert sorted(map(tuple, deliveries)) == sorted(map(tuple, summaries))
    return sorted(map(tuple, summaries))


def compared(log: "DataFrame") -> object:
    with ks.what_if(log, {"one": PLAN}) as found:
        return sorted(map(tuple, found.summaries.select("topic_partition", "messages").collect()))


def audited(history: "DataFrame") -> object:
    with ks.audit(history, ks.DELIVERY_GUARANTEES) as found:
        verdicts = found.verdicts.filter("promise = 'one-holder'").drop("unjudged").collect()
    return sorted(map(tuple, verdicts))


def checked(deliveries: "DataFrame") -> object:
    offered = deliveries.sparkSession.createDataFrame(
        [("p0", offset) for offset in range(2)], "topic_partition string, offset long"
    )
    found = ks.check_order(deliveries, offered=offered).select("promise", "offset", "explanation").collect()
    return sorted(map(tuple, found))


def told(deliveries: "DataFrame") -> object:
    return list(map(tuple, ks.delivery_history(deliveries).orderBy("topic_partition", "sequence").collect()))


def translated(target: "DataFrame", *, provenance: bool = False) -> object:
    spark = target.sparkSession
    source = spark.createDataFrame([("p", i, 100 + 10 * i, "eu", i) for i in range(3)], RECORDS)
    commits = spark.createDataFrame([("g", "p", 3)], "group string, topic_partition string, offset long")
    found = ks.translate_offsets(commits, source, target, margin_ms=0, provenance=provenance)
    return [row.target_offset for row in found.collect()]


def read_elsewhere(source: "DataFrame") -> object:
    """The source grows, and not the target: what is below the commit is one read's."""
    spark = source.sparkSession
    target = spark.createDataFrame(TARGET[-1], RECORDS)
    commits = spark.createDataFrame([("g", "p", 99)], "group string, topic_partition string, offset long")
    found = ks.translate_offsets(commits, source, target, margin_ms=0, provenance=True)
    return [(row.timestamp_epoch_ms, row.target_offset) for row in found.collect()]


def collected(frame: "DataFrame") -> object:
    return sorted(map(tuple, frame.collect()), key=repr)


class Case(NamedTuple):
    """A job, and what its source has from read to read."""

    schema: str
    reads: Sequence[Rows]
    job: Job


CASES = {
    "replay": Case(LOG, LOGS, replayed),
    "what_if": Case(LOG, LOGS, compared),
    "audit": Case(HISTORY, HISTORIES, audited),
    "check_order": Case(DELIVERIES, DELIVERED, checked),
    "delivery_history": Case(DELIVERIES, DELIVERED, told),
    "colocate": Case(LOG, LOGS[:2], lambda log: collected(ks.colocate(log, HashRing(["a"])))),
    "key_histogram": Case(LOG, LOGS[:2], lambda log: collected(ks.key_histogram(log, weight="at_ms"))),
    "as_log": Case(
        LOG,
        LOGS,
        lambda log: collected(ks.as_log(log, key="key", partition="topic_partition", order="at_ms")),
    ),
    "audit_distribution": Case(COPIES, COPIED, lambda copies: collected(ks.audit_distribution(copies, TREE))),
    "translate_offsets": Case(RECORDS, TARGET, translated),
    "translate_offsets by provenance": Case(RECORDS, TARGET, lambda target: translated(target, provenance=True)),
    "translate_offsets of a source": Case(RECORDS, TARGET, read_elsewhere),
    "stream_dispatch": Case(
        COMMANDS, COMMANDED, lambda commands: collected(ks.stream_dispatch(commands, HashRing(), delay_ms=0))
    ),
}
REFUSED = {"stream_dispatch": "be the same source whenever it is read: first its last at_ms was 0, then 10"}


@pytest.mark.parametrize("name", CASES)
def test_a_job_says_what_is_true_of_one_read_or_that_the_source_has_changed(
    spark: "SparkSession", tmp_path: Path, name: str
) -> None:
    """[no-loss, one-holder] What only a later read sees is neither dropped nor half used."""
    schema, reads, job = CASES[name]
    frame = growing(spark, tmp_path / "source", schema, reads)
    if name in REFUSED:
        with pytest.raises(JOB_FAILED, match=REFUSED[name]):
            job(frame)
        return
    found = job(frame)
    last = min(reads_of(tmp_path / "source"), len(reads)) - 1  # the read that was used
    assert job(spark.createDataFrame(reads[last], schema)) == found


GROWN: list[Any] = [
    (LOG, LOGS[0], [("p9", None, "k", 1)], replayed, "column offset must not be NULL.* 'p9', offset NULL"),
    (LOG, LOGS[0], [("p9", 7, "k", -1)], compared, "column at_ms must not be NULL, negative.*'p9', offset 7"),
    (LOG, LOGS[0], [(None, 7, "k", 1)], replayed, "column topic_partition must not be NULL.* NULL, offset 7"),
    (HISTORY, HISTORIES[0], [("p9", None, "published", 9, "k", None, None, 1)], audited, "column sequence must not be"),
    (
        "topic_partition string, sequence long, happening string, offset long, version int, reason string",
        [("p0", 1, "published", 0, 1, None)],
        [("p9", 2, "published", 1, 1, "late")],
        audited,
        "the source has changed: column reason was NULL in every row, and it is not any more in topic_partition 'p9'",
    ),
    (
        LOG,
        LOGS[0],
        [("p9", 7, "k", None)],
        lambda log: ks.as_log(log, key="key", partition="topic_partition", order="at_ms").collect(),
        "column at_ms must not be NULL in any row, and it is in topic_partition 'p9', at_ms NULL",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", GROWN, ids=[case[-1][:40] for case in GROWN])
def test_what_cannot_be_used_is_refused_when_only_the_second_read_has_it(
    spark: "SparkSession", tmp_path: Path, case: Any
) -> None:
    schema, first, more, job, said = case
    frame = growing(spark, tmp_path / "source", schema, [first, [*first, *more]])
    with pytest.raises(JOB_FAILED, match=said):
        job(frame)


@pytest.mark.parametrize("partitions", [None, 3])
def test_rows_of_a_topic_partition_that_nobody_counted_stand_together_and_in_order(
    spark: "SparkSession", tmp_path: Path, partitions: int | None
) -> None:
    """Whether topic-partitions share a Spark partition or not: each is there once, in the order of offsets."""
    names = [f"t-{number}" for number in range(12)]
    later = [(name, offset, "k", 0) for offset in (3, 1, 2, 0) for name in names]
    source = growing(spark, tmp_path / "source", LOG, [later[:2], later])
    packed = packed_messages(
        source, topic_partition="topic_partition", key="key", offset="offset", at_ms="at_ms", service_ms=None,
        not_before_ms=None, partitions=partitions,
    )  # fmt: skip
    found: list[tuple[int, str, int]] = []
    for at, name, offset in packed.selectExpr("spark_partition_id()", "topic_partition", "offset").collect():
        found.append((at, name, offset))
    runs = [
        name
        for (at, name, _), before in zip(found, [None, *found], strict=False)
        if before is None or before[:2] != (at, name)
    ]
    assert sorted(names) == sorted(runs)
    assert {name: [0, 1, 2, 3] for name in names} == {
        name: [offset for _, other, offset in found if other == name] for name in names
    }
