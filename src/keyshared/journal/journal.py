"""A dispatcher that is driven by a log of commands, and kept as bytes between one piece of the log and the next.

For hosts that live in pieces: a stream job that is called with a few rows and must put its state away, a function that
runs for a second. Cut the log anywhere, store the state at the cuts, let a piece come twice or in disorder: the
outcomes are those of the uncut log (promises resume and determinism).

Time is that of the commands. Whatever falls due between two commands acts at its own instant, so extra calls of
`Journal.advance` change nothing.
"""

import json
import sys
import zlib
from base64 import b64encode
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Self, TypeVar, cast

from keyshared._checks import OFFSET_STOP, check_int, check_kind, check_offset, checked_kinds
from keyshared._core.reader import Reader
from keyshared._core.records import ConsumerState
from keyshared._core.snapshot import open_offsets
from keyshared.config import DispatcherConfig, Rules
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver, Done, Effect, Ending, Load, Skipped, SkipReason
from keyshared.errors import ArgumentError, InvariantError, KeySharedError, OffsetOrderError, SnapshotError, shown
from keyshared.hashing import key_bytes
from keyshared.journal.commands import LATE, OFFER, REFUSED, Command, Fields, OutcomeRow, call, check_numbers, fields_of
from keyshared.ring import HashRing

__all__ = ["DEFAULT_MAX_BYTES", "Journal"]

DEFAULT_MAX_BYTES: Final = 1 << 28
"""256 MiB: some three million outstanding messages."""

JOURNAL_VERSION: Final = 1
_FASTEST: Final = 1  # a fifth to a ninth of the text; higher levels save a sixth of that and cost three times as much

_SHOWN_BYTES: Final = 16
_MOST_STRETCHES: Final = (
    256  # of sequences that have been here: 3 kB of state, and none but one where there are no gaps
)
_SKIPPED: Final = "it comes after a command that stands behind it"
_FORGOTTEN: Final = "it comes after a command that stands behind it, or once more: so far back is not remembered"

_T = TypeVar("_T")
_new: Final = tuple.__new__  # builds an OutcomeRow in half the time that its own constructor takes


