"""What an audit found, as plain values, and the page that shows it. Plain Python; needs no Spark."""

from dataclasses import dataclass
from html import escape
from typing import Final

from keyshared.spark.pages.page import Part, clipped, facts, header, page, section, table, verdict

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
    parts = (
        header(report.title, report.source, verdict(counts, unjudged)),
        _numbers(report),
        _promises(report),
        _places(report) if report.worst else "",
        _proofs(report) if report.proofs else "",
    )
    return page(report.title, "".join(parts))


def _numbers(report: AuditReport) -> str:
    return facts(
        (
            ("happenings", f"{report.happenings:,}"),
            ("topic-partitions", f"{report.topic_partitions:,}"),
            ("promises claimed", f"{len(report.promises):,}"),
            ("violations", f"{sum(each.violations for each in report.promises):,}"),
            ("not judged in full", f"{sum(bool(each.unjudged) for each in report.promises):,}"),
        )
    )


def _promises(report: AuditReport) -> str:
    note = "A promise that could not be judged is neither kept nor broken: the history does not say enough."
    figures = table(
        "What became of each promise",
        ("promise", "verdict", "violations", "topic-partitions with violations"),
        ((each.promise, _judged(each), each.violations, each.broken_in) for each in report.promises),
    )
    reasons = [(each.promise, *reason) for each in report.promises for reason in each.unjudged]
    why = table("Why a promise could not be judged", ("promise", "reason", "topic-partitions"), reasons)
    return section("Promises", note, figures, why if reasons else "")


def _judged(findings: PromiseFindings) -> str:
    if findings.violations:
        return "broken"
    return "not judged in full" if findings.unjudged else "kept"


def _places(report: AuditReport) -> str:
    note = "Where to look first: the topic-partitions with most violations, and the keys that proofs begin with."
    total = sum(each.violations for each in report.promises)
    worst = table(
        "Topic-partitions with most violations",
        ("topic-partition", "violations", "of all"),
        ((name, count, Part(f"{count / total:.1%}" if total else "")) for name, count in report.worst),
    )
    keys = table("Keys with most proofs", ("key", "proofs"), ((clipped(key), count) for key, count in report.keys))
    return section("Where", note, worst, keys)


def _proofs(report: AuditReport) -> str:
    shown = "".join(map(_proof, report.proofs))
    return section("Proofs", "The first violations of each broken promise, and what happened.", shown)


def _proof(proof: Proof) -> str:
    lines = [_cut(line) for line in proof.excerpt.splitlines()]
    more = [f"and {len(lines) - _MAX_LINES:,} more"] if len(lines) > _MAX_LINES else []
    happened = "\n".join([*lines[:_MAX_LINES], *more])
    where = f"{proof.promise} in {proof.topic_partition}" + (f", key {clipped(proof.key)}" if proof.key else "")
    return (
        f"<article><h3>{escape(where)}</h3><p>row {proof.sequence:,}: {escape(_cut(proof.explanation))}</p>"
        f'<pre tabindex="0">{escape(happened)}</pre></article>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
