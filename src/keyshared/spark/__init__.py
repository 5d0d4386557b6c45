"""Thin PySpark adapter: functions from DataFrame to DataFrame and from Column to Column over keyshared's own values.

Needs the extra ``keyshared[spark]`` and Java; PySpark 3.5 or later for batches, 4.1 or later for streams. Nothing
mutable is shipped to the workers: a placement goes along as a frozen value, state is built inside the partition. Where
Spark can do the work without Python, it is a native column expression.

Everything that a job calls is here::

    from keyshared import spark as ks

    owned = log.withColumn("owner", ks.owner(ring, "key"))
"""

from keyshared._checks import check_extra

check_extra("spark", "pyspark", "pyarrow", "numpy")

from keyshared.spark.causes import Cause, causes_of
from keyshared.spark.colocation import colocate
from keyshared.spark.columns import bucket, bucket_hash, bucket_owner, owner, slot
from keyshared.spark.commands import command_rows, simulate_commands
from keyshared.spark.copies import copies_due, flags_header
from keyshared.spark.copy_audit import FAULT_COLUMNS, audit_copies, faults_of
from keyshared.spark.deliveries import DELIVERIES, simulate, simulate_rows, summaries
from keyshared.spark.demand_windows import demand
from keyshared.spark.histogram import loads, slot_histogram
from keyshared.spark.log_columns import LogColumns
from keyshared.spark.offsets import translate_offsets
from keyshared.spark.page import page_html, summary_text, write_page
from keyshared.spark.page_figures import Figures, figures
from keyshared.spark.progress_bar import progress
from keyshared.spark.rows import RowError, by_partition, each_partition
from keyshared.spark.session import local_session
from keyshared.spark.stream import (
    COMMAND_COLUMNS,
    OUTCOME_COLUMNS,
    STATE_STORE_SETTINGS,
    dispatch_rows,
    stream_dispatch,
)
from keyshared.spark.verdicts import AUDIT, DELIVERY_CLAIMS, audit, delivery_events, judge_events

__all__ = [
    "AUDIT",
    "COMMAND_COLUMNS",
    "DELIVERIES",
    "DELIVERY_CLAIMS",
    "FAULT_COLUMNS",
    "OUTCOME_COLUMNS",
    "STATE_STORE_SETTINGS",
    "Cause",
    "Figures",
    "LogColumns",
    "RowError",
    "audit",
    "audit_copies",
    "bucket",
    "bucket_hash",
    "bucket_owner",
    "by_partition",
    "causes_of",
    "colocate",
    "command_rows",
    "copies_due",
    "delivery_events",
    "demand",
    "dispatch_rows",
    "each_partition",
    "faults_of",
    "figures",
    "flags_header",
    "judge_events",
    "loads",
    "local_session",
    "owner",
    "page_html",
    "progress",
    "simulate",
    "simulate_commands",
    "simulate_rows",
    "slot",
    "slot_histogram",
    "stream_dispatch",
    "summaries",
    "summary_text",
    "translate_offsets",
    "write_page",
]
