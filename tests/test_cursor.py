"""The cursor: promises safe-cursor and resume, one behaviour a test."""

import copy
import pickle
from base64 import urlsafe_b64encode
from typing import Any
from zlib import crc32

import pytest

from keyshared.cursor import SETTLED, Cell, ContiguousCursor, Cursor, CursorToken, OfferAnswer
from keyshared.errors import ArgumentError, InvariantError, OffsetOrderError, SnapshotError

HEAD = "ksc1."
WORK, KNOWN, REWIND = OfferAnswer.WORK, OfferAnswer.SETTLED, OfferAnswer.REWIND


def offered(*offsets: int, start: int | None = None) -> ContiguousCursor:
    cursor = ContiguousCursor(start)
    for offset in offsets:
        assert cursor.offer(offset)
    return cursor


def open_offsets(cursor: ContiguousCursor) -> list[int]:
    return list(cursor)


def answers(cursor: ContiguousCursor) -> tuple[object, ...]:
    return (
        cursor.start,
        cursor.last,
        cursor.safe_cursor,
        cursor.resume_offset,
        cursor.outstanding,
        open_offsets(cursor),
        cursor.acked_ranges(),
    )


def sealed(payload: bytes, head: str = HEAD) -> str:
    """A token with a valid checksum around any payload, written without the code under test."""
    checksum = crc32(head.encode() + payload).to_bytes(4, "big")
    return head + urlsafe_b64encode(payload + checksum).decode().rstrip("=")


# Worked examples of the sources


# The cursor


@pytest.mark.parametrize("offset", [9, 10, -1])
def test_an_offset_that_is_not_above_the_last_is_refused_and_changes_nothing(offset: int) -> None:
    cursor = offered(10)
    before = answers(cursor)
    with pytest.raises(OffsetOrderError, match=f"offset {offset} after 10"):
        cursor.offer(offset)
    assert before == answers(cursor)


@pytest.mark.parametrize("offset", [True, 1.0, "1", None])
def test_an_offset_that_is_no_int_is_refused_and_changes_nothing(offset: object) -> None:
    cursor = ContiguousCursor()
    with pytest.raises(OffsetOrderError, match="offsets are ints"):
        cursor.offer(offset)  # type: ignore[arg-type]  # the mistake under test
    assert (None, 0) == (cursor.last, cursor.outstanding)


@pytest.mark.parametrize("offset", [2**63, -(2**63)])
def test_an_offset_that_no_token_could_hold_is_refused_and_changes_nothing(offset: int) -> None:
    cursor = ContiguousCursor()
    with pytest.raises(ArgumentError, match="63 bits"):
        cursor.offer(offset)
    assert (None, 0) == (cursor.last, cursor.outstanding)


@pytest.mark.parametrize("start", [True, "0", 1.5, 2**63 + 1])
def test_a_start_that_is_no_offset_is_refused(start: object) -> None:
    with pytest.raises(ArgumentError, match=r"start is .* None or an int"):
        ContiguousCursor(start)  # type: ignore[arg-type]  # the mistake under test


# Settling


def test_settling_twice_is_no_error_and_changes_nothing() -> None:
    cursor = offered(1, 2, 3)
    assert [True, False] == [cursor.settle(2), cursor.settle(2)]
    assert (2, None, [(2, 3)]) == (cursor.outstanding, cursor.safe_cursor, cursor.acked_ranges())


@pytest.mark.parametrize("offset", [True, "1", None, 1.0, 2**63, -(2**63)])
def test_an_ack_that_is_no_offset_is_refused(offset: object) -> None:
    cursor = offered(1)
    with pytest.raises(ArgumentError, match=r"offset is .* an int of at most 63 bits"):
        cursor.settle(offset)  # type: ignore[arg-type]  # the mistake under test
    assert 1 == cursor.outstanding


def test_settling_many_with_one_bad_offset_settles_none() -> None:
    cursor = offered(1, 2)
    with pytest.raises(ArgumentError, match="offsets is 'x'"):
        cursor.settle_many([1, "x"])  # type: ignore[list-item]  # the mistake under test
    assert [1, 2] == open_offsets(cursor)


