import copy
import inspect
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from tests.hostile import Named, Unprintable, cyclic, nested, shared

from keyshared import errors
from keyshared.config import RetryPolicy
from keyshared.distribution import Hop
from keyshared.errors import (
    MESSAGE_LIMIT,
    ArgumentError,
    ClockError,
    ConfigError,
    ConsumerExistsError,
    EntryStateError,
    InvariantError,
    KeyFullError,
    KeySharedError,
    KeyTypeError,
    LayoutMismatchError,
    LookAheadFullError,
    MissingExtraError,
    MisuseError,
    OffsetOrderError,
    QuiesceError,
    RangeOverlapError,
    RedriveTooEarlyError,
    SegmentBusyError,
    SegmentOrderError,
    SegmentSealedError,
    SequenceOrderError,
    SnapshotError,
    TooOldError,
    TopologyError,
    UnknownConsumerError,
    UnknownSegmentError,
    UnmatchedKeyError,
    UnownedSlotError,
    WindowFullError,
    shown,
)
from keyshared.testing.errors import ClaimsError, DriverError, HistoryError, UnsupportedError

RENDERED = [
    (
        ArgumentError("offset", "1", "be an int"),
        {"parameter": "offset", "value": "1", "requirement": "be an int"},
        "offset is '1'; it must be an int",
    ),
    (
        ConfigError("window", -1, "be at least 1"),
        {"parameter": "window", "value": -1, "requirement": "be at least 1"},
        "window is -1; it must be at least 1",
    ),
    (
        EntryStateError(7, "QUEUED", "BLOCKED"),
        {"offset": 7, "state": "QUEUED", "wanted": "BLOCKED"},
        "offset 7 is QUEUED and cannot become BLOCKED; see keyshared.window.NEXT_STATE",
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
            "now_ms is 4 but the clock is already at 5; "
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
        LayoutMismatchError((0, 8), (0, *range(8, 25))),
        {"declared": (0, 8), "agreed": (0, *range(8, 25))},
        (
            "buckets that start at [0, 8] are not the segment's, which start at "
            "[0, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22] and 2 more; "
            "a segment keeps one layout for life, so read it again before subscribing"
        ),
    ),
    (
        SegmentBusyError(7, 3),
        {"segment": 7, "outstanding": 3},
        "cannot forget segment 7: 3 of its entries are not settled; wait for them",
    ),
    (
        WindowFullError(100),
        {"capacity": 100},
        "cannot offer: all 100 slots are taken; stop reading while free_slots is 0",
    ),
    (
        RedriveTooEarlyError(9, 5),
        {"offset": 9, "last": 5},
        (
            "cannot redrive offset 9: the log was offered up to 5, and what comes next may be older messages of its "
            "key; redrive it once it was offered"
        ),
    ),
    (
        KeyFullError(b"k" * 65, 3),
        {"key": b"k" * 65, "capacity": 3},
        f"cannot offer: 3 messages of key {b'k' * 64!r} may wait; ask room_for(key) first",
    ),
    (
        LookAheadFullError(3),
        {"capacity": 3},
        "cannot offer: 3 messages may wait for the consumers that are connected; stop reading while free_slots is 0",
    ),
    (
        SegmentOrderError(5, (1, 3)),
        {"segment": 5, "waiting_for": (1, 3)},
        "segment 5 has to wait for segment 1, 3; drain what comes before it first",
    ),
    (SegmentSealedError(0, (1, 2)), {"segment": 0, "successors": (1, 2)}, "segment 0 is sealed; go on with 1, 2"),
    (
        SegmentSealedError(0, ()),
        {"segment": 0, "successors": ()},
        "segment 0 is sealed; go on with the segments of a newer SegmentMap",
    ),
    (
        SequenceOrderError(7, 7),
        {"sequence_id": 7, "last": 7},
        "cannot take sequence id 7 after 7; a producer numbers its messages with ints that grow strictly",
    ),
    (
        UnknownSegmentError("0", 3),
        {"segment": "0", "epoch": 3},
        "there is no segment '0' at epoch 3; it was pruned, or comes in a newer map",
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
        "a key is of type float; it must be bytes, str or None",
    ),
    (
        UnmatchedKeyError(b"order-1"),
        {"key": b"order-1"},
        (
            "no consumer accepts key b'order-1', or none owns its slot, or those that accept it own nothing; "
            "widen a filter, assign the slot, or choose Unmatched.HOLD or Unmatched.SKIP"
        ),
    ),
    (
        UnmatchedKeyError(None),
        {"key": None},
        (
            "no consumer accepts key None, or none owns its slot, or those that accept it own nothing; "
            "widen a filter, assign the slot, or choose Unmatched.HOLD or Unmatched.SKIP"
        ),
    ),
    (
        RangeOverlapError("b", (4, 7), "a", (2, 6)),
        {"consumer": "b", "slots": (4, 7), "owner": "a", "owner_slots": (2, 6)},
        (
            "cannot give slots [4, 7) to 'b': they overlap [2, 6) of 'a'; "
            "change that range first, or ask for other slots"
        ),
    ),
    (
        UnownedSlotError(7),
        {"slot": 7},
        "no consumer owns slot 7; assign a range with it, or choose Unowned.HOLD or a fallback",
    ),
    (
        MissingExtraError("mmh3", "pulsar"),
        {"package": "mmh3", "extra": "pulsar"},
        "this needs the package 'mmh3', which is not installed; install keyshared[pulsar]",
    ),
    (
        TooOldError("a stream of commands", "pyspark", "4.1", "3.5.9", "dispatch a batch frame"),
        {
            "what": "a stream of commands",
            "package": "pyspark",
            "needed": "4.1",
            "found": "3.5.9",
            "instead": "dispatch a batch frame",
        },
        "a stream of commands needs pyspark 4.1 or later, and 3.5.9 is installed; dispatch a batch frame",
    ),
    (
        TopologyError("tree[0][1]", "cluster", "c1", "be named once"),
        {"path": "tree[0][1]", "parameter": "cluster", "value": "c1", "requirement": "be named once"},
        "at tree[0][1]: cluster is 'c1'; it must be named once",
    ),
    (
        QuiesceError("the drain is not over", ("a", "b", "c", "d", "e")),
        {"problem": "the drain is not over", "pending": ("a", "b", "c", "d", "e")},
        (
            "cannot change the tree: the drain is not over; to be drained: a, b, c and 2 more "
            "(see keyshared.distribution.Quiescence)"
        ),
    ),
    (
        QuiesceError("the drain is not over", ()),
        {"problem": "the drain is not over", "pending": ()},
        "cannot change the tree: the drain is not over; to be drained: nothing (see keyshared.distribution.Quiescence)",
    ),
    (
        InvariantError("used is 1"),
        {"fact": "used is 1"},
        "invariant broken: used is 1; please report it with the calls that led here",
    ),
]

