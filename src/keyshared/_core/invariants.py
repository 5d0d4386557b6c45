"""What must hold between any two calls: everything that the core keeps, recounted from the messages themselves."""

from typing import Final

from keyshared._checks import require
from keyshared._core.machine import Machine
from keyshared._core.records import (
    BLOCKED,
    DEAD_LETTERING,
    DELAYED,
    IN_FLIGHT,
    LOADING,
    QUEUED,
    SETTLED,
    SPILLED,
    Consumer,
    Entry,
    Lane,
    Place,
    holds_slot,
)
from keyshared._core.window import Window

__all__ = ["check_machine", "check_window"]

_TIMED: Final = (IN_FLIGHT, DELAYED, SPILLED, LOADING)
_KEY_LIMITS: Final = "max_in_flight_per_key, batch_per_key and limit_of"


def check_machine(machine: Machine) -> None:
    """Recount everything that a dispatcher keeps; raise `InvariantError` at the first contradiction. O(n)."""
    check_window(machine.window)
    _check_deadlines(machine)
    machine.membership.check_invariants()
    outbox, free = machine.outbox, machine.admission.free_slots
    require(outbox.reported == machine.window.cursor.safe_cursor, "the cursor that was reported is the cursor")
    require(outbox.paused or free, "there is a pause while there is no free slot")
    require(not outbox.paused or not machine.admission.is_roomy, "a pause ends with a quarter free")
    for feature in machine.features:
        feature.check_invariants()


def check_window(window: Window) -> None:
    """Recount everything that a window keeps; raise `InvariantError` at the first contradiction. O(n)."""
    window.cursor.check_invariants()
    entries = list(window.outstanding())
    lanes = {entry.lane: None for entry in entries}
    for lane in lanes:
        _check_lane(window, lane)
    require({lane.key: lane for lane in lanes if lane.key is not None} == window.lanes, "lanes are of outstanding keys")
    for consumer in window.consumers.values():
        _check_consumer(window, consumer, entries)
    _check_counts(window, entries)
    _check_places(window, lanes)
    for lane in lanes:
        if lane.key is not None and lane not in window.touched:
            _check_home(window, lane)
    window.rooms.check_invariants(consumer for consumer in window.consumers.values() if consumer.keyless)


def _entries_of(lane: Lane) -> list[Entry]:
    entries: list[Entry] = []
    entry, last = lane.head, None
    while entry is not None:
        require(entry.older is last, "a message knows the one before it in its lane")
        entries.append(entry)
        entry, last = entry.newer, entry
    require(lane.tail is last, "a lane knows its newest message")
    return entries


def _check_lane(window: Window, lane: Lane) -> None:
    entries, name = _entries_of(lane), f"lane {lane.key!r}"
    offsets = [entry.offset for entry in entries]
    require(bool(entries) and offsets == sorted(set(offsets)), f"{name} is in offset order")
    require(all(entry.lane is lane and entry.state != SETTLED for entry in entries), f"{name} has what is outstanding")
    require(lane.fresh is None or lane.fresh in entries, f"{name} knows its oldest message that never went out")
    fresh = entries.index(lane.fresh) if lane.fresh is not None else len(entries)
    delivered, waiting = entries[:fresh], entries[fresh:]
    require(all(entry.state != IN_FLIGHT for entry in waiting), f"{name} has nothing in flight behind fresh")
    require([e for e in delivered if e.state != IN_FLIGHT] == (lane.back or []), f"{name} knows what came back")
    went_out = [entry for entry in delivered if entry.offset not in window.beside]
    rule = lane.rule
    most = rule.limit if rule.batch == 1 else min(rule.batch, rule.limit)
    require(len(went_out) <= most, f"{name} never had more open than its limit, see {_KEY_LIMITS}")
    spilled = [entry for entry in waiting if entry.state == SPILLED]
    require(lane.spilled is (spilled[0] if spilled else None), f"{name} knows its oldest spilled message")
    opened = [entry for entry in entries if entry.state == IN_FLIGHT]
    require(len(opened) == lane.open, f"{name} counts its open deliveries")
    connected = lane.holder is not None and window.consumers.get(lane.holder.name) is lane.holder
    require(connected if opened else lane.holder is None, f"{name} has a holder while something of it is open")
    awaited = [entry for entry in entries if entry.state == LOADING and entry.consumer is not None]
    require(len(awaited) == (lane.taker is not None), f"{name} knows for which consumer a message is loaded")
    require(sum(map(holds_slot, entries)) == lane.loaded, f"{name} counts what is loaded")
    of_log = [entry for entry in entries if entry.offset not in window.beside]
    require(sum(map(holds_slot, of_log)) <= lane.rule.loaded, f"{name} is not loaded beyond max_loaded_per_key")


