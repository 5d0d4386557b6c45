import copy
import pickle
from typing import Any, assert_never, get_args

import pytest

from keyshared import effects
from keyshared.effects import (
    Blocked,
    BlockReason,
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

# One of each, with the order of its fields: a change of order is a change of the API.
EFFECTS: list[tuple[Effect, tuple[str, ...]]] = [
    (
        Ignored(7, "c1", 2, Call.ACK, IgnoredReason.STALE_ATTEMPT),
        ("offset", "consumer", "attempt", "call", "reason"),
    ),
    (Evicted("c1"), ("consumer",)),
    (
        Released(7, "c1", 2, ReleaseReason.ACK_TIMEOUT, 1, 9),
        ("offset", "consumer", "attempt", "reason", "failures", "retry_at_ms"),
    ),
    (Blocked(7, b"k", 3, "no route"), ("offset", "key", "failures", "reason")),
    (Dropped(7, b"k", DropReason.POISON), ("offset", "key", "reason")),
    (Skipped(7, b"k", SkipReason.GONE), ("offset", "key", "reason")),
    (Settled(7, b"k", SettleReason.LATE_ACK), ("offset", "key", "reason")),
    (Spilled(7), ("offset",)),
    (Done(7, b"k", Ending.ACKED), ("offset", "key", "how")),
    (KeyBegun(b"k", "c1", 3), ("key", "consumer", "session")),
    (KeyEnding(b"k", "c1", 3), ("key", "consumer", "session")),
    (KeyEnded(b"k", "c1", 3, KeyEnd.IDLE), ("key", "consumer", "session", "reason")),
    (
        DeadLetter(7, b"k", 2, 3, "item", "no route"),
        ("offset", "key", "attempt", "failures", "item", "reason"),
    ),
    (Load(7, b"k"), ("offset", "key")),
    (Deliver(7, b"k", "c1", 2, 1, "item"), ("offset", "key", "consumer", "attempt", "failures", "item")),
    (CursorAdvanced(7), ("safe_cursor",)),
    (Resumed(7), ("free_slots",)),
]
NAMES = [type(effect).__name__ for effect, _ in EFFECTS]

each = pytest.mark.parametrize("effect", [effect for effect, _ in EFFECTS], ids=NAMES)
each_with_fields = pytest.mark.parametrize(("effect", "fields"), EFFECTS, ids=NAMES)


def test_the_union_names_every_effect_in_the_order_of_a_call() -> None:
    assert [kind.__name__ for kind in get_args(Effect)] == NAMES


def test_every_public_name_is_an_effect_a_reason_or_the_union() -> None:
    reasons = {"IgnoredReason", "BlockReason", "DropReason", "ReleaseReason", "SettleReason", "SkipReason", "Ending"}
    reasons |= {"KeyEnd"}
    assert {*NAMES, *reasons, "Call", "Effect"} == set(effects.__all__)


@each_with_fields
def test_fields_have_names_and_an_order(effect: Effect, fields: tuple[str, ...]) -> None:
    assert fields == effect._fields
    assert tuple(getattr(effect, field) for field in fields) == tuple(effect)


@each
def test_an_effect_equals_only_its_own_kind(effect: Effect) -> None:
    twin = type(effect)(*effect)
    assert twin == effect
    assert (twin != effect) is False
    assert effect != tuple(effect)
    assert tuple(effect) != effect
    assert [type(effect)] == [type(other) for other, _ in EFFECTS if other == effect]


@each_with_fields
def test_an_effect_differs_from_one_with_another_field(effect: Effect, fields: tuple[str, ...]) -> None:
    for field in fields:
        values: dict[str, Any] = {**effect._asdict(), field: "something else"}
        assert effect != type(effect)(**values)


@each
def test_equal_effects_hash_alike_and_kinds_apart(effect: Effect) -> None:
    twin = type(effect)(*effect)
    assert hash(twin) == hash(effect)
    assert hash(tuple(effect)) != hash(effect)
    assert {effect} == {effect, twin}


@each_with_fields
def test_an_effect_survives_pickle_and_copy(effect: Effect, fields: tuple[str, ...]) -> None:
    for twin in (pickle.loads(pickle.dumps(effect)), copy.deepcopy(effect)):  # noqa: S301  # our own bytes
        assert effect == twin
        assert fields == twin._fields


@each_with_fields
def test_an_effect_cannot_be_changed(effect: Effect, fields: tuple[str, ...]) -> None:
    for field in fields:
        with pytest.raises(AttributeError):
            setattr(effect, field, None)


def test_an_effect_shows_the_names_of_its_fields() -> None:
    assert repr(CursorAdvanced(5)) == "CursorAdvanced(safe_cursor=5)"


@each_with_fields
def test_match_tells_the_kinds_apart(effect: Effect, fields: tuple[str, ...]) -> None:
    assert (type(effect).__name__, getattr(effect, fields[0])) == _taken_apart(effect)


def test_the_receipt_names_one_delivery() -> None:
    assert Deliver(7, b"k", "c1", 2, 1, None).receipt == (7, "c1", 2)


@pytest.mark.parametrize(
    "reasons",
    [IgnoredReason, BlockReason, DropReason, ReleaseReason, SettleReason, SkipReason, Ending, KeyEnd],
    ids=lambda kind: kind.__name__,
)
def test_a_reason_is_its_own_name_in_lower_case(reasons: type[IgnoredReason]) -> None:
    for reason in reasons:
        assert reason.name.lower() == reason.value == str(reason)


def _taken_apart(effect: Effect) -> tuple[str, object]:  # noqa: C901, PLR0911, PLR0912  # one branch per kind is the point
    """Match by keyword; mypy proves that no kind is forgotten."""
    match effect:
        case Ignored(offset=first):
            return "Ignored", first
        case Evicted(consumer=first):
            return "Evicted", first
        case Released(offset=first):
            return "Released", first
        case Blocked(offset=first):
            return "Blocked", first
        case Dropped(offset=first):
            return "Dropped", first
        case Skipped(offset=first):
            return "Skipped", first
        case Settled(offset=first):
            return "Settled", first
        case Spilled(offset=first):
            return "Spilled", first
        case Done(offset=first):
            return "Done", first
        case KeyBegun(key=first):
            return "KeyBegun", first
        case KeyEnding(key=first):
            return "KeyEnding", first
        case KeyEnded(key=first):
            return "KeyEnded", first
        case DeadLetter(offset=first):
            return "DeadLetter", first
        case Load(offset=first):
            return "Load", first
        case Deliver(offset=first):
            return "Deliver", first
        case CursorAdvanced(safe_cursor=first):
            return "CursorAdvanced", first
        case Resumed(free_slots=first):
            return "Resumed", first
        case _:
            assert_never(effect)
