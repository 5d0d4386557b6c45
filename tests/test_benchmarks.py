"""Benchmarks must not rot: they run, and what they compare with is honest. No test here looks at a time."""

import json
import math
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks import __main__ as runner
from benchmarks import _subjects as subjects
from benchmarks._harness import Report, Scale, Verdict, turns
from benchmarks._subjects import NULL_KEY, Driver, FloorSubject, Subject
from benchmarks.bench_life import LOADS, hot_keys, random_picks, unique_keys, zipf_keys
from benchmarks.floor import Floor

import keyshared

ROOT = Path(__file__).resolve().parents[1]
BUILD = "compiled" if keyshared.COMPILED else "pure"
TITLES = [
    "life",
    "life by drain unit",
    "batches",
    "memory",
    "leases",
    "rare events, us per message",
    "joins by consumers, us per call",
    "ring",
    "boundaries from key statistics",
    "buckets that a join moves",
    "batch fill",
    "filters",
    "filters, tried in turn",
    "draining: joins, ms",
    "checker",
    "peers",
    "peers, slow keys",
]


def run_benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "benchmarks", "--quick", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    file = tmp_path_factory.mktemp("bench") / "bench.json"
    ran = run_benchmarks("--json", str(file))
    assert (0, "") == (ran.returncode, ran.stderr)
    reports: list[dict[str, Any]] = json.loads(file.read_text())["builds"][BUILD]
    return reports


def test_every_benchmark_reports(reports: list[dict[str, Any]]) -> None:
    assert TITLES == [report["title"] for report in reports]


def test_every_cell_is_a_positive_number(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        assert report["rows"]
        for row in report["rows"]:
            assert len(report["columns"]) == len(row["values"])
            assert all(math.isfinite(value) and value > 0 for value in row["values"]), row


def test_every_target_is_judged_on_every_load(reports: list[dict[str, Any]]) -> None:
    targets = [verdict["target"] for report in reports for verdict in report["verdicts"]]
    for load in LOADS:
        about = [target for target in targets if target.startswith("life: ") and target.endswith(f", {load.name}")]
        flat = [] if load.spills else ["life: dispatcher"]
        assert ["life: dispatcher / floor", "life: window / floor", *flat] == [target.split(",")[0] for target in about]
    judged = {"batches": 5, "memory": 5, "leases": 2, "ring": 2, "joins by consumers, us per call": 15, "filters": 2}
    for title, count in judged.items():
        assert count == sum(target.startswith(f"{title}: ") for target in targets), title
    assert len(set(targets)) == len(targets)


def test_the_table_shows_reports_verdicts_and_the_machine(tmp_path: Path) -> None:
    ran = run_benchmarks("checker", "ring", "--json", str(tmp_path / "bench.json"))
    assert (0, "") == (ran.returncode, ran.stderr)
    lines = ran.stdout.splitlines()
    assert ["checker", "ring", "targets"] == [line for line in lines if line in {*TITLES, "targets"}]
    assert 4 == sum(line.startswith(("  PASS", "  MISSED")) for line in lines)
    assert lines[-3].startswith("python 3.")


def missing(_: Scale) -> list[Report]:
    report = Report("a report", ("ns",))
    report.add("a case", 5.0)
    report.judge("slow", 5.0, 4.0)
    report.judge("fast", 3.0, 2.0, at_most=False)
    return [report]


def test_a_missed_target_fails_only_when_it_is_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(runner, "BENCHMARKS", {"one": missing})
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "bench.json")
    assert 0 == runner.main([])
    shown = capsys.readouterr().out
    assert "MISSED        5.00  at most 4       a report: slow" in shown
    assert "PASS          3.00  at least 2       a report: fast" in shown
    assert 1 == runner.main(["--check"])
    verdicts = json.loads((tmp_path / "bench.json").read_text())["builds"][BUILD][0]["verdicts"]
    assert [False, True] == [verdict["met"] for verdict in verdicts]


