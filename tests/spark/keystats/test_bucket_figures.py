"""The comparison of bucket boundaries: figures, slots that cannot be separated, and the part of the page. No Spark."""

from fractions import Fraction

import pytest
from tests.spark.replays.test_replay_report import NASTY, Page

from keyshared.spark.keystats.bucket_report import BucketReport, HotSlotKeys, LayoutLoads, bucket_section, times
from keyshared.spark.pages import parts
from keyshared.spark.pages.page import as_html

pytest.importorskip("pyspark")
from keyshared.spark.keystats.bucket_figures import compare_layouts
from keyshared.spark.keystats.counts import SlotCount
from keyshared.spark.keystats.histogram import KeyHistogram

CONSUMERS = ["a", "b"]


def count(messages: int, *, keys: int = 1, hot_key: bytes = b"k", hot: int | None = None) -> SlotCount:
    hottest = messages if hot is None else hot
    return SlotCount(messages, messages, keys, hot_key, hottest, hottest)


def histogram(slots: dict[int, SlotCount]) -> KeyHistogram:
    return KeyHistogram(slots, 0, 0)


def drawn(report: BucketReport) -> str:
    return as_html(parts.Page("T", "", (), (bucket_section(report),)))


def report(**changed: object) -> BucketReport:
    layout = LayoutLoads(
        name="equal widths", starts=(0, 32_768), buckets=(30, 10), by_number=(30, 10), by_load=(20, 20)
    )
    fields: dict[str, object] = {"layouts": (layout,), "hot_slots": (), "hot_slot_count": 0}
    return BucketReport(**{**fields, **changed})  # type: ignore[arg-type]  # the fields are checked where they are named


def test_balanced_boundaries_are_compared_with_equal_widths() -> None:
    slots = {slot: count(10) for slot in (10, 20, 30, 40, 40_000)}
    equal, balanced = compare_layouts(histogram(slots), CONSUMERS, hottest=5, buckets=4).layouts
    assert ("equal widths", (40, 0, 10, 0), (0, 16_384, 32_768, 49_152)) == (equal.name, equal.buckets, equal.starts)
    assert ("balanced", (10, 10, 10, 20)) == (balanced.name, tuple(sorted(balanced.buckets)))
    assert (Fraction(16, 5), Fraction(8, 5)) == (equal.imbalances[0], balanced.imbalances[0])
    assert (40, 10) == equal.by_number
    assert (40, 10) == equal.by_load  # one bucket has nearly all
    assert (20, 30) == tuple(sorted(balanced.by_load))


def test_hot_slots_are_named_with_the_keys_that_share_them_hottest_first() -> None:
    slots = {5: count(50, keys=3, hot_key=b"x", hot=30), 9: count(60, hot_key=b"\xff"), 70: count(1), 40_000: count(9)}
    found = compare_layouts(histogram(slots), CONSUMERS, hottest=1, buckets=4)
    assert 2 == found.hot_slot_count
    hottest = HotSlotKeys(slot=9, load=60, times_mean=Fraction(2), keys=1, hot_key="\\xff", hot_load=60)
    assert (hottest,) == found.hot_slots
    assert "2 slots carry more than the mean of a bucket" in found.about_hot_slots


@pytest.mark.parametrize("zero", [{0: count(5, hot_key=b"zero")}, {}])
def test_hashes_0_and_1_are_one_slot(zero: dict[int, SlotCount]) -> None:
    slots = {**zero, 1: count(4, hot_key=b"one"), 99: count(1)}
    [hot] = compare_layouts(histogram(slots), CONSUMERS, hottest=5, buckets=2).hot_slots
    expected = (1, 9, 2, "zero") if zero else (1, 4, 1, "one")
    assert expected == (hot.slot, hot.load, hot.keys, hot.hot_key)


def test_hash_0_alone_is_hot_as_well() -> None:
    [hot] = compare_layouts(histogram({0: count(5)}), CONSUMERS, hottest=5, buckets=2).hot_slots
    assert (1, 5, Fraction(2)) == (hot.slot, hot.load, hot.times_mean)


def test_a_log_without_keys_has_nothing_to_compare_and_no_division_by_zero() -> None:
    found = compare_layouts(histogram({}), CONSUMERS, hottest=5, buckets=8)
    assert {(Fraction(1),) * 3} == {layout.imbalances for layout in found.layouts}
    assert found.layouts[0].starts == found.layouts[1].starts
    assert () == found.hot_slots
    assert "none" in Page(drawn(found)).text


def test_the_section_shows_every_figure() -> None:
    hot = HotSlotKeys(slot=9, load=1_060, times_mean=Fraction(17, 8), keys=3, hot_key="x<y", hot_load=1_030)
    page = Page(drawn(report(hot_slots=(hot,), hot_slot_count=7)))
    text = page.text
    for fact in ("equal widths", "2 buckets, 2 consumers", "1.50", "1.00", "1,060", "2.12", "x<y", "1,030", "7 slots"):
        assert fact in text, fact
    assert "65536" in str(page.charts)  # the line ends where the hashes do


def test_a_key_is_text_whatever_it_contains_and_clipped() -> None:
    hot = HotSlotKeys(slot=9, load=1, times_mean=Fraction(1), keys=1, hot_key=NASTY + "k" * 500, hot_load=1)
    text = Page(drawn(report(hot_slots=(hot,)))).text  # refuses scripts that are not the page's own
    assert NASTY in text
    assert "k" * 80 not in text


def test_the_section_stays_small_with_as_many_buckets_as_there_can_be() -> None:
    slots = {slot: count(slot % 97 + 1) for slot in range(65_536)}
    many = compare_layouts(histogram(slots), CONSUMERS, hottest=5, buckets=4_096)
    few = compare_layouts(histogram({}), CONSUMERS, hottest=5, buckets=2)
    assert len(drawn(many)) - len(drawn(few)) < 80_000


@pytest.mark.parametrize(
    ("ratio", "text"), [(Fraction(1), "1.00"), (Fraction(182, 100), "1.82"), (Fraction(2, 3), "0.67")]
)
def test_ratios_have_two_decimals(ratio: Fraction, text: str) -> None:
    assert text == times(ratio)
