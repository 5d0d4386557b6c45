"""A dispatcher as plain data, and back.

Only what cannot be derived is stored: messages in offset order, the order in which lanes wait, consumers in the order
of joining, and whether there is a pause. Counters, ready lists, acked ranges and the room index are rebuilt; the caller
then checks every invariant of the whole, so a snapshot that was cut or forged is refused however plausible each part of
it looks.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import partial
from itertools import pairwise
from json import dumps
from typing import Final, Generic, NamedTuple, TypeVar

from xxhash import xxh64_hexdigest

from keyshared._checks import OFFSET_BITS, OFFSET_STOP, check_int
from keyshared._dispatch.endings import REMEMBERED_DELIVERIES, TIMED, Ended, Endings, Note
from keyshared._dispatch.members import Member, MemberState
from keyshared._dispatch.receipts import MAX_REASON
from keyshared._dispatch.timers import Duties, Duty, Stage, Timed, Timers
from keyshared._window.lanes import IN_FLIGHT, LOADING, Entry, Lane, State
from keyshared.cursor import ContiguousCursor
from keyshared.effects import Effect, SettleReason, SkipReason
from keyshared.errors import SnapshotError
from keyshared.glob import KeyFilter
from keyshared.placement.ranges import RangeMap, Weight
from keyshared.window import InFlightWindow

__all__ = [
    "EPOCH_BITS",
    "Reader",
    "Restart",
    "check_epoch",
    "dump_members",
    "dump_messages",
    "dump_window",
    "first_offset",
    "leads",
    "load_beside",
    "load_member",
    "load_messages",
    "load_places",
    "placement_mark",
    "read_snapshot",
]

EPOCH_BITS: Final = 32
"""Attempts of epoch e are numbered from ``(e << EPOCH_BITS) + 1``: after a crash no number of before comes again."""

LAST_EPOCH: Final = (1 << (OFFSET_BITS - EPOCH_BITS)) - 1
"""Beyond it, attempts would have more than 63 bits."""

_T = TypeVar("_T")
_LISTS: Final = ("shared", "ownerless", "draining", "starved")
_STATES: Final = {state.name.lower(): state for state in State if state is not State.SETTLED}
_HELD: Final = frozenset({IN_FLIGHT, LOADING})
_SPILLING: Final = frozenset({State.SPILLED, State.LOADING})
_NOTHING_NOTED: Final = Note()
_MARKS: Final[dict[str, SettleReason | SkipReason]] = {
    SettleReason.LATE_ACK.value: SettleReason.LATE_ACK,
    SkipReason.GONE.value: SkipReason.GONE,
}


class Reader:
    """Reads plain data that may be anything, and says where it is not what it should be."""

    __slots__ = ("_data", "_inside", "_name")

    def __init__(self, data: object, name: str | int = "snapshot", inside: "Reader | None" = None) -> None:
        self._data = data
        self._name = name
        self._inside = inside

    def refuse(self, requirement: str) -> SnapshotError:
        """The exception that says what this value should have been."""
        return SnapshotError(self.place(), self._data, requirement)

    def place(self) -> str:
        """Where this value stands: put together only when it is told, there are ten values for each message."""
        if self._inside is None:
            return str(self._name)
        step = f"[{self._name}]" if isinstance(self._name, int) else f".{self._name}"
        return f"{self._inside.place()}{step}"

    @property
    def raw(self) -> object:
        """What is read, whatever it is."""
        return self._data

    def field(self, name: str) -> "Reader":
        """The value under a name."""
        if not isinstance(self._data, Mapping) or name not in self._data:
            raise self.refuse(f"have a field {name!r}")
        return Reader(self._data[name], name, self)

    def fields(self) -> dict[str, "Reader"]:
        """All values under their names."""
        if not isinstance(self._data, Mapping):
            raise self.refuse("be a dict")
        return {str(name): Reader(value, str(name), self) for name, value in self._data.items()}

    def items(self, length: int | None = None) -> list["Reader"]:
        """The values of a list, of that length if one is given."""
        if not isinstance(self._data, list) or length not in {None, len(self._data)}:
            raise self.refuse("be a list" if length is None else f"be a list of {length}")
        return [Reader(value, index, self) for index, value in enumerate(self._data)]

    def maybe(self, read: Callable[["Reader"], _T]) -> _T | None:
        """None, or what ``read`` makes of it."""
        return None if self._data is None else read(self)

    def integer(self) -> int:
        """An int."""
        if type(self._data) is not int:
            raise self.refuse("be an int")
        return self._data

    def offset(self) -> int:
        """An offset of a log."""
        if not -OFFSET_STOP < self.integer() < OFFSET_STOP:
            raise self.refuse(f"be of at most {OFFSET_BITS} bits")
        return self.integer()

    def position(self) -> int:
        """The next offset of a log."""
        return OFFSET_STOP if self.integer() == OFFSET_STOP else self.offset()

    def count(self) -> int:
        """An int that is not negative."""
        if self.integer() < 0:
            raise self.refuse("be at least 0")
        return self.integer()

    def remaining(self) -> int:
        """How long a deadline is ahead, or how long it has been due: no clock has gone that far back."""
        if self.integer() <= -OFFSET_STOP:
            raise self.refuse(f"be of at most {OFFSET_BITS} bits below 0")
        return self.integer()

    def age(self) -> int:
        """How long ago something was."""
        if self.count() >= OFFSET_STOP:
            raise self.refuse(f"be of at most {OFFSET_BITS} bits")
        return self.count()

    def number(self) -> int:
        """A number of a delivery or the like: a count that leaves room for the next one in 63 bits."""
        if self.count() >= OFFSET_STOP - 1:
            raise self.refuse(f"be below {OFFSET_STOP - 1}: the next one has {OFFSET_BITS} bits")
        return self.count()

    def epoch(self) -> int:
        """The number of a life."""
        if self.count() > LAST_EPOCH:
            raise self.refuse(f"be at most {LAST_EPOCH}")
        return self.count()

    def text(self) -> str:
        """A str."""
        if not isinstance(self._data, str):
            raise self.refuse("be a str")
        return self._data

    def flag(self) -> bool:
        """A bool."""
        if not isinstance(self._data, bool):
            raise self.refuse("be a bool")
        return self._data

    def binary(self) -> bytes:
        """Bytes, written as base64."""
        try:
            return b64decode(self.text(), validate=True)
        except ValueError:
            raise self.refuse("be base64") from None

    def one_of(self, values: Mapping[str, _T]) -> _T:
        """What the text stands for."""
        if self.text() not in values:
            raise self.refuse(f"be one of {', '.join(values)}")
        return values[self.text()]

    def weight(self) -> Weight:
        """A positive fraction; the placement checks it."""
        above, below = (number.integer() for number in self.items(2))
        if below < 1:
            raise self.refuse("be a fraction")
        return Fraction(above, below) if below > 1 else above


class _MessageRow(NamedTuple, Generic[_T]):
    """One message, as it stands in a snapshot: values when it is written, readers of them when it is read."""

    offset: _T
    before: _T
    key: _T
    state: _T
    delivered: _T
    holder: _T
    attempt: _T
    failures: _T
    remaining_ms: _T
    mark: _T
    ended: _T
    postponed: _T
    reason: _T


class _PlaceRow(NamedTuple, Generic[_T]):
    """One lane that waits: in which list, for which consumer if it is ready, and its first offset."""

    where: _T
    consumer: _T
    first: _T


def placement_mark(ranges: RangeMap) -> str:
    """What tells one placement from another: a snapshot is of use only where every key still has the owner it had."""
    return xxh64_hexdigest(dumps(ranges.to_json(), sort_keys=True).encode())


def read_snapshot(state: object) -> Reader:
    """Return a reader of what a call was given as a snapshot, or raise `SnapshotError` if that is no mapping."""
    data = Reader(state)
    if not isinstance(state, Mapping):
        hint = "; json.loads a text" if isinstance(state, str | bytes) else ""
        raise data.refuse(f"be a dict, as snapshot() returns it{hint}")
    return data


def check_epoch(epoch: object) -> int:
    """Return the number of a life that begins, or raise `ArgumentError`."""
    return check_int("epoch", epoch, 0, most=LAST_EPOCH)


def dump_window(window: InFlightWindow, endings: Endings, now: int) -> dict[str, object]:
    """Messages, their order of waiting, and quarantined keys."""
    places: dict[int, tuple[str, str | None]] = {id(getattr(window, name)): (name, None) for name in _LISTS}
    if window.kept_back is not None:
        places[id(window.kept_back)] = ("kept_back", None)
    places |= {id(consumer.ready): ("ready", consumer.name) for consumer in window.consumers.values()}
    return {
        "start": window.cursor.start,
        "last": window.cursor.last,
        "settled": [list(stretch) for stretch in window.cursor.remembered()],
        "messages": dump_messages(window.of_log(), endings, now),
        "waiting": [list(_PlaceRow(*places[id(lane.listed)], first_offset(lane))) for lane in window.waiting_lanes()],
        "quarantined": [_text(key) for key in window.quarantined],
    }


def dump_messages(entries: Iterable[Entry], endings: Endings, now: int) -> list[object]:
    """Messages, one row for each."""
    return [_dump_entry(entry, endings, now) for entry in entries]


def dump_members(members: Mapping[str, Member], now: int) -> list[object]:
    """Consumers in the order of joining."""
    return [
        {
            "name": member.name,
            "state": member.state.value,
            "quota": member.quota,
            "filters": list(member.accepts.patterns),
            "weight": None if member.weight is None else list(member.weight.as_integer_ratio()),
            "remaining_ms": _remaining(member, now),
        }
        for member in members.values()
    ]


def load_member(data: Reader, order: int, timers: Timers, now: int) -> Member:
    """One consumer, not yet connected to anything."""
    patterns = [pattern.text() for pattern in data.field("filters").items()]
    member = Member(
        data.field("name").text(),
        order,
        data.field("quota").count(),
        KeyFilter(patterns),
        data.field("weight").maybe(Reader.weight),
    )
    if list(member.accepts.patterns) != patterns:
        raise data.field("filters").refuse("name each filter once")
    member.state = data.field("state").one_of({state.value: state for state in MemberState})
    if member.state is not MemberState.ACTIVE:
        member.limit = member.free = 0
    elif data.field("remaining_ms").raw is not None:
        raise data.field("remaining_ms").refuse("be None for an active consumer: only who is away has a deadline")
    if member.state is MemberState.DRAINING:
        member.keyless = False
    _start(timers, member, data.field("remaining_ms"), now)
    return member


def load_messages(
    data: Reader, window: InFlightWindow, endings: Endings, timers: Timers, *, now: int, items: Mapping[int, object]
) -> None:
    """Fill a new window whose consumers are connected already with the messages of its log."""
    cursor = window.cursor
    for message in data.field("messages").items():
        row = _MessageRow(*message.items(len(_MessageRow._fields)))
        _skip_to(row, cursor)
        _load_message(row, window.readmit, window, endings, timers, now=now, items=items)
    last = data.field("last").maybe(Reader.offset)
    if last is not None and (cursor.last is None or last > cursor.last):
        cursor.skip(last)
    if last != cursor.last:
        raise data.field("last").refuse("be the greatest offset offered")
    start = data.field("start").maybe(Reader.position)
    stretches = [
        (first.offset(), stop.position()) for first, stop in (pair.items(2) for pair in data.field("settled").items())
    ]
    if stretches and start is None:
        raise data.field("settled").refuse("be empty where there was no start")
    if start is not None or last is not None:
        cursor.recall(start, stretches)


def load_beside(  # what a message is restored with
    data: Reader,
    readmit: Callable[..., Entry],
    window: InFlightWindow,
    endings: Endings,
    timers: Timers,
    *,
    now: int,
    items: Mapping[int, object],
) -> None:
    """Add to a window that has the messages of its log those that have come back beside it."""
    newest: dict[object, Entry] = {}
    for message in data.items():
        row = _MessageRow(*message.items(len(_MessageRow._fields)))
        if window.find(row.offset.offset()) is not None:
            raise row.offset.refuse("be of a message that is outstanding once")
        if row.before.raw is not None:
            raise row.before.refuse("be None: what has come back stands beside the log")
        if row.state.one_of(_STATES) in _SPILLING:
            raise row.state.refuse("be one whose payload is at hand: what has come back is never spilled")
        key = row.key.maybe(Reader.binary)
        back = partial(readmit, near=newest.get(key))
        newest[key] = _load_message(row, back, window, endings, timers, now=now, items=items)


def load_places(data: Reader, window: InFlightWindow) -> None:
    """Put the lanes of a window that has all its messages where they waited."""
    for key in data.field("quarantined").items():
        if key.binary() in window.quarantined:
            raise key.refuse("be in quarantine once")
        window.quarantined[key.binary()] = None
    for place in data.field("waiting").items():
        _load_place(_PlaceRow(*place.items(len(_PlaceRow._fields))), window)


def _load_message(
    row: _MessageRow[Reader],
    readmit: Callable[..., Entry],
    window: InFlightWindow,
    endings: Endings,
    timers: Timers,
    *,
    now: int,
    items: Mapping[int, object],
) -> Entry:
    entry = _load_entry(row, readmit, window, items)
    if entry.offset not in window.beside and row.delivered.flag() != bool(entry.attempt):  # a letter keeps its attempts
        raise row.attempt.refuse("be above 0 exactly if it was delivered")
    _start(timers, entry, row.remaining_ms, now)
    _read_note(row, entry, endings)
    if entry.state == State.BLOCKED:
        endings.blocked.setdefault(entry.key, {})[entry.offset] = entry
    return entry


def _skip_to(row: _MessageRow[Reader], cursor: ContiguousCursor) -> None:
    """Skip in the cursor what was settled between the message before and this one."""
    offset = row.offset.offset()
    before = row.before.maybe(Reader.offset)
    if cursor.last is not None and offset <= cursor.last:
        raise row.offset.refuse(f"be greater than {cursor.last}")
    if before is not None and (cursor.last is None or before > cursor.last):
        if before >= offset:
            raise row.before.refuse(f"be less than {offset}")
        cursor.skip(before)
    if before != cursor.last:
        raise row.before.refuse(f"be {cursor.last}, the offset before it, or above that")


def _dump_entry(entry: Entry, endings: Endings, now: int) -> list[object]:
    holder = entry.consumer if entry.state in _HELD else None
    note = endings.notes.get(entry.offset, _NOTHING_NOTED)
    row = _MessageRow[object](
        offset=entry.offset,
        before=entry.prev,
        key=None if entry.key is None else _text(entry.key),
        state=State(entry.state).name.lower(),
        delivered=entry.lane.was_delivered(entry),
        holder=None if holder is None else holder.name,
        attempt=entry.attempt,
        failures=note.failures,
        remaining_ms=_remaining(entry, now),
        mark=None if note.mark is None else note.mark.value,
        ended=[list(ended) for ended in note.ended],
        postponed=note.postponed,
        reason=note.reason,
    )
    return list(row)


def _load_entry(
    row: _MessageRow[Reader], readmit: Callable[..., Entry], window: InFlightWindow, items: Mapping[int, object]
) -> Entry:
    offset = row.offset.offset()
    state = row.state.one_of(_STATES)
    if not window.spills and state in _SPILLING:
        raise row.state.refuse("be one whose payload is at hand where spill is False; go on with spill until it is")
    delivered = row.delivered.flag()
    if state is State.IN_FLIGHT and not delivered:
        raise row.delivered.refuse("be True: it is in flight")
    holder = row.holder.maybe(lambda name: name.one_of(window.consumers))
    if holder is not None and state not in _HELD:
        raise row.holder.refuse("be None: nobody has it")
    item = None if state is State.SPILLED else items.get(offset)
    entry = readmit(offset, row.key.maybe(Reader.binary), item, state, delivered=delivered, consumer=holder)
    entry.attempt = row.attempt.number()
    return entry


def _load_place(row: _PlaceRow[Reader], window: InFlightWindow) -> None:
    gated = () if window.kept_back is None else ("kept_back",)
    name = row.where.one_of({name: name for name in (*_LISTS, *gated, "ready")})
    entry = window.find(row.first.integer())
    consumer = row.consumer.maybe(lambda name: name.one_of(window.consumers))
    if (name == "ready") != (consumer is not None):
        raise row.consumer.refuse("be a consumer for whom a lane is ready, and None in every other place")
    if entry is None or not leads(entry) or entry.lane.listed is not None:
        raise row.first.refuse("be the first offset of a lane that waits once")
    if consumer is not None and entry.lane.key is None:
        raise row.where.refuse("be 'shared' for a message without a key, until it is loaded")
    window.enlist(entry.lane, consumer.ready if consumer is not None else getattr(window, name))


def _read_ended(data: Reader, entry: Entry) -> tuple[Ended, ...]:
    rows = [row.items(2) for row in data.items()]
    ended = tuple((attempt.count(), consumer.text()) for attempt, consumer in rows)
    attempts = [0, *(attempt for attempt, _ in ended), entry.attempt + (entry.state != State.IN_FLIGHT)]
    rising = all(one < other for one, other in pairwise(attempts))
    if len(ended) > REMEMBERED_DELIVERIES or (ended and not rising):
        raise data.refuse(f"be at most {REMEMBERED_DELIVERIES} deliveries before the open one, oldest first")
    return ended


def _read_note(row: _MessageRow[Reader], entry: Entry, endings: Endings) -> None:
    ended, mark, reason = _read_ended(row.ended, entry), row.mark.maybe(_read_mark), row.reason.maybe(Reader.text)
    failures, postponed = row.failures.count(), row.postponed.flag()
    if entry.deadline is None:
        if entry.state == State.DELAYED:
            raise row.remaining_ms.refuse("be there: a delayed message has a time to wait for")
    elif entry.state not in TIMED or (entry.state != State.IN_FLIGHT and bool(entry.attempt) != bool(ended)):
        raise row.remaining_ms.refuse("be None: nothing ends by itself here")
    if postponed and (entry.state != State.DELAYED or not ended):
        raise row.postponed.refuse("be False: only what was delivered and waits for its time is postponed")
    if reason is not None and (not ended or len(reason) > MAX_REASON):
        raise row.reason.refuse(f"be of a delivery that has ended, and have at most {MAX_REASON} characters")
    if mark is not None and (entry.state != State.IN_FLIGHT or (mark is SettleReason.LATE_ACK and not ended)):
        raise row.mark.refuse("be None: only what is in flight is marked, as acked late if a delivery has ended")
    if failures > (len(ended) if len(ended) < REMEMBERED_DELIVERIES else entry.attempt):
        raise row.failures.refuse("be at most as many as its deliveries that have ended")
    if ended or mark is not None:
        endings.notes[entry.offset] = Note(ended, mark, failures=failures, postponed=postponed, reason=reason)


def _read_mark(data: Reader) -> SettleReason | SkipReason:
    return data.one_of(_MARKS)


def leads(entry: Entry) -> bool:
    """Whether a message is the oldest one of its lane."""
    return entry.lane.head is entry


def first_offset(lane: Lane) -> int:
    """The offset of the oldest message of a lane."""
    return lane.head.offset if lane.head is not None else 0


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def _remaining(timed: Timed, now: int) -> int | None:
    return None if timed.deadline is None else timed.deadline - now


def _start(timers: Timers, timed: Timed, data: Reader, now: int) -> None:
    remaining = data.maybe(Reader.remaining)
    if remaining is not None:
        timers.start(timed, now + remaining)


class Restart:
    """Falls due while the window wants to be woken, once it was started: a restore itself hands out nothing.

    What wider limits have made possible goes out in `handle_timeout`, or in any other call that wakes the window. The
    first offer of something new wakes it before it looks at anything.

    Args:
        window: What was restored.

    Attributes:
        duties: Nothing but the end of the call, which wakes the window.
    """

    __slots__ = ("_at", "_window", "duties")

    def __init__(self, window: InFlightWindow) -> None:
        self._window = window
        self._at: int | None = None
        self.duties: Final[Duties] = {Restart: Duty(Stage.DELIVERIES, _place, self.act)}

    @property
    def deadline(self) -> int | None:
        """The instant of the restart; None once there is nothing to do, or the window was woken."""
        return self._at if self._window.is_due_anew else None

    @deadline.setter
    def deadline(self, at: int | None) -> None:
        self._at = at

    def act(self, _restart: "Restart", _notices: list[Effect], _now: int) -> None:
        """Leave it to the end of the call."""


def _place(_restart: Restart) -> int:
    return 0  # it does nothing that others could come before
