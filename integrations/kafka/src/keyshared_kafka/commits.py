"""Stores positions and tokens with the group."""

from collections.abc import Iterable
from time import monotonic, sleep
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from keyshared_kafka.failures import REFUSED
from keyshared_kafka.records import fields, logger
from keyshared_kafka.stays import Stay, name_of

__all__ = ["Commits"]

_AGAIN_S: Final = 0.05
_UNKNOWN_AGAIN_S: Final = 5.0  # a broker may know a topic later: after it has started, or when somebody makes it again


class Commits:
    """Commits what runners want committed, all partitions in one request.

    Only the thread that polls may talk to the client: other threads would wait until it leaves `poll`, and for ever if
    it waits for them in a rebalance. So a runner leaves its wish here, and the next turn sends it.

    Args:
        every_s: Least time between two requests.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_at = 0.0
        self._wanted: dict[Stay, tuple[int, str]] = {}
        self._sent: dict[str, tuple[Stay, int, str]] | None = None
        self._unknown: dict[Stay, tuple[int, str]] = {}  # what the broker had no partition for
        self._unknown_at = 0.0
        self._kept: dict[str, tuple[int, str]] = {}  # by partition: what was not committed when it left

    def want(self, stay: Stay, position: int, token: str) -> None:
        """Note what the next request has to say of a partition. May be called by any thread."""
        self._wanted[stay] = position, token

    def send(self, consumer: Consumer, stays: Iterable[Stay]) -> None:
        """Send what is wanted, and ends of logs that lag, without waiting for the answer; one request at a time."""
        if self._sent is not None or monotonic() < self._due_at:
            return
        for stay in stays:
            if stay.lags() and stay not in self._wanted:
                self._wanted[stay] = stay.committed, ""
        if monotonic() >= self._unknown_at:
            self._unknown_at = monotonic() + _UNKNOWN_AGAIN_S
            self._want_unknown(list(self._unknown))
        if self._wanted:
            self._due_at = monotonic() + self._every_s
            self._sent = self._take(list(self._wanted))
            if self._sent:
                consumer.commit(offsets=_places(self._sent), asynchronous=True)
            else:
                self._sent = None

    def answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """Take the answer to `send`. What was refused for the moment is wanted again, unless something newer is."""
        sent, self._sent = self._sent or {}, None
        self._look(sent, error, places)

    def hurry(self) -> None:
        """Wait no longer between requests than for what was refused."""
        self._every_s, self._due_at, self._unknown_at = min(self._every_s, _AGAIN_S), 0.0, 0.0

    def is_open(self) -> bool:
        """Whether something is wanted or on its way, or was refused for a partition that may come back."""
        return bool(self._wanted or self._sent or self._kept)

    def store(self, consumer: Consumer, stays: Iterable[Stay], within_s: float) -> bool:
        """Send what is wanted of these partitions, and wait for the answer; return whether nothing was refused."""
        until = monotonic() + within_s
        stays = list(stays)
        self._want_unanswered(stays)
        self._want_unknown(stays)
        while sent := self._take([stay for stay in stays if stay in self._wanted]):
            error, places = None, []
            try:
                places = consumer.commit(offsets=_places(sent), asynchronous=False) or []
            except KafkaException as raised:
                error = raised.args[0]
            if self._look(sent, error, places):
                if monotonic() >= until:
                    return False
                sleep(_AGAIN_S)
        return True

    def keep(self, stays: Iterable[Stay]) -> None:
        """Remember commits of partitions that leave, if they were not made: the partitions may come back at once."""
        stays = list(stays)
        self._want_unanswered(stays)
        for stay in stays:
            if stay in self._wanted:
                self._kept[stay.name] = self._wanted.pop(stay)

    def take_back(self, stay: Stay, token: str | None) -> str | None:
        """Return the token to begin a stay with: what the group has, or what it refused from us, if that says more.

        What was done once stays done, whoever had the partition in between.
        """
        position, kept = self._kept.pop(stay.name, (-1, ""))
        if (position, len(kept)) <= (stay.committed, len(token or "")):
            return token
        stay.next_offset = position
        self.want(stay, position, kept)
        return kept or None

    def give_up(self) -> None:
        """Forget what was refused for partitions that have not come back. Later, their logs may be others."""
        if self._kept:
            for log in sorted(self._kept):
                text = "%s: the last commit was refused or not answered; what it holds comes again"
                logger.warning(text, log, extra=fields("commit_refused", log))
            self._kept.clear()

    def _want_unanswered(self, stays: Iterable[Stay]) -> None:
        """Want again what is on its way for these, unless something newer is: its answer may come too late for them."""
        sent = self._sent or {}
        for stay in stays:
            if stay.name in sent and sent[stay.name][0] is stay:
                self._wanted.setdefault(stay, sent[stay.name][1:])

    def _want_unknown(self, stays: Iterable[Stay]) -> None:
        for stay in stays:
            if stay in self._unknown:
                self._wanted.setdefault(stay, self._unknown.pop(stay))

    def _take(self, stays: Iterable[Stay]) -> dict[str, tuple[Stay, int, str]]:
        taken = {}
        for stay in stays:
            position, token = self._wanted.pop(stay)
            if not stay.is_gone:
                taken[stay.name] = stay, stay.reached(position), token
        return taken

    def _look(
        self, sent: dict[str, tuple[Stay, int, str]], error: KafkaError | None, places: list[TopicPartition]
    ) -> bool:
        """Want again what was refused for the moment; return whether anything was. At last raise what will not pass."""
        errors = {name_of(place.topic, place.partition): place.error for place in places}
        refused, failed = [], None
        for name, (stay, position, token) in sent.items():
            fault = errors.get(name) or error
            if fault is None:
                stay.committed, stay.is_unknown = max(stay.committed, position), False
                self._unknown.pop(stay, None)
            elif fault.code() == KafkaError.OFFSET_METADATA_TOO_LARGE and token:
                text = "%s: the broker takes no token of %d bytes; lower metadata_bytes"
                logger.warning(text, name, len(token), extra=fields("token_refused", name, bytes=len(token)))
                refused.append((stay, position, ""))
            elif fault.code() in REFUSED:
                refused.append((stay, position, token))
            elif fault.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                _say_once_that_it_is_unknown(stay)
                self._unknown[stay] = position, token
            elif not stay.is_gone:
                failed = failed or fault
        for stay, position, token in refused:
            if not stay.is_gone:
                self._wanted.setdefault(stay, (position, token))
        if failed is not None:
            raise KafkaException(failed)
        return bool(refused)


def _say_once_that_it_is_unknown(stay: Stay) -> None:
    if not stay.is_unknown:
        text = "%s: not committed, but tried again: its topic was deleted, or has not so many partitions any more"
        logger.warning(text, stay.name, extra=fields("commit_unknown", stay.name))
    stay.is_unknown = True


def _places(sent: dict[str, tuple[Stay, int, str]]) -> list[TopicPartition]:
    return [stay.place(position, token) for stay, position, token in sent.values()]
