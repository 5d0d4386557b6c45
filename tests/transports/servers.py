"""Start the servers of the examples: fresh ones, on loopback, for one test."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.find_servers import locate

PATIENCE_S = 180


def program(name: str) -> str:
    """Return the place of a server, or skip the test."""
    place = locate(name)
    if place is None:
        pytest.skip(f"there is no {name}; type: make servers")
    return str(place)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def serving(
    command: Sequence[str],
    port: int,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    in_folder: Path | None = None,
) -> Iterator[None]:
    """Run a server that listens on this port of loopback, and writes what it says into the folder."""
    said = folder / "server.log"
    with said.open("wb") as log:
        server = subprocess.Popen(
            command,
            cwd=in_folder or folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: listens(port),
            lambda: f"{command[0]} said: {said.read_text('utf-8', 'replace')[-2_000:]}",
            lambda: server.poll() is None,
        )
        yield
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # with what it has started; nothing of it is kept
        server.wait()


def listens(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


def wait_until(
    is_so: Callable[[], object], what: Callable[[], str] = str, may_come: Callable[[], bool] = lambda: True
) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert may_come(), what()
        assert time.monotonic() < until, what()
        time.sleep(0.05)