class Journal:
    """One dispatcher and what it needs to go on: the instant, the last command, the messages that do not fit yet.

    A journal is its dispatcher's host, and keeps offsets and keys only. So a `Load` is answered at once, and a message
    for which there is no room waits here, in the order of the log, until there is. Neither is an outcome. Only where
    the configuration bounds what waits for one key (``max_waiting_per_key`` and the like), a message beyond that is
    refused and not kept.

    A command that the dispatcher refuses changes nothing and is an outcome, "refused": one wrong row must not stop all
    that follow it. A command that comes after one with a higher sequence is not carried out either, and is an outcome,
    "late". A command that comes a second time has no outcome. To tell them apart, the journal remembers the sequences
    as stretches without a gap: the newest 256. A command from before them counts as late each time.

    Args:
        placement: Where keys go, without consumers: they come as commands. Placements other than a ring are their own
            history, which the state does not hold.
        config: The dispatcher's limits, times and policies.
        rules: Its functions of a key.

    Complexity:
        That of the dispatcher, and O(log n) for each deadline that passes.

    Example:
        >>> journal = Journal(HashRing())
        >>> log = [
        ...     Command(0, 0, "add_consumer", consumer="c1"),
        ...     Command(1, 5, "offer", offset=0, key="order-1"),
        ...     Command(2, 9, "offer", offset=1, key="order-1"),
        ...     Command(3, 9, "ack", offset=0, consumer="c1", attempt=1),
        ... ]
        >>> [(told.at_ms, told.effect, told.offset) for told in journal.apply_all(log)]
        [(5, 'deliver', 0), (9, 'deliver', 1), (9, 'cursor_advanced', 0)]
        >>> again = Journal.from_bytes(journal.to_bytes(), HashRing())
        >>> [(told.at_ms, told.effect, told.reason) for told in again.advance(40_000)][:1]
        [(30009, 'released', 'ack_timeout')]
    """

    __slots__ = (
        *("_dispatcher", "_last", "_now", "_position", "_seen", "_seen_forgotten", "_sequence", "_unread"),
        "_woken",
    )

    def __init__(
        self, placement: HashRing, config: DispatcherConfig | None = None, *, rules: Rules | None = None
    ) -> None:
        _check(placement, config)
        self._dispatcher = KeySharedDispatcher(placement, config, rules=rules)
        self._now = 0
        self._sequence: int | None = None
        self._position = 0
        self._seen: list[list[int]] = []  # first and last of each stretch of sequences without a gap, in order
        self._seen_forgotten = False  # stretches below the first one
        self._last: int | None = None  # the greatest offset that the dispatcher has taken
        self._unread: OrderedDict[int, tuple[bytes | None, int | None]] = OrderedDict()  # key, and not before when
        self._woken: list[Deliver | Load] = []  # what a wider configuration let out in `from_bytes`, not yet an outcome

    @classmethod
    def from_bytes(
        cls,
        state: bytes,
        placement: HashRing,
        config: DispatcherConfig | None = None,
        *,
        joined: HashRing | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
        rules: Rules | None = None,
    ) -> Self:
        """Go on where `to_bytes` was called, with the same future.

        Args:
            state: What it returned.
            placement: As the original's.
            config: To go on with. Another one than the original's is legal if all that is outstanding fits into it. If
                it is wider, the next call has the outcomes of what it lets out, at the instant that has been reached.
            joined: The `ring` of another journal made from ``placement``. If the same consumers joined this one, in the
                same order and with the same weights, it is copied, and they need not join one by one.
            max_bytes: How much the state may take once it is inflated; no more than that is ever inflated.
            rules: Of the same mark as the original's.

        Raises:
            SnapshotError: The state is truncated, of another version, or of another kind of ring; or takes more than
                ``max_bytes``.

        Complexity:
            O(n log n), n messages outstanding; and O(c p) for c consumers with p points together, O(p) if ``joined`` is
            of use.
        """
        _check(placement, config)
        data = Reader(_parsed(state, check_int("max_bytes", max_bytes, 1)), "state")
        if data.field("version").integer() != JOURNAL_VERSION:
            raise data.field("version").refuse(f"be {JOURNAL_VERSION}, the version that this release writes")
        new = cls(placement, config, rules=rules)
        new._load(data, _ring_for(data, placement, joined), config)
        return new

    def to_bytes(self) -> bytes:
        """Return the whole state. O(n), n messages outstanding."""
        state = {
            "version": JOURNAL_VERSION,
            "now_ms": self._now,
            "sequence": self._sequence,
            "seen": self._seen,
            "seen_forgotten": self._seen_forgotten,
            "position": self._position,
            "unread": [
                [offset, None if key is None else b64encode(key).decode("ascii"), not_before_ms]
                for offset, (key, not_before_ms) in self._unread.items()
            ],
            "woken": [effect.offset for effect in self._woken],
            "dispatcher": self._dispatcher.snapshot(),
        }
        return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), _FASTEST)

    # inputs

    def apply(self, command: Command) -> list[OutcomeRow]:
        """Move time to a command, carry the command out, and return the outcomes, in order.

        A command that has been here before is ignored. A new one whose sequence is not above the last one's has only
        the outcome "late".
        """
        check_kind("command", command, Command)
        if command.filters is not None or command.letters is not None:
            command = _with_lists(command)
        for name, value in (("sequence", command.sequence), ("at_ms", command.at_ms)):
            check_offset(name, value)
        out: list[OutcomeRow] = []
        if self._sequence is not None and command.sequence <= self._sequence:
            self._look_back(command, out)
            return out
        now = max(command.at_ms, self._now)
        self._pass_to(now, out)
        self._now, self._sequence = now, command.sequence
        self._remember(command.sequence)
        try:
            effects = self._call(command)
        except InvariantError:
            raise
        except KeySharedError as error:
            self._refuse(command.offset, command.consumer, command.attempt, error, out)
            effects = self._dispatcher.handle_timeout(now_ms=now)  # nothing is due: its clock has to be this one
        self._take(effects, out)
        self._pass_to(now, out)  # what fell due by the command itself
        return out

    def apply_all(self, commands: Iterable[Command]) -> Iterator[OutcomeRow]:
        """Yield the outcomes of commands that are given in any order, perhaps with some of before, lazily.

        Two with one sequence are one command. O(n log n) for sorting n commands, O(n) memory, and that of `apply`.
        """
        given = list(checked_kinds("command", commands, Command))
        for command in given:
            check_offset("sequence", command.sequence)
        for command in sorted(given, key=_sequence_of):
            yield from self.apply(command)

    def advance(self, until_ms: int) -> list[OutcomeRow]:
        """Move time on without a command: each deadline up to an instant acts at its own. Return the outcomes.

        The journal's own instant moves to the last deadline that was due, and no further: a command that comes later
        acts at its own time if that is not before. ``until_ms`` is included; one that has passed does nothing. O(log n)
        for each deadline, each time that it comes again.
        """
        check_offset("until_ms", until_ms)
        out: list[OutcomeRow] = []
        self._pass_to(until_ms, out)
        return out

    # queries

    @property
    def dispatcher(self) -> KeySharedDispatcher:
        """The dispatcher, for its queries: call nothing that changes it."""
        return self._dispatcher

    @property
    def ring(self) -> HashRing:
        """A copy of the ring with the consumers that are on it now. O(points)."""
        return cast("HashRing", self._dispatcher.placement)  # what `_check` has let in

    @property
    def sequence(self) -> int | None:
        """The last command that was carried out or refused."""
        return self._sequence

    @property
    def unread(self) -> int:
        """How many messages wait for room in the dispatcher."""
        return len(self._unread)

    def next_deadline_ms(self) -> int | None:
        """Return when `advance` has something to do next, or None: also for an instant that it does not reach.

        O(log n) amortised.
        """
        if self._has_room:
            return self._now
        deadline = self._dispatcher.next_deadline_ms()
        return None if deadline is None or deadline >= OFFSET_STOP else deadline

    # inside

    def _remember(self, sequence: int) -> None:
        """Note the newest sequence."""
        seen = self._seen
        if seen and seen[-1][1] == sequence - 1:
            seen[-1][1] = sequence
            return
        seen.append([sequence, sequence])
        if len(seen) > _MOST_STRETCHES:
            del seen[0]
            self._seen_forgotten = True

    def _look_back(self, command: Command, out: list[OutcomeRow]) -> None:
        """Write that a command is late, unless it only comes once more."""
        seen, sequence = self._seen, command.sequence
        place = bisect_right(seen, sequence, key=_first_of)  # of the first stretch behind it
        if place and sequence <= seen[place - 1][1]:
            return
        reason = _SKIPPED
        if place or not self._seen_forgotten:
            seen.insert(place, [sequence, sequence])  # once more, it is nothing new
            self._join(place)
        else:
            reason = _FORGOTTEN
        fields = (LATE, command.offset, None, command.consumer, command.attempt, None, None, None, reason)
        out.append(_new(OutcomeRow, (self._position, sequence, self._now, *fields)))
        self._position += 1

    def _join(self, place: int) -> None:
        """Make one of a stretch and those that touch it; forget the oldest if there are too many."""
        seen = self._seen
        for left in (place, place - 1):
            if 0 <= left < len(seen) - 1 and seen[left][1] == seen[left + 1][0] - 1:
                seen[left][1] = seen.pop(left + 1)[1]
        if len(seen) > _MOST_STRETCHES:
            del seen[0]
            self._seen_forgotten = True

    def _load(self, data: Reader, placement: HashRing, config: DispatcherConfig | None) -> None:
        self._now = data.field("now_ms").count()
        self._sequence = data.field("sequence").maybe(Reader.integer)
        self._load_seen(data)
        self._position = data.field("position").count()
        dispatcher = data.field("dispatcher")
        self._dispatcher = KeySharedDispatcher.restore(
            dispatcher.raw, placement, config, now_ms=self._now, rules=self._dispatcher.rules
        )
        known = {offset.integer() for offset in data.field("woken").items()}
        open_before = open_offsets(dispatcher)
        woken = [effect for effect in self._dispatcher.outstanding_effects() if isinstance(effect, Deliver | Load)]
        self._woken = [each for each in woken if each.offset in known or each.offset not in open_before]
        self._last = dispatcher.field("last").maybe(Reader.integer)
        for message in data.field("unread").items():
            offset, key, not_before_ms = message.items(3)
            newest = self._newest
            if newest is not None and offset.integer() <= newest:
                raise offset.refuse(f"be greater than {newest}")
            self._unread[offset.integer()] = key.maybe(Reader.binary), not_before_ms.maybe(Reader.integer)

    def _load_seen(self, data: Reader) -> None:
        self._seen_forgotten = data.field("seen_forgotten").flag()
        for stretch in data.field("seen").items():
            first, last = stretch.items(2)
            if first.integer() > last.integer() or (self._seen and first.integer() <= self._seen[-1][1] + 1):
                raise stretch.refuse("be the first and the last of a stretch, behind the one before and a gap")
            self._seen.append([first.integer(), last.integer()])
        if (self._seen[-1][1] if self._seen else None) != self._sequence or len(self._seen) > _MOST_STRETCHES:
            requirement = f"be at most {_MOST_STRETCHES} stretches, and end with the last sequence"
            raise data.field("seen").refuse(requirement)

    @property
    def _newest(self) -> int | None:
        return next(reversed(self._unread), self._last)

    @property
    def _has_room(self) -> bool:
        """Whether something waits although there is room: only where a state goes on with a wider configuration."""
        return bool(self._unread) and self._dispatcher.free_slots > 0

    def _pass_to(self, until: int, out: list[OutcomeRow]) -> None:
        dispatcher = self._dispatcher
        if until >= self._now and (self._woken or self._has_room):
            woken, self._woken = self._woken, []
            self._take([*woken], out)
        while (deadline := dispatcher.next_deadline_ms()) is not None and deadline <= until:
            self._now = max(deadline, self._now)
            self._take(dispatcher.handle_timeout(now_ms=self._now), out)

    def _call(self, command: Command) -> list[Effect]:
        check_numbers(command, now_ms=self._now)
        if command.command == OFFER:
            return self._read(command)
        effects = call(self._dispatcher, command, now_ms=self._now)
        if self._unread and command.offset is not None:
            if command.command == "gone" and command.offset in self._unread:
                effects.extend(self._skip(command.offset))
            elif command.command == "truncate":
                effects.extend(self._skip_before(command.offset))
        return effects

    def _read(self, command: Command) -> list[Effect]:
        """Put a message behind those that wait; if there is room, `_take` offers it at once."""
        offset, key = command.offset, key_bytes(command.key)
        newest = self._newest
        # Not left to the dispatcher: once restored it takes old offsets for those of a log that is read again.
        if type(offset) is not int or (newest is not None and offset <= newest):
            raise OffsetOrderError(offset, newest)
        check_offset("offset", offset)
        wait_ms = command.duration_ms
        not_before_ms = None if wait_ms is None else self._now + check_int("duration_ms", wait_ms, 0, ", or None")
        start = self._dispatcher.config.start
        if start is None or offset >= start:  # what lies below counts as settled
            self._unread[offset] = key, not_before_ms
            if self._dispatcher.free_slots:
                return []
        told = [] if offset in self._unread else self._done(offset, key, Ending.EARLIER)
        return told + self._dispatcher.handle_timeout(now_ms=self._now)

    def _take(self, effects: list[Effect], out: list[OutcomeRow]) -> None:
        """Write effects down, load what they ask for, and offer what waits while there is room."""
        loads: deque[int] = deque()
        self._write(effects, loads, out)
        while True:
            if loads:
                effects = self._dispatcher.loaded(loads.popleft(), now_ms=self._now)
            elif self._unread and self._dispatcher.free_slots:
                effects = self._offer_next(out)
            else:
                return
            self._write(effects, loads, out)

    def _write(self, effects: list[Effect], loads: deque[int], out: list[OutcomeRow]) -> None:
        for effect in effects:
            fields = fields_of(effect)
            if fields is not None:
                self._tell(fields, out)
            elif isinstance(effect, Load):
                loads.append(effect.offset)

    def _offer_next(self, out: list[OutcomeRow]) -> list[Effect]:
        offset, (key, not_before_ms) = self._unread.popitem(last=False)
        try:
            effects = self._dispatcher.offer(offset, key, not_before_ms=not_before_ms, now_ms=self._now)
        except InvariantError:
            raise
        except KeySharedError as error:
            self._refuse(offset, None, None, error, out)
            return self._dispatcher.handle_timeout(now_ms=self._now)
        self._last = offset
        return effects

    def _skip(self, offset: int) -> list[Effect]:
        key = self._unread.pop(offset)[0]
        return [Skipped(offset, key, SkipReason.GONE), *self._done(offset, key, Ending.GONE)]

    def _skip_before(self, before: int) -> Iterator[Effect]:
        while self._unread and (offset := next(iter(self._unread))) < before:
            yield from self._skip(offset)

    def _done(self, offset: int, key: bytes | None, how: Ending) -> list[Effect]:
        """Record of a message that the dispatcher was never offered what it would have told."""
        return [Done(offset, key, how)] if self._dispatcher.config.tell_settled else []

    def _refuse(
        self,
        offset: int | None,
        consumer: str | None,
        attempt: int | None,
        error: KeySharedError,
        out: list[OutcomeRow],
    ) -> None:
        self._tell((REFUSED, offset, None, consumer, attempt, None, None, None, str(error)), out)

    def _tell(self, fields: Fields, out: list[OutcomeRow]) -> None:
        out.append(_new(OutcomeRow, (self._position, self._sequence, self._now, *fields)))
        self._position += 1


