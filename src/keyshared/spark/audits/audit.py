"""An audit of whole histories on Spark: the checker of `keyshared.testing` inside ``mapInArrow``.

A history belongs to a topic-partition, and its promises are judged on one set of books: what a cursor may pass, what a
consumer may have and what a window may hold depends on all keys. So a topic-partition is judged in one piece, by the
checker as it is, while its rows stream by; topic-partitions are judged side by side. The answer is the in-process
checker's for each of them, whatever the number of Spark partitions and the size of batches.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from os import PathLike
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructField, StructType

from keyshared._checks import check_int
from keyshared.errors import ArgumentError
from keyshared.spark.audits.audit_figures import audit_report
from keyshared.spark.audits.audit_report import html
from keyshared.spark.audits.histories import Run, check_history_columns, history_columns, runs
from keyshared.spark.audits.overtakings import Overtakings, Sure
from keyshared.spark.frames.checks import check_batch
from keyshared.spark.frames.kept import Kept
from keyshared.spark.frames.packing import check_partitions, packed
from keyshared.spark.frames.pieces import in_one_piece
from keyshared.spark.frames.rules import Rule, count_wrong, never_null, place_of, refuse, text_for_python
from keyshared.spark.pages.page import check_words, checked_target
from keyshared.testing.errors import HistoryError
from keyshared.testing.guarantees import Guarantees, Promise, Violation
from keyshared.testing.history import Happening
from keyshared.testing.judges.checker import DEFAULT_REMEMBERED_KEYS, Checker

__all__ = [
    "AUDIT_SCHEMA",
    "VERDICT_SCHEMA",
    "Audit",
    "VerdictRow",
    "ViolationRow",
    "audit",
    "audit_batches",
    "audit_partition",
]

AUDIT_SCHEMA: Final = StructType(
    [
        StructField("promise", StringType(), nullable=False),  # the stable id
        StructField("topic_partition", StringType(), nullable=False),
        StructField("key", BinaryType(), nullable=True),  # the first key that the proof names; NULL if it names none
        # of the row where it shows: the last one of the proof, or of the history if only its end shows it
        StructField("sequence", LongType(), nullable=False),
        StructField("explanation", StringType(), nullable=False),
        # positions of what proves it, counted from 0 in the order of sequence: the checker's own
        StructField("proof", ArrayType(LongType(), containsNull=False), nullable=False),
        # the messages that the proof names, each once, in the order of the proof
        StructField("offsets", ArrayType(LongType(), containsNull=False), nullable=False),
        StructField("excerpt", StringType(), nullable=False),  # the happenings at these positions, one in a line
    ]
)
"""One row for each broken promise: a `keyshared.testing.Violation`, and where it was found."""

VERDICT_SCHEMA: Final = StructType(
    [
        StructField("topic_partition", StringType(), nullable=False),
        StructField("promise", StringType(), nullable=False),
        StructField("happenings", LongType(), nullable=False),  # rows of the topic-partition
        StructField("violations", LongType(), nullable=False),  # all of them, also those that were not kept
        StructField("unjudged", StringType(), nullable=True),  # why it could not be judged (in full); NULL: it was
    ]
)
"""One row for each claimed promise of each topic-partition."""

DEFAULT_PROOFS: Final = 3

_ROW: Final = itemgetter(1, 2)
# columns that many histories leave empty
_SELDOM: Final = ("counted", "reason", "until_ms", "limit", "drains", "count")
_PACKET_ROWS: Final = 1_000  # an excerpt may have a kilobyte
_PACKET_SCHEMA: Final = StructType(
    [
        StructField("violations", ArrayType(AUDIT_SCHEMA, containsNull=False), nullable=False),
        StructField("verdicts", ArrayType(VERDICT_SCHEMA, containsNull=False), nullable=False),
    ]
)


class ViolationRow(NamedTuple):
    """A broken promise: the columns of `AUDIT_SCHEMA`, in its order.

    Attributes:
        promise: Its id.
        topic_partition: Where it was broken.
        key: The first key that the proof names, or None.
        sequence: Of the row where it shows.
        explanation: What is wrong, in one sentence.
        proof: Positions of what proves it.
        offsets: The messages that the proof names.
        excerpt: The happenings at these positions.
    """

    promise: str
    topic_partition: str
    key: bytes | None
    sequence: int
    explanation: str
    proof: tuple[int, ...]
    offsets: tuple[int, ...]
    excerpt: str


class VerdictRow(NamedTuple):
    """What became of a promise in a topic-partition: the columns of `VERDICT_SCHEMA`, in its order.

    Attributes:
        topic_partition: Where.
        promise: A claimed promise.
        happenings: How many rows were read.
        violations: How often it was broken.
        unjudged: Why it could not be judged, or not in full; None: it was.
    """

    topic_partition: str
    promise: str
    happenings: int
    violations: int
    unjudged: str | None


AuditRow: TypeAlias = ViolationRow | VerdictRow


class Audit(Kept):
    """What an audit gives: frames over one pass, which runs when the first of them is asked for rows.

    Close it, or use it as a context manager, to give the kept rows back; the frames audit again after that.

    Args:
        packets: What came out of Python; kept from now on.
        guarantees: What was claimed.
    """

    def __init__(self, packets: DataFrame, guarantees: Guarantees) -> None:
        super().__init__(packets)
        self._claimed = [promise for promise in Promise if promise in guarantees.promises]

    @property
    def violations(self) -> DataFrame:
        """One row for each broken promise, see `AUDIT_SCHEMA`; none if all were kept."""
        return self._rows.selectExpr("inline(violations)")

    @property
    def verdicts(self) -> DataFrame:
        """One row for each claimed promise of each topic-partition, see `VERDICT_SCHEMA`."""
        return self._rows.selectExpr("inline(verdicts)")

    def counts(self) -> dict[str, int]:
        """Count violations by promise, in all topic-partitions; runs the job.

        Returns:
            A count for each claimed promise, 0 included. A promise that was not judged counts 0 too: ask `unjudged`.
        """
        rows = self.verdicts.groupBy("promise").agg(F.sum("violations")).collect()
        found: dict[str, int] = {row[0]: row[1] for row in rows}
        return {str(promise): found.get(promise, 0) for promise in self._claimed}

    def unjudged(self) -> dict[str, dict[str, int]]:
        """Return which claimed promises could not be judged, or not in full; runs the job.

        Returns:
            For each such promise the reasons, and in how many topic-partitions each of them holds.
        """
        reasons = self.verdicts.dropna(subset=["unjudged"]).groupBy("promise", "unjudged").count().collect()
        found: dict[str, dict[str, int]] = {str(promise): {} for promise in self._claimed}
        for promise, reason, topic_partitions in sorted(reasons):
            found[promise][reason] = topic_partitions
        return {promise: told for promise, told in found.items() if told}

    def report(
        self, path: str | PathLike[str], *, title: str = "Audit", about: str = "", proofs: int = DEFAULT_PROOFS
    ) -> None:
        """Write a page about it: which promises were kept, broken or not judged, where, and what proves it.

        Runs the audit, if nothing has yet, and up to five jobs over what it gave.

        Args:
            path: Where, on this machine; an older file is replaced.
            title: Headline.
            about: What was audited, for the reader.
            proofs: How many violations of each promise are shown in full.

        Raises:
            ArgumentError: ``path`` is in no folder, ``title`` or ``about`` is no text, or ``proofs`` no int of at least
                0. No job was started.
            MissingExtraError: ``keyshared[demo]``, which draws pages, is not installed.

        Complexity:
            Up to five passes over the verdicts or the violations that were kept. The driver gets what the page shows:
            a row for each promise and reason, ``proofs`` violations of each promise, 20 topic-partitions, 10 keys.

        Example:
            >>> with audit(history) as found:  # doctest: +SKIP
            ...     found.report("audit.html", about="the broker's log of May")
        """
        target = checked_target(path)
        check_words(title, about)
        check_int("proofs", proofs, 0)
        found = audit_report(
            self.violations,
            self.verdicts,
            [str(promise) for promise in self._claimed],
            self.unjudged(),
            title=title,
            source=about,
            proofs=proofs,
        )
        target.write_text(html(found), encoding="utf-8")


def audit(
    df: DataFrame,
    guarantees: Guarantees | None = None,
    *,
    topic_partition: str = "topic_partition",
    sequence: str = "sequence",
    partitions: int | None = None,
    remembered_keys: int = DEFAULT_REMEMBERED_KEYS,
    most: int | None = None,
) -> Audit:
    """Judge histories, one for each topic-partition: which promises do they break, and what proves that?

    The workers need keyshared installed; Hypothesis they do not need.

    Args:
        df: The histories: one row for each happening, with the columns of `keyshared.testing.rows.COLUMNS` (see
            docs/history.md). Columns that may be null may be missing, ``key`` may be a text, and whole numbers may be
            int or long. Columns whose names begin with ``x_`` are yours. It is read twice: once to count and to look
            for rows without a place and columns without values, once to judge; ``persist`` it if reading is dear. What
            is judged is the second read, all of it: the first one only spreads the load.
        guarantees: What the system claims; None: every promise that a history can show, one delivery of a key at a
            time.
        topic_partition: String column; no NULL. What has a cursor of its own is a history of its own: with several
            subscriptions, put them into the name.
        sequence: Column of whole numbers; no NULL, and no number twice in a topic-partition. The order in which it
            happened.
        partitions: How many Spark partitions there shall be. By default one for each topic-partition, and at most
            ``spark.sql.shuffle.partitions``: then topic-partitions share them so that all have about as many rows.
        remembered_keys: See `Checker`; of each topic-partition.
        most: How many violations of each promise are kept of each topic-partition, the first ones. None: all of them.
            Counts always count all.

    Returns:
        The frames; the audit itself has not run yet.

    Raises:
        ArgumentError: A column is missing, of another type or unknown, or has NULL where it must not; or
            ``guarantees``, ``partitions`` or ``most`` is none. While it runs, a `HistoryError` (a row that is no
            happening, a history that contradicts itself, a sequence that is there twice) comes as Spark's
            ``PythonException``.
        GuaranteesError: ``remembered_keys`` is no int of at least 0.

    Complexity:
        One shuffle and sort of the histories; then as `Checker` for each row. A worker's memory is that of one checker,
        one batch, and what has overtaken messages that still wait (of each at most ``most`` rows); the driver's is
        O(topic-partitions).

    Example:
        >>> rows = [("p", 0, "published", 0, None), ("p", 1, "committed", None, 1)]
        >>> columns = "topic_partition string, sequence long, happening string, offset long, resume_offset long"
        >>> history = spark.createDataFrame(rows, columns).withColumn("version", F.lit(1))
        >>> with audit(history, Guarantees(promises={"safe-cursor"})) as found:
        ...     found.counts(), found.unjudged()
        ...     found.violations.select("explanation", "proof").collect()
        ({'safe-cursor': 1}, {})
        [Row(explanation='cursor 1 passed outstanding offset 0', proof=[0, 1])]
    """
    check_history_columns(df, topic_partition=topic_partition, sequence=sequence)
    check_batch(df)
    check_partitions(partitions)
    work = _Work(Guarantees() if guarantees is None else guarantees, remembered_keys, most)
    work.check()
    rows = history_columns(df, topic_partition=topic_partition, sequence=sequence)
    rules = _rules(topic_partition, sequence)
    counted = _count(rows, rules)
    spread = packed(_used(rows, rules, counted.empty), counted.sizes, partitions, order="sequence")

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return audit_batches(batches, *work)

    return Audit(spread.mapInArrow(run, _PACKET_SCHEMA), work.guarantees)


class _Work(NamedTuple):
    """All that travels to the workers."""

    guarantees: Guarantees
    remembered_keys: int
    most: int | None

    def check(self) -> None:
        if not isinstance(self.guarantees, Guarantees):
            raise ArgumentError("guarantees", self.guarantees, "be Guarantees, or None")
        if self.most is not None:
            check_int("most", self.most, 0, ", or None")
        Checker(self.guarantees, remembered_keys=self.remembered_keys)  # says what is wrong with them


def audit_partition(
    rows: Iterable[tuple[str, int, Happening]],
    guarantees: Guarantees,
    remembered_keys: int = DEFAULT_REMEMBERED_KEYS,
    most: int | None = None,
) -> Iterator[AuditRow]:
    """Judge histories one after the other: the function for ``rdd.mapPartitions``.

    Args:
        rows: Topic-partition, sequence and happening; read lazily. Those of a topic-partition stand together, and their
            sequences grow.
        guarantees: What is claimed of all of them.
        remembered_keys: See `Checker`.
        most: See `audit`.

    Yields:
        Of each topic-partition one `ViolationRow` for each violation of `check_history`, as soon as it is sure, and
        after them one `VerdictRow` for each claimed promise. That a message was overtaken is sure when that one waits
        no more, or is not lost at the end.

    Raises:
        ArgumentError: Rows of a topic-partition do not stand together.
        HistoryError: A sequence does not grow, or a history contradicts itself; a note names the topic-partition.

    Complexity:
        As `Checker`, for one topic-partition at a time.

    Example:
        >>> from keyshared.testing.history import Committed, Published
        >>> one, two = Published(offset=0, key=b"k"), Committed(resume_offset=1)
        >>> claims = Guarantees(promises={"safe-cursor"})
        >>> for row in audit_partition([("p", 7, one), ("p", 9, two), ("q", 1, one)], claims):
        ...     print(*row[:4], sep=", ")
        safe-cursor, p, b'k', 9
        p, safe-cursor, 2, 1
        q, safe-cursor, 1, 0
    """
    groups = groupby(rows, key=itemgetter(0))
    yield from _judged(
        ((topic_partition, map(_ROW, group)) for topic_partition, group in groups), guarantees, remembered_keys, most
    )


def _judged(
    pieces: Iterable[Run], guarantees: Guarantees, remembered_keys: int, most: int | None
) -> Iterator[AuditRow]:
    """Judge histories that come in pieces: a batch may end within one."""
    for topic_partition, own in in_one_piece(pieces, "sequence"):
        checker = Checker(guarantees, remembered_keys=remembered_keys)
        trial = _Trial(topic_partition, checker, Overtakings(guarantees, most), most)
        for _, piece in own:
            yield from trial.take(piece)
        yield from trial.finish()
        yield from trial.verdicts(guarantees)


class _Trial:
    """Judges one topic-partition."""

    def __init__(
        self, topic_partition: str, checker: Checker, overtakings: Overtakings[ViolationRow], most: int | None
    ) -> None:
        self._topic_partition = topic_partition
        self._checker = checker
        self._overtakings = overtakings
        self._most = most
        self._overtaken: list[ViolationRow] = []  # the first ones, if only these are kept: those are known at the end
        self._last: int | None = None
        self._happenings = 0
        self._violations = dict.fromkeys(Promise, 0)

    def take(self, piece: Iterable[tuple[int, Happening]]) -> Iterator[ViolationRow]:
        """Take rows, in one loop with little in it: it runs for every row."""
        feed, sure_after, last, happenings = self._checker.feed, self._overtakings.after, self._last, self._happenings
        for sequence, happening in piece:
            try:
                if last is not None and sequence <= last:
                    requirement = f"be greater than {last}, that of the row before"
                    raise HistoryError(happenings, "row", "sequence", sequence, requirement)  # noqa: TRY301
                found = feed(happening)
            except HistoryError as error:
                error.add_note(f"in topic_partition {self._topic_partition!r}")
                raise
            last = sequence
            happenings += 1
            if found:
                yield from self._kept(found, sequence)
            if sure := sure_after(happening):
                yield from self._overtook(sure)
        self._last, self._happenings = last, happenings

    def finish(self) -> Iterator[ViolationRow]:
        """Note at the last row what only the end shows."""
        found = self._checker.finish()
        if found and self._last is not None:
            yield from self._kept(found, self._last)
        yield from self._overtook(self._overtakings.finish())
        yield from self._overtaken

    def verdicts(self, guarantees: Guarantees) -> Iterator[VerdictRow]:
        unjudged = {each.promise: each.reason for each in self._checker.unjudged()}
        for promise in Promise:
            if promise in guarantees.promises:
                count, reason = self._violations[promise], unjudged.get(promise)
                yield VerdictRow(self._topic_partition, str(promise), self._happenings, count, reason)

    def _kept(self, found: list[Violation], sequence: int) -> Iterator[ViolationRow]:
        for violation in found:
            row = self._row(violation, sequence)
            if self._overtakings.hold(violation, row):
                continue
            self._violations[violation.promise] += 1
            if self._most is None or self._violations[violation.promise] <= self._most:
                yield row

    def _overtook(self, sure: Iterable[Sure[ViolationRow]]) -> Iterator[ViolationRow]:
        """Count what no loss explains, and keep the first ones if not all are wanted."""
        for number, rows in sure:
            self._violations[Promise.KEY_ORDER] += number
            if self._most is None:
                yield from rows
            else:
                self._overtaken = sorted([*self._overtaken, *rows], key=attrgetter("sequence"))[: self._most]

    def _row(self, violation: Violation, sequence: int) -> ViolationRow:
        keys = (getattr(each, "key", None) for each in violation.happenings)
        offsets = (getattr(each, "offset", None) for each in violation.happenings)
        return ViolationRow(
            str(violation.promise),
            self._topic_partition,
            next((key for key in keys if key is not None), None),
            sequence,
            violation.explanation,
            violation.proof,
            tuple(dict.fromkeys(offset for offset in offsets if offset is not None)),
            violation.excerpt,
        )


def audit_batches(
    batches: Iterable[pa.RecordBatch],
    guarantees: Guarantees,
    remembered_keys: int = DEFAULT_REMEMBERED_KEYS,
    most: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """Judge histories that arrive as Arrow batches, cut anywhere: the function for ``mapInArrow``.

    Args:
        batches: With the columns of `keyshared.spark.audits.histories.history_columns`, sorted as for
            `audit_partition`.
        guarantees: What is claimed.
        remembered_keys: See `Checker`.
        most: See `audit`.

    Yields:
        Packets: one row each, with a list of violations and a list of verdicts.

    Raises:
        ArgumentError: See `audit_partition`.
        HistoryError: See `audit_partition`; or a row is no happening.
    """
    schema = to_arrow_schema(_PACKET_SCHEMA)
    violations: list[ViolationRow] = []
    verdicts: list[VerdictRow] = []
    for row in _judged(runs(batches), guarantees, remembered_keys, most):
        if isinstance(row, ViolationRow):
            violations.append(row)
        else:
            verdicts.append(row)
        if len(violations) + len(verdicts) == _PACKET_ROWS:
            yield _packet(schema, violations, verdicts)
            violations, verdicts = [], []
    if violations or verdicts:
        yield _packet(schema, violations, verdicts)


def _packet(schema: pa.Schema, violations: list[ViolationRow], verdicts: list[VerdictRow]) -> pa.RecordBatch:
    """Make one row of both lists."""
    rows = {"violations": [each._asdict() for each in violations], "verdicts": [each._asdict() for each in verdicts]}
    return pa.RecordBatch.from_pylist([rows], schema=schema)


class _Counted(NamedTuple):
    """What there is to audit.

    Attributes:
        sizes: Rows of each topic-partition.
        empty: Columns in which nothing stands: to carry them would cost as much as to carry others.
    """

    sizes: dict[str, int]
    empty: Sequence[str]


def _rules(topic_partition: str, sequence: str) -> list[Rule]:
    """What says where a row belongs, by the names of `history_columns`."""
    return [
        text_for_python("topic_partition", topic_partition, F.col("topic_partition")),
        never_null("sequence", sequence, F.col("sequence")),
    ]


def _place() -> Column:
    return place_of({name: name for name in ("topic_partition", "sequence", "happening")})


def _count(rows: DataFrame, rules: Sequence[Rule]) -> _Counted:
    """Count the rows of each topic-partition, and refuse those that have no place."""
    seldom = [name for name in _SELDOM if name in rows.columns]
    counts = (
        rows.groupBy("topic_partition")
        .agg(
            F.count("*").alias("size"),
            *count_wrong(rules),
            *(F.bool_or(F.col(name).isNotNull()).alias(name) for name in seldom),
        )
        .collect()
    )
    refuse(rows, rules, {rule.name: sum(row[f"bad_{rule.name}"] for row in counts) for rule in rules}, _place())
    empty = [name for name in seldom if not any(row[name] for row in counts)]
    return _Counted({row["topic_partition"]: row["size"] for row in counts}, empty)


def _used(rows: DataFrame, rules: Sequence[Rule], empty: Sequence[str]) -> DataFrame:
    """Leave out the columns in which nothing stood when they were counted; fails if something stands there now."""
    place = _place()
    kept = {rule.name: rule.kept(place) for rule in rules}
    for name in empty:
        told = f"keyshared: the source has changed: column {name} was NULL in every row, and it is not any more in "
        kept["sequence"] = F.when(F.col(name).isNotNull(), F.raise_error(F.concat(F.lit(told), place))).otherwise(
            kept["sequence"]
        )
    return rows.select(*(kept.get(name, F.col(name)).alias(name) for name in rows.columns if name not in empty))
