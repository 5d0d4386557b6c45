"""What the kit finds in dramatiq's mutex on Redis, with dramatiq alone."""

from time import sleep
from typing import Any

import redis
from dramatiq.rate_limits import ConcurrentRateLimiter
from dramatiq.rate_limits.backends import RedisBackend
from examples.subjects.servers import redis_socket


def a_task_that_ends_late_opens_the_mutex_of_the_next_one() -> None:
    """The mutex is a counter without an owner: who ends after its time lowers the counter of the next task."""
    client = redis.Redis(unix_socket_path=redis_socket())
    client.flushall()
    backend: Any = RedisBackend(client=client)

    def mutex(ttl: int) -> Any:
        return ConcurrentRateLimiter(backend, "customer-7", limit=1, ttl=ttl).acquire(raise_on_failure=False)

    with mutex(200) as first:
        assert first
        sleep(0.3)  # the first task takes longer than its ttl
        second = mutex(3_600_000)
        assert second.__enter__()  # has it for an hour now
        assert not mutex(3_600_000).__enter__()  # as it should be
    assert mutex(3_600_000).__enter__()  # the third task runs, and the second one is at work still
    client.close()
