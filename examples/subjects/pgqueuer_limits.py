"""pgqueuer, jobs in PostgreSQL: an entrypoint for each key, with ``concurrency_limit=1``."""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import cache
from typing import Any
from uuid import UUID, uuid4

import psycopg
from examples.subjects.servers import postgres_address
from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter

from keyshared.testing import AsyncDriver, Claims, Delivery, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS

KEYS = (b"a", b"b")
ENTRYPOINTS: Any = {key.decode(): EntrypointExecutionParameter(concurrency_limit=1) for key in KEYS}
HEARTBEAT_S = 30


@cache
def database() -> str:
    """Make a database for the tables, which are not there yet; return its address."""
    address = postgres_address()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE pgqueuer")
    return address.replace("dbname=postgres", "dbname=pgqueuer")


class LimitDriver(AsyncDriver):
    """What a worker of pgqueuer says to its database, one call for each step; a key is an entrypoint."""

    async def open(self) -> None:
        self.connection = await psycopg.AsyncConnection.connect(database(), autocommit=True)
        self.queries: Any = Queries(PsycopgDriver(self.connection))
        if not await self.queries.schema_is_installed():
            await self.queries.install()
        await self.connection.execute("TRUNCATE pgqueuer, pgqueuer_log RESTART IDENTITY")
        self.workers: dict[str, UUID] = {}
        self.attempts: Counter[int] = Counter()
        self.running: dict[int, UUID] = {}

    async def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.workers[consumer] = uuid4()

    async def disconnect(self, consumer: str) -> None:
        """The process stands still, or dies: its heart beats no more."""
        del self.workers[consumer]

    async def publish(self, key: bytes | None) -> int:
        return int((await self.queries.enqueue((key or b"").decode(), None))[0])

    async def receive(self, consumer: str) -> Sequence[Delivery]:
        worker, wait = self.workers[consumer], timedelta(seconds=HEARTBEAT_S)
        jobs = await self.queries.dequeue(len(KEYS), ENTRYPOINTS, worker, None, wait)
        self.attempts.update(int(job.id) for job in jobs)
        self.running |= {int(job.id): worker for job in jobs}
        return [Delivery(int(job.id), job.entrypoint.encode(), self.attempts[int(job.id)], job) for job in jobs]

    async def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # nobody is asked for
        counted = await self._ends(delivery)
        await self.queries.log_jobs([(delivery.token, "successful", None)])
        return counted

    async def nack(self, consumer: str, delivery: Delivery) -> bool | None:  # as above
        counted = await self._ends(delivery)
        await self.queries.retry_job(delivery.token, timedelta(0), None)
        return counted

    async def advance(self, ms: int) -> None:
        """Make all heartbeats older, and let those hearts beat that beat."""
        await self.connection.execute(f"UPDATE pgqueuer SET heartbeat = heartbeat - interval '{ms} ms'")
        alive = [job for job, worker in self.running.items() if worker in self.workers.values()]
        await self.queries.update_heartbeat(alive)

    async def close(self) -> None:
        await self.connection.close()

    async def _ends(self, delivery: Delivery) -> bool:
        """Return whether the answer will change the job: pgqueuer does not say, and asks for nothing but its id."""
        given: Any = delivery.token
        job = await self.queries.queue_job_by_id(given.id)
        self.running.pop(delivery.offset, None)
        return job is not None


class LimitMachine(KeySharedMachine):
    """Workers that die, and answer nothing any more."""

    driver_class = LimitDriver
    keys = KEYS
    untried = LATE_ANSWERS
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS})
    rest_ms = HEARTBEAT_S * 1_000 + 1


class LateAnswerMachine(LimitMachine):
    """Workers that were taken for dead answer all the same."""

    untried = frozenset()
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.FENCE})
