import copy
import pickle

import pytest

from keyshared import errors
from keyshared.errors import (
    ClockError,
    ConfigError,
    ConsumerExistsError,
    EntryStateError,
    InvariantError,
    KeySharedError,
    KeyTypeError,
    MisuseError,
    OffsetOrderError,
    SnapshotError,
    UnknownConsumerError,
    UnmatchedKeyError,
    WindowFullError,
)

RENDERED = [
    (
        ConfigError("window", -1, "be at least 1"),
        {"parameter": "window", "value": -1, "requirement": "be at least 1"},
        "window is -1; it must be at least 1",
    ),
    (
        EntryStateError(7, "QUEUED", "BLOCKED"),
        {"offset": 7, "state": "QUEUED", "wanted": "BLOCKED"},
        "offset 7 is QUEUED and cannot become BLOCKED; see keyshared.lanes.NEXT_STATE",
    ),
    (
        SnapshotError("version", 9, "be 1"),
        {"parameter": "version", "value": 9, "requirement": "be 1"},
        "version is 9; it must be 1",
    ),
    (
        ClockError(4, 5),
        {"now_ms": 4, "last_ms": 5},
        (
            "now_ms is 4 but the clock already stands at 5; "
            "pass whole milliseconds of a monotonic clock, or leave it out for the same instant"
        ),
    ),
    (
        OffsetOrderError("7", 7),
        {"offset": "7", "last": 7},
        "cannot take offset '7' after 7; offsets are ints that grow strictly (gaps are fine)",
    ),
    (
        OffsetOrderError(1.5, None),
        {"offset": 1.5, "last": None},
        "cannot take offset 1.5 after None; offsets are ints that grow strictly (gaps are fine)",
    ),
    (
        WindowFullError(100),
        {"capacity": 100},
        "cannot offer: all 100 slots are taken; stop reading while free_slots is 0",
    ),
    (UnknownConsumerError("c1"), {"consumer": "c1"}, "consumer 'c1' is not connected; add_consumer it first"),
    (
        ConsumerExistsError("c1"),
        {"consumer": "c1"},
        "consumer 'c1' is already there; remove it first, or set_active it if it came back",
    ),
    (
        KeyTypeError("float"),
        {"key_type": "float"},
        "a key of type float cannot be hashed the same everywhere; pass bytes, str or None",
    ),
    (
        UnmatchedKeyError(b"order-1"),
        {"key": b"order-1"},
        "no consumer accepts key b'order-1'; widen a filter, or choose Unmatched.HOLD or Unmatched.SKIP",
    ),
    (
        UnmatchedKeyError(None),
        {"key": None},
        "no consumer accepts key None; widen a filter, or choose Unmatched.HOLD or Unmatched.SKIP",
    ),
    (
        InvariantError("used is 1"),
        {"fact": "used is 1"},
        "invariant broken: used is 1; please report it with the calls that led here",
    ),
]

BASES = {
    ClockError: MisuseError,
    ConfigError: ValueError,
    ConsumerExistsError: MisuseError,
    EntryStateError: MisuseError,
    InvariantError: AssertionError,
    KeyTypeError: TypeError,
    MisuseError: RuntimeError,
    OffsetOrderError: MisuseError,
    SnapshotError: ConfigError,
    UnknownConsumerError: MisuseError,
    UnmatchedKeyError: MisuseError,
    WindowFullError: MisuseError,
}

by_class = pytest.mark.parametrize(
    ("error", "fields", "text"), RENDERED, ids=[f"{type(row[0]).__name__}-{n}" for n, row in enumerate(RENDERED)]
)


@by_class
def test_the_text_is_built_from_the_fields(error: KeySharedError, fields: dict[str, object], text: str) -> None:
    assert text == str(error)
    assert fields == vars(error)


@by_class
def test_an_error_survives_pickle_and_copy(error: KeySharedError, fields: dict[str, object], text: str) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):  # noqa: S301  # our own bytes
        assert type(error) is type(twin)
        assert fields == vars(twin)
        assert text == str(twin)


def test_the_tree_lets_callers_catch_by_kind() -> None:
    assert set(BASES) == {kind for kind in _public_classes() if kind is not KeySharedError}
    for kind, base in BASES.items():
        assert issubclass(kind, base)
        assert issubclass(kind, KeySharedError)


def test_every_kind_that_is_raised_has_its_text_tested() -> None:
    assert set(BASES) - {MisuseError} == {type(row[0]) for row in RENDERED}


def test_misuse_is_never_taken_for_a_bug_of_ours() -> None:
    assert [] == [kind for kind in BASES if issubclass(kind, MisuseError) and issubclass(kind, AssertionError)]


def test_a_long_key_is_cut_in_the_text_and_whole_in_the_field() -> None:
    error = UnmatchedKeyError(b"k" * 65)
    assert f"key b'{'k' * 64}';" in str(error)
    assert b"k" * 65 == error.key


def _public_classes() -> set[object]:
    return {getattr(errors, name) for name in errors.__all__}
