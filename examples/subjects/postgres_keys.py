"""The queue in a PostgreSQL table, with three ways to keep the rows of a key in order."""

from examples.subjects.postgres_rows import SkipLockedDriver, SkipLockedMachine


class AdvisoryLockDriver(SkipLockedDriver):
    """The usual repair: lock the key as well, with an advisory lock of its hash, in the same WHERE."""

    take = """
        SELECT id, key FROM queue WHERE pg_try_advisory_xact_lock(hashtext(encode(key, 'hex')))
        ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
    """


class AdvisoryLockMachine(SkipLockedMachine):
    """The same claims."""

    driver_class = AdvisoryLockDriver


class SortedAdvisoryLockDriver(SkipLockedDriver):
    """The same repair in an order that no index gives: all keys are locked before the first row is known."""

    take = AdvisoryLockDriver.take.replace("ORDER BY id", "ORDER BY priority DESC, id")


class SortedAdvisoryLockMachine(SkipLockedMachine):
    """The same claims."""

    driver_class = SortedAdvisoryLockDriver


class HeadOfKeyDriver(SkipLockedDriver):
    """Only the oldest row of each key may be taken; it is deleted when it is done, so the next one follows."""

    take = """
        SELECT id, key FROM queue AS head
        WHERE NOT EXISTS (SELECT FROM queue AS older WHERE older.key = head.key AND older.id < head.id)
        ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
    """


class HeadOfKeyMachine(SkipLockedMachine):
    """The same claims."""

    driver_class = HeadOfKeyDriver
