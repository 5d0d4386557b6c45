"""Histories in files: what is said of each, and which exit it makes."""

import gc
import gzip
import importlib
import io
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from keyshared.testing import (
    Guarantees,
    HistoryFileError,
    Promise,
    check_file,
    check_history,
    check_logs,
    files,
    write_jsonl,
)
from keyshared.testing.history import Acked, AtRest, Connected, Delivered, Happening, Nacked, Published, Quiet
from keyshared.testing.terminal import main

GOOD: list[Happening] = [Connected(consumer="c1"), Published(offset=0, key=b"k"), Quiet()]
BROKEN: list[Happening] = [
    Connected(consumer="c1"),
    *(Published(offset=offset, key=b"k") for offset in range(3)),
    *(Delivered(offset=offset, key=b"k", consumer="c1") for offset in range(3)),
]
CLAIMS = Guarantees(promises={Promise.BOUNDS, Promise.PROGRESS})


def written(path: Path, history: Iterable[Happening]) -> Path:
    text = "".join(write_jsonl(history))
    if path.suffix.lower() == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_a_report_says_what_was_judged_what_was_not_and_what_is_broken(tmp_path: Path) -> None:
    path = written(tmp_path / "broken.jsonl", BROKEN)
    report = check_file(path, CLAIMS)
    assert list(report.violations) == check_history(BROKEN, CLAIMS)
    assert (report.happenings, report.found, report.judged) == (7, 2, (Promise.BOUNDS,))
    assert str(report) == "\n".join(
        [
            f"{path}: 7 happenings (deliveries: 3, keys: 1), 2 violations",
            "judged in full: bounds",
            "not judged, or not in full:",
            "  progress: the history never says Quiet, and no progress_ms is claimed",
            *map(str, report.violations),
        ]
    )


def test_what_only_the_end_shows_is_shown(tmp_path: Path) -> None:
    history: list[Happening] = [Published(offset=0), Delivered(offset=1, consumer="c1")]
    report = check_file(written(tmp_path / "end.jsonl", history), Guarantees(promises={"no-loss"}))
    assert list(report.violations) == check_history(history, Guarantees(promises={"no-loss"}))
    assert report.found == 1


def test_what_is_lost_is_not_said_to_be_overtaken_too(tmp_path: Path) -> None:
    lost: list[Happening] = [
        Connected(consumer="c1"),
        Published(offset=0, key=b"k"),
        Published(offset=1, key=b"k"),
        Delivered(offset=1, key=b"k", consumer="c1"),
        Acked(offset=1, consumer="c1"),
    ]
    path = written(tmp_path / "lost.jsonl", [*lost, AtRest()])
    claims = Guarantees(promises={"key-order", "no-loss"})
    report = check_file(path, claims)
    assert [(each.promise, each.offset) for each in report.violations] == [(Promise.NO_LOSS, 0)]
    assert report.found == 1
    assert list(report.violations) == check_history([*lost, AtRest()], claims)
    only = check_file(path, Guarantees(promises={"key-order"}))
    assert [each.promise for each in only.violations] == [Promise.KEY_ORDER]
    # it came in between, and is lost only then: that is another fault
    came = Delivered(offset=0, key=b"k", consumer="c1"), Nacked(offset=0, consumer="c1", counted=True)
    both = check_history([*lost, *came, AtRest()], claims)
    assert [each.promise for each in both] == [Promise.KEY_ORDER, Promise.NO_LOSS]


def test_what_is_overtaken_often_does_not_hide_that_it_is_lost(tmp_path: Path) -> None:
    history: list[Happening] = [Connected(consumer="c1"), Published(offset=0, key=b"k"), Published(offset=1, key=b"l")]
    for offset in range(2, 9):
        passing = Delivered(offset=offset, key=b"kl"[offset % 2 : offset % 2 + 1], consumer="c1")
        history += [Published(offset=offset, key=passing.key), passing, Acked(offset=offset, consumer="c1")]
    history += [Delivered(offset=1, key=b"l", consumer="c1"), Acked(offset=1, consumer="c1"), AtRest()]
    claims = Guarantees(promises={"key-order", "no-loss"})
    right = check_history(history, claims)
    assert [str(each.promise) for each in right] == ["key-order"] * 3 + ["no-loss"]
    for most in range(6):
        report = check_file(written(tmp_path / "lost.jsonl", history), claims, most=most)
        assert (list(report.violations), report.found) == (right[:most], 4)


