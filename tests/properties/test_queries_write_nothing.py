"""No query writes anything: whoever is asked everything between all calls does what a twin does that is asked nothing.

The dispatcher has schedules of its own in `test_drains` and `test_dispatcher_oracle`; here are the other classes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.asking import ask_everything, questions_of
from tests.properties.schedules import Choose

from keyshared.buckets import BatchLimits, BatchMessage, BucketBatcher, BucketLayout
from keyshared.cursor import ContiguousCursor, OfferAnswer
from keyshared.draining import DrainingHashes
from keyshared.draintracker import DrainTracker
from keyshared.effects import CursorAdvanced
from keyshared.errors import KeySharedError
from keyshared.leases import LeaseConfig, LeaseQueue
from keyshared.pendingacks import PendingAcks
from keyshared.placement import AssignedRanges, AutoSplit
from keyshared.ranges import HashRange, RangeMap
from keyshared.ring import HashRing
from keyshared.segments import SegmentMap, SegmentProducer, SegmentProgress

LENGTH = 40
NAMES = ("ann", "bob", "cat")
OWNERS = tuple(
    RangeMap([(HashRange(0, stop), one), (HashRange(stop, 4), other)], slot_bits=2)
    for stop, one, other in ((2, "ann", "bob"), (1, "bob", "ann"), (3, "cat", "ann"))
)

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Subject:
    """A class, what changes it, what to ask it, and the calls that may come next."""

    make: Callable[[], Any]
    inputs: frozenset[str]
    calls: Callable[[Choose, int], Sequence[Call]]
    arguments: Mapping[str, Sequence[Any]]


def call(name: str, *args: Any, **kwargs: Any) -> Call:
    return name, args, kwargs


def of_leases(choose: Choose, step: int) -> list[Call]:
    name, known = choose(NAMES), choose(range(max(step, 1)))
    later = {"now_ms": 3 * step}
    return [
        *[call("offer", step, choose(["a", "b", None]), **later)] * 4,
        *[call("consume", name, choose([1, 3]), **later), call("plan", name, 2, **later)] * 2,
        *[call("commit", choose(range(1, 6))), call("abort", choose(range(1, 6)))],
        *[call("ack", known, choose(range(1, 9)), **later)] * 2,
        *[call("nack", known, choose(range(1, 9))), call("extend", known, choose(range(1, 9)), 50)],
        *[call("add_consumer", name), call("remove_consumer", name, finish=choose([True, False]))],
        *[call("dead_lettered", known), call("loaded", known), call("park", known), call("unblock", known)],
        *[call("gone", known), call("truncate", known), call("handle_timeout", **later), call("unblock_key", "a")],
    ]


def of_cursor(choose: Choose, step: int) -> list[Call]:
    known = choose(range(step + 1))
    return [
        call("offer", 2 * step),
        call("settle", 2 * known),
        call("settle_many", range(known)),
        call("skip", 2 * step),
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
        *[call("remove", position), call("remove_matching", position, slot, 1), call("reduce_remaining", position, 1)],
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
    layout = BucketLayout.equal_width(choose([1, 2, 4]))
    return [
        *[call("add", message(choose, step), now_ms=step)] * 5,
        *[call("flush"), call("handle_timeout", now_ms=step), call("set_layout", layout), call("take_open")],
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


def of_placement(choose: Choose, step: int) -> list[Call]:  # noqa: ARG001  # as the others
    name = choose(NAMES)
    return [call("add", name, weight=choose([1, 2])), call("remove", name), call("set_weight", name, choose([1, 3]))]


def inputs(*names: str) -> frozenset[str]:
    return frozenset(names)


PLACED: Mapping[str, Sequence[Any]] = {"key": ["a", b"b"], "name": ["ann"], "n": [2], "weight": [1]}
CHANGES_OWNERS = inputs("add", "remove", "set_weight")
SLOTS: Mapping[str, Sequence[Any]] = {"hash_": [0, 3], "consumer": [*NAMES, "nobody"]}
SUBJECTS = {
    "LeaseQueue": Subject(
        lambda: LeaseQueue(
            HashRing(), LeaseConfig(visibility_timeout_ms=20, reservation_timeout_ms=10, window=16)
        ),
        inputs(
            *("offer", "forget_producer", "add_consumer", "remove_consumer", "set_placement", "plan", "commit"),
            *("abort", "consume", "ack", "ack_many", "nack", "extend", "dead_lettered", "loaded", "park", "unblock"),
            *("unblock_key", "gone", "truncate", "handle_timeout"),
        ),
        of_leases,
        {"wanted": [0, 5, 99], "version": [0, 5, 99], "consumer": NAMES, "effect": [CursorAdvanced(1)]},
    ),
    "ContiguousCursor": Subject(
        ContiguousCursor,
        inputs("append", "close", "go_on", "offer", "pass_to", "recall", "settle", "settle_many", "skip"),
        of_cursor,
        {"offset": [0, 4, 9]},
    ),
    "DrainingHashes": Subject(
        DrainingHashes,
        inputs("add", "reduce", "should_block", "start_batch", "end_batch", "clear", "consumer_removed"),
        of_draining,
        {**SLOTS, "consumer": [None, *NAMES]},
    ),
    "PendingAcks": Subject(
        PendingAcks,
        inputs("add", "remove", "remove_matching", "reduce_remaining", "remove_up_to", "remove_hash", "clear", "close"),
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
        inputs("add", "flush", "handle_timeout", "set_layout", "take_open"),
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
    name, args, kwargs = step
    try:
        return told(getattr(subject, name)(*args, **kwargs))
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
        ask_everything(asked, known.arguments, known.inputs)
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
    """A query that moves something: every search is remembered, and the third one is an answer of its own."""

    asked = 0

    def find(self, offset: int) -> Any:
        self.asked += 1
        return super().find(offset)

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


@pytest.mark.parametrize(
    ("name", "broken"), [("ContiguousCursor", _CountsQuestions), ("DrainingHashes", _HandsOutItsOwn)]
)
def test_a_query_that_writes_or_hands_out_its_own_books_is_found(name: str, broken: type) -> None:
    known = SUBJECTS[name]
    subject = Subject(broken, known.inputs, known.calls, known.arguments)
    with pytest.raises(AssertionError):
        sum(compare(subject, Random(seed).choice) for seed in range(20))  # as above


def test_a_query_that_needs_something_new_says_so() -> None:
    with pytest.raises(
        AssertionError, match=r"LeaseQueue\.trimmable is new: is it an input, or with which \['wanted'\]"
    ):
        ask_everything(
            LeaseQueue(HashRing()), {"version": [0], "consumer": ["ann"], "effect": []}, SUBJECTS["LeaseQueue"].inputs
        )


def test_an_input_that_is_gone_says_so() -> None:
    with pytest.raises(AssertionError, match=r"ContiguousCursor has no inputs \['rewind'\]"):
        questions_of(ContiguousCursor, frozenset({"rewind"}))