def test_both_builds_stand_in_one_table(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def run(command: Sequence[str], env: dict[str, str], *, check: bool) -> None:
        """Stand in for a run of another build: it writes what one would have measured."""
        assert check
        assert str(tmp_path) == env["PYTHONPATH"]
        assert ["one", "--no-targets"] == [part for part in command if part in {"one", "two", "--no-targets"}]
        measured = Report("there", ("ns",))
        measured.judge("only there", 1.0, 2.0)
        runner.write(Path(command[command.index("--json") + 1]), {"compiled": [*missing(Scale()), measured]})

    monkeypatch.setattr(keyshared, "COMPILED", False)
    monkeypatch.setattr(runner, "BENCHMARKS", {"one": missing, "two": lambda _: []})
    monkeypatch.setattr(runner, "COMPILED_TOO", ("one",))
    monkeypatch.setattr(runner, "run", run)

    assert 1 == runner.main(["--compiled", str(tmp_path), "--check", "--json", str(tmp_path / "bench.json")])

    cell = "MISSED        5.00  at most 4       "
    lines = capsys.readouterr().out.splitlines()
    assert f"  {cell}{cell}a report: slow" in lines
    assert f"  {'':36}PASS          1.00  at most 2       there: only there" in lines
    builds = json.loads((tmp_path / "bench.json").read_text())["builds"]
    assert {"pure": 1, "compiled": 2} == {build: len(reports) for build, reports in builds.items()}


def test_a_folder_without_a_compiled_build_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(keyshared, "COMPILED", False)
    monkeypatch.setattr(runner, "BENCHMARKS", {"one": missing})
    monkeypatch.setattr(runner, "COMPILED_TOO", ("one",))
    monkeypatch.setattr(runner, "run", lambda command, **_: runner.write(Path(command[-1]), {"pure": missing(Scale())}))

    with pytest.raises(SystemExit, match="there is no compiled build in"):
        runner.main(["--compiled", str(tmp_path), "--json", str(tmp_path / "bench.json")])


def test_an_unknown_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        runner.main(["lives"])
    assert "there is no benchmark 'lives'" in capsys.readouterr().err


@pytest.mark.parametrize(("measured", "at_most", "met"), [(2.0, True, True), (2.1, True, False), (1.9, False, False)])
def test_a_verdict_includes_its_bound(measured: float, *, at_most: bool, met: bool) -> None:
    assert met == Verdict("target", measured, 2.0, at_most).met


def test_cases_take_turns_and_their_median_counts() -> None:
    asked: list[str] = []
    answers = {"a": iter([(10, 1), (90, 1), (60, 2)]), "b": iter([(1, 1), (2, 1), (3, 1)])}

    def case(name: str) -> tuple[int, int]:
        asked.append(name)
        return next(answers[name])

    assert {"a": 30, "b": 2} == turns({"a": lambda: case("a"), "b": lambda: case("b")}, repeats=3)
    assert list("ababab") == asked


class TestFloor:
    """What everything is compared with does the job: nobody may say that the floor is low because it is broken."""

    def test_one_message_of_a_key_is_in_flight_and_the_next_follows_its_ack(self) -> None:
        floor = Floor(consumers=1, limit=10)
        assert [(0, b"k", 0)] == floor.offer(0, b"k")
        assert [] == floor.offer(1, b"k")
        assert [] == floor.offer(2, b"k")
        assert [(3, b"other", 0)] == floor.offer(3, b"other")
        assert [(1, b"k", 0)] == floor.ack(0)
        assert [(2, b"k", 0)] == floor.ack(1)
        assert [] == floor.ack(2)
        assert [(4, b"k", 0)] == floor.offer(4, b"k")

    def test_a_full_consumer_gets_the_longest_waiting_key_next(self) -> None:
        floor = Floor(consumers=1, limit=1)
        floor.offer(0, b"a")
        assert [] == floor.offer(1, b"b")
        assert [] == floor.offer(2, b"a")
        assert [(1, b"b", 0)] == floor.ack(0)
        assert [(2, b"a", 0)] == floor.ack(1)

    def test_the_cursor_passes_gaps_in_the_offsets_but_no_unacknowledged_one(self) -> None:
        floor = Floor(consumers=2, limit=10)
        for offset in (10, 12, 17):
            floor.offer(offset, b"%d" % offset)
        floor.ack(12)
        assert floor.cursor is None
        floor.ack(10)
        assert 12 == floor.cursor
        floor.ack(17)
        assert 17 == floor.cursor

    def test_nothing_is_left_behind(self) -> None:
        subject = FloorSubject(limit=2)
        driver = Driver(subject, zipf_keys(500), random_picks(500))
        driver.live(50)
        driver.check_done()
        floor = subject.floor
        assert ({}, {}, set(), 0) == (floor.lanes, floor.in_flight, floor.done, len(floor.order))
        assert [2] * subjects.CONSUMERS == floor.free


def delivered_keys(subject: Subject, keys: Sequence[bytes]) -> list[tuple[int, bytes]]:
    """What a subject hands out, in order, when 60 messages are kept outstanding and acked first in, first out."""
    seen: list[tuple[int, bytes]] = []
    driver = Driver(subject, keys)
    ack = subject.ack

    def watched(handle: Any) -> Any:
        seen.append(handle[:2] if isinstance(handle, tuple) else (handle.offset, handle.key))
        return ack(handle)

    subject.ack = watched  # type: ignore[method-assign]  # to look over the driver's shoulder
    driver.live(60)
    driver.check_done()
    return seen


@pytest.mark.parametrize("keys", [unique_keys(400), hot_keys(400), zipf_keys(400)], ids=["unique", "hot", "zipf"])
def test_all_subjects_deliver_the_same_messages_in_the_order_of_each_key(keys: list[bytes]) -> None:
    for subject in (
        subjects.floor(50),
        subjects.window(1_000, 50),
        subjects.window(100, 50, loaded_per_key=1, spills=True),
        subjects.dispatcher(1_000, 50),
        subjects.dispatcher(100, 50, loaded_per_key=1),
    ):
        seen = delivered_keys(subject, keys)
        assert list(enumerate(keys)) == sorted(seen)
        last: dict[bytes, int] = {}
        for offset, key in seen:
            assert last.get(key, -1) < offset
            last[key] = offset


def test_a_subject_that_loses_messages_is_not_measured() -> None:
    driver = Driver(subjects.null(5), [NULL_KEY] * 6)
    driver.live(3)
    with pytest.raises(AssertionError, match="stopped at 4 of 6"):
        driver.check_done()
