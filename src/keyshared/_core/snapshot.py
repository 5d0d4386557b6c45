"""A dispatcher as plain data, and back.

A snapshot holds what cannot be derived: consumers in the order of joining, messages in offset order, the order in which
lanes wait, and a row of each feature. Counters and ready lists are rebuilt, and all invariants checked at the end. The
checksum finds a snapshot that was cut or damaged; whoever can forge one can send messages too.
"""

from collections.abc import Mapping
from enum import StrEnum
from json import dumps
from typing import Final, Generic, NamedTuple, TypeVar

from xxhash import xxh64_hexdigest

from keyshared._core.invariants import check_machine
from keyshared._core.machine import Machine
from keyshared._core.reader import EPOCH_BITS, LAST_EPOCH, Reader, binary_text
from keyshared._core.records import (
    DELAYED,
    IN_FLIGHT,
    LOADING,
    SPILLED,
    Consumer,
    ConsumerState,
    Entry,
    Lane,
    Note,
    Place,
    State,
    holds_slot,
)
from keyshared.effects import SettleReason, SkipReason
from keyshared.errors import ArgumentError, ConsumerExistsError, InvariantError, SnapshotError
from keyshared.glob import KeyFilter
from keyshared.placement.range_map import RangeMap

__all__ = ["SNAPSHOT_VERSION", "dump", "open_offsets", "placement_mark", "restore", "sealed", "unsealed"]

SNAPSHOT_VERSION: Final = 3
_STATES: Final = {state.name.lower(): int(state) for state in State if state is not State.SETTLED}
_CONSUMER_STATES: Final = {state.value: state for state in ConsumerState}
_MARKS: Final[dict[str, StrEnum]] = {
    SettleReason.LATE_ACK.value: SettleReason.LATE_ACK,
    SkipReason.GONE.value: SkipReason.GONE,
}
_T = TypeVar("_T")


class _MessageRow(NamedTuple, Generic[_T]):
    """One message: values when it is written, readers of them when it is read."""

    offset: _T
    before: _T  # the greatest offset offered before it; None for the first, and for a redriven message
    key: _T
    state: _T
    delivered: _T
    consumer: _T  # the consumer that has it, or for which it is being loaded
    attempt: _T
    remaining_ms: _T
    note: _T


class _NoteRow(NamedTuple, Generic[_T]):
    """The `Note` of a message."""

    ended: _T
    failures: _T
    mark: _T
    postponed: _T
    reason: _T
    spilled: _T
    redriven: _T


class _PlaceRow(NamedTuple, Generic[_T]):
    """One lane that waits: its place, the consumer if it is ready for one, and its first offset."""

    place: _T
    consumer: _T
    first: _T


def sealed(state: dict[str, object]) -> dict[str, object]:
    """Return plain data with its checksum added."""
    return {**state, "checksum": _checksum(state)}


def unsealed(state: object, version: int) -> Reader:
    """Return a reader of what `sealed` returned.

    Raises:
        SnapshotError: It is no dict, of another version, or was cut or damaged.
    """
    data = Reader(state)
    if not isinstance(state, Mapping):
        hint = "; json.loads a text" if isinstance(state, str | bytes) else ""
        raise data.refuse(f"be a dict, as snapshot() returns it{hint}")
    if data.field("version").raw != version:
        raise data.field("version").refuse(f"be {version}, the version that this release writes")
    try:
        checksum = _checksum({name: value for name, value in state.items() if name != "checksum"})
    except (TypeError, ValueError):  # no plain data
        checksum = ""
    if data.field("checksum").raw != checksum:
        raise data.field("checksum").refuse("be the checksum of the rest: the snapshot was cut or damaged")
    return data


def _checksum(state: object) -> str:
    return xxh64_hexdigest(dumps(state, sort_keys=True).encode())


