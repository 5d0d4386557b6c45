import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import find_servers


@pytest.fixture(autouse=True)
def nothing_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(find_servers, "DEBIAN_POSTGRES", tmp_path / "nowhere")
    monkeypatch.setattr(find_servers, "find_spec", lambda _: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no" / "python"))


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755)
    return path


def test_the_path_comes_first_and_a_link_keeps_its_name_which_says_what_to_be(tmp_path: Path) -> None:
    executable(tmp_path / "redis-check-rdb")
    link = tmp_path / "redis-server"
    link.symlink_to("redis-check-rdb")
    assert link == find_servers.locate("redis-server", {"PATH": str(tmp_path)})


def test_the_newest_postgres_of_debian_is_taken_by_number(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(find_servers, "DEBIAN_POSTGRES", tmp_path)
    for version in ("9", "15"):
        executable(tmp_path / version / "bin" / "postgres")
    assert tmp_path / "15" / "bin" / "postgres" == find_servers.locate("postgres", {"PATH": ""})


def test_a_wheel_that_carries_the_program_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(find_servers, "find_spec", lambda _: Spec)
    program = executable(tmp_path / "bin" / "redis-server")
    assert program == find_servers.locate("redis-server", {"PATH": ""})


def test_a_wheel_may_put_the_program_beside_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    program = executable(tmp_path / "nats-server")
    assert program == find_servers.locate("nats-server", {"PATH": ""})


def test_what_cannot_be_executed_is_not_found(tmp_path: Path) -> None:
    executable(tmp_path / "redis-server").chmod(0o644)
    assert find_servers.locate("redis-server", {"PATH": str(tmp_path)}) is None


def test_who_is_not_root_gets_wheels_and_is_told_what_to_type(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[list[Any]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    assert find_servers.main({"PATH": ""}) == 1
    assert [[*commands[0][:4], *commands[0][-2:]]] == [
        [sys.executable, "-m", "pip", "install", "-r", find_servers.SERVER_LOCK]
    ]
    assert "sudo apt-get install redis-server\n" in capsys.readouterr().err


def test_root_installs_what_is_missing_and_updates_the_lists_only_if_that_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    apt = executable(tmp_path / "apt-get")
    for program in ("postgres", "nats-server", "rabbitmq-server", "tansu"):
        executable(tmp_path / program)
    verbs: list[str] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        verbs.append(command[1])
        assert str(apt) == command[0]
        if command[1] == "install":
            assert command[-1] == "redis-server"
        if verbs == ["install", "update", "install"]:
            executable(tmp_path / "redis-server")
            return subprocess.CompletedProcess(command, 0)
        return subprocess.CompletedProcess(command, 100)

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", run)
    assert find_servers.main({"PATH": str(tmp_path)}) == 0
    assert verbs == ["install", "update", "install"]


def test_a_server_that_no_wheel_carries_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in ("postgres", "nats-server", "redis-server", "tansu"):
        executable(tmp_path / program)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(subprocess, "run", pytest.fail)
    assert find_servers.main({"PATH": str(tmp_path)}) == 0
    assert capsys.readouterr().err.startswith("note: no rabbitmq-server was found")


def test_a_server_that_only_wheels_carry_is_never_asked_of_apt_and_may_be_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in ("apt-get", "postgres", "nats-server", "redis-server", "rabbitmq-server"):
        executable(tmp_path / program)
    commands: list[list[str]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    assert find_servers.main({"PATH": str(tmp_path)}) == 0
    assert [command[1:4] for command in commands] == [["-m", "pip", "install"]]
    assert capsys.readouterr().err.endswith("note: no tansu was found, and none could be installed\n")
