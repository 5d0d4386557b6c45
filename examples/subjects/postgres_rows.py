"""A queue in a PostgreSQL table, read with ``FOR UPDATE SKIP LOCKED``: the oldest row that nobody has locked."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import psycopg
from examples.subjects.servers import postgres_address

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine

SCHEMA = """
CREATE TABLE IF NOT EXISTS queue (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, key bytea NOT NULL, priority smallint NOT NULL DEFAULT 0
);
TRUNCATE queue RESTART IDENTITY;
"""


class SkipLockedDriver(Driver):
    """A thread keeps its transaction open while it works: ack is DELETE and COMMIT, and a crash gives the lock back."""

    threads: ClassVar[int] = 2  # in each worker, with a connection each
    take: ClassVar[str] = "SELECT id, key FROM queue ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"

    def __init__(self) -> None:
        self.publisher = psycopg.connect(postgres_address(), autocommit=True)
        self.publisher.execute(SCHEMA)
        self.workers: dict[str, list[psycopg.Connection[tuple[int, bytes]]]] = {}
        self.in_hand: dict[str, dict[int, Delivery]] = {}  # by the connection that has it
        # The table does not count; without numbers an old answer would look like a new one.
        self.attempts: Counter[int] = Counter()

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None:  # takes no filters
        self.workers[consumer] = [psycopg.connect(postgres_address()) for _ in range(self.threads)]
        self.in_hand[consumer] = {}

    def disconnect(self, consumer: str) -> None:
        """Cancel nothing, commit nothing: the server rolls back when it sees that the connections are gone."""
        workers = self.workers.pop(consumer)
        del self.in_hand[consumer]
        backends = [worker.info.backend_pid for worker in workers]
        for worker in workers:
            worker.close()
        alive = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)"
        while self.publisher.execute(alive, [backends]).fetchone() != (0,):
            pass  # it sees that within a millisecond

    def publish(self, key: bytes | None) -> int:
        row = self.publisher.execute("INSERT INTO queue (key) VALUES (%s) RETURNING id", [key or b""]).fetchone()
        assert row is not None
        return int(row[0])

    def receive(self, consumer: str) -> Sequence[Delivery]:
        in_hand, new = self.in_hand[consumer], []
        for thread, worker in enumerate(self.workers[consumer]):
            if thread in in_hand:
                continue
            row = worker.execute(self.take).fetchone()
            if row is None:
                worker.rollback()
                continue
            offset, key = row
            self.attempts[offset] += 1
            in_hand[thread] = Delivery(offset, key, self.attempts[offset], thread)
            new.append(in_hand[thread])
        return new

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:
        worker = self._take_back(consumer, delivery)
        if worker is None:
            return False  # the transaction that had it is over
        worker.execute("DELETE FROM queue WHERE id = %s", [delivery.offset])
        worker.commit()
        return True

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        worker = self._take_back(consumer, delivery)
        if worker is None:
            return False
        worker.rollback()
        return True

    def close(self) -> None:
        for workers in self.workers.values():
            for worker in workers:
                worker.close()
        self.publisher.close()

    def _take_back(self, consumer: str, delivery: Delivery) -> psycopg.Connection[tuple[int, bytes]] | None:
        """Empty the hand that has this very delivery, and return its connection."""
        in_hand = self.in_hand.get(consumer, {})
        thread = next((thread for thread, each in in_hand.items() if each is delivery), None)
        if thread is None:
            return None
        del in_hand[thread]
        return self.workers[consumer][thread]


class SkipLockedMachine(KeySharedMachine):
    """What the usual queue table promises if one reads it as Key-Shared."""

    driver_class = SkipLockedDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS, Promise.PROGRESS}, per_consumer=2)