def open_offsets(data: Reader) -> set[int]:
    """Return the offsets in a snapshot that are in flight or being loaded."""
    rows = (_MessageRow(*row.items(len(_MessageRow._fields))) for row in data.field("messages").items())
    return {row.offset.integer() for row in rows if row.consumer.raw is not None or row.state.raw == "loading"}


def placement_mark(ranges: RangeMap) -> str:
    """Return a mark of a placement: a snapshot fits only where every key still has the owner it had."""
    return _checksum(ranges.to_json())


# dump


def dump(machine: Machine) -> dict[str, object]:
    """Return the whole state as plain data: deadlines as what remains of them, no items. O(n)."""
    now, window, cursor = machine.now, machine.window, machine.window.cursor
    rows = {feature.name: feature.dump(now) for feature in machine.features if feature.name}
    offered_before = {cell.offset: before for cell, before in cursor.with_before()}
    names = _place_names(machine)
    listed = sorted((number, lane) for place in window.places() for lane, number in place.items())
    return sealed(
        {
            "version": SNAPSHOT_VERSION,
            "epoch": machine.epoch,
            "unit": machine.config.unit.value,
            "rules": None if machine.rules is None else machine.rules.mark,
            "one_lane": machine.config.ordering_required,
            "paused": machine.outbox.paused,
            "ranges": placement_mark(machine.routing.ranges),
            "consumers": [_dump_consumer(consumer, now) for consumer in machine.members.values()],
            "start": cursor.start,
            "last": cursor.last,
            "settled": [list(stretch) for stretch in cursor.remembered()],
            "messages": [
                list(_dump_entry(entry, offered_before.get(entry.offset), now)) for entry in window.outstanding()
            ],
            "waiting": [list(_PlaceRow(*names[lane.place], _first(lane))) for _, lane in listed if lane.place],
            "quarantined": [binary_text(key) for key in window.quarantined],
            "features": {name: row for name, row in rows.items() if row is not None},
        }
    )


def _place_names(machine: Machine) -> dict[Place, tuple[str, str | None]]:
    """Return how each place is named in a snapshot."""
    window = machine.window
    names: dict[Place, tuple[str, str | None]] = {place: (place.reason.value, None) for _, place in window.gates}
    names |= {getattr(window, name): (name, None) for name in ("keyless", "ownerless", "draining", "starved")}
    return names | {consumer.ready: ("ready", consumer.name) for consumer in window.consumers.values()}


def _first(lane: Lane) -> int:
    return lane.head.offset if lane.head is not None else 0


def _dump_consumer(consumer: Consumer, now: int) -> dict[str, object]:
    return {
        "name": consumer.name,
        "state": consumer.state.value,
        "quota": consumer.quota,
        "filters": list(consumer.accepts.patterns),
        "weight": None if consumer.weight is None else list(consumer.weight.as_integer_ratio()),
        "remaining_ms": None if consumer.deadline is None else consumer.deadline - now,
    }


def _dump_entry(entry: Entry, before: int | None, now: int) -> _MessageRow[object]:
    consumer, note, key = entry.consumer, entry.note, entry.key
    return _MessageRow(
        offset=entry.offset,
        before=before,
        key=None if key is None else binary_text(key),
        state=State(entry.state).name.lower(),
        delivered=entry.lane.was_delivered(entry),
        consumer=None if consumer is None else consumer.name,
        attempt=entry.attempt,
        remaining_ms=None if entry.deadline is None else entry.deadline - now,
        note=None if note is None else list(_dump_note(note)),
    )


def _dump_note(note: Note) -> _NoteRow[object]:
    return _NoteRow(
        ended=[list(delivery) for delivery in note.ended],
        failures=note.failures,
        mark=None if note.mark is None else note.mark.value,
        postponed=note.postponed,
        reason=note.reason,
        spilled=note.spilled,
        redriven=note.redriven,
    )


# restore


