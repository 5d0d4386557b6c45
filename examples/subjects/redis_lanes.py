"""Redis Streams in lanes: a stream for each hash of the key, and one reader for each stream."""

from collections.abc import Iterator, Sequence

from examples.subjects.redis_streams import CLAIM_AFTER_MS, IDLE_MS_PER_MS, GroupDriver, GroupMachine

from keyshared.testing import Delivery


class LaneDriver(GroupDriver):
    """``crc32(key) % 4`` streams, dealt out to the consumers in turn: one lane, one reader, one entry in hand."""

    lanes = 4

    def lanes_of(self, consumer: str) -> Sequence[int]:
        place = self.members.index(consumer)
        return range(place, self.lanes, len(self.members))


class LaneMachine(GroupMachine):
    """The promises of its author."""

    driver_class = LaneDriver


class PatientLaneDriver(LaneDriver):
    """The lanes put right: a new reader waits until nothing of the lane is in other hands, idle entries first."""

    def read(self, stream: str, consumer: str) -> Iterator[Delivery]:
        idle = CLAIM_AFTER_MS * IDLE_MS_PER_MS
        others = [entry for entry in self.pending(stream) if entry["consumer"] != consumer.encode()]
        if all(entry["time_since_delivered"] >= idle for entry in others):
            yield from super().read(stream, consumer)


class PatientLaneMachine(GroupMachine):
    """The same claims."""

    driver_class = PatientLaneDriver
