from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transports import servers
from tests.transports.crash_run import LONG, QUICK, Size, all_done, crash_run, messages, rejects

pytestmark = pytest.mark.slow


def shorten(program: Any) -> None:
    program.LEASE_S = 4
    program.CONFIG = program.RunnerConfig(workers=16, window=200, stop_ms=3_000)


def text_of(fields: dict[str, str]) -> str:
    return fields["text"]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("redis")
    port = servers.free_port()
    command = [servers.program("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with servers.serving(command, port, tmp_path):
        yield f"redis://127.0.0.1:{port}/0"


@pytest.mark.parametrize("size", [QUICK, LONG], ids=["quick", "long"])
def test_streams_lose_nothing_and_keep_the_order_of_keys_when_a_process_is_killed(
    url: str, tmp_path: Path, size: Size
) -> None:
    import redis  # noqa: PLC0415  # only here it is sure to be installed

    client = redis.from_url(url, decode_responses=True)
    for message in messages(size):
        client.xadd("orders", {"key": message.key, "text": message})
    verdict = crash_run(tmp_path / "diary", "redis_streams", url, "orders", size=size)
    assert verdict._replace(again=0) == all_done(size)
    assert verdict.again <= size.kills * (16 + 16), "more was redone than was at handlers, and done since the last ack"
    assert client.xpending("orders", "billing")["pending"] == 0
    letters = [fields for _, fields in client.xrange("orders.dead")]
    assert sorted(rejects(size)) == sorted(letter["text"] for letter in letters)
    assert all(letter["error"].startswith("Reject(") for letter in letters)
    assert client.get("orders.lock") is None
