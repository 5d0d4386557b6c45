"""Handlers that were let go while they worked, and what has to wait for them."""

from typing import Generic, TypeVar

from keyshared.run.log import Log, Run

__all__ = ["Leftovers"]

Message = TypeVar("Message")


class Leftovers(Generic[Message]):
    """Keeps a key from running beside a handler that an earlier stay of its log has left behind."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, bytes | int], Run[Message]] = {}
        self._held: dict[tuple[str, bytes | int], Run[Message]] = {}

    def leave(self, run: Run[Message]) -> None:
        """Abandon a handler; its answer no longer counts."""
        run.is_abandoned = True
        self._running[run.place] = run

    def must_wait(self, run: Run[Message]) -> bool:
        """Hold a run if something of its place still works, and return whether that is so."""
        if run.place not in self._running:
            return False
        self._held[run.place] = run
        return True

    def ended(self, run: Run[Message]) -> Run[Message] | None:
        """Return what may run now that a handler that was let go has ended."""
        del self._running[run.place]
        return self._held.pop(run.place, None)

    def forget(self, log: Log[Message]) -> None:
        """Drop what is held of a log that leaves."""
        for place in [place for place, run in self._held.items() if run.log is log]:
            del self._held[place]
