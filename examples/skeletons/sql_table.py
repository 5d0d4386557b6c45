"""A queue in a table: a worker takes the oldest message whose key nobody has."""

import sqlite3

from keyshared.testing import USUAL, Claims, Delivery, Driver
from keyshared.testing.machine import KeySharedMachine

TABLE = "CREATE TABLE jobs (id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, worker TEXT, attempt INTEGER DEFAULT 0)"
TAKE = """UPDATE jobs SET worker = ?, attempt = attempt + 1 WHERE id = (
    SELECT min(id) FROM jobs WHERE key NOT IN (SELECT key FROM jobs WHERE worker IS NOT NULL)
) RETURNING id, key, attempt"""
DONE = "DELETE FROM jobs WHERE worker = ? AND id = ? AND attempt = ?"
AGAIN = "UPDATE jobs SET worker = NULL WHERE worker = ? AND id = ? AND attempt = ?"


class TableDriver(Driver):
    def __init__(self):
        self.db = sqlite3.connect(":memory:")  # of a server: a table of its own, which close drops
        self.db.execute(TABLE)

    def connect(self, consumer, filters=()): ...

    def disconnect(self, consumer):
        self.db.execute("UPDATE jobs SET worker = NULL WHERE worker = ?", [consumer])

    def publish(self, key):
        return self.db.execute("INSERT INTO jobs (key) VALUES (?)", [key]).lastrowid

    def receive(self, consumer):
        return [Delivery(*row) for row in self.db.execute(TAKE, [consumer]).fetchall()]

    def ack(self, consumer, delivery):
        return self.db.execute(DONE, [consumer, delivery.offset, delivery.attempt]).rowcount == 1

    def nack(self, consumer, delivery):
        return self.db.execute(AGAIN, [consumer, delivery.offset, delivery.attempt]).rowcount == 1

    def close(self):
        self.db.close()


class TableMachine(KeySharedMachine):
    driver_class = TableDriver
    claims = Claims(promises=USUAL)
