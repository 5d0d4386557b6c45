"""Run the core's tests on every Python that is there, and on the lowest versions that pyproject.toml allows.

    python tools/matrix.py [--only 3.12] [--only lowest] [arguments of pytest]

Each lane has a virtual environment of its own under build/matrix. Lanes with a number have the pinned dependencies,
"lowest" has each dependency at its lower bound on the lowest Python, "highest" has the newest of each on the newest
Python. A Python that is not there is named and passed over; no Python at all is an error.
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PLACE: Final = ROOT / "build" / "matrix"
MINORS: Final = range(11, 15)
ELSEWHERE: Final = (
    "~/.pyenv/versions/{0}.*/bin/python",
    "~/.local/share/uv/python/cpython-{0}.*/bin/python",
    "/opt/python/{0}*/bin/python",
)
_BOUND: Final = re.compile(r"([A-Za-z0-9_.-]+)>=([0-9.]+)")


def runs(python: str, version: str) -> bool:
    """Whether it is that Python: a shim may stand for one that is not there."""
    asked = [python, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    return found.returncode == 0 and found.stdout.strip() == version


def candidates(version: str) -> Iterator[str]:
    """Return where a Python may be, the likeliest first."""
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    for pattern in ELSEWHERE:
        yield from sorted(glob.glob(os.path.expanduser(pattern.format(version))), reverse=True)  # noqa: PTH111, PTH207  # `~` and `*` in one


def interpreters() -> dict[str, str]:
    """Return each Python that is there, by its version, the lowest first."""
    found = {}
    for minor in MINORS:
        version = f"3.{minor}"
        python = next((each for each in candidates(version) if runs(each, version)), None)
        if python is None:
            print(f"Python {version}: not here", file=sys.stderr)
        else:
            found[version] = python
    return found


def lowest(project: dict[str, Any]) -> list[str]:
    """Return the lower bound of each dependency of the core and of the extras that its tests use."""
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(each for name in ("pulsar", "celeriant") for each in extras[name])]
    bounds = [_BOUND.match(each) for each in wanted]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


def steps(lane: str, project: dict[str, Any]) -> list[list[str]]:
    """Return what pip installs, call by call."""
    editable = ["--no-deps", "--no-build-isolation", "--editable", "."]
    pinned = ["--require-hashes", "-r", "requirements/dev.txt"]
    newest = ["--upgrade", "--group", "bench", "--group", "build", *project["dependencies"]]
    match lane:
        case "lowest":
            return [pinned, lowest(project), editable]
        case "highest":
            return [newest, editable]
        case _:
            return [pinned, editable]


def run(lane: str, python: str, project: dict[str, Any], arguments: list[str]) -> bool:
    """Install a lane, and run its tests."""
    home = PLACE / lane
    if not (home / "installed").exists():
        subprocess.run([python, "-m", "venv", "--clear", home], check=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for what in (["--require-hashes", "-r", "requirements/pip.txt"], *steps(lane, project)):
            subprocess.run([*pip, *what], check=True, cwd=ROOT)
        (home / "installed").touch()
    here = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "PYTHONHOME"}}
    workers = ["--numprocesses=auto", "--dist=loadfile", "--no-loadscope-reorder"]
    tests = [str(home / "bin" / "python"), "-m", "pytest", "-q", *workers, *arguments]
    return subprocess.run(tests, check=False, cwd=ROOT, env=here).returncode == 0


def main() -> int:
    """Run the lanes, and say which failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", help="a lane: 3.12, lowest, highest; several times for several")
    asked, arguments = parser.parse_known_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = interpreters()
    if not found:
        raise SystemExit(f"no Python from 3.{MINORS[0]} to 3.{MINORS[-1]} is here")
    first, last = next(iter(found.values())), list(found.values())[-1]
    lanes = {**found, "lowest": first, "highest": last}
    unknown = set(asked.only or ()) - lanes.keys()
    if unknown:
        raise SystemExit(f"no such lane here: {', '.join(sorted(unknown))}; there are {', '.join(lanes)}")
    results = {
        lane: run(lane, python, project, arguments)
        for lane, python in lanes.items()
        if not asked.only or lane in asked.only
    }
    for lane, passed in results.items():
        print(f"{lane:8} {'passed' if passed else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
