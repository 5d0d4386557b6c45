"""What must hold between any two calls: the window's books recounted from the messages themselves."""

from collections.abc import Iterator
from itertools import starmap
from typing import Final

from keyshared._checks import require
from keyshared._window.books import WindowBooks
from keyshared._window.lanes import SLACK, Alone, Consumer, Entry, Lane, ReadyList, State, WorkList, place_of
from keyshared.errors import InvariantError

__all__ = ["check_window"]

_DELIVERED_STATES: Final = frozenset(
    {State.QUEUED, State.IN_FLIGHT, State.DELAYED, State.DEAD_LETTERING, State.BLOCKED}
)
_KEY_LIMITS: Final = "max_in_flight_per_key, batch_per_key and limit_of"
# A quarantine archives what was never delivered, and whoever archives may block what they archived.
_FRESH_STATES: Final = frozenset(
    {State.QUEUED, State.SPILLED, State.LOADING, State.DELAYED, State.DEAD_LETTERING, State.BLOCKED}
)


def check_window(window: WindowBooks) -> None:
    """Recount everything that the window keeps; raise `InvariantError` at the first contradiction."""
    window.cursor.check_invariants()
    entries = window.outstanding()
    lanes = _lanes_of(entries)
    for lane in lanes:
        _check_lane(window, lane)
    alone = [entry for entry in entries if entry.lane.head is None]
    for entry in alone:
        _check_alone(window, entry)
    keyed: dict[bytes | None, Lane | Entry] = {lane.key: lane for lane in lanes if lane.key is not None}
    require(not any(entry.key in keyed for entry in alone), "what has no lane is alone")
    keyed |= {entry.key: entry for entry in alone}
    require(keyed == window.lanes, "lanes are exactly the keys that have outstanding messages")
    for consumer in window.consumers.values():
        _check_consumer(window, consumer, entries)
    _check_counts(window, entries)
    _check_lists(window, lanes)
    _check_places(window, lanes, entries)
    if window._counts is not None:
        opened = [entry for entry in entries if entry.state == State.IN_FLIGHT]
        with_key = [lane for lane in lanes if lane.key is not None]
        window._counts.check_invariants(window._version, with_key, opened, window.draining)
    window._rooms.check_invariants(consumer for consumer in window.consumers.values() if consumer.keyless)


def _check_alone(window: WindowBooks, entry: Entry) -> None:
    name, holder, key = f"message {entry.offset}", entry.lane.holder, entry.key
    if holder is None or key is None or holder.alone is not entry.lane:
        raise InvariantError(f"{name} has no lane, so it is alone at a consumer")
    if entry.state == State.IN_FLIGHT:
        return
    require(entry.state in {State.QUEUED, State.SPILLED}, f"{name} has no lane, so it is in flight or waits for room")
    require(entry in holder.ready, f"{name} waits alone, so it is ready")
    require(not entry.attempt and entry.deadline is None, f"{name} waits alone, so it was never delivered, nor put off")
    require(key not in window.quarantined, f"{name} waits alone, so its key is not in quarantine")
    require(window.owner_named(key) is holder, f"{name} waits alone, so it is ready for its owner of now")


def _check_lane(window: WindowBooks, lane: Lane) -> None:
    entries = list(_entries_of(lane))
    offsets = [entry.offset for entry in entries]
    name = f"lane {lane.key!r}"
    require(bool(entries) and offsets == sorted(set(offsets)), f"{name} is in offset order")
    require(all(entry.lane is lane for entry in entries), f"{name} owns its entries")
    require(lane.fresh is None or lane.fresh in entries, f"{name} knows its oldest message that never went out")
    fresh = entries.index(lane.fresh) if lane.fresh is not None else len(entries)
    delivered, waiting = entries[:fresh], entries[fresh:]
    require(all(entry.state in _DELIVERED_STATES for entry in delivered), f"{name} delivers from the front")
    require(all(entry.state in _FRESH_STATES for entry in waiting), f"{name} has nothing in flight behind fresh")
    require([e for e in delivered if e.state != State.IN_FLIGHT] == (lane.back or []), f"{name} knows what came back")
    of_log = [entry for entry in entries if entry.offset not in window.beside]
    went_out = [entry for entry in delivered if entry.offset not in window.beside]
    require(len(went_out) <= window.most_of(lane), f"{name} never had more open than its limit, see {_KEY_LIMITS}")
    spilled = [entry for entry in entries if entry.state == State.SPILLED]
    require(lane.spilled is (spilled[0] if spilled else None), f"{name} knows its oldest spilled message")
    require(not spilled or of_log[-len(spilled) :] == spilled, f"{name} spills from the end")
    opened = [entry for entry in entries if entry.state == State.IN_FLIGHT]
    require(len(opened) == lane.open, f"{name} counts its open deliveries")
    connected = lane.holder is not None and window.consumers.get(lane.holder.name) is lane.holder
    require(connected if opened else lane.holder is None, f"{name} has a holder while something of it is open")
    awaited = [entry for entry in entries if entry.state == State.LOADING and entry.consumer is not None]
    require(len(awaited) == (lane.taker is not None), f"{name} knows who has room for its next message")
    require(len(entries) - len(spilled) == lane.loaded, f"{name} counts what is loaded")
    require(len(of_log) - len(spilled) <= window.loaded_per_key, f"{name} is not loaded beyond max_loaded_per_key")


