"""The operator's door over HTTP, in front of each kind of runner."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.transports import servers

from keyshared import Poison
from keyshared.config import Rules
from keyshared.run import AsyncRunner, DeadLetter, Reject, RunnerConfig, ThreadRunner

httpx = pytest.importorskip("httpx")
uvicorn = pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")
operator_door = pytest.importorskip("examples.transports.operator_door")

pytestmark = pytest.mark.slow

GROUPS = Rules(mark="tenants", group_of=lambda key: key.decode()[0])


@contextmanager
def opened(*arguments: Any) -> Iterator[Any]:
    port = servers.free_port()
    server = uvicorn.Server(uvicorn.Config(operator_door.door(*arguments), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        servers.wait_until(lambda: servers.listens(port))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


class Desk:
    """Handles messages; some of them cannot be handled before they are mended."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.bad = {"bad"}
        self.dead: list[DeadLetter[str]] = []

    def handle(self, message: str) -> None:
        if message in self.bad:
            raise Reject("no such customer")
        self.done.append(message)

    async def handle_in_a_loop(self, message: str) -> None:
        self.handle(message)

    def bury(self, letter: DeadLetter[str]) -> None:
        self.dead.append(letter)

    def read_dead_letters(self, log: str, key: str) -> list[DeadLetter[str]]:
        return [each for each in self.dead if (each.log, each.key) == (log, key.encode())]


def post(client: Any, path: str) -> Any:
    answer = client.post(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def look_hold_skip_and_retry(client: Any, desk: Desk, wait: Callable[[list[str]], None]) -> None:
    """The log has: a bad and a good message of a1, and one each of the paused b1 and of the paused group c."""
    servers.wait_until(lambda: "blocked" in client.get("/stuck").text)
    line = next(each for each in client.get("/stuck").text.splitlines() if "blocked" in each)
    assert line.startswith("orders[0] key=b'a1': blocked for ")
    assert line.endswith("after 1 failure, Reject: no such customer; 1 message waits behind it")
    assert "keyshared_up 1.0" in client.get("/metrics").text
    assert post(client, "/logs/orders/keys/a1/retry") is True
    servers.wait_until(lambda: "blocked" in client.get("/stuck").text)
    assert post(client, "/logs/orders/messages/0/skip") is True
    wait(["good"])
    assert post(client, "/keys/b%2F1/resume") is None
    wait(["good", "of b1"])
    assert post(client, "/groups/c/skip") == 1
    assert post(client, "/groups/c/resume") is None
    assert post(client, "/keys/a1/skip") == 0
    assert client.get("/stuck").text == ""
    assert client.post("/logs/payments/keys/a1/retry").status_code == 404
    assert client.post("/logs/orders/keys/a1/redrive").status_code == 409, "the runner is not configured for it"
    assert desk.done == ["good", "of b1"]


ROWS = [(0, "a1", "bad"), (1, "a1", "good"), (2, "b/1", "of b1"), (3, "c1", "of c")]
BLOCK = RunnerConfig(poison=Poison.BLOCK, rules=GROUPS)


def test_a_stuck_key_of_threads_is_found_and_let_go() -> None:
    desk = Desk()
    with ThreadRunner(desk.handle, config=BLOCK) as runner, opened(runner, runner.metrics) as client:
        runner.add_log("orders", start=0)
        post(client, "/keys/b%2F1/pause")
        post(client, "/groups/c/pause")
        runner.submit_many("orders", ROWS)
        look_hold_skip_and_retry(client, desk, lambda done: servers.wait_until(lambda: desk.done == done))


def test_a_stuck_key_of_an_event_loop_is_found_and_let_go() -> None:
    desk = Desk()

    async def serve() -> None:
        async with AsyncRunner(desk.handle_in_a_loop, config=BLOCK) as runner:
            runner.add_log("orders", start=0)
            runner.pause_key("b/1")
            runner.pause_group("c")
            await runner.submit_many("orders", ROWS)

            def operate() -> None:
                with opened(runner, runner.metrics) as client:
                    look_hold_skip_and_retry(client, desk, lambda done: servers.wait_until(lambda: desk.done == done))

            await asyncio.to_thread(operate)

    asyncio.run(serve())


def test_dead_letters_are_redriven_in_order() -> None:
    desk = Desk()
    desk.bad = {"1", "3"}
    config = RunnerConfig(redrive=True)
    with ThreadRunner(desk.handle, dead_letter=desk.bury, config=config) as runner:
        runner.add_log("orders", start=0)
        runner.submit_many("orders", [(number, "a1", str(number)) for number in range(5)])
        runner.drain()
        desk.bad = set()
        with opened(runner, runner.metrics, desk.read_dead_letters) as client:
            assert post(client, "/logs/orders/keys/a1/redrive") == 2
            runner.drain()
            assert desk.done == ["0", "2", "4", "1", "3"]
