"""The page about the keys of a log: what is hot, what owners and buckets carry. No Spark session."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from tests.spark.replays.test_replay_report import NASTY, Page

pytest.importorskip("pyspark")
from keyshared import HashRing
from keyshared.errors import ArgumentError
from keyshared.placement import RangeMap
from keyshared.spark.keystats.counts import SlotCount
from keyshared.spark.keystats.histogram import KeyHistogram


def count(messages: int, hot_key: bytes, *, weight: int | Fraction | None = None, keys: int = 1) -> SlotCount:
    heavy = messages if weight is None else weight
    return SlotCount(messages, heavy, keys, hot_key, messages, heavy)


PLAIN = KeyHistogram({5: count(60, b"b"), 9: count(70, b"a"), 40_000: count(60, b"\xff", keys=3)}, 10, 10)


def told(histogram: KeyHistogram, folder: Path, **options: object) -> str:
    histogram.report(folder / "keys.html", **options)  # type: ignore[arg-type]  # each test names what it means
    return Page((folder / "keys.html").read_text(encoding="utf-8")).text


def test_the_hottest_keys_are_told_hottest_first_and_of_equal_ones_the_smaller(tmp_path: Path) -> None:
    text = told(PLAIN, tmp_path, title="Keys", about="orders of May")
    assert "Keys\norders of May\n" in text
    assert "a\n70\n35.00%\n9\n0\nb\n60\n30.00%\n5\n0\n\\xff\n60\n30.00%\n40,000\n2\n" in text
    assert "messages\n200\nwithout a key\n10\nkeys\n5\nslots with messages\n3\n" in text
    assert "1,024 buckets, 8 consumers" in text


def test_no_more_keys_are_shown_than_asked_for(tmp_path: Path) -> None:
    text = told(PLAIN, tmp_path, hottest=1, buckets=2, consumers=["x", "y"])
    assert "2 buckets, 2 consumers" in text
    assert "Keys with most messages: none" in told(PLAIN, tmp_path, hottest=0)


def test_with_a_placement_the_load_of_each_owner_is_shown_in_place_of_buckets(tmp_path: Path) -> None:
    halves = RangeMap.from_stops([32_768, 65_536], ["ann", "bob"])
    text = told(PLAIN, tmp_path, placement=halves)
    assert "ann\n130\n+36.8%\n" in text
    assert "bob\n60\n-36.8%\n" in text
    assert "the heaviest has 1.37 times as much" in text
    assert "Bucket boundaries" not in text
    assert "Load per consumer" in told(PLAIN, tmp_path, placement=HashRing(["ann", "bob"]))


def test_slots_of_nobody_are_shown_as_that(tmp_path: Path) -> None:
    hole = RangeMap.from_stops([32_768, 65_536], ["ann", None])
    assert "nobody\n60" in told(PLAIN, tmp_path, placement=hole)


def test_weights_are_told_as_weights_exactly_or_with_two_decimals(tmp_path: Path) -> None:
    heavy = Fraction(Decimal("1234567.891"))
    text = told(KeyHistogram({5: count(2, b"k", weight=heavy), 6: count(1, b"j", weight=7)}, 0, 0), tmp_path)
    assert "Keys with most weight" in text
    assert "k\n1,234,567.89\n100.00%\n2\n5\n0\nj\n7\n0.00%\n" in text


def test_a_log_without_keys_has_a_page_too(tmp_path: Path) -> None:
    empty = KeyHistogram({}, 0, 0)
    assert "none" in told(empty, tmp_path)
    assert "Load per consumer" in told(empty, tmp_path, placement=HashRing(["ann"]))


def test_keys_and_owners_are_text_whatever_they_contain(tmp_path: Path) -> None:
    nasty = KeyHistogram({5: count(1, NASTY.encode())}, 0, 0)
    owners = RangeMap.from_stops([65_536], [NASTY])
    nasty.report(tmp_path / "keys.html", title=NASTY, about=NASTY, placement=owners)
    page = Page((tmp_path / "keys.html").read_text(encoding="utf-8"))
    assert page.text.count(NASTY) >= 5


def test_the_page_stays_small_when_every_slot_has_keys(tmp_path: Path) -> None:
    full = KeyHistogram({slot: count(slot % 97 + 1, b"k%d" % slot) for slot in range(65_536)}, 0, 0)
    full.report(tmp_path / "keys.html", buckets=4_096)
    assert (tmp_path / "keys.html").stat().st_size < 1_100_000


@pytest.mark.parametrize(
    ("options", "parameter"),
    [
        ({"hottest": -1}, "hottest"),
        ({"buckets": 0}, "n"),
        ({"consumers": []}, "consumers"),
        ({"placement": 7}, "placement"),
    ],
)
def test_what_cannot_be_is_refused_and_an_older_page_stays(
    tmp_path: Path, options: dict[str, object], parameter: str
) -> None:
    (tmp_path / "keys.html").write_text("old")
    with pytest.raises(ArgumentError) as raised:
        PLAIN.report(tmp_path / "keys.html", **options)  # type: ignore[arg-type]  # wrong on purpose
    assert parameter == raised.value.parameter
    assert "old" == (tmp_path / "keys.html").read_text()


def test_a_page_in_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="name a file in a folder that is there"):
        PLAIN.report(tmp_path / "nowhere" / "keys.html")
