"""A Kafka consumer: the driver plays the group, which gives the partition to one member and tells it of rebalances."""

from keyshared.testing import USUAL, Claims, Delivery, Driver
from keyshared.testing.history import Released
from keyshared.testing.machine import KeySharedMachine


class Client:  # yours, which is tried: this one works on one message at a time
    has = None

    def on_revoke(self):  # it stops its handler
        stopped, self.has = self.has, None
        return stopped


class GroupDriver(Driver):
    resumes_at_cursor = True

    def __init__(self):
        self.log, self.committed, self.members, self.owner, self.news = [], 0, {}, None, []

    def rebalance(self):
        stopped = self.members[self.owner].on_revoke() if self.owner in self.members else None
        self.news += [] if stopped is None else [Released(offset=stopped, consumer=self.owner)]
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
        if consumer != self.owner or client.has is not None or self.committed == len(self.log):
            return []
        client.has = self.committed
        return [Delivery(client.has, self.log[client.has])]

    def ack(self, consumer, delivery):
        counted = consumer == self.owner and self.members[consumer].has == delivery.offset
        if counted:
            self.members[consumer].has, self.committed = None, delivery.offset + 1
        return counted

    def cursor(self):
        return self.committed

    def notices(self):
        news, self.news = self.news, []
        return news


class GroupMachine(KeySharedMachine):
    driver_class = GroupDriver
    claims = Claims(promises={*USUAL, "safe-cursor"})
