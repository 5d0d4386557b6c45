"""The host of a dispatcher on a virtual clock: makes its calls, and carries out their effects.

A journal has one that writes effects down, a simulation one that works on deliveries.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.effects import Effect
from keyshared.journal.commands import OFFER, Command, call

__all__ = ["Host"]


class Host:
    """One dispatcher, and the instant that it has reached.

    Args:
        dispatcher: The dispatcher.
        note: Gets each call that changed the dispatcher, as a command with the sequence 0; None: no caller wants them.

    Attributes:
        dispatcher: As given.
        now: The instant of the next call.
        actions: What a subclass does with an effect, by the type of the effect.
    """

    actions: ClassVar[Mapping[type[Effect], Callable[[Any, Any], object]]] = {}

    def __init__(self, dispatcher: KeySharedDispatcher[Any], note: Callable[[Command], object] | None = None) -> None:
        self.dispatcher = dispatcher
        self.now = 0
        self._note = note
        self._machine = dispatcher._machine  # noqa: SLF001  # what a host has checked or made is not checked again

    def call(self, name: str, **fields: Any) -> list[Effect]:  # noqa: ANN401  # the fields of a command
        """Make the call of a command, given by its fields; return its effects."""
        return self.make(Command(0, self.now, name, **fields))

    def make(self, command: Command) -> list[Effect]:
        """Make the call of a command other than an offer; return its effects."""
        effects = call(self.dispatcher, command, now_ms=self.now)
        if self._note is not None:
            self._note(command)
        return effects

    def offer(self, offset: int, key: bytes | None, item: object, not_before_ms: int | None) -> list[Effect]:
        """Offer a message; return the effects."""
        effects = self.dispatcher.offer(offset, key, item, not_before_ms=not_before_ms, now_ms=self.now)
        if self._note is not None:
            wait_ms = None if not_before_ms is None else not_before_ms - self.now
            self._note(Command(0, self.now, OFFER, offset, key, duration_ms=wait_ms))
        return effects

    def ack(self, offset: int, consumer: str, attempt: int) -> list[Effect]:
        """Ack a delivery that the dispatcher has made; return the effects."""
        effects = self._machine.ack(offset, consumer, attempt, self.now)
        if self._note is not None:
            self._note(Command(0, self.now, "ack", offset, consumer=consumer, attempt=attempt))
        return effects

    def redrive(self, key: bytes | None, letters: Sequence[StoredLetter[Any]]) -> list[Effect]:
        """Bring back dead letters of a key, which a command names without their items; return the effects."""
        effects = self.dispatcher.redrive(key, letters, now_ms=self.now)
        if self._note is not None:
            self._note(Command(0, self.now, "redrive", key=key, letters=[letter[:2] for letter in letters]))
        return effects

    def carry_out(self, effects: list[Effect]) -> None:
        """Carry out the effects of a call, in their order."""
        actions = self.actions
        for effect in effects:
            actions[type(effect)](self, effect)

    def time_out(self) -> None:
        """Act on the deadlines that are due."""
        self.carry_out(self.call("handle_timeout"))
