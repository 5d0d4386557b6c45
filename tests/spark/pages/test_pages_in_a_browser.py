"""The pages in a real browser: nothing scrolls sideways, nothing complains, everything can be printed. Nightly."""

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("altair")
from tests.spark.audits import test_audit_report
from tests.spark.keystats import test_histogram_report
from tests.spark.pages.browser import Browser, browser, installed
from tests.spark.replays import test_what_if_report
from tests.spark.replays.test_replay_report import NASTY, full, taken

from keyshared import HashRing
from keyshared.distribution import DistributionTree
from keyshared.spark.audits import audit_report
from keyshared.spark.demo import distribution_report
from keyshared.spark.demo.distribution_report import ClusterLog, DistributionReport, Failover
from keyshared.spark.replays import replay_report, what_if_report

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not installed(), reason="needs chromium and chromedriver (Debian: chromium-driver)"),
]

LONG = "a-very-long-name-" + "x" * 100
TREE = DistributionTree({2: [{1: ["c1", "c2"]}, LONG]})


def audited() -> str:
    proof = test_audit_report._with(f"{LONG * 9}\n{NASTY}\n" * 40)
    found = test_audit_report.report(
        title=NASTY,
        promises=(test_audit_report.KEPT, test_audit_report.BROKEN, test_audit_report.OPEN),
        worst=((LONG, 617), (NASTY, 3)),
        keys=((LONG * 9, 4),),
        proofs=(test_audit_report.PROOF, proof),
    )
    return audit_report.html(found)


def compared() -> str:
    plans = [test_what_if_report.figures(name, name=NASTY) for name in ("two", LONG, NASTY)]
    return what_if_report.html(test_what_if_report.report(*plans, hot=LONG))


