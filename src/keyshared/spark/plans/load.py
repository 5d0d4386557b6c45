"""How much of what consumers can do a log asks of them: work by time, without a simulation.

All figures are bounds from below. That keys are shared unevenly, that messages come in bursts, and that some of them go
out again can only add to them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from keyshared.config import DispatcherConfig
from keyshared.errors import ArgumentError, shown
from keyshared.simulate.group import Group, Pace, SimulatedConsumer
from keyshared.simulate.service import Fixed, PerMessage, Sampled, Scaled, ServiceTime
from keyshared.spark.pages.page import duration
from keyshared.spark.plans.members import members

__all__ = [
    "Cost",
    "OfferedLoad",
    "TopicPartitionLoad",
    "Work",
    "held_of_key",
    "key_costs",
    "limit_of",
    "load_of",
    "mean_ms_of",
]

_FULL: Final = 1.0
_PLACE: Final = "topic-partition"


class Work(NamedTuple):
    """What messages ask for.

    Attributes:
        messages: How many.
        silent: How many of them do not say how long they take.
        own_ms: How long the others take, together.
    """

    messages: int
    silent: int
    own_ms: float


class Cost(NamedTuple):
    """How long a consumer takes, as a sum over messages.

    Attributes:
        each_ms: For every message.
        silent_ms: For a message that does not say how long it takes.
        factor: For a millisecond of those that do.
    """

    each_ms: float
    silent_ms: float
    factor: float

    def ms_for(self, work: Work) -> float:
        """Return how long one message after the other takes."""
        return self.each_ms * work.messages + self.silent_ms * work.silent + self.factor * work.own_ms

    def times(self, factor: float) -> "Cost":
        """Return the cost of whoever takes so many times as long."""
        return Cost(self.each_ms * factor, self.silent_ms * factor, self.factor * factor)


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicPartitionLoad:
    """What one topic-partition asks for, by what can be done while the log lasts.

    Attributes:
        topic_partition: Its name.
        mean_ms: How long a message takes on average, of the consumer that takes least.
        load: Its work, by what all consumers together can do: above 1 the queue grows until the log ends.
        hottest: The key with most work; None if no message has one.
        key_load: The work of that key, by what one consumer can do: above 1 no number of consumers helps.
        keys_over: How many keys alone have more work than one consumer can do.
    """

    topic_partition: str
    mean_ms: float
    load: float
    hottest: str | None
    key_load: float
    keys_over: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedLoad:
    """What a log asks of the consumers of a plan.

    Attributes:
        span_ms: From the first message of the log to the last.
        ack_timeout_ms: How long a delivery stays open in the plan; None for ever.
        topic_partitions: Each one's load, the highest first; none if all messages come at one instant.
        untold: How many messages do not say how long they take where the plan leaves that to them; they count as 0 ms.
    """

    span_ms: int
    ack_timeout_ms: int | None
    topic_partitions: tuple[TopicPartitionLoad, ...]
    untold: int = 0

    @property
    def load(self) -> float:
        """The load of the topic-partition that asks for most; 0 if there is none."""
        return max((each.load for each in self.topic_partitions), default=0.0)

    @property
    def key_load(self) -> float:
        """The load of the key that asks for most of its consumer; 0 if there is none."""
        return max((each.key_load for each in self.topic_partitions), default=0.0)

    @property
    def keys_over(self) -> int:
        """How many keys alone have more work than one consumer can do."""
        return sum(each.keys_over for each in self.topic_partitions)

    def warnings(self) -> tuple[str, ...]:
        """Return why waits will be endless, and why loads may be higher than they are here.

        Returns:
            A sentence for each reason; none if nothing is known to be too much.
        """
        keys = sorted((each for each in self.topic_partitions if each.keys_over), key=lambda each: -each.key_load)
        full = sorted((each for each in self.topic_partitions if each.load > _FULL), key=lambda each: -each.load)
        timeout = math.inf if self.ack_timeout_ms is None else self.ack_timeout_ms
        slow = sorted(
            (each for each in self.topic_partitions if each.mean_ms > timeout), key=lambda each: -each.mean_ms
        )
        told = []
        if keys:
            told.append(self._about_key(keys[0]) + _also(sum(each.keys_over for each in keys) - 1, "key"))
        if full:
            told.append(self._about_group(full[0]) + _also(len(full) - 1, _PLACE))
        if slow:
            told.append(self._about_timeout(slow[0]) + _also(len(slow) - 1, _PLACE))
        if self.untold:
            told.append(self._about_untold())
        return tuple(told)

    def _about_key(self, worst: TopicPartitionLoad) -> str:
        work, span = duration(worst.key_load * self.span_ms), duration(self.span_ms)
        return (
            f"key {shown(worst.hottest)} of {_PLACE} {shown(worst.topic_partition)} alone needs {worst.key_load:,.1f} "
            f"consumers: {work} of work, one message after the other, in the {span} of the log. More consumers do not "
            "help, a finer key or faster work does"
        )

    def _about_group(self, worst: TopicPartitionLoad) -> str:
        who, span = f"{_PLACE} {shown(worst.topic_partition)}", duration(self.span_ms)
        if math.isinf(worst.load):
            return f"{who} has messages, and no consumer is ever there to work"
        return (
            f"{who} has {worst.load:,.1f} times the work that its consumers can do in the {span} of the log: what is "
            f"left at its end takes {duration((worst.load - 1) * self.span_ms)} more, and {worst.load:,.1f} times as "
            "many consumers would just do"
        )

    def _about_untold(self) -> str:
        return (
            f"messages that do not say how long they take: {self.untold:,}. The plan has no default_ms for them, so "
            "they count as 0 ms here, and a replay refuses them"
        )

    def _about_timeout(self, worst: TopicPartitionLoad) -> str:
        mean, timeout = duration(worst.mean_ms), duration(self.ack_timeout_ms or 0)
        return (
            f"a message of {_PLACE} {shown(worst.topic_partition)} takes {mean} on average, and config.ack_timeout_ms "
            f"is {timeout}: it goes out again before it is answered, until it is given up"
        )


def _also(others: int, what: str) -> str:
    return f" (and {others:,} more {what}{'s' if others > 1 else ''})" if others else ""


def key_costs(plan: Group) -> tuple[Cost, ...]:
    """Return what the messages of one key cost each consumer that a plan ever has, alone with the key.

    Args:
        plan: The plan.

    Raises:
        ArgumentError: A service time is none of `keyshared.simulate`, or messages do not arrive at a time of their own.
    """
    if plan.pace is not Pace.ARRIVALS:
        raise ArgumentError("plan.pace", plan.pace, "be Pace.ARRIVALS: without times there is no load")
    costs = dict.fromkeys(
        _cost(each.service).times(1 / _at_once(each, plan)) for moment in members(plan) for each in moment.here.values()
    )
    return tuple(costs)


def asks_each_message(plan: Group) -> bool:
    """Return whether a consumer that a plan ever has takes as long as each message says, and knows no time besides.

    Args:
        plan: The plan.
    """
    return any(_asks(each.service) for moment in members(plan) for each in moment.here.values())


def _asks(service: ServiceTime) -> bool:
    match service:
        case PerMessage(default_ms):
            return default_ms is None
        case Scaled(model, _):
            return _asks(model)
        case _:
            return False


def load_of(plan: Group, work: Work, first_ms: int, last_ms: int) -> float:
    """Return the work of a topic-partition, by what the consumers of a plan can do while the log lasts.

    Args:
        plan: The plan.
        work: What the topic-partition asks for.
        first_ms: When the log begins.
        last_ms: When it ends; later.

    Example:
        >>> from keyshared.simulate.group import Crash
        >>> pair = [SimulatedConsumer(name, Fixed(30)) for name in ("a", "b")]
        >>> plan = Group(consumers=pair, changes=[Crash(500, "a")])
        >>> load_of(plan, Work(messages=100, silent=100, own_ms=0), 0, 1_000)  # 3 s of work, 1.5 s of consumers
        2.0
    """
    if not work.messages:
        return 0.0
    moments = list(members(plan))
    ends = [*(moment.at_ms for moment in moments[1:]), last_ms]
    done = 0.0
    for moment, end_ms in zip(moments, ends, strict=True):
        lasts = min(end_ms, last_ms) - max(moment.at_ms, first_ms)
        if lasts > 0:
            done += lasts * _rate(moment.here.values(), plan.config, work)
    return work.messages / done if done else math.inf


def mean_ms_of(plan: Group, work: Work) -> float:
    """Return how long a message takes on average, of the consumer that takes least; 0 without consumers."""
    if not work.messages:
        return 0.0
    services = {each.service for moment in members(plan) for each in moment.here.values()}
    return min((_cost(each).ms_for(work) / work.messages for each in services), default=0.0)


def _rate(here: Iterable[SimulatedConsumer], config: DispatcherConfig, work: Work) -> float:
    """Return how many messages all consumers can do in a millisecond: the fastest first, where a limit is of all."""
    room = math.inf if config.max_in_flight is None else config.max_in_flight
    if config.ordering_required:
        room = min(room, max(config.max_in_flight_per_key, config.batch_per_key))
    rate = 0.0
    for mean_ms, hands in sorted(
        (_cost(each.service).ms_for(work) / work.messages, _slots(each, config)) for each in here
    ):
        taken = min(hands, room)
        room -= taken
        if taken:
            rate += taken / mean_ms if mean_ms else math.inf
    return rate


def limit_of(consumer: SimulatedConsumer, config: DispatcherConfig) -> int:
    """Return how many deliveries of a topic-partition a consumer may have open, with the limit that it has by then."""
    return config.max_in_flight_per_consumer if consumer.limit is None else consumer.limit


def held_of_key(plan: Group, key: bytes) -> dict[str, float]:
    """Return how many messages of a key each consumer has in its hands, on average, while more of them wait.

    A plain consumer gets the next batch when all of this one has ended: of ten messages, one after the other, it has
    five and a half.

    Args:
        plan: The plan.
        key: The key; `Rules(limit_of=...)` of the plan is asked about it.

    Returns:
        The number, at least 1, of each consumer that the plan ever has; the most if its limit changes.

    Example:
        >>> pair = [SimulatedConsumer("a"), SimulatedConsumer("b", limit=4)]
        >>> held_of_key(Group(consumers=pair, config=DispatcherConfig(batch_per_key=10)), b"k")
        {'a': 5.5, 'b': 2.5}
    """
    config = plan.config
    ask = plan.rules and plan.rules.limit_of
    of_key = (
        min(ask(key), config.max_loaded_per_key) if ask else max(config.max_in_flight_per_key, config.batch_per_key)
    )
    found: dict[str, float] = {}
    for moment in members(plan):
        for name, consumer in moment.here.items():
            found[name] = max(found.get(name, 1), _held(consumer, config, of_key))
    return found


def _held(consumer: SimulatedConsumer, config: DispatcherConfig, of_key: int) -> float:
    limits = (limit_of(consumer, config), of_key, math.inf if config.max_in_flight is None else config.max_in_flight)
    if config.batch_per_key == 1:
        return min(limits)
    batch = min(*limits, config.batch_per_key)
    turns = 1 if consumer.takes_batches else math.ceil(batch / consumer.concurrency)
    return batch - consumer.concurrency * (turns - 1) / 2


def _slots(consumer: SimulatedConsumer, config: DispatcherConfig) -> int:
    """Return how many messages of a topic-partition a consumer works on at once, at most."""
    return min(config.batch_per_key if consumer.takes_batches else consumer.concurrency, limit_of(consumer, config))


def _at_once(consumer: SimulatedConsumer, plan: Group) -> int:
    """Return how many messages of one key a consumer works on at once, at most: what a rule says of it is not known."""
    slots = _slots(consumer, plan.config)
    if plan.rules is None or plan.rules.limit_of is None:
        slots = min(slots, max(plan.config.max_in_flight_per_key, plan.config.batch_per_key))
    return max(1, slots)


def _cost(service: ServiceTime) -> Cost:
    match service:
        case Fixed(ms):
            return Cost(ms, 0.0, 0.0)
        case PerMessage(default_ms):
            return Cost(0.0, default_ms or 0.0, 1.0)
        case Sampled(samples):
            return Cost(sum(samples) / len(samples), 0.0, 0.0)
        case Scaled(model, factor):
            return _cost(model).times(float(factor))
        case _:
            raise ArgumentError(
                "service", service, "be Fixed, PerMessage, Sampled or Scaled: of others no mean is known"
            )
