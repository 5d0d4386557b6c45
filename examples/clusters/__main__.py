"""``python -m examples.clusters``: records that five clusters copy to one another, audited on Spark.

Needs keyshared[spark] and Java. Distributors copy by the flags in each record's header. The audit finds what a link
lost, and a consumer group moves to another cluster with its offset translated.
"""

import sys

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows

from keyshared import spark as ks
from keyshared.distribution import DistributionTree

TREE = DistributionTree({3: [{2: ["c1", {1: ["c2", "c3"]}]}, {1: ["c4", "c5"]}]})


def produced(spark: SparkSession, count: int) -> DataFrame:
    """Records as their producers wrote them, spread over the clusters."""
    cluster = F.element_at(F.array(*map(F.lit, TREE.clusters)), (F.col("id") % len(TREE.clusters) + 1).cast("int"))
    return spark.range(count).select(
        F.col("id").alias("message_id"), cluster.alias("cluster"), F.lit(0).cast("bigint").alias("flags")
    )


def copied(records: DataFrame) -> DataFrame:
    """All records with all their copies: a copy is copied on, until no distributor has anything to do."""
    due = F.coalesce(*(F.when(F.col("cluster") == each, ks.copies_due(TREE, each)) for each in TREE.clusters))
    everything, new = records, records
    for _ in range(TREE.max_hops):
        copies = new.select("message_id", F.explode(due).alias("copy"))
        new = copies.select("message_id", F.col("copy.target").alias("cluster"), F.col("copy.flags").alias("flags"))
        everything = everything.unionByName(new)
    return everything


def log_of(records: DataFrame, cluster: str, *, first: int) -> DataFrame:
    """The log of a cluster; the offsets of each begin somewhere else."""
    place = Window.orderBy("message_id")
    return records.filter(F.col("cluster") == cluster).select(
        F.lit("orders").alias("topic"),
        F.lit(0).alias("partition"),
        (F.row_number().over(place) - 1 + first).cast("bigint").alias("offset"),
        (F.col("message_id") * 1_000).alias("timestamp"),
        F.lit("producers").alias("origin"),
        F.col("message_id").alias("origin_offset"),
    )


def main(argv: list[str] | None = None) -> int:
    """Run the example and return 0 if the audit finds what was lost, and nothing else."""
    arguments = sys.argv[1:] if argv is None else argv
    count = int(arguments[0]) if arguments else 1_000
    spark = SparkSession.getActiveSession() or ks.local_session("clusters")
    everything = copied(produced(spark, count)).persist()
    whole = ks.audit_copies(everything, TREE).count()
    lost = (F.col("cluster") == "c2") & (F.col("message_id") % 100 == 0)
    faults = ks.audit_copies(everything.filter(~lost), TREE)
    found = [row.asDict() for row in faults.groupBy("fault", "cluster").count().collect()]
    sys.stdout.write(f"{everything.count():,} records on {len(TREE.clusters)} clusters, {whole} faults\n")
    sys.stdout.write(f"a link that loses 1 in 100: {found}\n")
    columns = "group string, topic string, partition int, offset long"
    commits = spark.createDataFrame([("billing", "orders", 0, 500 + count // 2)], columns)
    logs = log_of(everything, "c1", first=500), log_of(everything, "c4", first=9_000)
    moved = ks.translate_offsets(commits, *logs, provenance=True).select("offset", "target_offset").collect()
    sys.stdout.write(f"billing moves from c1 at {moved[0].offset:,} to c4 at {moved[0].target_offset:,}\n")
    expected = [{"fault": "lost", "cluster": "c2", "count": everything.filter(lost).count()}]
    return int(whole != 0 or found != expected or moved[0].target_offset != 9_000 + count // 2)


if __name__ == "__main__":
    sys.exit(main())
