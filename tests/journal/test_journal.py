"""A dispatcher driven by a log of commands: time, room, what is refused, and the state as bytes."""

import json
import zlib
from typing import Any

import pytest

from keyshared.config import DispatcherConfig, Poison, RetryPolicy, Unmatched
from keyshared.errors import ArgumentError, InvariantError, SnapshotError
from keyshared.journal import Command, Journal, OutcomeRow
from keyshared.placement.autosplit import AutoSplit
from keyshared.ring import HashRing

TIGHT = DispatcherConfig(window=2, max_tracked=2, ack_timeout_ms=None)
AT_ONCE = DispatcherConfig(ack_timeout_ms=100, retry=RetryPolicy(base_delay_ms=0))


def joined(config: DispatcherConfig | None = None, **fields: Any) -> Journal:
    journal = Journal(HashRing(), config)
    journal.apply(Command(0, 0, "add_consumer", consumer="ann", **fields))
    return journal


def offer(sequence: int, offset: int | None, key: str | None = "k", at_ms: int = 0) -> Command:
    return Command(sequence, at_ms, "offer", offset=offset, key=key)


def ack(sequence: int, offset: int, at_ms: int = 0) -> Command:
    return Command(sequence, at_ms, "ack", offset=offset, consumer="ann", attempt=1)


def seen(outcomes: list[OutcomeRow]) -> list[tuple[str, int | None]]:
    return [(outcome.effect, outcome.offset) for outcome in outcomes]


def again(journal: Journal, config: DispatcherConfig | None = None) -> Journal:
    return Journal.from_bytes(journal.to_bytes(), HashRing(), config or journal.dispatcher.config)


def test_outcomes_are_numbered_and_name_their_cause() -> None:
    journal = joined()

    assert [OutcomeRow(0, 3, 7, "deliver", 5, b"k", "ann", 1, 0)] == journal.apply(offer(3, 5, at_ms=7))
    assert [OutcomeRow(1, 9, 8, "cursor_advanced", 5)] == journal.apply(ack(9, 5, at_ms=8))
    assert 9 == journal.sequence


@pytest.mark.parametrize("drain_ms", [None, 0, 50])
def test_a_consumer_leaves_by_a_row_as_by_the_same_call(drain_ms: int | None) -> None:
    by_row, by_call = joined(), joined()
    for journal in (by_row, by_call):
        journal.apply(offer(1, 0))
    by_row.apply(Command(2, 0, "remove_consumer", consumer="ann", duration_ms=drain_ms))
    by_call.dispatcher.remove_consumer("ann", drain_ms=drain_ms, now_ms=0)

    assert by_call.dispatcher.snapshot() == by_row.dispatcher.snapshot()
    assert (0 if drain_ms == 0 else 1) == len(by_row.dispatcher.in_flight())


def test_what_was_there_before_is_ignored_in_any_order() -> None:
    journal = joined()
    once = list(journal.apply_all([ack(3, 0), offer(1, 0), offer(2, 1), ack(3, 0)]))

    assert [("deliver", 0), ("deliver", 1), ("cursor_advanced", 0)] == seen(once)
    assert [] == list(journal.apply_all([offer(2, 1), ack(3, 0), offer(1, 0)]))


def test_each_message_is_told_once_when_it_is_done_also_what_found_no_room() -> None:
    journal = joined(DispatcherConfig(window=1, max_tracked=1, start=1, tell_settled=True))
    told = [outcome for at in range(4) for outcome in journal.apply(offer(1 + at, at))]
    told += [*journal.apply(Command(5, 0, "truncate", offset=3)), *journal.apply(ack(6, 1))]

    assert [(0, "earlier"), (2, "gone"), (1, "acked")] == [
        (outcome.offset, outcome.reason) for outcome in told if outcome.effect == "done"
    ]
    assert ["skipped", "done"] == [outcome.effect for outcome in told if outcome.offset == 2]
    assert [("skipped", 4), ("done", 4)] == [
        pair for command in (offer(7, 4), Command(8, 0, "gone", offset=4)) for pair in seen(journal.apply(command))
    ]


