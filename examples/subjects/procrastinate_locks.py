"""Procrastinate, jobs in PostgreSQL: jobs with the same lock run one after the other."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import procrastinate
import psycopg
from examples.subjects.servers import postgres_address
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager

from keyshared.testing import AsyncDriver, Claims, Delivery, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS

STALLED_S = 30


@cache
def database() -> str:
    """Make the tables in a database of their own; return the address."""
    address = postgres_address()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE procrastinate")
    address = address.replace("dbname=postgres", "dbname=procrastinate")
    with procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=address)).open() as app:
        app.schema_manager.apply_schema()
    return address


class LockDriver(AsyncDriver):
    """What a worker of procrastinate says to the job manager, one call for each step; a key is the name of a lock.

    As the manual advises, somebody looks for jobs of workers that are gone, and retries them.
    """

    async def open(self) -> None:
        self.connector: Any = procrastinate.PsycopgConnector(conninfo=database(), min_size=1, max_size=1)
        await self.connector.open_async()
        await self._run("TRUNCATE procrastinate_jobs, procrastinate_workers RESTART IDENTITY CASCADE")
        self.manager = JobManager(self.connector)
        self.workers: dict[str, int] = {}
        self.attempts: Counter[int] = Counter()

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.workers[consumer] = await self.manager.register_worker()

    async def disconnect(self, consumer: str) -> None:
        """The process stands still, or dies: its heart beats no more."""
        del self.workers[consumer]

    async def publish(self, key: bytes | None) -> int:
        job = Job(id=None, queue="orders", lock=(key or b"").hex(), queueing_lock=None, task_name="handle")
        offset: int | None = (await self.manager.defer_job_async(job)).id
        assert offset is not None
        return offset

    async def receive(self, consumer: str) -> Sequence[Delivery]:
        job = await self.manager.fetch_job(None, self.workers[consumer])
        if job is None or job.id is None:
            return []
        self.attempts[job.id] += 1
        return [Delivery(job.id, bytes.fromhex(job.lock or ""), self.attempts[job.id], job)]

    async def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # nobody is asked for
        try:
            await self.manager.finish_job(_job(delivery), Status.SUCCEEDED, delete_job=False)
        except ConnectorException:
            return False
        return True

    async def nack(self, consumer: str, delivery: Delivery) -> bool | None:  # as above
        try:
            await self.manager.retry_job(_job(delivery))
        except ConnectorException:
            return False
        return True

    async def advance(self, ms: int) -> None:
        """Let hearts beat that beat, make the others older, and retry what is stalled."""
        await self._run(f"UPDATE procrastinate_workers SET last_heartbeat = last_heartbeat - interval '{ms} ms'")
        for worker in self.workers.values():
            await self.manager.update_heartbeat(worker)
        for job in await self.manager.get_stalled_jobs(seconds_since_heartbeat=STALLED_S):
            await self.manager.retry_job(job)

    async def close(self) -> None:
        await self.connector.close_async()

    async def _run(self, query: str) -> None:
        await self.connector.execute_query_async(query=query)


class LockMachine(KeySharedMachine):
    """What its manual says of locks."""

    driver_class = LockDriver
    untried = LATE_ANSWERS
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS})
    rest_ms = STALLED_S * 1_000 + 1


class LateAnswerMachine(KeySharedMachine):
    """Workers that were taken for dead answer all the same."""

    driver_class = LockDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.FENCE})
    rest_ms = STALLED_S * 1_000 + 1


def _job(delivery: Delivery) -> Job:
    assert isinstance(delivery.token, Job)
    return delivery.token
