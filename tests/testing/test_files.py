"""Histories in files: what is said of each, and which exit it makes."""

import gc
import gzip
import io
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from keyshared.testing import (
    Claims,
    ClaimsError,
    HistoryFileError,
    check_file,
    check_history,
    check_logs,
    files,
    write_jsonl,
)
from keyshared.testing.__main__ import main
from keyshared.testing.history import Acked, AtRest, Connected, Delivered, Event, Nacked, Published, Quiet, Unclear

GOOD: list[Event] = [Connected(consumer="c1"), Published(offset=0, key=b"k"), Quiet()]
BROKEN: list[Event] = [
    Connected(consumer="c1"),
    *(Published(offset=offset, key=b"k") for offset in range(3)),
    *(Delivered(offset=offset, key=b"k", consumer="c1") for offset in range(3)),
]
CLAIMS = Claims(promises={"bounds", "progress"})


def written(path: Path, history: Iterable[Event]) -> Path:
    text = "".join(write_jsonl(history))
    if path.suffix.lower() == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_a_report_is_a_table_of_what_holds_what_breaks_and_what_is_not_judged(tmp_path: Path) -> None:
    path = written(tmp_path / "broken.jsonl", [*BROKEN, Unclear(offset=2, reason="ask the broker")])
    report = check_file(path, Claims(promises={"bounds", "progress", "one-holder"}))
    assert list(report.violations) == check_history(BROKEN, CLAIMS)
    assert (report.events, report.deliveries, report.keys, report.found) == (8, 3, 1, 2)
    assert str(report) == "\n".join(
        [
            f"{path}: 8 events, 3 deliveries of 1 keys",
            "messages that are not judged: 1. So that they are: ask the broker (1)",
            "  one-holder  holds       3 deliveries",
            "  bounds      breaks      2 violations",
            "  progress    not judged  write `quiet` where the system has had time to act",
            *map(str, report.violations),
        ]
    )


LOST: list[Event] = [
    Connected(consumer="c1"),
    Published(offset=0, key=b"k"),
    Published(offset=1, key=b"k"),
    Delivered(offset=1, key=b"k", consumer="c1"),
    Acked(offset=1, consumer="c1"),
]


def test_a_lost_message_is_not_said_to_be_overtaken_too(tmp_path: Path) -> None:
    claims = Claims(promises={"key-order", "no-loss"})
    report = check_file(written(tmp_path / "lost.jsonl", [*LOST, AtRest()]), claims)
    assert [(str(each.promise), each.offset) for each in report.violations] == [("no-loss", 0)]
    assert report.found == 1
    assert list(report.violations) == check_history([*LOST, AtRest()], claims)
    # it came in between, and is lost only then: that is another fault
    came = Delivered(offset=0, key=b"k", consumer="c1"), Nacked(offset=0, consumer="c1", counted=True)
    both = check_history([*LOST, *came, AtRest()], claims)
    assert [str(each.promise) for each in both] == ["key-order", "no-loss"]


def test_no_more_is_shown_than_was_asked_for_and_all_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "broken.jsonl", BROKEN)
    report = check_file(path, CLAIMS, most=1)
    assert (len(report.violations), report.found) == (1, 2)
    assert str(report).endswith("\n... and 1 violations more")
    monkeypatch.setattr(files, "_MOST_KEPT", 1)
    assert (len(check_file(path, CLAIMS).violations), check_file(path, CLAIMS).found) == (1, 2)


def test_nothing_but_the_table_may_be_asked_for_and_not_less(tmp_path: Path) -> None:
    path = written(tmp_path / "broken.jsonl", BROKEN)
    assert check_file(path, CLAIMS, most=0).violations == check_logs([], [path], CLAIMS, most=0).violations == ()
    with pytest.raises(ClaimsError, match="most is -1; it must be at least 0"):
        check_file(path, CLAIMS, most=-1)


def test_keys_are_counted_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MOST_KEYS", 2)
    history: list[Event] = [
        Delivered(offset=at, key=key, consumer="a") for at, key in enumerate([b"k", b"l", None, b"m"])
    ]
    report = check_file(written(tmp_path / "keys.jsonl", history), Claims(promises={"one-holder"}))
    assert (report.deliveries, report.keys) == (4, 2)
    assert "4 deliveries of 2 or more keys" in str(report)