class TestLate:
    """A command whose turn has passed is not carried out, and leaves a trace."""

    def test_it_is_said_once_and_changes_nothing(self) -> None:
        journal = joined()
        journal.apply_all([])
        journal.apply(offer(3, 5, at_ms=9))
        before = journal.dispatcher.snapshot()

        (late,) = journal.apply(ack(2, 5, at_ms=20))
        assert (1, 2, 9, "late", 5, None, "ann", 1, None, None, None) == late[:-1]
        assert late.reason == "it comes after a command that stands behind it"
        assert before == journal.dispatcher.snapshot()
        assert 3 == journal.sequence
        for journal_ in (journal, again(journal)):
            assert [] == journal_.apply(ack(2, 5))
            assert [("late", 8)] == seen(journal_.apply(offer(1, 8)))
            assert [("late", None)] == seen(journal_.apply(Command(-4, 0, "pull", consumer="ann")))
            assert [] == list(journal_.apply_all([offer(1, 8), ack(2, 5), offer(3, 5), Command(-4, 0, "pull")]))
            assert [("cursor_advanced", 5)] == seen(journal_.apply(ack(4, 5)))

    def test_only_so_much_is_remembered_and_what_is_older_counts_as_late_each_time(self) -> None:
        journal = Journal(HashRing())
        for sequence in range(0, 2 * 257, 2):
            assert [] == journal.apply(Command(sequence, 0, "handle_timeout"))

        assert 256 == len(state_of(journal)["seen"])
        for journal_ in (journal, again(journal)):
            assert [] == journal_.apply(Command(2, 0, "handle_timeout"))  # the oldest that is remembered
            for _ in range(2):
                (late,) = journal_.apply(Command(0, 0, "handle_timeout"))
                assert late.reason is not None
                assert late.reason.endswith("or once more: so far back is not remembered")

    def test_one_that_is_late_may_be_the_one_too_many(self) -> None:
        journal = Journal(HashRing())
        for sequence in range(0, 3 * 256, 3):
            journal.apply(Command(sequence, 0, "handle_timeout"))

        assert [("late", None)] == seen(journal.apply(Command(-7, 0, "handle_timeout")))
        assert 256 == len(state_of(journal)["seen"])
        assert [("late", None)] == seen(journal.apply(Command(-7, 0, "handle_timeout")))


class TestTime:
    def test_what_is_due_before_a_command_acts_at_its_own_instant_with_the_cause_before(self) -> None:
        journal = joined(AT_ONCE)
        journal.apply(offer(1, 0, at_ms=10))

        told = journal.apply(Command(2, 300, "handle_timeout"))
        times = [(outcome.sequence, outcome.at_ms, outcome.effect) for outcome in told]
        assert [(1, 110, "released"), (1, 110, "deliver"), (1, 210, "released"), (1, 210, "deliver")] == times

    def test_it_passes_without_a_command_up_to_an_instant_and_that_included(self) -> None:
        journal = joined(AT_ONCE)
        journal.apply(offer(1, 0, at_ms=10))

        assert [] == journal.advance(109)
        assert ["released", "deliver"] == [outcome.effect for outcome in journal.advance(110)]
        assert 210 == journal.next_deadline_ms()
        assert [] == journal.advance(0)

    def test_a_command_of_before_acts_now_and_not_before_what_has_acted_already(self) -> None:
        journal = joined(AT_ONCE)
        journal.apply(offer(1, 0, at_ms=10))
        journal.advance(150)

        assert [110] == [outcome.at_ms for outcome in journal.apply(offer(2, 1, "other", at_ms=50))]

    def test_what_falls_due_by_a_command_itself_acts_with_it(self) -> None:
        journal = joined(DispatcherConfig(inactive_grace_ms=0))

        assert [("evicted", None)] == seen(journal.apply(Command(1, 5, "set_inactive", consumer="ann")))
        assert None is journal.next_deadline_ms()


