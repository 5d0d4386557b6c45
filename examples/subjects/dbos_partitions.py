"""DBOS, workflows in PostgreSQL: a queue with a partition for each key, of which one workflow runs at a time."""

import atexit
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import psycopg
import sqlalchemy as sa
from dbos import DBOSClient, run_dbos_database_migrations
from examples.subjects.servers import postgres_address

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine

QUEUE = "orders"


@cache
def client() -> Any:
    """Make the tables in a database of their own, and return a client."""
    address = postgres_address()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE dbos")
    folder = address.partition(" ")[0].removeprefix("host=")
    url = f"postgresql://kit@/dbos?host={folder}"
    run_dbos_database_migrations(url)
    made = DBOSClient(system_database_url=url)
    atexit.register(made.destroy)  # the server waits for those that are connected
    return made


def database() -> Any:
    """Return what a worker calls to start and to end workflows; it is not public."""
    return client()._sys_db  # noqa: SLF001


class PartitionDriver(Driver):
    """Workflows are enqueued in one transaction; a worker starts what it may, one of each key at a time."""

    def __init__(self) -> None:
        self.database = database()
        with self.database.engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM dbos.workflow_status"))
        self.queue = client().register_queue(QUEUE, partition_concurrency=1)
        self.random = Random(0)  # the same ids in each try
        self.workflows: list[tuple[str, bytes]] = []
        self.attempts: Counter[int] = Counter()
        self.numbers = count()
        self.workers: dict[str, str] = {}

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.workers[consumer] = f"{consumer} {next(self.numbers)}"

    def disconnect(self, consumer: str) -> None:
        """The process dies; what it had started is recovered."""
        worker = self.workers.pop(consumer)
        for workflow, _ in self.workflows:
            self.database.reenqueue_for_recovery(workflow, [worker], QUEUE)

    def publish(self, key: bytes | None) -> int:
        return self.publish_many([key])[0]

    def publish_many(self, keys: Sequence[bytes | None]) -> Sequence[int]:
        """Enqueue workflows in one transaction; their ids are random, as those that DBOS makes are."""
        before = len(self.workflows)
        with self.database.engine.begin() as connection:
            for key in keys:
                workflow = str(UUID(int=self.random.getrandbits(128), version=4))
                options = {"queue_name": QUEUE, "workflow_name": "charge", "workflow_id": workflow}
                options |= {"queue_partition_key": (key or b"").hex(), **self.more_options()}
                client().enqueue_in_transaction(connection, options)
                self.workflows.append((workflow, key or b""))
        return range(before, len(self.workflows))

    def more_options(self) -> dict[str, Any]:
        """Return what else a workflow is enqueued with."""
        return {}

    def receive(self, consumer: str) -> Sequence[Delivery]:
        owner = str(next(self.numbers))
        started = self.database.start_queued_partitioned_workflows(
            self.queue, self.workers[consumer], "1", owner_xid=owner, is_latest_version=True
        )
        offsets = [offset for offset, (workflow, _) in enumerate(self.workflows) if workflow in started]
        self.attempts.update(offsets)
        return [Delivery(offset, self.workflows[offset][1], self.attempts[offset], owner) for offset in offsets]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        workflow, _ = self.workflows[delivery.offset]
        return bool(self.database.update_workflow_outcome(workflow, "SUCCESS", owner_xid=delivery.token))


class TransactionMachine(KeySharedMachine):
    """Partitions as locks and queues."""

    driver_class = PartitionDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS, Promise.FENCE})


class PriorityDriver(PartitionDriver):
    """The same; each workflow has the next number as its priority."""

    def more_options(self) -> dict[str, Any]:
        return {"priority": len(self.workflows) + 1}


class PriorityMachine(TransactionMachine):
    """The same claims."""

    driver_class = PriorityDriver
