"""Who or what made messages wait: keys, slots, and changes of the group; values and sections of a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from keyshared.spark.pages.page import Figure, Ms, clipped, listed, named, share
from keyshared.spark.pages.parts import Section, Table
from keyshared.spark.replays.enough_report import Story

__all__ = ["HotKey", "HotSlot", "MembershipChange", "changes_section", "keys_section", "said"]

_ALL: Final = 1.0  # of the time of a consumer
_NONE: Final = Figure("", None)
_SAID: Final = {"joined": "joins", "changed": "changes weight"}


@dataclass(frozen=True, kw_only=True, slots=True)
class MembershipChange:
    """A consumer that came or went.

    Attributes:
        at_ms: When, in the time of the replay.
        what: "joins", "leaves" or "changes weight".
        consumer: Who.
        keys_moved: How many of the keys have another owner than before.
        keys: How many there are.
        ideal: Which part of them has to move: 1/N with N alike consumers, the one that came or went included.
        wait_ms: How long all messages waited together that could go out from then on, and before the next change.
        p99_ms: All but one in a hundred of them waited no longer than this; None if there was none.
    """

    at_ms: int
    what: str
    consumer: str
    keys_moved: int
    keys: int
    ideal: float
    wait_ms: int = 0
    p99_ms: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HotKey:
    """A key with many messages, or with long waits.

    Attributes:
        key: The key, as text for people.
        messages: How many it has.
        owners: Who had it, in order of time.
        wait_p99_ms: All but one in a hundred of its deliveries waited no longer than this.
        wait_ms: How long all of its deliveries waited together.
        held_ms: How long consumers had its messages in their hands, together: in the topic-partition in which that is
            most, by the time in which they came.
        arrivals_ms: Time from when its first message there could go out to when its last one could.
        at_once: How many of its messages its consumer has at once while more of them wait, on average; of several
            consumers the most.
        anchor: Where its own part of the page is; empty if it has none.
    """

    key: str
    messages: int
    owners: tuple[str, ...]
    wait_p99_ms: int
    wait_ms: int = 0
    held_ms: int = 0
    arrivals_ms: int = 0
    at_once: float = 1
    anchor: str = ""

    @property
    def need(self) -> float | None:
        """How much of a consumer's time it needs to keep up: above 1 it never does, however many consumers there are.

        None if its messages all came at once.
        """
        return self.held_ms / (self.arrivals_ms * self.at_once) if self.arrivals_ms else None


class HotSlot(NamedTuple):
    """A bucket hash whose keys waited.

    Attributes:
        slot: The hash.
        wait_ms: How long its messages waited together.
        deliveries: How many there were.
        keys: How many keys share it.
        hot_key: The one that waited most, as text.
        hot_wait_ms: How long its messages waited together.
    """

    slot: int
    wait_ms: int
    deliveries: int
    keys: int
    hot_key: str
    hot_wait_ms: int


def said(event: str) -> str:
    """Return in a word what a change of membership is.

    Args:
        event: As a summary tells it: joined, left, evicted, changed.

    Returns:
        "joins", "leaves" or "changes weight".
    """
    return _SAID.get(event, "leaves")


def keys_section(
    waited: Sequence[HotKey], hottest: Sequence[HotKey], slots: Sequence[HotSlot], *, messages: int, wait_ms: int
) -> Section:
    """Return the part of a page about keys.

    Args:
        waited: Keys that waited most.
        hottest: Keys with most messages.
        slots: Slots that waited most.
        messages: How many there are.
        wait_ms: How long all deliveries waited together.

    Returns:
        A section with tables.
    """
    note = (
        "Messages of a key go to one consumer, one after the other. A key that needs more than 100% of a consumer's "
        "time cannot keep up, however many consumers there are: split it, or make its work shorter."
    )
    alone = [clipped(key.key) for key in _together(waited, hottest) if (key.need or 0) > _ALL]
    if alone:
        note += f" Here: {listed(alone)}."
    by_slot = Table(
        "Slots that waited most",
        ("slot", "of all waiting", "deliveries", "keys", "key that waited most", "its part of that"),
        tuple(
            (
                slot.slot,
                share(slot.wait_ms, wait_ms),
                slot.deliveries,
                slot.keys,
                named(slot.hot_key),
                share(slot.hot_wait_ms, slot.wait_ms),
            )
            for slot in slots
        ),
    )
    return Section(
        "Hottest keys",
        note,
        (
            _keys("Keys that waited most", waited, messages, wait_ms),
            _keys("Keys with most messages", hottest, messages, wait_ms),
            by_slot,
        ),
    )


def changes_section(changes: Sequence[MembershipChange], story: Story, wait_ms: int) -> Section:
    """Return the part of a page about changes of the group.

    Args:
        changes: In order of time.
        story: When and where.
        wait_ms: How long all deliveries waited together.

    Returns:
        A section with a table.
    """
    note = (
        "A change moves only the keys of the consumer that comes or goes: 1/N of them if the split is even. Waits are "
        "those of messages that could go out after it, and before the next one."
    )
    figures = Table(
        "Changes of the group, numbered as in the charts",
        ("", "when", "change", "keys moved", "of all", "ideal", "wait p99 from then on", "of all waiting"),
        tuple(
            (
                number,
                story.clock.figure(change.at_ms, span_ms=story.span_ms),
                f"{change.consumer} {change.what}",
                change.keys_moved,
                share(change.keys_moved, change.keys),
                share(change.ideal, 1),
                _NONE if change.p99_ms is None else Ms(change.p99_ms),
                share(change.wait_ms, wait_ms),
            )
            for number, change in enumerate(changes, 1)
        ),
    )
    return Section("Crashes, joins and leaves", note, (figures,))


def _keys(caption: str, keys: Sequence[HotKey], messages: int, wait_ms: int) -> Table:
    rows = tuple(
        (
            named(key.key, key.anchor),
            share(key.wait_ms, wait_ms),
            key.messages,
            share(key.messages, messages, digits=2),
            _NONE if key.need is None else share(key.need, 1, digits=0),
            Figure(listed(key.owners, " → "), " → ".join(key.owners), number=False),
            Ms(key.wait_p99_ms),
        )
        for key in keys
    )
    heads = ("key", "of all waiting", "messages", "of all", "needs of a consumer", "consumers", "wait p99")
    alone = frozenset((y, 4) for y, key in enumerate(keys) if (key.need or 0) > _ALL)
    return Table(caption, heads, rows, alone)


def _together(*keys: Sequence[HotKey]) -> list[HotKey]:
    return list({key.key: key for some in keys for key in some}.values())