def _check_consumer(window: Window, consumer: Consumer, entries: list[Entry]) -> None:
    name = f"consumer {consumer.name!r}"
    mine = [entry for entry in entries if entry.consumer is consumer]
    opened = {entry.offset: entry for entry in mine if entry.state == IN_FLIGHT}
    reserved = {entry.offset: entry for entry in mine if entry.state == LOADING}
    require(opened == consumer.open, f"{name} knows its open deliveries")
    require(reserved == consumer.reserved, f"{name} knows its reservations")
    require(consumer.limit - len(opened) - len(reserved) == consumer.free, f"{name} counts its capacity")
    if consumer.free > 0 and (window.total is None or window.total.admits(consumer)):
        waiting = consumer.ready.head() if consumer.ready.lanes else None
        require(waiting is None, f"{name} has capacity, so nothing that is ready waits for it")
        require(not (consumer.keyless and window.keyless.lanes), f"{name} has capacity, so no keyless message waits")


def _check_counts(window: Window, entries: list[Entry]) -> None:
    loaded = sum(map(holds_slot, entries))
    opened = sum(entry.state == IN_FLIGHT for entry in entries)
    require(loaded == window.loaded, "loaded messages are counted")
    at_hand = loaded == len(entries) and all(entry.state != LOADING for entry in entries)
    require(window.spills or at_hand, "every payload is at hand where spill is False")
    of_log = [entry for entry in entries if entry.offset not in window.beside]
    spare = bool(of_log) and holds_slot(of_log[0])  # the lowest one may have a slot beyond the window
    require(loaded <= window.capacity + spare, "loaded messages fit the window")
    require(loaded - opened == window.waiting, "waiting messages are counted")
    require(len(entries) <= window.max_tracked + len(window.beside), "tracked messages fit max_tracked")
    for state in (DELAYED, DEAD_LETTERING, BLOCKED):
        require(sum(entry.state == state for entry in entries) == window.held[state], f"state {state} is counted")


def _check_places(window: Window, lanes: dict[Lane, None]) -> None:
    places: dict[Lane, Place] = {}
    numbers: list[int] = []
    for place in window.places():
        listed = list(place.items())
        require(all(lane not in places for lane, _ in listed), "a lane is in one place at most")
        places |= {lane: place for lane, _ in listed}
        require(listed == sorted(listed, key=_second), "what waits longer is served first")
        numbers += [number for _, number in listed]
    require(not window.orphaned.lanes, "no lane is ready for a consumer that has left")
    require(len(set(numbers)) == len(numbers), "every number of the order of waiting is taken once")
    require(all(number <= window.number for number in numbers), "the last number is known")
    require(places.keys() <= lanes.keys(), "places hold living lanes only")
    require(all(lane.place is places.get(lane) for lane in lanes), "a lane knows its place")
    is_fed = window.loaded >= window.capacity or window.touched.keys() >= window.starved.lanes.keys()
    require(is_fed, "nothing waits for memory while there is some")


def _second(listed: tuple[Lane, int]) -> int:
    return listed[1]


def _check_home(window: Window, lane: Lane) -> None:
    """Derive from the messages and the owners of now where a lane with a key belongs."""
    name, entry, place = f"lane {lane.key!r}", lane.next, lane.place
    asked = window.owners.owner(lane.key)  # type: ignore[arg-type]  # it has a key
    owner = None if asked is None else window.consumers.get(asked)
    require(window.owner_of(lane) is owner, f"{name} knows its owner of now, or nothing")
    if entry is None or entry.state not in (QUEUED, SPILLED) or entry.deadline is not None:
        require(place is None, f"{name} cannot go on, so it waits in no place")
    elif lane.key in window.quarantined:
        require(place in (None, window.starved), f"{name} is in quarantine, so it waits for no consumer")
    elif owner is None:
        require(place is window.ownerless, f"{name} waits for an owner")
    elif lane.open and lane.holder is not owner:
        require(place is window.draining, f"{name} drains exactly while another consumer is at work")
    elif lane.open >= lane.rule.turn:
        require(place is None, f"{name} waits for one of its own deliveries to end")
    else:
        closed = next((gate for refuses, gate in window.gates if refuses(lane, owner)), None)
        if closed is not None:
            require(place is closed, f"{name} waits where the gate that refuses it keeps it")
        else:
            require(place in (owner.ready, window.starved), f"{name} waits for its owner, or for memory")


def _check_deadlines(machine: Machine) -> None:
    timed = {id(running) for running in machine.timers.running()}
    for entry in machine.window.outstanding():
        name, state, note = f"message {entry.offset}", entry.state, entry.note
        require(entry.deadline is None or id(entry) in timed, f"{name} has a timer for its deadline")
        require(entry.deadline is None or state in _TIMED, f"{name} has a deadline while time ends its state")
        waits = state == DELAYED or (state == IN_FLIGHT and machine.config.ack_timeout_ms is not None)
        require(entry.deadline is not None or not waits, f"{name} waits until some time")
        if note is None:
            continue
        require(note.mark is None or state == IN_FLIGHT, f"{name} is marked while it is open")
        require(not note.failures or entry.lane.was_delivered(entry), f"{name} has failed, so it was delivered")
        require(not note.postponed or state == DELAYED, f"{name} is postponed while it is delayed")
        require(note.redriven == (entry.offset in machine.window.beside), f"{name} is beside the log if it came back")
        held = state in (DELAYED, DEAD_LETTERING, BLOCKED)
        require(held or not note.spilled, f"{name} is marked as spilled only where its state does not say so")