class TestRoom:
    """The log goes on whether the dispatcher has room or not."""

    def full(self) -> Journal:
        journal = joined(TIGHT, limit=0)
        assert [] == list(journal.apply_all(offer(number, number, f"k{number}") for number in range(1, 6)))
        assert 3 == journal.unread
        return journal

    def test_messages_that_do_not_fit_wait_in_their_order_and_go_in_as_others_are_settled(self) -> None:
        journal = self.full()
        told = seen(journal.apply(Command(6, 0, "set_limit", consumer="ann", limit=9)))
        assert [("deliver", 1), ("deliver", 2)] == told

        assert [("cursor_advanced", 1), ("deliver", 3)] == seen(again(journal).apply(ack(7, 1)))
        assert [("cursor_advanced", 1), ("deliver", 3)] == seen(journal.apply(ack(7, 1)))
        assert 2 == journal.unread

    def test_what_is_spilled_is_loaded_at_once_because_there_is_no_payload(self) -> None:
        journal = joined(DispatcherConfig(window=2, max_tracked=9, max_loaded_per_key=1))
        journal.apply(offer(1, 0))
        assert [] == journal.apply(offer(2, 1))
        assert 1 == journal.dispatcher.stats().spilled

        assert [("cursor_advanced", 0), ("deliver", 1)] == sorted(seen(journal.apply(ack(3, 0))))

    def test_a_message_that_waits_can_be_gone(self) -> None:
        journal = self.full()

        assert [("skipped", 4)] == seen(journal.apply(Command(6, 0, "gone", offset=4)))
        assert [] == journal.apply(Command(7, 0, "gone", offset=4))
        assert [3, 5] == [offset for offset, _, _ in state_of(journal)["unread"]]

    def test_a_log_that_begins_later_leaves_nothing_of_before(self) -> None:
        told = seen(self.full().apply(Command(6, 0, "truncate", offset=5)))

        assert [("skipped", 1), ("skipped", 2), ("cursor_advanced", 2), ("skipped", 3), ("skipped", 4)] == told

    def test_an_offset_that_waits_cannot_come_again(self) -> None:
        for journal in (self.full(), again(self.full())):
            assert [("refused", 5)] == seen(journal.apply(offer(6, 5)))

    def test_a_message_below_the_start_counts_as_settled(self) -> None:
        journal = joined(DispatcherConfig(start=10))

        assert [] == journal.apply(offer(1, 9))
        assert [("deliver", 10)] == seen(journal.apply(offer(2, 10)))


