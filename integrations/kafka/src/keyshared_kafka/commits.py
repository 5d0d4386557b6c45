"""Stores positions and tokens with the group."""

import logging
from collections.abc import Callable
from threading import Lock
from time import monotonic, sleep
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from keyshared_kafka.failures import REFUSED
from keyshared_kafka.stays import Stay

__all__ = ["Commits"]

logger = logging.getLogger("keyshared_kafka")

_AGAIN_S: Final = 0.05


class Commits:
    """Commits of all partitions, one at a time.

    Args:
        consumer: The member of the group.
        find: The stay of a name at present, or None.
    """

    def __init__(self, consumer: Consumer, find: Callable[[str], Stay | None]) -> None:
        self._consumer = consumer
        self._find = find
        self._lock = Lock()

    def commit(self, log: str, position: int, token: str) -> None:
        """Commit for a runner. Returns when that is made, or when nobody waits for it any more."""
        stay = self._find(log)
        if stay is not None:
            with self._lock:
                self._store(stay, position, token)

    def commit_end(self, stay: Stay) -> None:
        """Commit the end of a log in which all is done, unless a commit goes on: the reader must not wait."""
        if self._lock.acquire(blocking=False):
            try:
                if stay.lags():
                    self._try(stay, stay.reached(stay.committed), "")
            finally:
                self._lock.release()

    def _store(self, stay: Stay, position: int, token: str) -> None:
        refused_at: float | None = None
        while not stay.is_gone and (error := self._try(stay, stay.reached(position), token)) is not None:
            now = monotonic()
            refused_at = refused_at or now
            if stay.refused_s is not None and now - refused_at >= stay.refused_s:
                logger.warning("%s: the last commit was refused, what it holds comes again: %s", stay.name, error)
                return
            sleep(_AGAIN_S)

    def _try(self, stay: Stay, position: int, token: str) -> KafkaError | None:
        """Commit once; return what passes by itself, raise what does not."""
        try:
            answer = self._consumer.commit(offsets=[stay.place(position, token)], asynchronous=False)
            error = next((place.error for place in answer or [] if place.error is not None), None)
        except KafkaException as raised:
            error = raised.args[0]
        if error is None:
            stay.committed = position
            return None
        if error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE and token:
            logger.warning("%s: the broker takes no token of %d bytes; lower metadata_bytes", stay.name, len(token))
            return self._try(stay, position, "")
        if error.code() in REFUSED:
            return error
        raise KafkaException(error)
