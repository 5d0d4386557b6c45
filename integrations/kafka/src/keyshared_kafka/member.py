"""The member of the group: polls, hands messages over to the runner, and follows rebalances."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyshared._checks import check_int
from keyshared.errors import KeyTypeError
from keyshared.hashing import key_bytes
from keyshared.run import RunnerConfig
from keyshared_kafka.adapters import Adapter
from keyshared_kafka.assignments import Assignment, Row, name_of, token_of
from keyshared_kafka.commits import Commits
from keyshared_kafka.ends import LogEnds
from keyshared_kafka.failures import REFUSED, raise_unless_transient
from keyshared_kafka.records import fields, logger
from keyshared_kafka.settings import KeyOf, NotBefore

__all__ = ["Member"]

_BATCH: Final = 1_000  # messages that are taken from the client at once
_IDLE_S: Final = 0.1  # how long a poll waits; a signal counts no later
_BUSY_S: Final = 0.02  # as above while messages are unfinished: their commits, and messages for free capacity, need it
_CAPACITY_S: Final = 0.02  # how long messages wait for capacity before their partition is paused, which costs a fetch
_REQUEST_S: Final = 10  # how long the broker may take for a response
_REQUESTS: Final = 6
_REFUSED_REVOKED_S: Final = 0.4  # a group that rebalances may take no commit until its members have joined again
_LAST_COMMIT_S: Final = 10.0  # likewise, and this member is one of them; or the broker is away
_CLOSE_S: Final = 2.0  # how long the client may take to leave; while the broker is away it would wait for a commit


class Member:
    """Reads partitions for a runner. All but `commit` runs in one thread: rebalances are reported during a poll.

    Args:
        options: librdkafka configuration of the client.
        topics: Topics to subscribe to.
        key_of: Returns the key by which a message is ordered.
        not_before: Returns the earliest time of a message's handler.
        config: Settings of the runner.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        topics: Sequence[str],
        key_of: KeyOf,
        not_before: "NotBefore | None",
        config: RunnerConfig,
    ) -> None:
        self._topics = list(topics)
        self._key_of = key_of
        self._not_before = not_before
        self._window = config.window
        self._drain_ms = config.stop_ms
        self._assigned: dict[str, Assignment] = {}
        self._to_resume: list[Assignment] = []
        self._commits = Commits(config.commit_every_ms / 1_000)  # each commit has waited as long in the runner
        self._ends = LogEnds()
        self._users_on_commit = options.get("on_commit")
        self._consumer = Consumer({**options, "on_commit": self._on_commit})
        self._adapter: Adapter | None = None
        self._stop = Event()
        self._is_leaving = False

    def commit(self, log: str, position: int, token: str) -> Future[None] | None:
        """Commit for the runner; its threads call this. The next poll sends the commit.

        Returns:
            A future that is done when the broker has confirmed it; None if the partition is not owned any more.
        """
        assignment = self._assigned.get(log)
        return None if assignment is None else self._commits.put(assignment, position, token)

    def assignments(self) -> list[Assignment]:
        """Return the partitions that are assigned to this member. Any thread may call this."""
        return list(self._assigned.values())

    def consume(self, adapter: Adapter, stop: Event, drain_ms: int) -> None:
        """Consume until the event is set or something fails; then let handlers finish, commit and leave the group.

        The runner is left without partitions, for its owner to stop.
        """
        self._adapter, self._stop = adapter, stop
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            text = "%s: waiting for partition assignment"
            text += " (a dead member's partitions are reassigned after its session.timeout.ms)"
            logger.info(text, ", ".join(self._topics), extra={"keyshared": {"event": "joins", "topics": self._topics}})
            while not stop.is_set():
                self._poll_once(adapter)
        finally:
            try:
                self._drain(adapter, list(self._assigned), drain_ms)
            finally:
                try:
                    self._commit_last()
                finally:
                    self._commits.forget_refused()
                    self._forget(list(self._assigned))
                    self._close()

    def _drain(self, adapter: Adapter, names: list[str], drain_ms: int) -> None:
        """Start no more handlers of these partitions, and wait until those that run have finished."""
        self._commits.release([self._assigned[name] for name in names])  # the runner waits for no poll meanwhile
        unfinished = adapter.remove(names, drain_ms) if names else []
        if unfinished and adapter.runner.error is None:
            text = "%s: drain timeout (%d ms): unfinished messages will be redelivered"
            more = {"event": "late", "partitions": unfinished}
            logger.warning(text, ", ".join(unfinished), drain_ms, extra={"keyshared": more})

    def _commit_last(self) -> None:
        """Commit for the last time. A group that rebalances may take no commit: stay in it until it is stable."""
        self._is_leaving = True
        until = monotonic() + _LAST_COMMIT_S
        self._commits.hurry()
        while True:
            self._commits.send(self._consumer, self._assigned.values())
            if not self._commits.is_pending():
                return
            if monotonic() >= until:
                self._commits.keep_refused(self._assigned.values())
                return
            self._consumer.consume(_BATCH, _BUSY_S)  # for responses and rebalances; the messages will be redelivered

    def _close(self) -> None:
        closing = Thread(target=self._consumer.close, name="keyshared-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        if closing.is_alive():
            text = (
                "%s: no response from the broker; the group waits for session.timeout.ms before it replaces this member"
            )
            logger.warning(
                text, ", ".join(self._topics), extra={"keyshared": {"event": "late", "topics": self._topics}}
            )

    # polls

    def _poll_once(self, adapter: Adapter) -> None:
        """Poll, hand over what was read, commit, and look after paused partitions."""
        is_busy = self._commits.is_pending() or any(
            each.is_paused or each.is_behind() for each in self._assigned.values()
        )
        first = self._consumer.poll(_BUSY_S if is_busy else _IDLE_S)
        if adapter.runner.error is not None:
            raise adapter.runner.error
        if self._to_resume:  # the client keeps a pause from an earlier assignment
            resumed, self._to_resume = self._to_resume, []
            self._consumer.resume([each.place() for each in resumed if not each.is_gone])
        if first is not None:
            self._receive(first)
            for message in self._consumer.consume(_BATCH, 0):
                self._receive(message)
        self._hand_over(adapter)
        self._commits.send(self._consumer, self._assigned.values())
        self._ends.update(self._consumer, self._assigned.values(), adapter)
        self._raise_if_unreadable()

    def _receive(self, message: "Message[Any, Any]") -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise_unless_transient(message, error)
            return
        if topic is None or partition is None or offset is None:
            return
        assignment = self._assigned.get(name_of(topic, partition))
        if assignment is None or assignment.unreadable is not None:
            return  # the client had fetched it before the partition was revoked, or before its pause
        if error is not None:
            assignment.end = offset
            return
        goes_back, assignment.last_offset = offset <= assignment.last_offset, offset
        if assignment.position is not None and offset < assignment.position:
            again = self._restart_if_truncated(assignment, offset) if goes_back else None
            if again is None:
                return
            assignment = again
        try:
            row = self._row(assignment, offset, message)
        except Exception as raised:  # noqa: BLE001  # of the user's function
            self._stop_reading(assignment, raised)
            return
        assignment.position = offset + 1
        assignment.backlog.append(row)

    def _row(self, assignment: Assignment, offset: int, message: "Message[Any, Any]") -> Row:
        key = self._key(assignment, offset, message)
        if self._not_before is None:
            return offset, key, message
        try:
            later = self._not_before(message)
            return (offset, key, message) if later is None else (offset, key, message, check_int("not_before", later))
        except Exception as error:
            error.add_note(f"raised by or for not_before of {assignment.name}[{offset}], key {message.key()!r}")
            raise

    def _key(self, assignment: Assignment, offset: int, message: "Message[Any, Any]") -> bytes | None:
        try:
            key = self._key_of(message)
        except Exception as error:
            error.add_note(f"raised by the function of order for {assignment.name}[{offset}], key {message.key()!r}")
            raise
        if key is None or type(key) is bytes:
            return key
        try:
            return key_bytes(key)
        except KeyTypeError as error:
            wanted = "let it return bytes, str or None (a number: str(number))"
            error.add_note(f"returned by the function of order for {assignment.name}[{offset}]; {wanted}")
            raise

    def _stop_reading(self, assignment: Assignment, error: Exception) -> None:
        """Read no further, as this message might have to wait for others; those that were read before are handled."""
        assignment.unreadable = error
        self._pause(assignment)
        text = "%s: cannot be ordered (%r); the consumer stops when the messages read before are done"
        more = {"offset": assignment.last_offset, "reason": repr(error)}
        where = f"{assignment.name}[{assignment.last_offset}]"
        logger.warning(text, where, error, extra=fields("unreadable", assignment.name, **more))

    def _raise_if_unreadable(self) -> None:
        for each in self._assigned.values():
            if each.unreadable is not None and not each.backlog and not each.is_behind():
                raise each.unreadable

    def _restart_if_truncated(self, assignment: Assignment, offset: int) -> Assignment | None:
        """Return a new assignment for a log that has lost its end and was read again; None for a message read twice."""
        read_to = assignment.position or 0
        end = self._consumer.get_watermark_offsets(assignment.place(), timeout=_REQUEST_S, cached=False)[1]
        if end >= read_to or self._adapter is None:
            return None
        logger.warning(
            "%s: the log was truncated below offset %d, which was read; reading from %d",
            assignment.name,
            read_to,
            offset,
            extra=fields("truncated", assignment.name, offset=offset, read_to=read_to),
        )
        self._adapter.lose([assignment.name])
        self._forget([assignment.name])
        again = Assignment(assignment.topic, assignment.partition, None)
        again.last_offset = offset
        self._assigned[again.name] = again
        self._adapter.add(again.name, offset, None)
        if assignment.is_paused:
            self._to_resume.append(again)
        return again

    # back-pressure

    def _hand_over(self, adapter: Adapter) -> None:
        """Hand over as much as the runner takes; pause partitions whose messages find no capacity for a while."""
        waiting = [each for each in self._assigned.values() if each.backlog and not self._submit(adapter, each)]
        if any(not each.is_paused for each in waiting):
            until = monotonic() + _CAPACITY_S
            while waiting and monotonic() < until:
                sleep(_CAPACITY_S / 10)
                waiting = [each for each in waiting if not self._submit(adapter, each)]
        for each in waiting:
            self._pause(each)
        if any(each.is_paused for each in self._assigned.values()):
            self._resume(adapter)

    def _submit(self, adapter: Adapter, assignment: Assignment) -> bool:
        """Hand over as much of a backlog as the runner takes; return whether that is all."""
        capacity = min(adapter.capacity(assignment.name), len(assignment.backlog))
        if capacity:
            rows = [assignment.backlog.popleft() for _ in range(capacity)]
            adapter.submit(assignment.name, rows)
        return not assignment.backlog

    def _pause(self, assignment: Assignment) -> None:
        if not assignment.is_paused:
            self._consumer.pause([assignment.place()])
            assignment.is_paused = True

    def _resume(self, adapter: Adapter) -> None:
        enough = max(1, self._window // (2 * len(self._assigned)))
        for each in self._assigned.values():
            can_read = each.is_paused and each.unreadable is None and not each.backlog
            if can_read and adapter.capacity(each.name) >= enough:
                self._consumer.resume([each.place()])
                each.is_paused = False

    # rebalances

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Begin with partitions where the group has committed them. The client itself begins to read them there."""
        if self._adapter is None or not places:
            self._commits.forget_refused()
            return
        for place in self._committed(consumer, places):
            is_known = place.offset >= 0
            assignment = Assignment(place.topic, place.partition, place.offset if is_known else None)
            self._assigned[assignment.name] = assignment
            token = self._commits.resume(assignment, token_of(place) if is_known else None)
            if not self._is_leaving:
                self._to_resume.append(assignment)
                self._adapter.add(assignment.name, assignment.position, token)
                _log_start(assignment)
        self._commits.forget_refused()

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Start no more handlers of these partitions, let those that run finish, commit, and forget the partitions."""
        names = self._owned(places)
        if self._adapter is None or not names:
            return
        if not self._is_leaving:
            self._drain(self._adapter, names, self._drain_ms)
        assignments = [self._assigned[name] for name in names]
        self._commits.commit_now(consumer, assignments, _REFUSED_REVOKED_S)
        self._commits.keep_refused(assignments)
        for each in assignments:
            text = "%s: revoked; committed offset %d"
            logger.info(text, each.name, each.committed, extra=fields("left", each.name, committed=each.committed))
        self._forget(names)

    def _on_lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        """Forget partitions that belong to other members already."""
        names = self._owned(places)
        if self._adapter is None or not names:
            return
        for name in names:
            text = "%s: lost; messages done since the last commit will be redelivered to its new owner"
            logger.warning(text, name, extra=fields("lost", name))
        self._forget(names)
        if not self._is_leaving:
            self._adapter.lose(names)

    def _on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._commits.answered(error, places)
        if self._users_on_commit is not None:
            self._users_on_commit(error, places)

    def _owned(self, places: list[TopicPartition]) -> list[str]:
        names = [name_of(place.topic, place.partition) for place in places]
        return [name for name in names if name in self._assigned]

    def _forget(self, names: list[str]) -> None:
        for name in names:
            assignment = self._assigned.pop(name)
            assignment.is_gone = True
            self._commits.release([assignment])

    def _committed(self, consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
        """Return the group's commits; the broker may be away for a while. Empty if the consumer is asked to stop."""
        requests = 0
        while True:
            requests += 1
            try:
                answers: list[TopicPartition] = consumer.committed(places, _REQUEST_S)
                error = next((place.error for place in answers if place.error is not None), None)
            except KafkaException as raised:
                error, answers = raised.args[0], []
            if error is None:
                return answers
            if self._stop.is_set():
                return []
            if requests == _REQUESTS or error.code() not in REFUSED:
                raise KafkaException(error)
            sleep(1)


def _log_start(assignment: Assignment) -> None:
    extra = fields("begun", assignment.name, offset=assignment.position)
    if assignment.position is None:
        logger.info("%s: no committed offset; starting at auto.offset.reset", assignment.name, extra=extra)
    else:
        logger.info("%s: starting at offset %d", assignment.name, assignment.position, extra=extra)