BASES = {
    ArgumentError: ValueError,
    ClockError: MisuseError,
    ConfigError: ArgumentError,
    ConsumerExistsError: MisuseError,
    EntryStateError: MisuseError,
    InvariantError: AssertionError,
    KeyTypeError: TypeError,
    MissingExtraError: ImportError,
    LayoutMismatchError: MisuseError,
    MisuseError: RuntimeError,
    OffsetOrderError: MisuseError,
    SegmentOrderError: MisuseError,
    SegmentSealedError: MisuseError,
    SequenceOrderError: MisuseError,
    RangeOverlapError: MisuseError,
    RedriveTooEarlyError: OffsetOrderError,
    SegmentBusyError: MisuseError,
    QuiesceError: MisuseError,
    SnapshotError: ArgumentError,
    TooOldError: NotImplementedError,
    TopologyError: ArgumentError,
    UnknownConsumerError: MisuseError,
    UnknownSegmentError: MisuseError,
    UnmatchedKeyError: MisuseError,
    UnownedSlotError: MisuseError,
    KeyFullError: WindowFullError,
    LookAheadFullError: WindowFullError,
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
    assert f"key b'{'k' * 64}'," in str(error)
    assert b"k" * 65 == error.key


BARE = (MisuseError,)  # no fields

HOSTILE: list[Callable[[], object]] = [
    lambda: "x" * 100_000,
    lambda: b"x" * 100_000,
    lambda: "\ud800",
    lambda: 10**5000,
    lambda: nested(5_000),
    lambda: shared(60),
    lambda: Named(shared(60)),
    lambda: [[[[Named(shared(60))]]]],
    lambda: Hop("a", 1, shared(60)),  # type: ignore[arg-type]
    cyclic,
    Unprintable,
    lambda: [Unprintable()],
    lambda: {"a" * 500: ["b" * 500] * 500},
    lambda: {"state": list(range(10_000))},
    lambda: (letter for letter in "ab"),
    object,
]


@pytest.mark.parametrize("make", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("kind", sorted(BASES, key=str))
def test_every_error_can_be_shown_and_sent_whatever_it_was_raised_for(
    kind: type[KeySharedError], make: Callable[[], object]
) -> None:
    error = kind(*[make() for _ in inspect.signature(kind.__init__).parameters][1:]) if kind not in BARE else kind()

    for one in (error, pickle.loads(pickle.dumps(error))):  # noqa: S301  # our own bytes
        for text in (str(one), repr(one), "".join(traceback.format_exception_only(one))):
            assert MESSAGE_LIMIT + len(f"keyshared.errors.{kind.__name__}: \n") >= len(text.encode())


@pytest.mark.parametrize("make", HOSTILE, ids=range(len(HOSTILE)))
def test_the_errors_of_the_kit_can_be_shown_too(make: Callable[[], Any]) -> None:
    value = make()

    for error in (
        HistoryError(1, "line", "offset", value, "be an int"),
        HistoryError(1, "row", None, value, "be a dict"),
        ClaimsError("window", value, "be an int"),
        UnsupportedError("D" * 1_000, "nack"),
        DriverError("D" * 1_000, "nack", "x" * 1_000, "True"),
    ):
        assert MESSAGE_LIMIT >= len(str(error).encode())


def test_a_long_text_keeps_its_end_which_says_what_to_do() -> None:
    error = ArgumentError("p" * 1_000, "v" * 1_000, "be short")

    assert str(error).endswith("; it must be short")
    assert MESSAGE_LIMIT == len(str(error))
    assert "v" * 1_000 == error.value


def test_a_value_is_shown_by_its_fields_without_asking_for_all_of_them() -> None:
    assert "Named(name=[[[[...], [...]], [[...], [...]]], [[[...], [...]], [[...], [...]]]])" == shown(
        Named(shared(60))
    )
    assert "Hop(cluster='a', level=1, target='b')" == shown(Hop("a", 1, "b"))
    assert "<class 'keyshared.distribution.distributor.Hop'>" == shown(Hop)
    assert "<class 'keyshared.config.retry.RetryPolicy'>" == shown(RetryPolicy)
    assert "ArgumentError('window', -1, 'be at least 1')" == repr(ArgumentError("window", -1, "be at least 1"))
    assert f"{b'x' * 80!r} and more, 1000 bytes in all" == shown(b"x" * 1_000)


def test_a_base_class_says_what_it_was_given() -> None:
    assert "what, 7" == str(KeySharedError("what", 7))


def _public_classes() -> set[object]:
    return {getattr(errors, name) for name in errors.__all__ if name.endswith("Error")}
