"""Where the logs of partitions end: how much is unread."""

from collections.abc import Iterable
from contextlib import suppress
from time import monotonic
from typing import Final

from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from keyshared.run import StoppedError, UnknownLogError
from keyshared_kafka.adapters import Adapter
from keyshared_kafka.assignments import Assignment

__all__ = ["LogEnds"]

_EVERY_S: Final = 1.0
_PAUSED_EVERY_S: Final = 5.0
_REQUEST_S: Final = 1.0


class LogEnds:
    """Keeps the high watermarks up to date.

    The client knows them from its last fetch. A paused partition is not fetched, so the broker is asked for its end, in
    one request for all of them: there the unread messages are most.
    """

    def __init__(self) -> None:
        self._due_at = 0.0
        self._paused_due_at = 0.0

    def update(self, consumer: Consumer, assignments: Iterable[Assignment], adapter: Adapter) -> None:
        """Update the ends if it is time, also for the metric of the runner."""
        now = monotonic()
        if now < self._due_at:
            return
        self._due_at = now + _EVERY_S
        paused: dict[tuple[str, int], Assignment] = {}
        assignments = list(assignments)
        for each in assignments:
            if each.is_paused:
                paused[each.topic, each.partition] = each
            else:
                high = consumer.get_watermark_offsets(each.place(), cached=True)[1]
                each.high_watermark = high if high >= 0 else each.high_watermark
        if paused and now >= self._paused_due_at:
            self._paused_due_at = now + _PAUSED_EVERY_S
            for place in _ends_of(consumer, [TopicPartition(*each, OFFSET_END) for each in paused]):
                paused[place.topic, place.partition].high_watermark = place.offset
        for each in assignments:
            end = each.log_end()
            if end is not None:
                with suppress(StoppedError, UnknownLogError):  # the runner stops; the next poll raises why
                    adapter.runner.set_log_end(each.name, end)


def _ends_of(consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
    """Return the ends that the broker gives; none while it is away."""
    try:
        answers: list[TopicPartition] = consumer.offsets_for_times(places, timeout=_REQUEST_S)
    except KafkaException:
        return []
    return [place for place in answers if place.error is None and place.offset >= 0]
