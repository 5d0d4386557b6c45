"""pgmq, a queue of functions in PostgreSQL: ``read_grouped`` hands the messages of a group out in order."""

import json
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar

import psycopg
from examples.subjects.servers import postgres_address
from pgmq.install import get_embedded_install_sql

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS

HIDDEN_MS = 100
# The kit's clock stands still between steps, the server's does not: a millisecond of the kit is a minute there, so that
# what passes in between does not matter.
S_PER_MS = 60


@cache
def database() -> str:
    """Install pgmq in a database of its own, with a queue; return the address."""
    address = postgres_address()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE pgmq")
    address = address.replace("dbname=postgres", "dbname=pgmq")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(get_embedded_install_sql())
        connection.execute("SELECT pgmq.create('orders')")
    return address


class GroupedDriver(Driver):
    """Each worker reads up to ten messages, deletes what is done, and shows again what has failed."""

    read: ClassVar[str] = "read_grouped"
    batch: ClassVar[int] = 10

    def __init__(self) -> None:
        self.postgres = psycopg.connect(database(), autocommit=True)
        self.postgres.execute("TRUNCATE pgmq.q_orders RESTART IDENTITY")

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def disconnect(self, consumer: str) -> None:
        """The process dies: what it had stays hidden until its time is over."""

    def publish(self, key: bytes | None) -> int:
        headers = json.dumps({"x-pgmq-group": (key or b"").hex()})
        return int(self._ask("send", "'{}'::jsonb", f"'{headers}'::jsonb")[0][0])

    def receive(self, consumer: str) -> Sequence[Delivery]:  # pgmq does not know who asks
        rows = self.postgres.execute(
            f"SELECT msg_id, headers->>'x-pgmq-group', read_ct FROM pgmq.{self.read}('orders', %s, %s)",
            [HIDDEN_MS * S_PER_MS, self.batch],
        ).fetchall()
        return [Delivery(offset, bytes.fromhex(key), attempt) for offset, key, attempt in sorted(rows)]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # the id is all that counts
        return bool(self._ask("delete", str(delivery.offset))[0][0])

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:
        return self.postpone(consumer, delivery, 0)

    def postpone(self, consumer: str, delivery: Delivery, ms: int) -> bool | None:  # as above
        return bool(self._ask("set_vt", str(delivery.offset), str(ms * S_PER_MS)))

    def advance(self, ms: int) -> None:
        """Bring the end of every hiding nearer: pgmq compares it with the clock of the server."""
        self.postgres.execute("UPDATE pgmq.q_orders SET vt = vt - %s * interval '1 second'", [ms * S_PER_MS])

    def close(self) -> None:
        self.postgres.close()

    def _ask(self, function: str, *arguments: str) -> Sequence[Any]:
        asked = f"SELECT * FROM pgmq.{function}('orders', {', '.join(arguments)})"
        answer: Sequence[Any] = self.postgres.execute(asked).fetchall()
        return answer


class GroupedMachine(KeySharedMachine):
    """What its manual says of FIFO queues with message groups, ten messages at once."""

    driver_class = GroupedDriver
    untried = LATE_ANSWERS
    claims = Claims(
        promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS},
        per_key=None,
        ack_timeout_ms=HIDDEN_MS,
    )
    rest_ms = 10 * HIDDEN_MS  # delays that outlast the hiding are drawn more often, and show holes
    keys = (b"a", b"b")


class HeadDriver(GroupedDriver):
    """The same with ``read_grouped_head``, which returns the first message of each group only."""

    read = "read_grouped_head"


class HeadMachine(GroupedMachine):
    """The same claims, and one of a group at a time."""

    driver_class = HeadDriver


class LateAnswerMachine(KeySharedMachine):
    """Asked whether a late ``delete`` or ``set_vt`` counts while another worker has the message in hand."""

    driver_class = GroupedDriver
    claims = Claims(promises={Promise.FENCE}, per_key=None, ack_timeout_ms=HIDDEN_MS)
    rest_ms = HIDDEN_MS
