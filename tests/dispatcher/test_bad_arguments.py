"""Mistakes of the host: a typed error that says what was asked, what is true and what to do, and no other trace."""

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.alphabet import AlphabetRing, Watched, fill, subscription

from keyshared.config import DispatcherConfig, DrainUnit, Unmatched
from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import Deliver, Spilled
from keyshared.errors import (
    ArgumentError,
    ClockError,
    ConsumerExistsError,
    KeyFullError,
    KeySharedError,
    KeyTypeError,
    OffsetOrderError,
    SnapshotError,
    UnknownConsumerError,
    UnmatchedKeyError,
    WindowFullError,
)
from keyshared.hashing import KeyHash
from keyshared.leases import LeaseQueue
from keyshared.placement import HashRange
from keyshared.placement.assigned import AssignedRanges
from keyshared.ring import HashRing

NOW = 1_000
LATER = 2_000
RECEIPT = (5, "ann", 1)

COUNT = "be an int of at least 0"
OFFSET = "be an int of at most 63 bits"
COUNT_OR_NONE = "be an int of at least 0, or None"
SEVERAL = "be a collection of patterns"


def prepared() -> Watched:
    """Something in flight, something waiting, an inactive consumer and a draining one, and one free slot."""
    dispatcher = subscription("ann", "bob", "cat", window=5, unmatched=Unmatched.ERROR)
    dispatcher.set_filters("ann", ["a*"])
    dispatcher.set_filters("bob", ["b*"])
    dispatcher.set_filters("cat", ["c*"])
    dispatcher.handle_timeout(now_ms=NOW)
    fill(dispatcher, "a1", "a1", "b1", "c1", start=5)
    dispatcher.set_inactive("bob")
    dispatcher.remove_consumer("cat", drain_ms=None)
    return dispatcher


def assert_unchanged_by(call: Callable[[Watched], object], error: type[KeySharedError]) -> KeySharedError:
    """Make the call, late on the clock, and look for any trace of it."""
    dispatcher = prepared()
    before, why = dispatcher.snapshot(), [dispatcher.why_blocked(offset) for offset in range(10)]

    with pytest.raises(error) as caught:
        call(dispatcher)

    assert before == dispatcher.snapshot()
    assert why == [dispatcher.why_blocked(offset) for offset in range(10)]
    assert [] == dispatcher.handle_timeout(now_ms=NOW), "the clock has moved"
    return caught.value