def _first_of(stretch: list[int]) -> int:
    return stretch[0]


def _sequence_of(command: Command) -> int:
    return command.sequence


def _ring_for(state: Reader, placement: HashRing, joined: HashRing | None) -> HashRing:
    """Return the ring that has the consumers of a state already, else the empty one."""
    if joined is None:
        return placement
    if not isinstance(joined, HashRing):
        raise ArgumentError("joined", joined, "be the ring of a journal, or None")
    members = [
        (consumer.field("name").text(), consumer.field("weight").maybe(Reader.weight))
        for consumer in state.field("dispatcher").field("consumers").items()
        if consumer.field("state").text() != ConsumerState.DRAINING
    ]
    there = [(name, joined.weight_of(name)) for name in joined.consumers]
    return joined if there == [(name, 1 if weight is None else weight) for name, weight in members] else placement


def _check(placement: object, config: object) -> None:
    if not isinstance(placement, HashRing) or placement.separator is not None:
        raise ArgumentError(
            "placement", placement, "be a HashRing without a separator: any other placement is its own history"
        )
    if placement.consumers:
        raise ArgumentError("placement", placement.consumers, "be empty: consumers come as commands")
    if config is not None:
        check_kind("config", config, DispatcherConfig, ", or None")


def _with_lists(command: Command) -> Command:
    """A command whose iterators are read, before anything is looked at: reading them may call the journal.

    What cannot be read stays as it is: that is refused when its turn has come.
    """
    return command._replace(filters=_read(command.filters), letters=_read(command.letters))


