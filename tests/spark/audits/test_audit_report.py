"""The page of an audit: the verdict first, every figure, proofs as text. No Spark."""

import pytest
from tests.spark.replays.test_replay_report import NASTY, Page

pytest.importorskip("altair")
from keyshared.spark.audits.audit_report import AuditReport, PromiseFindings, Proof, html

KEPT = PromiseFindings(promise="one-holder", violations=0, broken_in=0)
BROKEN = PromiseFindings(promise="key-order", violations=1_234, broken_in=17)
OPEN = PromiseFindings(promise="fence", violations=0, broken_in=0, unjudged=(("no attempts", 5), ("no acks", 2)))
PROOF = Proof(
    promise="key-order",
    topic_partition="orders-3",
    key="order-7",
    sequence=88_001,
    explanation="offset 5 before offset 4",
    excerpt="#4 Published(offset=4)\n#9 Delivered(offset=5)",
)


def report(**changed: object) -> AuditReport:
    fields: dict[str, object] = {
        "title": "Audit of May",
        "source": "the broker's log",
        "topic_partitions": 40,
        "happenings": 7_000_000,
        "promises": (KEPT,),
    }
    return AuditReport(**{**fields, **changed})  # type: ignore[arg-type]  # the fields are checked where they are named


def test_an_audit_that_found_nothing_says_that_every_promise_was_kept_and_shows_no_proofs() -> None:
    text = Page(html(report())).text
    for fact in ("every promise kept", "7,000,000", "40", "the broker's log", "one-holder", "kept"):
        assert fact in text, fact
    assert "Proofs" not in text
    assert "Where" not in text
    assert "Why a promise could not be judged" not in text


def test_violations_are_told_with_where_they_are_and_what_proves_them() -> None:
    found = report(
        promises=(KEPT, BROKEN), worst=(("orders-3", 617), ("orders-1", 3)), keys=(("order-7", 99),), proofs=(PROOF,)
    )
    text = Page(html(found)).text
    for fact in (
        "1,234 violations",
        "17",
        "broken",
        "orders-3\n617\n50.0%",
        "order-7\n99",
        "key-order in orders-3, key order-7",
        "row 88,001: offset 5 before offset 4",
        PROOF.excerpt,
    ):
        assert fact in text, fact


def test_what_could_not_be_judged_is_not_called_kept() -> None:
    text = Page(html(report(promises=(KEPT, OPEN)))).text
    assert "every promise kept" not in text
    assert "not everything could be judged" in text
    assert "fence\nnot judged in full\n0\n0\n" in text
    assert "fence\nno attempts\n5\nfence\nno acks\n2\n" in text


def test_names_keys_and_proofs_are_text_whatever_they_contain() -> None:
    nasty = Proof(
        promise="key-order",
        topic_partition=NASTY,
        key=NASTY,
        sequence=1,
        explanation=NASTY,
        excerpt=f"{NASTY}\n{NASTY}",
    )
    reasons = PromiseFindings(promise="fence", violations=0, broken_in=0, unjudged=((NASTY, 1),))
    page = html(
        report(
            title=NASTY,
            source=NASTY,
            promises=(BROKEN, reasons),
            worst=((NASTY, 1),),
            keys=((NASTY, 1),),
            proofs=(nasty,),
        )
    )
    assert Page(page).text.count(NASTY) >= 8


def test_a_proof_of_very_many_or_very_long_lines_is_cut_and_says_so() -> None:
    lines = "\n".join(f"#{i} {'x' * 5_000}" for i in range(1_000))
    page = html(report(promises=(BROKEN,), proofs=(_with(lines),)))
    assert "and 970 more" in Page(page).text
    assert len(page) < 20_000


def _with(excerpt: str) -> Proof:
    return Proof(promise="p", topic_partition="t", key="", sequence=0, explanation="e" * 9_999, excerpt=excerpt)


def test_a_proof_that_names_no_key_has_none_in_its_headline() -> None:
    assert "\np in t\n" in Page(html(report(promises=(BROKEN,), proofs=(_with("x"),)))).text
