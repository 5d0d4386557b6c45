"""What the kit finds in Procrastinate, with its own job manager alone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from examples.subjects.procrastinate_locks import database
from procrastinate import App, PsycopgConnector
from procrastinate.jobs import Status


def a_late_retry_gives_a_lock_to_two_workers() -> None:
    """A worker was taken for dead, and its job is run by another one; it wakes up, and its job fails."""

    async def run(manager: Any, slow: int, quick: int, third: int) -> None:
        job = await manager.fetch_job(None, slow)
        await manager.retry_job(job)  # by who looks after stalled jobs
        assert (await manager.fetch_job(None, quick)).id == job.id
        assert await manager.fetch_job(None, third) is None  # the lock holds
        await manager.retry_job(job)  # by the slow worker
        assert (await manager.fetch_job(None, third)).id == job.id  # while the quick one runs it

    _with_workers(run)


def a_late_success_lets_the_next_job_of_the_lock_start() -> None:
    """The same worker succeeds instead: the next job of the lock starts while the quick one runs the first."""

    async def run(manager: Any, slow: int, quick: int, third: int) -> None:
        job = await manager.fetch_job(None, slow)
        await manager.retry_job(job)
        assert (await manager.fetch_job(None, quick)).id == job.id
        await manager.finish_job(job, Status.SUCCEEDED, delete_job=False)
        newer = await manager.fetch_job(None, third)
        assert newer.lock == job.lock
        assert newer.id > job.id

    _with_workers(run)


def _with_workers(run: Callable[[Any, int, int, int], Awaitable[None]]) -> None:
    app = App(connector=PsycopgConnector(conninfo=database(), min_size=1))
    handle = app.task(name="handle", lock="customer-7")(print)

    async def main() -> None:
        async with app.open_async():
            empty = "TRUNCATE procrastinate_jobs, procrastinate_workers RESTART IDENTITY CASCADE"
            await app.connector.execute_query_async(query=empty)
            for _ in range(2):
                await handle.defer_async()
            slow, quick, third = [await app.job_manager.register_worker() for _ in range(3)]
            await run(app.job_manager, slow, quick, third)

    asyncio.run(main())
