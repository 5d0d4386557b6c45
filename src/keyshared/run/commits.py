"""What becomes of effects and of calls: dead letters, loads, commits and reports of settled messages."""

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
)
from keyshared.effects import DeadLetter as DeadLetterWanted
from keyshared.errors import ArgumentError
from keyshared.run.actions import Commit, LoadMany, Noticed, Settle, WriteDeadLetter
from keyshared.run.assignment import Assignment, Trouble
from keyshared.run.assignments import Assignments
from keyshared.run.functions import NotAwaitedError
from keyshared.run.reports import ERROR, WARNING, Report, cause, duration
from keyshared.run.values import DeadLetter, RunnerConfig, RunnerStats

__all__ = ["Storing"]

_FIRST_DELAY_MS: Final = 100
_COUNTS: Final = RunnerStats._fields[2:-1]  # those that only grow

Message = TypeVar("Message")


class Storing(Assignments[Message]):
    """Acts on effects, and takes the outcome of the calls that they need; see `Engine`."""

    def __init__(self, config: RunnerConfig, *, ahead: int = 0, **abilities: bool) -> None:
        super().__init__(config, ahead=ahead, **abilities)
        self._counts = dict.fromkeys(_COUNTS, 0)

    # outcomes of calls

    def written(
        self, asked: WriteDeadLetter[Message], error: BaseException | None, *, now_ms: int | None = None
    ) -> None:
        """A dead letter is written, or its write has failed: then it is tried again, and at last the runner stops."""
        self.note_time(now_ms=now_ms)
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
                log.troubles[dead.offset].note("blocked", now_ms=self._now)  # a copy was written, and its key waits
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
        self.note_time(now_ms=now_ms)
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
        self.note_time(now_ms=now_ms)
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
        self.note_time(now_ms=now_ms)
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

    # effects

    def _settle(self, log: Assignment[Message], effects: list[Effect[Message]]) -> None:
        self._changed[log] = None
        self._apply(log, effects)

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
        if self._config.rules is not None and self._config.rules.group_of is not None:
            self._set_alarm(log)  # what went out may have used up the permits of a group

    def _notice(self, log: Assignment[Message], effect: Effect[Message]) -> None:
        if isinstance(effect, Blocked | Dropped):
            trouble = log.troubles.get(effect.offset) or Trouble(effect.key)
            text = f"after {trouble.failures} failures ({cause(trouble.error)})"
            fields: dict[str, Any] = {"failures": trouble.failures, "reason": cause(trouble.error)}
            if isinstance(effect, Blocked):
                trouble.note("blocked", now_ms=self._now)
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
        trouble.note("dead letter", now_ms=self._now)
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

    # calls that have failed, and reports

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

    # time, commits and memory

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
