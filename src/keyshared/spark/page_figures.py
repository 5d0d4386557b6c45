"""Figures of a log of deliveries: totals, waits and backlog over time, use of consumers, hottest keys, and causes.

Spark aggregates in at most six queries. The number of rows that come to the driver depends on the group, on the
topic-partitions and on the page, never on the messages. All percentiles are exact.

Waits are those of `keyshared.spark.deliveries.work_began`: they end when a consumer begins to work on the message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.simulate import Crash, Group, Join, Leave, Redrive, Return
from keyshared.spark.deliveries import CONSUMER_GROUP, work_began
from keyshared.spark.rows import TOPIC_PARTITION, label_of, names_of

__all__ = ["Figures", "Records", "as_text", "figures"]

Records: TypeAlias = Sequence[Mapping[str, Any]]

INTERVALS: Final = 120
HOT_KEYS: Final = 10
_WORST: Final = 5  # topic-partitions with a line of their own
ALL: Final = "all"
_PLACE: Final = "topic_partition"
_CONSUMER: Final = "consumer"
_FAILED: Final = ("nacked", "rejected", "timed_out")
_UNFINISHED: Final = ("open", "outstanding")
_MINUTE_MS: Final = 60_000
_SERVICES: Final = 10  # a wait of so many services is enough
WINDOW: Final = INTERVALS // 10  # intervals over which a load is averaged
_PROOFS: Final = 3


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of what a consumer group did with a log; all times on the clock of the log.

    Attributes:
        name: The name of the consumer group; empty if there is one only.
        group: The simulated group, if there is one.
        total: One row: messages, deliveries, redeliveries, acked, failed, ..., waits, start and end.
        keys: The number of different keys.
        topic_partitions: The same figures by topic-partition, the one with the longest p99 wait first.
        consumers: The same figures by consumer, and the time in which it was connected.
        width_ms: The length of an interval.
        waits: By interval: ``start_ms``, ``p50``, ``p99`` and ``deliveries``.
        use: By consumer and interval: the share of its time in which it worked.
        backlog: By topic-partition ("all", and those that waited longest) and interval: the most messages at one
            instant that had arrived and were not done, and ``load``, the work that arrived as a share of what the group
            can do.
        hot_keys: The keys that waited longest, each in one topic-partition.
        promises: By promise: violations, and why it was not judged. Empty without an audit.
        proofs: The first violations.
        enough_ms: The wait that is enough for 99 of 100 deliveries.
        marks: The changes of the group: time and text.
    """

    name: str
    group: Group | None
    total: Mapping[str, Any]
    keys: int
    topic_partitions: Records
    consumers: Records
    width_ms: int
    waits: Records
    use: Records
    backlog: Records
    hot_keys: Records
    promises: Records
    proofs: Records
    enough_ms: int
    marks: Sequence[tuple[int, str]] = ()

    @property
    def violations(self) -> int:
        """The number of violations of all promises."""
        return sum(row["violations"] for row in self.promises)

    @property
    def unjudged(self) -> Mapping[str, str]:
        """Why promises were not judged, by promise."""
        return {row["promise"]: row["unjudged"] for row in self.promises if row["unjudged"] is not None}

    @property
    def is_enough(self) -> bool | None:
        """Whether the group was enough: every message is done, and 99 of 100 deliveries waited no longer than that."""
        if not self.total["deliveries"]:
            return None
        return not self.total["unfinished"] and self.total["wait_p99_ms"] <= self.enough_ms


