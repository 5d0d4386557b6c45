"""What the kit finds in pgqueuer, with its own queries alone."""

import asyncio
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
from examples.subjects.pgqueuer_limits import database
from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
from pgqueuer.adapters.persistence.queries import Queries
from pgqueuer.ports.repository import EntrypointExecutionParameter


def a_late_success_lets_a_second_job_of_the_entrypoint_run() -> None:
    """A worker loses its heartbeat, and another one runs its job; then the first worker succeeds."""
    asyncio.run(_run())


async def _run() -> None:
    connection = await psycopg.AsyncConnection.connect(database(), autocommit=True)
    queries: Any = Queries(PsycopgDriver(connection))
    if not await queries.schema_is_installed():
        await queries.install()
    await queries.clear_queue()
    await queries.enqueue(["orders"] * 2, [b"1", b"2"], [0, 0])

    async def take() -> Any:
        limits = {"orders": EntrypointExecutionParameter(concurrency_limit=1)}
        return await queries.dequeue(10, limits, uuid4(), None, timedelta(seconds=30))

    [first] = await take()
    assert await take() == []
    await connection.execute("UPDATE pgqueuer SET heartbeat = heartbeat - interval '60 s'")
    [again] = await take()
    assert again.id == first.id  # as documented
    await queries.log_jobs([(first, "successful", None)])  # by the first worker
    [second] = await take()
    assert second.payload == b"2"  # it runs beside the other job
    await connection.close()
