"""The look-ahead limit: how many messages may wait before there is no free slot, by the consumers that are connected.

A window of this kind refuses what is beyond it, and an outbox of this kind pauses the host while it is reached. They
are loaded only where a configuration has such a limit.
"""

from collections.abc import Iterable, Sized
from typing import Any

from keyshared._dispatch.outbox import Outbox
from keyshared._window.lanes import Entry
from keyshared._window.strides import offer_each
from keyshared.config import LookAhead
from keyshared.effects import Effect
from keyshared.errors import LookAheadFullError, WindowFullError
from keyshared.window import InFlightWindow

__all__ = ["LookAheadWindow", "PausingOutbox", "Reach"]


class Reach:
    """How many messages may wait for the consumers that are connected now.

    Args:
        look_ahead: The limits.
        max_unacked_per_consumer: What a consumer may have open, if they leave that to decide.
        connected: Who is connected.
    """

    __slots__ = ("_connected", "_consumers", "_limit", "_look_ahead", "_max_unacked_per_consumer")

    def __init__(self, look_ahead: LookAhead, max_unacked_per_consumer: int, connected: Sized) -> None:
        self._look_ahead = look_ahead
        self._max_unacked_per_consumer = max_unacked_per_consumer
        self._connected = connected
        self._consumers = -1  # for how many the limit was computed
        self._limit = 0

    @property
    def limit(self) -> int:
        """The limit of now. O(1)."""
        consumers = len(self._connected)
        if consumers != self._consumers:
            self._consumers = consumers
            self._limit = self._look_ahead.limit(consumers, max_unacked_per_consumer=self._max_unacked_per_consumer)
        return self._limit


class LookAheadWindow(InFlightWindow):
    """A window that lets only so many messages wait.

    Args:
        args: As `InFlightWindow`.
        reach: The limit.
        kwargs: As `InFlightWindow`.

    Attributes:
        reach: The limit.
    """

    def __init__(self, *args: Any, reach: Reach, **kwargs: Any) -> None:  # noqa: ANN401  # as those of a window
        super().__init__(*args, **kwargs)
        self.reach = reach

    @property
    def may_wait(self) -> int:
        """How many more messages the limit of now lets wait; negative if more wait than may."""
        opened = self.loaded - self.waiting
        return self.reach.limit - (self.cursor.outstanding + len(self.beside) - opened)

    @property
    def other_slots(self) -> int:
        """How many messages the other limits let in."""
        return super().free_slots

    @property
    def free_slots(self) -> int:
        """How many messages may be offered now."""
        return max(0, min(self.other_slots, self.may_wait))

    def full_error(self) -> WindowFullError:
        """Return what to raise for more messages than there are free slots."""
        return LookAheadFullError(self.reach.limit) if self.may_wait < self.other_slots else super().full_error()

    def check_offer(self, offset: int) -> None:
        """Raise what `offer` would raise for this offset."""
        super().check_offer(offset)
        if self.may_wait <= 0:
            raise LookAheadFullError(self.reach.limit)

    def offer(self, offset: int, key: bytes | None, item: object = None) -> list[Entry]:
        """As `InFlightWindow.offer`, unless as many messages wait as may."""
        self.check_offer(offset)
        return super().offer(offset, key, item)

    def offer_many(self, messages: Iterable[tuple[int, bytes | None, object]]) -> list[Entry]:
        """As `InFlightWindow.offer_many`, message after message."""
        return offer_each(self, messages)


class PausingOutbox(Outbox):
    """An outbox that also pauses the host while as many messages wait as may."""

    __slots__ = ()

    tells_once = False  # what waits may reach the limit in the middle of a batch

    def finish(self, out: list[Effect], granted: list[Entry], now: int) -> list[Effect[Any]]:
        """Add obligations and state to the notices."""
        out = super().finish(out, granted, now)
        self.paused = self.paused or not self._window.free_slots
        return out

    def finish_offer(self, granted: list[Entry], now: int) -> list[Effect[Any]]:
        """The same for an offer."""
        return self.finish([], granted, now)

    def _is_roomy(self) -> bool:
        window: Any = self._window  # a `LookAheadWindow`
        quarter = window.capacity - self._resume_at
        return quarter <= window.other_slots and max(1, window.reach.limit // 4) <= window.may_wait  # type: ignore[no-any-return]
