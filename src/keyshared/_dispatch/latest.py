"""Latest only: a message that waits for its first delivery makes way for a newer one of its key, or of some keys."""

from collections.abc import Sequence
from typing import Final

from keyshared._dispatch.ruled import RuledWindow
from keyshared._window.lanes import DELAYED, LOADING, QUEUED, SPILLED, Consumer, Entry, Lane, live_from
from keyshared.window import InFlightWindow

__all__ = ["KeyLatestWindow", "LatestWindow"]

_WAITS: Final = frozenset({QUEUED, SPILLED, LOADING, DELAYED})
"""States of what was never delivered, and still may be: what is being archived goes to the dead-letter store."""


class LatestWindow(InFlightWindow):
    """A window in which a newer message takes the place of those of its key that were never delivered."""

    supersedes = True
    has_lone = False

    def overtaken(self, key: bytes | None) -> list[Entry]:
        """Return what the next message of a key takes the place of, oldest first. O(what waits of it)."""
        lane = None if key is None else self.lanes.get(key)
        older: list[Entry] = []
        back = self.beside
        entry = lane.fresh if isinstance(lane, Lane) else None  # what has no lane is delivered
        while entry is not None:
            if entry.state not in _WAITS:
                older.clear()
            elif entry.offset not in back:  # what has come back was delivered long ago
                older.append(entry)
            entry = live_from(entry.after)
        return older

    def replace(
        self, older: Sequence[Entry], offset: int, key: bytes, item: object, deadline: int | None = None
    ) -> list[Entry]:
        """Settle messages that wait for their first delivery, and track a newer one in the place of the oldest.

        If that had a slot, the newer one has it now; else it is spilled or not, as any other that is offered. What was
        to be loaded is there now.

        Args:
            older: What `overtaken` returned for the key; at least one.
            offset: As for `offer`.
            key: Their key.
            item: A passenger that comes back with the entry.
            deadline: As for `offer_later`; None to wait for nothing but its turn.

        Returns:
            What was granted.

        Raises:
            OffsetOrderError: As `offer`.
            ArgumentError: As `offer`.
            WindowFullError: As `offer`: the slot of the older one is free only then.
        """
        self.check_offer(offset)
        lane = older[0].lane
        was_next = lane.candidate
        had_slot = older[0].state != SPILLED
        reserved = older[0].consumer if older[0].state == LOADING else None
        entry = Entry(offset, key, item, lane)
        entry.deadline = deadline
        self.cursor.append(entry)  # first: a lane in which nothing is left would lose its place
        lane.append(entry)
        lane.spilled = None  # all that is spilled goes, and nothing is to be loaded for that
        for each in older:
            self.remove(each)
        spilled: list[Entry] = []
        self._take_slot(lane, entry, spilled, had_slot=had_slot)
        if self._keeps_its_place(lane, entry, was_next):
            del self._touched[lane]
        elif lane.candidate is entry and reserved is not None and entry.state == QUEUED:
            self._hand_over(lane, entry, reserved)
        granted = self.wake()
        if not had_slot and deadline is None:
            self._spill_if_crowded(lane, entry, spilled)
        return spilled + granted

    def _keeps_its_place(self, lane: Lane, entry: Entry, was_next: Entry | None) -> bool:
        """Whether the lane waits for what it waited for: for the same message, or where the older one did.

        Its next message is another one where dead letters had come back behind one that waited for its instant.
        """
        following = lane.candidate
        return following is was_next or (following is entry and lane.listed is not None and entry.deadline is None)

    def _take_slot(self, lane: Lane, entry: Entry, spilled: list[Entry], *, had_slot: bool) -> None:
        if not had_slot and lane.loaded >= self.loaded_per_key:
            self._spill(lane, entry)
            spilled.append(entry)
            return
        lane.loaded += 1
        self.loaded += 1
        self.waiting += 1
        if entry.deadline is None:
            return
        if not had_slot:
            self._spill_if_crowded(lane, entry, spilled)
        if entry.state == QUEUED:
            entry.state = DELAYED
            self.held[DELAYED] += 1

    def _hand_over(self, lane: Lane, entry: Entry, consumer: Consumer) -> None:
        """Send out what is there now to whoever had room for it when it was loaded."""
        if consumer.free > 0 and self._could_get(consumer, lane):
            self._open(lane, entry, consumer, self._granted)


class KeyLatestWindow(RuledWindow, LatestWindow):
    """The same for the keys whose rule says so, and for no other."""

    def overtaken(self, key: bytes | None) -> list[Entry]:
        """Return what the next message of a key takes the place of, oldest first. O(result)."""
        lane = None if key is None else self.lanes.get(key)
        return super().overtaken(key) if isinstance(lane, Lane) and lane.rule.latest_only else []
