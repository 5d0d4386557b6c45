"""Commits positions and tokens to the group."""

from collections.abc import Iterable
from concurrent.futures import Future
from threading import Lock
from time import monotonic, sleep
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from keyshared.run.commit_token import read_token
from keyshared_kafka.assignments import Assignment, name_of
from keyshared_kafka.failures import REFUSED
from keyshared_kafka.records import fields, logger

__all__ = ["Commits"]

_AGAIN_S: Final = 0.05
_UNKNOWN_AGAIN_S: Final = 5.0  # a broker may know a topic later: after it has started, or when it is created again
_READ_BACK_S: Final = 5.0
_READ_BACK_TRIES: Final = 3

Requests = dict[str, tuple[Assignment, int, str]]


class Commits:
    """Commits the positions of runners, all partitions in one request.

    Only the thread that polls may call the client: other threads would wait until it leaves `poll`, and for ever if it
    waits for them in a rebalance. So runners put their commits here, the polling thread sends them, and a future tells
    the runner when the broker has confirmed its commit.

    Args:
        every_s: Least time between two requests.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._due_at = 0.0
        self._lock = Lock()  # of the next two, which runners change
        self._wanted: dict[Assignment, tuple[int, str]] = {}
        self._waiting: dict[Assignment, list[Future[None]]] = {}
        self._sent: Requests | None = None
        self._unknown: dict[Assignment, tuple[int, str]] = {}  # commits of topics that the broker does not know
        self._unknown_at = 0.0
        self._refused: dict[str, tuple[int, str]] = {}  # by partition: last commits that were not made
        self._to_read_back: tuple[Assignment, str] | None = None
        self._read_backs = _READ_BACK_TRIES

    def put(self, assignment: Assignment, position: int, token: str) -> Future[None]:
        """Replace what the next request commits for a partition; any thread may call this.

        Returns:
            A future that is done when the broker has confirmed this commit or a later one. In a rebalance it is done at
            once: the runner has to finish first, and `commit_now` follows.
        """
        future: Future[None] = Future()
        with self._lock:
            self._wanted[assignment] = position, token
            if not assignment.is_draining:
                self._waiting.setdefault(assignment, []).append(future)
                return future
        future.set_result(None)
        return future

    def release(self, assignments: Iterable[Assignment]) -> None:
        """Let runners wait no longer for commits of these partitions: they are drained, or gone."""
        for each in assignments:
            with self._lock:
                each.is_draining = True
                waiting = self._waiting.pop(each, [])
            _resolve(waiting)

    def send(self, consumer: Consumer, assignments: Iterable[Assignment]) -> None:
        """Send what was put, and ends of logs that lag, without waiting for the response; one request at a time."""
        if self._sent is not None or monotonic() < self._due_at:
            return
        self._read_back(consumer)
        for assignment in assignments:
            if assignment.lags() and assignment not in self._wanted:
                self._wanted[assignment] = assignment.committed, assignment.token
        if monotonic() >= self._unknown_at:
            self._unknown_at = monotonic() + _UNKNOWN_AGAIN_S
            self._put_unknown(list(self._unknown))
        if self._wanted:
            self._due_at = monotonic() + self._every_s
            self._sent = self._take(list(self._wanted))
            if self._sent:
                consumer.commit(offsets=_places(self._sent), asynchronous=True)
            else:
                self._sent = None

    def answered(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        """Evaluate the response to `send`. A commit that was refused for the moment is put again."""
        sent, self._sent = self._sent or {}, None
        self._evaluate(sent, error, places)

    def hurry(self) -> None:
        """Wait between requests no longer than after a refusal."""
        self._every_s, self._due_at, self._unknown_at = min(self._every_s, _AGAIN_S), 0.0, 0.0

    def is_pending(self) -> bool:
        """Whether a commit waits to be sent or answered, or was refused for a partition that may come back."""
        return bool(self._wanted or self._sent or self._refused)

    def commit_now(self, consumer: Consumer, assignments: Iterable[Assignment], within_s: float) -> bool:
        """Commit these partitions and wait for the response; return whether no commit was refused."""
        until = monotonic() + within_s
        assignments = list(assignments)
        self._put_unanswered(assignments)
        self._put_unknown(assignments)
        while sent := self._take([each for each in assignments if each in self._wanted]):
            error, places = None, []
            try:
                places = consumer.commit(offsets=_places(sent), asynchronous=False) or []
            except KafkaException as raised:
                error = raised.args[0]
            if self._evaluate(sent, error, places):
                if monotonic() >= until:
                    return False
                sleep(_AGAIN_S)
        return True

    def keep_refused(self, assignments: Iterable[Assignment]) -> None:
        """Keep commits that were not made, of partitions that are revoked: they may be assigned again at once."""
        assignments = list(assignments)
        self._put_unanswered(assignments)
        for each in assignments:
            if each in self._wanted:
                self._refused[each.name] = self._wanted.pop(each)

    def resume(self, assignment: Assignment, token: str | None) -> str | None:
        """Return the token to begin an assignment with: the group's, or the refused one of ours if that is further.

        A message that is done stays done, whichever member had the partition in between.
        """
        position, kept = self._refused.pop(assignment.name, (-1, ""))
        if (position, _length(kept)) <= (assignment.committed, _length(token or "")):
            return token
        assignment.position = position
        self.put(assignment, position, kept)
        return kept or None

    def forget_refused(self) -> None:
        """Forget refused commits of partitions that were not assigned again; later their logs may be others."""
        for log in sorted(self._refused):
            text = "%s: the last commit was refused or not answered; its messages will be redelivered"
            logger.warning(text, log, extra=fields("commit_refused", log))
        self._refused.clear()

    def _read_back(self, consumer: Consumer) -> None:
        """Read the first commit with a token back, once: some brokers keep no metadata of commits."""
        if self._to_read_back is None or self._read_backs <= 0:
            return
        (assignment, token), self._to_read_back = self._to_read_back, None
        if assignment.is_gone:
            return
        self._read_backs -= 1
        try:
            (place,) = consumer.committed([assignment.place()], _READ_BACK_S)
        except KafkaException:
            return  # the broker is away; the next commit is read back
        if place.error is not None:
            return
        self._read_backs = 0
        if place.metadata != token:
            text = "%s: the broker keeps no metadata of commits; after a restart messages that are done above the "
            text += "committed offset will be redelivered, and failures are counted from zero"
            logger.warning(text, assignment.name, extra=fields("no_metadata", assignment.name))

    def _put_unanswered(self, assignments: Iterable[Assignment]) -> None:
        """Put commits again that are on their way: their response may come too late."""
        sent = self._sent or {}
        for each in assignments:
            if each.name in sent and sent[each.name][0] is each:
                self._wanted.setdefault(each, sent[each.name][1:])

    def _put_unknown(self, assignments: Iterable[Assignment]) -> None:
        for each in assignments:
            if each in self._unknown:
                self._wanted.setdefault(each, self._unknown.pop(each))

    def _take(self, assignments: Iterable[Assignment]) -> Requests:
        taken = {}
        for each in assignments:
            with self._lock:
                position, token = self._wanted.pop(each)
            if not each.is_gone:
                taken[each.name] = each, each.offset_to_commit(position), token
        return taken

    def _made(self, assignment: Assignment, position: int, token: str) -> None:
        assignment.committed, assignment.is_unknown = max(assignment.committed, position), False
        assignment.token = token
        self._unknown.pop(assignment, None)
        if token:
            self._to_read_back = assignment, token
        self._confirm(assignment)

    def _confirm(self, assignment: Assignment) -> None:
        """Tell the runner that its commit is made, unless it has put another one since."""
        with self._lock:
            waiting = [] if assignment in self._wanted else self._waiting.pop(assignment, [])
        _resolve(waiting)

    def _evaluate(self, sent: Requests, error: KafkaError | None, places: list[TopicPartition]) -> bool:
        """Put refused commits again and return whether there are any; at last raise an error that will not pass."""
        errors = {name_of(place.topic, place.partition): place.error for place in places}
        refused, failed = [], None
        for name, (assignment, position, token) in sent.items():
            fault = errors.get(name) or error
            if fault is None:
                self._made(assignment, position, token)
            elif fault.code() == KafkaError.OFFSET_METADATA_TOO_LARGE and token:
                text = "%s: the broker refuses metadata of %d bytes; lower metadata_bytes"
                logger.warning(text, name, len(token), extra=fields("token_refused", name, bytes=len(token)))
                refused.append((assignment, position, ""))
            elif fault.code() in REFUSED:
                refused.append((assignment, position, token))
            elif fault.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                _report_unknown(assignment)
                self._unknown[assignment] = position, token
                self._confirm(assignment)  # the others of the runner shall not wait for a topic that was deleted
            elif not assignment.is_gone:
                failed = failed or fault
        for assignment, position, token in refused:
            if not assignment.is_gone:
                self._wanted.setdefault(assignment, (position, token))
        if failed is not None:
            raise KafkaException(failed)
        return bool(refused)


def _report_unknown(assignment: Assignment) -> None:
    if not assignment.is_unknown:
        text = "%s: commit refused and tried again: its topic was deleted, or has fewer partitions now"
        logger.warning(text, assignment.name, extra=fields("commit_unknown", assignment.name))
    assignment.is_unknown = True


def _resolve(futures: "Iterable[Future[None]]") -> None:
    for future in futures:
        if not future.done():  # an event loop cancels it when it ends
            future.set_result(None)


def _length(token: str) -> int:
    """Return how much a token says of messages above its position."""
    return len(read_token(token)[0])


def _places(sent: Requests) -> list[TopicPartition]:
    return [assignment.place(position, token) for assignment, position, token in sent.values()]
