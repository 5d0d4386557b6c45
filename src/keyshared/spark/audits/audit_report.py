"""What an audit found, as plain values, and the page that shows it. Plain Python; needs no Spark."""

from dataclasses import dataclass
from typing import Final

from keyshared.spark.pages import parts
from keyshared.spark.pages.page import as_html, clipped, named, share
from keyshared.spark.pages.parts import Facts, Page, Section, Table

__all__ = ["AuditReport", "PromiseFindings", "Proof", "html"]

_MAX_LINES: Final = 30  # of a proof: a stuck broker's may name thousands of happenings
_MAX_CHARACTERS: Final = 200  # of a line or an explanation: keys may be long


@dataclass(frozen=True, kw_only=True, slots=True)
class PromiseFindings:
    """What became of a promise.

    Attributes:
        promise: Its id.
        violations: How often it was broken.
        broken_in: In how many topic-partitions.
        unjudged: Why it could not be judged, or not in full, and in how many topic-partitions each reason holds.
    """

    promise: str
    violations: int
    broken_in: int
    unjudged: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof:
    """A violation, for people.

    Attributes:
        promise: What was broken.
        topic_partition: Where.
        key: The first key that the proof names, as text; empty if it names none.
        sequence: Of the row where it shows.
        explanation: What is wrong, in one sentence.
        excerpt: The happenings that prove it, one in a line.
    """

    promise: str
    topic_partition: str
    key: str
    sequence: int
    explanation: str
    excerpt: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AuditReport:
    """What an audit found.

    Attributes:
        title: Headline of the page.
        source: What was audited, for the reader.
        topic_partitions: How many.
        happenings: How many rows they have.
        promises: One value for each claimed promise.
        worst: The topic-partitions with most violations, and how many each has.
        keys: The keys that most of the proofs name, as text, and how many each has.
        proofs: Some violations of each broken promise.
    """

    title: str
    source: str
    topic_partitions: int
    happenings: int
    promises: tuple[PromiseFindings, ...]
    worst: tuple[tuple[str, int], ...] = ()
    keys: tuple[tuple[str, int], ...] = ()
    proofs: tuple[Proof, ...] = ()


def html(report: AuditReport) -> str:
    """Make the page.

    Args:
        report: What to show. Names and keys may contain anything.

    Returns:
        A complete HTML document that refers to nothing outside itself.

    Complexity:
        O(size of the report).
    """
    counts = [(each.promise, each.violations) for each in report.promises]
    unjudged = [each.promise for each in report.promises if each.unjudged]
    shown: tuple[Facts | Section, ...] = (
        _numbers(report),
        _promises(report),
        *([_places(report)] if report.worst else []),
        *([_proofs(report)] if report.proofs else []),
    )
    return as_html(Page(report.title, report.source, (parts.promises(counts, unjudged),), shown))


def _numbers(report: AuditReport) -> Facts:
    return Facts(
        (
            ("happenings", f"{report.happenings:,}"),
            ("topic-partitions", f"{report.topic_partitions:,}"),
            ("promises claimed", f"{len(report.promises):,}"),
            ("violations", f"{sum(each.violations for each in report.promises):,}"),
            ("not judged in full", f"{sum(bool(each.unjudged) for each in report.promises):,}"),
        )
    )


def _promises(report: AuditReport) -> Section:
    note = "A promise that could not be judged is neither kept nor broken: the history does not say enough."
    figures = Table(
        "What became of each promise",
        ("promise", "verdict", "violations", "topic-partitions with violations"),
        tuple((each.promise, _judged(each), each.violations, each.broken_in) for each in report.promises),
    )
    reasons = tuple((each.promise, *reason) for each in report.promises for reason in each.unjudged)
    why = Table("Why a promise could not be judged", ("promise", "reason", "topic-partitions"), reasons)
    return Section("Promises", note, (figures, why) if reasons else (figures,))


def _judged(findings: PromiseFindings) -> str:
    if findings.violations:
        return "broken"
    return "not judged in full" if findings.unjudged else "kept"


def _places(report: AuditReport) -> Section:
    note = "Where to look first: the topic-partitions with most violations, and the keys that proofs begin with."
    total = sum(each.violations for each in report.promises)
    worst = Table(
        "Topic-partitions with most violations",
        ("topic-partition", "violations", "of all"),
        tuple((name, count, share(count, total)) for name, count in report.worst),
    )
    rows = tuple((named(key), count) for key, count in report.keys)
    return Section("Where", note, (worst, Table("Keys with most proofs", ("key", "proofs"), rows)))


def _proofs(report: AuditReport) -> Section:
    shown = tuple(map(_proof, report.proofs))
    return Section("Proofs", "The first violations of each broken promise, and what happened.", shown)


def _proof(proof: Proof) -> parts.Proof:
    lines = [_cut(line) for line in proof.excerpt.splitlines()]
    more = [f"and {len(lines) - _MAX_LINES:,} more"] if len(lines) > _MAX_LINES else []
    happened = "\n".join([*lines[:_MAX_LINES], *more])
    where = f"{proof.promise} in {proof.topic_partition}" + (f", key {clipped(proof.key)}" if proof.key else "")
    return parts.Proof(where, f"row {proof.sequence:,}: {_cut(proof.explanation)}", happened)


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
