"""What is checked about a message before it is let in: is it known already, and would anybody take it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from keyshared._checks import OFFSET_STOP, check_offset
from keyshared._dispatch.membership import Membership
from keyshared._dispatch.receipts import check_not_before
from keyshared._dispatch.routing import Routing
from keyshared._window.lanes import SPILLED
from keyshared.config import DispatcherConfig, Unmatched
from keyshared.effects import Item
from keyshared.errors import ArgumentError, OffsetOrderError, UnmatchedKeyError
from keyshared.hashing.named import Key, key_bytes
from keyshared.window import InFlightWindow

if TYPE_CHECKING:  # a dispatcher without such limits does not load it
    from keyshared._dispatch.groups import Groups
    from keyshared._dispatch.waiting import WaitingLimits

__all__ = ["Admission", "Message", "limits_for"]

Message: TypeAlias = tuple[int, Key, Item] | tuple[int, Key, Item, int | None]
"""Offset, key and passenger, and perhaps before when it shall not be delivered, as ``offer_many`` takes them."""

_Keyed = tuple[int, bytes | None, Any]


class Admission:
    """Decides the rare cases of an offer.

    Attributes:
        asks: Whether an offer may be known already, or more than `check_offer` may stand against it. One flag for all
            reasons, kept up to date, because every offer reads it.
    """

    __slots__ = (
        "_changes_first",
        "_config",
        "_idle",
        "_known_until",
        "_limits",
        "_may_refuse",
        "_membership",
        "_window",
        "asks",
    )

    def __init__(
        self, config: DispatcherConfig, window: InFlightWindow, membership: Membership, limits: "WaitingLimits | None"
    ) -> None:
        self._config = config
        self._limits = limits
        self._window = window
        self._membership = membership
        self._known_until: int | None
        self._idle: Sequence[object] = ()
        self.begin()
        membership.on_picky = self._look

    def watch(self, groups: "Groups") -> None:
        """Ask before offers while there are groups that time may let forget."""
        self._idle = groups.idle
        groups.on_idle = self._look

    def begin(self) -> None:
        """Look at the cursor, which was set up or restored: what it knows is not new."""
        cursor = self._window.cursor
        known = [] if cursor.start is None else [cursor.start - 1]
        known += [] if cursor.last is None else [cursor.last]
        self._reach(max(known, default=None))

    def _reach(self, known_until: int | None) -> None:
        """Take offers up to there for known, until the first one that is above."""
        self._known_until = known_until
        self._look()

    def _look(self) -> None:
        """See whether there is any reason to ask."""
        looks_back = self._known_until is not None or self._window.cursor.looks_ahead or self._window.is_due_anew
        self._may_refuse = self._window.asks_keys or self._membership.refuses_keys
        # A window in which a key has no lane until it needs one asks for the owner before anything else.
        is_late = self._membership.refuses_keys and (self._config.ordering_required or not self._window.has_lone)
        policies = bool(self._idle) or self._limits is not None or self._membership.picky or self._window.supersedes
        self._changes_first = looks_back or policies  # before the window asks about the key
        self.asks = self._changes_first or is_late

    def is_known(self, offset: int) -> bool:
        """Whether the offset lies below the start or the position, or a snapshot has seen it."""
        if self._known_until is None or type(offset) is not int:
            return False
        check_offset("offset", offset)
        return offset <= self._known_until

    def take_settled(self, offset: int) -> bool:
        """Pass over an offset that lies above the position and was settled before the restart; False if it was not."""
        cursor = self._window.cursor
        if type(offset) is not int or not cursor.recalls(offset):
            return False
        cursor.pass_to(offset)
        self._reach(None)
        return True

    def remember(self, offset: int, item: object) -> None:
        """Take the passenger of a known message, in case it was lost with the process that held it."""
        entry = self._window.find(offset)
        if entry is not None and entry.item is None and entry.state != SPILLED:
            entry.item = item

    def admit(self, offset: int, key: bytes | None) -> bool:
        """Whether to track a new message; False if it is to be skipped. Raises what an offer of it raises."""
        self._window.check_offer(offset)
        is_tracked = self._is_tracked(key)
        if is_tracked:
            self.check_slot(key)
            if self._changes_first and self._window.asks_keys:
                self._window.check_key(key)
        if self._limits is not None and is_tracked:
            self._limits.admit(key)
        self._window.cursor.pass_to(offset)
        self._reach(None)
        return is_tracked

    def is_unmatched(self, key: bytes | None) -> bool:
        """Whether nothing of the key is outstanding, and there are consumers, but none for it.

        None accepts it; or, where that is an error, it is unowned: its slot is a hole, or those who accept it own
        nothing. That is never skipped: somebody forgot to assign it, and what it holds is wanted.
        """
        membership = self._membership
        lane_key = b"" if self._config.ordering_required else key
        if not membership.picky or lane_key in self._window.lanes:
            return False
        if not membership.accepts(key):
            return True
        return self._config.unmatched is Unmatched.ERROR and membership.owns_none_of(lane_key)

    def check_batch(self, messages: Sequence[object]) -> tuple[list[_Keyed], dict[int, int]]:
        """The batch with its keys as bytes, and by offset the instants before which some of it has to wait.

        Raises what any of its offers would, before anything has changed.
        """
        batch: list[_Keyed] = []
        instants: dict[int, int] = {}
        last = self._window.cursor.last
        before = -OFFSET_STOP if last is None else last
        grows = True
        for message in messages:
            if not isinstance(message, tuple) or not 3 <= len(message) <= 4:  # noqa: PLR2004  # the last one is optional
                raise ArgumentError("message", message, "be a tuple of offset, key and item, and perhaps not_before_ms")
            if len(message) == 3:  # noqa: PLR2004  # as above
                offset, key, item = message
                batch.append(message if type(key) is bytes else (offset, key_bytes(key), item))
            else:
                offset, key, item, not_before_ms = message
                check_not_before(not_before_ms)
                batch.append((offset, key_bytes(key), item))
                if not_before_ms is not None and type(offset) is int:
                    instants[offset] = not_before_ms
            if type(offset) is int and before < offset:
                before = offset
            else:
                grows = False
        self._check_new(batch, grows=grows and before < OFFSET_STOP)
        return batch, instants

    def _check_new(self, messages: list[_Keyed], *, grows: bool) -> None:
        """Raise unless there is room for what is new of a batch, whose offsets grow or have to be looked at."""
        new = messages
        if self._known_until is not None:
            first_new = next((i for i, message in enumerate(messages) if not self.is_known(message[0])), len(messages))
            new = messages[first_new:]
        if not grows:
            self._check_order(new)
        if self._window.cursor.looks_ahead:
            recalls = self._window.cursor.recalls
            new = [message for message in new if not recalls(message[0])]
        if len(new) > self._window.free_slots:
            raise self._window.full_error()
        if self.asks or self._may_refuse:
            self._check_keys([key for _, key, _ in new])

    def _check_order(self, messages: list[_Keyed]) -> None:
        """Raise unless the offsets of new messages grow, and are not too great."""
        last = self._window.cursor.last
        for offset, _, _ in messages:
            if type(offset) is not int or (last is not None and offset <= last):
                raise OffsetOrderError(offset, last)
            check_offset("offset", offset)
            last = offset

    def _check_keys(self, keys: list[bytes | None]) -> None:
        """Raise what offers of these keys would raise; of what is to be skipped nothing is asked."""
        tracked = [key for key in keys if self._is_tracked(key)]
        if self._may_refuse:
            for key in tracked:
                self._check_key(key)
        if self._limits is not None:
            self._limits.check(tracked)

    def _is_tracked(self, key: bytes | None) -> bool:
        """Whether a new message of the key is not to be skipped; raises if the policy is to raise."""
        policy = self._config.unmatched
        if policy is Unmatched.HOLD or not self.is_unmatched(key):
            return True
        if policy is Unmatched.ERROR:
            raise UnmatchedKeyError(key)
        return False

    def check_slot(self, key: bytes | None) -> None:
        """Raise `ArgumentError` if the placement has no slot for a key: its hash refuses it."""
        lane_key = b"" if self._config.ordering_required else key
        if self._membership.refuses_keys and lane_key is not None:
            self._membership.check_slot(lane_key)

    def _check_key(self, key: bytes | None) -> None:
        self.check_slot(key)
        self._window.check_key(key)


def limits_for(config: DispatcherConfig, routing: Routing, window: InFlightWindow) -> "WaitingLimits | None":
    """The limits of what waits, if a configuration has any."""
    if config.max_waiting_per_key is None and config.max_waiting_per_consumer is None:
        return None
    from keyshared._dispatch.waiting import WaitingLimits  # noqa: PLC0415  # who has no such limit does not load it

    return WaitingLimits(config, routing, window)
