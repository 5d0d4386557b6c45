"""The programs of the how-to survive what it does to them."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

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

    def _begin(self, *command: str, stdout: Any) -> "subprocess.Popen[bytes]":
        program, *arguments = command
        process = subprocess.Popen([sys.executable, EXAMPLES / program, *arguments], stdout=stdout, env=environment())
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
