"""Whatever is passed to a public callable: a `TypeError` or an error of the library comes out, and nothing has changed.

Every public callable of `public_calls` is called with every odd value of `hostile` in the place of each argument.
"""

import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from itertools import islice
from typing import Any

import pytest
from tests.hostile import ODD
from tests.public_calls import BUILD, REFUSED, Call, public_calls

from keyshared.buckets import BucketLayout, BucketPlacement, imbalance, refit_all
from keyshared.config import GroupLimits
from keyshared.errors import ArgumentError, ConfigError, InvariantError, KeySharedError
from keyshared.offsets import required_margin
from keyshared.placement import RangeMap, gained, lost
from keyshared.segments import SegmentMap, SegmentProgress
from keyshared.testing import ClaimsError, HistoryError, HistoryFileError, MergeError, UnsupportedError

CALLS = {call.name: call for call in public_calls()}
ALLOWED = (TypeError, KeySharedError, ClaimsError, HistoryError, HistoryFileError, MergeError, UnsupportedError)

# What makes a configuration or a policy. A placement takes settings, and names, ranges and loads as well.
CONFIGURATIONS = frozenset(
    [
        *(
            "config.dispatcher.DispatcherConfig",
            "leases.config.LeaseConfig",
            "config.limits.LookAhead",
            "config.retry.RetryPolicy",
            "config.limits.KeySessions",
        ),
        *("buckets.batcher.BatchLimits", "segments.autoscale.AutoScale"),
        *("copyflags.BigEndian", "copyflags.FlagsHeader", "distribution.distributor.Distributor"),
        *("offsets.translate.OffsetDistributor", "offsets.translate.OffsetCommitter", "hashing.KeyHash"),
        *("hashing.pulsar_ring_hash", "hashing.pulsar_range_hash"),
        *(
            "config.limits.GroupLimits",
            "config.dispatcher.Rules",
            "simulate.group.Group",
            "simulate.group.SimulatedConsumer",
        ),
        *("simulate.service.Fixed", "simulate.service.PerMessage", "simulate.service.Sampled"),
        *("simulate.service.Scaled", "simulate.service.Poisoned", "simulate.service.FailFirst"),
        *("simulate.service.SampledAnswers", "run.values.RunnerConfig", "run.values.Hooks"),
    ]
)
PLACEMENTS = re.compile(
    r"(buckets\.placement\.BucketPlacement|placement\.\w+\.(AssignedRanges|AutoSplit|ExclusiveRanges)|ring\.HashRing)"
    r"(\.(by_load|celeriant|danube|from_ranges|pulsar))?"
)
SETTINGS = frozenset(
    [
        *("key_hash", "layout", "points", "range_size", "separator"),
        *("slot_bits", "strict_overlap", "unowned", "vnodes"),
    ]
)

every_call = pytest.mark.parametrize("name", sorted(CALLS))


def run(call: Call, subject: object, odd: dict[str, object]) -> object:
    """Call it, with right arguments but for the odd ones, and take what an iterator would give."""
    given = odd | {name: make() for name, make in call.arguments.items() if make is not None and name not in odd}
    places = [given.pop(name) for name in call.arguments if name in call.positional and name in given]
    answer = call.call(*([] if call.build is None else [subject]), *places, **given)
    return list(islice(answer, 100)) if isinstance(answer, Iterator) else answer


def state_of(subject: Any) -> object:
    """What can be compared of an object before and after a call."""
    try:
        return pickle.dumps(subject)
    except (TypeError, AttributeError, pickle.PicklingError):
        return subject.snapshot() if hasattr(subject, "snapshot") else None


class Subjects:
    """Whom a call is tried on: one object for many calls, as long as they are refused and leave it as it was."""

    def __init__(self, call: Call) -> None:
        self.build = call.build or (lambda: None)
        self.is_spent = True

    def next(self) -> Any:
        """The object for the next call."""
        if self.is_spent:
            self.subject = self.build()
            self.state = state_of(self.subject)
        self.is_spent = True
        return self.subject

    def is_changed(self) -> bool:
        """Whether the call has changed what can be compared; if not, the next call may have the same object."""
        changed = self.state != state_of(self.subject)
        self.is_spent = changed or self.state is None
        return changed


