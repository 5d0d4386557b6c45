"""Where an answer is written that was under way while other things happened."""

from keyshared.testing import Guarantees, Violation
from keyshared.testing.history import Acked, Delivered, Expired, Happening, Nacked, Published, Quiet
from keyshared.testing.ledger import Ledger


def ledger() -> tuple[Ledger, list[Violation]]:
    found: list[Violation] = []
    ledger = Ledger(Guarantees(promises={"one-holder", "fence"}), found.append)
    for happening in (Published(offset=0, key=b"k"), Published(offset=1, key=b"k"), delivered(0)):
        ledger.tell(happening)
    return ledger, found


def delivered(offset: int, consumer: str = "a", attempt: int = 1) -> Delivered:
    return Delivered(offset=offset, key=b"k", consumer=consumer, attempt=attempt)


def acked(offset: int = 0, *, counted: bool | None = True) -> Acked:
    return Acked(offset=offset, consumer="a", attempt=1, counted=counted)


def rows_with(counted: bool | None, *meanwhile: Happening) -> tuple[list[Happening], list[Violation]]:
    book, found = ledger()
    answer = book.begin()
    for happening in meanwhile:
        book.tell(happening)
    assert len(book.history) == 3, "it waits for the answer"
    book.end(answer, acked(counted=counted))
    return book.history[3:], found


def test_an_answer_that_counted_may_have_done_so_at_once() -> None:
    rows, found = rows_with(True, delivered(1, "b"))
    assert ([acked(), delivered(1, "b")], []) == (rows, found)


def test_an_answer_of_which_nobody_knows_may_have_counted_at_once() -> None:
    rows, found = rows_with(None, delivered(1, "b"))
    assert ([acked(counted=None), delivered(1, "b")], []) == (rows, found)


def test_an_answer_that_did_not_count_says_so_in_the_end() -> None:
    rows, _ = rows_with(False, Quiet())
    assert [Quiet(), acked(counted=False)] == rows


def test_an_answer_that_counts_after_the_message_went_to_somebody_else_settles_what_is_not_its_own() -> None:
    expired = Expired(offset=0, consumer="a", attempt=1)
    rows, found = rows_with(True, expired, delivered(0, "b", 2), Quiet())
    assert [expired, delivered(0, "b", 2), acked(), Quiet()] == rows
    assert ["fence"] == [violation.promise for violation in found]


def test_what_ends_no_delivery_of_it_does_not_move_an_answer() -> None:
    others: list[Happening] = [
        Nacked(offset=0, consumer="a", attempt=1, counted=False),
        Nacked(offset=0, consumer="b", attempt=0),
        Expired(offset=1, consumer="a", attempt=1),
    ]
    rows, _ = rows_with(True, *others)
    assert [acked(), *others] == rows


def test_several_answers_are_each_written_at_their_own_begin() -> None:
    book, found = ledger()
    first = book.begin()
    book.tell(delivered(1, "b"))
    second = book.begin()
    book.tell(Quiet())
    book.end(first, acked())
    assert len(book.history) == 3, "it waits for the second, too"
    book.end(second, Acked(offset=1, consumer="b", attempt=1, counted=True))
    assert [acked(), delivered(1, "b"), Acked(offset=1, consumer="b", attempt=1, counted=True), Quiet()] == (
        book.history[3:]
    )
    assert [] == found


def test_what_else_is_broken_says_nothing_of_a_message_that_was_overtaken_before() -> None:
    found: list[Violation] = []
    book = Ledger(Guarantees(promises={"key-order", "no-loss"}), found.append)
    for offset, key in enumerate((b"k", b"k", b"l", b"l")):
        book.tell(Published(offset=offset, key=key))
    for offset, key in ((1, b"k"), (3, b"l")):
        book.tell(Delivered(offset=offset, key=key, consumer="a", attempt=1))
    assert found == []  # the first one may be lost, which would be told instead
    book.decide()
    assert [(each.promise, each.offset) for each in found] == [("key-order", 0)]
