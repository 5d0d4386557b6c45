"""What is asked about a message before it is let in: is it known, does a consumer accept it, is there room."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from keyshared._core.membership import Membership
from keyshared._core.records import SPILLED, Entry
from keyshared._core.values import Full, StoredLetter
from keyshared._core.window import Window
from keyshared.config import DispatcherConfig, LookAhead, Unmatched
from keyshared.effects import Call, Ending, Ignored, IgnoredReason
from keyshared.errors import (
    KeyFullError,
    LookAheadFullError,
    OffsetOrderError,
    RedriveTooEarlyError,
    UnmatchedKeyError,
    WindowFullError,
)

__all__ = ["Admission", "Offered"]

Offered: TypeAlias = tuple[int, bytes | None, Any, int | None]
"""Offset, key, passenger, and the instant before which it is not delivered."""


class Admission:
    """Decides which offers are taken, and says how many more there may be.

    The bounds are memory and tracked offsets (those of the window), `LookAhead`, and ``max_waiting_per_key``. The offer
    and the pause ask the same ones.

    Attributes:
        looks_ahead: Whether the number of waiting messages is bounded.
        asks: Whether an offer needs more than a look at the window. One flag for all reasons, because each offer reads
            it; `refresh` keeps it.
    """

    def __init__(self, config: DispatcherConfig, window: Window, membership: Membership) -> None:
        self._config = config
        self._window = window
        self._membership = membership
        self._routing = membership.routing
        self._look_ahead: LookAhead | None = config.look_ahead
        self._per_key = config.max_waiting_per_key
        self._asks_always = config.ordering_required or self._look_ahead is not None or self._per_key is not None
        self.looks_ahead = self._look_ahead is not None
        self._known_until: int | None = None
        self.asks = False
        self.begin()

    def begin(self) -> None:
        """Look at the cursor, which was set up or restored: the offsets that it knows are not new."""
        cursor = self._window.cursor
        known = [] if cursor.start is None else [cursor.start - 1]
        known += [] if cursor.last is None else [cursor.last]
        self._known_until = max(known, default=None)
        self.refresh()

    def refresh(self) -> None:
        """Note that consumers or the placement have changed."""
        self.asks = (
            self._asks_always
            or self._known_until is not None
            or self._window.cursor.looks_ahead
            or self._membership.may_match_none
            or self._routing.refuses_keys
        )

    # how many more

    @property
    def free_slots(self) -> int:
        """How many messages may be offered now."""
        free = self._window.free_slots
        return free if self._look_ahead is None else max(0, min(free, self._may_wait(self._look_ahead)))

    @property
    def is_roomy(self) -> bool:
        """Whether so much is free that a pause ends: a quarter of the window, and of the look-ahead limit."""
        window = self._window
        if window.free_slots < max(1, window.capacity // 4):
            return False
        if self._look_ahead is None:
            return True
        limit = self._look_ahead.limit(self._routing.connected)
        return self._may_wait(self._look_ahead) >= max(1, limit // 4)

    @property
    def paused_by(self) -> Full | None:
        """The limit that leaves no free slot."""
        window = self._window
        if self.free_slots:
            return None
        if window.loaded >= window.capacity:
            return Full.WINDOW
        return Full.TRACKED if window.cursor.outstanding >= window.max_tracked else Full.LOOK_AHEAD

    def full_error(self) -> WindowFullError:
        """Return what to raise for more messages than there are free slots: the first limit that leaves fewest."""
        window = self._window
        by_memory = max(0, window.capacity - window.loaded)
        by_number = max(0, window.max_tracked - window.cursor.outstanding)
        if self._look_ahead is not None and max(0, self._may_wait(self._look_ahead)) < min(by_memory, by_number):
            return LookAheadFullError(self._look_ahead.limit(self._routing.connected))
        return WindowFullError(window.capacity if by_memory <= by_number else window.max_tracked + len(window.beside))

    def room_for(self, key: bytes | None) -> int:
        """Return how many messages of a key may be offered now."""
        if self._per_key is None or key is None:
            return self.free_slots
        return max(0, min(self.free_slots, self._per_key - self._waiting_of(key)))

    def _may_wait(self, look_ahead: LookAhead) -> int:
        window = self._window
        opened = window.loaded - window.waiting
        return look_ahead.limit(self._routing.connected) - (window.tracked - opened)

    def _waiting_of(self, key: bytes) -> int:
        lane = self._window.lanes.get(key)
        return 0 if lane is None else lane.loaded - lane.open

    # one message

    def check(self, offset: int) -> None:
        """Raise unless an offset is above all others and has a slot."""
        last = self._window.cursor.last
        if last is not None and offset <= last:
            raise OffsetOrderError(offset, last)
        if not self.free_slots:
            raise self.full_error()

    def is_known(self, offset: int) -> bool:
        """Return whether the offset is below the start or the position, or a snapshot has seen it."""
        return self._known_until is not None and offset <= self._known_until

    def remember(self, offset: int, item: object) -> None:
        """Take the passenger of a known message, in case it was lost with the process that held it."""
        entry = self._window.find(offset)
        if entry is not None and entry.item is None and entry.state != SPILLED:
            entry.item = item

    def admit(self, offset: int, key: bytes | None) -> Ending | None:
        """Return how a message is settled already that is not known; None if it is to be tracked.

        Raises:
            MisuseError: The offer is refused; nothing has changed.
        """
        cursor = self._window.cursor
        self._window.prepared.clear()
        if cursor.recalls(offset):
            how: Ending | None = Ending.EARLIER
        else:
            self.check(offset)
            how = None if self._is_wanted(key) else Ending.UNMATCHED
            if how is None:
                if self._per_key is not None and key is not None and self._waiting_of(key) >= self._per_key:
                    raise KeyFullError(key, self._per_key)
                self._check_key(key)
        cursor.pass_to(offset)
        if self._known_until is not None:
            self._known_until = None
        self.refresh()
        return how

    def _is_wanted(self, key: bytes | None) -> bool:
        """Return whether a message is not to be skipped; raise if the policy is to raise."""
        policy = self._config.unmatched
        if policy is Unmatched.HOLD or not self._membership.may_match_none or not self._is_unmatched(key, policy):
            return True
        if policy is Unmatched.ERROR:
            raise UnmatchedKeyError(key)
        return False

    def _is_unmatched(self, key: bytes | None, policy: Unmatched) -> bool:
        """Return whether the key has no lane and there are consumers, but none for it.

        None accepts it; or, where that is an error, it is unowned. An unowned key is never skipped: it is wanted, and
        its slot was not assigned.
        """
        if key in self._window.lanes:
            return False
        if not self._membership.accepts(key):
            return True
        if policy is not Unmatched.ERROR or key is None:
            return False
        return bool(self._routing.connected) and self._routing.is_unowned(key)

    def _check_key(self, key: bytes | None) -> None:
        """Raise what the hash of the placement, or a rule, raises for a key."""
        if key is None:
            return
        if self._routing.refuses_keys:
            self._routing.check_slot(key)
        window = self._window
        if window.rule_of is not None and key not in window.lanes and key not in window.prepared:
            window.prepared[key] = window.rule_of(key)

    # dead letters that come back

    def let_back(self, key: bytes | None, letters: Sequence[StoredLetter[Any]]) -> list[Ignored]:
        """Put letters back, which are sorted by offset, before anything is delivered; return which were ignored.

        Each waits at the place in its key that it always had. Position and token do not know them, because nothing of
        the log changes for them.

        Raises:
            RedriveTooEarlyError: One of them may still be offered, or something older than it.
            WindowFullError: There are not so many free slots.
            ConfigError: A rule has no answer for the key.
        """
        window = self._window
        if letters:
            newest, next_offer = letters[-1].offset, self._next_offer()
            if next_offer is None or newest >= next_offer:
                raise RedriveTooEarlyError(newest, window.cursor.last)
        if key in window.quarantined:
            return [_ignored(letter, IgnoredReason.IS_QUARANTINED) for letter in letters]
        new: dict[int, StoredLetter[Any]] = {}
        known: list[Ignored] = []
        for letter in letters:
            if letter.offset in new or window.find(letter.offset) is not None:
                known.append(_ignored(letter, IgnoredReason.IS_OUTSTANDING))
            else:
                new[letter.offset] = letter
        if len(new) > self.free_slots:
            raise self.full_error()
        near: Entry | None = None
        for letter in new.values():
            near = window.come_back(letter.offset, key, letter.item, letter.attempt, near)
        return known

    def _next_offer(self) -> int | None:
        """Return the lowest offset that may still be offered; None before any, if no start is known. O(1)."""
        last, start = self._window.cursor.last, self._window.cursor.start
        if last is None:
            return start
        return last + 1 if start is None else max(start, last + 1)

    # several messages

    def check_batch(self, messages: Sequence[Offered]) -> None:
        """Raise what any offer of these messages would raise, as far as it depends on more than the one before."""
        self._window.prepared.clear()
        new = messages
        if self._known_until is not None:
            known = 0
            while known < len(messages) and self.is_known(messages[known][0]):
                known += 1
            new = messages[known:]
        last = self._window.cursor.last
        for offset, _, _, _ in new:
            if last is not None and offset <= last:
                raise OffsetOrderError(offset, last)
            last = offset
        if self._window.cursor.looks_ahead:
            recalls = self._window.cursor.recalls
            new = [message for message in new if not recalls(message[0])]
        if len(new) > self.free_slots:
            raise self.full_error()
        if self.asks or self._window.rule_of is not None:
            wanted = [key for _, key, _, _ in new if self._is_wanted(key)]
            for key in wanted:
                self._check_key(key)
            self._check_waiting(wanted)

    def _check_waiting(self, keys: Iterable[bytes | None]) -> None:
        if self._per_key is None:
            return
        for key, more in Counter(keys).items():
            if key is not None and self._waiting_of(key) + more > self._per_key:
                raise KeyFullError(key, self._per_key)


def _ignored(letter: StoredLetter[Any], reason: IgnoredReason) -> Ignored:
    return Ignored(letter.offset, None, letter.attempt, Call.REDRIVE, reason)