@pytest.mark.parametrize("name", ["h.jsonl", "h.JSONL.GZ", "h.csv", "h.CSV.gz"])
def test_the_name_says_the_form(name: str, tmp_path: Path) -> None:
    if ".csv" in name.lower():
        text = "event,offset,key\npublished,0,k\n"
        data = gzip.compress(text.encode()) if name.endswith("gz") else text.encode()
        (tmp_path / name).write_bytes(data)
    else:
        written(tmp_path / name, [Published(offset=0, key=b"k")])
    assert check_file(tmp_path / name).events == 1


@pytest.mark.parametrize(
    ("data", "line", "problem"),
    [
        (b'{"version": 2, "event": "quiet"}\n{"version": 2}\n', 2, "event of line 2 is None"),
        (b'{"version": 1, "happening": "quiet"}\n', 1, "version of line 1 is 1; it must be 2"),
        (b"\xff\n", 1, "it cannot be read"),
        (
            b'{"version": 2, "event": "published", "offset": 1}\n{"version": 2, "event": "published", "offset": 1}\n',
            2,
            "offset of event 1 is 1; it must be greater than 1",
        ),
    ],
)
def test_a_file_that_holds_no_history_is_refused_with_its_line(
    data: bytes, line: int, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_bytes(data)
    with pytest.raises(HistoryFileError, match=problem) as raised:
        check_file(path)
    assert raised.value.line == line
    if "cannot" not in problem and "greater" not in problem:
        with pytest.raises(HistoryFileError, match=problem):
            check_logs([], [path])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryFileError, match="it cannot be read"):
        check_file(tmp_path / "nothing.jsonl")


def test_the_garbage_collector_works_on_afterwards(tmp_path: Path) -> None:
    path = written(tmp_path / "good.jsonl", GOOD)
    check_file(path)
    assert gc.isenabled()
    gc.disable()
    try:
        check_file(path)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_logs_are_judged_as_one_history(tmp_path: Path) -> None:
    producer = written(tmp_path / "p.jsonl", [Published(offset=0, key=b"k")])
    consumers = [
        written(tmp_path / f"{name}.jsonl", [Delivered(offset=0, key=b"k", consumer=name, attempt=1, at_ms=at_ms)])
        for name, at_ms in (("a", 0), ("b", 100))
    ]
    claims = Claims(promises={"one-holder", "fairness"}, fairness=0)
    report = check_logs([producer], consumers, claims, clock_error_ms=5)
    assert [(each.promise, each.outcome) for each in report.verdicts] == [
        ("one-holder", "breaks"),
        ("fairness", "not judged"),
    ]
    unclear = check_logs([producer], consumers, claims, clock_error_ms=500)
    assert (unclear.found, unclear.unjudged_messages.total()) == (0, 1)


# --- in a terminal ----------------------------------------------------------------------------------------------------


def test_the_command_prints_a_report_of_each_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, broken = written(tmp_path / "good.jsonl", GOOD), written(tmp_path / "broken.jsonl", BROKEN)
    promises = ["--claim", 'promises = ["bounds"]']
    assert main(["check", str(good), *promises]) == 0
    assert main(["check", str(good), str(broken), *promises]) == 1
    claims = Claims(promises={"bounds"})
    reports = [check_file(good, claims), check_file(good, claims), check_file(broken, claims)]
    assert capsys.readouterr().out == "".join(f"{each}\n" for each in reports)


def test_the_command_judges_the_usual_promises_by_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(written(tmp_path / "broken.jsonl", BROKEN))]) == 1
    judged = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert judged == ["one-holder", "key-order", "safe-cursor", "no-loss", "bounds", "fence"]