def restore(machine: Machine, state: object, *, epoch: int, items: Mapping[int, object], now: int) -> None:
    """Fill a new dispatcher with a snapshot, and hand out what the settings of now allow.

    Raises:
        SnapshotError: The snapshot was cut or damaged, is of another version, placement, drain unit or mark of rules,
            or does not fit the settings.
    """
    data = unsealed(state, SNAPSHOT_VERSION)
    machine.now = now
    try:
        _check_settings(data, machine)
        _load(data, machine, epoch, items)
        machine.begin(now)
        check_machine(machine)
    except SnapshotError:
        raise
    except (ArgumentError, ConsumerExistsError, InvariantError) as broken:
        raise data.refuse(f"fit the settings and describe a dispatcher that can exist ({broken})") from broken


def _check_settings(data: Reader, machine: Machine) -> None:
    config = machine.config
    mark = None if machine.rules is None else machine.rules.mark
    for name, wanted, what in (
        ("unit", config.unit.value, "the drain unit of the configuration"),
        ("rules", mark, "the mark of the rules that are given"),
        ("one_lane", config.ordering_required, "ordering_required of the configuration"),
    ):
        if data.field(name).raw != wanted and not (name == "one_lane" and not data.field("messages").raw):
            raise data.field(name).refuse(f"be {wanted!r}, {what}")


def _load(data: Reader, machine: Machine, epoch: int, items: Mapping[int, object]) -> None:
    now, window = machine.now, machine.window
    machine.epoch = max(epoch, data.field("epoch").count())
    if machine.epoch > LAST_EPOCH:
        raise data.field("epoch").refuse(f"be at most {LAST_EPOCH}")
    window.first_attempt = machine.epoch << EPOCH_BITS
    for row in data.field("consumers").items():
        _load_consumer(row, machine, now)
    if data.field("ranges").text() != placement_mark(machine.routing.ranges):
        raise data.field("ranges").refuse("belong to the placement that is given: same kind, same settings")
    for key in data.field("quarantined").items():
        window.quarantined[key.binary()] = None
    for row in data.field("messages").items():
        _load_entry(_MessageRow(*row.items(len(_MessageRow._fields))), machine, items)
    _load_cursor(data, machine)
    by_name = {names: place for place, names in _place_names(machine).items()}
    for row in data.field("waiting").items():
        _load_place(_PlaceRow(*row.items(len(_PlaceRow._fields))), machine, by_name)
    machine.recount()
    features = {feature.name: feature for feature in machine.features}
    for name, row in data.field("features").fields().items():
        if name not in features:
            raise row.refuse("be absent: the configuration does not ask for it")
        features[name].load(row, now)
    machine.outbox.paused = data.field("paused").flag()


def _load_consumer(row: Reader, machine: Machine, now: int) -> None:
    patterns = [pattern.text() for pattern in row.field("filters").items()]
    name, accepts, weight = row.field("name").text(), KeyFilter(patterns), row.field("weight").maybe(Reader.weight)
    state = row.field("state").one_of(_CONSUMER_STATES)
    consumer = machine.membership.readmit(name, accepts, weight, row.field("quota").count(), state)
    remaining = row.field("remaining_ms").maybe(Reader.integer)
    if remaining is not None:
        machine.timers.start(consumer, now + remaining)


def _load_entry(row: _MessageRow[Reader], machine: Machine, items: Mapping[int, object]) -> None:
    window, offset, state = machine.window, row.offset.integer(), row.state.one_of(_STATES)
    key = row.key.maybe(Reader.binary)
    lane = None if key is None else window.lanes.get(key)
    if lane is None:
        lane = window.new_lane(key)
    entry = Entry(offset, None if state == SPILLED else items.get(offset), lane)
    entry.state = state
    entry.attempt = row.attempt.count()
    entry.note = row.note.maybe(_load_note)
    if entry.note is not None and entry.note.redriven:
        window.beside[offset] = entry
        window.max_tracked -= 1
    else:
        _append_cell(row, machine, entry)
    lane.append(entry)
    if row.delivered.flag():
        if lane.fresh is not entry:
            raise row.delivered.refuse("be False: an older message of its key was never delivered")
        lane.fresh = None
        if state != IN_FLIGHT:
            lane.take_back(entry)
    _count(row, machine, entry)
    remaining = row.remaining_ms.maybe(Reader.integer)
    if remaining is not None:
        machine.timers.start(entry, machine.now + remaining)