# Cells, for those who compose it


class Message(Cell):
    __slots__ = ("payload",)

    def __init__(self, offset: int, payload: str) -> None:
        super().__init__(offset, state=7)
        self.payload = payload


def test_a_cell_of_a_subclass_is_found_with_what_it_carries() -> None:
    cursor = Cursor()
    cursor.append(Message(4, "four"))
    found = cursor.find(4)
    assert isinstance(found, Message)
    assert ("four", 7) == (found.payload, found.state)


def test_with_before_names_the_greatest_offset_offered_before_even_if_it_was_skipped() -> None:
    cursor = Cursor()
    cursor.skip(2)
    cell = Cell(9)
    cursor.append(cell)
    assert [(cell, 2)] == list(cursor.with_before())


def test_cells_may_be_closed_while_iterating() -> None:
    cursor = offered(*range(500))
    seen = []
    for cell in cursor.core:
        seen.append(cell.offset)
        cursor.core.close(cell)
        cursor.settle(cell.offset + 1)
    assert list(range(0, 500, 2)) == seen
    assert 0 == cursor.outstanding


def test_representations_name_the_facts() -> None:
    cursor = offered(1, 2)
    assert "ContiguousCursor(resume_offset=1, safe_cursor=None, outstanding=2)" == repr(cursor)
    assert "Cell(offset=2, state=1)" == repr(cursor.core.find(2))


def test_copies_and_pickles_answer_the_same_and_are_independent() -> None:
    cursor = offered(*range(10))
    cursor.settle_many([0, 1, 5])
    for twin in (copy.deepcopy(cursor), pickle.loads(pickle.dumps(cursor))):  # noqa: S301  # our own bytes
        assert answers(cursor) == answers(twin)
        twin.settle(2)
        assert 2 in cursor
        twin.check_invariants()


# Memory


class Counted(Cell):
    __slots__ = ()
    alive = 0
    peak = 0

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        Counted.alive += 1
        Counted.peak = max(Counted.peak, Counted.alive)

    def __del__(self) -> None:
        Counted.alive -= 1


@pytest.fixture
def counted() -> type[Counted]:
    Counted.alive = Counted.peak = 0
    return Counted


@pytest.mark.no_cover
def test_a_stuck_lowest_offset_does_not_keep_a_million_settled_cells(counted: type[Counted]) -> None:
    cursor = Cursor()
    cursor.append(counted(0))
    for offset in range(1, 1_000_000):
        cell = counted(offset)
        cursor.append(cell)
        cursor.close(cell)
    assert [(1, 1_000_000)] == cursor.acked_ranges()
    assert counted.peak <= 70
    cursor.check_invariants()


@pytest.mark.no_cover
@pytest.mark.parametrize("step", [1, -1, 7])
def test_settled_cells_are_let_go_in_whatever_order_they_settle(counted: type[Counted], step: int) -> None:
    cursor = Cursor()
    count = 10_000
    for offset in range(count):
        cursor.append(counted(offset))
    for index in range(count - 1):
        cell = cursor.find(index * step % count)
        assert cell is not None
        cursor.close(cell)
        del cell
        if index % 500 == 0:
            cursor.check_invariants()
            assert counted.alive <= 2 * cursor.outstanding + 64
    assert (1, True) == (cursor.outstanding, counted.alive <= 66)


# Acked ranges


# Tokens


def test_a_restart_that_reads_again_from_below_the_resume_offset_redelivers_nothing_settled() -> None:
    cursor = offered(1, 2, 3, 4)
    cursor.settle_many([1, 2, 4])
    again = ContiguousCursor.from_token(cursor.to_token().text)
    assert [REWIND, REWIND, WORK, KNOWN] == [again.offer(offset) for offset in (1, 2, 3, 4)]
    assert [False, True, False] == [bool(answer) for answer in (REWIND, WORK, KNOWN)]


