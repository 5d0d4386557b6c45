"""No query writes anything: whoever is asked everything between all calls does what a twin does that is asked nothing.

The dispatcher has schedules of its own in `test_drains`, and a silent twin in `attacking`; here are the other classes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.asking import ask_everything, questions_of
from tests.leasing import lease_config
from tests.properties.schedules import Choose

from keyshared.buckets import (
    BatchLimits,
    BatchMessage,
    BucketBatcher,
    BucketCheckpoints,
    BucketLayout,
    BucketPlacement,
)
from keyshared.config import Rules
from keyshared.cursor import ContiguousCursor, OfferAnswer
from keyshared.draining import DrainingHashes
from keyshared.draintracker import DrainTracker, PendingAcks
from keyshared.effects import CursorAdvanced
from keyshared.errors import InvariantError, KeySharedError
from keyshared.leases import LeaseQueue
from keyshared.offsets import OffsetIndex
from keyshared.placement import HashRange, RangeMap
from keyshared.placement.assigned import AssignedRanges, ExclusiveRanges
from keyshared.placement.autosplit import AutoSplit
from keyshared.ring import HashRing
from keyshared.router import KeyRouter
from keyshared.segments import SegmentMap, SegmentProducer, SegmentProgress
from keyshared.window import InFlightWindow, State

LENGTH = 40
NAMES = ("ann", "bob", "cat")
OWNERS = tuple(
    RangeMap([(HashRange(0, stop), one), (HashRange(stop, 4), other)], slot_bits=2)
    for stop, one, other in ((2, "ann", "bob"), (1, "bob", "ann"), (3, "cat", "ann"))
)

Call = tuple[str | Callable[..., object], tuple[Any, ...], dict[str, Any]]  # a method, or something that is done to it


@dataclass(frozen=True)
class Subject:
    """A class, what changes it, what to ask it, and the calls that may come next."""

    make: Callable[[], Any]
    inputs: frozenset[str]
    calls: Callable[[Choose, int], Sequence[Call]]
    arguments: Mapping[str, Sequence[Any]]
    of_itself: Callable[[Any], Mapping[str, Sequence[Any]]] = lambda _: {}
    """What to ask about that only the one who is asked has."""


def call(name: str | Callable[..., object], *args: Any, **kwargs: Any) -> Call:
    return name, args, kwargs


def of_leases(choose: Choose, step: int) -> list[Call]:
    name, known = choose(NAMES), choose(range(max(step, 1)))
    later = {"now_ms": 3 * step}
    return [
        *[call("offer", step, choose(["a", "b", None]), **later)] * 4,
        *[call("consume", name, choose([1, 3]), **later), call("reserve", name, 2, **later)] * 2,
        *[call("commit", choose(range(1, 6))), call("abort", choose(range(1, 6)))],
        *[call("ack", known, choose(range(1, 9)), **later)] * 2,
        *[call("nack", known, choose(range(1, 9))), call("extend", known, choose(range(1, 9)), extend_ms=50)],
        *[call("ack_through", known, choose(range(1, 9))), call("reject", known, choose(range(1, 9)))],
        *[call("release", known, choose(range(1, 9)))],
        *[call("add_consumer", name), call("remove_consumer", name, drain_ms=choose([0, 4, None]))],
        *[call("dead_lettered", known), call("loaded", known), call("park", known), call("unblock_offset", known)],
        *[call("gone", known), call("truncate", known), call("handle_timeout", **later), call("unblock", "a")],
        *[call("redrive", "a", [(known, 1, None)]), call("pause_group", "a"), call("resume_group", "a")],
        call("set_group", "a", per_second=choose([None, 100]), max_in_flight=choose([None, 1])),
    ]


def of_cursor(choose: Choose, step: int) -> list[Call]:
    known = choose(range(step + 1))
    return [
        call("offer", 2 * step),
        call("settle", 2 * known),
        call("settle_many", range(known)),
    ]


def of_draining(choose: Choose, step: int) -> list[Call]:  # noqa: ARG001  # as the others
    name, slot = choose(NAMES), choose(range(3))
    return [
        *[call("add", name, slot, choose([1, 2])), call("reduce", name, slot), call("should_block", name, slot)] * 2,
        *[call("start_batch"), call("end_batch"), call("clear"), call("consumer_removed", name)],
    ]


def of_pending(choose: Choose, step: int) -> list[Call]:
    slot, position = choose(range(3)), choose(range(step + 1))
    return [
        *[call("add", step, slot, choose([1, 2]))] * 4,
        *[call("remove", position), call("reduce_remaining", position, 1)],
        *[call("remove_up_to", choose(range(1 + step // 4))), call("remove_hash", slot)],
        *([call("clear"), call("close")] if choose(range(8)) == 0 else []),
    ]


def of_tracker(choose: Choose, step: int) -> list[Call]:
    name, slot, position = choose(NAMES), choose(range(4)), choose(range(step + 1))
    return [
        *[call("add", name, step, slot, choose([1, 2]))] * 4,
        *[
            call("refusal", name, slot),
            call("ack", name, position),
            call("take_back", name),
            call("expire_up_to", step // 4),
        ],
        *[call("set_owners", choose(OWNERS), now_ms=step), call("handle_timeout", now_ms=2 * step)],
        *[call("add_consumer", name, choose(OWNERS)), call("remove_consumer", name, choose(OWNERS))],
    ]


def message(choose: Choose, step: int) -> BatchMessage:
    return BatchMessage(step, f"item {step}", choose([1, 5]), choose([0, 40_000, 65_535]), choose([0, 40_000]))


def of_batcher(choose: Choose, step: int) -> list[Call]:
    return [
        *[call("add", message(choose, step), now_ms=step)] * 5,
        *[call("flush"), call("handle_timeout", now_ms=step), call("take_open")],
    ]


MAPS = (SegmentMap.equal_width(), SegmentMap.equal_width().split(0), SegmentMap.equal_width().split(0).split(1))


def of_producer(choose: Choose, step: int) -> list[Call]:
    segment, known = choose(range(4)), choose(range(step + 1))
    return [
        *[call("send", message(choose, step), now_ms=step)] * 4,
        *[call("confirmed", segment, known), call("refused", segment, known)] * 2,
        *[call("flush"), call("handle_timeout", now_ms=step), call("update", choose(MAPS))],
    ]


def of_progress(choose: Choose, step: int) -> list[Call]:
    segment = choose(range(4))
    return [
        *[call("offer", segment, step, 0, 0)] * 3,
        *[call("settle", segment, 0, choose(range(step + 1)))] * 3,
        *[call("reached_end", segment), call("update", choose(MAPS))],
    ]


class Owners:
    """Whom a window asks for the owner of a key."""

    def __init__(self) -> None:
        self.ranges = OWNERS[0]

    def owner(self, key: bytes) -> str | None:
        return self.ranges.owner_of(key)


def of_message(window: Any, name: str, offset: int, *more: object) -> object:
    """Do something with the message of that offset, if it is outstanding, and act on it."""
    entry = window.find(offset)
    return entry and (getattr(window, name)(entry, *more), window.wake())


def of_consumer(window: Any, name: str, consumer: str, *more: object, **others: object) -> object:
    """Do something with a connected consumer, and act on it."""
    known = consumer in window.consumers
    return known and (getattr(window, name)(consumer, *more, **others), window.wake())


def joins(window: Any, name: str, limit: int) -> object:
    return window.add(name, limit=limit), window.reassign(), window.wake()


def leaves(window: Any, name: str) -> object:
    return window.discard(name), window.reassign(), window.wake()


def moves(window: Any, ranges: RangeMap) -> object:
    window._core.owners.ranges = ranges
    return window.reassign(), window.wake()


def of_key(window: Any, name: str, key: bytes) -> object:
    return getattr(window, name)(key), window.wake()


def of_window(choose: Choose, step: int) -> list[Call]:
    name, known, key = choose(NAMES), choose(range(max(step - 8, 0), step + 1)), choose([b"a", b"b", b"e", b"f"])
    held = choose([State.QUEUED, State.DELAYED, State.DEAD_LETTERING, State.BLOCKED])
    return [
        *[call("offer", step, choose([key, key, None]), f"item {step}")] * 6,
        *[call(of_message, "settle", known), call(joins, name, choose([1, 2, 5]))] * 3,
        *[call(of_message, "move", known, held), call(of_message, "move", known, State.QUEUED)] * 2,
        *[call(moves, choose(OWNERS)), call(leaves, name), call(of_message, "remove", known)],
        *[call(of_message, "provide", known, "again"), call(of_consumer, "pull", name, choose([1, 2]))],
        *[call(of_consumer, "set_limit", name, choose([0, 1, 3]))],
        *[call(of_consumer, "set_keyless", name, keyless=choose([True, False]))],
        *[call(of_key, "quarantine", key), call(of_key, "lift_quarantine", key)],
    ]


LIMITS: dict[str, Any] = {"capacity": 6, "max_tracked": 12, "per_key": 2, "loaded_per_key": 3}


def of_checkpoints(choose: Choose, step: int) -> list[Call]:
    segment, bucket = choose(range(2)), choose(range(3))
    return [
        *[call("offer", segment, bucket, step)] * 3,
        *[call("settle", segment, bucket, choose(range(step + 1)))] * 3,
        call("forget", segment),
    ]


def of_router(choose: Choose, step: int) -> list[Call]:  # noqa: ARG001  # as the others
    name, filters = choose(NAMES), choose([(), ("a*",)])
    return [
        *[call("add_consumer", name, filters=filters), call("route", choose([None, b"a", b"b"]))] * 3,
        *[call("set_full", name), call("set_ready", name), call("set_inactive", name), call("set_active", name)],
        *[call("remove_consumer", name), call("set_filters", name, filters), call("set_weight", name, 2)],
    ]


def of_index(choose: Choose, step: int) -> list[Call]:
    return [
        *[call("append", 3 * step, choose([step, 5 * step, 40]), choose([1, 2]))] * 6,
        call("truncate", choose(range(3 * step + 1))),
    ]


def of_exclusive(choose: Choose, step: int) -> list[Call]:  # noqa: ARG001  # as the others
    start = choose(range(4))
    return [
        *[call("declare", choose(NAMES), [HashRange(start, start + 1)])] * 3,
        *[call("remove", choose(NAMES)), call("add", choose(NAMES))],
    ]


def of_placement(choose: Choose, step: int) -> list[Call]:  # noqa: ARG001  # as the others
    name = choose(NAMES)
    return [call("add", name, weight=choose([1, 2])), call("remove", name), call("set_weight", name, choose([1, 3]))]


def inputs(*names: str) -> frozenset[str]:
    return frozenset(names)


PLACED: Mapping[str, Sequence[Any]] = {"key": ["a", b"b"], "name": ["ann"], "n": [2], "weight": [1]}
CHANGES_OWNERS = inputs("add", "remove", "set_weight")
CHANGES_WINDOW = inputs(
    *("add", "discard", "set_limit", "set_keyless", "reassign", "wake", "pull", "quarantine", "lift_quarantine"),
    *("offer", "settle", "move", "provide", "remove", "ripen"),
)
SLOTS: Mapping[str, Sequence[Any]] = {"hash_": [0, 3], "consumer": [*NAMES, "nobody"]}
SUBJECTS = {
    "LeaseQueue": Subject(
        lambda: LeaseQueue(
            HashRing(),
            lease_config(ack_timeout_ms=20, reservation_timeout_ms=10, window=16, redrive=True, measure=True),
            rules=Rules(mark="keys", group_of=bytes.decode),
        ),
        inputs(
            *("offer", "forget_producer", "add_consumer", "remove_consumer", "set_placement", "reserve", "commit"),
            *("abort", "consume", "ack", "ack_many", "ack_through", "nack", "reject", "release", "extend"),
            *("dead_lettered", "loaded", "park", "unblock", "unblock_offset", "gone", "truncate", "handle_timeout"),
            *("redrive", "set_group", "pause_group", "resume_group"),
        ),
        of_leases,
        {
            "busiest": [0, 9], "wanted": [0, 5], "offset": [0, 5, 99], "consumer": NAMES,
            "effect": [CursorAdvanced(1)], "key": ["a"],
        },
    ),
    "ContiguousCursor": Subject(
        ContiguousCursor,
        inputs("offer", "settle", "settle_many"),
        of_cursor,
        {"offset": [0, 4, 9], "read_to": [None, 0, 9]},
    ),
    "DrainingHashes": Subject(
        DrainingHashes,
        inputs("add", "reduce", "should_block", "start_batch", "end_batch", "clear", "consumer_removed"),
        of_draining,
        {**SLOTS, "consumer": [None, *NAMES]},
    ),
    "PendingAcks": Subject(
        PendingAcks,
        inputs("add", "remove", "reduce_remaining", "remove_up_to", "remove_hash", "clear", "close"),
        of_pending,
        {**SLOTS, "position": [0, 3], "start": [0], "stop": [4]},
    ),
    "DrainTracker": Subject(
        lambda: DrainTracker(OWNERS[0], drain_timeout_ms=3),
        inputs(
            *("add_consumer", "remove_consumer", "set_owners", "refusal", "add", "ack", "take_back", "expire_up_to"),
            "handle_timeout",
        ),
        of_tracker,
        SLOTS,
    ),
    "BucketBatcher": Subject(
        lambda: BucketBatcher(BucketLayout.equal_width(2), BatchLimits(max_messages=4, max_delay_ms=5)),
        inputs("add", "flush", "handle_timeout", "take_open"),
        of_batcher,
        {},
    ),
    "SegmentProducer": Subject(
        lambda: SegmentProducer(MAPS[0], BatchLimits(max_messages=2, max_delay_ms=5)),
        inputs("send", "flush", "handle_timeout", "confirmed", "refused", "update"),
        of_producer,
        {},
    ),
    "SegmentProgress": Subject(
        lambda: SegmentProgress(MAPS[0]),
        inputs("update", "offer", "settle", "reached_end"),
        of_progress,
        {"segment": [0], "bucket": [None, 0]},
    ),
    "InFlightWindow": Subject(
        lambda: InFlightWindow(Owners(), **LIMITS), CHANGES_WINDOW, of_window, {"offset": [0, 5, 40]}
    ),
    "BucketCheckpoints": Subject(
        BucketCheckpoints,
        inputs("offer", "settle", "forget"),
        of_checkpoints,
        {"segment": [0, 1, 7], "bucket": [0, 2]},
    ),
    "KeyRouter": Subject(
        lambda: KeyRouter(HashRing()),
        inputs(
            *("add_consumer", "remove_consumer", "route", "set_filters", "set_weight"),
            *("set_active", "set_inactive", "set_full", "set_ready"),
        ),
        of_router,
        PLACED,
    ),
    "OffsetIndex": Subject(
        lambda: OffsetIndex(interval=4),
        inputs("append", "truncate"),
        of_index,
        {"offset": [0, 9, 50], "timestamp_epoch_ms": [0, 20, 99]},
    ),
    "ExclusiveRanges": Subject(
        lambda: ExclusiveRanges(slot_bits=2), CHANGES_OWNERS | {"declare"}, of_exclusive, PLACED
    ),
    "BucketPlacement": Subject(
        lambda: BucketPlacement(BucketLayout.equal_width(4)),
        CHANGES_OWNERS,
        of_placement,
        {"bucket": [0, 3], "name": ["ann"]},
    ),
    "HashRing": Subject(HashRing, CHANGES_OWNERS, of_placement, PLACED),
    "AutoSplit": Subject(AutoSplit, CHANGES_OWNERS, of_placement, PLACED),
    "AssignedRanges": Subject(
        lambda: AssignedRanges([(HashRange(0, 2), "ann")], fallback=HashRing(slot_bits=2), slot_bits=2),
        CHANGES_OWNERS | {"assign", "release"},
        of_placement,
        PLACED,
    ),
}  # fmt: skip


def told(answer: object) -> str:
    """What an answer says, without where it lies in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(answer))


