"""What a log carries by slot, as plain values; the figures and the page about its keys start from them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from keyshared.buckets.boundaries import SlotLoad

__all__ = ["KeyCounts", "SlotCount"]


class SlotCount(NamedTuple):
    """What one slot carries.

    Attributes:
        messages: How many messages.
        weight: Their weight: the sum of the weight column, or the number of messages.
        keys: How many different keys.
        hot_key: The key of most weight; of equal ones the one with more messages, then the smaller one.
        hot_messages: How many messages it has.
        hot_weight: Their weight.
    """

    messages: int
    weight: SlotLoad
    keys: int
    hot_key: bytes
    hot_messages: int
    hot_weight: SlotLoad


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """What a log carries, by slot: the fields of a `KeyHistogram`.

    Attributes:
        slots: What each slot carries, in the order of slots; those without messages are left out.
        keyless_messages: How many messages have no key, and so no slot.
        keyless_weight: Their weight.
    """

    slots: Mapping[int, SlotCount]
    keyless_messages: int
    keyless_weight: SlotLoad

    @property
    def messages(self) -> dict[int, SlotLoad]:
        """Messages by slot: a `Histogram` for `balanced_boundaries` and its like."""
        return {slot: count.messages for slot, count in self.slots.items()}

    @property
    def weights(self) -> dict[int, SlotLoad]:
        """Weight by slot, likewise."""
        return {slot: count.weight for slot, count in self.slots.items()}
