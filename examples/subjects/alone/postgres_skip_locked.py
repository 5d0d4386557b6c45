"""What the kit finds in a PostgreSQL queue, with psycopg alone."""

import psycopg
from examples.subjects.servers import postgres_address

OLDEST = "SELECT id FROM orders ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
WITH_LOCK = """
SELECT id FROM orders WHERE pg_try_advisory_xact_lock(hashtext(key))
ORDER BY priority DESC, id LIMIT 1 FOR UPDATE SKIP LOCKED
"""


def _orders(*keys: str) -> None:
    with psycopg.connect(postgres_address(), autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute(
            "CREATE TABLE orders (id int GENERATED ALWAYS AS IDENTITY, key text, priority int DEFAULT 0)"
        )
        for key in keys:
            connection.execute("INSERT INTO orders (key) VALUES (%s)", [key])


def two_workers_have_a_key_at_once() -> None:
    """SKIP LOCKED skips rows that are locked, not keys."""
    _orders("customer-7", "customer-7")
    with psycopg.connect(postgres_address()) as one, psycopg.connect(postgres_address()) as other:
        assert one.execute(OLDEST).fetchone() == (1,)
        assert other.execute(OLDEST).fetchone() == (2,)


def a_lock_in_where_holds_keys_that_were_not_returned() -> None:
    """An advisory lock in WHERE, and an order that has to be sorted: the first worker locks every key."""
    _orders("customer-7", "customer-8")
    with psycopg.connect(postgres_address()) as one, psycopg.connect(postgres_address()) as other:
        assert one.execute(WITH_LOCK).fetchone() == (1,)
        assert other.execute(WITH_LOCK).fetchone() is None  # though nobody works on customer-8
