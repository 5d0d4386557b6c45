import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transports import servers
from tests.transports.crash_run import LONG, QUICK, Size, all_done, crash_run, messages, rejects

from keyshared import ContiguousCursor

pytestmark = pytest.mark.slow


def shorten(program: Any) -> None:
    program.CONFIG = program.RunnerConfig(workers=16, window=200, commit_every_ms=20, stop_ms=3_000)


def text_of(message: Any) -> str:
    return str(message.data.decode())


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("nats")
    port = servers.free_port()
    command = [
        servers.program("nats-server"),
        "-a",
        "127.0.0.1",
        "-p",
        str(port),
        "-js",
        "-sd",
        str(tmp_path / "store"),
    ]
    with servers.serving(command, port, tmp_path):
        yield f"nats://127.0.0.1:{port}"


async def fill(url: str, size: Size) -> None:
    import nats  # noqa: PLC0415  # only here it is sure to be installed

    async with await nats.connect(url) as client:
        js = client.jetstream()
        await js.add_stream(name="orders", subjects=["orders.>"])
        await js.add_stream(name="orders-dead", subjects=["dead.orders.>"])
        for message in messages(size):
            await js.publish(f"orders.{message.key}", message.encode())


async def look(url: str) -> tuple[int | None, list[tuple[str, str]]]:
    import nats  # noqa: PLC0415  # as above

    async with await nats.connect(url) as client:
        js = client.jetstream()
        place = (await (await js.key_value("billing")).get("orders")).value
        many = (await js.stream_info("orders-dead")).state.messages
        letters = [await js.get_msg("orders-dead", number) for number in range(1, many + 1)]
        return ContiguousCursor.from_token(place.decode()).resume_offset, [
            (each.data.decode(), each.headers["error"]) for each in letters
        ]


@pytest.mark.parametrize("size", [QUICK, LONG], ids=["quick", "long"])
def test_a_stream_loses_nothing_and_keeps_the_order_of_subjects_when_a_process_is_killed(
    url: str, tmp_path: Path, size: Size
) -> None:
    asyncio.run(fill(url, size))
    verdict = crash_run(tmp_path / "diary", "nats_jetstream", url, "orders", stand_by=False, size=size)
    assert verdict._replace(again=0) == all_done(size)
    assert verdict.again <= size.kills * (16 + 16 * 20), (
        "more was redone than was at handlers, and done since the last commit"
    )
    position, letters = asyncio.run(look(url))
    assert position == size.many + 1
    assert {body for body, _ in letters} == rejects(size)  # a death may double one
    assert all(error.startswith("Reject(") for _, error in letters)