# Every public method with one bad argument: the call, the error and its fields, and what its text must say.
BAD: list[tuple[str, Callable[[Any], object], type[KeySharedError], tuple[object, ...], str]] = [
    ("an offset twice", lambda d: d.offer(8, "a1", now_ms=LATER), OffsetOrderError, (8, 8), "after 8"),
    ("an offset of the past", lambda d: d.offer(3, "a1", now_ms=LATER), OffsetOrderError, (3, 8), "grow strictly"),
    ("an offset as text", lambda d: d.offer("9", "a1", now_ms=LATER), OffsetOrderError, ("9", 8), "'9'"),
    ("an offset as bool", lambda d: d.offer(True, "a1", now_ms=LATER), OffsetOrderError, (True, 8), "True"),
    (
        "an offset beyond 63 bits",
        lambda d: d.offer(1 << 63, "a1", now_ms=LATER),
        ArgumentError,
        ("offset", 1 << 63, OFFSET),
        "63 bits",
    ),
    (
        "a receipt beyond 63 bits",
        lambda d: d.ack(1 << 63, "ann", 1, now_ms=LATER),
        ArgumentError,
        ("offset", 1 << 63, OFFSET),
        "63 bits",
    ),
    (
        "a batch beyond 63 bits",
        lambda d: d.offer_many([(1 << 63, "a1", None)], now_ms=LATER),
        ArgumentError,
        ("offset", 1 << 63, OFFSET),
        "63 bits",
    ),
    ("a key as int", lambda d: d.offer(9, 1, now_ms=LATER), KeyTypeError, ("int",), "it must be bytes, str or None"),
    ("an unmatched key", lambda d: d.offer(9, "x", now_ms=LATER), UnmatchedKeyError, (b"x",), "b'x'"),
    (
        "a batch that goes back",
        lambda d: d.offer_many([(9, "a2", None), (9, "a3", None)], now_ms=LATER),
        OffsetOrderError,
        (9, 9),
        "after 9",
    ),
    (
        "a batch with a bad key",
        lambda d: d.offer_many([(9, 1.5, None)], now_ms=LATER),
        KeyTypeError,
        ("float",),
        "float",
    ),
    (
        "no batch",
        lambda d: d.offer_many(None, now_ms=LATER),
        ArgumentError,
        ("messages", None, "be a collection of messages"),
        "messages is None",
    ),
    (
        "no receipts",
        lambda d: d.ack_many(None, now_ms=LATER),
        ArgumentError,
        ("receipts", None, "be a collection of receipts"),
        "receipts is None",
    ),
    (
        "a session that is resumed as text",
        lambda d: d.set_active("bob", resumed="no", now_ms=LATER),
        ArgumentError,
        ("resumed", "no", "be a bool"),
        "resumed is 'no'",
    ),
    (
        "failures that are reset as text",
        lambda d: d.unblock_offset(5, reset_failures="x", now_ms=LATER),
        ArgumentError,
        ("reset_failures", "x", "be a bool"),
        "reset_failures is 'x'",
    ),
    (
        "a batch that does not fit",
        lambda d: d.offer_many([(9, "a2", None), (10, "a3", None)], now_ms=LATER),
        WindowFullError,
        (5,),
        "all 5 slots",
    ),
    (
        "a batch with an unmatched key",
        lambda d: d.offer_many([(9, "x", None)], now_ms=LATER),
        UnmatchedKeyError,
        (b"x",),
        "widen a filter",
    ),
    (
        "a negative delay",
        lambda d: d.nack(*RECEIPT, delay_ms=-1, now_ms=LATER),
        ArgumentError,
        ("delay_ms", -1, COUNT_OR_NONE),
        "delay_ms is -1",
    ),
    (
        "a reason that is too long",
        lambda d: d.nack(*RECEIPT, reason="x" * 501, now_ms=LATER),
        ArgumentError,
        ("reason", "x" * 501, "be a str of at most 500 characters, or None"),
        "at most 500 characters",
    ),
    (
        "a reason that is no text",
        lambda d: d.reject(*RECEIPT, reason=b"refused", now_ms=LATER),
        ArgumentError,
        ("reason", b"refused", "be a str of at most 500 characters, or None"),
        "b'refused'",
    ),
    (
        "a release into the past",
        lambda d: d.release(*RECEIPT, delay_ms=-1, now_ms=LATER),
        ArgumentError,
        ("delay_ms", -1, "be an int of at least 0"),
        "delay_ms is -1",
    ),
    (
        "a delay as float",
        lambda d: d.nack(*RECEIPT, delay_ms=0.5, now_ms=LATER),
        ArgumentError,
        ("delay_ms", 0.5, COUNT_OR_NONE),
        "0.5",
    ),
    (
        "a negative extension",
        lambda d: d.extend(*RECEIPT, extend_ms=-1, now_ms=LATER),
        ArgumentError,
        ("extend_ms", -1, "be an int of at least 1, or None"),
        "extend_ms is -1",
    ),
    (
        "an extension by nothing",
        lambda d: d.extend(*RECEIPT, extend_ms=0, now_ms=LATER),
        ArgumentError,
        ("extend_ms", 0, "be an int of at least 1, or None"),
        "extend_ms is 0",
    ),
    ("a key to unblock", lambda d: d.unblock(7, now_ms=LATER), KeyTypeError, ("int",), "int"),
    ("a name twice", lambda d: d.add_consumer("ann", now_ms=LATER), ConsumerExistsError, ("ann",), "already there"),
    (
        "an inactive name twice",
        lambda d: d.add_consumer("bob", now_ms=LATER),
        ConsumerExistsError,
        ("bob",),
        "set_active it if it came back",
    ),
    (
        "an empty name",
        lambda d: d.add_consumer("", now_ms=LATER),
        ArgumentError,
        ("name", "", "be a non-empty str"),
        "''",
    ),
    (
        "one text as filters",
        lambda d: d.add_consumer("dan", filters="d*", now_ms=LATER),
        ArgumentError,
        ("patterns", "d*", SEVERAL),
        "'d*'",
    ),
    (
        "a filter that is none",
        lambda d: d.add_consumer("dan", filters=["\\"], now_ms=LATER),
        ArgumentError,
        ("pattern", "\\", r"not end in a lone backslash; write \\ for a backslash"),
        "backslash",
    ),
    (
        "bad filters while its name drains",  # the drain must not have ended
        lambda d: d.add_consumer("cat", filters=[7], now_ms=LATER),
        ArgumentError,
        ("pattern", 7, "be a str"),
        "7",
    ),
    (
        "a negative limit",
        lambda d: d.add_consumer("dan", limit=-1, now_ms=LATER),
        ArgumentError,
        ("limit", -1, COUNT),
        "limit is -1",
    ),
    (
        "a negative drain",
        lambda d: d.remove_consumer("ann", drain_ms=-1, now_ms=LATER),
        ArgumentError,
        ("drain_ms", -1, "be an int of at least 0, or None for no limit"),
        "no limit",
    ),
    ("nobody back", lambda d: d.set_active("zoe", now_ms=LATER), UnknownConsumerError, ("zoe",), "add_consumer it"),
    ("a leaver back", lambda d: d.set_active("cat", now_ms=LATER), UnknownConsumerError, ("cat",), "not connected"),
    ("nobody's pull", lambda d: d.pull("zoe", 1, now_ms=LATER), UnknownConsumerError, ("zoe",), "'zoe'"),
    ("a leaver's pull", lambda d: d.pull("cat", 1, now_ms=LATER), UnknownConsumerError, ("cat",), "'cat'"),
    (
        "a pull of nothing",
        lambda d: d.pull("ann", 0, now_ms=LATER),
        ArgumentError,
        ("most", 0, "be an int of at least 1"),
        "most is 0",
    ),
    (
        "a pull of no offset",
        lambda d: d.pull("ann", 1, only="5", now_ms=LATER),
        ArgumentError,
        ("only", "5", OFFSET),
        "only is '5'",
    ),
    ("nobody's limit", lambda d: d.set_limit("zoe", 1, now_ms=LATER), UnknownConsumerError, ("zoe",), "'zoe'"),
    ("a leaver's limit", lambda d: d.set_limit("cat", 1, now_ms=LATER), UnknownConsumerError, ("cat",), "'cat'"),
    (
        "a limit as float",
        lambda d: d.set_limit("ann", 1.5, now_ms=LATER),
        ArgumentError,
        ("limit", 1.5, COUNT),
        "limit is 1.5",
    ),
    ("nobody's filters", lambda d: d.set_filters("zoe", [], now_ms=LATER), UnknownConsumerError, ("zoe",), "'zoe'"),
    ("a leaver's filters", lambda d: d.set_filters("cat", [], now_ms=LATER), UnknownConsumerError, ("cat",), "'cat'"),
    (
        "new filters as one text",
        lambda d: d.set_filters("ann", "a*", now_ms=LATER),
        ArgumentError,
        ("patterns", "a*", SEVERAL),
        "collection of patterns",
    ),
    ("nobody's weight", lambda d: d.set_weight("zoe", 1, now_ms=LATER), UnknownConsumerError, ("zoe",), "'zoe'"),
    ("a leaver's weight", lambda d: d.set_weight("cat", 1, now_ms=LATER), UnknownConsumerError, ("cat",), "'cat'"),
    (
        "a placement for other names",
        lambda d: d.set_placement(HashRing.danube(), now_ms=LATER),
        ArgumentError,
        ("name", "ann", "be a consumer id of Danube: the decimal digits of an unsigned 64-bit number"),
        "decimal digits",
    ),
    ("a key to ask about", lambda d: d.owner(3), KeyTypeError, ("int",), "int"),
]


