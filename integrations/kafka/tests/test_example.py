"""The programs of the how-to survive what it does to them."""

import socket
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cluster import Cluster
from tests.running import until
from tests.test_crashes import environment

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "transports"
MESSAGES = 2_000
REJECTED = {number for number in range(MESSAGES) if number % 400 == 1}

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the programs are in the repository")


class Programs:
    """Starts the programs of the how-to, and kills what is left of them."""

    def __init__(self, done: Path, left: ExitStack) -> None:
        self._done = done
        self._left = left

    def mock(self) -> str:
        """Return the address of the cluster."""
        mock = self._begin("kafka_mock.py", "orders", str(MESSAGES), stdout=subprocess.PIPE)
        assert mock.stdout is not None
        with mock.stdout as lines:
            return str(lines.readline(), "ascii").strip()

    def consumer(self, bootstrap: str) -> "subprocess.Popen[bytes]":
        with self._done.open("ab") as file:
            return self._begin("kafka_consumer.py", bootstrap, "orders", stdout=file)

    def service(self, bootstrap: str, topic: str, port: int) -> "subprocess.Popen[bytes]":
        command = ["-m", "examples.transports.kafka_service", bootstrap, topic, str(port)]
        return self._start(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def _begin(self, program: str, *arguments: str, stdout: Any) -> "subprocess.Popen[bytes]":
        return self._start([str(EXAMPLES / program), *arguments], stdout=stdout)

    def _start(self, command: list[str], **outputs: Any) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, *command], cwd=EXAMPLES.parents[1], env=environment(), **outputs)
        self._left.callback(process.wait)
        self._left.callback(process.kill)
        return process


def rows(done: Path) -> list[tuple[str, int]]:
    return [(key, int(number)) for key, number in (line.split() for line in done.read_text().splitlines())]


def is_in_order(life: list[tuple[str, int]]) -> bool:
    of_key: dict[str, list[int]] = {}
    for key, number in life:
        of_key.setdefault(key, []).append(number)
    return all(numbers == sorted(set(numbers)) for numbers in of_key.values())


def test_the_consumer_of_the_how_to_is_killed_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    with ExitStack() as left:
        programs = Programs(done, left)
        bootstrap = programs.mock()
        first = programs.consumer(bootstrap)
        until(lambda: len(rows(done)) > MESSAGES / 4)
        first.kill()
        first.wait()
        of_first = len(rows(done))
        second = programs.consumer(bootstrap)
        until(lambda: {number for _, number in rows(done)} == set(range(MESSAGES)) - REJECTED, 60)
        second.terminate()
        assert second.wait(30) == 0
        assert of_first < MESSAGES - len(REJECTED)
        assert is_in_order(rows(done)[:of_first])
        assert is_in_order(rows(done)[of_first:])
        monkeypatch.setenv("KEYSHARED_KAFKA", bootstrap)
        cluster = Cluster()
        assert {bytes(letter.key()) for letter in cluster.read("orders.dlq")} == {
            f"customer-{number * 7919 % 200}".encode() for number in REJECTED
        }
        committed = cluster.committed("orders", "billing").items()
        assert {partition: offset for partition, (offset, _) in committed} == cluster.ends("orders")


def get(port: int, path: str) -> str:
    with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read(), "utf-8")


def is_open(port: int) -> bool:
    with socket.socket() as trying:
        return trying.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(not all(map(find_spec, ("fastapi", "uvicorn", "prometheus_client"))), reason="not installed")
def test_the_service_of_the_how_to_is_operated_and_ends_with_its_consumer(cluster: Cluster, tmp_path: Path) -> None:
    topic = cluster.topic()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with ExitStack() as left:
        service = Programs(tmp_path / "done", left).service(cluster.bootstrap, topic, port)
        until(lambda: is_open(port))
        cluster.produce(topic, [(b"k", b"20")], partition=0)
        until(lambda: "keyshared_up 1.0" in get(port, "/operator/metrics"))
        until(lambda: f'keyshared_committed_position{{log="{topic}-0"}} 1.0' in get(port, "/operator/metrics"))
        assert get(port, "/operator/stuck") == ""
        cluster.produce(topic, [(b"k", b"a word")], partition=0)
        said = str(service.communicate(timeout=60)[0], "utf-8")
    assert service.returncode != 0
    assert "charged 20" in said
    assert f"{topic}-0[1] key=b'k'" in said
    assert "ValueError: invalid literal for int()" in said
