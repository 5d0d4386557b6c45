"""Logs of several processes in files: one history, one report, one exit."""

from pathlib import Path
from typing import Any

import pytest

from keyshared.testing import Guarantees, HistoryFileError, MergeError, Promise, check_logs, read_claims, write_jsonl
from keyshared.testing.history import Acked, AtRest, Connected, Delivered, Happening, Published
from keyshared.testing.terminal import main

CLAIMS = 'promises=["one-holder", "no-loss", "fence"]'
PUBLISHED = [Published(offset=offset, key=b"k", at_ms=offset) for offset in (0, 1)]
ONE: list[Happening] = [
    Delivered(offset=0, key=b"k", consumer="a", at_ms=10),
    Acked(offset=0, consumer="a", counted=True, at_ms=30),
]
OTHER = [Delivered(offset=1, key=b"k", consumer="b", at_ms=20)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    logs: dict[str, list[Any]] = {"p": PUBLISHED, "a": ONE, "b": OTHER}
    for name, log in logs.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(write_jsonl(log)))
    (tmp_path / "c.csv").write_text("happening,offset,key,consumer,at_ms\ndelivered,1,k,b,40\n")
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_report_says_what_another_order_may_judge_otherwise() -> None:
    claims = read_claims(CLAIMS)
    report = check_logs(["p.jsonl"], ["a.jsonl", "b.jsonl"], claims)
    assert [(each.promise, each.reason.partition(",")[0]) for each in report.open] == [
        (Promise.ONE_HOLDER, "broken in one order")
    ]
    assert (report.happenings, report.found, report.violations, report.judged) == (5, 0, (), ())
    assert "open, as another order of the logs may be judged otherwise:\n  one-holder: broken in" in str(report)
    report = check_logs(["p.jsonl"], ["a.jsonl", "c.csv"], claims, clock_error_ms=100)
    assert [each.reason.partition(",")[0] for each in report.open] == ["kept in one order"]


@pytest.mark.usefixtures("folder")
def test_a_decided_promise_is_judged() -> None:
    report = check_logs(["p.jsonl"], ["a.jsonl", "b.jsonl"], read_claims(CLAIMS), clock_error_ms=9)
    assert (report.path, report.found, report.open) == ("p.jsonl + a.jsonl + b.jsonl", 1, ())
    assert [each.promise for each in report.violations] == [Promise.ONE_HOLDER]
    assert not check_logs(["p.jsonl"], ["a.jsonl", "b.jsonl"], clock_error_ms=9, most=0).violations


def test_a_file_that_holds_no_history_is_named(folder: Path) -> None:
    (folder / "bad.jsonl").write_text("\n{}")
    with pytest.raises(HistoryFileError, match=r"bad\.jsonl:2"):
        check_logs([folder / "bad.jsonl"], [])
    with pytest.raises(MergeError, match=r"p\.jsonl #0"):
        check_logs(["p.jsonl", "p.jsonl"], [])


def test_what_overtook_a_loss_that_is_open_is_shown(folder: Path) -> None:
    logs: dict[str, list[Happening]] = {
        "p": [*PUBLISHED, Published(offset=2, key=b"q", at_ms=2)],
        "a": [
            Connected(consumer="a", at_ms=5),
            Delivered(offset=1, key=b"k", consumer="a", at_ms=100),
            Acked(offset=1, consumer="a", at_ms=110),
            AtRest(at_ms=1_000),
        ],
        "b": [Delivered(offset=2, key=b"q", consumer="b", at_ms=900), Acked(offset=2, consumer="b", at_ms=995)],
    }
    for name, log in logs.items():
        (folder / f"{name}.jsonl").write_text("".join(write_jsonl(log)))
    claims = Guarantees(promises={"key-order", "no-loss"})
    report = check_logs(["p.jsonl"], ["a.jsonl", "b.jsonl"], claims, clock_error_ms=15)
    assert [each.promise for each in report.open] == [Promise.NO_LOSS]
    assert [each.promise for each in report.violations] == [Promise.KEY_ORDER]
    report = check_logs(["p.jsonl"], ["a.jsonl", "b.jsonl"], claims, clock_error_ms=1)
    assert [each.promise for each in report.violations] == [Promise.NO_LOSS]


@pytest.mark.usefixtures("folder")
def test_the_exit_is_1_only_for_what_every_order_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    logs = ["check", "--claim", CLAIMS, "--producer", "p.jsonl", "--consumer", "a.jsonl", "--consumer", "b.jsonl"]
    assert main(logs) == 0
    assert "open, as" in capsys.readouterr().out
    assert main([*logs, "--clock-error-ms", "9"]) == 1
    assert "one-holder: offset 1 went to 'b'" in capsys.readouterr().out
    assert main([*logs, "--producer", "p.jsonl"]) == 2
    assert "each of them must have offsets of their own: p.jsonl #0" in capsys.readouterr().err
    assert main([*logs, "p.jsonl"]) == 0
    assert "p.jsonl: 2 happenings" in capsys.readouterr().out


def test_no_file_at_all_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["check"])
    assert raised.value.code == 2
    assert "there is no FILE" in capsys.readouterr().err


def test_an_error_of_clocks_needs_logs_of_several_processes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["check", "p.jsonl", "--clock-error-ms", "9"])
    assert raised.value.code == 2
    assert "--clock-error-ms is for the logs of a --producer or --consumer" in capsys.readouterr().err
