"""A Kafka consumer: the driver plays the group, which gives the partition to one member and tells it of rebalances."""

from keyshared.testing import USUAL, Claims, Delivery, Driver
from keyshared.testing.history import Released
from keyshared.testing.machine import KeySharedMachine


class Client:  # yours, which is tried: this one works on one message at a time
    has = None

    def poll(self, position, end):
        if self.has is not None or position == end:
            return []
        self.has = position
        return [position]

    def done(self, offset):
        is_open = self.has == offset
        self.has = None if is_open else self.has
        return is_open

    def on_revoke(self):  # it stops its handler
        stopped, self.has = self.has, None
        return [] if stopped is None else [stopped]


class GroupDriver(Driver):
    resumes_at_cursor = True

    def __init__(self):
        self.log, self.committed, self.members, self.owner, self.news = [], 0, {}, None, []

    def rebalance(self):
        stopped = self.members[self.owner].on_revoke() if self.owner in self.members else []
        self.news += [Released(offset=offset, consumer=self.owner) for offset in stopped]
        self.owner = max(self.members, default=None)

    def connect(self, consumer, filters=()):
        self.members[consumer] = Client()
        self.rebalance()

    def disconnect(self, consumer):  # it crashes, and is asked for nothing
        del self.members[consumer]
        self.rebalance()

    def publish(self, key):
        self.log.append(key)
        return len(self.log) - 1

    def receive(self, consumer):
        client = self.members[consumer]
        offsets = client.poll(self.committed, len(self.log)) if consumer == self.owner else []
        return [Delivery(offset, self.log[offset]) for offset in offsets]

    def ack(self, consumer, delivery):
        counted = consumer == self.owner and self.members[consumer].done(delivery.offset)
        self.committed += counted
        return counted

    def cursor(self):
        return self.committed

    def notices(self):
        return [self.news.pop(0) for _ in range(len(self.news))]


class GroupMachine(KeySharedMachine):
    driver_class = GroupDriver
    claims = Claims(promises={*USUAL, "safe-cursor"})
