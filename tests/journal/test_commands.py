"""Calls and effects as rows."""

import inspect
from typing import get_args, get_origin

import pytest

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import (
    Blocked,
    Call,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    DropReason,
    Effect,
    Ending,
    Evicted,
    Ignored,
    IgnoredReason,
    KeyBegun,
    KeyEnd,
    KeyEnded,
    KeyEnding,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.errors import ArgumentError
from keyshared.journal import COMMANDS, Command
from keyshared.journal.commands import FIELDS, call, fields_of
from keyshared.ring import HashRing

# what a row cannot hold: another placement, a payload, several messages or receipts at once
_NOT_AS_ROWS = {"set_placement", "loaded", "offer_many", "ack_many"}


def test_every_input_of_the_dispatcher_is_a_command_unless_a_row_cannot_hold_it() -> None:
    inputs = {
        name
        for name, method in inspect.getmembers(KeySharedDispatcher, inspect.isroutine)
        if not (name.startswith("_") or name == "restore") and "now_ms" in inspect.signature(method).parameters
    }

    assert inputs - _NOT_AS_ROWS == set(COMMANDS)


@pytest.mark.parametrize(
    ("effect", "fields"),
    [
        (
            Ignored(1, "c", 2, Call.NACK, IgnoredReason.NOT_HOLDER),
            ("ignored", 1, None, "c", 2, None, None, "nack", "not_holder"),
        ),
        (Evicted("c"), ("evicted", None, None, "c", None, None, None, None, None)),
        (
            Released(1, "c", 2, ReleaseReason.EVICTED, 3, 40),
            ("released", 1, None, "c", 2, 3, 40, None, "evicted"),
        ),
        (Blocked(1, b"k", 3, "no"), ("blocked", 1, b"k", None, None, 3, None, None, "no")),
        (Dropped(1, b"k", DropReason.POISON), ("dropped", 1, b"k", None, None, None, None, None, "poison")),
        (Skipped(1, None, SkipReason.GONE), ("skipped", 1, None, None, None, None, None, None, "gone")),
        (Settled(1, b"k", SettleReason.PARKED), ("settled", 1, b"k", None, None, None, None, None, "parked")),
        (Done(1, b"k", Ending.ACKED), ("done", 1, b"k", None, None, None, None, None, "acked")),
        (KeyBegun(b"k", "c", 4), ("key_begun", None, b"k", "c", 4, None, None, None, None)),
        (KeyEnding(b"k", "c", 4), ("key_ending", None, b"k", "c", 4, None, None, None, None)),
        (KeyEnded(b"k", "c", 4, KeyEnd.IDLE), ("key_ended", None, b"k", "c", 4, None, None, None, "idle")),
        (DeadLetter(1, b"k", 2, 3, "item", "no"), ("dead_letter", 1, b"k", None, 2, 3, None, None, "no")),
        (Deliver(1, b"k", "c", 2, 3, "item"), ("deliver", 1, b"k", "c", 2, 3, None, None, None)),
        (CursorAdvanced(9), ("cursor_advanced", 9, None, None, None, None, None, None, None)),
        (Spilled(1), None),
        (Load(1, b"k"), None),
        (Resumed(5), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_effect_is_a_row_unless_it_is_for_the_host_alone(effect: Effect, fields: object) -> None:
    assert fields == (fields_of(effect) if type(effect) in FIELDS else None)


def test_no_effect_is_left_out_above() -> None:
    (parameters,) = (
        mark.args[1]
        for mark in test_an_effect_is_a_row_unless_it_is_for_the_host_alone.pytestmark  # type: ignore[attr-defined]  # set by pytest
    )

    assert {get_origin(kind) or kind for kind in get_args(Effect)} == {type(effect) for effect, _ in parameters}


def test_letters_are_redriven_together_and_a_wrong_one_is_refused_by_the_dispatcher() -> None:
    dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(redrive=True, start=9))
    dispatcher.add_consumer("c1")
    both = Command(0, 0, "redrive", key="k", letters=[[4, 1], (3, 2)])
    assert [(3, 3)] == [(each.offset, each.attempt) for each in call(dispatcher, both, now_ms=0)]  # type: ignore[union-attr]  # a delivery
    assert [] == call(dispatcher, Command(0, 0, "redrive", key="k"), now_ms=0)
    for wrong in ([4], (4, 1, None), 4):
        with pytest.raises(ArgumentError, match="letter is"):
            call(dispatcher, Command(0, 0, "redrive", key="k", letters=[wrong]), now_ms=0)  # type: ignore[list-item]  # the point


def test_a_command_that_no_method_answers_to_is_refused_with_those_that_do() -> None:
    with pytest.raises(ArgumentError, match="command is 'snapshot'; it must be one of offer, ack, ack_through, nack"):
        call(KeySharedDispatcher(HashRing()), Command(0, 0, "snapshot"), now_ms=0)
