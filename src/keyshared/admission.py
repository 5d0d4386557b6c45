"""What is checked about a message before it is let in: is it known already, and would anybody take it."""

from collections.abc import Iterable
from typing import Final

from keyshared.arguments import check_offset
from keyshared.config import DispatcherConfig, Unmatched
from keyshared.errors import ConfigError, OffsetOrderError, UnmatchedKeyError, WindowFullError
from keyshared.hashing import Key, key_bytes
from keyshared.lanes import State
from keyshared.membership import Membership
from keyshared.window import InFlightWindow

__all__ = ["Admission", "Message"]

Message = tuple[int, Key, object]
"""Offset, key and passenger, as ``offer_many`` takes them."""

_Keyed = tuple[int, bytes | None, object]
_SPILLED: Final = int(State.SPILLED)


class Admission:
    """Decides the rare cases of an offer.

    Attributes:
        known_until: Offers up to here are known already: they lie below ``config.start``, or a snapshot has seen them.
            None once an offer came that is above.
    """

    __slots__ = ("_config", "_membership", "_window", "known_until")

    def __init__(self, config: DispatcherConfig, window: InFlightWindow, membership: Membership) -> None:
        self._config = config
        self._window = window
        self._membership = membership
        self.known_until: int | None = None if config.start is None else config.start - 1

    def is_known(self, offset: int) -> bool:
        """Whether the offset was offered in an earlier life."""
        if self.known_until is None or type(offset) is not int:
            return False
        check_offset("offset", offset)
        return offset <= self.known_until

    def remember(self, offset: int, item: object) -> None:
        """Take the passenger of a known message, in case it was lost with the process that held it."""
        entry = self._window.find(offset)
        if entry is not None and entry.item is None and entry.state != _SPILLED:
            entry.item = item

    def admit(self, offset: int, key: bytes | None) -> bool:
        """Whether to track a new message; False if it is to be skipped. Raises what an offer of it raises."""
        self._window.check_offer(offset)
        unmatched = self.is_unmatched(key)
        if unmatched and self._config.unmatched is Unmatched.ERROR:
            raise UnmatchedKeyError(key)
        self.known_until = None
        return not unmatched or self._config.unmatched is Unmatched.HOLD

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

    def check_batch(self, messages: Iterable[object]) -> list[_Keyed]:
        """The batch with its keys as bytes. Raises what any of its offers would, before anything has changed."""
        batch: list[_Keyed] = []
        for message in messages:
            if not isinstance(message, tuple) or len(message) != 3:  # noqa: PLR2004  # offset, key, item
                raise ConfigError("message", message, "be a tuple of offset, key and item")
            batch.append((message[0], key_bytes(message[1]), message[2]))
        first_new = next((i for i, message in enumerate(batch) if not self.is_known(message[0])), len(batch))
        self._check_new(batch[first_new:])
        return batch

    def _check_new(self, messages: list[_Keyed]) -> None:
        last = self._window.cursor.last
        for offset, _, _ in messages:
            if type(offset) is not int or (last is not None and offset <= last):
                raise OffsetOrderError(offset, last)
            check_offset("offset", offset)
            last = offset
        if len(messages) > self._window.free_slots:
            raise WindowFullError(self._window.tightest_limit)
        if self._config.unmatched is Unmatched.ERROR:
            for _, key, _ in messages:
                if self.is_unmatched(key):
                    raise UnmatchedKeyError(key)
