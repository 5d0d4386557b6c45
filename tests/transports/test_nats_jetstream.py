import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transports import servers
from tests.transports.crash_run import LONG, QUICK, ROOT, Size, all_done, crash_run, crew_of, messages, rejects

from keyshared import ContiguousCursor

pytestmark = pytest.mark.slow
FEW = Size(10, 5)


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
        return ContiguousCursor.from_token(place.decode().partition(" ")[2]).resume_offset, [
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


def test_a_stream_that_was_created_again_under_its_name_is_refused(url: str, tmp_path: Path) -> None:
    import nats  # noqa: PLC0415  # as above

    async def create_again() -> None:
        async with await nats.connect(url) as client:
            for stream in ("orders", "orders-dead"):
                await client.jetstream().delete_stream(stream)
        await fill(url, FEW)

    async def forget_the_position() -> None:
        async with await nats.connect(url) as client:
            await (await client.jetstream().key_value("billing")).delete("orders")

    def handles_all(diary: str) -> bool:
        with crew_of(tmp_path / diary, "nats_jetstream", url, "orders") as crew:
            crew.join()
            crew.wait_for(FEW.many)
            assert crew.leave() == 0
            return True

    asyncio.run(fill(url, FEW))
    assert handles_all("first")
    asyncio.run(create_again())
    program = [sys.executable, "-m", "examples.transports.nats_jetstream", url, "orders"]
    refused = subprocess.run(program, cwd=ROOT, check=False, timeout=60, capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "nats kv del billing orders" in refused.stderr
    asyncio.run(forget_the_position())
    assert handles_all("second")
