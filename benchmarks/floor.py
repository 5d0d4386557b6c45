"""The floor: the per-key FIFO that a competent engineer writes by hand in an afternoon, and nothing more.

It keeps the order of each key, one message of it in flight, a limit per consumer, and a cursor that gaps cannot stall.
It has no timers, attempts, retries, spill, filters, changes of membership, snapshots or checks of its arguments.
The library's cost beyond it is the price of those.
"""

from collections import deque
from zlib import crc32

Delivery = tuple[int, bytes, int]
"""Offset, key and the number of the consumer."""


class Floor:
    def __init__(self, consumers: int, limit: int) -> None:
        self.cursor: int | None = None
        self.consumers = consumers
        self.free = [limit] * consumers
        self.ready: list[deque[tuple[int, bytes]]] = [deque() for _ in range(consumers)]
        self.lanes: dict[bytes, deque[int] | None] = {}  # offsets behind the one whose turn it is; None: nothing waits
        self.in_flight: dict[int, Delivery] = {}
        self.order: deque[int] = deque()
        self.done: set[int] = set()

    def offer(self, offset: int, key: bytes) -> list[Delivery]:
        self.order.append(offset)
        if key not in self.lanes:
            self.lanes[key] = None
            return self.send(offset, key, crc32(key) % self.consumers)
        lane = self.lanes[key]
        if lane is None:
            self.lanes[key] = deque((offset,))
        else:
            lane.append(offset)
        return []

    def ack(self, offset: int) -> list[Delivery]:
        _, key, consumer = self.in_flight.pop(offset)
        self.free[consumer] += 1
        self.settle(offset)
        deliveries = []
        lane = self.lanes[key]
        if lane:
            deliveries = self.send(lane.popleft(), key, consumer)
        else:
            del self.lanes[key]
        ready = self.ready[consumer]
        while ready and self.free[consumer]:
            deliveries.append(self.deliver(*ready.popleft(), consumer))
        return deliveries

    def send(self, offset: int, key: bytes, consumer: int) -> list[Delivery]:
        if self.free[consumer] and not self.ready[consumer]:
            return [self.deliver(offset, key, consumer)]
        self.ready[consumer].append((offset, key))
        return []

    def deliver(self, offset: int, key: bytes, consumer: int) -> Delivery:
        self.free[consumer] -= 1
        delivery = self.in_flight[offset] = (offset, key, consumer)
        return delivery

    def settle(self, offset: int) -> None:
        self.done.add(offset)
        while self.order and self.order[0] in self.done:
            self.cursor = self.order.popleft()
            self.done.remove(self.cursor)