def test_what_was_settled_above_the_place_that_was_read_to_stays_so() -> None:
    before = offered(5, 7, 12, 15, 19, 25, 30)
    before.settle_many([12, 15, 19, 30])
    cursor = ContiguousCursor.from_token(before.to_token().text)  # 8 to 19 and 26 to 30 were settled

    assert [5, 6, 20, 22] == [cursor.resume_after(place) for place in (5, 6, 15, 22)]
    again = ContiguousCursor.from_token(cursor.to_token(read_to=15).text)
    assert (20, [(26, 31)]) == (again.resume_offset, again.acked_ranges())


@pytest.mark.parametrize("read_to", [True, "9", 0.5, 2**63 + 1])
def test_the_place_that_was_read_to_is_a_position(read_to: Any) -> None:
    with pytest.raises(ArgumentError, match="read_to is"):
        ContiguousCursor().to_token(read_to=read_to)


@pytest.mark.parametrize("start", [None, 0, -7, 2**63])
def test_a_cursor_that_was_never_offered_anything_survives_a_restart(start: int | None) -> None:
    again = ContiguousCursor.from_token(ContiguousCursor(start).to_token().text)
    assert (None, start, None, []) == (again.safe_cursor, again.resume_offset, again.last, again.acked_ranges())


def test_every_budget_keeps_as_many_ranges_as_fit() -> None:
    cursor = offered(*range(40))
    cursor.settle_many([*range(1, 4), *range(10, 12), 20, 30])
    full = cursor.to_token()
    sizes: dict[int, int] = {}
    for budget in range(len(cursor.to_token(len(full.text)).text), 0, -1):
        try:
            token = cursor.to_token(budget)
        except ArgumentError:
            break
        assert len(token.text) <= budget
        sizes[token.omitted_ranges] = len(token.text)
        # It would have needed a budget as long as its text, so one less must leave something out.
        assert token == cursor.to_token(len(token.text))
    assert {0: 0, 1: 1, 2: 2, 3: 4, 4: 7} == {
        omitted: cursor.to_token(size).omitted_span for omitted, size in sorted(sizes.items())
    }
    assert sorted(sizes.values(), reverse=True) == [sizes[omitted] for omitted in range(5)]


def test_a_budget_too_small_for_the_position_is_refused_with_the_least_that_does() -> None:
    cursor = offered(300)
    least = len(cursor.to_token().text)
    with pytest.raises(ArgumentError, match=f"max_bytes is {least - 1}; it must be an int of at least {least} "):
        cursor.to_token(least - 1)
    assert cursor.to_token(least) == cursor.to_token()


@pytest.mark.parametrize("max_bytes", [None, "4096", True, 100.0, -1, 0])
def test_a_budget_that_is_no_number_of_bytes_is_refused(max_bytes: object) -> None:
    with pytest.raises(ArgumentError, match="max_bytes is"):
        ContiguousCursor().to_token(max_bytes)  # type: ignore[arg-type]  # the mistake under test


def test_a_token_says_whether_it_is_complete() -> None:
    assert [True, False] == [CursorToken("t").complete, CursorToken("t", omitted_ranges=1, omitted_span=3).complete]


def test_the_text_of_a_token_is_pinned_because_stores_keep_it() -> None:
    cursor = offered(10, 11, 12, 13, 20)
    cursor.settle_many([10, 12, 13])
    # 1 + 2 * 11, 11 - 10, one open before 12, two settled, then a stretch that ends before the open 20.
    assert sealed(bytes([23, 1, 0, 1])) == cursor.to_token().text
    assert "ksc1.FwEAAapiuzY" == cursor.to_token().text


