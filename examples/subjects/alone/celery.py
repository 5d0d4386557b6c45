"""What the kit finds in Celery on Redis, with Celery's own messaging alone."""

from typing import Any

import kombu
import redis
from celery import Celery
from examples.subjects.servers import redis_socket


def a_rejected_task_goes_behind_the_newer_ones() -> None:
    """``Reject(requeue=True)`` puts a task at the end of its queue."""
    app = _app_with_two_tasks()
    with app.connection_for_read() as connection:
        queue = kombu.Queue("customer-7", channel=connection.channel())
        task = queue.get()
        assert task.payload[0] == [0]
        task.reject(requeue=True)  # what a worker does when the task raises Reject(requeue=True)
        assert queue.get().payload[0] == [1]
    app.close()


def two_workers_have_tasks_of_a_queue_at_once() -> None:
    """Two workers consume the same queue: each has a task of the key."""
    app = _app_with_two_tasks()
    with app.connection_for_read() as one, app.connection_for_read() as other:
        first = kombu.Queue("customer-7", channel=one.channel()).get()
        second = kombu.Queue("customer-7", channel=other.channel()).get()
        assert (first.payload[0], second.payload[0]) == ([0], [1])
    app.close()


def _app_with_two_tasks() -> Any:
    redis.Redis(unix_socket_path=redis_socket()).flushall()
    app = Celery(broker=f"redis+socket://{redis_socket()}", set_as_current=False)
    for number in range(2):
        app.send_task("handle", args=[number], queue="customer-7")
    return app