class TestRefused:
    """What can never work is said and changes nothing: the log cannot take it back."""

    @pytest.mark.parametrize(
        ("command", "reason"),
        [
            (offer(2, None), "cannot take offset None after 3"),
            (offer(2, 3), "cannot take offset 3 after 3"),
            (Command(2, 0, "ack", offset=3), "consumer is None; it must be a str"),
            (Command(2, 0, "add_consumer", consumer="ann"), "consumer 'ann' is already there"),
            (Command(2, 0, "set_limit", consumer="ann"), "limit is None"),
            (Command(2, 0, "publish", offset=4), "command is 'publish'"),
            (Command(2, 0, ["ack"]), "command is ['ack']; it must be one of"),  # type: ignore[arg-type]  # on purpose
            (Command(2, 0, "redrive", key="k", letters=5), "letters is 5; it must be a collection"),  # type: ignore[arg-type]  # on purpose
            (Command(2, 0, "redrive", key="k", letters=""), "letters is ''; it must be a collection"),  # type: ignore[arg-type]  # on purpose
            (Command(2, 0, "set_filters", consumer="ann", filters=""), "patterns is ''"),
            (Command(2, 0, "add_consumer", consumer="ben", filters=0), "patterns is 0"),  # type: ignore[arg-type]  # on purpose
            (Command(2, 0, "set_active", consumer="ann", resumed=0), "resumed is 0"),  # type: ignore[arg-type]  # on purpose
            *(
                (Command(2, 0, name, 4, "k", "ann", 1, **{field: 1 << 63}), f"{field} is 9223372036854775808")  # type: ignore[arg-type]  # one of several fields
                for name, field in (
                    ("offer", "duration_ms"),
                    ("extend", "duration_ms"),
                    ("set_limit", "limit"),
                    ("set_weight", "weight"),
                )
            ),
        ],
    )
    def test_the_reason_is_the_error(self, command: Command, reason: str) -> None:
        journal = joined()
        journal.apply(offer(1, 3))
        before = journal.dispatcher.snapshot()

        (refused,) = journal.apply(command)
        assert ("refused", command.offset) == (refused.effect, refused.offset)
        assert refused.reason is not None
        assert refused.reason.startswith(reason)
        assert before == journal.dispatcher.snapshot()

    def test_a_key_that_nobody_takes_is_refused_and_its_offset_may_come_again(self) -> None:
        journal = joined(DispatcherConfig(unmatched=Unmatched.ERROR), filters=["a*"])

        assert [("refused", 1)] == seen(journal.apply(offer(1, 1, "b")))
        assert [("deliver", 1)] == seen(again(journal).apply(offer(2, 1, "a")))
        assert [("deliver", 1)] == seen(journal.apply(offer(2, 1, "a")))

    def test_time_goes_on_all_the_same(self) -> None:
        journal = joined(AT_ONCE)
        journal.apply(offer(1, 0, at_ms=10))
        journal.apply(Command(2, 60, "nonsense"))

        assert 110 == journal.next_deadline_ms() == again(journal).next_deadline_ms()
        assert [60] == [outcome.at_ms for outcome in journal.apply(offer(3, 1, "other", at_ms=20))]

    @pytest.mark.interpreted("changes methods of a class")
    @pytest.mark.parametrize("command", [offer(1, 0), ack(1, 0)])
    def test_a_bug_of_the_library_is_not_taken_for_a_refusal(
        self, command: Command, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def broken(*_: object, **__: object) -> None:
            raise InvariantError("it holds")

        journal = joined()
        for name in ("offer", "ack"):
            monkeypatch.setattr(type(journal.dispatcher), name, broken)
        with pytest.raises(InvariantError):
            journal.apply(command)

    def test_what_fell_due_before_a_command_that_is_refused_is_told(self) -> None:
        journal = joined(DispatcherConfig(ack_timeout_ms=1_000, retry=RetryPolicy(base_delay_ms=0), redrive=True))
        journal.apply(offer(1, 0))
        told = journal.apply(Command(2, 1_500, "redrive", key="k", letters=5))  # type: ignore[arg-type]  # on purpose
        assert [("released", 0), ("deliver", 0), ("refused", None)] == seen(told)
        assert [1, 2, 3] == [outcome.position for outcome in told]

    @pytest.mark.parametrize("number", [(1 << 63) - 1, 2])
    def test_a_number_of_63_bits_is_stored(self, number: int) -> None:
        journal = joined(AT_ONCE)
        later = Command(number, 1, "offer", number, "k", duration_ms=number - 1)
        assert [] == journal.apply(later)
        assert number == journal.next_deadline_ms() == again(journal).next_deadline_ms()
        assert [("deliver", number)] == seen(journal.advance(number))

    @pytest.mark.parametrize(
        "command",
        [
            Command(2, 5, "offer", 1, "k", duration_ms=(1 << 63) - 5),
            Command(2, 5, "extend", 0, consumer="c", attempt=1, duration_ms=(1 << 63) - 5),
            Command(2, 5, "release", 0, consumer="c", attempt=1, duration_ms=(1 << 63) - 5),
            Command(2, 5, "redrive", key="k", letters=[[0, (1 << 63) - 1]]),
            Command(2, 5, "redrive", key="k", letters=[[0, 10**5_000]]),
        ],
    )
    def test_what_would_have_more_than_63_bits_is_refused(self, command: Command) -> None:
        journal = joined(DispatcherConfig(redrive=True))
        journal.apply(offer(1, 0))
        assert ["refused"] == [outcome.effect for outcome in journal.apply(command)]
        assert journal.next_deadline_ms() == again(journal).next_deadline_ms() == 30_000

    def test_an_instant_that_cannot_come_is_no_deadline(self) -> None:
        journal = joined()
        journal.apply(offer(1, 0, at_ms=(1 << 63) - 1))
        assert journal.next_deadline_ms() is None
        assert journal.dispatcher.next_deadline_ms() is not None

    @pytest.mark.parametrize("sequence", [None, "1", 1.5, 1 << 63])
    def test_commands_without_an_order_are_refused_before_any_is_carried_out(self, sequence: Any) -> None:
        journal = joined()
        before = journal.to_bytes()
        with pytest.raises(ArgumentError, match=r"sequence is .*; it must be an int of at most 63 bits"):
            list(journal.apply_all([offer(1, 0), Command(sequence, 0, "offer", 1, "k")]))
        assert before == journal.to_bytes()

    @pytest.mark.parametrize(
        "command",
        [
            Command("1", 0, "ack"),  # type: ignore[arg-type]  # on purpose
            Command(1, None, "ack"),  # type: ignore[arg-type]  # on purpose
            Command(1 << 63, 0, "ack"),
            Command(1, 10**5_000, "ack"),
        ],
    )
    def test_a_command_without_a_place_or_a_time_is_the_callers_mistake(self, command: Command) -> None:
        journal = joined()
        before = journal.to_bytes()

        with pytest.raises(ArgumentError, match="be an int"):
            journal.apply(command)
        for wrong in ("soon", 1 << 63):
            with pytest.raises(ArgumentError, match="until_ms"):
                journal.advance(wrong)  # type: ignore[arg-type]  # on purpose
        assert before == journal.to_bytes()


def state_of(journal: Journal) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(zlib.decompress(journal.to_bytes()))
    return state


def packed(state: object) -> bytes:
    return zlib.compress(json.dumps(state).encode())


class TestState:
    def test_a_state_that_was_cut_or_damaged_is_refused(self) -> None:
        state = joined().to_bytes()

        for place in range(len(state)):
            for damaged in (state[:place], state[:place] + bytes([state[place] ^ 1]) + state[place + 1 :]):
                with pytest.raises(SnapshotError, match="be what Journal"):
                    Journal.from_bytes(damaged, HashRing())

    def test_another_configuration_may_go_on_if_what_is_there_fits(self) -> None:
        journal = joined()
        wider = again(journal, DispatcherConfig(ack_timeout_ms=7))
        wider.apply(offer(1, 0))

        assert 7 == wider.next_deadline_ms()

    def test_what_waited_is_taken_when_a_wider_configuration_has_room(self) -> None:
        tight = joined(DispatcherConfig(window=1, max_tracked=1, ack_timeout_ms=None))
        tight.apply(offer(1, 0, at_ms=5))
        for number in (1, 2, 3):
            tight.apply(offer(number + 1, number, f"k{number}", at_ms=5))
        wide = DispatcherConfig(window=3, max_tracked=3, ack_timeout_ms=None)
        journal, other = again(tight, wide), again(tight, wide)

        assert (3, None) == (tight.unread, tight.next_deadline_ms())
        assert (3, 5) == (journal.unread, journal.next_deadline_ms())
        assert [] == journal.advance(4)
        told = journal.advance(5)
        assert [("deliver", 1), ("deliver", 2)] == seen(told)
        assert [(4, 5)] * 2 == [(outcome.sequence, outcome.at_ms) for outcome in told]
        assert (1, None) == (journal.unread, journal.next_deadline_ms())
        later = Command(9, 9, "handle_timeout")
        assert told == other.apply(later)
        assert [] == journal.apply(later)
        assert journal.to_bytes() == other.to_bytes()

    @pytest.mark.parametrize(
        ("state", "match"),
        [
            ("text", "be bytes"),
            (zlib.compress(b"{"), "be what Journal.to_bytes wrote"),
            (zlib.compress(b"[" * 100_000), "be what"),
            (packed({}) + b"more", "be what"),
            (packed([]), "have a field 'version'"),
        ],
    )
    def test_what_nobody_wrote_is_refused(self, state: Any, match: str) -> None:
        with pytest.raises(SnapshotError, match=match):
            Journal.from_bytes(state, HashRing())

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("version", 2),
            ("now_ms", -1),
            ("sequence", "1"),
            ("position", None),
            ("unread", [[1]]),
            ("unread", [[5, "no base64", None]]),
            ("seen", [[1]]),
            ("seen_forgotten", 1),
            ("now_ms", 1 << 63),
            ("sequence", 1 << 63),
            ("unread", [[5, None, 1 << 63]]),
        ],
    )
    def test_a_field_of_another_type_is_refused_and_named(self, field: str, value: object) -> None:
        journal = joined()
        journal.apply(offer(1, 3))

        with pytest.raises(SnapshotError, match=field):
            Journal.from_bytes(packed({**state_of(journal), field: value}), HashRing())

    @pytest.mark.parametrize(
        "field", ["version", "now_ms", "sequence", "seen", "seen_forgotten", "position", "unread", "dispatcher"]
    )
    def test_every_field_is_needed(self, field: str) -> None:
        state = state_of(joined())
        del state[field]

        with pytest.raises(SnapshotError, match=field):
            Journal.from_bytes(packed(state), HashRing())

    def test_a_ring_of_another_kind_is_refused(self) -> None:
        journal = joined()
        journal.apply(Command(1, 0, "add_consumer", consumer="bob"))

        with pytest.raises(SnapshotError, match="ranges"):
            Journal.from_bytes(journal.to_bytes(), HashRing(vnodes=7))

    def test_a_ring_on_which_the_consumers_are_already_is_not_built_again(self) -> None:
        journal = joined(weight=2)
        other = joined(weight=2).ring

        assert other.ranges is Journal.from_bytes(journal.to_bytes(), HashRing(), joined=other).ring.ranges

    def test_a_ring_of_other_consumers_or_weights_or_another_order_of_joining_is_not_taken(self) -> None:
        journal = joined()
        journal.apply(Command(1, 0, "add_consumer", consumer="bob"))
        there = HashRing(["bob", "ann"]), HashRing({"ann": 1, "bob": 2}), HashRing(["ann", "bob", "cy"]), HashRing()

        for ring in there:
            again = Journal.from_bytes(journal.to_bytes(), HashRing(), joined=ring)
            assert journal.ring == again.ring
            assert journal.ring.consumers == again.ring.consumers

    def test_a_consumer_that_drains_is_not_on_the_ring(self) -> None:
        journal = joined()
        journal.apply(offer(1, 0))
        journal.apply(Command(2, 0, "remove_consumer", consumer="ann"))
        again = Journal.from_bytes(journal.to_bytes(), HashRing(), joined=joined().ring)

        assert () == again.ring.consumers

    def test_a_ring_is_one(self) -> None:
        with pytest.raises(ArgumentError, match="joined is 7; it must be the ring of a journal, or None"):
            Journal.from_bytes(joined().to_bytes(), HashRing(), joined=7)  # type: ignore[arg-type]  # on purpose

    def test_a_dispatcher_that_cannot_exist_is_refused(self) -> None:
        with pytest.raises(SnapshotError, match=r"snapshot is \{\}"):
            Journal.from_bytes(packed({**state_of(joined()), "dispatcher": {}}), HashRing())


