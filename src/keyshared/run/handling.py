"""What becomes of messages: they are submitted and handled, and come again, are done, or are given up."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

from keyshared.effects import Deliver, Effect, Spilled
from keyshared.errors import ArgumentError
from keyshared.hashing import Key
from keyshared.run.actions import Action, Overdue, Replace
from keyshared.run.assignment import Assignment, Run, Why
from keyshared.run.assignments import GRACE_MS
from keyshared.run.batches import Verdict, next_run, verdict
from keyshared.run.commits import Storing
from keyshared.run.errors import CrashedError, HungWorkersError, Reject, RetryLater, RoomError
from keyshared.run.functions import NotAwaitedError
from keyshared.run.reports import DEBUG, INFO, WARNING, cause, duration
from keyshared.run.schedule import Watch
from keyshared.run.values import RunnerConfig

__all__ = ["Handling"]

_MOST_CREDIT: Final = 100  # messages that are submitted before memory is counted
_RETURNED_ANYWAY: Final = "the handler was cancelled, and returned all the same"

Message = TypeVar("Message")


class Handling(Storing[Message]):
    """Decides what happens with each message; see `Engine`."""

    def __init__(self, config: RunnerConfig, *, ahead: int = 0, **abilities: bool) -> None:
        super().__init__(config, ahead=ahead, **abilities)
        grace_ms = GRACE_MS if self._cancels else 0
        self._watch = Watch(config.timeout_ms, config.slow_ms, grace_ms, self._logs)

    # messages

    def submit(self, name: str, offset: int, key: Key, message: Message, *, now_ms: int | None = None) -> None:
        """Take a message for which there is `room`. Raises what `KeySharedDispatcher.offer` raises."""
        self.submit_many(name, [(offset, key, message)], now_ms=now_ms)

    def submit_many(self, name: str, rows: Iterable[Sequence[Any]], *, now_ms: int | None = None) -> None:
        """Take messages for which there is `room`: those before the first one for which `offer` raises.

        Each row is an offset, a key and a message, and perhaps the time before which no handler begins.
        """
        self.note_time(now_ms=now_ms)
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
                    timeline.submitted(offset, now_ms=now)
                if effects:
                    heard += effects
                    self._keep_spilled(log, effects, message)
                if not_before is not None:
                    self._set_alarm(log)
        finally:
            if first is not None:
                log.sample(first, now_ms=now)
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
            log.sample(offset, now_ms=now_ms)
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
        self.note_time(now_ms=now_ms)
        counted: list[BaseException | None] = []
        well: dict[Assignment[Message], list[Run[Message]]] = {}
        for run, raised in ends:
            self._free_worker(run)
            if run.log.timeline is not None:
                run.log.timeline.freed(run.delivery.key, now_ms=self._now)
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
        self.note_time(now_ms=now_ms)
        self._free_worker(run)
        if run.is_abandoned:
            self._schedule.ended_abandoned(run)
            return
        del run.log.runs[run]
        self._counts["released"] += 1
        self._release(run.log, run.delivery)

    # actions

    def advance(self, *, now_ms: int | None = None) -> list[Action[Message]]:
        """Return all actions that are due, in this order where it matters: earlier calls, starts, commits."""
        self.note_time(now_ms=now_ms)
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
        if log.waiting:
            log.let_go(run.deliveries)
        if log.is_leaving:
            return
        if log.troubles and self._is_exhausted(run):
            return
        self._schedule.busy += 1
        log.runs[run] = None
        if self._watch.due_ms is None and self._watch.begin(now_ms=self._now):
            self._set_watch()
        if self._commits and (log.cautious_below is not None or not log.is_recorded) and log.is_cautious(run):
            log.unrecorded.append(run)
            self._changed[log] = None
        else:
            self._out.append(run)

    def _is_exhausted(self, run: Run[Message]) -> bool:
        """Reject a message whose processes have ended too often while it was open; return whether that is so."""
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
        trouble.note("retry", now_ms=self._now)
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
        log.trouble_of(delivery).note("postponed", now_ms=self._now, due_ms=self._now + error.delay_ms)
        self._report(DEBUG, "postponed", f"comes again in {duration(error.delay_ms)}", log, delivery)
        if error.group and delivery.key is not None:
            self._postpone_group(delivery.key, self._now + error.delay_ms)
        self._put_off(log, delivery, error.delay_ms)

    def _postpone_group(self, key: bytes, until_ms: int) -> None:
        """Delay all keys of a group; see `Engine`."""

    def _release(self, log: Assignment[Message], delivery: Deliver[Message]) -> None:
        """Return a message to its log. Unless that leaves, the message waits a little: no handler may spin."""
        self._put_off(log, delivery, 0 if log.is_leaving else self._config.retry.base_delay_ms)

    def _put_off(self, log: Assignment[Message], delivery: Deliver[Message], delay_ms: int) -> None:
        """Return a message to its log for a while, without a failure; its key waits for it."""
        self._apply(log, log.dispatcher.release(*delivery.receipt, delay_ms=delay_ms, now_ms=self._now))
        self._set_alarm(log)

    # handlers that run for long

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
        """Free the place of a hung handler for another worker; its key goes on waiting."""
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
