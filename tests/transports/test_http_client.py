import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.transports import servers
from tests.transports.crash_run import (
    LONG,
    ROOT,
    Message,
    Size,
    all_done,
    behind_a_hot_key,
    crew_of,
    messages,
    others_pass_a_hot_key,
    rejects,
)
from tests.transports.diary import judge

pytestmark = pytest.mark.slow

QUICK = Size(800, 40)

SERVE = """
import sys
import uvicorn
from examples.transports import http_queue
uvicorn.run(http_queue.service(sys.argv[1]), port=int(sys.argv[2]), log_level="warning")
"""


def shorten(program: Any) -> None:
    program.WORKERS, program.EXTEND_S = 4, 1


def text_of(body: str) -> str:
    return body


def filled(path: Path, rows: Iterable[Message]) -> sqlite3.Connection:
    program = pytest.importorskip("examples.transports.http_queue")
    database = sqlite3.connect(path)
    database.executescript(program.TABLES)
    database.executemany("INSERT INTO messages (key, body) VALUES (?, ?)", [(each.key, each) for each in rows])
    database.commit()
    return database


def test_each_verb_has_an_address_and_any_other_is_not_found(tmp_path: Path) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    port = servers.free_port()
    command = [sys.executable, "-c", SERVE, str(tmp_path / "queue.db"), str(port)]
    with servers.serving(command, port, tmp_path, in_folder=ROOT), httpx.Client() as client:

        def post(path: str, **more: Any) -> Any:
            return client.post(f"http://127.0.0.1:{port}/{path}", **more)

        assert post("messages?key=a", content="one").status_code == 201
        handle = post("leases").json()["handle"]
        assert post(f"leases/{handle}/forget", json={}).status_code == 404
        assert post(f"leases/{handle}/release", json={}).status_code == 204
        assert post(f"leases/{handle}/ack", json={}).status_code == 409
        handle = post("leases").json()["handle"]
        for wrong in (b"no JSON", b"[]", b'{"delay": 5}', b'{"now_ms": 5}', b"\xff"):
            assert post(f"leases/{handle}/release", content=wrong).status_code == 400
        assert post("messages?key=a", content=b"\xff").status_code == 400
        assert post(f"leases/{handle}/ack", json={}).status_code == 204


def test_a_hot_key_starves_no_other(tmp_path: Path) -> None:
    pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    path, port = tmp_path / "queue.db", servers.free_port()
    filled(path, behind_a_hot_key())
    command = [sys.executable, "-c", SERVE, str(path), str(port)]
    with servers.serving(command, port, tmp_path, in_folder=ROOT):
        others_pass_a_hot_key(tmp_path / "diary", "http_client", f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("size", [QUICK, LONG], ids=["quick", "long"])
def test_four_clients_lose_nothing_and_keep_the_order_of_keys_when_one_of_them_and_the_queue_are_killed(
    tmp_path: Path, size: Size
) -> None:
    pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    path, port = tmp_path / "queue.db", servers.free_port()
    database = filled(path, messages(size))
    command = [sys.executable, "-c", SERVE, str(path), str(port)]
    with crew_of(tmp_path / "diary", "http_client", f"http://127.0.0.1:{port}") as crew:
        with servers.serving(command, port, tmp_path, in_folder=ROOT):
            crew.join(4)
            crew.wait_for(size.many // 3)
            crew.kill()
            crew.join()
            crew.wait_for(size.many // 2)
            crew.kill(many=4)
        with servers.serving(command, port, tmp_path, in_folder=ROOT):  # the first one was killed too
            crew.join(4)
            crew.wait_for(size.many * 2 // 3)
            assert crew.leave() == 0
            crew.wait_for(size.many)
            assert crew.end() == [0, 0, 0]
        verdict = judge(crew.lines(), dict(Counter(message.key for message in messages(size))))
    print(size, verdict)  # noqa: T201  # pytest -s shows how much was done again
    assert verdict._replace(again=0) == all_done(size)
    assert verdict.again <= 5 * 4, "more was redone than was at handlers"
    assert database.execute("SELECT * FROM messages").fetchall() == []
    letters = database.execute("SELECT body, error FROM dead").fetchall()
    assert sorted(rejects(size)) == sorted(body for body, _ in letters)
    assert all(error.startswith("Reject(") for _, error in letters)
