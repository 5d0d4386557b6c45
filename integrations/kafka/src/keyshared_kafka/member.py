"""The member of the group: polls, hands over, follows rebalances."""

from collections.abc import Mapping, Sequence
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from keyshared.errors import KeyTypeError
from keyshared.hashing import key_bytes
from keyshared.run import RunnerConfig
from keyshared_kafka.commits import Commits
from keyshared_kafka.engines import Engine
from keyshared_kafka.failures import REFUSED, must_pass
from keyshared_kafka.records import fields, logger
from keyshared_kafka.settings import KeyOf
from keyshared_kafka.stays import Stay, name_of, token_of

__all__ = ["Member"]

_BATCH: Final = 1_000  # messages that are taken from the client at once
_IDLE_S: Final = 0.1  # how long a poll waits: as late does a signal count
_HELD_S: Final = 0.02  # as above while something goes on, so that its commits, and messages for its room, need not wait
_ROOM_S: Final = 0.02  # how long messages wait for room before their partition is paused, which costs a fetch
_ASK_S: Final = 10  # how long the broker may take for an answer
_ASKS: Final = 6
_REFUSED_LEAVING_S: Final = 0.4  # a group that rebalances takes no commit until its members come again
_LAST_COMMIT_S: Final = 10.0  # likewise, and these members are we; or the broker is away
_CLOSE_S: Final = 2.0  # how long the client may take to leave; while the broker is away it would wait for a commit


