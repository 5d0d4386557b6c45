"""What the kit finds in pgmq, in SQL alone."""

import psycopg
from examples.subjects.pgmq_groups import database


def a_hole_in_a_group_is_skipped() -> None:
    """The second message of a group waits for a retry; the first and the third are read together."""
    with _queue(3) as worker:
        assert _read(worker) == [1, 2, 3]
        worker.execute("SELECT pgmq.set_vt('alone', 2, 60)")  # it has failed: once more in a minute
        worker.execute("SELECT pgmq.set_vt('alone', 1, 0)")  # what is not begun is handed back
        worker.execute("SELECT pgmq.set_vt('alone', 3, 0)")
        assert _read(worker) == [1, 3]


def a_group_is_split_over_two_workers() -> None:
    """A worker hands one message of a group back and works on the next; another worker gets the first."""
    with _queue(2) as one, psycopg.connect(database(), autocommit=True) as other:
        assert _read(one) == [1, 2]
        one.execute("SELECT pgmq.set_vt('alone', 1, 0)")
        assert _read(other) == [1]  # while 2 is at the first worker


def a_late_delete_ends_what_another_worker_has() -> None:
    """``delete`` names a message and no delivery."""
    with _queue(1) as slow, psycopg.connect(database(), autocommit=True) as quick:
        assert _read(slow, hidden_s=0) == [1]  # its time is over at once
        assert _read(quick) == [1]
        assert slow.execute("SELECT pgmq.delete('alone', 1)").fetchone() == (True,)


def _queue(messages: int) -> "psycopg.Connection[tuple[object, ...]]":
    connection = psycopg.connect(database(), autocommit=True)
    connection.execute("SELECT pgmq.create('alone')")
    connection.execute("TRUNCATE pgmq.q_alone RESTART IDENTITY")
    for _ in range(messages):
        connection.execute("""SELECT pgmq.send('alone', '{}'::jsonb, '{"x-pgmq-group": "customer-7"}'::jsonb)""")
    return connection


def _read(worker: "psycopg.Connection[tuple[object, ...]]", hidden_s: int = 60) -> list[object]:
    rows = worker.execute("SELECT msg_id FROM pgmq.read_grouped('alone', %s, 10) ORDER BY 1", [hidden_s]).fetchall()
    return [row[0] for row in rows]
