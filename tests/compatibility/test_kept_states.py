"""What a released version has written is read by every later one, and means the same (promises resume, determinism)."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.compatibility.journals import check_journal, check_journal_writes
from tests.compatibility.leases import check_leases, check_leases_writes
from tests.compatibility.states import STATES

KEPT = Path(__file__).parent / "kept"
VERSIONS = sorted((path.name for path in KEPT.iterdir()), key=lambda name: [int(part) for part in name.split(".")])
PRESENT = VERSIONS[-1]


def kept(version: str, name: str) -> Any:
    return json.loads((KEPT / version / f"{name}.json").read_text("utf-8"))


def each(name: str, versions: Sequence[str] = VERSIONS) -> list[Any]:
    every = [(version, number, one) for version in versions for number, one in enumerate(kept(version, name))]
    return [pytest.param(one, id=f"{version}-{number}") for version, number, one in every]


@pytest.mark.no_cover
@pytest.mark.parametrize("log", each("journals"))
def test_commands_have_the_outcomes_they_always_had_also_from_a_stored_state(log: dict[str, Any]) -> None:
    check_journal(log)


@pytest.mark.parametrize("calls", each("leases"))
def test_leases_answer_as_they_always_did_also_from_a_stored_snapshot(calls: dict[str, Any]) -> None:
    check_leases(calls)


@pytest.mark.parametrize(("version", "name"), [(version, name) for version in VERSIONS for name in STATES])
def test_what_was_stored_is_read(version: str, name: str) -> None:
    _, write, read = STATES[name]
    stored = kept(version, "states").get(name)

    if stored is not None:  # it came with a later version
        assert write(read(kept(PRESENT, "states")[name])) == write(read(stored))


@pytest.mark.parametrize("log", each("journals", [PRESENT]))
def test_a_journal_is_stored_as_the_newest_kept_version_says(log: dict[str, Any]) -> None:
    check_journal_writes(log)


@pytest.mark.parametrize("calls", each("leases", [PRESENT]))
def test_leases_are_stored_as_the_newest_kept_version_says(calls: dict[str, Any]) -> None:
    check_leases_writes(calls)


@pytest.mark.parametrize("name", STATES)
def test_everything_else_is_stored_as_the_newest_kept_version_says(name: str) -> None:
    make, write, _ = STATES[name]

    assert kept(PRESENT, "states")[name] == json.loads(json.dumps(write(make())))


def test_what_is_kept_reaches_every_command_and_almost_every_effect() -> None:
    logs = kept(PRESENT, "journals")
    commands = {row[2] for log in logs for row in log["commands"]}
    effects = {row[3] for log in logs for rows in log["outcomes"] for row in rows}

    assert {"offer", "ack", "nack", "redrive", "set_group", "flushed", "pull", "set_filters"} <= commands
    assert {"deliver", "released", "blocked", "dead_letter", "key_begun", "evicted", "done", "skipped"} <= effects
    assert {len(log["states"]) for log in logs} == {2}
