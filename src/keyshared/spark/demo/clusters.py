"""Five clusters that distribute to one another, as native Spark: what the distribution demo looks at.

The tree is the unbalanced one of Axual's page. Every message is produced on the cluster that owns its key, and each
copy comes as much later as its link is long. On the way one link is down for hours, another one gets a new target after
a drain, and in the end a cluster fails, whose consumer groups go on elsewhere.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared.copyflags import CopyFlags
from keyshared.distribution.change import Quiesced, Quiescence, TreeChange
from keyshared.distribution.distributor import Hop
from keyshared.distribution.tree import DistributionTree
from keyshared.offsets.translate import margin_for
from keyshared.ring import HashRing
from keyshared.spark.columns.copies import copies_due
from keyshared.spark.columns.owners import with_owner

__all__ = [
    "FAILED",
    "FAULTS",
    "GROUPS",
    "MARGIN_MS",
    "REFUGE",
    "TREE",
    "Year",
    "commits",
    "distributed",
    "drained",
    "log",
]

TREE: Final = DistributionTree({3: [{2: ["c1", {1: ["c2", "c3"]}]}, {1: ["c4", "c5"]}]})
"""Clusters and levels."""

FAILED: Final = "c4"
"""The cluster that fails."""

REFUGE: Final = "c2"
"""The cluster on which its consumer groups go on."""

GROUPS: Final = {"live": 0, "an hour behind": 3_600_000, "a day behind": 86_400_000}
"""The groups, with how far behind they are when the cluster fails."""

FAULTS: Final = ("lossy", "own-bit")
"""What can be broken on demand: a link loses one copy in a hundred; distributors look at their own bit only."""

_LAG_MS: Final = {3: 40_000, 2: 15_000, 1: 5_000}  # a higher level is further away
_LOSSY: Final = Hop("c1", 2, "c2")
_CUT: Final = Hop("c1", 3, "c4")
_OUTAGE_MS: Final = 6 * 3_600_000
_FAILS_AFTER_MS: Final = 5 * 3_600_000  # of the outage
_MOVED: Final = Hop("c5", 3, "c2")
_NEW_TARGET: Final = "c3"
_DRAIN_MS: Final = 120_000
_LOOK_MS: Final = 20_000
_DAY_MS: Final = 86_400_000
_NOON_MS: Final = _DAY_MS // 2
_RETENTION: Final = 1_000  # records that each cluster has deleted more than the one before: offsets differ

MARGIN_MS: Final = margin_for(lag_ms=sum(_LAG_MS.values()) + _DRAIN_MS, outage_ms=_OUTAGE_MS)
"""The margin that loses nothing here, by lags and outage."""

_RECORD: Final = (
    "message_id", "topic_partition", "origin", "origin_offset", "timestamp_epoch_ms",
    "cluster", "flags", "at_ms", "from_cluster", "level",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Year:
    """When things happen: a link gets its new target halfway, and another one is cut some time later.

    Args:
        first_ms: Of the first message.
        span_ms: From then to the last one.
    """

    first_ms: int
    span_ms: int

    @property
    def stop_ms(self) -> int:
        """When the link that is to be moved stands still."""
        return _noon(self.first_ms + self.span_ms // 2)

    @property
    def apply_ms(self) -> int:
        """When it goes on, to its new target."""
        return self.stop_ms + _DRAIN_MS

    @property
    def cut_ms(self) -> int:
        """When the outage begins."""
        return _noon(self.first_ms + self.span_ms * 3 // 4)

    @property
    def back_ms(self) -> int:
        """When it ends."""
        return self.cut_ms + _OUTAGE_MS

    @property
    def fails_ms(self) -> int:
        """When the cluster fails."""
        return self.cut_ms + _FAILS_AFTER_MS

    @property
    def change(self) -> TreeChange[DistributionTree]:
        """The new target."""
        return TREE.propose_move(_MOVED, _NEW_TARGET)

    @property
    def told(self) -> str:
        """All this in sentences."""
        return (
            f"Every key is produced on one of {len(TREE.clusters)} clusters, and copied to the others along the tree. "
            f"Halfway {_MOVED.cluster} gets a new target at level {_MOVED.level}, {_NEW_TARGET} instead of "
            f"{_MOVED.target}, after a drain. Later the link from {_CUT.cluster} to {_CUT.target} is down for 6 h; "
            f"after 5 of them {FAILED} fails, and its consumer groups go on at {REFUGE}."
        )


@contextmanager
def distributed(flights: DataFrame, year: Year, *, fault: str | None = None) -> Iterator[DataFrame]:
    """Produce every message, and copy it until no distributor has anything to do.

    Args:
        flights: ``topic_partition``, ``key``, ``carrier`` and ``at_ms``, ``offset``: messages in the order of their
            topic-partition.
        year: When things happen.
        fault: None, or one of `FAULTS`.

    Yields:
        One row for each record in the log of each cluster: columns of a log with provenance, ``message_id``,
        ``cluster``, ``flags`` and ``at_ms`` (when it came), and which link brought it (``from_cluster``, ``level``).
    """
    due = _own_bit_only if fault == "own-bit" else _by_the_rule
    rounds = [_produced(flights).persist()]
    # a copy is due at levels below its own only, so there is a round for each level
    for _ in range(TREE.max_hops):
        rounds.append(_copies(rounds[-1], year, due, lossy=fault == "lossy").persist())
    records = reduce(DataFrame.unionByName, rounds)
    place = Window.partitionBy("cluster", "topic_partition").orderBy("at_ms", "origin", "origin_offset", "flags")
    first = F.right("cluster", F.lit(1)).cast("bigint") * _RETENTION
    try:
        yield records.withColumn("offset", F.row_number().over(place) - 1 + first)
    finally:
        for kept in rounds:
            kept.unpersist()


def drained(records: DataFrame, year: Year) -> Quiesced[DistributionTree] | None:
    """Walk the change of the target through its drain, on what the logs show; runs a job.

    Args:
        records: What `distributed` gave.
        year: When things happen.

    Returns:
        The proof that allows the change; None if the time of the drain was too short.
    """
    drain = Quiescence(year.change)
    # the first look is when the last copy of the link that stands still has arrived
    looks = range(year.stop_ms + _LAG_MS[_MOVED.level], year.apply_ms, _LOOK_MS)
    links = {hop: i for i, hop in enumerate(year.change.drains)}
    counts = [
        F.count_if((F.col("cluster") == hop.cluster) & (at <= moment)).alias(f"{what}-{i}-{moment}")
        for hop, i in links.items()
        for moment in looks
        for what, at in (("end", F.col("at_ms")), ("read", _arrival(hop, year)))
    ]
    seen = records.agg(*counts).collect()[0].asDict()
    for moment in looks:
        ends = {hop.cluster: seen[f"end-{i}-{moment}"] for hop, i in links.items()}
        if drain.observe(ends, {hop: seen[f"read-{i}-{moment}"] for hop, i in links.items()}):
            return drain.quiesced()
    return None


def log(records: DataFrame, cluster: str, year: Year) -> DataFrame:
    """Take the log of a cluster as it is when the other one fails.

    Args:
        records: What `distributed` gave.
        cluster: Which.
        year: When things happen.

    Returns:
        Its records.
    """
    return records.filter((F.col("cluster") == cluster) & (F.col("at_ms") <= year.fails_ms))


def commits(source: DataFrame, year: Year) -> DataFrame:
    """Return what each group has committed when the cluster fails.

    Args:
        source: The log of the cluster.
        year: When things happen.

    Returns:
        ``group``, ``topic_partition`` and ``offset``: the next one to read.
    """
    ends = source.groupBy("topic_partition").agg(
        F.min("offset").alias("start"),
        *(F.count_if(F.col("at_ms") <= year.fails_ms - behind).alias(group) for group, behind in GROUPS.items()),
    )
    groups = [
        ends.select(
            F.lit(group).alias("group"), "topic_partition", (F.col("start") + F.col(f"`{group}`")).alias("offset")
        )
        for group in GROUPS
    ]
    return reduce(DataFrame.unionByName, groups)


def _noon(at_ms: int) -> int:
    """Of that day: at night there are no flights to see anything by."""
    return at_ms // _DAY_MS * _DAY_MS + _NOON_MS


def _produced(flights: DataFrame) -> DataFrame:
    """Each message on the cluster that owns its key; one without a key on that of its airline."""
    keyed = flights.withColumn("_key", F.coalesce(F.col("key").cast("string"), F.col("carrier")))
    owned = with_owner(keyed, HashRing(TREE.clusters), key="_key", into="origin")
    place = Window.partitionBy("origin", "topic_partition").orderBy("offset")
    return owned.select(
        F.concat_ws("-", "topic_partition", "offset").alias("message_id"),
        "topic_partition",
        "origin",
        (F.row_number().over(place).cast("bigint") - 1).alias("origin_offset"),
        F.col("at_ms").alias("timestamp_epoch_ms"),
        F.col("origin").alias("cluster"),
        F.lit(0).cast("bigint").alias("flags"),
        "at_ms",
        F.lit(None).cast("string").alias("from_cluster"),
        F.lit(None).cast("int").alias("level"),
    )


def _copies(records: DataFrame, year: Year, due: Callable[[str], Column], *, lossy: bool) -> DataFrame:
    """What all distributors make of these records."""
    cases = [F.when(F.col("cluster") == cluster, due(cluster)) for cluster in TREE.clusters]
    made = records.withColumn("copy", F.explode(F.coalesce(*cases)))
    level = F.col("copy.level")
    moved, lossy_link, cut = (
        (F.col("cluster") == hop.cluster) & (level == hop.level) for hop in (_MOVED, _LOSSY, _CUT)
    )
    late = moved & (F.col("at_ms") >= year.stop_ms)
    if lossy:
        made = made.filter(~(lossy_link & (F.pmod(F.xxhash64("message_id"), F.lit(100)) == 0)))
    departs = F.when(cut, _departure(_CUT, year)).when(moved, _departure(_MOVED, year)).otherwise(F.col("at_ms"))
    lag = F.coalesce(*(F.when(level == known, lag_ms) for known, lag_ms in _LAG_MS.items()))
    changed = {
        "cluster": F.when(late, F.lit(_NEW_TARGET)).otherwise(F.col("copy.target")),
        "flags": F.col("copy.flags"),
        "at_ms": (departs + lag).cast("bigint"),
        "from_cluster": F.col("cluster"),
        "level": level,
    }
    return made.select(*(changed.get(name, F.col(name)).alias(name) for name in _RECORD))


def _by_the_rule(cluster: str) -> Column:
    return copies_due(F.col("flags"), TREE, cluster)


def _own_bit_only(cluster: str) -> Column:
    """The mistake that is easiest to make: not to look at lower bits."""
    flags = F.col("flags")
    made = []
    for hop in TREE.hops():
        if hop.cluster == cluster:
            bit = F.lit(CopyFlags.bit(hop.level)).cast("bigint")
            copy = F.struct(
                F.lit(hop.level).alias("level"), F.lit(hop.target).alias("target"), flags.bitwiseOR(bit).alias("flags")
            )
            made.append(F.when(flags.bitwiseAND(bit) == 0, copy))
    return F.array_compact(F.array(*made))


def _arrival(hop: Hop, year: Year) -> Column:
    """When the copy of a record arrives."""
    return _departure(hop, year) + _LAG_MS[hop.level]


def _departure(hop: Hop, year: Year) -> Column:
    """When a link takes a record: later for a later one, so every link keeps the order."""
    at = F.col("at_ms")
    if hop == _CUT:
        return F.when(at.between(year.cut_ms, year.back_ms), F.lit(year.back_ms)).otherwise(at)
    if hop == _MOVED:
        return F.when(at >= year.stop_ms, F.greatest(at, F.lit(year.apply_ms))).otherwise(at)
    return at
