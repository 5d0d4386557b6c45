"""Rule 1: the cursor stands below the oldest outstanding message, whatever is settled above it."""

from tests.alphabet import advanced, deliver, fill, subscription, then

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


def test_a_first_message_that_is_outstanding_leaves_no_safe_offset_at_all() -> None:
    dispatcher = subscription("ann")
    dispatcher.offer(10, "a1")

    assert (None, 10) == (dispatcher.safe_cursor, dispatcher.resume_offset)


def test_the_cursor_waits_for_the_oldest_and_then_passes_everything_settled_in_one_step() -> None:
    dispatcher = subscription("ann", "bob")
    dispatcher.offer_many([(0, "a1", None), (1, "b1", None), (2, "a2", None), (3, "b2", None)])

    assert [] == dispatcher.ack(1, "bob", 1)
    assert [] == dispatcher.ack(2, "ann", 1)
    assert [(1, 3)] == dispatcher.acked_ranges()
    assert [advanced(2)] == dispatcher.ack(0, "ann", 1)
    assert (2, 3) == (dispatcher.safe_cursor, dispatcher.resume_offset)


def test_offsets_that_were_never_offered_stall_nothing() -> None:
    # A log after compaction. A cursor that counts up by one waits for 11 for ever.
    dispatcher = subscription("ann")
    dispatcher.offer_many([(10, "a1", None), (500, "a2", None), (503, "a3", None)])

    assert [] == dispatcher.ack(500, "ann", 1)
    assert [advanced(500)] == dispatcher.ack(10, "ann", 1)
    assert (500, 503) == (dispatcher.safe_cursor, dispatcher.resume_offset)
    assert [advanced(503)] == dispatcher.ack(503, "ann", 1)
    assert 504 == dispatcher.resume_offset


def test_a_skipped_message_counts_as_settled_but_passes_nothing_older() -> None:
    dispatcher = subscription(unmatched=Unmatched.SKIP)
    dispatcher.add_consumer("ann", filters=["a*"])
    dispatcher.offer(0, "a1")

    assert [Skipped(1, b"b1", SkipReason.UNMATCHED)] == dispatcher.offer(1, "b1")
    assert [advanced(1)] == dispatcher.ack(0, "ann", 1)
    assert [Skipped(2, b"b1", SkipReason.UNMATCHED), advanced(2)] == dispatcher.offer(2, "b1")


def test_a_cursor_that_stood_still_is_not_reported_again() -> None:
    dispatcher = subscription("ann")
    dispatcher.offer(0, "a1")
    assert [advanced(0)] == dispatcher.ack(0, "ann", 1)

    assert [deliver(7, "a1", "ann")] == dispatcher.offer(7, "a1")
    assert (0, 7) == (dispatcher.safe_cursor, dispatcher.resume_offset)
    assert [deliver(7, "a1", "ann", 2)] == then(dispatcher.release(7, "ann", 1))


def test_many_acks_report_one_cursor() -> None:
    dispatcher = subscription("ann")
    dispatcher.offer_many([(offset, f"a{offset}", None) for offset in range(5)])

    assert [advanced(4)] == dispatcher.ack_many([(offset, "ann", 1) for offset in range(5)])


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
