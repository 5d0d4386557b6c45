"""The real dispatcher of which only the latest message of a key counts, and one fault each."""

from collections.abc import Sequence
from typing import Any

from tests.broken_parts import Broken

from keyshared._dispatch.latest import LatestWindow
from keyshared._window.lanes import LOADING, QUEUED, Entry, Lane
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, Effect

__all__ = [
    "KeepsTheOlder",
    "LetterBehindSleeps",
    "NewestGoesToTheTail",
    "SupersededHoldsTheCursor",
    "SupersedesADelivered",
    "VoidLoadWakesNobody",
]


class KeepsTheOlder(Broken):
    """Only what is at hand makes way: what is spilled, or being loaded, is delivered before the newer one."""

    class _Fault(LatestWindow):
        def overtaken(self, key: bytes | None) -> list[Entry]:
            return [each for each in super().overtaken(key) if each.state == QUEUED]


class SupersedesADelivered(Broken):
    """Whatever waits makes way, also what came back from its consumer."""

    class _Fault(LatestWindow):
        def overtaken(self, key: bytes | None) -> list[Entry]:
            lane = self.lanes.get(key) if key is not None else None
            back = [each for each in lane.back or () if each.state == QUEUED] if isinstance(lane, Lane) else []
            return [*back, *super().overtaken(key)]


class SupersededHoldsTheCursor(KeySharedDispatcher[object]):
    """An offer never moves the cursor, so nobody is told."""

    def _supersede(self, *args: Any) -> list[Effect[object]]:
        effects = super()._supersede(*args)
        return [effect for effect in effects if not isinstance(effect, CursorAdvanced)]


class NewestGoesToTheTail(Broken):
    """A key whose message is replaced waits anew, behind all others."""

    class _Fault(LatestWindow):
        def replace(self, older: Sequence[Entry], *args: Any, **kwargs: Any) -> list[Entry]:
            self._unlist(older[0].lane)
            return super().replace(older, *args, **kwargs)


class LetterBehindSleeps(Broken):
    """A dead letter that came back behind the replaced message goes on waiting for it."""

    class _Fault(LatestWindow):
        def _keeps_its_place(self, lane: Lane, entry: Entry, was_next: Entry | None) -> bool:
            return lane.candidate is not entry or super()._keeps_its_place(lane, entry, was_next)


class VoidLoadWakesNobody(Broken):
    """What was being loaded is replaced, and its key waits for the load all the same."""

    class _Fault(LatestWindow):
        def replace(self, older: Sequence[Entry], *args: Any, **kwargs: Any) -> list[Entry]:
            if older[0].state == LOADING:
                self.wake = list  # type: ignore[method-assign]
            granted = super().replace(older, *args, **kwargs)
            vars(self).pop("wake", None)
            self._touched.clear()
            return granted
