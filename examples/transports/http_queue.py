"""A queue over HTTP that leases one message of a key at a time: ``uvicorn --factory http_queue:service``."""

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from keyshared.config import DispatcherConfig
from keyshared.effects import DeadLetter, Done, Load
from keyshared.leases import InvalidHandle, Lease, LeaseAnswer, LeaseConfig, LeaseQueue
from keyshared.placement.assigned import AssignedRanges

CONFIG = LeaseConfig(dispatcher=DispatcherConfig(tell_settled=True, max_in_flight_per_consumer=10_000))
ROWS = 1_000  # that one request may read: others wait meanwhile
TABLES = """PRAGMA journal_mode=WAL; CREATE TABLE IF NOT EXISTS dead (id INTEGER PRIMARY KEY, key, body, error);
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY AUTOINCREMENT, key, body);"""


def service(database: str = "queue.db") -> Starlette:  # noqa: C901
    db, last = sqlite3.connect(database, isolation_level=None), 0
    (epoch,) = db.executescript(TABLES).execute("PRAGMA user_version").fetchone()  # a number that is ours to use
    db.execute(f"PRAGMA user_version = {epoch + 1}")
    everybody = AssignedRanges.sole_owner("clients")
    queue = LeaseQueue[str](everybody, CONFIG, epoch=epoch)  # leases of earlier lives are answered 409
    queue.add_consumer("clients")

    def ask(call: Callable[..., LeaseAnswer[Any, str]], *arguments: object, **more: object) -> object:
        answer = call(*arguments, now_ms=time.monotonic_ns() // 1_000_000, **more)
        for effect in answer.effects:  # it may grow meanwhile
            if isinstance(effect, DeadLetter):
                db.execute("REPLACE INTO dead SELECT *, ? FROM messages WHERE id = ?", (effect.reason, effect.offset))
                answer.effects.extend(queue.dead_lettered(effect.offset).effects)
            elif isinstance(effect, Load):  # of a hot key, left in the table
                (body,) = db.execute("SELECT body FROM messages WHERE id = ?", (effect.offset,)).fetchone()
                answer.effects.extend(queue.loaded(effect.offset, body).effects)
            elif isinstance(effect, Done):
                db.execute("DELETE FROM messages WHERE id = ?", (effect.offset,))
        return answer.result

    async def put(request: Request) -> Response:
        try:
            row = request.query_params.get("key"), (await request.body()).decode()
        except UnicodeDecodeError as error:
            return PlainTextResponse(str(error), 400)
        return JSONResponse(db.execute("INSERT INTO messages (key, body) VALUES (?, ?)", row).lastrowid, 201)

    async def lease(_: Request) -> Response:
        nonlocal last
        room = min(queue.free_slots, ROWS)
        new = db.execute("SELECT * FROM messages WHERE id > ? ORDER BY id LIMIT ?", (last, room))
        for last, key, body in new.fetchall():
            ask(queue.offer, last, key, body)
        while not isinstance(found := ask(queue.consume, "clients"), Lease):
            if queue.why_empty("clients") is not None:
                return Response(status_code=204)  # else the next message was loaded just now
        return JSONResponse({"handle": f"{found.offsets[0]}/{found.id}", "body": found.messages[0].item})

    async def settle(request: Request) -> Response:
        verb = request.url.path.rpartition("/")[2]
        try:
            answer = ask(calls[verb], *request.path_params.values(), **await request.json())
        except (TypeError, ValueError) as error:  # no JSON, no object, or no arguments of this verb
            return PlainTextResponse(str(error), 400)
        return Response(status_code=409 if isinstance(answer, InvalidHandle) else 204)

    calls = {each.__name__: each for each in (queue.ack, queue.nack, queue.reject, queue.release, queue.extend)}
    verbs = {f"/leases/{{offset:int}}/{{lease:int}}/{verb}": settle for verb in calls}
    paths = {"/messages": put, "/leases": lease, **verbs}
    return Starlette(routes=[Route(path, function, methods=["POST"]) for path, function in paths.items()])
