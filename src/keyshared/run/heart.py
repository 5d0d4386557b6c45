"""The heart of a runner: takes what has happened and the time, and says what is to be done next.

There is one for all logs of a runner. It holds no clock, no thread and no loop, so threads, tasks and tests with a made
up time drive the same decisions. Facts are reported by method calls; `Heart.advance` then returns everything that is to
be done because of them, which lets a runner report many and act once.

What it takes care of, beyond the dispatcher of each log:

* a message is handed out only when a worker is free for it, each hungry log in its turn;
* nothing of a key runs beside a handler that has not ended, whatever became of its delivery, its log or its timeout;
* the cursor is committed when what a restart would redo has changed, one commit of a log at a time;
* whatever fails ends in an orderly stop that names the first error.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final, TypeVar

from keyshared._core.values import MetricRow
from keyshared.dispatcher import Blocking
from keyshared.effects import (
    BlockReason,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    Effect,
    Load,
    Released,
    Resumed,
    Settled,
    Skipped,
    Spilled,
)
from keyshared.errors import ArgumentError
from keyshared.hashing.named import Key
from keyshared.run.actions import (
    Action,
    Commit,
    LoadMany,
    Noticed,
    Settle,
    WriteLetter,
)
from keyshared.run.answers import NotAwaitedError
from keyshared.run.batches import Verdict, next_run, verdict
from keyshared.run.figures import busiest_keys, rows_of
from keyshared.run.log import Log, Run, Why
from keyshared.run.stays import Stays
from keyshared.run.timeouts import Timeouts
from keyshared.run.values import (
    BusyKey,
    Letter,
    Reject,
    RetryLater,
    RunnerConfig,
    RunnerStats,
)

__all__ = ["Heart"]

_FIRST_LETTER_DELAY_MS: Final = 100
_RETURNED_ANYWAY: Final = "it was cancelled, and returned all the same"
_COUNTS: Final = ("done", "failed", "rejected", "put_off", "released", "late", "overdue", "letters", "commits")

Message = TypeVar("Message")


class Heart(Stays[Message]):
    """Decides for one pool of workers and any number of logs.

    Args:
        config: Settings.
        ahead: How many messages may be on the way to a worker besides those at handlers.
        cancels: Whether the runner can cancel a handler.
        commits: Whether there is somebody to commit.
        writes: Whether there is somebody to write dead letters; if not, one that is due stops the runner.
        loads: Whether there is somebody to read messages again; if not, they are kept.
        settles: Whether there is somebody to tell what is settled.

    Example:
        >>> heart = Heart(RunnerConfig(workers=1))
        >>> heart.add_log("orders")
        >>> heart.submit("orders", 0, "order-1", "created", now_ms=0)
        >>> run, = heart.advance(now_ms=0)
        >>> run.message
        'created'
        >>> heart.ended(run, None, now_ms=5)
        >>> heart.advance(now_ms=5), heart.stats().done
        ([], 1)
    """

    def __init__(
        self,
        config: RunnerConfig,
        *,
        ahead: int = 0,
        cancels: bool = False,
        commits: bool = False,
        writes: bool = False,
        loads: bool = False,
        settles: bool = False,
    ) -> None:
        super().__init__(config, ahead=ahead, cancels=cancels, commits=commits, settles=settles)
        self._writes = writes
        self._loads = loads
        self._timeouts = Timeouts(config.timeout_ms, self._logs)
        self._counts = dict.fromkeys(_COUNTS, 0)

    # messages

    def submit(self, name: str, offset: int, key: Key, message: Message, *, now_ms: int | None = None) -> None:
        """Take a message for which there is `room`. Raises what `KeySharedDispatcher.offer` raises."""
        self.submit_many(name, [(offset, key, message)], now_ms=now_ms)

    def submit_many(self, name: str, rows: Iterable[tuple[int, Key, Message]], *, now_ms: int | None = None) -> None:
        """Take messages for which there is `room`: those before the first one for which `offer` raises."""
        self._tick(now_ms)
        self.check_open()
        log, heard = self._open_log(name), list[Effect[Message]]()
        offer, now = log.dispatcher.offer, self._now
        try:
            for row in rows:
                try:
                    offset, key, message = row
                except (TypeError, ValueError):
                    raise ArgumentError("messages", row, "be tuples of offset, key and message") from None
                effects = offer(offset, key, message, now_ms=now)
                if effects:
                    heard += effects
                    if not self._loads and any(isinstance(effect, Spilled) for effect in effects):
                        log.kept[offset] = message
        finally:
            if log.stored is None or heard:
                self._commits.note(log)
            self._apply(log, heard)

    def ended(
        self, run: Run[Message], raised: BaseException | None, *, now_ms: int | None = None
    ) -> BaseException | None:
        """A handler has ended: it returned, or it raised something. Return what it raised, as it counts."""
        return self.ended_many([(run, raised)], now_ms=now_ms)[0]

    def ended_many(
        self, ends: Iterable[tuple[Run[Message], BaseException | None]], *, now_ms: int | None = None
    ) -> list[BaseException | None]:
        """Handlers have ended, in this order. As `ended` for each: those that returned are settled together."""
        self._tick(now_ms)
        told: list[BaseException | None] = []
        well: dict[Log[Message], list[Run[Message]]] = {}
        for run, raised in ends:
            self._turns.busy -= 1
            if run.is_abandoned:
                told.append(self._end_late(run, raised))
                continue
            del run.log.runs[run]
            if raised is None and run.cancelled is not None:
                raised = BaseException(_RETURNED_ANYWAY)  # noqa: PLW2901  # nobody knows what it left out
            if raised is None:
                well.setdefault(run.log, []).append(run)
                told.append(None)
            else:
                self._end_well(well)
                how = self._verdict(run, raised)
                self._end_badly(run, how)
                told.append(how.raised)
        self._end_well(well)
        return told

    def withdrawn(self, run: Run[Message], *, now_ms: int | None = None) -> None:
        """A run was taken back before its handler began."""
        self._tick(now_ms)
        self._turns.busy -= 1
        if run.is_abandoned:
            self._end_abandoned(run)
            return
        del run.log.runs[run]
        self._counts["released"] += 1
        self._release(run.log, run.delivery)

    def unblock(self, name: str, key: Key, *, now_ms: int | None = None) -> bool:
        """Try all blocked messages of a key again, and end its quarantine; return whether there was any of that."""
        self._tick(now_ms)
        log = self.log(name)
        before = log.dispatcher.stats()
        effects = log.dispatcher.unblock(key, now_ms=self._now)
        after = log.dispatcher.stats()
        self._apply(log, effects)
        return (before.blocked, before.quarantined_keys) != (after.blocked, after.quarantined_keys)

    # answers to what was asked for

    def written(self, asked: WriteLetter[Message], error: BaseException | None, *, now_ms: int | None = None) -> None:
        """A dead letter is written, or its write has failed: then it is tried again, and at last the runner stops."""
        self._tick(now_ms)
        log = asked.log
        if log.is_gone:
            return
        if error is None:
            log.letters -= bool(log.letters)  # none are waited for any more when the time of a leaving log is over
            self._counts["letters"] += 1
            log.forget(asked.letter.offset)
            self._settle(log, log.dispatcher.dead_lettered(asked.letter.offset, now_ms=self._now))
        elif asked.tries < self._config.letter_tries and not isinstance(error, NotAwaitedError):
            again = asked._replace(tries=asked.tries + 1)
            self._alarms.at(self._now + (_FIRST_LETTER_DELAY_MS << (asked.tries - 1)), partial(self._write, again))
        else:
            log.letters -= bool(log.letters)
            self.fail(error)

    def loaded(
        self,
        asked: LoadMany[Message],
        messages: dict[int, Message | None],
        error: BaseException | None = None,
        *,
        now_ms: int | None = None,
    ) -> None:
        """Messages were read again, None for one that is no longer there; or some were not: then the runner stops."""
        self._tick(now_ms)
        log = asked.log
        if log.is_gone:
            return
        log.is_loading = False
        self._touched[log] = None
        for offset, message in messages.items():
            if message is None:
                self._settle(log, log.dispatcher.gone(offset, now_ms=self._now))
            else:
                self._apply(log, log.dispatcher.loaded(offset, message, now_ms=self._now))
        if error is not None:
            self.fail(error)

    def committed(self, asked: Commit[Message], error: BaseException | None, *, now_ms: int | None = None) -> None:
        """A commit is made, or has failed: then the runner stops, and that log is not committed any more."""
        self._tick(now_ms)
        log = asked.log
        if log.is_gone:
            return
        log.is_committing = False
        if error is not None:
            log.is_unstorable = True
            self.fail(error)
        else:
            self._counts["commits"] += 1

    def settled(self, asked: Settle[Message], error: BaseException | None, *, now_ms: int | None = None) -> None:
        """The log knows what is settled, or could not be told: then the runner stops, and that log is told no more."""
        self._tick(now_ms)
        log = asked.log
        if log.is_gone:
            return
        log.is_settling = False
        self._touched[log] = None
        if error is not None:
            log.settled.clear()
            log.tells_settled = False
            self.fail(error)

    def hurry(self) -> bool:
        """Commit at once if nothing else goes on; return whether there is something to commit."""
        if not self._commits.changed or self._is_busy():
            return False
        self._commits.hurry()
        return True

    # what is to be done

    def advance(self, *, now_ms: int | None = None) -> list[Action[Message]]:
        """Return what is to be done now, in this order where it matters: what was asked for before, starts, commits."""
        self._tick(now_ms)
        if not self._is_withdrawing:
            self._alarms.ring(now_ms=self._now)
        self._is_withdrawing = False
        self._turns.hand_out(self._start, self._hear, now_ms=self._now)
        if self._touched or self._rooms.refused:
            self._look_at_logs()
        if self._commits.changed:
            self._commit()
        if self._leaving or self.is_stopping:
            self._let_leave()
        out, self._out = self._out, []
        return out

    def next_deadline_ms(self) -> int | None:
        """When `advance` has something to do next without a new fact; None if never. May be early, never late."""
        return self._alarms.next_ms

    # queries

    def is_idle(self) -> bool:
        """Whether nothing goes on, and nothing will by itself."""
        return not self._commits.changed and not self._is_busy()

    def wants_messages(self) -> bool:
        """Whether a worker could begin at once with something new."""
        return self._turns.has_room()

    def stats(self) -> RunnerStats:
        """The figures of this moment."""
        logs = {name: log.dispatcher.stats() for name, log in self._logs.items()}
        held = sum(len(log.waiting) for log in self._logs.values())
        return RunnerStats(running=self._turns.busy, held=held, logs=logs, **self._counts)

    def metrics(self, *, busiest: int, now_ms: int | None = None) -> list[MetricRow]:
        """The same as rows, and the health of each log with its age at this moment."""
        self._tick(now_ms)
        for log in self._logs.values():
            self._apply(log, log.dispatcher.handle_timeout(now_ms=self._now))
        return rows_of(self.stats(), self._logs.values(), busiest)

    def why_blocked(self, name: str, offset: int) -> Blocking | None:
        """What a message waits for; None if it is at a handler, or done."""
        log = self.log(name)
        if offset in log.waiting:
            return Blocking(BlockReason.RETRY_WAIT)
        return log.dispatcher.why_blocked(offset)

    def busiest_keys(self, most: int) -> list[BusyKey]:
        """The keys with the most messages that are not done."""
        return busiest_keys(self._logs.values(), most)

    # beginnings and ends

    def _start(self, run: Run[Message]) -> None:
        log = run.log
        log.let_go(run.deliveries)
        if log.is_leaving:
            return
        self._turns.busy += 1
        log.runs[run] = None
        if self._timeouts.begin(now_ms=self._now):
            self._watch()
        self._out.append(run)

    def _count_done(self, run: Run[Message], many: int) -> None:
        """Settle the first messages of a run."""
        log, deliveries = run.log, run.deliveries
        self._forget_failures(log, (each.offset for each in deliveries[:many]))
        settle = log.dispatcher.ack if many == 1 else log.dispatcher.ack_through
        self._settle(log, settle(*deliveries[many - 1].receipt, now_ms=self._now))

    def _verdict(self, run: Run[Message], raised: BaseException) -> Verdict:
        return verdict(run, raised, now_ms=self._now)

    def _end_late(self, run: Run[Message], raised: BaseException | None) -> BaseException | None:
        """The answer of a handler that was let go counts for nothing."""
        self._counts["late"] += 1
        self._end_abandoned(run)
        return None if raised is None else self._verdict(run, raised).raised

    def _end_well(self, ended: dict[Log[Message], list[Run[Message]]]) -> None:
        """Settle what these have done, log by log."""
        for log, runs in ended.items():
            self._counts["done"] += len(runs)
            if log.has_batches or len(runs) == 1:
                for run in runs:
                    self._count_done(run, len(run.deliveries))
            else:
                self._forget_failures(log, (run.delivery.offset for run in runs))
                receipts = [run.delivery.receipt for run in runs]
                self._settle(log, log.dispatcher.ack_many(receipts, now_ms=self._now))
            for following in filter(None, map(next_run, runs)):
                self._turns.add(following)
        ended.clear()

    def _forget_failures(self, log: Log[Message], offsets: Iterable[int]) -> None:
        if log.errors or log.alone:
            for offset in offsets:
                log.forget(offset)

    def _end_badly(self, run: Run[Message], how: Verdict) -> None:
        done, error, is_clear, raised = how
        if isinstance(raised, NotAwaitedError):  # so would every other one
            self.fail(raised)
        if done:
            self._count_done(run, done)
        log, failed = run.log, run.deliveries[done]
        log.let_go(run.behind)  # a batch that breaks goes back to its log as a whole
        if isinstance(error, RetryLater) and not log.is_leaving:
            self._counts["put_off"] += 1
            self._put_off(log, failed, error.delay_ms)
        elif isinstance(error, RetryLater | NotAwaitedError) or not isinstance(error, Exception):
            self._counts["released"] += 1
            self._release(log, failed)
        else:
            self._counts["rejected" if isinstance(error, Reject) else "failed"] += 1
            if is_clear:
                self._fail(log, failed, error)
            else:
                log.alone.update(each.offset for each in run.deliveries)
                self._release(log, failed)

    def _fail(self, log: Log[Message], failed: Deliver[Message], error: Exception) -> None:
        log.errors[failed.offset] = error
        end = log.dispatcher.reject if isinstance(error, Reject) else log.dispatcher.nack
        self._settle(log, end(*failed.receipt, now_ms=self._now))
        self._set_alarm(log)

    def _release(self, log: Log[Message], delivery: Deliver[Message]) -> None:
        """Return a message to its log. While that stays, the message waits a little: no handler may spin."""
        self._put_off(log, delivery, 0 if log.is_leaving else self._config.retry.base_delay_ms)

    def _put_off(self, log: Log[Message], delivery: Deliver[Message], delay_ms: int) -> None:
        """Return a message to its log for a while, without a failure; its key waits for it."""
        self._apply(log, log.dispatcher.release(*delivery.receipt, delay_ms=delay_ms, now_ms=self._now))
        self._set_alarm(log)

    def _end_abandoned(self, run: Run[Message]) -> None:
        held = self._leftovers.ended(run)
        if held is not None:
            self._turns.add(held)

    def _settle(self, log: Log[Message], effects: list[Effect[Message]]) -> None:
        self._commits.note(log)
        self._apply(log, effects)

    def _apply(self, log: Log[Message], effects: list[Effect[Message]]) -> None:
        """Act on what the dispatcher of a log has said; the log may have something for a worker now."""
        self._hear(log, effects)
        self._turns.want(log)

    def _hear(self, log: Log[Message], effects: list[Effect[Message]]) -> None:
        for effect in effects:
            match effect:
                case CursorAdvanced() | Resumed() | Deliver() | Released():
                    pass  # commits look at the cursor; room is counted below; only pulls deliver; handlers end by facts
                case Done(offset):
                    if log.tells_settled:
                        log.settled.append(offset)
                case DeadLetter():
                    self._give_up(log, effect)
                case Load(offset):
                    self._load(log, offset)
                case _:
                    self._notice(log, effect)
        self._rooms.count(log)
        self._touched[log] = None

    def _notice(self, log: Log[Message], effect: Effect[Message]) -> None:
        if isinstance(effect, Dropped | Skipped | Settled):
            log.forget(effect.offset)
            self._commits.note(log)
        self._out.append(Noticed(log, effect))

    def _give_up(self, log: Log[Message], effect: DeadLetter[Message]) -> None:
        error = log.errors.get(effect.offset)
        if not self._writes:
            self.fail(error or ArgumentError("dead_letter", None, "be given, as a key is in quarantine"))
            return
        log.letters += 1
        letter = Letter(log.name, effect.offset, effect.key, effect.item, effect.failures, error)
        self._out.append(WriteLetter(log, letter))

    def _write(self, asked: WriteLetter[Message]) -> None:
        if asked.log.letters:
            self._out.append(asked)

    def _load(self, log: Log[Message], offset: int) -> None:
        if self._loads:
            log.to_load.append(offset)
        else:
            self._apply(log, log.dispatcher.loaded(offset, log.kept.pop(offset), now_ms=self._now))

    # time

    def _set_alarm(self, log: Log[Message]) -> None:
        due = log.dispatcher.next_deadline_ms()
        if due is not None and (log.alarm_ms is None or due < log.alarm_ms):
            log.alarm_ms = due
            self._alarms.at(due, partial(self._let_time_act, log, due))

    def _let_time_act(self, log: Log[Message], due_ms: int) -> None:
        if log.alarm_ms == due_ms and not log.is_gone:  # an alarm that is not the last one set has nothing to say
            log.alarm_ms = None
            self._apply(log, log.dispatcher.handle_timeout(now_ms=self._now))
            self._set_alarm(log)

    def _watch(self) -> None:
        if self._timeouts.due_ms is not None:
            self._alarms.at(self._timeouts.due_ms, self._look_at_timeouts)

    def _look_at_timeouts(self) -> None:
        for overdue in self._timeouts.look(now_ms=self._now):
            self._counts["overdue"] += 1
            self._out.append(overdue)
            self._cancel([overdue.run], Why.TIMEOUT)
        self._watch()

    # commits and room

    def _commit(self) -> None:
        for commit in self._commits.due(now_ms=self._now):
            self._alarms.at(commit.log.commit_at_ms, _wake_up)
            self._out.append(commit)

    def _look_at_logs(self) -> None:
        """Pass on what is settled, ask for loads, and note which logs are full, or have a quarter of their room."""
        for log in self._touched:
            if log.settled and not log.is_settling:
                offsets, log.settled = tuple(log.settled), []
                log.is_settling = True
                self._out.append(Settle(log, offsets))
            if log.is_leaving:
                continue
            if log.to_load and not log.is_loading:
                wanted, log.to_load = tuple(log.to_load), []
                log.is_loading = True
                self._out.append(LoadMany(log, wanted))
            self._out += self._rooms.newly_full(log)
        self._touched.clear()
        self._out += self._rooms.newly_refused()
        self._out += self._rooms.newly_roomy()


def _wake_up() -> None:
    """Do nothing: that `Heart.advance` is called is enough."""
