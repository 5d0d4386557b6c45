"""What the kit finds in Redis Streams, with redis-py alone."""

import redis
from examples.subjects.servers import redis_socket


def two_workers_have_a_key_at_once() -> None:
    """A group hands entries out one by one, whatever they say of a key."""
    client = redis.Redis(unix_socket_path=redis_socket())
    client.flushall()
    client.xgroup_create("orders", "workers", id="0", mkstream=True)
    first, second = (client.xadd("orders", {"key": "customer-7"}) for _ in range(2))
    assert client.xreadgroup("workers", "c1", {"orders": ">"}, count=1)[0][1][0][0] == first
    assert client.xreadgroup("workers", "c2", {"orders": ">"}, count=1)[0][1][0][0] == second


def a_late_xack_ends_what_another_worker_has() -> None:
    """XACK names an entry and no delivery: whoever had it once can end it."""
    client = redis.Redis(unix_socket_path=redis_socket())
    client.flushall()
    client.xgroup_create("orders", "workers", id="0", mkstream=True)
    entry = client.xadd("orders", {"key": "customer-7"})
    client.xreadgroup("workers", "slow", {"orders": ">"}, count=1)
    client.xautoclaim("orders", "workers", "quick", 0, start_id="0-0")
    assert [each["consumer"] for each in client.xpending_range("orders", "workers", "-", "+", 9)] == [b"quick"]
    assert client.xack("orders", "workers", entry) == 1  # this is the slow one; nobody asks
    assert client.xpending_range("orders", "workers", "-", "+", 9) == []


def a_new_reader_overtakes_what_the_old_one_had() -> None:
    """One stream for each lane and one reader for each stream: the reader dies, and the next one goes on too far."""
    client = redis.Redis(unix_socket_path=redis_socket())
    client.flushall()
    client.xgroup_create("lane-0", "workers", id="0", mkstream=True)
    older, newer = (client.xadd("lane-0", {"key": "customer-7"}) for _ in range(2))
    assert client.xreadgroup("workers", "old", {"lane-0": ">"}, count=1)[0][1][0][0] == older
    # The old reader dies. The new one claims what is idle for long enough, which is nothing yet, and reads on.
    assert client.xautoclaim("lane-0", "workers", "new", 60_000, start_id="0-0")[1] == []
    assert client.xreadgroup("workers", "new", {"lane-0": ">"}, count=1)[0][1][0][0] == newer
