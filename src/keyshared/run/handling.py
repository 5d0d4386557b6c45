"""What becomes of messages: they are submitted, handled, tried again, given up, committed and settled."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from keyshared.effects import (
    Blocked,
    CursorAdvanced,
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
from keyshared.effects import DeadLetter as DeadLetterWanted
from keyshared.errors import ArgumentError
from keyshared.hashing.named import Key
from keyshared.run.actions import (
    Action,
    Commit,
    LoadMany,
    Noticed,
    Overdue,
    Replace,
    Settle,
    WriteDeadLetter,
)
from keyshared.run.assignment import Assignment, Run, Trouble, Why
from keyshared.run.assignments import GRACE_MS, Assignments
from keyshared.run.batches import Verdict, next_run, verdict
from keyshared.run.errors import CrashedError, HungWorkersError, Reject, RetryLater, RoomError
from keyshared.run.functions import NotAwaitedError
from keyshared.run.reports import DEBUG, ERROR, INFO, WARNING, Report, cause, duration
from keyshared.run.schedule import Watch
from keyshared.run.values import DeadLetter, RunnerConfig

__all__ = ["Handling"]

_FIRST_DELAY_MS: Final = 100
_MOST_CREDIT: Final = 100  # messages that are submitted before memory is counted
_RETURNED_ANYWAY: Final = "the handler was cancelled, and returned all the same"
_COUNTS: Final = (
    "done",
    "failed",
    "rejected",
    "postponed",
    "released",
    "late",
    "overdue",
    "replaced",
    "expired",
    "dead_letters",
    "commits",
)

Message = TypeVar("Message")


class Handling(Assignments[Message]):
    """Decides what happens with each message; see `Engine`."""

    def __init__(
        self,
        config: RunnerConfig,
        *,
        ahead: int,
        cancels: bool,
        commits: bool,
        writes: bool,
        loads: bool,
        settles: bool,
    ) -> None:
        super().__init__(config, ahead=ahead, cancels=cancels, commits=commits, settles=settles, loads=loads)
        self._writes = writes
        self._watch = Watch(config.timeout_ms, config.slow_ms, GRACE_MS if cancels else 0, self._logs)
        self._hung = 0
        self._counts = dict.fromkeys(_COUNTS, 0)

    # messages

    def submit(self, name: str, offset: int, key: Key, message: Message, *, now_ms: int | None = None) -> None:
        """Take a message for which there is `room`. Raises what `KeySharedDispatcher.offer` raises."""
        self.submit_many(name, [(offset, key, message)], now_ms=now_ms)

    def submit_many(self, name: str, rows: Iterable[Sequence[Any]], *, now_ms: int | None = None) -> None:
        """Take messages for which there is `room`: those before the first one for which `offer` raises.

        Each row is an offset, a key and a message, and perhaps the time before which no handler begins.
        """
        self.tick(now_ms)
        self.check_open()
        log, heard = self._open_log(name), []
        offer, now, first, timeline = log.dispatcher.offer, self._now, None, log.timeline
        try:
            for row in rows:
                try:
                    offset, key, message, *later = row
                    (not_before,) = later or (None,)
                except (TypeError, ValueError):
                    raise ArgumentError("messages", row, "be tuples of offset, key and message") from None
                effects = offer(offset, key, message, not_before_ms=not_before, now_ms=now)
                if first is None:
                    first = offset
                if timeline is not None:
                    timeline.submitted(offset, now)
                if effects:
                    heard += effects
                    self._keep_spilled(log, effects, message)
                if not_before is not None:
                    self._set_alarm(log)
        finally:
            if first is not None:
                log.sample(first, now)
            if log.stored is None or heard:
                self._changed[log] = None
            self._apply(log, heard)
            log.credit = 0 if log.is_leaving else min(self._memory.room(log) // len(self._logs), _MOST_CREDIT)

    def submit_on_credit(self, name: str, offset: int, key: Key, message: Message, *, now_ms: int) -> bool:
        """Take a message if its log has credit: as `submit`, without a count of what is in memory; return whether so.

        Gain: a message costs 3 us less.
        """
        log = self._logs.get(name)
        if log is None or not log.credit or self.is_stopping:
            return False
        self._now = max(self._now, now_ms)
        effects = log.dispatcher.offer(offset, key, message, now_ms=self._now)
        log.credit -= 1
        if now_ms >= log.sample_at_ms:
            log.sample(offset, now_ms)
        if effects:
            self._changed[log] = None
            self._keep_spilled(log, effects, message)
            self._apply(log, effects)
        elif not log.is_hungry:
            self._schedule.want(log)
        return True

    def _keep_spilled(self, log: Assignment[Message], effects: list[Effect[Message]], message: Message) -> None:
        """Keep the message of which the dispatcher has dropped the payload, if it cannot be read again."""
        if not self._loads:
            for effect in effects:
                if isinstance(effect, Spilled):
                    log.kept[effect.offset] = message

    def check_space(self, name: str) -> None:
        """Raise `RoomError` if not one more message of a log can be tracked, also beyond the window."""
        self.check_open()
        log = self._open_log(name)
        if not log.dispatcher.free_slots:
            raise RoomError(name, log.dispatcher.config.max_tracked)

    def ended(
        self, run: Run[Message], raised: BaseException | None, *, now_ms: int | None = None
    ) -> BaseException | None:
        """A handler has ended: it returned, or it raised something. Return what it raised, as it counts."""
        return self.ended_many([(run, raised)], now_ms=now_ms)[0]

    def ended_many(
        self, ends: Iterable[tuple[Run[Message], BaseException | None]], *, now_ms: int | None = None
    ) -> list[BaseException | None]:
        """Handlers have ended, in this order. As `ended` for each: those that returned are settled together."""
        self.tick(now_ms)
        counted: list[BaseException | None] = []
        well: dict[Assignment[Message], list[Run[Message]]] = {}
        for run, raised in ends:
            self._free_worker(run)
            if run.log.timeline is not None:
                run.log.timeline.freed(run.delivery.key, self._now)
            if run.is_abandoned:
                counted.append(self._end_late(run, raised))
                continue
            del run.log.runs[run]
            if raised is None and run.cancelled is not None:
                raised = BaseException(_RETURNED_ANYWAY)  # noqa: PLW2901  # it may have left something out
            if raised is None:
                well.setdefault(run.log, []).append(run)
                counted.append(None)
            else:
                self._end_well(well)
                how = self._verdict(run, raised)
                self._end_badly(run, how)
                counted.append(how.raised)
        self._end_well(well)
        return counted

    def withdrawn(self, run: Run[Message], *, now_ms: int | None = None) -> None:
        """A run was taken back before its handler began."""
        self.tick(now_ms)
        self._free_worker(run)
        if run.is_abandoned:
            self._schedule.ended_abandoned(run)
            return
        del run.log.runs[run]
        self._counts["released"] += 1
        self._release(run.log, run.delivery)

    # outcomes of calls

    def written(
        self, asked: WriteDeadLetter[Message], error: BaseException | None, *, now_ms: int | None = None
    ) -> None:
        """A dead letter is written, or its write has failed: then it is tried again, and at last the runner stops."""
        self.tick(now_ms)
        log, dead = asked.log, asked.dead_letter
        if log.is_gone:
            return
        if error is None:
            log.dead_letters -= bool(log.dead_letters)  # none are waited for once the time of a leaving log is over
            self._counts["dead_letters"] += 1
            text = f"written to the dead letters after {dead.failures} failures ({cause(dead.error)})"
            self._report(WARNING, "dead_lettered", text, log, dead, reason=cause(dead.error), failures=dead.failures)
            self._settle(log, log.dispatcher.dead_lettered(dead.offset, now_ms=self._now))
            if log.dispatcher.describe(dead.offset) is None:
                log.forget(dead.offset)
            else:
                log.troubles[dead.offset].note("blocked", self._now)  # a copy was written, and its key waits
        elif not self._try_again(asked, error, "dead_letter"):
            log.dead_letters -= bool(log.dead_letters)
            self.fail(error, log=log, offset=dead.offset, key=dead.key, during="the write of a dead letter")

    def loaded(
        self,
        asked: LoadMany[Message],
        messages: dict[int, Message | None],
        error: BaseException | None = None,
        *,
        now_ms: int | None = None,
    ) -> None:
        """Messages were read again, None for one that its log does not have any more.

        With an error, only these were read: the others are tried again, and at last the runner stops.
        """
        self.tick(now_ms)
        log = asked.log
        if log.is_gone:
            return
        log.is_loading = False
        self._touched[log] = None
        expired = [offset for offset, message in messages.items() if message is None]
        if expired:
            self._lose(log, expired)
        for offset, message in messages.items():
            if message is not None:
                self._apply(log, log.dispatcher.loaded(offset, message, now_ms=self._now))
        if error is not None and not log.is_leaving:
            rest = tuple(offset for offset in asked.offsets if offset not in messages)
            if self._try_again(asked._replace(offsets=rest), error, "load"):
                log.is_loading = True
            else:
                self.fail(error, log=log, offset=rest[0] if rest else None, during="a load")

    def committed(self, asked: Commit[Message], error: BaseException | None, *, now_ms: int | None = None) -> None:
        """A commit is made, or has failed: then one is tried again, and at last the runner stops."""
        self.tick(now_ms)
        log = asked.log
        if log.is_gone:
            return
        log.is_committing = False
        if error is None:
            self._counts["commits"] += 1
            log.commit_attempts = 0
            log.committed, log.is_recorded = asked.position, True
            begin = [run for run in log.unrecorded if run in asked.recorded or not log.is_cautious(run)]
            log.unrecorded = [run for run in log.unrecorded if run not in begin]
            self._out += begin
            return
        log.stored = None
        log.commit_attempts += 1
        delay = self._delay(error, log.commit_attempts)
        if delay is None:
            log.is_unstorable = True
            self.fail(error, log=log, during=f"the commit of position {asked.position}")
        else:
            self._report_call(log, "commit", error, delay)
            log.commit_at_ms = self._now + delay
            self._alarms.at(log.commit_at_ms, _wake_up)
            self._changed[log] = None

    def settled(self, asked: Settle[Message], error: BaseException | None, *, now_ms: int | None = None) -> None:
        """Settled messages are reported, or that has failed: then it is tried again, and at last the runner stops."""
        self.tick(now_ms)
        log = asked.log
        if log.is_gone:
            return
        if error is not None and self._try_again(asked, error, "settled"):
            return
        log.is_settling = False
        self._touched[log] = None
        if error is not None:
            log.settled.clear()
            log.tells_settled = False
            self.fail(error, log=log, offset=asked.offsets[0], during="a call of settled")

    def hurry(self) -> bool:
        """Commit at once if nothing else goes on; return whether there is something to commit."""
        if not self._changed or self._is_busy():
            return False
        for log in self._changed:
            if not log.commit_attempts:
                log.commit_at_ms = 0
        return True

    # actions

    def advance(self, *, now_ms: int | None = None) -> list[Action[Message]]:
        """Return all actions that are due, in this order where it matters: earlier calls, starts, commits."""
        self.tick(now_ms)
        if not self._is_withdrawing:
            self._alarms.ring(now_ms=self._now)
        self._is_withdrawing = False
        self._schedule.hand_out(self._start, self._hear, now_ms=self._now)
        if self._touched or self._memory.refused:
            self._look_at_logs()
        if self._changed:
            self._commit_changed()
        if self._leaving or self.is_stopping:
            self._let_leave()
        out, self._out = self._out, []
        return out

    def next_deadline_ms(self) -> int | None:
        """When `advance` has something to do next without a new fact; None if never. May be early, never late."""
        return self._alarms.next_ms

    def is_idle(self) -> bool:
        """Whether nothing goes on, and nothing will by itself."""
        return not self._changed and not self._is_busy()

    def wants_messages(self) -> bool:
        """Whether a worker could begin at once with something new."""
        return self._schedule.has_room()

    # beginnings

    def _start(self, run: Run[Message]) -> None:
        log = run.log
        log.let_go(run.deliveries)
        if log.is_leaving:
            return
        if log.troubles and self._is_exhausted(run):
            return
        self._schedule.busy += 1
        log.runs[run] = None
        if self._watch.begin(now_ms=self._now):
            self._set_watch()
        if self._commits and (log.cautious_below is not None or not log.is_recorded) and log.is_cautious(run):
            log.unrecorded.append(run)
            self._changed[log] = None
        else:
            self._out.append(run)

    def _is_exhausted(self, run: Run[Message]) -> bool:
        """Give a message up whose processes have ended too often while it was open; return whether that is so."""
        trouble, limit = run.log.troubles.get(run.delivery.offset), self._config.retry.max_redeliveries
        if trouble is None or limit is None or trouble.before <= limit:
            return False
        log, delivery = run.log, run.delivery
        trouble.key, trouble.error = delivery.key, CrashedError(trouble.failures)
        self._schedule.ended(run)
        text = f"given up: {trouble.error}"
        self._report(WARNING, "crashed", text, log, delivery, failures=trouble.failures, reason=cause(trouble.error))
        self._settle(log, log.dispatcher.reject(*delivery.receipt, now_ms=self._now))
        return True

    def _take_back(self, run: Run[Message]) -> None:
        self.withdrawn(run)

    # ends

    def _free_worker(self, run: Run[Message]) -> None:
        if run.is_replaced:
            self._hung -= 1
        else:
            self._schedule.busy -= 1
        if run.log.troubles:
            self._schedule.ended(run)

    def _count_done(self, run: Run[Message], many: int) -> None:
        """Settle the first messages of a run."""
        log, deliveries = run.log, run.deliveries
        self._forget_failures(log, (each.offset for each in deliveries[:many]))
        settle = log.dispatcher.ack if many == 1 else log.dispatcher.ack_through
        self._settle(log, settle(*deliveries[many - 1].receipt, now_ms=self._now))

    def _verdict(self, run: Run[Message], raised: BaseException) -> Verdict:
        return verdict(run, raised, now_ms=self._now)

    def _end_late(self, run: Run[Message], raised: BaseException | None) -> BaseException | None:
        """End an abandoned handler: its outcome does not count."""
        self._counts["late"] += 1
        self._schedule.ended_abandoned(run)
        return None if raised is None else self._verdict(run, raised).raised

    def _end_well(self, ended: dict[Assignment[Message], list[Run[Message]]]) -> None:
        """Settle all messages of these runs, log by log."""
        for log, runs in ended.items():
            self._counts["done"] += len(runs)
            if log.has_batches or len(runs) == 1:
                for run in runs:
                    self._count_done(run, len(run.deliveries))
            else:
                self._forget_failures(log, (run.delivery.offset for run in runs))
                receipts = [run.delivery.receipt for run in runs]
                self._settle(log, log.dispatcher.ack_many(receipts, now_ms=self._now))
            if log.has_batches:
                for following in filter(None, map(next_run, runs)):
                    self._schedule.add(following)
        ended.clear()

    def _forget_failures(self, log: Assignment[Message], offsets: Iterable[int]) -> None:
        if log.troubles or log.alone:
            for offset in offsets:
                log.forget(offset)

    def _end_badly(self, run: Run[Message], how: Verdict) -> None:
        done, error, is_clear, raised = how
        log, failed = run.log, run.deliveries[done]
        if isinstance(raised, NotAwaitedError):  # every other message would end like this
            self.fail(raised, log=log, offset=failed.offset, key=failed.key, during="a handler")
        if done:
            self._count_done(run, done)
        log.let_go(run.behind)  # a batch that breaks goes back to its log as a whole
        if isinstance(error, RetryLater) and not log.is_leaving:
            self._postpone(log, failed, error)
        elif isinstance(error, RetryLater | NotAwaitedError | KeyboardInterrupt) or run.cancelled is Why.LEAVES:
            self._counts["released"] += 1
            self._report(DEBUG, "released", f"given back ({cause(error)})", log, failed)
            self._release(log, failed)
        else:
            self._counts["rejected" if isinstance(error, Reject) else "failed"] += 1
            if is_clear:
                self._fail(log, failed, error)
            else:
                text = f"a batch of {len(run.deliveries)} failed ({cause(error)}); its messages come again one by one"
                self._report(INFO, "failed", text, log, failed, reason=cause(error), error=error)
                log.alone.update(each.offset for each in run.deliveries)
                self._release(log, failed)

    def _fail(self, log: Assignment[Message], failed: Deliver[Message], error: BaseException) -> None:
        """Try a message again later, or give it up."""
        trouble = log.trouble_of(failed)
        trouble.failures = failed.failures + 1 + trouble.before
        trouble.error = error
        trouble.note("retry", self._now)
        policy, why = self._config.retry, cause(error)
        delay = None if isinstance(error, Reject) else policy.delay_ms(trouble.failures)
        if delay is None:
            effects = log.dispatcher.reject(*failed.receipt, now_ms=self._now)
            event, text = ("rejected", why) if isinstance(error, Reject) else ("failed", f"{why}; no retry is left")
        else:
            effects = log.dispatcher.nack(*failed.receipt, delay_ms=delay, now_ms=self._now)
            trouble.due_ms = self._now + delay
            event, text = "failed", f"{why}; retry in {duration(delay)}"
        self._report(INFO, event, f"{event} ({text})", log, failed, failures=trouble.failures, reason=why, error=error)
        self._settle(log, effects)
        self._set_alarm(log)

    def _postpone(self, log: Assignment[Message], delivery: Deliver[Message], error: RetryLater) -> None:
        self._counts["postponed"] += 1
        log.trouble_of(delivery).note("postponed", self._now, self._now + error.delay_ms)
        self._report(DEBUG, "postponed", f"comes again in {duration(error.delay_ms)}", log, delivery)
        if error.group and delivery.key is not None:
            self._postpone_group(delivery.key, self._now + error.delay_ms)
        self._put_off(log, delivery, error.delay_ms)

    def _postpone_group(self, key: bytes, until_ms: int) -> None:
        """Let all keys of a group wait; see `Engine`."""

    def _release(self, log: Assignment[Message], delivery: Deliver[Message]) -> None:
        """Return a message to its log. Unless that leaves, the message waits a little: no handler may spin."""
        self._put_off(log, delivery, 0 if log.is_leaving else self._config.retry.base_delay_ms)

    def _put_off(self, log: Assignment[Message], delivery: Deliver[Message], delay_ms: int) -> None:
        """Return a message to its log for a while, without a failure; its key waits for it."""
        self._apply(log, log.dispatcher.release(*delivery.receipt, delay_ms=delay_ms, now_ms=self._now))
        self._set_alarm(log)

    def _settle(self, log: Assignment[Message], effects: list[Effect[Message]]) -> None:
        self._changed[log] = None
        self._apply(log, effects)

    # effects

    def _apply(self, log: Assignment[Message], effects: list[Effect[Message]]) -> None:
        """Act on the effects of a dispatcher; its log may have something for a worker now."""
        self._hear(log, effects)
        self._schedule.want(log)

    def _hear(self, log: Assignment[Message], effects: list[Effect[Message]]) -> None:
        for effect in effects:
            match effect:
                case CursorAdvanced() | Resumed() | Deliver() | Released():
                    pass  # commits look at the cursor; capacity is counted below; only pulls deliver
                case Done(offset):
                    if log.tells_settled:
                        log.settled.append(offset)
                case DeadLetterWanted():
                    self._give_up(log, effect)
                case Load(offset):
                    self._load(log, offset)
                case _:
                    self._notice(log, effect)
        self._memory.count(log)
        self._touched[log] = None

    def _notice(self, log: Assignment[Message], effect: Effect[Message]) -> None:
        if isinstance(effect, Blocked | Dropped):
            trouble = log.troubles.get(effect.offset) or Trouble(effect.key)
            text = f"after {trouble.failures} failures ({cause(trouble.error)})"
            fields: dict[str, Any] = {"failures": trouble.failures, "reason": cause(trouble.error)}
            if isinstance(effect, Blocked):
                trouble.note("blocked", self._now)
                text = f"blocked {text}; its key waits for unblock or park"
                self._report(WARNING, "blocked", text, log, effect, **fields)
            else:
                self._report(WARNING, "dropped", f"dropped {text}", log, effect, **fields)
        if isinstance(effect, Dropped | Skipped | Settled):
            log.forget(effect.offset)
            self._changed[log] = None
        self._out.append(Noticed(log, effect))

    def _give_up(self, log: Assignment[Message], effect: DeadLetterWanted[Message]) -> None:
        trouble = log.troubles.setdefault(effect.offset, Trouble(effect.key, effect.failures))
        trouble.note("dead letter", self._now)
        offset, key, error = effect.offset, effect.key, trouble.error
        if not self._writes:
            no_store = ArgumentError("dead_letter", None, "be given, as a key is in quarantine")
            during = "a handler (there is no dead_letter)"
            self.fail(error or no_store, log=log, offset=offset, key=key, during=during)
            return
        log.dead_letters += 1
        dead = DeadLetter(log.name, offset, key, effect.item, trouble.failures, error, effect.attempt)
        self._out.append(WriteDeadLetter(log, dead))

    def _load(self, log: Assignment[Message], offset: int) -> None:
        if self._loads:
            log.to_load.append(offset)
        else:
            self._apply(log, log.dispatcher.loaded(offset, log.kept.pop(offset), now_ms=self._now))

    def _lose(self, log: Assignment[Message], offsets: list[int]) -> None:
        """Settle messages that their log does not have any more: that is a loss, and reported as one."""
        self._counts["expired"] += len(offsets)
        known = [log.dispatcher.describe(offset) for offset in offsets]
        keys = sorted({each.key for each in known if each is not None and each.key is not None})
        some = ", ".join(repr(key) for key in keys[:5]) + (", ..." if len(keys) > 5 else "")  # noqa: PLR2004
        text = (
            f"{len(offsets)} messages (offsets {offsets[0]} to {offsets[-1]}, keys {some or 'none'}) expired: the log "
            "no longer has them, and they were not handled; they are lost"
        )
        fields = {"log": log.name, "offsets": offsets, "keys": keys, "reason": "expired"}
        self.reports.append(Report(ERROR, "expired", text, fields))
        for offset in offsets:
            self._settle(log, log.dispatcher.gone(offset, now_ms=self._now))

    # calls that have failed

    def _delay(self, error: BaseException, attempts: int) -> int | None:
        """Return how long to wait before a call is tried again; None if it is not."""
        if attempts >= self._config.call_attempts or not isinstance(error, Exception):
            return None
        return None if isinstance(error, NotAwaitedError) else _FIRST_DELAY_MS << (attempts - 1)

    def _try_again(self, asked: Any, error: BaseException, name: str) -> bool:  # noqa: ANN401  # one of three actions
        """Set an alarm for the next attempt of a call, and return whether there is one."""
        delay = self._delay(error, asked.attempts)
        if delay is None:
            return False
        self._report_call(asked.log, name, error, delay)
        self._alarms.at(self._now + delay, partial(self._ask_again, asked._replace(attempts=asked.attempts + 1)))
        return True

    def _ask_again(self, asked: Any) -> None:  # noqa: ANN401  # as above
        if not asked.log.is_gone and (asked.log.dead_letters or not isinstance(asked, WriteDeadLetter)):
            self._out.append(asked)

    def _report_call(self, log: Assignment[Message], name: str, error: BaseException, delay: int) -> None:
        text = f"{name} failed ({cause(error)}); the next attempt is in {duration(delay)}"
        fields = {"log": log.name, "call": name, "reason": cause(error)}
        self.reports.append(Report(WARNING, "call_failed", text, fields, error))

    def _report(
        self,
        level: int,
        event: str,
        text: str,
        log: Assignment[Message],
        about: Any,  # noqa: ANN401  # whatever has an offset and a key, and perhaps an attempt
        *,
        error: BaseException | None = None,
        **fields: object,
    ) -> None:
        known = {"log": log.name, "offset": about.offset, "key": about.key, "attempt": getattr(about, "attempt", None)}
        self.reports.append(Report(level, event, text, known | fields, error))

    # time

    def _set_alarm(self, log: Assignment[Message]) -> None:
        due = log.dispatcher.next_deadline_ms()
        if due is not None and (log.alarm_ms is None or due < log.alarm_ms):
            log.alarm_ms = due
            self._alarms.at(due, partial(self._let_time_act, log, due))

    def _let_time_act(self, log: Assignment[Message], due_ms: int) -> None:
        if log.alarm_ms == due_ms and not log.is_gone:  # an alarm that is not the last one set has nothing to do
            log.alarm_ms = None
            self._apply(log, log.dispatcher.handle_timeout(now_ms=self._now))
            self._set_alarm(log)

    def _set_watch(self) -> None:
        if self._watch.due_ms is not None:
            self._alarms.at(self._watch.due_ms, self._look_at_runs)

    def _look_at_runs(self) -> None:
        for run, ran_ms, is_overdue, is_slow, is_hung in self._watch.look(now_ms=self._now):
            if is_overdue:
                self._counts["overdue"] += 1
                self._out.append(Overdue(run, ran_ms))
            if is_slow:
                event = "overdue" if is_overdue else "slow"
                text = f"its handler has run for {duration(ran_ms)}, and its key waits"
                self._report(WARNING, event, text, run.log, run.delivery, ran_ms=ran_ms, failures=run.delivery.failures)
            if is_overdue:
                self._cancel([run], Why.TIMEOUT)
            if is_hung:
                self._replace(run)
        self._set_watch()

    def _replace(self, run: Run[Message]) -> None:
        """Give the place of a hung handler to another worker; its key goes on waiting."""
        if self._hung >= self._config.max_hung_workers:
            log, delivery = run.log, run.delivery
            self.fail(HungWorkersError(self._hung + 1), log=log, offset=delivery.offset, key=delivery.key)
            return
        run.is_replaced = True
        self._hung += 1
        self._schedule.busy -= 1
        self._counts["replaced"] += 1
        text = "its handler hangs; another worker takes its place, and its key waits for the handler"
        self._report(WARNING, "replaced", text, run.log, run.delivery)
        self._out.append(Replace(run))

    # commits and memory

    def _commit_changed(self) -> None:
        """Commit logs of which a restart would redo something else, one commit of a log at a time."""
        for log in list(self._changed):
            if log.is_unstorable or not self._commits:
                del self._changed[log]
            elif not log.is_committing and (log.commit_at_ms <= self._now or self._is_urgent(log)):
                if not log.is_leaving or log.waits_for_no_handler():  # else there is a last commit to make
                    del self._changed[log]
                self._commit(log)

    def _is_urgent(self, log: Assignment[Message]) -> bool:
        return not log.commit_attempts and bool(log.unrecorded or log.waits_for_no_handler())

    def _commit(self, log: Assignment[Message]) -> None:
        to_store = log.to_store()
        if to_store is None or (to_store == log.stored and not log.unrecorded):
            return
        log.stored = to_store
        log.is_committing = True
        log.commit_at_ms = self._now + self._config.commit_every_ms
        self._alarms.at(log.commit_at_ms, _wake_up)
        self._out.append(Commit(log, *to_store, tuple(log.unrecorded)))

    def _look_at_logs(self) -> None:
        """Report settled messages, ask for loads, and find logs that are full, or have a quarter of their capacity."""
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
            self._out += self._memory.newly_full(log, is_idle=self._is_idle_for(log))
        self._touched.clear()
        if self._memory.refused:
            self._out += self._memory.newly_refused()
        if self._memory.full:
            self._out += self._memory.newly_roomy(is_idle=self._loads and self._schedule.has_room())


def _wake_up() -> None:
    """Do nothing: that `Handling.advance` is called is enough."""
