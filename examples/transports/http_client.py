"""A client of ``http_queue.py``; run as many as you like: ``http_client.py QUEUE_URL``."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import httpx

from keyshared.run import Reject, RetryLater

WORKERS, EXTEND_S, IDLE_S = 16, 10, 0.1


async def charge(body: str) -> None:
    if not body.isdigit():
        raise Reject("the amount is no number")
    print("charged", int(body), flush=True)


async def consume(url: str, handle: Callable[[str], Awaitable[object]] = charge) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def keep(path: str) -> None:
        while True:
            await asyncio.sleep(EXTEND_S)
            with suppress(httpx.TransportError):  # the next one may come through
                await http.post(f"{path}/extend", json={})

    async def settle(path: str, body: str) -> None:
        verb, more, keeping = "ack", dict[str, object](), asyncio.create_task(keep(path))
        try:
            await handle(body)
        except RetryLater as error:
            verb, more = "release", {"delay_ms": error.delay_ms}
        except Exception as error:  # noqa: BLE001
            verb, more = "reject" if isinstance(error, Reject) else "nack", {"reason": repr(error)[:500]}
        finally:
            keeping.cancel()
        await http.post(f"{path}/{verb}", json=more)  # 409: it has expired, and is leased again

    async def work() -> None:
        while not stop.is_set():
            with suppress(httpx.TransportError):  # the queue is away or slow: what is leased expires, and comes again
                answer = (await http.post("/leases")).raise_for_status()
                if answer.status_code != httpx.codes.NO_CONTENT:
                    await settle(f"/leases/{answer.json()['handle']}", answer.json()["body"])
                    continue
            await asyncio.sleep(IDLE_S)

    async with httpx.AsyncClient(base_url=url) as http, asyncio.TaskGroup() as tasks:
        for _ in range(WORKERS):
            tasks.create_task(work())


if __name__ == "__main__":
    asyncio.run(consume(sys.argv[1]))