def test_what_is_overtaken_often_does_not_hide_that_something_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_KEPT", 6)
    history: list[Happening] = [Connected(consumer="c1"), Published(offset=0, key=b"k"), Published(offset=1, key=b"l")]
    for key in (b"k", b"l"):
        for offset in range(len(history), len(history) + 7):
            passing = Delivered(offset=offset, key=key, consumer="c1")
            history += [Published(offset=offset, key=key), passing, Acked(offset=offset, consumer="c1")]
    history += [Delivered(offset=1, key=b"l", consumer="c1"), Acked(offset=1, consumer="c1"), AtRest()]
    claims = Guarantees(promises={"key-order", "no-loss"})
    right = check_history(history, claims)
    assert [str(each.promise) for each in right] == ["key-order"] * 7 + ["no-loss"]
    for most in (1, 3):
        report = check_file(written(tmp_path / "lost.jsonl", history), claims, most=most)
        assert (list(report.violations), report.found) == (right[:most], 8)


def test_no_more_is_shown_than_was_asked_for_and_all_is_counted(tmp_path: Path) -> None:
    report = check_file(written(tmp_path / "broken.jsonl", BROKEN), CLAIMS, most=1)
    assert (len(report.violations), report.found) == (1, 2)
    assert str(report).endswith("\n... and 1 more")
    assert not check_file(tmp_path / "broken.jsonl", CLAIMS, most=0).violations


def test_a_report_says_how_much_was_delivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [b"k", b"l", None, b"l", b"m"]
    told = [Delivered(offset=offset, key=key, consumer="c1") for offset, key in enumerate(keys)]
    path = written(tmp_path / "a.jsonl", told)
    for report in (check_file(path), check_logs([], [path])):
        assert (report.deliveries, report.keys) == (5, 3)
    monkeypatch.setattr(files, "_MOST_KEYS", 2)
    assert "5 happenings (deliveries: 5, keys: 2 or more), " in str(check_file(path))


def test_a_file_of_which_nothing_is_claimed_says_so(tmp_path: Path) -> None:
    report = check_file(written(tmp_path / "good.jsonl", GOOD), Guarantees(promises=set()))
    assert str(report).splitlines()[1:] == ["judged in full: nothing"]
    assert Promise.BOUNDS in check_file(tmp_path / "good.jsonl").judged


@pytest.mark.parametrize("name", ["h.jsonl.gz", "h.json", "h", "h.csv", "h.csv.gz", "H.CSV", "h.csv.GZ", "h.jsonl.Gz"])
def test_the_name_says_how_a_file_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    is_compressed = name.lower().endswith(".gz")
    if ".csv" in name.lower():
        lines = b"\xef\xbb\xbfhappening,offset,key,consumer\r\npublished,0,\xc3\xa9,\r\ndelivered,0,\xc3\xa9,c1\r\n"
        path.write_bytes(gzip.compress(lines) if is_compressed else lines)
    else:
        written(path, [Published(offset=0, key=b"k"), Delivered(offset=0, key=b"k", consumer="c1")])
    report = check_file(str(path))
    assert (report.path, report.happenings, report.found) == (str(path), 2, 0)


@pytest.mark.parametrize(
    ("name", "content", "line", "problem"),
    [
        ("a.jsonl", b'\n{"version": 2}\n', 2, "version of line 2 is 2; it must be 1"),
        ("a.csv", b"happening,at_ms\nquiet,soon\n", 2, "at_ms of line 2 is 'soon'; it must be an int"),
        ("a.jsonl", b"\n\xff\n", 2, "it cannot be read: 'utf-8' codec can't decode"),
        ("a.jsonl.gz", b"no gzip", 0, "it cannot be read: Not a gzipped file"),
        ("a.jsonl.gz", gzip.compress(b"\n" * 9, mtime=0)[:-9], 9, "it cannot be read: "),
        ("a.jsonl.gz", gzip.compress(b"\n" * 9, mtime=0)[:10] + b"\xff" * 20, 0, "it cannot be read: "),
    ],
)
def test_a_file_that_holds_no_history_is_named_with_its_line(
    tmp_path: Path, name: str, content: bytes, line: int, problem: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(HistoryFileError) as raised:
        check_file(path)
    assert (raised.value.path, raised.value.line) == (str(path), line)
    assert raised.value.problem.startswith(problem)
    assert str(raised.value) == f"{path}{f':{line}' if line else ''}: {raised.value.problem}"


def test_a_history_that_contradicts_itself_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("\n\n" + "".join(write_jsonl([Published(offset=1), Published(offset=0)])))
    with pytest.raises(HistoryFileError, match="offset of happening 1 is 0") as raised:
        check_file(path)
    assert raised.value.line == 4


def test_what_stands_before_a_line_that_is_no_happening_is_judged_first(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(write_jsonl([Published(offset=1), Published(offset=0)])) + "no happening\n")
    with pytest.raises(HistoryFileError, match="offset of happening 1 is 0") as raised:
        check_file(path)
    assert raised.value.line == 2


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(tmp_path: Path, *, is_enabled: bool) -> None:
    path = written(tmp_path / "good.jsonl", GOOD)
    was_enabled = gc.isenabled()
    (gc.enable if is_enabled else gc.disable)()
    try:
        check_file(path)
        path.write_text("no happening")
        with pytest.raises(HistoryFileError):
            check_file(path)
        assert gc.isenabled() is is_enabled
    finally:
        (gc.enable if was_enabled else gc.disable)()


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HistoryFileError, match="No such file"):
        check_file(tmp_path / "none.jsonl")


