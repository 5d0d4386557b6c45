import asyncio
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from examples.subjects.rabbit_settings import DEBIAN_RABBIT, rabbit_environment
from tests.transports import servers
from tests.transports.crash_run import LONG, QUICK, Size, all_done, crash_run, messages, rejects

pytestmark = pytest.mark.slow


def shorten(program: Any) -> None:
    program.CONFIG = program.RunnerConfig(workers=16, window=200, stop_ms=3_000)


def text_of(message: Any) -> str:
    return str(message.body.decode())


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aio_pika")
    found = servers.program("rabbitmq-server")
    port, names, between = servers.free_port(), servers.free_port(), servers.free_port()
    environment = rabbit_environment(tmp_path, port, names, between)
    epmd = [which("epmd") or "epmd", "-address", "127.0.0.1", "-port", str(names)]
    (tmp_path / "names").mkdir()
    server = [str(DEBIAN_RABBIT if DEBIAN_RABBIT.exists() else found)]
    with servers.serving(epmd, names, tmp_path / "names"), servers.serving(server, port, tmp_path, environment):
        yield f"amqp://127.0.0.1:{port}/"


async def fill(url: str, size: Size) -> None:
    import aio_pika  # noqa: PLC0415  # only here it is sure to be installed

    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        queue = await channel.declare_queue("orders", durable=True, arguments={"x-single-active-consumer": True})
        for message in messages(size):
            letter = aio_pika.Message(message.encode(), headers={"key": message.key}, delivery_mode=2)
            await channel.default_exchange.publish(letter, queue.name)


async def look(url: str) -> tuple[int, list[tuple[str, Any]]]:
    import aio_pika  # noqa: PLC0415  # as above

    async with await aio_pika.connect(url) as connection, connection.channel() as channel:
        orders = await channel.get_queue("orders")
        dead = await channel.get_queue("orders.dead")
        letters = []
        while (message := await dead.get(no_ack=True, fail=False)) is not None:
            letters.append((message.body.decode(), message.headers["x-error"]))
        return orders.declaration_result.message_count or 0, letters


@pytest.mark.parametrize("size", [QUICK, LONG], ids=["quick", "long"])
def test_a_queue_loses_nothing_and_keeps_the_order_of_keys_when_a_process_is_killed(
    url: str, tmp_path: Path, size: Size
) -> None:
    asyncio.run(fill(url, size))
    verdict = crash_run(tmp_path / "diary", "rabbitmq", url, "orders", size=size)
    assert verdict._replace(again=0) == all_done(size)
    assert verdict.again <= size.kills * 16, "more was redone than was at handlers"
    left, letters = asyncio.run(look(url))
    assert left == 0
    assert {body for body, _ in letters} == rejects(size)  # a death may double one
    assert all(error.startswith("Reject(") for _, error in letters)
