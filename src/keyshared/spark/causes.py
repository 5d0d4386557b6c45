"""Why messages waited, from the figures of a group: a hot key, too few consumers, a slow one, retries, an absence."""

from collections.abc import Iterator
from math import ceil
from statistics import median
from typing import Final, NamedTuple

from keyshared.spark.page_figures import ALL, WINDOW, Figures, as_text

__all__ = ["Cause", "causes_of"]

_FULL: Final = 0.9  # use from which on a consumer, or a key, has no time left
_PLANNED: Final = 0.7  # use that leaves time for bursts
_SLOW: Final = 3.0  # times as long as the others
_MUCH: Final = 1 / 3  # of all waiting
_UNEVEN: Final = 2  # times its share of the deliveries
_LOOKED_AT: Final = 3  # keys that may be called hot
_MANY_FAILURES: Final = 0.2


class Cause(NamedTuple):
    """A reason why messages waited, and what would change it.

    Attributes:
        name: "hot key", "too few consumers", "slow consumer", "retries", "absence", "uneven share" or "other".
        text: The reason in one sentence.
        remedy: What would be enough, in one sentence.
    """

    name: str
    text: str
    remedy: str


def causes_of(found: Figures) -> list[Cause]:
    """Find out why messages waited.

    Args:
        found: The figures of a group.

    Returns:
        The reasons; nothing if the group was enough.
    """
    if found.is_enough is not False:
        return []
    causes = [*_hot_key(found), *_overload(found), *_slow_consumer(found), *_retries(found), *_absence(found)]
    causes += _uneven(found) if not causes else []
    return causes or [
        Cause(
            "other",
            "No consumer, key or retry causes most of it: waits are short bursts in single topic-partitions.",
            "Look at the backlog of the topic-partitions below.",
        )
    ]


def _hot_key(found: Figures) -> Iterator[Cause]:
    """A key is worked on one message at a time, so it can need more than all of the time of a worker."""
    for key in found.hot_keys[:_LOOKED_AT]:
        span = key["last_ms"] - key["first_ms"]
        need = key["busy_ms"] / span if span else 0.0
        share = key["wait_ms"] / (found.total["wait_ms"] or 1)
        if need >= _FULL and share >= _MUCH:
            mean = key["busy_ms"] / max(key["messages"], 1)
            yield Cause(
                "hot key",
                f"Key {as_text(key['key'])} of {key['topic_partition']} has {share:.0%} of all waiting: its messages "
                f"need {need:.0%} of the time of one worker, and a key is worked on in order, one message at a time.",
                f"More consumers do not help: split the key, or handle it in {_PLANNED * mean / need:,.0f} instead of "
                f"{mean:,.0f} ms a message.",
            )


def _overload(found: Figures) -> Iterator[Cause]:
    """The work that arrives in a tenth of the time is more than the connected consumers can do in it."""
    peak = max(found.backlog, key=lambda row: float(row["load"]), default=None)
    if found.group is None or peak is None or peak["load"] < _FULL:
        return
    members = len(found.group.consumers)
    wanted = ceil(members * peak["load"] / _PLANNED)
    name = "the log" if peak["topic_partition"] == ALL else peak["topic_partition"]
    yield Cause(
        "too few consumers",
        f"At its peak {name} brings {peak['load']:.0%} of the work that the connected consumers can do.",
        f"{wanted} consumers instead of {members}, all else equal, would be {_PLANNED:.0%} busy then.",
    )


def _slow_consumer(found: Figures) -> Iterator[Cause]:
    means = {row["name"]: row["busy_ms"] / row["answered"] for row in found.consumers if row["answered"]}
    slowest = max(means, key=lambda name: means[name], default="")
    others = median(mean for name, mean in means.items() if name != slowest) if len(means) > 1 else 0
    if others and means[slowest] >= _SLOW * others:
        waits = {row["name"]: row["wait_ms"] / (found.total["wait_ms"] or 1) for row in found.consumers}
        yield Cause(
            "slow consumer",
            f"{slowest} takes {means[slowest]:,.0f} ms a message, the others {others:,.0f} ms; {waits[slowest]:.0%} of "
            "all waiting is for it.",
            f"Repair {slowest}, give it a smaller weight, or remove it.",
        )


def _retries(found: Figures) -> Iterator[Cause]:
    failed = found.total["failed"] / found.total["deliveries"]
    if failed >= _MANY_FAILURES:
        yield Cause(
            "retries",
            f"{failed:.0%} of deliveries fail, and the messages of their keys wait for the retry.",
            "Repair the failures, retry sooner, or send messages to the dead letters after fewer attempts.",
        )


def _absence(found: Figures) -> Iterator[Cause]:
    """The first wait that is too long begins soon after a consumer crashed or left."""
    late = next((row for row in found.waits if row["p99"] > found.enough_ms), None)
    if late is None:
        return
    first, last = late["start_ms"] - late["p99"] - WINDOW * found.width_ms, late["start_ms"] + found.width_ms
    gone = [text for at_ms, text in found.marks if first <= at_ms <= last and text.endswith((" crashes", " leaves"))]
    if gone:
        yield Cause(
            "absence",
            f"Waits are too long from soon after {gone[-1]}.",
            "Detect the absence sooner (inactive_grace_ms, ack_timeout_ms), or have one consumer more.",
        )


def _uneven(found: Figures) -> Iterator[Cause]:
    """The keys of one consumer bring more work than it can do, while the others have time."""
    waited, delivered = found.total["wait_ms"] or 1, found.total["deliveries"]
    for row in sorted(found.consumers, key=lambda row: -int(row["wait_ms"]))[:1]:
        share = row["wait_ms"] / waited
        if share >= _MUCH and share >= _UNEVEN * row["deliveries"] / delivered:
            yield Cause(
                "uneven share",
                f"{row['name']} has {share:.0%} of all waiting and {row['deliveries'] / delivered:.0%} of the "
                "deliveries: at times its keys bring more work than it can do, and the others have time.",
                "Spread keys more evenly (more vnodes, or weights), or have one consumer more.",
            )