def complaints(call: Call, tried: Subjects, parameter: str, odd: str, value: object) -> Iterator[str]:
    what = f"{call.name}({parameter}={odd})"
    subject = tried.next()
    try:
        answer: Any = run(call, subject, {parameter: value})
    except InvariantError as error:
        yield f"{what} breaks an invariant: {error}"
    except ALLOWED as error:
        if type(error) in {ArgumentError, ConfigError}:
            wanted = ConfigError if configures(call, parameter) else ArgumentError
            if type(error) is not wanted:
                yield f"{what} raises no {wanted.__name__}"
        if type(error) is TypeError and "object expected; got" in str(error):
            yield f"{what} is refused by the compiler: {error}"
        if tried.is_changed():
            yield f"{what} raises and has changed something"
    except Exception as error:  # noqa: BLE001 - what comes out is the question
        yield f"{what} raises {type(error).__name__}"
    else:
        for made in (subject, answer):
            yield from unsound(what, made)


def configures(call: Call, parameter: str) -> bool:
    """Whether what is given there is a field of a configuration."""
    setting = parameter in SETTINGS and PLACEMENTS.fullmatch(call.name) is not None
    limit = call.name.endswith(".set_group") and parameter in {each.name for each in fields(GroupLimits)}
    return setting or limit or call.name in CONFIGURATIONS


def unsound(what: str, made: Any) -> Iterator[str]:
    """What was taken, although it is of no use."""
    if not hasattr(type(made), "check_invariants"):
        return
    try:
        made.check_invariants()
    except Exception as error:  # noqa: BLE001 - as above
        yield f"{what} is taken, and then {type(error).__name__}: {error}"


@every_call
def test_right_arguments_are_taken(name: str) -> None:
    call = CALLS[name]
    subject = call.build() if call.build else None

    if name in REFUSED:
        with pytest.raises(KeySharedError):
            run(call, subject, {})
    else:
        run(call, subject, {})


@pytest.mark.no_cover
@every_call
def test_odd_arguments_are_refused_by_name_and_change_nothing(name: str) -> None:
    call = CALLS[name]
    tried = Subjects(call)

    assert [] == [
        complaint
        for parameter in call.arguments
        for odd, make in ODD
        for complaint in complaints(call, tried, parameter, odd, make())
    ]


def test_every_object_that_can_be_built_has_public_callables() -> None:
    assert set() == {name for name in BUILD if not any(call.startswith(f"{name}.") for call in CALLS)}


def test_every_configuration_that_is_named_has_arguments() -> None:
    """A name of nothing would hold nothing."""
    assert CALLS.keys() >= CONFIGURATIONS
    assert 10 <= sum(PLACEMENTS.fullmatch(name) is not None for name in CALLS)


LAYOUT = BucketLayout.equal_width(2)
MAP = SegmentMap.equal_width(2)
SEVERAL: list[tuple[str, Callable[[Any], object]]] = [
    ("drained", lambda odd: SegmentProgress(MAP, drained=odd)),
    ("segments", SegmentMap),
    ("drained", MAP.readable),
    ("starts", BucketLayout),
    ("ranges", BucketLayout.from_ranges),
    ("messages", LAYOUT.split),
    ("loads", lambda odd: BucketPlacement.by_load(LAYOUT, odd)),
    ("entries", lambda odd: refit_all(odd, LAYOUT)),
    ("loads", imbalance),
    ("assignments", RangeMap),
    ("stops", lambda odd: RangeMap.from_stops(odd, ["a"])),
    ("moves", gained),
    ("moves", lost),
    ("unprocessed_epoch_ms", lambda odd: required_margin(5, odd)),
]


@pytest.mark.parametrize("odd", [None, 5, "text"], ids=repr)
@pytest.mark.parametrize("place", range(len(SEVERAL)), ids=lambda place: f"{place} {SEVERAL[place][0]}")
def test_what_is_no_collection_is_refused_by_name(place: int, odd: Any) -> None:
    name, call = SEVERAL[place]
    with pytest.raises(ArgumentError, match=f"{name} is {odd!r}; it must be a collection of"):
        call(odd)


@pytest.mark.parametrize("odd", [None, 5])
def test_owners_come_in_a_collection_or_as_letters(odd: Any) -> None:
    with pytest.raises(ArgumentError, match=f"owners is {odd}; it must be a collection of names"):
        RangeMap.from_stops([65_536], odd)
