"""A pool of threads: the key picks the thread. For the kit the pool is one consumer, which never leaves."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from zlib import crc32

from keyshared.testing import USUAL, Claims, Delivery, Driver, wait_for_threads
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS, Disconnect, Flap


class PoolDriver(Driver):
    def __init__(self):
        self.threads = [ThreadPoolExecutor(1) for _ in range(3)]  # what is tried
        self.begun, self.may_end = [], []

    def connect(self, consumer, filters=()): ...

    def publish(self, key):
        self.may_end.append(Event())
        self.threads[crc32(key) % len(self.threads)].submit(self.handle, len(self.may_end) - 1, key)
        return len(self.may_end) - 1

    def handle(self, offset, key):  # the handler waits for the kit's ack
        self.begun.append(Delivery(offset, key))
        self.may_end[offset].wait()

    def receive(self, consumer):
        wait_for_threads()
        begun, self.begun = self.begun, []
        return begun

    def ack(self, consumer, delivery):
        self.may_end[delivery.offset].set()

    def close(self):
        for event in self.may_end:
            event.set()
        for thread in self.threads:
            thread.shutdown()


class PoolMachine(KeySharedMachine):
    driver_class = PoolDriver
    claims = Claims(promises=USUAL)
    max_consumers = 1
    untried = frozenset({Disconnect, Flap, *LATE_ANSWERS})