@pytest.mark.parametrize(
    ("call", "error", "fields", "text"), [case[1:] for case in BAD], ids=[case[0].replace(" ", "-") for case in BAD]
)
def test_a_bad_argument_is_named_and_changes_nothing(
    call: Callable[[Watched], object], error: type[KeySharedError], fields: tuple[object, ...], text: str
) -> None:
    caught = assert_unchanged_by(call, error)

    assert fields == caught.args
    assert text in str(caught)


CLOCKED: list[tuple[str, Callable[..., object]]] = [
    ("offer", lambda d, now: d.offer(9, "a1", now_ms=now)),
    ("offer_many", lambda d, now: d.offer_many([(9, "a1", None)], now_ms=now)),
    ("ack", lambda d, now: d.ack(*RECEIPT, now_ms=now)),
    ("ack_many", lambda d, now: d.ack_many([RECEIPT], now_ms=now)),
    ("nack", lambda d, now: d.nack(*RECEIPT, now_ms=now)),
    ("reject", lambda d, now: d.reject(*RECEIPT, now_ms=now)),
    ("release", lambda d, now: d.release(*RECEIPT, now_ms=now)),
    ("extend", lambda d, now: d.extend(*RECEIPT, now_ms=now)),
    ("dead_lettered", lambda d, now: d.dead_lettered(5, now_ms=now)),
    ("loaded", lambda d, now: d.loaded(5, "x", now_ms=now)),
    ("unblock", lambda d, now: d.unblock("a1", now_ms=now)),
    ("unblock_offset", lambda d, now: d.unblock_offset(5, now_ms=now)),
    ("park", lambda d, now: d.park(5, now_ms=now)),
    ("gone", lambda d, now: d.gone(6, now_ms=now)),
    ("truncate", lambda d, now: d.truncate(7, now_ms=now)),
    ("add_consumer", lambda d, now: d.add_consumer("dan", now_ms=now)),
    ("remove_consumer", lambda d, now: d.remove_consumer("ann", now_ms=now)),
    ("set_inactive", lambda d, now: d.set_inactive("ann", now_ms=now)),
    ("set_active", lambda d, now: d.set_active("bob", now_ms=now)),
    ("set_limit", lambda d, now: d.set_limit("ann", 7, now_ms=now)),
    ("pull", lambda d, now: d.pull("ann", 7, now_ms=now)),
    ("set_filters", lambda d, now: d.set_filters("ann", [], now_ms=now)),
    ("set_weight", lambda d, now: d.set_weight("ann", 2, now_ms=now)),
    ("set_placement", lambda d, now: d.set_placement(AlphabetRing(["dan"]), now_ms=now)),
    ("handle_timeout", lambda d, now: d.handle_timeout(now_ms=now)),
]