@pytest.mark.parametrize(
    ("text", "requirement"),
    [
        (None, "starts with"),
        (b"ksc1.AA", "starts with"),
        ("", "starts with"),
        ("ksc2.FwEAAQ", "this version"),
        (sealed(bytes([23, 1]), head="ksc2."), "this version"),
        ("some other consumer's metadata", "starts with"),
        ("ksc1.", "checksum"),
        ("ksc1.A", "checksum"),
        ("ksc1.é", "checksum"),
        ("ksc1.AAAAAAAA", "checksum"),
        (sealed(b""), "checksum"),
        (sealed(bytes([23, 1])) + "=", "checksum"),
        (sealed(bytes([23, 1])) + "\n", "checksum"),
        (sealed(bytes([23, 1]))[:-1] + "!", "checksum"),
        (sealed(bytes([23])), "distance"),
        (sealed(bytes([23, 1, 0])), "pairs"),
        (sealed(bytes([0, 0])), "position"),
        (sealed(bytes([0, 0, 0])), "position"),
        (sealed(bytes([23, 0x81])), "whole varint"),
        (sealed(bytes([23, 0x81, 0])), "shortest"),
        (sealed(bytes([23, *[0x80] * 10, 1])), "10 bytes"),
        (sealed(bytes([23, *[0xFF] * 9, 0x03])), "63 bits"),
        (sealed(bytes([23, 0, *[0xFF] * 9, 0x03, 0])), "63 bits"),
    ],
)
def test_what_is_no_token_of_this_version_raises_one_error(text: object, requirement: str) -> None:
    with pytest.raises(SnapshotError, match=requirement):
        ContiguousCursor.from_token(text)  # type: ignore[arg-type]  # the mistake under test


def test_no_truncation_and_no_changed_character_of_a_token_is_taken() -> None:
    cursor = offered(*range(50))
    cursor.settle_many(range(1, 50, 3))
    text = cursor.to_token().text
    forgeries = [text[:length] for length in range(len(text))]
    forgeries += [
        text[:at] + other + text[at + 1 :] for at in range(len(text)) for other in "Aa0-_=. é" if other != text[at]
    ]
    for forgery in forgeries:
        with pytest.raises(SnapshotError):
            ContiguousCursor.from_token(forgery)


# The self-check


def swap_offsets(cursor: Cursor) -> None:
    one, other = list(cursor)[2:4]
    one.offset, other.offset = other.offset, one.offset


def lose_count(cursor: Cursor) -> None:
    cursor.outstanding += 1


def settle_behind_its_back(cursor: Cursor) -> None:
    next(iter(cursor)).state = SETTLED
    cursor.outstanding -= 1


def reopen_below_the_head(cursor: Cursor) -> None:
    cell = next(iter(cursor))
    cursor.close(cell)
    cursor._order[0] = cell
    cell.state = 1


def lie_about_a_gap(cursor: Cursor) -> None:
    cursor._gaps.append(3)
    cursor._before_gaps.append(None)


def move_the_cursor(cursor: Cursor) -> None:
    cursor.safe_cursor = 99


def move_last_back(cursor: Cursor) -> None:
    cursor.last = 3


def settle_all_and_move_the_cursor(cursor: Cursor) -> None:
    for cell in cursor:
        cursor.close(cell)
    cursor.safe_cursor = 8


@pytest.mark.parametrize(
    ("harm", "fact"),
    [
        (lose_count, "count of outstanding"),
        (settle_behind_its_back, "head is the lowest"),
        (reopen_below_the_head, "let go"),
        (swap_offsets, "in offset order"),
        (lie_about_a_gap, "what was offered before lies between"),
        (move_the_cursor, "before the head"),
        (move_last_back, "last is the greatest"),
        (settle_all_and_move_the_cursor, "if nothing is outstanding"),
    ],
)
def test_the_self_check_finds_each_kind_of_damage(harm: object, fact: str) -> None:
    cursor = offered(*range(10))
    cursor.check_invariants()
    assert callable(harm)
    harm(cursor.core)
    with pytest.raises(InvariantError, match=fact):
        cursor.check_invariants()


@pytest.mark.parametrize("offsets", [None, 7, "5"])
def test_offsets_that_are_no_collection_are_refused(offsets: Any) -> None:
    with pytest.raises(ArgumentError, match=r"offsets is .*; it must be a collection of offsets"):
        offered(5).settle_many(offsets)
