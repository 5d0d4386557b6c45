"""A window that lets the holes in what is settled grow only so far: the budget of a restart token.

While the token is full, only the lowest outstanding message goes out. Everything else that is ready stays where it is,
in its place: nothing is moved when the token fills, however much waits. What the window does not hand out is a matter
of the whole subscription, not of a key; so it is no gate that a lane is asked about.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from keyshared._dispatch.snapshot import Reader
from keyshared._window.holes import MeasuringCursor
from keyshared._window.lanes import SPILLED, Consumer, Entry, Lane
from keyshared._window.strides import offer_each, settle_each
from keyshared.effects import Effect
from keyshared.window import InFlightWindow

if TYPE_CHECKING:
    from keyshared._dispatch.timers import Duties

__all__ = ["BudgetedWindow", "TokenRoom"]


class BudgetedWindow(InFlightWindow):
    """A window that obeys its cursor: a `MeasuringCursor`, which it has to be given before anything else."""

    cursor: MeasuringCursor
    has_lone = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # as those of a window
        super().__init__(*args, **kwargs)
        self._was_full = False  # at the last wake, or since: something may stand in a ready list though there is room

    # every message comes by one of these

    def settle(self, entry: Entry) -> list[Entry]:
        """As `InFlightWindow.settle`. Where it could fill the token, nothing goes out before that is known."""
        if not (self.cursor.is_near or self.cursor.is_full):
            return super().settle(entry)
        self.remove(entry)
        return self.wake()

    def offer_many(self, messages: Iterable[tuple[int, bytes | None, object]]) -> list[Entry]:
        """As `InFlightWindow.offer_many`, message after message."""
        return offer_each(self, messages)

    def settle_many(self, entries: Sequence[Entry]) -> tuple[list[Entry], bool]:
        """As `InFlightWindow.settle_many`, message after message."""
        return settle_each(self, entries)

    def remove(self, entry: Entry) -> None:
        """As `InFlightWindow.remove`."""
        self._was_full = self._was_full or self.cursor.is_full
        super().remove(entry)

    def wake(self) -> list[Entry]:
        """As `InFlightWindow.wake`; once the token has room again, all that is ready is served."""
        is_full = self.cursor.is_full
        if self._was_full and not is_full:
            self._freed.update(dict.fromkeys(self.consumers.values()))
        self._was_full = is_full
        granted = super().wake()
        if is_full:
            self._send_lowest(granted)
        return granted

    def pull(self, consumer: Consumer, most: int, only: Entry | None = None, per_key: int | None = None) -> list[Entry]:
        """As `InFlightWindow.pull`; while the token is full there is nothing to be had but the lowest message."""
        if only is None and self.cursor.is_full:
            only = self._lowest_waiting()
            if only is None:
                return []
        return super().pull(consumer, most, only, per_key)

    def go_on_full(self) -> None:
        """Go on with a token that was full; where its budget is so great now that it is not, all that waits is touched.

        For a window that has all its messages.
        """
        self.cursor.fill()
        if not self.cursor.is_full:
            self._touched.update(dict.fromkeys(self.waiting_lanes()))

    def is_held(self, entry: Entry) -> bool:
        """Whether a message has to wait until the token has room, or until it is the lowest one."""
        return self.cursor.is_full and entry is not self.cursor.lowest

    def can_serve(self, consumer: Consumer) -> bool:
        """Whether something that is ready may go to a consumer that has room."""
        if not self.cursor.is_full:
            return super().can_serve(consumer)
        lowest = self._lowest_waiting()
        listed = None if lowest is None else lowest.lane.listed
        return listed is not None and (listed is consumer.ready or (consumer.keyless and listed is self.shared))

    # where things go out

    def _offer_first(self, offset: int, key: bytes | None, item: object, lane_key: bytes | None) -> list[Entry]:
        if self.cursor.is_full and self.cursor.outstanding:
            return self._offer_in_lane(offset, key, item, lane_key)
        return super()._offer_first(offset, key, item, lane_key)

    def _send(self, lane: Lane, entry: Entry, consumer: Consumer, granted: list[Entry]) -> bool:
        if self.is_held(entry):
            self._list(lane, self.shared if lane.key is None else consumer.ready)
            return False
        if not self.cursor.is_full or entry.state == SPILLED:
            return super()._send(lane, entry, consumer, granted)
        self._open(lane, entry, consumer, granted)
        return self.per_key > 1  # what follows has to stand in a list

    def _serve(self, consumer: Consumer, granted: list[Entry]) -> None:
        if not self.cursor.is_full:  # else room makes nothing go out: the lowest message goes where it would go anyway
            super()._serve(consumer, granted)

    def _serve_shared(self, granted: list[Entry]) -> None:
        if not self.cursor.is_full:
            super()._serve_shared(granted)

    def _hand_out(self, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        if not self.is_held(entry):
            super()._hand_out(entry, consumer, granted)

    def _send_lowest(self, granted: list[Entry]) -> None:
        """Send the lowest message past what is ready before it, or load it though the window may be full."""
        lowest = self._lowest_waiting()
        if lowest is None or lowest.lane.listed is None:
            return
        lane = lowest.lane
        if lane.listed is self.starved:
            self._unlist(lane)
            self._load(lane, lowest, None, granted)
            return
        taker = self._owner_now(lane)
        if taker is not None and taker.free > 0:
            self._hand_out(lowest, taker, granted)

    def _lowest_waiting(self) -> Entry | None:
        """The lowest message, if its lane waits with it."""
        lowest: Entry | None = self.cursor.lowest
        return lowest if lowest is not None and lowest.lane.candidate is lowest else None


class TokenRoom:
    """Remembers over a restart that the token was full: between one half and three quarters its length does not say so.

    Args:
        window: Its cursor measures the token.
    """

    __slots__ = ("_cursor", "_was_full", "_window", "duties")

    name: Final = "token"

    def __init__(self, window: InFlightWindow) -> None:
        self._window = cast("BudgetedWindow", window)
        self._cursor = self._window.cursor
        self._was_full = False  # in another life, and it has room now
        self.duties: Duties = {}

    def refresh(self, now: int, notices: list[Effect]) -> None:
        """Do nothing: the cursor knows at any time."""

    def dump(self, now: int) -> object:  # noqa: ARG002  # one shape for all rooms
        """Return True while the token is full, or was in another life and nothing that waited for it has gone out."""
        return self._cursor.is_full or (self._was_full and self._window.is_due_anew) or None

    def load(self, data: Reader, now: int) -> None:  # noqa: ARG002  # as above
        """Go on with a full token, if there was one and it is not short for the budget of now."""
        if not data.flag():
            raise data.refuse("be True, or absent: it is kept of a full token only")
        self._was_full = True
        self._window.go_on_full()

    def check_invariants(self) -> None:
        """Do nothing: the cursor checks itself."""
