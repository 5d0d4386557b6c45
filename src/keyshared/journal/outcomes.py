"""The host of a journal: it has no payloads, and writes down what comes of each command."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, cast

from keyshared._checks import check_int, check_offset
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver, Done, Effect, Ending, Load, Resumed, Skipped, SkipReason, Spilled
from keyshared.errors import InvariantError, KeySharedError, OffsetOrderError
from keyshared.hashing import key_bytes
from keyshared.journal.commands import FIELDS, LATE, OFFER, REFUSED, Command, Fields, OutcomeRow, check_end, fields_of
from keyshared.journal.host import Host

__all__ = ["OutcomeHost"]

_new: Final = tuple.__new__  # builds an OutcomeRow in half the time that its own constructor takes


class OutcomeHost(Host):
    """Writes effects down as outcomes, answers loads at once, and offers what waits while there is room.

    Attributes:
        sequence: The last command that was carried out or refused.
        position: How many outcomes there were.
        last: The greatest offset that the dispatcher has taken.
        unread: Key, and not before when, of the messages that wait for room, by offset.
        woken: What a wider configuration let out after a restart, and is not yet an outcome.
    """

    def __init__(self, dispatcher: KeySharedDispatcher[Any]) -> None:
        super().__init__(dispatcher)
        self.sequence: int | None = None
        self.position = 0
        self.last: int | None = None
        self.unread: OrderedDict[int, tuple[bytes | None, int | None]] = OrderedDict()
        self.woken: list[Deliver | Load] = []
        self._loads: deque[int] = deque()
        self._outcomes: list[OutcomeRow] = []

    def take_outcomes(self) -> list[OutcomeRow]:
        """Return the outcomes since this was called last."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def apply(self, command: Command) -> None:
        """Move time to a command, and carry the command out or refuse it."""
        self.pass_to(max(command.at_ms, self.now))
        self.now, self.sequence = max(command.at_ms, self.now), command.sequence
        try:
            effects = self._read(command) if command.command == OFFER else self._make(command)
        except InvariantError:
            raise
        except KeySharedError as error:
            effects = self._refuse(command.offset, command.consumer, command.attempt, error)
        self.carry_out(effects)
        self.pass_to(self.now)  # what fell due by the command itself

    def pass_to(self, until: int) -> None:
        """Act on each deadline up to an instant, at its own."""
        if until >= self.now and (self.woken or self.has_room):
            woken, self.woken = self.woken, []
            self.carry_out([*woken])
        next_deadline = self.dispatcher.next_deadline_ms
        while (deadline := next_deadline()) is not None and deadline <= until:
            self.now = max(deadline, self.now)
            self.time_out()

    def carry_out(self, effects: list[Effect]) -> None:
        """Write effects down, load what they ask for, and offer what waits while there is room."""
        super().carry_out(effects)
        while True:
            if self._loads:
                effects = self.dispatcher.loaded(self._loads.popleft(), now_ms=self.now)
            elif self.has_room:
                effects = self._offer_next()
            else:
                return
            super().carry_out(effects)

    @property
    def has_room(self) -> bool:
        """Whether a message waits although there is room: between calls only after a restart that gave more room."""
        return bool(self.unread) and self.dispatcher.free_slots > 0

    def write_late(self, command: Command, problem: str) -> None:
        """Write that a command is not carried out: it came too late."""
        fields: Fields = (LATE, command.offset, None, command.consumer, command.attempt, None, None, None, problem)
        self._write(fields, command.sequence)

    # messages

    def _read(self, command: Command) -> list[Effect]:
        """Put a message behind those that wait; if there is room, it is offered at once."""
        offset, key, wait_ms = command.offset, key_bytes(command.key), command.duration_ms
        newest = self._newest
        # Not left to the dispatcher: once restored it takes old offsets for those of a log that is read again.
        if type(offset) is not int or (newest is not None and offset <= newest):
            raise OffsetOrderError(offset, newest)
        check_offset("offset", offset)
        check_end(command, self.now)
        not_before_ms = None if wait_ms is None else self.now + check_int("duration_ms", wait_ms, 0, ", or None")
        start = self.dispatcher.config.start
        if start is not None and offset < start:  # it counts as settled
            return self._done(offset, key, Ending.EARLIER) + self.call("handle_timeout")
        self.unread[offset] = key, not_before_ms
        return [] if self.has_room else self.call("handle_timeout")

    def _offer_next(self) -> list[Effect]:
        offset, (key, not_before_ms) = self.unread.popitem(last=False)
        try:
            effects = self.offer(offset, key, None, not_before_ms)
        except InvariantError:
            raise
        except KeySharedError as error:
            return self._refuse(offset, None, None, error)
        self.last = offset
        return effects

    @property
    def _newest(self) -> int | None:
        return next(reversed(self.unread), self.last)

    def _make(self, command: Command) -> list[Effect]:
        """Make a call; a message that waits can be gone, too."""
        effects, offset = self.make(command), cast("int", command.offset)  # of these two the call has taken it
        if command.command == "gone" and offset in self.unread:
            effects.extend(self._skip(offset))
        elif command.command == "truncate":
            while self.unread and (first := next(iter(self.unread))) < offset:
                effects.extend(self._skip(first))
        return effects

    def _skip(self, offset: int) -> Iterator[Effect]:
        key = self.unread.pop(offset)[0]
        yield Skipped(offset, key, SkipReason.GONE)
        yield from self._done(offset, key, Ending.GONE)

    def _done(self, offset: int, key: bytes | None, how: Ending) -> list[Effect]:
        """Return what the dispatcher would emit about a message that it was never offered."""
        return [Done(offset, key, how)] if self.dispatcher.config.tell_settled else []

    # outcomes

    def _refuse(
        self, offset: int | None, consumer: str | None, attempt: int | None, error: KeySharedError
    ) -> list[Effect]:
        """Write a refusal; nothing is due, but the dispatcher's clock has to be this one."""
        self._write((REFUSED, offset, None, consumer, attempt, None, None, None, str(error)), self.sequence)
        return self.call("handle_timeout")

    def _write(self, fields: Fields, sequence: int | None) -> None:
        self._outcomes.append(_new(OutcomeRow, (self.position, sequence, self.now, *fields)))
        self.position += 1

    def _see(self, effect: Effect) -> None:
        self._write(fields_of(effect), self.sequence)

    def _load(self, effect: Load) -> None:
        self._loads.append(effect.offset)

    def _pass_over(self, _: Spilled | Resumed) -> None:
        """It is about payloads or reading ahead."""

    actions: ClassVar[Mapping[type[Effect], Callable[[Any, Any], object]]] = {
        **dict.fromkeys(FIELDS, _see),
        Load: _load,
        Spilled: _pass_over,
        Resumed: _pass_over,
    }
