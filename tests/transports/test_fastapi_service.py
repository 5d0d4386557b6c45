import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.transports import servers
from tests.transports.crash_run import LONG, QUICK, Size, all_done, crash_run, messages, rejects

pytestmark = pytest.mark.slow


def shorten(program: Any) -> None:
    program.CONFIG = program.RunnerConfig(workers=16, window=200, commit_every_ms=20, stop_ms=3_000)


def consume(program: Any, handle: Any, database: str, port: str) -> None:
    import uvicorn  # noqa: PLC0415  # only here it is sure to be installed

    uvicorn.run(program.service(database, handle), port=int(port), log_level="warning")


def text_of(text: str) -> str:
    return text


@pytest.mark.parametrize("size", [QUICK, LONG], ids=["quick", "long"])
def test_a_service_loses_nothing_that_it_has_accepted_and_keeps_the_order_of_keys_when_it_is_killed(
    tmp_path: Path, size: Size
) -> None:
    httpx = pytest.importorskip("httpx")
    pytest.importorskip("uvicorn")
    program = pytest.importorskip("examples.transports.fastapi_service")
    path, port = tmp_path / "orders.db", servers.free_port()
    early, late = messages(size)[:-20], messages(size)[-20:]
    database = sqlite3.connect(path)
    database.executescript(program.TABLES)
    database.executemany("INSERT INTO orders (customer, text) VALUES (?, ?)", [(each.key, each) for each in early])
    database.commit()

    def post() -> None:
        servers.wait_until(lambda: servers.listens(port))
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            for each in late:
                assert client.post("/orders", params={"customer": each.key, "text": str(each)}).status_code == 202

    verdict = crash_run(
        tmp_path / "diary", "fastapi_service", str(path), str(port), stand_by=False, when_started=post, size=size
    )
    assert verdict._replace(again=0) == all_done(size)
    assert verdict.again <= size.kills * (16 + 16 * 20), (
        "more was redone than was at handlers, and done since the last commit"
    )
    assert database.execute("SELECT position FROM place").fetchone() == (size.many + 1,)
    letters = database.execute("SELECT text, error FROM dead").fetchall()
    assert sorted(rejects(size)) == sorted(text for text, _ in letters)
    assert all(error.startswith("Reject(") for _, error in letters)