def test_each_file_is_judged_by_itself_and_the_exit_is_that_of_the_worst(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, broken = written(tmp_path / "good.jsonl", GOOD), written(tmp_path / "broken.jsonl", BROKEN)
    claims = ["--claim", 'promises=["bounds"]']
    assert main(["check", str(good), *claims]) == 0
    assert main(["check", str(broken), str(good), *claims, "--most", "1"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("good.jsonl: 3 happenings (deliveries: 0, keys: 0), 0 violations") == 2
    assert "... and 1 more" in shown
    assert main(["check", "none.jsonl", str(broken), *claims]) == 2
    shown, errors = capsys.readouterr()
    assert "broken.jsonl: 7 happenings (deliveries: 3, keys: 1), 2 violations" in shown
    assert errors.startswith("none.jsonl: it cannot be read")


def test_claims_stand_in_a_file_and_in_options(tmp_path: Path) -> None:
    broken, claims = written(tmp_path / "broken.jsonl", BROKEN), tmp_path / "claims.toml"
    claims.write_text('promises = ["bounds"]\n')
    assert main(["check", str(broken), "--claims", str(claims)]) == 1
    assert main(["check", str(broken), "--claims", str(claims), "--claim", 'per_key="any"']) == 0


def test_claims_may_begin_with_the_mark_of_an_editor(tmp_path: Path) -> None:
    broken, claims = written(tmp_path / "broken.jsonl", BROKEN), tmp_path / "claims.toml"
    claims.write_text('promises = ["bounds"]\n', "utf-8-sig")
    assert main(["check", str(broken), "--claims", str(claims)]) == 1


def test_a_terminal_that_cannot_write_a_name_shows_it_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = written(tmp_path / "broken.jsonl", [*BROKEN[:4], Delivered(offset=1, key=b"k", consumer="\u0107")])
    shown = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["check", str(broken)]) == 1
    shown.seek(0)
    assert "'\\u0107'" in shown.read()


def test_what_is_printed_may_go_into_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    assert main(["check", str(written(tmp_path / "good.jsonl", GOOD)), "--claim", 'promises=["bounds"]']) == 0
    assert "0 violations" in shown.getvalue()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "COMMAND"),
        (["check"], "there is no FILE"),
        (["check", "a", "--most", "-1"], "'-1' is no int of 0 to 999999"),
        (["check", "a", "--most", "9999999"], "is no int"),
        (["check", "a", "--claim", "per_key=0"], "per_key is 0; it must be an int of at least 1"),
        (["check", "a", "--claims", "none.toml"], "No such file"),
    ],
)
def test_a_wrong_option_exits_with_2(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(options)
    assert raised.value.code == 2
    assert told in capsys.readouterr().err


def test_the_package_runs_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = written(tmp_path / "broken.jsonl", BROKEN)
    monkeypatch.setattr(sys, "argv", ["keyshared.testing", "check", str(broken)])
    importlib.import_module("keyshared.testing.__main__")  # does nothing
    monkeypatch.delitem(sys.modules, "keyshared.testing.__main__")
    with pytest.raises(SystemExit) as raised:
        runpy.run_module("keyshared.testing", run_name="__main__")
    assert raised.value.code == 1
