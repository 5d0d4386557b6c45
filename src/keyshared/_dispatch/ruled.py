"""Windows whose lanes know what functions of their keys have answered.

A function is asked when a lane begins. So each key has a lane from its first message on: what is alone has one too.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from keyshared._dispatch.answers import latest_only_answer, limit_answer
from keyshared._window.lanes import Entry, KeyRule, Lane
from keyshared._window.strides import offer_each, settle_each
from keyshared.config import Rules
from keyshared.window import InFlightWindow

__all__ = ["LanedWindow", "RuledWindow"]


class LanedWindow(InFlightWindow):
    """A window in which each key has a lane, and may have no answer for a new one."""

    asks_keys = True
    has_lone = False

    def check_key(self, key: bytes | None) -> None:
        """Raise what `offer` would raise because of the key: a function has no answer for it."""
        lane_key = b"" if self._one_lane else key
        if lane_key is not None and lane_key not in self.lanes:
            self._check_new(lane_key)

    def offer_many(self, messages: Iterable[tuple[int, bytes | None, object]]) -> list[Entry]:
        """As `InFlightWindow.offer_many`, message after message."""
        return offer_each(self, messages)

    def settle_many(self, entries: Sequence[Entry]) -> tuple[list[Entry], bool]:
        """As `InFlightWindow.settle_many`, message after message."""
        return settle_each(self, entries)

    def _check_new(self, key: bytes) -> None:
        """Raise what `new_lane` would raise."""

    def _offer_in_lane(self, offset: int, key: bytes | None, item: object, lane_key: bytes | None) -> list[Entry]:
        lane = self.new_lane(lane_key)  # before anything changes: it may raise
        if lane_key is not None:
            self.lanes[lane_key] = lane
        entry = Entry(offset, key, item, lane)
        self.cursor.append(entry)
        lane.append(entry)
        lane.loaded = 1
        self.loaded += 1
        self.waiting += 1
        granted: list[Entry] = []
        self._examine(lane, granted)
        if 2 * self.waiting > self.capacity:
            self._spill_if_crowded(lane, entry, granted)
        return granted

    _offer_first = _offer_in_lane


class RuledWindow(LanedWindow):
    """A window in which each lane has a `KeyRule`.

    Args:
        rules: Functions of a key; what they raise, an offer raises, and has changed nothing.
        args: As `InFlightWindow`.
        kwargs: As `InFlightWindow`.
    """

    def __init__(self, *args: Any, rules: Rules, **kwargs: Any) -> None:  # noqa: ANN401  # as those of the window
        super().__init__(*args, **kwargs)
        self._limit_of = rules.limit_of
        self._latest_only = rules.latest_only

    def new_lane(self, key: bytes | None) -> Lane:
        """Return a lane that nothing is in yet; raise what `check_key` raises."""
        lane = super().new_lane(key)
        if key is not None:
            lane.rule = self._rule_of(key)
        return lane

    def _check_new(self, key: bytes) -> None:
        super()._check_new(key)
        self._rule_of(key)

    def _rule_of(self, key: bytes) -> KeyRule:
        rule = KeyRule()
        if self._limit_of is not None:
            rule = rule._replace(most_open=limit_answer(self._limit_of, key))
        if self._latest_only is not None:
            rule = rule._replace(latest_only=latest_only_answer(self._latest_only, key))
        return rule
