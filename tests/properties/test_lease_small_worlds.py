"""All states of lease queues so small that all of them can be visited: each keeps its promises, and has a way out."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.leasing import count_held, lease_config, letters
from tests.properties.lease_host import RANKS, Call, Host, bring_to_an_end, fulfil
from tests.properties.slow_groups import GROUP_RULES

from keyshared._core.groups import Groups
from keyshared._core.outbox import Outbox
from keyshared._core.records import SPILLED, Consumer, Entry
from keyshared._core.window import Window
from keyshared.config import DrainUnit, GroupLimits, Poison
from keyshared.effects import Done, Effect
from keyshared.leases import LeaseConfig

Inputs = Callable[[Host], Iterator[Call]]
RANGES = letters({"a-m": "x", "n-z": "y"})
MOVED = letters({"a-b": "x", "c-z": "y"})


def ask(host: Host) -> Iterator[Call]:
    for name in host.consumers:
        yield Call("consume", (name, 1))


def ask_for_more(host: Host) -> Iterator[Call]:
    for name in host.consumers:
        yield Call("consume", (name, 3))


def through(host: Host) -> Iterator[Call]:
    for lease in host.leases:
        for handle in lease.handles:
            yield Call("ack_through", handle)


def answer(host: Host) -> Iterator[Call]:
    yield from map(fulfil, host.obligations)
    for lease in host.leases:
        for handle in lease.handles:
            yield Call("ack", handle)
            yield Call("nack", handle)


def later(host: Host) -> Iterator[Call]:
    for lease in host.leases:
        for handle in lease.handles:
            yield Call("release", handle, options=(("delay_ms", 7),))
            yield Call("reject", handle)


def reserve(host: Host) -> Iterator[Call]:
    for name in host.consumers:
        yield Call("reserve", (name, 2))
    for reservation in host.queue.reservations():
        yield Call("commit", (reservation.id,))
        yield Call("abort", (reservation.id,))


def wait(host: Host) -> Iterator[Call]:
    if (due := host.queue.next_deadline_ms()) is not None:
        yield Call("handle_timeout", (), max(due - host.now, 0))


def late(host: Host) -> Iterator[Call]:
    """Something is said of a message at the instant at which its lease ends."""
    if (due := host.queue.next_deadline_ms()) is not None:
        for offset, _ in host.messages():
            yield Call("gone", (offset,), max(due - host.now, 0))


def free(host: Host) -> Iterator[Call]:
    for offset in host.blocked():
        yield Call("park", (offset,))
        yield Call("unblock_offset", (offset,))


def expire(host: Host) -> Iterator[Call]:
    for offset, _ in host.messages():
        yield Call("gone", (offset,))


def leave(host: Host) -> Iterator[Call]:
    for name in ("x", "y"):
        if name in host.consumers:
            yield Call("remove_consumer", (name,))
        elif name not in count_held(host.queue):
            yield Call("add_consumer", (name,))


def move(host: Host) -> Iterator[Call]:
    if set(host.consumers) == {"x", "y"}:
        yield Call("set_placement", (MOVED if host.ranges is RANGES else RANGES,))


def redrive(host: Host) -> Iterator[Call]:
    for offset, key in host.settled_with_a_key() if host.queue.free_slots else []:
        yield Call("redrive", (key, [(offset, 0, None)]))


def pause(host: Host) -> Iterator[Call]:
    paused = {group.name for group in host.queue.groups() if group.paused}
    yield Call("resume_group" if "" in paused else "pause_group", ("",))


def crash(_: Host) -> Iterator[Call]:
    yield Call("crash")


def config(**other: Any) -> LeaseConfig:
    """Two slots, no holes: less would be no queue."""
    chosen = {
        "ack_timeout_ms": 20,
        "reservation_timeout_ms": 5,
        "max_delivery_attempts": None,
        "max_ack_holes": 0,
        "window": 2,
        "max_tracked": 10,
    }
    return lease_config(**{**chosen, **other})


LAST = {"max_delivery_attempts": 1}
MOST = 5_000  # states of a world; where there are more, something that only rises is taken for a part of the state
WORLDS: dict[str, tuple[str, LeaseConfig, tuple[Inputs, ...]]] = {
    "one key more than slots": ("abc", config(), (ask, answer)),
    "two keys more than slots": ("abcd", config(), (ask, answer)),
    "two consumers": ("aobpo", config(), (ask, answer)),
    "no keys": ("---", config(), (ask, answer)),
    "two of a key": ("aabab", config(max_in_flight_per_key=2, max_loaded_per_key=2), (ask, answer)),
    "one of a key in memory": ("aabbc", config(max_loaded_per_key=1, window=3), (ask, answer)),
    "one hole": ("abcde", config(max_ack_holes=1, max_tracked=4), (ask, answer)),
    "reservations": ("aboa", config(max_in_flight=2), (ask, reserve, wait)),
    "expiry": ("aob", config(max_in_flight_per_consumer=1), (ask, answer, expire)),
    "an end within the call": ("abcb", config(poison=Poison.DEAD_LETTER, **LAST), (ask, late, wait, answer)),
    "dead letters": ("abcb", config(poison=Poison.DEAD_LETTER, **LAST), (ask, answer)),
    "quarantine": ("ababc", config(poison=Poison.DEAD_LETTER, quarantine=True, **LAST), (ask, answer)),
    "batches": ("aaab", config(batch_per_key=2, max_loaded_per_key=2, window=3), (ask_for_more, answer, through)),
    "batches that move": (
        "aab",
        config(batch_per_key=2, max_loaded_per_key=2),
        (ask_for_more, reserve, answer, move, leave),
    ),
    "batches in one line": (
        "abcde",
        config(ordering_required=True, poison=Poison.BLOCK, batch_per_key=2, max_loaded_per_key=2),
        (ask_for_more, answer, through, wait, crash),
    ),
    "later": ("aab", config(poison=Poison.DEAD_LETTER), (ask, answer, later, wait)),
    "blocked": ("bcb", config(poison=Poison.BLOCK, archive_blocked=True, **LAST), (ask, answer, free)),
    "blocked with room": ("abcb", config(poison=Poison.BLOCK, archive_blocked=True, **LAST), (ask, answer, free)),
    "consumers come and go": ("aob", config(), (ask, answer, leave)),
    "keys move": ("acb", config(), (ask, answer, move)),
    "runs move": ("acb", config(unit=DrainUnit.RANGE), (ask, answer, move)),
    "settlement": (
        "abcbd",
        config(tell_settled=True, poison=Poison.DROP, **LAST),
        (ask, answer, late, wait, crash),
    ),
    "crashes": ("abcde", config(), (ask, answer, crash)),
    "letters": (
        "aab",
        config(redrive=True, poison=Poison.DEAD_LETTER, tell_settled=True, max_ack_holes=None, **LAST),
        (ask, answer, redrive),
    ),
    "letters behind reservations": (
        "aa",
        config(redrive=True, max_ack_holes=None, max_in_flight_per_key=2, max_loaded_per_key=2),
        (ask, reserve, answer, wait, redrive),
    ),
    "letters and crashes": ("aab", config(redrive=True, max_ack_holes=None), (ask, answer, crash, redrive)),
    "only the latest": (
        "aabaa",
        config(latest_only=True, max_ack_holes=None, tell_settled=True, max_loaded_per_key=1),
        (ask, reserve, answer, wait),
    ),
    "the latest and letters": (
        "aaba",
        config(latest_only=True, redrive=True, max_ack_holes=None, poison=Poison.DEAD_LETTER, **LAST),
        (ask, answer, redrive),
    ),
    "tenants": (
        "aco",
        config(max_ack_holes=None, group=GroupLimits(max_in_flight=1)),
        (ask, answer, pause),
    ),
    "tenants that reserve": ("acb", config(max_ack_holes=None), (reserve, answer, pause, wait, crash)),
    "one line": (
        "abc",
        config(ordering_required=True, poison=Poison.BLOCK, max_in_flight_per_key=2),
        (ask, answer, reserve),
    ),
}
BIG = {
    *("two consumers", "one hole", "quarantine", "consumers come and go", "crashes", "batches that move"),
    *("tenants that reserve", "two keys more than slots", "blocked with room"),
}
"""More than a thousand states each; `test_lease_schedules` meets what they are about by chance every time."""


def explore(keys: str, config: LeaseConfig, inputs: tuple[Inputs, ...]) -> int:
    """Depth first over all inputs until there is no new state; how many there are."""
    start = Host(config, RANGES, GROUP_RULES if pause in inputs else None)
    for name in ("x", "y"):
        start.make(Call("add_consumer", (name,)))
    seen = {start.identity()}
    can_be_emptied: set[str] = set()
    todo = [start]
    while todo:
        host = todo.pop()
        calls = [call for some in inputs for call in some(host)]
        if host.offered < len(keys) and host.queue.free_slots:
            key = keys[host.offered]
            calls.append(Call("offer", (host.offered, None if key == "-" else key)))
        fork = host.forks()
        for call in calls:
            after = fork()
            after.make(call)
            if (identity := after.identity()) not in seen:
                seen.add(identity)
                todo.append(after)
        assert len(seen) <= MOST, f"{host.identity()} is one of ever more states"
        bring_to_an_end(host, can_be_emptied)
    return len(seen)


@pytest.mark.parametrize(
    "world", [pytest.param(world, marks=[pytest.mark.slow] if world in BIG else []) for world in WORLDS]
)
def test_every_state_of_a_small_queue_keeps_its_promises_and_can_be_emptied(world: str) -> None:
    assert explore(*WORLDS[world]) > 150


@pytest.mark.interpreted("changes a method of a class")
def test_a_settlement_that_a_later_step_of_the_call_loses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    merge = Outbox.merge

    def last_one_wins(outbox: Outbox, calls: list[list[Effect]], settled: Any = None) -> list[Effect]:
        first, last = calls
        return merge(outbox, [[effect for effect in first if not last or not isinstance(effect, Done)], last], settled)

    monkeypatch.setattr(Outbox, "merge", last_one_wins)
    with pytest.raises(AssertionError, match="not all that is settled is told"):
        explore(*WORLDS["settlement"])


@pytest.mark.interpreted("changes a method of a class")
def test_a_window_without_a_slot_for_the_lowest_message_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_out = Window.hand_out

    def wait_for_a_slot(window: Window, entry: Entry, consumer: Consumer, *, past_quotas: bool = False) -> None:
        if entry.state != SPILLED or window.loaded < window.capacity:
            hand_out(window, entry, consumer, past_quotas=past_quotas)

    monkeypatch.setattr(Window, "hand_out", wait_for_a_slot)
    with pytest.raises(AssertionError, match="for ever"):
        explore(*WORLDS["two of a key"])


@pytest.mark.interpreted("changes a method of a class")
def test_an_answer_that_asks_for_what_has_ended_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_order(_: Any, calls: list[list[Effect]]) -> list[Effect]:
        return sorted((effect for call in calls for effect in call), key=lambda effect: RANKS.get(type(effect), 0))

    monkeypatch.setattr(Outbox, "merge", in_order)
    with pytest.raises(AssertionError, match="are over already"):
        explore(*WORLDS["an end within the call"])


@pytest.mark.interpreted("changes a method of a class")
def test_a_group_that_opens_and_wakes_nobody_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Window, "_serve_remembered", lambda *_: None)
    monkeypatch.setattr(Groups, "check_invariants", lambda _: None)
    with pytest.raises(AssertionError, match="for ever"):
        explore(*WORLDS["tenants"])
