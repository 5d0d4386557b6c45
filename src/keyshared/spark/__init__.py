"""Thin PySpark adapter: functions from DataFrame to DataFrame and from Column to Column over keyshared's own values.

Needs the extra ``keyshared[spark]`` and Java. Nothing mutable is shipped to the workers: a placement goes along as a
frozen value, state is built inside the partition. Where Spark can do the work without Python, it is a native column
expression.

Everything that a job calls is here::

    from keyshared import spark as ks

    owned = log.transform(ks.with_owner, ring)
"""

from keyshared._checks import check_extra

check_extra("spark", "pyspark", "pyarrow", "numpy")

from keyshared.spark.versions import BATCH, needs

needs(BATCH, "keyshared.spark", "install keyshared[spark]")

from keyshared.spark.audits.audit import AUDIT_SCHEMA, VERDICT_SCHEMA, Audit, audit, audit_partition
from keyshared.spark.audits.delivery_history import DELIVERY_GUARANTEES, delivery_history
from keyshared.spark.audits.order import check_order, count_by_promise
from keyshared.spark.clusters.audit import FAULT_SCHEMA, audit_distribution, count_by_fault
from keyshared.spark.clusters.offsets import TRANSLATION_SCHEMA, translate_offsets
from keyshared.spark.columns.buckets import bucket, bucket_owner, with_bucket, with_bucket_owner
from keyshared.spark.columns.colocation import colocate
from keyshared.spark.columns.copies import copies_due, flags_header, with_copy_due
from keyshared.spark.columns.iterators import (
    bucket_owner_partition,
    bucket_partition,
    copies_partition,
    owner_partition,
    slot_partition,
)
from keyshared.spark.columns.owners import owner, with_owner
from keyshared.spark.columns.slots import bucket_hash, slot, with_slot
from keyshared.spark.keystats.counting import histogram_of, histogram_partition
from keyshared.spark.keystats.histogram import KeyHistogram, balanced_boundaries, collect_histogram, key_histogram
from keyshared.spark.logs.source import as_log, load_flights, load_log
from keyshared.spark.logs.topics import load_kafka
from keyshared.spark.plans.files import load_plan, load_plans
from keyshared.spark.replays.comparison import what_if_partition
from keyshared.spark.replays.offered_load import offered_load
from keyshared.spark.replays.partition import replay_partition
from keyshared.spark.replays.replay import Replay, replay
from keyshared.spark.replays.schemas import DELIVERY_SCHEMA, SUMMARY_SCHEMA, VIOLATION_SCHEMA
from keyshared.spark.replays.what_if import WHAT_IF_SCHEMA, WhatIf, what_if
from keyshared.spark.results.catalogue import RESULT_TABLES, ResultTable
from keyshared.spark.results.save import load_results, save_results
from keyshared.spark.runtime.progress import watch
from keyshared.spark.runtime.session import local_session
from keyshared.spark.streams.dispatch import COMMAND_SCHEMA, OUTCOME_SCHEMA, STATE_STORE, stream_dispatch
from keyshared.spark.streams.partition import dispatch_partition

__all__ = [
    "AUDIT_SCHEMA",
    "COMMAND_SCHEMA",
    "DELIVERY_GUARANTEES",
    "DELIVERY_SCHEMA",
    "FAULT_SCHEMA",
    "OUTCOME_SCHEMA",
    "RESULT_TABLES",
    "STATE_STORE",
    "SUMMARY_SCHEMA",
    "TRANSLATION_SCHEMA",
    "VERDICT_SCHEMA",
    "VIOLATION_SCHEMA",
    "WHAT_IF_SCHEMA",
    "Audit",
    "KeyHistogram",
    "Replay",
    "ResultTable",
    "WhatIf",
    "as_log",
    "audit",
    "audit_distribution",
    "audit_partition",
    "balanced_boundaries",
    "bucket",
    "bucket_hash",
    "bucket_owner",
    "bucket_owner_partition",
    "bucket_partition",
    "check_order",
    "collect_histogram",
    "colocate",
    "copies_due",
    "copies_partition",
    "count_by_fault",
    "count_by_promise",
    "delivery_history",
    "dispatch_partition",
    "flags_header",
    "histogram_of",
    "histogram_partition",
    "key_histogram",
    "load_flights",
    "load_kafka",
    "load_log",
    "load_plan",
    "load_plans",
    "load_results",
    "local_session",
    "offered_load",
    "owner",
    "owner_partition",
    "replay",
    "replay_partition",
    "save_results",
    "slot",
    "slot_partition",
    "stream_dispatch",
    "translate_offsets",
    "watch",
    "what_if",
    "what_if_partition",
    "with_bucket",
    "with_bucket_owner",
    "with_copy_due",
    "with_owner",
    "with_slot",
]
