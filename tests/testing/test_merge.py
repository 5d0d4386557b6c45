"""Logs of several processes become one history, by offsets and one clock with its error."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from tests.properties.driving import Fast
from tests.testing.recorded import recorded

from keyshared.testing import Claims, ClaimsError, MergeError, check_history, merge_histories
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Connected,
    Delivered,
    Event,
    Gone,
    Nacked,
    Owned,
    Published,
    Quiet,
    Released,
    Unclear,
)

FIRST = Claims(promises={"one-holder", "key-order", "no-loss", "fence"})


def published(*offsets: int, key: bytes = b"k", at_ms: int | None = None) -> list[Event]:
    return [Published(offset=offset, key=key, at_ms=at_ms) for offset in offsets]


def delivered(offset: int, consumer: str, at_ms: int | None, attempt: int = 1, key: bytes = b"k") -> Event:
    return Delivered(offset=offset, key=key, consumer=consumer, attempt=attempt, at_ms=at_ms)


def acked(offset: int, consumer: str, at_ms: int | None, attempt: int = 1) -> Event:
    return Acked(offset=offset, consumer=consumer, attempt=attempt, counted=True, at_ms=at_ms)


def kinds(history: Sequence[Event]) -> list[str]:
    return [f"{type(each).__name__} {getattr(each, 'offset', '')}".strip() for each in history]


def test_a_message_is_published_just_before_the_first_row_that_tells_of_it_or_a_newer_one() -> None:
    log = [delivered(1, "a", None), Committed(resume_offset=1), acked(0, "a", None), Committed(resume_offset=3)]
    merged = merge_histories([published(1, 3), published(2, 0)], [log])
    assert kinds(merged.history) == [
        *("Published 0", "Published 1", "Delivered 1", "Committed", "Acked 0", "Published 2", "Committed"),
        "Published 3",
    ]


def test_the_times_of_producers_are_not_later_than_what_tells_of_their_messages() -> None:
    merged = merge_histories([published(0, 1, at_ms=900)], [[delivered(0, "a", 5), Connected(consumer="a")]])
    assert [each.at_ms for each in merged.history] == [5, 5, None, 900]


def test_rows_of_several_logs_are_ordered_by_their_times() -> None:
    logs = [
        [delivered(0, "a", 0), Released(offset=0, consumer="a", attempt=1, at_ms=10)],
        [delivered(0, "b", 30, 2), acked(0, "b", 40, 2), AtRest()],
    ]
    merged = merge_histories([published(0)], logs, FIRST, clock_error_ms=5)
    assert kinds(merged.history) == ["Published 0", "Delivered 0", "Released 0", "Delivered 0", "Acked 0", "AtRest"]
    assert check_history(merged.history, merged.claims) == []


def test_a_row_without_a_time_was_when_the_one_before_it_was() -> None:
    log: list[Event] = [delivered(0, "a", 7), acked(0, "a", None)]
    merged = merge_histories([published(0, 1)], [log, [delivered(1, "b", 9)]], FIRST, clock_error_ms=1)
    assert kinds(merged.history)[1:3] == ["Delivered 0", "Acked 0"]


def overlap(apart_ms: int, error_ms: int) -> list[str]:
    """Two deliveries of one message at two consumers, so many milliseconds after the end of the first one."""
    logs = [[delivered(0, "a", 0), acked(0, "a", 100)], [delivered(1, "b", 100 + apart_ms)]]
    merged = merge_histories([published(0, 1)], logs, FIRST, clock_error_ms=error_ms)
    found = [str(each.promise) for each in check_history(merged.history, merged.claims)]
    return [*found, *kinds([each for each in merged.history if isinstance(each, Unclear)])]


@pytest.mark.parametrize(
    ("apart_ms", "error_ms", "found"),
    [
        (-50, 10, ["one-holder"]),
        (-50, 0, ["one-holder"]),
        (50, 10, []),
        (-5, 10, ["Unclear 1"]),
        (5, 10, ["Unclear 0"]),
        (0, 0, ["Unclear 0"]),
    ],
)
def test_what_is_closer_than_the_error_is_not_judged(apart_ms: int, error_ms: int, found: list[str]) -> None:
    assert overlap(apart_ms, error_ms) == found


def test_other_keys_and_units_do_not_matter_to_each_other() -> None:
    logs = [[delivered(0, "a", 0), acked(0, "a", 5)], [delivered(1, "b", 4, key=b"l")]]
    messages = [*published(0), *published(1, key=b"l")]
    assert "Unclear 0" not in kinds(merge_histories([messages], logs, FIRST, clock_error_ms=10).history)
    claims = Claims(promises={"one-holder"}, unit_of=lambda _: "all")
    assert "Unclear 0" in kinds(merge_histories([messages], logs, claims, clock_error_ms=10).history)
    claims = Claims(promises={"one-holder"}, total_order=True)
    assert "Unclear 0" in kinds(merge_histories([messages], logs, claims, clock_error_ms=10).history)
    keyless: list[Event] = [Published(offset=0), Published(offset=1)]
    logs = [[Delivered(offset=place, consumer=name, attempt=1, at_ms=0)] for place, name in enumerate("ab")]
    assert kinds(merge_histories([keyless], logs, FIRST, clock_error_ms=10).history).count("Unclear 0") == 0


@pytest.mark.parametrize(
    ("other", "unclear"),
    [
        (Gone(consumer="a", at_ms=51), ["Unclear 0"]),
        (Gone(consumer="b", at_ms=51), []),
        (Owned(key=b"k", consumer="b", at_ms=49), ["Unclear 0"]),
        (Owned(key=b"l", consumer="b", at_ms=49), []),
        (Committed(resume_offset=1, at_ms=49), ["Unclear 0"]),
        (Committed(resume_offset=0, at_ms=49), []),
        (Committed(resume_offset=1, at_ms=90), []),
    ],
)
def test_what_others_tell_matters_where_it_is_close(other: Event, unclear: list[str]) -> None:
    log = [delivered(0, "a", 0), acked(0, "a", 50)]
    claims = Claims(promises={"safe-cursor", "affinity", "no-loss"})
    merged = merge_histories([published(0)], [log, [other]], claims, clock_error_ms=5)
    assert [each for each in kinds(merged.history) if each.startswith("Unclear")] == unclear
    is_of_member = isinstance(other, Gone)
    assert ["affinity"] * is_of_member == [str(each.promise) for each in merged.unjudged]
    assert [] == [each for each in check_history(merged.history, merged.claims) if each.promise != "affinity"]


def test_a_moment_of_quiet_is_none_if_something_else_was_as_close() -> None:
    log = [delivered(0, "a", 0), acked(0, "a", 50)]
    for at_ms, count in ((52, 0), (58, 1)):
        merged = merge_histories([published(0)], [log, [Quiet(at_ms=at_ms)]], FIRST, clock_error_ms=5)
        assert kinds(merged.history).count("Quiet") == count


def test_promises_about_all_consumers_at_once_need_one_log() -> None:
    claims = Claims(promises={"fairness", "bounds"}, fairness=0, open_at_once=1, max_tracked=1)
    merged = merge_histories([], [[delivered(0, "a", 0)], [delivered(1, "b", 0, key=b"l")]], claims, clock_error_ms=0)
    assert {"fairness"} == {str(each.promise) for each in merged.unjudged}
    assert (None, None, {"bounds"}) == (
        merged.claims.open_at_once,
        merged.claims.max_tracked,
        set(merged.claims.promises),
    )
    alone = merge_histories([], [[delivered(0, "a", 0)], []], claims)
    assert (alone.claims, alone.unjudged) == (claims, ())


@pytest.mark.parametrize(
    ("producers", "consumers", "options", "problem"),
    [
        ([["none"]], [], {}, r"producers\[0\] #0 'none'"),
        ([[Quiet()]], [], {}, "be Published, or stand in a log of a consumer"),
        ([published(0), published(0)], [], {}, "have offsets of their own"),
        ([], [[Quiet()], [Quiet()]], {}, r"give clock_error_ms: consumers\[0\] #0 Quiet\(\); consumers\[1\]"),
        ([], [[Quiet(at_ms=1)], [Quiet()]], {"clock_error_ms": 1}, "have a time"),
    ],
)
def test_logs_of_which_no_history_can_be_made_are_refused(
    producers: Any, consumers: Any, options: Any, problem: str
) -> None:
    with pytest.raises(MergeError, match=problem):
        merge_histories(producers, consumers, **options)


def test_a_negative_error_is_refused() -> None:
    with pytest.raises(ClaimsError, match="clock_error_ms is -1"):
        merge_histories([], [], clock_error_ms=-1)


def split(history: Sequence[Event], random: Random, error_ms: int) -> tuple[list[Event], list[list[Event]]]:
    """What a producer, the consumers and the broker would have written of a history, by clocks of their own."""
    logs: dict[str, list[Event]] = {"broker": []}
    clocks = {name: random.randint(0, error_ms) for name in ("x", "y", "z", "w", "v", "u", "t", "broker")}
    producer: list[Event] = []
    for place, each in enumerate(history):
        if isinstance(each, Published):
            producer.append(Published(offset=each.offset, key=each.key))
            continue
        of_consumer = isinstance(each, Delivered | Acked | Nacked)
        name = each.consumer if isinstance(each, Delivered | Acked | Nacked) else "broker"
        if of_consumer or not isinstance(each, Quiet):
            fields = {field: getattr(each, field) for field in type(each).__dataclass_fields__}
            logs.setdefault(name, []).append(type(each)(**fields | {"at_ms": 100 * place + clocks[name]}))
    return producer, list(logs.values())


@pytest.mark.no_cover
def test_no_correct_dispatcher_is_accused_by_its_logs() -> None:
    judged = 0
    for seed in range(60):
        random = Random(seed)
        claims, history = recorded(Fast, seed, 40)
        error_ms = random.choice([10, 150, 400])
        claims = Claims(
            promises=FIRST.promises,
            per_key=claims.per_key,
            total_order=claims.total_order,
            limit_of=claims.limit_of,
            latest_only=claims.latest_only,
            may_drop=True,
            may_skip=True,
            may_dead_letter=True,
        )
        producer, consumers = split(history, random, error_ms)
        merged = merge_histories([producer], consumers, claims, clock_error_ms=error_ms)
        assert check_history(merged.history, merged.claims) == [], (seed, error_ms)
        judged += Unclear not in {type(each) for each in merged.history}
    assert judged > 5
