"""The program of "Results exactly once" on PostgreSQL, changed as its page says."""

import re
from pathlib import Path

import pytest

psycopg = pytest.importorskip("psycopg")
servers = pytest.importorskip("examples.subjects.servers")

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "howto-exactly-once.md"
CHANGES = {
    "import sqlite3\n": "",
    "database.executescript(SCHEMA)": "database.execute(SCHEMA)",
    "with self.database:": "with self.database.transaction():",
    'sqlite3.connect(":memory:", check_same_thread=False)': "connect()",
    "VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING": "VALUES (%s, %s, %s, %s) ON CONFLICT (log, place) DO NOTHING",
    "VALUES (?, ?) ON CONFLICT DO UPDATE SET amount = amount + excluded.amount": (
        "VALUES (%s, %s) ON CONFLICT (customer) DO UPDATE SET amount = balances.amount + excluded.amount"
    ),
    '"REPLACE INTO positions VALUES (?, ?, ?)"': (
        '"INSERT INTO positions VALUES (%s, %s, %s) '
        'ON CONFLICT (log) DO UPDATE SET position = excluded.position, token = excluded.token"'
    ),
    "WHERE log = ?": "WHERE log = %s",
}


def test_results_are_counted_once_on_postgres() -> None:
    found = re.search(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    program = found[1]
    for before, after in CHANGES.items():
        assert program.count(before) == 1, before
        program = program.replace(before, after)
    with psycopg.connect(servers.postgres_address(), autocommit=True) as database:
        exec(compile(program, str(PAGE), "exec"), {"connect": lambda: database})  # noqa: S102  # our own page
        assert database.execute("SELECT count(*) FROM charges").fetchone() == (500,)