@pytest.mark.no_cover
@pytest.mark.parametrize("now", [NOW - 1, -1, float(LATER), "2000", True], ids=repr)
@pytest.mark.parametrize("call", [call for _, call in CLOCKED], ids=[name for name, _ in CLOCKED])
def test_a_clock_that_goes_back_or_is_none_is_refused_by_every_method(
    call: Callable[[Watched, object], object], now: object
) -> None:
    caught = assert_unchanged_by(lambda dispatcher: call(dispatcher, now), ClockError)

    assert (now, NOW) == caught.args
    assert f"the clock is already at {NOW}" in str(caught)


@pytest.mark.parametrize("call", [call for _, call in CLOCKED], ids=[name for name, _ in CLOCKED])
def test_every_method_moves_the_clock_when_it_has_nothing_to_refuse(call: Callable[[Watched, object], object]) -> None:
    dispatcher = prepared()
    call(dispatcher, LATER)

    with pytest.raises(ClockError, match=f"is already at {LATER}"):
        dispatcher.handle_timeout(now_ms=LATER - 1)


@pytest.mark.parametrize(("loaded_per_key", "window", "tracked", "capacity"), [(1, 2, 3, 3), (9, 2, 3, 2)])
def test_a_full_window_names_the_limit_that_is_reached(
    loaded_per_key: int, window: int, tracked: int, capacity: int
) -> None:
    dispatcher = subscription("ann", window=window, max_tracked=tracked, max_loaded_per_key=loaded_per_key)
    fill(dispatcher, *["a1"] * capacity)
    before = dispatcher.snapshot()

    with pytest.raises(WindowFullError, match=f"all {capacity} slots are taken; stop reading while free_slots is 0"):
        dispatcher.offer(9, "a2")
    assert before == dispatcher.snapshot()