def _append_cell(row: _MessageRow[Reader], machine: Machine, entry: Entry) -> None:
    """Bring the cursor to a message: what lies between it and the one before is settled."""
    cursor, before = machine.window.cursor, row.before.maybe(Reader.integer)
    if before is not None and (cursor.last is None or before > cursor.last):
        cursor.skip(before)
    if before != cursor.last or (before is not None and before >= entry.offset):
        raise row.before.refuse("be the greatest offset that was offered before it")
    cursor.append(entry)


def _count(row: _MessageRow[Reader], machine: Machine, entry: Entry) -> None:
    """Count a message where its state takes something up."""
    window, lane, state = machine.window, entry.lane, entry.state
    window.held[state] += state >= DELAYED
    if holds_slot(entry):
        lane.loaded += 1
        window.loaded += 1
        window.waiting += state != IN_FLIGHT
    elif state == SPILLED and lane.spilled is None and not row.delivered.flag():
        lane.spilled = entry
    consumer = row.consumer.maybe(lambda name: name.one_of(window.consumers))
    if (state == IN_FLIGHT and consumer is None) or (consumer is not None and state not in (IN_FLIGHT, LOADING)):
        raise row.consumer.refuse("be the consumer of a message that is in flight or being loaded, and of no other")
    if consumer is None:
        return
    consumer.free -= 1
    if state == LOADING:
        lane.taker = consumer
        consumer.reserved[entry.offset] = entry
        return
    lane.open += 1
    lane.holder = consumer
    consumer.open[entry.offset] = entry
    for quota in lane.rule.quotas:
        quota.open += 1


def _load_note(row: Reader) -> Note:
    given = _NoteRow(*row.items(len(_NoteRow._fields)))
    note = Note()
    note.ended = tuple(
        (attempt.count(), name.text()) for attempt, name in (end.items(2) for end in given.ended.items())
    )
    note.failures = given.failures.count()
    note.mark = given.mark.maybe(_mark)
    note.postponed = given.postponed.flag()
    note.reason = given.reason.maybe(Reader.text)
    note.spilled = given.spilled.flag()
    note.redriven = given.redriven.flag()
    return note


def _mark(row: Reader) -> StrEnum:
    return row.one_of(_MARKS)


def _load_cursor(data: Reader, machine: Machine) -> None:
    cursor, last = machine.window.cursor, data.field("last").maybe(Reader.integer)
    if last is not None and (cursor.last is None or last > cursor.last):
        cursor.skip(last)
    if last != cursor.last:
        raise data.field("last").refuse("be the greatest offset offered")
    start = data.field("start").maybe(Reader.position)
    settled = [
        (first.integer(), stop.position()) for first, stop in (row.items(2) for row in data.field("settled").items())
    ]
    if start is not None or last is not None:
        cursor.recall(start, settled)


def _load_place(row: _PlaceRow[Reader], machine: Machine, by_name: Mapping[tuple[str, str | None], Place]) -> None:
    window = machine.window
    place = by_name.get((row.place.text(), row.consumer.maybe(Reader.text)))
    entry = window.find(row.first.integer())
    if place is None:
        raise row.place.refuse("be a place of this dispatcher")
    if entry is None or entry.lane.place is not None:
        raise row.first.refuse("be the first offset of a lane that waits once")
    window.number += 1
    place.put(entry.lane, window.number)
    entry.lane.place = place
