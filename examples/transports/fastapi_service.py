"""A FastAPI service with a queue of its own, a table of SQLite: ``uvicorn --factory fastapi_service:service``."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI

from keyshared.run import AsyncRunner, DeadLetter, Reject, RunnerConfig

CONFIG = RunnerConfig(workers=100, window=1_000, timeout_ms=60_000)
TABLES = """PRAGMA journal_mode=WAL; CREATE TABLE IF NOT EXISTS place (log PRIMARY KEY, position, token);
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY AUTOINCREMENT, customer, text);
CREATE TABLE IF NOT EXISTS dead (id INTEGER PRIMARY KEY, customer, text, error);"""


async def charge(text: str) -> None:
    if not text.isdigit():
        raise Reject("the amount is no number")
    print("charged", int(text), flush=True)


def service(database: str = "orders.db", handle: Callable[[str], Awaitable[object]] = charge) -> FastAPI:
    db = sqlite3.connect(database, isolation_level=None)
    db.executescript(TABLES)

    def commit(log: str, position: int, token: str) -> None:
        db.execute("REPLACE INTO place VALUES (?, ?, ?)", (log, position, token))

    def give_up(letter: DeadLetter[str]) -> None:
        db.execute("REPLACE INTO dead SELECT *, ? FROM orders WHERE id = ?", (repr(letter.error), letter.offset))

    async def read(last: int) -> None:
        while True:
            rows = db.execute("SELECT * FROM orders WHERE id > ? ORDER BY id LIMIT 100", (last,)).fetchall()
            await runner.submit_many("orders", rows)  # each is an offset, a key and a message
            last = rows[-1][0] if rows else last
            await asyncio.sleep(0 if rows else 0.05)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        (token,) = db.execute("SELECT token FROM place").fetchone() or (None,)
        async with runner:  # whose failure is raised here, too
            reading = asyncio.create_task(read(runner.add_log("orders", start=1, resume_from=token) - 1))
            yield
            reading.cancel()
            await runner.stop()  # what has begun ends and is committed; the rest waits for the next start

    app, runner = FastAPI(lifespan=lifespan), AsyncRunner(handle, commit=commit, dead_letter=give_up, config=CONFIG)

    @app.post("/orders", status_code=202)
    async def order(customer: str, text: str) -> int | None:
        runner.room("orders")  # raises what has stopped it: no handler would run
        return db.execute("INSERT INTO orders (customer, text) VALUES (?, ?)", (customer, text)).lastrowid

    return app