def test_of_two_limits_that_are_reached_at_once_the_window_is_named() -> None:
    dispatcher = subscription("ann", window=2, max_tracked=3, max_loaded_per_key=1)
    fill(dispatcher, "a1", "a1", "a2")
    assert (2, 3) == (dispatcher.stats().loaded, dispatcher.stats().outstanding)

    with pytest.raises(WindowFullError, match="all 2 slots"):
        dispatcher.offer(9, "a3")
    with pytest.raises(WindowFullError, match="all 2 slots"):
        dispatcher.offer_many([(9, "a3", None)])


def test_a_batch_beyond_the_tracked_offsets_names_that_limit() -> None:
    dispatcher = subscription("ann", window=2, max_tracked=3, max_loaded_per_key=1)
    fill(dispatcher, "a1", "a1", "a1")

    with pytest.raises(WindowFullError, match="all 3 slots"):
        dispatcher.offer_many([(9, "a2", None)])


class TestWrongTypes:
    """An offset, attempt or name of a wrong type can never work, whatever the state is."""

    @pytest.mark.parametrize("method", ["dead_lettered", "loaded", "park", "gone"])
    def test_an_offset(self, method: str) -> None:
        caught = assert_unchanged_by(lambda d: getattr(d, method)("5", now_ms=LATER), ArgumentError)
        assert ("offset", "5", OFFSET) == caught.args

    def test_an_offset_to_truncate_before(self) -> None:
        caught = assert_unchanged_by(lambda d: d.truncate(None, now_ms=LATER), ArgumentError)  # type: ignore[arg-type]
        assert ("before", None, OFFSET) == caught.args

    @pytest.mark.parametrize("method", ["ack", "nack", "reject", "release", "extend"])
    @pytest.mark.parametrize("receipt", [("5", "ann", 1), (5, "ann", "1"), (5, ["ann"], 1)], ids=repr)
    def test_a_receipt(self, method: str, receipt: tuple[Any, Any, Any]) -> None:
        assert_unchanged_by(lambda d: getattr(d, method)(*receipt, now_ms=LATER), ArgumentError)

    def test_one_receipt_of_many(self) -> None:
        # The acks before it would be done, and their effects lost with the exception.
        receipts: list[Any] = [RECEIPT, (8, "cat", "1")]
        assert_unchanged_by(lambda d: d.ack_many(receipts, now_ms=LATER), ArgumentError)

    def test_an_incomplete_receipt_of_many(self) -> None:
        receipts: list[Any] = [RECEIPT, (8, "cat")]
        assert_unchanged_by(lambda d: d.ack_many(receipts, now_ms=LATER), ArgumentError)

    def test_an_incomplete_message_of_many(self) -> None:
        messages: list[Any] = [(9, "a1")]
        assert_unchanged_by(lambda d: d.offer_many(messages, now_ms=LATER), ArgumentError)

    @pytest.mark.parametrize(
        "call",
        [
            lambda d: d.add_consumer(["dan"], now_ms=LATER),
            lambda d: d.remove_consumer(["dan"], now_ms=LATER),
            lambda d: d.set_inactive(["dan"], now_ms=LATER),
            lambda d: d.set_active(["dan"], now_ms=LATER),
            lambda d: d.set_limit(["dan"], 1, now_ms=LATER),
        ],
        ids=["add_consumer", "remove_consumer", "set_inactive", "set_active", "set_limit"],
    )
    def test_a_name(self, call: Callable[[Watched], object]) -> None:
        assert_unchanged_by(call, ArgumentError)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "heavy", True], ids=repr)