@pytest.mark.parametrize(
    "ring",
    [AutoSplit(), None, HashRing(["ann"]), HashRing.pulsar(separator="#")],
    ids=["split", "none", "taken", "names"],
)
def test_only_an_empty_ring_will_do_whose_history_does_not_matter(ring: Any) -> None:
    with pytest.raises(ArgumentError, match="placement"):
        Journal(ring)
    with pytest.raises(ArgumentError, match="placement"):
        Journal.from_bytes(joined().to_bytes(), ring)


def test_a_configuration_is_one() -> None:
    with pytest.raises(ArgumentError, match="config"):
        Journal(HashRing(), {})  # type: ignore[arg-type]  # on purpose


def test_a_message_beyond_the_limit_of_its_key_is_refused_and_its_log_goes_on() -> None:
    journal = joined(DispatcherConfig(window=9, spill=False, max_waiting_per_key=1))
    assert [("deliver", 0)] == seen(journal.apply(offer(1, 0)))
    assert [] == seen(journal.apply(offer(2, 1)))

    (refused,) = journal.apply(offer(3, 2))
    assert ("refused", 2) == (refused.effect, refused.offset)
    assert "1 messages of key b'k' may wait" in str(refused.reason)
    assert [("deliver", 3)] == seen(journal.apply(offer(4, 3, "other")))


def test_what_went_wrong_stands_in_the_outcomes_of_a_dead_letter_and_of_a_blocked_message() -> None:
    retry = RetryPolicy(max_redeliveries=0)
    journal = joined(DispatcherConfig(retry=retry, poison=Poison.BLOCK, archive_blocked=True))
    journal.apply(offer(1, 0))
    told = journal.apply(Command(2, 0, "nack", offset=0, consumer="ann", attempt=1, reason="card refused"))
    told += journal.apply(Command(3, 0, "dead_lettered", offset=0))

    assert [("dead_letter", "card refused"), ("blocked", "card refused")] == [
        (outcome.effect, outcome.reason) for outcome in told if outcome.reason not in {None, "nacked"}
    ]