def figures(
    deliveries: DataFrame,
    verdicts: DataFrame | None = None,
    *,
    group: Group | Mapping[str, Group] | None = None,
    topic_partition: str | Sequence[str] = TOPIC_PARTITION,
    start: int | None = None,
    enough_ms: int | None = None,
) -> list[Figures]:
    """Compute the figures of a log of deliveries; runs at most six queries over it.

    Args:
        deliveries: The frame of `simulate`, or a log with the same columns. It is read by each query: write it before.
        verdicts: The frame of `audit` about it.
        group: The simulated group, or the groups by name; None if unknown.
        topic_partition: The columns that name the topic-partition.
        start: As in `simulate`.
        enough_ms: The wait that is enough. By default ten times the mean time of a delivery, and at least a minute.

    Returns:
        The figures of each consumer group.

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> from keyshared.spark.deliveries import simulate
        >>> group = Group(consumers=[SimulatedConsumer("a", Fixed(20))])
        >>> log = spark.range(5).selectExpr("'t' topic", "0 partition", "id as offset", "'k' as key", "id as timestamp")
        >>> [found] = figures(simulate(log, group), group=group)
        >>> found.total["messages"], found.total["wait_max_ms"], found.is_enough, found.keys
        (5, 76, True, 1)
    """
    has_groups = CONSUMER_GROUP in deliveries.columns
    places = [name for name in names_of(topic_partition) if name != CONSUMER_GROUP]
    base = deliveries.withColumns(
        {
            "group": F.col(CONSUMER_GROUP) if has_groups else F.lit(""),
            "_place": label_of(places),
            "began_ms": work_began(),
            "wait_ms": F.coalesce(work_began() - F.col("available_ms"), F.col("wait_ms")),
        }
    ).withColumn("_returns", _returns(group))
    totals = _totals(base)
    everything = {row["group"]: row for row in totals if row["kind"] == ALL}
    if not everything:
        return []
    first = min(row["start_ms"] for row in everything.values())
    last = max(row["end_ms"] for row in everything.values())
    span = _Span(first, last, max(-(-(last + 1 - first) // INTERVALS), 1), first if start is None else start)
    worst = [row["name"] for name in everything for row in _by_wait(totals, name)[:_WORST]]
    hot, keys = _keys(base)
    promises, proofs = _judged(verdicts, has_groups=has_groups)
    found = _Found(totals, _intervals(base, span), _flow(base, span, worst), hot, promises, proofs, keys)
    return [
        _of_group(name, group.get(name) if isinstance(group, Mapping) else group, found, span, enough_ms)
        for name in sorted(everything)
    ]


def _returns(group: Group | Mapping[str, Group] | None) -> Column:
    """Return whether a row is the first one of a dead letter that was redriven."""
    groups = group.values() if isinstance(group, Mapping) else [group] if group else []
    if not any(isinstance(change, Redrive) for each in groups for change in each.changes):
        return F.lit(False)
    order = F.coalesce("sequence", "end_sequence").asc_nulls_last()
    before = F.lag("outcome").over(Window.partitionBy("group", "_place", "offset").orderBy(order))
    return F.coalesce(before == "dead_lettered", F.lit(False))


class _Span(NamedTuple):
    """The time of a log, cut into intervals."""

    first_ms: int
    last_ms: int
    width_ms: int
    start_ms: int  # where the clock of the group is at 0

    def begin(self, number: int) -> int:
        return self.first_ms + number * self.width_ms


class _Found(NamedTuple):
    """The rows of all groups."""

    totals: Records
    intervals: Records
    flow: Records
    hot: Records
    promises: Records
    proofs: Records
    keys: Mapping[str, int]

    def of(self, group: str) -> "_Found":
        """Return the rows of one group."""

        def own(rows: Records) -> Records:
            return [row for row in rows if row["group"] == group]

        return self._replace(
            totals=own(self.totals),
            intervals=own(self.intervals),
            flow=own(self.flow),
            hot=own(self.hot),
            promises=own(self.promises),
            proofs=own(self.proofs),
        )


def _by_wait(totals: Records, group: str) -> Records:
    """Return the topic-partitions of a group, the one that waited longest first."""
    rows = [row for row in totals if row["kind"] == _PLACE and row["group"] == group]
    return sorted(rows, key=lambda row: (-(row["wait_p99_ms"] or 0), row["name"]))


def _totals(base: DataFrame) -> Records:
    """Aggregate everything, each topic-partition and each consumer, in one query."""
    outcome = F.col("outcome")
    is_delivery = F.col("consumer").isNotNull()
    kinds = F.array_compact(F.array(_kind(ALL, F.lit("")), _kind(_PLACE, F.col("_place")), _of_consumer()))
    rows = (
        base.select("*", F.explode(kinds).alias("_of"))
        .groupBy("group", "_of.kind", "_of.name")
        .agg(
            F.count_if(F.col("attempt") <= 1).alias("messages"),
            F.count("consumer").alias("deliveries"),
            F.count_if(F.col("attempt") > 1).alias("redeliveries"),
            F.count_if(outcome == "acked").alias("acked"),
            F.count_if(outcome.isin(*_FAILED)).alias("failed"),
            F.count_if(is_delivery & ~outcome.isin("acked", *_FAILED, *_UNFINISHED)).alias("lost"),
            *(F.count_if(outcome == each).alias(each) for each in ("dead_lettered", "dropped", "skipped")),
            F.count_if(outcome.isin(*_UNFINISHED)).alias("unfinished"),
            *(
                F.percentile("wait_ms", F.lit(share)).alias(f"wait_{name}_ms")
                for name, share in (("p50", 0.5), ("p99", 0.99))
            ),
            F.max("wait_ms").alias("wait_max_ms"),
            _sum("wait_ms"),
            _sum("service_ms").alias("busy_ms"),
            F.count("service_ms").alias("answered"),
            F.min("available_ms").alias("start_ms"),
            F.max(F.coalesce("ended_ms", "delivered_ms", "available_ms")).alias("end_ms"),
        )
    )
    return _collected(rows)


def _collected(df: DataFrame) -> Records:
    return [row.asDict() for row in df.collect()]


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0).cast("bigint")).alias(name)


def _kind(kind: str, name: Column) -> Column:
    return F.struct(F.lit(kind).alias("kind"), name.alias("name"))


def _of_consumer() -> Column:
    return F.when(F.col("consumer").isNotNull(), _kind(_CONSUMER, F.col("consumer")))


def _intervals(base: DataFrame, span: _Span) -> Records:
    """Aggregate waits and work by interval of time, of all consumers and of each, in one query.

    A delivery waits in the interval in which its work begins, and works in each interval that it touches.
    """
    width = F.lit(span.width_ms)
    begin = F.col("began_ms") - span.first_ms
    end = begin + F.coalesce("service_ms", F.lit(0))
    touched = F.sequence(F.floor(begin / width), F.floor(end / width))
    at = F.col("at") * width
    worked = F.least("_end", at + width) - F.greatest("_begin", at)
    rows = (
        base.filter("consumer is not null")
        .select(
            "group", "consumer", "wait_ms", begin.alias("_begin"), end.alias("_end"), F.explode(touched).alias("at")
        )
        .withColumns({"wait_ms": F.when(F.col("_begin") >= at, F.col("wait_ms")), "work_ms": worked})
    )
    kinds = F.array(_kind(ALL, F.lit("")), _of_consumer())
    return _collected(
        rows.select("group", "at", "wait_ms", "work_ms", F.explode(kinds).alias("_of"))
        .groupBy("group", "_of.kind", "_of.name", "at")
        .agg(
            F.count("wait_ms").alias("deliveries"),
            F.percentile("wait_ms", F.lit(0.5)).alias("p50"),
            F.percentile("wait_ms", F.lit(0.99)).alias("p99"),
            _sum("work_ms"),
        )
    )


def _flow(base: DataFrame, span: _Span, worst: Sequence[str]) -> Records:
    """Aggregate by interval how the backlog changed, its largest change, and how much work arrived; one query."""
    is_done = (F.col("outcome") == "acked") | F.col("consumer").isNull()
    arrived = (F.coalesce(F.col("attempt") <= 1, F.lit(False)) | F.col("_returns")).cast("int")
    moments = F.array_compact(
        F.array(
            _moment(F.col("available_ms"), arrived, F.coalesce("service_ms", F.lit(0))),
            F.when(is_done, _moment(F.col("ended_ms"), F.lit(-1), F.lit(0))),
        )
    )
    place = F.when(F.col("_place").isin(*worst), _kind(_PLACE, F.col("_place")))
    kinds = F.array_compact(F.array(_kind(ALL, F.lit(ALL)), place))
    until_now = (
        Window.partitionBy("group", "name", "at")
        .orderBy("ms")
        .rangeBetween(Window.unboundedPreceding, Window.currentRow)
    )
    return _collected(
        base.select("group", kinds.alias("_kinds"), F.explode(moments).alias("_moment"))
        .select("group", F.explode("_kinds").alias("_of"), "_moment.*")
        .select("*", "_of.name", F.floor((F.col("ms") - span.first_ms) / span.width_ms).alias("at"))
        .withColumn("peak", F.sum("change").over(until_now))
        .groupBy("group", "name", "at")
        .agg(_sum("change"), F.max("peak").alias("peak"), _sum("work_ms"))
    )


def _moment(ms: Column, change: Column, work_ms: Column) -> Column:
    fields = change.cast("bigint").alias("change"), work_ms.cast("bigint").alias("work_ms")
    return F.when(ms.isNotNull(), F.struct(ms.alias("ms"), *fields))


def _keys(base: DataFrame) -> tuple[Records, dict[str, int]]:
    """Find the keys that waited longest and count all keys, in one query; find their consumers in another.

    A key that is in several topic-partitions has its own order, and its own figures, in each.

    The first has sums only: an approximate percentile, or a set, for each of 50,000 keys takes longer than all else.
    """
    per_key = (
        base.filter("key is not null")
        .groupBy("group", "_place", "key")
        .agg(
            F.count_if(F.col("attempt") <= 1).alias("messages"),
            _sum("wait_ms"),
            _sum("service_ms").alias("busy_ms"),
            F.min("available_ms").alias("first_ms"),
            F.max("available_ms").alias("last_ms"),
        )
    )
    longest = Window.partitionBy("group").orderBy(F.desc("wait_ms"), F.desc("messages"), "_place", "key")
    hottest = per_key.withColumn("rank", F.row_number().over(longest)).filter(F.col("rank") <= HOT_KEYS)
    counts = per_key.groupBy("group").agg(F.count_distinct("key").alias("messages")).withColumn("rank", F.lit(0))
    rows = _collected(hottest.unionByName(counts, allowMissingColumns=True).orderBy("group", "rank"))
    hot = [{**row, "key": bytes(row["key"])} for row in rows if row["rank"]]
    wanted = sorted({row["key"] for row in hot})
    owners = (
        base.filter(F.col("key").isin(wanted) & F.col("consumer").isNotNull())
        .groupBy("group", "_place", "key")
        .agg(
            F.percentile("wait_ms", F.lit(0.99)).alias("p99"),
            F.array_sort(F.collect_set("consumer")).alias("consumers"),
        )
    )
    rows_of_owners = _collected(owners) if wanted else []
    known = {(row["group"], row["_place"], bytes(row["key"])): row for row in rows_of_owners}
    undelivered: dict[str, Any] = {"p99": None, "consumers": []}
    for row in hot:
        place = row.pop("_place")
        own = known.get((row["group"], place, row["key"]), undelivered)
        row |= {"topic_partition": place, **{name: own[name] for name in undelivered}}
    return hot, {row["group"]: row["messages"] for row in rows if not row["rank"]}


def _judged(verdicts: DataFrame | None, *, has_groups: bool) -> tuple[Records, Records]:
    """Sum the verdicts up by promise, and bring the first proofs; one query."""
    if verdicts is None:
        return [], []
    places = verdicts.columns[: verdicts.columns.index("promise")]
    rows = _collected(
        verdicts.select(
            (F.col(CONSUMER_GROUP) if has_groups else F.lit("")).alias("group"),
            label_of([name for name in places if name != CONSUMER_GROUP]).alias("place"),
            "promise",
            F.struct("violations", F.slice("proofs", 1, _PROOFS).alias("proofs")).alias("found"),
            "unjudged",
        )
        .groupBy("group", "promise")
        .agg(
            F.sum("found.violations").alias("violations"),
            F.max("unjudged").alias("unjudged"),
            F.slice(
                F.array_sort(F.collect_list(F.when(F.col("found.violations") > 0, F.struct("place", "found.proofs")))),
                1,
                _PROOFS,
            ).alias("broken"),
        )
        .orderBy("group", "promise")
    )
    proofs = [
        {"group": row["group"], "promise": row["promise"], "place": each["place"], **proof.asDict()}
        for row in rows
        for each in row["broken"]
        for proof in each["proofs"]
    ]
    return rows, proofs


def _of_group(name: str, group: Group | None, found: _Found, span: _Span, enough_ms: int | None) -> Figures:
    own = found.of(name)
    places = _by_wait(own.totals, name)
    [total] = [row for row in own.totals if row["kind"] == ALL]
    by_consumer = {row["name"]: row for row in own.totals if row["kind"] == _CONSUMER}
    members = _members(group, by_consumer, span)
    mean = total["busy_ms"] / total["answered"] if total["answered"] else 0
    return Figures(
        name=name,
        group=group,
        total=total,
        keys=own.keys.get(name, 0),
        topic_partitions=places,
        consumers=[_consumer(each, by_consumer.get(each.name), len(places)) for each in members],
        width_ms=span.width_ms,
        waits=[
            {**row, "start_ms": span.begin(row["at"])}
            for row in sorted(own.intervals, key=lambda row: int(row["at"]))
            if row["kind"] == ALL and row["p99"] is not None
        ],
        use=_use(own.intervals, members, len(places), span),
        backlog=_backlog(own.flow, members, len(places), span),
        hot_keys=own.hot,
        promises=own.promises,
        proofs=own.proofs,
        enough_ms=max(_MINUTE_MS, round(_SERVICES * mean)) if enough_ms is None else enough_ms,
        marks=_marks(group, span.start_ms),
    )


class _Member(NamedTuple):
    """A consumer: how many messages of a topic-partition it works on at once, and when it was connected."""

    name: str
    at_once: int
    stays: Sequence[tuple[int, int]]

    def room(self, begin: int, end: int) -> int:
        """Return its working time between two instants, in milliseconds, for each topic-partition."""
        return self.at_once * sum(max(0, min(until, end) - max(since, begin)) for since, until in self.stays)


def _consumer(member: _Member, row: Mapping[str, Any] | None, places: int) -> Mapping[str, Any]:
    figures: dict[str, Any] = dict(row) if row is not None else {"name": member.name, **dict.fromkeys(_COUNTS, 0)}
    room = sum(member.room(since, until) for since, until in member.stays) * places
    return {"wait_p50_ms": None, "wait_p99_ms": None, **figures, "use": figures["busy_ms"] / room if room else 0.0}


def _use(intervals: Records, members: Sequence[_Member], places: int, span: _Span) -> Records:
    """Compare the work of each consumer with its time, in the intervals in which it was connected."""
    worked = {(row["name"], row["at"]): row["work_ms"] for row in intervals if row["kind"] == _CONSUMER}
    rows = []
    for member in members:
        for number in range(INTERVALS):
            begin = span.begin(number)
            room = member.room(begin, begin + span.width_ms) * places
            if room:
                use = min(worked.get((member.name, number), 0) / room, 1.0)
                rows.append({"consumer": member.name, "start_ms": begin, "use": use})
    return rows


def _backlog(flow: Records, members: Sequence[_Member], places: int, span: _Span) -> Records:
    """Follow arrivals and ends, and compare the work of a tenth of the time with what the group can do in it."""
    rooms = [sum(each.room(span.begin(at), span.begin(at + 1)) for each in members) for at in range(INTERVALS)]
    rows = []
    for name in sorted({row["name"] for row in flow}, key=lambda name: (name != ALL, str(name))):
        own = {row["at"]: row for row in flow if row["name"] == name}
        backlog, count = 0, places if name == ALL else 1
        for at in range(INTERVALS):
            peak = backlog
            if at in own:
                peak = max(backlog, backlog + own[at]["peak"])
                backlog += own[at]["change"]
            recent = range(max(0, at + 1 - WINDOW), at + 1)
            room = sum(rooms[each] for each in recent) * count
            work = sum(own[each]["work_ms"] for each in recent if each in own)
            load = work / room if room else 0.0
            rows.append({"topic_partition": name, "start_ms": span.begin(at), "backlog": peak, "load": load})
    return rows


def _members(group: Group | None, seen: Mapping[str, Any], span: _Span) -> list[_Member]:
    """Return the consumers of a group in the order of joining; without one, those of the log, always connected."""
    if group is None:
        return [_Member(name, 1, [(span.first_ms, span.last_ms)]) for name in sorted(seen)]
    since: dict[str, int | None] = {consumer.name: span.start_ms for consumer in group.consumers}
    at_once = {consumer.name: consumer.concurrency for consumer in group.consumers}
    stays: dict[str, list[tuple[int, int]]] = {name: [] for name in since}
    for change in sorted(group.changes, key=attrgetter("at_ms")):
        at_ms = min(span.start_ms + change.at_ms, span.last_ms)
        if isinstance(change, Join):
            since[change.consumer.name] = at_ms
            at_once[change.consumer.name] = change.consumer.concurrency
            stays.setdefault(change.consumer.name, [])
        elif isinstance(change, Return):
            since[change.name] = at_ms
        elif isinstance(change, Crash | Leave) and (begun := since.get(change.name)) is not None:
            stays[change.name].append((begun, at_ms))
            since[change.name] = None
    for name, begun in since.items():
        if begun is not None:
            stays[name].append((begun, span.last_ms))
    return [_Member(name, at_once[name], own) for name, own in stays.items()]


def _marks(group: Group | None, start_ms: int) -> list[tuple[int, str]]:
    marks = []
    for change in sorted(group.changes if group else (), key=attrgetter("at_ms")):
        name = change.consumer.name if isinstance(change, Join) else getattr(change, "name", None)
        if name is not None:
            marks.append((start_ms + change.at_ms, f"{name} {_VERBS.get(type(change), 'changes')}"))
    return marks


_VERBS: Final[dict[type, str]] = {Join: "joins", Leave: "leaves", Crash: "crashes", Return: "returns"}
_COUNTS: Final = ("deliveries", "failed", "lost", "busy_ms", "answered", "wait_ms")


def as_text(key: bytes | None) -> str:
    r"""Return a key as text for the reader; bytes that are no UTF-8 are escaped.

    Args:
        key: The key.

    Example:
        >>> as_text(b"order-1"), as_text(bytes([255, 65])), as_text(None)
        ('order-1', '\\xffA', '(no key)')
    """
    return "(no key)" if key is None else key.decode(errors="backslashreplace")