def test_a_weight_that_is_no_share_is_refused_where_it_is_given(weight: Any) -> None:
    dispatcher = KeySharedDispatcher(HashRing())
    dispatcher.add_consumer("ann")
    before = dispatcher.snapshot()

    with pytest.raises(ArgumentError, match="finite number above 0"):
        dispatcher.add_consumer("bob", weight=weight)
    with pytest.raises(ArgumentError, match="finite number above 0"):
        dispatcher.set_weight("ann", weight)
    assert before == dispatcher.snapshot()


def test_a_weight_for_a_name_that_the_placement_brought_along_is_checked_too() -> None:
    dispatcher = KeySharedDispatcher(HashRing(["ann"]))

    with pytest.raises(ArgumentError, match="weight"):
        dispatcher.add_consumer("ann", weight="heavy")  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), "heavy", True], ids=repr)
def test_name_and_weight_are_checked_for_a_placement_that_looks_at_neither(weight: Any) -> None:
    dispatcher = KeySharedDispatcher(AssignedRanges.sole_owner("ann"))
    dispatcher.add_consumer("bob")
    before = dispatcher.snapshot()

    with pytest.raises(ArgumentError, match=r"weight is .* finite number above 0"):
        dispatcher.add_consumer("cat", weight=weight)
    with pytest.raises(ArgumentError, match=r"weight is .* finite number above 0"):
        dispatcher.set_weight("bob", weight)
    for name in ("", "\ud800"):
        with pytest.raises(ArgumentError, match="name is"):
            dispatcher.add_consumer(name)
    assert before == dispatcher.snapshot()


def test_a_batch_is_checked_where_no_key_can_be_refused() -> None:
    dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(spill=False, max_waiting_per_key=1))

    with pytest.raises(KeyFullError):
        dispatcher.offer_many([(0, "a", None), (1, "a", None)])
    assert [] == dispatcher.offer_many([(0, "a", None), (1, "b", None)])


class TestQueries:
    """A query refuses what it cannot be asked, by name."""

    @pytest.mark.parametrize("offset", [None, "5", 5.0, True, [], 1 << 63], ids=repr)
    @pytest.mark.parametrize("ask", ["why_blocked", "describe"])
    def test_an_offset(self, ask: str, offset: object) -> None:
        with pytest.raises(ArgumentError, match=r"offset is .*; it must be an int of at most 63 bits"):
            getattr(prepared(), ask)(offset)

    @pytest.mark.parametrize("consumer", [[], 1], ids=repr)
    def test_a_consumer(self, consumer: Any) -> None:
        with pytest.raises(ArgumentError, match=r"consumer is .*; it must be a str, or None"):
            prepared().in_flight(consumer)


class TestRestore:
    """The arguments beside the state; for the state itself see rule 13."""

    @pytest.mark.parametrize("epoch", [-1, "1", None, 1 << 31], ids=repr)
    def test_an_epoch_that_is_no_count(self, epoch: Any) -> None:
        with pytest.raises(ArgumentError, match="epoch"):
            KeySharedDispatcher.restore(subscription().snapshot(), AlphabetRing(), now_ms=0, epoch=epoch)

    def test_no_clock(self) -> None:
        now: Any = None
        with pytest.raises(ClockError):
            KeySharedDispatcher.restore(subscription().snapshot(), AlphabetRing(), now_ms=now)