def made(subject: Any, step: Call) -> object:
    """What a call returns, or the type of what it raises."""
    how, args, kwargs = step
    act = partial(how, subject) if callable(how) else getattr(subject, how)
    try:
        return told(act(*args, **kwargs))
    except KeySharedError as error:
        return type(error)


def figures(subject: Any, known: Subject) -> list[str]:
    """All that it says of itself without being asked about something."""
    kind: Any = type(subject)
    plain = questions_of(kind, known.inputs)
    answers = [getattr(subject, name) for name, parameters in plain.items() if not parameters]
    return [told(answer() if callable(answer) else answer) for answer in answers]


def compare(known: Subject, choose: Choose) -> int:
    asked, silent = known.make(), known.make()
    did = 0
    for step in range(LENGTH):
        next_call = choose(known.calls(choose, step))
        expected = made(silent, next_call)
        assert expected == made(asked, next_call), next_call
        did += isinstance(expected, str)
        ask_everything(asked, {**known.arguments, **known.of_itself(asked)}, known.inputs)
    assert figures(deepcopy(silent), known) == figures(asked, known)
    return did


@pytest.mark.parametrize("name", SUBJECTS)
@given(seed=st.integers(0, 2**32 - 1))
def test_whoever_is_asked_everything_does_what_a_twin_does_that_is_asked_nothing(name: str, seed: int) -> None:
    compare(SUBJECTS[name], Random(seed).choice)  # reproducible, not secret


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_calls_between_the_questions_do_something(name: str) -> None:
    done = sum(compare(SUBJECTS[name], Random(seed).choice) for seed in range(10))  # as above
    assert done > 10 * LENGTH // 6


