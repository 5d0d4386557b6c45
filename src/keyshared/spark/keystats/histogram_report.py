"""The page about the keys of a log: what slots and owners carry, and which keys are hot. Starts no job."""

from collections.abc import Sequence
from fractions import Fraction
from heapq import nsmallest
from typing import Final

from keyshared.buckets.boundaries import SlotLoad, imbalance, owner_loads
from keyshared.errors import ArgumentError
from keyshared.placement.ranges import RangeMap
from keyshared.spark.keystats.bucket_figures import compare_layouts
from keyshared.spark.keystats.bucket_report import bucket_section, times
from keyshared.spark.keystats.counts import KeyCounts
from keyshared.spark.pages.page import Figure, against, as_html, as_text, named, off, share
from keyshared.spark.pages.parts import Bar, Bars, Facts, Page, Section, Table, files_section

__all__ = ["html"]

_HOT_SLOTS: Final = 10
_FRAMES: Final = (
    "A row for each slot is in the frame of key_histogram: "
    "keyshared.spark.save_results({'histogram': key_histogram(log)}, folder) saves it as a table."
)


def html(
    counted: KeyCounts,
    *,
    title: str,
    about: str,
    hottest: int,
    consumers: Sequence[str] = (),
    buckets: int | None = None,
    owners: RangeMap | None = None,
) -> str:
    """Write the page.

    Args:
        counted: The statistics.
        title: Headline.
        about: What log they are of.
        hottest: How many keys are shown.
        consumers: The consumers that would share the buckets.
        buckets: With how many of them boundaries are compared; None for no comparison.
        owners: The owner of each slot; None without a placement.

    Returns:
        A complete HTML document that refers to nothing outside itself.

    Raises:
        ArgumentError: ``owners`` are over other slots than the statistics, or there are no consumers to share buckets.
    """
    unit = "messages" if counted.weights == counted.messages else "weight"
    parts: list[Facts | Section] = [
        _numbers(counted, unit),
        _hottest(counted, unit, hottest),
    ]
    if owners is not None:
        parts.append(_owners(owner_loads(counted.weights, owners), unit))
    if buckets is not None:
        if not consumers:
            raise ArgumentError("consumers", consumers, "name who shares the buckets")
        parts.append(bucket_section(compare_layouts(counted, consumers, hottest=_HOT_SLOTS, buckets=buckets)))
    parts.append(files_section(_FRAMES))
    return as_html(Page(title, about, (), tuple(parts)))


def _numbers(counted: KeyCounts, unit: str) -> Facts:
    slots = counted.slots.values()
    keyed = sum(count.messages for count in slots)
    weight = [("weight", _told(sum(count.weight for count in slots)))] if unit == "weight" else []
    return Facts(
        (
            ("messages", f"{keyed + counted.keyless_messages:,}"),
            ("without a key", f"{counted.keyless_messages:,}"),
            ("keys", f"{sum(count.keys for count in slots):,}"),
            ("slots with messages", f"{len(slots):,}"),
            *weight,
        )
    )


def _hottest(counted: KeyCounts, unit: str, most: int) -> Section:
    total = sum(counted.weights.values()) + counted.keyless_weight
    hot = nsmallest(most, counted.slots.items(), key=lambda slot: (-slot[1].hot_weight, slot[1].hot_key))
    rows = tuple(
        (
            named(as_text(count.hot_key)),
            _load(count.hot_weight),
            share(float(Fraction(count.hot_weight)), float(Fraction(total)), digits=2),
            *([] if unit == "messages" else [count.hot_messages]),
            slot,
            count.keys - 1,
        )
        for slot, count in hot
    )
    note = (
        "The hottest key of each slot. Messages of a key go to one consumer, one after the other: the hottest keys say "
        "how far a group can grow."
    )
    head = ("key", unit, "of all", *([] if unit == "messages" else ["messages"]), "slot", "other keys there")
    return Section("Hottest keys", note, (Table(f"Keys with most {unit}", head, rows),))


def _owners(loads: dict[str | None, SlotLoad], unit: str) -> Section:
    named = [("nobody" if owner is None else owner, load) for owner, load in loads.items()]
    mean = float(Fraction(sum(load for _, load in named)) / (len(named) or 1))
    rows = tuple(Bar(name, float(load), mean, f"{_told(load)} ({against(float(load), mean)})") for name, load in named)
    ratio = times(imbalance([load for _, load in named])) if named else "1.00"
    note = f"The mark is the mean; the heaviest has {ratio} times as much."
    figures = Table(
        f"{unit.capitalize()} of each owner",
        ("owner", unit, "by mean"),
        tuple((n, _load(load), off(float(load), mean)) for n, load in named),
    )
    return Section("Load per consumer", note, (Bars(f"{unit} of each owner against the mean", rows), figures))


def _load(load: SlotLoad) -> Figure:
    return Figure(_told(load), load if isinstance(load, int) else float(load))


def _told(load: SlotLoad) -> str:
    return f"{load:,}" if isinstance(load, int) else f"{float(load):,.2f}"
