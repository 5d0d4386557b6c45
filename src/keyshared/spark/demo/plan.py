"""The consumer group of the demo: as many consumers as asked for, loaded to 70 %, one of which dies midway.

Plain Python; needs no Spark.
"""

from dataclasses import dataclass
from typing import Final

from keyshared._checks import check_int, configuration
from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.ring import HashRing
from keyshared.simulate.group import Crash, Group, Join, SimulatedConsumer
from keyshared.simulate.service import Answer, SampledAnswers

__all__ = ["CONCURRENCY", "LOAD", "Story", "Workload"]

LOAD: Final = 0.7
"""How busy the group is with the busiest topic-partition, on average over the time of the log."""

CONCURRENCY: Final = 4
"""Messages of one topic-partition that a consumer works on at once."""

_FEWEST: Final = 2  # one of them crashes
# With the default of 100 a share is off by 10 % easily, and by 30 % now and then; a group as busy as this one then has
# a consumer that never catches up.
_VNODES: Final = 400
_ANSWERS: Final = (Answer.ACK,) * 989 + (Answer.NACK,) * 10 + (Answer.SILENT,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What the demo has to know of a log.

    Attributes:
        first_ms: When the first message arrives.
        span_ms: Time from then to the last one.
        busiest: Work in the topic-partition that has most, in any unit.
        mean: Work of a message on average, in that unit.
        largest: The greatest work of a message.
    """

    first_ms: int
    span_ms: int
    busiest: float
    mean: float
    largest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happens to the group.

    Attributes:
        consumers: How many there are in the beginning.
        workload: The log.

    Raises:
        ConfigError: There are fewer than two consumers.

    Example:
        >>> workload = Workload(first_ms=0, span_ms=3_000, busiest=100.0, mean=1.0, largest=5.0)
        >>> story = Story(consumers=8, workload=workload)
        >>> story.crashed, story.crash_ms, story.joined, story.join_ms
        ('c4', 1000, 'c9', 2000)
        >>> story.ms_for_work  # 8 consumers, 4 messages each, 70 % of 3 s, 100 units of work
        672.0
    """

    consumers: int
    workload: Workload

    @configuration()
    def __post_init__(self) -> None:
        check_int("consumers", self.consumers, _FEWEST, ", because one of them crashes")

    @property
    def ms_for_work(self) -> float:
        """Service time of one unit of work."""
        slots = self.consumers * CONCURRENCY
        return LOAD * slots * max(1, self.workload.span_ms) / (self.workload.busiest or 1.0)

    @property
    def crashed(self) -> str:
        """Who crashes."""
        return f"c{self.consumers // 2}"

    @property
    def crash_ms(self) -> int:
        """When: after a third of the time."""
        return self.workload.span_ms // 3

    @property
    def joined(self) -> str:
        """Who joins."""
        return f"c{self.consumers + 1}"

    @property
    def join_ms(self) -> int:
        """When: after two thirds of the time."""
        return self.workload.span_ms * 2 // 3

    @property
    def names(self) -> tuple[str, ...]:
        """Everybody, in the order of joining."""
        return tuple(f"c{number}" for number in range(1, self.consumers + 2))

    def plan(self) -> Group:
        """The group as a plan; times count from the first message of the log.

        A consumer holds no more messages than it works on, so that waiting shows as waiting. The dispatcher's times
        are those of the work: whoever is gone for three services is evicted, what has no answer after five of the
        longest has timed out, and a message that failed comes again after one service, or up to eight if it fails on.
        """
        service = max(1, round(self.workload.mean * self.ms_for_work))
        longest = max(1, round(self.workload.largest * self.ms_for_work))
        return Group(
            consumers=[_consumer(name) for name in self.names[:-1]],
            placement=HashRing(vnodes=_VNODES),
            changes=[Crash(self.crash_ms, self.crashed), Join(self.join_ms, _consumer(self.joined))],
            config=DispatcherConfig(
                ack_timeout_ms=5 * longest,
                inactive_grace_ms=3 * service,
                retry=RetryPolicy(base_delay_ms=service, max_delay_ms=8 * service),
            ),
            answers=[SampledAnswers(_ANSWERS)],
            start_ms=0,
        )


def _consumer(name: str) -> SimulatedConsumer:
    return SimulatedConsumer(name, limit=CONCURRENCY, concurrency=CONCURRENCY)