def _check_consumer(window: WindowBooks, consumer: Consumer, entries: list[Entry]) -> None:
    mine = [entry for entry in entries if entry.consumer is consumer]
    opened = {entry.offset: entry for entry in mine if entry.state == State.IN_FLIGHT}
    reserved = {entry.offset: entry for entry in mine if entry.state == State.LOADING}
    require(opened == consumer.open, f"{consumer.name!r} knows its open deliveries")
    require(reserved == consumer.reserved, f"{consumer.name!r} knows its reservations")
    require(consumer.limit - len(opened) - len(reserved) == consumer.free, f"{consumer.name!r} counts its room")
    idle = consumer.free > 0 and window.can_serve(consumer)
    require(not idle or window.wants_wake, f"{consumer.name!r} has room, so nothing that is ready waits for it")


def _check_counts(window: WindowBooks, entries: list[Entry]) -> None:
    loaded = sum(entry.state != State.SPILLED for entry in entries)
    opened = sum(entry.state == State.IN_FLIGHT for entry in entries)
    require(loaded == window.loaded, "loaded messages are counted")
    of_log = [entry for entry in entries if entry.offset not in window.beside]
    spare = bool(of_log) and of_log[0].state != State.SPILLED  # the lowest one may have a slot beyond the window
    require(loaded <= window.capacity + spare, "loaded messages fit the window")
    require(loaded - opened == window.waiting, "waiting messages are counted")
    require(len(of_log) <= window.max_tracked, "tracked messages fit max_tracked")
    for state in (State.DELAYED, State.DEAD_LETTERING, State.BLOCKED):
        require(sum(entry.state == state for entry in entries) == window.held[state], f"{state.name} is counted")


def _check_lists(window: WindowBooks, lanes: dict[Lane, None]) -> None:
    places: dict[Lane, WorkList | ReadyList] = {}
    signs: dict[Lane, Lane | Entry] = {}
    sequence: list[int] = []
    for work_list in window._work_lists():
        for waiting, number in work_list.items():
            sequence.append(place_of(waiting, number))
            lane = waiting.lane if isinstance(waiting, Entry) else waiting
            if isinstance(waiting, Entry) and isinstance(lane, Alone):
                at = None if waiting.state in {State.SETTLED, State.IN_FLIGHT} or lane.holder is None else lane.holder
                require(at is not None and at.ready is work_list, "what waits alone stands where it is ready")
                continue
            require(lane not in places, "a lane stands in one work list at most")
            places[lane] = work_list
            signs[lane] = waiting
    require(len(set(sequence)) == len(sequence), "every place in the sequence is taken once")
    for work_list in (consumer.ready for consumer in window.consumers.values()):
        taken = list(starmap(place_of, work_list.items()))
        require(taken == sorted(taken), "what waits longer is served first")
    require(all(lane in lanes for lane in places), "work lists hold living lanes only")
    require(all(place <= window._sequence for place in sequence), "the last place in the sequence is known")
    for lane in lanes:
        where = lane.listed
        require(where is places.get(lane), "a lane knows its work list")
        require(where is None or signs[lane] is (lane.sign or lane), "a lane knows what stands there for it")
        require(where is not None or lane.sign is None, "nothing stands for a lane that stands nowhere")
        able = lane.is_able
        require(able or where is None, "a lane that cannot go on stands in no work list")
        waits_for_itself = lane.open >= window.turn_limit(lane) or (lane.open > 0 and lane.key in window.quarantined)
        is_placed = where is not None or waits_for_itself or lane in window._touched
        require(not able or is_placed, "a lane that can go on stands in one")
    is_fed = window.loaded >= window.capacity or window._touched.keys() >= window.starved.keys()
    require(is_fed, "nothing starves while there is memory")


def _check_places(window: WindowBooks, lanes: dict[Lane, None], entries: list[Entry]) -> None:
    """Derive from the messages and the owners of now where every lane with a key belongs."""
    holders: dict[bytes | int, dict[int, None]] = {}
    for entry in entries:
        key = entry.key if entry.lane.head is None else entry.lane.key
        if key is not None and entry.state == State.IN_FLIGHT:
            holders.setdefault(window.unit_of(key), {})[id(entry.consumer)] = None
    for lane in lanes:
        if lane.key is None:
            continue
        owner = window.owner_named(lane.key)
        require(window.owner_of(lane) is owner, f"lane {lane.key!r} knows its owner of now, or nothing")
        if lane in window._touched:  # it is about to be looked at
            continue
        kept = owner is not None and any(holder != id(owner) for holder in holders.get(window.unit_of(lane.key), ()))
        at_limit = lane.open >= window.turn_limit(lane) and lane.holder is owner
        waits = lane.is_able and lane.key not in window.quarantined
        drains = waits and kept and not at_limit
        require(
            (lane.listed is window.draining) == drains, f"lane {lane.key!r} drains exactly while others are at work"
        )
        gate = window._gate
        refused = waits and not drains and not at_limit and owner is not None and gate.refuses(lane, owner)
        if gate.kept_back is not None:
            kept_back = lane.listed is gate.kept_back
            require(kept_back == refused, f"lane {lane.key!r} is kept back exactly while a gate is closed")
        if waits and not drains and not refused:
            homes = [window.ownerless] if owner is None else [None] if at_limit else [owner.ready, window.starved]
            require(any(lane.listed is home for home in homes), f"lane {lane.key!r} waits for what it needs")


def _lanes_of(entries: list[Entry]) -> dict[Lane, None]:
    return {entry.lane: None for entry in entries if entry.lane.head is not None}


def _entries_of(lane: Lane) -> Iterator[Entry]:
    entry, last = lane.head, None
    settled = 0
    while entry is not None:
        if entry.state == State.SETTLED:
            settled += 1
        else:
            yield entry
        entry, last = entry.after, entry
    require(lane.tail is last, "a lane knows its newest message")
    require(2 * lane.gaps <= lane.swept + SLACK, "a lane is swept before more of what is settled stays in it")
    require(settled <= lane.gaps, "a lane knows how many settled messages are in it at most")
