"""What the kit finds in huey on Redis, with huey alone."""

from time import sleep
from typing import Any

from examples.subjects.servers import redis_socket
from huey import RedisExpireHuey


def a_task_that_ends_late_opens_the_lock_of_the_next_one() -> None:
    """A lock has no owner: a task that ends after its lock has expired removes the lock of the next task."""
    huey: Any = RedisExpireHuey("alone", url=f"unix://{redis_socket()}")
    with huey.lock_task("customer-7", ttl=1):  # the first task
        sleep(1.1)  # it takes longer than its lock lasts
        assert huey.lock_task("customer-7", ttl=3_600).acquire()  # the second one has the lock now, for an hour
    assert not huey.is_locked("customer-7")
    assert huey.lock_task("customer-7", ttl=3_600).acquire()  # the third one begins, and the second one is still at it
    huey.storage.conn.close()
