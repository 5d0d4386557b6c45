"""What a call returns where each settlement is told."""

from typing import Any, Final

from keyshared._dispatch.ledger import Ledger
from keyshared._dispatch.outbox import Outbox
from keyshared._window.lanes import Entry
from keyshared.effects import CursorAdvanced, DeadLetter, Deliver, Done, Effect, Ending, Load, Resumed

__all__ = ["TellingOutbox"]

_AFTER_NOTICES: Final = (DeadLetter, Load, Deliver, CursorAdvanced, Resumed)


class TellingOutbox(Outbox):
    """Adds to what a call returns one `Done` for each message that it has settled, after all other notices."""

    __slots__ = ("_ledger",)

    def __init__(self, ledger: Ledger, *others: Any) -> None:  # noqa: ANN401  # those of an outbox
        super().__init__(*others)
        self._ledger = ledger

    def resume(self, *, paused: bool) -> None:
        """Begin as an outbox does, with nothing to tell."""
        super().resume(paused=paused)
        self._ledger.forget()

    def known(self, offset: int, key: bytes | None) -> list[Effect[Any]]:
        """Answer an offer that is no news: it is done, unless it is outstanding."""
        return [] if self._window.find(offset) is not None else [Done(offset, key, Ending.EARLIER)]

    def finish(self, out: list[Effect], granted: list[Entry], now: int) -> list[Effect[Any]]:
        """Put the settlements between the notices and the obligations."""
        out = super().finish(out, granted, now)
        done = self._ledger.take()
        if done:
            place = next((at for at, effect in enumerate(out) if isinstance(effect, _AFTER_NOTICES)), len(out))
            out[place:place] = done
        return out
