"""A client of ``http_queue.py``; run as many as you like: ``http_client.py QUEUE_URL``."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import httpx

from keyshared.run import Reject, RetryLater

WORKERS, EXTEND_S, IDLE_S, RETRY_MS = 16, 10, 0.1, 500


async def charge(body: str) -> None:
    if not body.isdigit():
        raise Reject("the amount is no number")
    print("charged", int(body), flush=True)


async def serve(url: str, handle: Callable[[str], Awaitable[object]]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def keep(path: str) -> None:
        while True:
            await asyncio.sleep(EXTEND_S)
            await http.post(f"{path}/extend", json={})

    async def work() -> None:
        while not stop.is_set():
            answer = (await http.post("/leases")).raise_for_status()
            if answer.status_code == httpx.codes.NO_CONTENT:
                await asyncio.sleep(IDLE_S)
                continue
            lease, verb, more = answer.json(), "ack", dict[str, object]()
            keeping = asyncio.create_task(keep(f"/leases/{lease['handle']}"))
            try:
                await handle(lease["body"])
            except Reject as error:
                verb, more = "reject", {"reason": repr(error)[:500]}
            except RetryLater as error:
                verb, more = "release", {"delay_ms": error.delay_ms}
            except Exception as error:  # noqa: BLE001
                verb, more = "nack", {"reason": repr(error)[:500], "delay_ms": RETRY_MS}
            keeping.cancel()
            await http.post(f"/leases/{lease['handle']}/{verb}", json=more)  # 409: it has expired, and is leased again

    async with httpx.AsyncClient(base_url=url) as http, asyncio.TaskGroup() as tasks:
        for _ in range(WORKERS):
            tasks.create_task(work())


def consume(url: str, handle: Callable[[str], Awaitable[object]] = charge) -> None:
    asyncio.run(serve(url, handle))


if __name__ == "__main__":
    consume(sys.argv[1])
