"""Rule 1: the cursor stands below the oldest outstanding message, whatever is settled above it."""

from tests.alphabet import advanced, deliver, fill, subscription

from keyshared.config import Unmatched
from keyshared.effects import CursorAdvanced, Skipped, SkipReason


def test_what_a_receipt_hands_out_and_the_next_one_acks_is_not_told() -> None:
    dispatcher = subscription("ann")
    fill(dispatcher, "a1", "a1", "a1")

    assert [deliver(2, "a1", "ann"), advanced(1)] == dispatcher.ack_many([(0, "ann", 1), (1, "ann", 1)])


def test_there_is_no_cursor_before_the_first_offer_and_reading_starts_where_it_was_told() -> None:
    unused = subscription("ann", start=42)

    assert (None, 42) == (unused.safe_cursor, unused.resume_offset)
    assert None is subscription().resume_offset


def test_what_lies_below_the_start_is_known_to_be_done_and_not_tracked() -> None:
    dispatcher = subscription("ann", start=42)

    assert [] == dispatcher.offer(41, "a1")
    assert [deliver(42, "a1", "ann")] == dispatcher.offer(42, "a1")


def test_a_skipped_message_counts_as_settled_but_passes_nothing_older() -> None:
    dispatcher = subscription(unmatched=Unmatched.SKIP)
    dispatcher.add_consumer("ann", filters=["a*"])
    dispatcher.offer(0, "a1")

    assert [Skipped(1, b"b1", SkipReason.UNMATCHED)] == dispatcher.offer(1, "b1")
    assert [advanced(1)] == dispatcher.ack(0, "ann", 1)
    assert [Skipped(2, b"b1", SkipReason.UNMATCHED), advanced(2)] == dispatcher.offer(2, "b1")


def test_the_cursor_never_moves_back_through_failures_and_comings_and_goings() -> None:
    dispatcher = subscription("ann", "bob")
    seen: list[int] = []
    effects = dispatcher.offer_many([(0, "a1", None), (1, "b1", None), (2, "a1", None), (3, "b2", None)])
    effects += dispatcher.ack(0, "ann", 1)
    effects += dispatcher.nack(2, "ann", 1)
    effects += dispatcher.remove_consumer("ann")
    effects += dispatcher.ack(1, "bob", 1)
    effects += dispatcher.ack(3, "bob", 1)
    effects += dispatcher.handle_timeout(now_ms=1_000)
    effects += dispatcher.ack(2, "bob", 2)
    seen += [effect.safe_cursor for effect in effects if isinstance(effect, CursorAdvanced)]

    assert [0, 1, 3] == seen