def distributed() -> str:
    found = DistributionReport(
        title=LONG,
        source=NASTY,
        tree=TREE,
        moved=TREE.hops()[:1],
        messages=9,
        seconds=1,
        faults=(("lost", 0), ("duplicated", 7)),
        clusters=tuple(ClusterLog(cluster=name, produced=1, received=2, sent=3) for name in TREE.clusters),
        links=tuple((hop, 4) for hop in TREE.hops()),
        groups=3,
        failovers=(Failover(way="provenance", promised=True, lost=0, again=1),),
    )
    return distribution_report.html(found)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {
        "replay": replay_report.html(full(consumers=40, partitions=9, points=2_000)),
        "names": replay_report.html(full(consumers=3, name=LONG)),
        "nasty": replay_report.html(full(name=NASTY)),
        "audit": audited(),
        "what-if": compared(),
        "distribution": distributed(),
    }
    for name, page in made.items():
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    test_histogram_report.PLAIN.report(folder / "keys.html", title=LONG)
    test_histogram_report.PLAIN.report(folder / "owners.html", placement=HashRing([LONG, NASTY, "c"]))
    return sorted(folder.iterdir())


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(("width", "height"), [(360, 800), (1280, 900)])
def test_no_page_scrolls_sideways_or_complains(
    window: Browser, pages: list[Path], width: int, height: int, *, dark: bool
) -> None:
    for page in pages:
        window.open(page, width=width, height=height, dark=dark)
        sizes = window.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert sizes[0] <= sizes[1], page.name
        assert 0 < sizes[1] <= width
        assert [] == window.complaints(), page.name
        assert [dark] == [window.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")]


def test_the_check_notices_a_page_that_is_too_wide_and_one_that_complains(window: Browser, tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text("<!DOCTYPE html><meta name=viewport content='width=device-width'><div style='width:500px'>x</div>")
    window.open(page, width=360, height=800)
    assert 500 <= window.evaluate("document.documentElement.scrollWidth")
    page.write_text("<!DOCTYPE html><script>console.error('no')</script>")
    window.open(page, width=360, height=800)
    assert 1 == len(window.complaints())


def test_every_chart_is_drawn_as_wide_as_the_page_lets_it(window: Browser, pages: list[Path]) -> None:
    shown = (
        "[...document.querySelectorAll('.chart')].map(e => { const svg = e.querySelector('svg'); "
        "return [svg ? svg.getBoundingClientRect().width : 0, e.clientWidth]; })"
    )
    for page in pages:
        for width in (360, 1280):
            window.open(page, width=width, height=800)
            drawn = window.evaluate(shown)
            assert all(abs(chart - room) <= 2 for chart, room in drawn), (page.name, width, drawn)
            assert drawn or page.name in {"audit.html", "distribution.html"}


def test_a_phone_gets_the_narrow_tree_and_a_wide_window_the_wide_one(window: Browser, pages: list[Path]) -> None:
    shown = (
        "[...document.querySelectorAll('.drawing')].filter(e => e.getClientRects().length)"
        ".map(e => e.viewBox.baseVal.width)"
    )
    [page] = [page for page in pages if page.name == "distribution.html"]
    for width, expected in ((360, [360]), (1280, [720])):
        window.open(page, width=width, height=800)
        assert expected == window.evaluate(shown)


def test_what_is_written_in_charts_stays_inside_them_and_can_be_read(window: Browser, pages: list[Path]) -> None:
    texts = (
        "[...document.querySelectorAll('svg text')].filter(e => e.getClientRects().length && e.textContent).map(e => { "
        "const box = e.getBoundingClientRect(), svg = e.ownerSVGElement.getBoundingClientRect(); "
        "return [e.textContent, box.left - svg.left, svg.right - box.right, parseFloat(getComputedStyle(e).fontSize) "
        "* svg.width / e.ownerSVGElement.viewBox.baseVal.width, getComputedStyle(e).fill]; })"
    )
    for page in pages:
        for width in (360, 1280):
            window.open(page, width=width, height=800, dark=True)
            for text, left, right, size, colour in window.evaluate(texts):
                assert min(left, right) >= -1, (page.name, width, text)
                assert size >= 10, (page.name, width, text)  # CSS pixels
                assert "rgb(0, 0, 0)" != colour, (page.name, text)  # a colour of the style sheet


def test_names_of_the_page_run_no_script_and_are_read_out(window: Browser, pages: list[Path]) -> None:
    run = "[...document.scripts].filter(e => !e.type).length"
    for page in pages:
        window.open(page, width=360, height=800)
        charts = window.evaluate("document.querySelectorAll('.chart').length")
        assert window.evaluate(run) == (2 if charts else 0)
        assert window.evaluate("document.title.length > 0 && document.documentElement.lang === 'en'")
        assert 1 == window.evaluate("document.querySelectorAll('h1').length")
        assert window.evaluate("[...document.querySelectorAll('table')].every(e => e.caption.textContent)")
        assert window.evaluate("[...document.querySelectorAll('.chart,.drawing')].every(e => e.ariaLabel)")


def test_a_page_loads_nothing_but_itself(window: Browser, pages: list[Path]) -> None:
    for page in pages:
        window.open(page, width=1280, height=900)
        assert [] == window.evaluate("performance.getEntriesByType('resource').map(e => e.name)"), page.name


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("width", [360, 1280])
def test_a_name_leads_to_its_part_of_the_page_and_back_by_the_keyboard(
    window: Browser, pages: list[Path], tmp_path: Path, width: int, *, scripts: bool
) -> None:
    page = tmp_path / "page.html"
    [nasty] = [page for page in pages if page.name == "nasty.html"]
    html = nasty.read_text(encoding="utf-8")
    page.write_text(html if scripts else re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL), encoding="utf-8")
    shown = "[...document.querySelectorAll('.detail')].filter(e => e.getClientRects().length).map(e => e.id)"
    for anchor in ("topic-partition-2", "key-0"):
        window.open(page, width=width, height=800)
        assert [] == window.evaluate(shown)
        link = f"document.querySelector('a[href=\"#{anchor}\"]')"
        window.evaluate(f"{link}.focus()")
        table = window.evaluate(f"{link}.closest('.table').id")
        window.press_enter()
        assert window.wait_for(f"document.activeElement.id === '{anchor}'")
        assert [anchor] == window.evaluate(shown)
        if scripts:
            assert window.wait_for(
                f"document.querySelector('#{anchor} svg.marks')?.getBoundingClientRect().width > 200"
            )
        assert window.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        window.evaluate(f"document.querySelector('#{anchor} a[href^=\"#\"]').focus()")
        window.press_enter()
        assert window.wait_for(f"document.activeElement.id === '{table}'")
        assert [] == window.evaluate(shown)
    assert [] == window.complaints()


def test_figures_are_saved_as_files_that_the_page_carries(window: Browser, pages: list[Path], tmp_path: Path) -> None:
    [page] = [page for page in pages if page.name == "nasty.html"]
    window.open(page, width=360, height=800)
    names = ("keys-that-waited-most", "wait-over-time", "use-of-each-consumer-over-time")
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        saved = window.downloaded(f'a[download$="{name}.csv"]', folder)
        assert f"flights-{name}.csv" == saved.name
        rows = list(csv.reader(io.StringIO(saved.read_bytes().decode("utf-8-sig"), newline=""), strict=True))
        assert [dict(zip(rows[0], row, strict=True)) for row in rows[1:]] == taken(page.read_text())[saved.name]
    assert [] == window.complaints()
    assert window.evaluate(
        "[...document.querySelectorAll('a[download]')].filter(e => e.getClientRects().length)"
        ".every(e => e.getBoundingClientRect().height >= 24 && e.ariaLabel.startsWith(e.textContent))"
    )


def test_every_page_can_be_printed(window: Browser, pages: list[Path]) -> None:
    for page in pages:
        window.open(page, width=1280, height=900, dark=True)
        printed = window.pdf()
        assert printed.startswith(b"%PDF-")
        assert len(printed) > 5_000
