"""What the kit finds in two recipes for a pool of threads with a dictionary of locks, without the kit."""

from queue import Queue
from threading import Event
from time import sleep

from examples.subjects.lock_recipes import CleaningPool, LockPool

KEY = b"customer-7"
PATIENCE_S = 60


def a_thread_overtakes_those_that_wait_for_the_lock() -> None:
    """A thread that has done takes the next message, and the lock again before those that wait for it wake up."""
    assert any(_handled(50) != list(range(50)) for _ in range(100))


def a_new_lock_lets_a_second_handler_in() -> None:
    """A thread removes the lock that another one waits for: the next message makes a new one."""
    begun: Queue[int] = Queue()
    may_end = Event(), Event(), Event()

    def handle(offset: int, _: bytes) -> None:
        begun.put(offset)
        may_end[offset].wait(PATIENCE_S)

    pool = CleaningPool(handle)
    first = pool.threads.submit(pool.run, 0, KEY)
    pool.submit(1, KEY)
    sleep(0.1)  # the second thread waits for the lock
    may_end[0].set()
    first.result()
    pool.submit(2, KEY)
    assert {begun.get(timeout=PATIENCE_S) for _ in range(3)} == {0, 1, 2}  # 1 and 2 are both at work still
    may_end[1].set()
    may_end[2].set()
    pool.threads.shutdown()


def _handled(messages: int) -> list[int]:
    """Return the order in which a pool handles the messages of one key."""
    handled: list[int] = []

    def handle(offset: int, _: bytes) -> None:
        handled.append(offset)
        sleep(0.001)

    pool = LockPool(handle)
    for offset in range(messages):
        pool.submit(offset, KEY)
    pool.threads.shutdown()
    return handled