def test_the_command_merges_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    producer = written(tmp_path / "p.jsonl", [Published(offset=0, key=b"k")])
    consumer = written(tmp_path / "c.jsonl", [Delivered(offset=0, key=b"k", consumer="a")])
    logs = ["--producer", str(producer), "--consumer", str(consumer)]
    claims = tmp_path / "claims.toml"
    claims.write_text('promises = ["one-holder"]')
    assert main(["check", *logs, "--claims", str(claims)]) == 0
    assert "one-holder  holds" in capsys.readouterr().out
    assert main(["check", *logs, "--consumer", str(consumer)]) == 2
    assert "give clock_error_ms" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["check"], "there is no FILE"),
        (["check", "h.jsonl", "--clock-error-ms", "5"], "a FILE has one order already"),
        (["check", "h.jsonl", "--clock-error-ms", "-5"], "'-5' is no int"),
        (["check", "h.jsonl", "--claim", "per_keys = 1"], "per_keys is 1"),
        (["check", "h.jsonl", "--claims", "nothing.toml"], "claims: "),
        (["try", "nothing.py"], "there is no such Python file"),
        ([], "required: COMMAND"),
    ],
)
def test_a_wrong_option_ends_with_two(arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert problem in capsys.readouterr().err


def test_the_package_is_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = written(tmp_path / "good.jsonl", GOOD)
    monkeypatch.setattr(sys, "argv", ["keyshared.testing", "check", str(path), "--claim", 'promises = ["bounds"]'])
    for name in [name for name in sys.modules if name == "keyshared.testing.__main__"]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit) as left:
        runpy.run_module("keyshared.testing", run_name="__main__")
    assert left.value.code == 0


def test_a_name_that_the_terminal_cannot_write_is_escaped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    history: list[Event] = [Published(offset=0), *(Delivered(offset=0, consumer=name) for name in ("ключ", "b"))]
    path = written(tmp_path / "h.jsonl", history)
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    assert main(["check", str(path), "--claim", 'promises = ["one-holder"]']) == 1
    sys.stdout.flush()
    assert b"\\u043a" in buffer.getvalue()


DRIVER = """
from keyshared.testing import Delivery, Driver

class Loses(Driver):
    def __init__(self): self.log = []
    def connect(self, consumer, filters=()): ...
    def disconnect(self, consumer): ...
    def publish(self, key):
        self.log.append(key)
        return len(self.log) - 1
    def receive(self, consumer): return []
    def ack(self, consumer, delivery): return True
"""
MACHINE = """
from keyshared.testing import Claims
from keyshared.testing.dispatcher import DispatcherDriver
from keyshared.testing.machine import KeySharedMachine

class Machine(KeySharedMachine):
    driver_class = DispatcherDriver
    claims = Claims(promises={"one-holder", "safe-cursor", "fairness"})
    retry_ms = 10
"""


def test_a_driver_is_tried_and_a_table_of_verdicts_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "my_driver.py"
    path.write_text(DRIVER)
    assert main(["try", str(path), "--seconds", "2"]) == 1
    shown = capsys.readouterr().out
    assert "plain use: 1 schedules: no-loss (1 steps)" in shown
    lines = [line.split("  ") for line in shown.splitlines() if line.startswith("  ")]
    table = {line[1].strip(): "  ".join(line[2:]).strip().partition("  ")[0] for line in lines}
    assert table["no-loss"] == "breaks"
    assert table["one-holder"] == table["crashes"] == table["timeouts"] == "not judged"
    assert "no-loss: offset 0 will never be delivered again, and it has no outcome" in shown


def test_a_machine_is_tried_for_its_own_claims(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "my_machine.py"
    path.write_text(MACHINE)
    assert main(["try", f"{path}::Machine", "--seconds", "2"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith("  ")] == [
        ["safe-cursor", "holds"] if place else ["one-holder", "holds"] for place in range(2)
    ] + [["fairness", "not"]]


@pytest.mark.parametrize(
    ("source", "name", "problem"),
    [("", "", "it defines none"), (DRIVER, "Other", "no class Other")],
)
def test_a_file_must_define_one_thing_to_try(
    source: str, name: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path: Any = tmp_path / "odd_driver.py"
    path.write_text(source)
    with pytest.raises(SystemExit):
        main(["try", f"{path}::{name}" if name else str(path)])
    assert problem in capsys.readouterr().err