class _CountsQuestions(ContiguousCursor):
    """A query that moves something: every question is remembered, and the third one is an answer of its own."""

    asked = 0

    def resume_after(self, read_to: int | None) -> Any:
        self.asked += 1
        return super().resume_after(read_to)

    def offer(self, offset: int) -> OfferAnswer:
        answer = super().offer(offset)
        return answer if self.asked < 3 else OfferAnswer.SETTLED


class _HandsOutItsOwn(DrainingHashes):
    """A query whose answer is the book itself."""

    def __init__(self) -> None:
        super().__init__()
        self.book: list[int] = []

    def books(self) -> list[int]:
        return self.book

    def end_batch(self) -> list[int]:
        self.book.append(1)
        return list(self.book)


class _HandsOutItsLists(InFlightWindow):
    """A query whose answer is the very list in which lanes wait."""

    def __init__(self) -> None:
        super().__init__(Owners(), **LIMITS)

    def work_lists(self) -> object:
        return self._core.keyless.lanes


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("ContiguousCursor", _CountsQuestions),
        ("DrainingHashes", _HandsOutItsOwn),
        ("InFlightWindow", _HandsOutItsLists),
    ],
)
def test_a_query_that_writes_or_hands_out_its_own_books_is_found(name: str, broken: type) -> None:
    subject = replace(SUBJECTS[name], make=broken)
    with pytest.raises((AssertionError, InvariantError)):
        sum(compare(subject, Random(seed).choice) for seed in range(20))  # as above


def test_a_query_that_needs_something_new_says_so() -> None:
    pattern = r"BucketCheckpoints\.\w+ is new: is it an input, or with which \['bucket'\]"
    with pytest.raises(AssertionError, match=pattern):
        ask_everything(BucketCheckpoints(), {"segment": [0]}, SUBJECTS["BucketCheckpoints"].inputs)


def test_an_input_that_is_gone_says_so() -> None:
    with pytest.raises(AssertionError, match=r"ContiguousCursor has no inputs \['rewind'\]"):
        questions_of(ContiguousCursor, frozenset({"rewind"}))