def _read(given: Iterable[_T] | None) -> Iterable[_T] | None:
    return list(given) if isinstance(given, Iterable) and not isinstance(given, Sequence) else given


def _parsed(state: object, max_bytes: int) -> object:
    if not isinstance(state, bytes):
        raise SnapshotError("state", state, "be bytes")
    try:
        return json.loads(_inflated(state, max_bytes))
    except SnapshotError:
        raise
    except (zlib.error, ValueError, RecursionError):
        raise SnapshotError("state", state[:_SHOWN_BYTES], "begin what Journal.to_bytes wrote") from None


def _inflated(state: bytes, max_bytes: int) -> bytes:
    """Inflate one byte more than is allowed, at most: a few bytes can stand for a thousand times as many."""
    stream = zlib.decompressobj()
    text = stream.decompress(state, min(max_bytes, sys.maxsize - 1) + 1)
    if len(text) > max_bytes:
        requirement = f"take at most {shown(max_bytes)} bytes when it is inflated; raise max_bytes if you trust it"
        raise SnapshotError("state", state[:_SHOWN_BYTES], requirement)
    if not stream.eof:
        raise SnapshotError("state", state[:_SHOWN_BYTES], "begin what Journal.to_bytes wrote, and not end before it")
    if stream.unused_data:
        raise SnapshotError("state", state[-_SHOWN_BYTES:], "end where what Journal.to_bytes wrote ends")
    return text