class Member:
    """Reads partitions for a runner. All but `commit` happens in one thread: rebalances are told during a poll.

    Args:
        options: Of the client.
        topics: To subscribe to.
        key_of: What a message is ordered by.
        config: Settings of the runner.
    """

    def __init__(self, options: Mapping[str, Any], topics: Sequence[str], key_of: KeyOf, config: RunnerConfig) -> None:
        self._topics = list(topics)
        self._key_of = key_of
        self._window = config.window
        self._drain_ms = config.stop_ms
        self._stays: dict[str, Stay] = {}
        self._fresh: list[Stay] = []
        self._commits = Commits(config.commit_every_ms / 1_000)  # what waits here was in the runner as long
        self._theirs = options.get("on_commit")
        self._consumer = Consumer({**options, "on_commit": self._on_commit})
        self._engine: Engine | None = None
        self._stop = Event()
        self._is_leaving = False

    def commit(self, log: str, position: int, token: str) -> None:
        """Commit for the runner; called by its threads. The next turn does it, or the last one."""
        stay = self._stays.get(log)
        if stay is not None:
            self._commits.want(stay, position, token)

    def consume(self, engine: Engine, stop: Event, drain_ms: int) -> None:
        """Consume until it is asked to stop or something fails; then let handlers finish, commit and leave.

        The engine is left without partitions, for its owner to end.
        """
        self._engine, self._stop = engine, stop
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            text = "%s: waits for partitions; those of a member that died come after its session.timeout.ms"
            logger.info(text, ", ".join(self._topics), extra={"kafka": {"event": "joins", "topics": self._topics}})
            while not stop.is_set():
                self._turn(engine)
        finally:
            try:
                self._let_finish(engine, drain_ms)
            finally:
                try:
                    self._store_all()
                finally:
                    self._commits.give_up()
                    self._gone(list(self._stays))
                    self._close()

    def _let_finish(self, engine: Engine, drain_ms: int) -> None:
        names = list(self._stays)
        if names and not engine.remove(names, drain_ms) and engine.runner.error is None:
            text = "handlers work on after %d ms; their messages come again"
            logger.warning(text, drain_ms, extra={"kafka": {"event": "late", "partitions": names}})

    def _store_all(self) -> None:
        """Commit for the last time. A group that rebalances may take no commit: stay in it until it is at rest."""
        self._is_leaving = True
        until = monotonic() + _LAST_COMMIT_S
        self._commits.hurry()
        while True:
            self._commits.send(self._consumer, self._stays.values())
            if not self._commits.is_open():
                return
            if monotonic() >= until:
                self._commits.keep(self._stays.values())
                return
            self._consumer.consume(_BATCH, _HELD_S)  # answers and rebalances come in it; messages come again, at others

    def _close(self) -> None:
        closing = Thread(target=self._consumer.close, name="keyshared-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        if closing.is_alive():
            text = "%s: no broker answers; the group waits for session.timeout.ms before it goes on without this member"
            logger.warning(text, ", ".join(self._topics), extra={"kafka": {"event": "late", "topics": self._topics}})

    # polls

    def _turn(self, engine: Engine) -> None:
        """Poll once, hand over what came, and look after partitions that wait for something."""
        is_busy = any(stay.is_paused or stay.is_behind() for stay in self._stays.values())
        first = self._consumer.poll(_HELD_S if is_busy else _IDLE_S)
        if engine.runner.error is not None:
            raise engine.runner.error
        if self._fresh:  # the client keeps a pause from an earlier stay
            fresh, self._fresh = self._fresh, []
            self._consumer.resume([stay.place() for stay in fresh if not stay.is_gone])
        if first is not None:
            self._take(first)
            for message in self._consumer.consume(_BATCH, 0):
                self._take(message)
        self._hand_over(engine)
        self._commits.send(self._consumer, self._stays.values())

    def _take(self, message: "Message[Any, Any]") -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            must_pass(message, error)
            return
        if topic is None or partition is None or offset is None:
            return
        stay = self._stays.get(name_of(topic, partition))
        if stay is None:
            return  # it was fetched before its partition left
        if error is not None:
            stay.end = offset
            return
        goes_back, stay.last_offset = offset <= stay.last_offset, offset
        if stay.next_offset is not None and offset < stay.next_offset:
            stay = self._begin_anew_if_truncated(stay, offset) if goes_back else None
            if stay is None:
                return
        stay.next_offset = offset + 1
        stay.backlog.append((offset, self._key(stay, offset, message), message))

    def _key(self, stay: Stay, offset: int, message: "Message[Any, Any]") -> bytes | None:
        try:
            key = self._key_of(message)
        except Exception as error:
            error.add_note(f"by the function of order, for {stay.name}/{offset}")
            raise
        if key is None or type(key) is bytes:
            return key
        try:
            return key_bytes(key)
        except KeyTypeError as error:
            wanted = "let it return bytes, str or None (a number: str(number))"
            error.add_note(f"returned by the function of order, for {stay.name}/{offset}; {wanted}")
            raise

    def _begin_anew_if_truncated(self, stay: Stay, offset: int) -> Stay | None:
        """Return another stay for a log that has lost its end and was read again; None for a message that was read."""
        read_to = stay.next_offset or 0
        end = self._consumer.get_watermark_offsets(stay.place(), timeout=_ASK_S, cached=False)[1]
        if end >= read_to or self._engine is None:
            return None
        logger.warning(
            "%s: the log was cut below offset %d, where it was read; it is read from %d",
            stay.name,
            read_to,
            offset,
            extra=fields("truncated", stay.name, offset=offset, read_to=read_to),
        )
        self._engine.lose([stay.name])
        self._gone([stay.name])
        again = Stay(stay.topic, stay.partition, None)
        again.last_offset = offset
        self._stays[again.name] = again
        self._engine.add(again.name, offset, None)
        if stay.is_paused:
            self._fresh.append(again)
        return again

    # back-pressure

    def _hand_over(self, engine: Engine) -> None:
        """Hand over what there is room for; pause partitions whose messages find none for a while."""
        waiting = [stay for stay in self._stays.values() if stay.backlog and not self._gives(engine, stay)]
        if any(not stay.is_paused for stay in waiting):
            until = monotonic() + _ROOM_S
            while waiting and monotonic() < until:
                sleep(_ROOM_S / 10)
                waiting = [stay for stay in waiting if not self._gives(engine, stay)]
        for stay in waiting:
            if not stay.is_paused:
                self._consumer.pause([stay.place()])
                stay.is_paused = True
        if any(stay.is_paused for stay in self._stays.values()):
            self._resume(engine)

    def _gives(self, engine: Engine, stay: Stay) -> bool:
        """Hand over what there is room for; return whether that is all."""
        room = min(engine.room(stay.name), len(stay.backlog))
        if room:
            rows = [stay.backlog.popleft() for _ in range(room)]
            engine.give(stay.name, rows)
        return not stay.backlog

    def _resume(self, engine: Engine) -> None:
        enough = max(1, self._window // (2 * len(self._stays)))
        for stay in self._stays.values():
            if stay.is_paused and not stay.backlog and engine.room(stay.name) >= enough:
                self._consumer.resume([stay.place()])
                stay.is_paused = False

    # rebalances

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Begin with partitions where the group left them. The client begins to read them there by itself."""
        if self._engine is None or not places:
            self._commits.give_up()
            return
        for place in self._committed(consumer, places):
            is_known = place.offset >= 0
            stay = Stay(place.topic, place.partition, place.offset if is_known else None)
            self._stays[stay.name] = stay
            token = self._commits.take_back(stay, token_of(place) if is_known else None)
            if not self._is_leaving:
                self._fresh.append(stay)
                self._engine.add(stay.name, stay.next_offset, token)
                where = "auto.offset.reset: nothing is committed" if stay.next_offset is None else stay.next_offset
                logger.info("%s: begins at %s", stay.name, where, extra=_begun(stay))
        self._commits.give_up()

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Start nothing more of these partitions, let their handlers finish, commit, and forget them."""
        names = self._here(places)
        if self._engine is None or not names:
            return
        if not self._is_leaving and not self._engine.remove(names, self._drain_ms):
            text = "%s: handlers work on after %d ms; their messages come again"
            logger.warning(text, names, self._drain_ms, extra={"kafka": {"event": "late", "partitions": names}})
        stays = [self._stays[name] for name in names]
        self._commits.store(consumer, stays, _REFUSED_LEAVING_S)
        self._commits.keep(stays)
        for stay in stays:
            logger.info("%s: handed over", stay.name, extra=fields("left", stay.name, committed=stay.committed))
        self._gone(names)

    def _on_lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        """Forget partitions that belong to others already."""
        names = self._here(places)
        if self._engine is None or not names:
            return
        for name in names:
            text = "%s: lost; what was done since the last commit comes again, at others"
            logger.warning(text, name, extra=fields("lost", name))
        self._gone(names)
        if not self._is_leaving:
            self._engine.lose(names)

    def _on_commit(self, error: KafkaError | None, places: list[TopicPartition]) -> None:
        self._commits.answered(error, places)
        if self._theirs is not None:
            self._theirs(error, places)

    def _here(self, places: list[TopicPartition]) -> list[str]:
        names = [name_of(place.topic, place.partition) for place in places]
        return [name for name in names if name in self._stays]

    def _gone(self, names: list[str]) -> None:
        for name in names:
            self._stays.pop(name).is_gone = True

    def _committed(self, consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
        """Ask what the group has committed; the broker may be away for a while. Nothing counts if it is to stop."""
        asks = 0
        while True:
            asks += 1
            try:
                answers: list[TopicPartition] = consumer.committed(places, _ASK_S)
                error = next((place.error for place in answers if place.error is not None), None)
            except KafkaException as raised:
                error, answers = raised.args[0], []
            if error is None:
                return answers
            if self._stop.is_set():
                return []
            if asks == _ASKS or error.code() not in REFUSED:
                raise KafkaException(error)
            sleep(1)


def _begun(stay: Stay) -> dict[str, object]:
    return fields("begun", stay.name, offset=stay.next_offset)
