import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "make_venv.sh"
MACHINE = "/usr/bin:/bin"  # where sh finds basename and id; the fakes stand before it


@pytest.fixture
def fakes(tmp_path: Path) -> Path:
    """A folder at the head of the path, whose interpreters hide those of the machine and do not start."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("python3.13", "python3.12", "python3.11", "python3", "python3.14", "python"):
        fake(folder / name, "exit 127")
    fake(folder / "id", "echo 1000")
    return folder


def fake(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def forward(path: Path, *, but: str = "false", first: str = "") -> None:
    """An interpreter that is this one, unless the shell condition ``but`` holds, or ``first`` did it already."""
    fake(path, f"if {but}; then exit 1; fi\n{first}\nexec '{sys.executable}' \"$@\"")


def make_venv(fakes: Path, target: Path, python: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SCRIPT, target],
        env={"PATH": os.pathsep.join([str(fakes), MACHINE]), "PYTHON": python},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_dead_and_old_interpreters_are_passed_over(fakes: Path, tmp_path: Path) -> None:
    forward(fakes / "python3.12", but='case "$2" in *version_info*11*) true;; *) false;; esac')  # says it is too old
    forward(fakes / "python3")
    made = make_venv(fakes, tmp_path / "venv")
    assert (0, f"environment: {tmp_path}/venv with Python {sys.version.split()[0]}\n") == (made.returncode, made.stderr)
    assert (tmp_path / "venv" / "bin" / "pip").exists()


def test_without_a_python_the_error_says_what_to_type(fakes: Path, tmp_path: Path) -> None:
    made = make_venv(fakes, tmp_path / "venv")
    assert made.returncode == 1
    assert "no Python 3.11 or newer on the path" in made.stderr
    assert "make PYTHON=" in made.stderr
    assert not (tmp_path / "venv").exists()


def test_a_named_python_that_does_not_start_is_refused(fakes: Path, tmp_path: Path) -> None:
    forward(fakes / "python3")
    made = make_venv(fakes, tmp_path / "venv", python=str(fakes / "python3.11"))
    assert made.returncode == 1
    assert f"PYTHON={fakes}/python3.11 is not a Python 3.11 or newer that starts" in made.stderr


def test_a_python_without_venv_names_the_package_that_has_it(fakes: Path, tmp_path: Path) -> None:
    forward(fakes / "python3", but='case "$2" in *ensurepip*) true;; *) false;; esac')
    made = make_venv(fakes, tmp_path / "venv")
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert made.returncode == 1
    assert made.stderr.endswith(f"type: sudo apt-get install {package}\n")


def test_root_on_debian_gets_that_package_installed(fakes: Path, tmp_path: Path) -> None:
    there = tmp_path / "installed"
    # Without pip, which takes seconds to install; another test has it.
    without_pip = f"""if [ "$2" = venv ]; then exec '{sys.executable}' -m venv --without-pip "$4"; fi"""
    forward(fakes / "python3", but=f'case "$2" in *ensurepip*) ! [ -e "{there}" ];; *) false;; esac', first=without_pip)
    fake(fakes / "id", "echo 0")
    fake(fakes / "apt-get", f'[ "$1" = update ] && : > "{there}.lists"; [ -e "{there}.lists" ] && : > "{there}"')
    made = make_venv(fakes, tmp_path / "venv")
    assert made.returncode == 0
    assert (tmp_path / "venv" / "bin" / "python").exists()