def test_what_a_peer_does_is_never_an_exception() -> None:
    dispatcher = prepared()

    for answer in (dispatcher.ack, dispatcher.nack, dispatcher.reject, dispatcher.release, dispatcher.extend):
        for receipt in [(99, "ann", 1), (5, "nobody", 1), (5, "ann", 99), (5, "ann", -1), (-5, "", 0)]:
            assert 1 == len(answer(*receipt))
    assert [] == dispatcher.remove_consumer("nobody")
    assert [] == dispatcher.set_inactive("nobody")
    assert ([], []) == (dispatcher.in_flight("nobody"), dispatcher.gone(99))
    assert None is dispatcher.why_blocked(99)


# A collection is read before the clock is looked at, because whatever reads it may call the dispatcher meanwhile.
_READ_FIRST = {"ack_many", "add_consumer", "offer_many", "redrive", "restore", "set_filters"}
_TIMED = [
    name
    for name, call in inspect.getmembers(KeySharedDispatcher, inspect.isroutine)
    if not name.startswith("_") and "now_ms" in inspect.signature(call).parameters and name not in _READ_FIRST
]


@pytest.mark.parametrize("name", _TIMED)
def test_of_two_wrong_arguments_the_clock_is_named_whatever_the_call(name: str) -> None:
    config = DispatcherConfig(redrive=True)
    dispatcher = KeySharedDispatcher[object](AlphabetRing(), config)
    dispatcher.handle_timeout(now_ms=NOW)
    call = getattr(dispatcher, name)
    parameters = inspect.signature(call).parameters.values()
    wrong = [object() for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    named = {each.name: object() for each in parameters if each.kind is each.KEYWORD_ONLY}

    with pytest.raises(ClockError):
        call(*wrong, **{**named, "now_ms": NOW - 1})


def test_the_calls_that_have_a_clock_are_all_there() -> None:
    some = {"offer", "nack", "reject", "release", "extend", "unblock_offset", "redrive", "gone"}
    assert some <= {*_TIMED, *_READ_FIRST}


@pytest.mark.parametrize("call", ["unblock", "redrive"])
def test_a_key_that_is_none_is_told_as_such(call: str) -> None:
    dispatcher: Any = KeySharedDispatcher(AlphabetRing(), DispatcherConfig(redrive=True))
    with pytest.raises(KeyTypeError):
        getattr(dispatcher, call)(5, *[[]] * (call == "redrive"))


def _number_of_text(data: bytes) -> int:
    return int.from_bytes(data.decode("ascii")[:1].encode().rjust(1, b"\0"), "big")


class TestKeysThatAHashDoesNotTake:
    """What the function of a hash raises for a key comes out as an error that names the key, and changes nothing."""

    RING = HashRing(key_hash=KeyHash("ascii", 8, _number_of_text), slot_bits=8)

    @pytest.mark.parametrize(
        "call",
        [
            lambda d: d.offer(0, "é"),
            lambda d: d.offer(0, "é", not_before_ms=9),
            lambda d: d.offer_many([(0, "a", None), (1, "é", None)]),
            lambda d: d.redrive("é", []),
            lambda d: d.owner("é"),
        ],
        ids=["offer", "offer for later", "offer_many", "redrive", "owner"],
    )
    @pytest.mark.parametrize("asked", [0, 100])
    def test_a_call_is_refused(self, call: Callable[[KeySharedDispatcher], object], asked: int) -> None:
        dispatcher = KeySharedDispatcher(self.RING, DispatcherConfig(redrive=True))
        dispatcher.add_consumer("ann")
        for _ in range(asked):  # after the first ones, owners are found by a function that was made for that
            dispatcher.owner("a")
        before = dispatcher.snapshot()
        with pytest.raises(ArgumentError, match="it must have a hash 'ascii'; its function raised Unicode") as caught:
            call(dispatcher)
        assert ("key", "é".encode()) == (caught.value.parameter, caught.value.value)
        assert isinstance(caught.value.__cause__, UnicodeDecodeError)
        assert before == dispatcher.snapshot()

    @pytest.mark.parametrize("answer", [-5, 1 << 70])
    @pytest.mark.parametrize("placement", ["ring", "assigned"])
    @pytest.mark.parametrize("unit", DrainUnit)
    def test_a_key_without_a_slot_is_refused_whatever_the_placement(
        self, answer: int, placement: str, unit: DrainUnit
    ) -> None:
        key_hash = KeyHash("odd", 16, lambda data: answer if data == b"k" else len(data))
        made = (
            HashRing(key_hash=key_hash)
            if placement == "ring"
            else AssignedRanges([(HashRange(0, 1 << 16), "ann")], key_hash=key_hash)
        )
        dispatcher = KeySharedDispatcher(made, DispatcherConfig(unit=unit))
        dispatcher.add_consumer("ann")
        before = dispatcher.snapshot()
        with pytest.raises(ArgumentError, match="key is b'k'; it must have a hash 'odd'; its function returned"):
            dispatcher.offer(0, "k")
        assert before == dispatcher.snapshot()

    def test_a_placement_is_refused(self) -> None:
        dispatcher = subscription("ann")
        dispatcher.offer(0, "é")
        before = dispatcher.snapshot()
        with pytest.raises(ArgumentError, match="its function raised"):
            dispatcher.set_placement(self.RING)
        assert before == dispatcher.snapshot()

    def test_a_consumer_whose_points_have_no_hash_is_refused(self) -> None:
        dispatcher = KeySharedDispatcher(self.RING)
        before = dispatcher.snapshot()
        with pytest.raises(ArgumentError, match="must have a hash 'ascii'; its function raised Unicode"):
            dispatcher.add_consumer("é")
        assert before == dispatcher.snapshot()
        assert [] == dispatcher.add_consumer("ann")


@pytest.mark.parametrize("odd", [None, 5, RECEIPT, [], Deliver], ids=repr)
def test_only_of_an_effect_can_be_asked_whether_it_holds(odd: Any) -> None:
    with pytest.raises(ArgumentError, match=r"effect is .*; it must be an effect, as a call has returned it"):
        prepared().is_current(odd)
    assert prepared().is_current(Spilled(0))


def test_a_class_is_no_placement() -> None:
    odd: Any = HashRing
    with pytest.raises(ArgumentError, match=r"placement is <class .*; it must be an instance, such as HashRing\(...\)"):
        KeySharedDispatcher(odd)


@pytest.mark.parametrize(
    ("state", "requirement"),
    [
        (json.dumps(subscription().snapshot()), "be a dict, as snapshot() returns it; json.loads a text"),
        (b"{}", "be a dict, as snapshot() returns it; json.loads a text"),
        ([], "be a dict, as snapshot() returns it"),
    ],
    ids=["text", "bytes", "list"],
)
@pytest.mark.parametrize("kind", [KeySharedDispatcher, LeaseQueue])
def test_a_snapshot_is_a_dict(kind: Any, state: object, requirement: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        kind.restore(state, AlphabetRing(), now_ms=0)
    assert ("snapshot", requirement) == (caught.value.parameter, caught.value.requirement)


REDRIVING = [subscription("ann", redrive=True), LeaseQueue(AlphabetRing())]


@pytest.mark.parametrize("made", REDRIVING, ids=["dispatcher", "leases"])
def test_one_letter_is_no_collection_of_letters(made: Any) -> None:
    with pytest.raises(ArgumentError, match=r"letters is StoredLetter.*; it must be a collection of letters"):
        made.redrive("a1", StoredLetter(0, 1))


def test_a_key_of_another_type_is_told_what_a_key_is() -> None:
    odd: Any = bytearray(b"a1")
    with pytest.raises(KeyTypeError, match=r"^a key is of type bytearray; it must be bytes, str or None$"):
        prepared().offer(9, odd)
    with pytest.raises(KeyTypeError, match="with a lone surrogate; it must be bytes, a str that UTF-8 can"):
        prepared().offer(9, "\ud800")
