"""The engine of a runner: takes facts and the time, and returns the next actions.

There is one for all logs of a runner. It holds no clock, no thread and no loop, so threads, tasks and tests with a made
up time drive the same decisions. Facts are reported by method calls; `Engine.advance` then returns all actions that are
due because of them, which lets a runner report many and act once.

What it takes care of, beyond the dispatcher of each log:

* a message is handed out only when a worker is free for it, each hungry log in its turn;
* nothing of a key runs beside a handler that has not ended, whatever became of its delivery, its log or its timeout;
* the cursor is committed when a restart would redo something else, one commit of a log at a time;
* every error of the user's functions ends in an orderly stop that names the first one.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from keyshared._checks import check_int
from keyshared.config import GroupLimits
from keyshared.dispatcher import Blocking, KeySharedDispatcher, StoredLetter
from keyshared.effects import BlockReason, Effect
from keyshared.errors import ArgumentError
from keyshared.hashing import Key, key_bytes
from keyshared.run.actions import Withdraw
from keyshared.run.assignment import Assignment, Trouble
from keyshared.run.handling import Handling
from keyshared.run.metrics import MetricRow, rows_of
from keyshared.run.reports import INFO, Stuck, cause, duration
from keyshared.run.values import BusyKey, DeadLetter, RunnerConfig, RunnerStats

__all__ = ["Engine"]

Message = TypeVar("Message")


class Engine(Handling[Message]):
    """Decides for one pool of workers and any number of logs, and answers operators as of the last `note_time`.

    Args:
        config: Settings.
        ahead: How many messages may be on the way to a worker besides those at handlers.
        cancels: Whether the runner can end a handler: cancel it, or kill its process.
        commits: Whether there is a ``commit``.
        writes: Whether there is a ``dead_letter``; if not, a dead letter stops the runner.
        loads: Whether there is a ``load``; if not, messages are kept.
        settles: Whether there is a ``settled``.

    Example:
        >>> engine = Engine(RunnerConfig(workers=1))
        >>> engine.add_log("orders")
        >>> engine.submit("orders", 0, "order-1", "created", now_ms=0)
        >>> run, = engine.advance(now_ms=0)
        >>> run.message
        'created'
        >>> engine.ended(run, None, now_ms=5)
        >>> engine.advance(now_ms=5), engine.stats().done
        ([], 1)
    """

    def __init__(self, config: RunnerConfig, *, ahead: int = 0, **abilities: bool) -> None:
        super().__init__(config, ahead=ahead, **abilities)
        self._group_limits: dict[str, dict[str, int | None]] = {}
        self._paused_groups: set[str] = set()
        self._postponed_groups: dict[str, int] = {}  # until when, because of a `RetryLater` for a group

    # figures

    def stats(self) -> RunnerStats:
        """The figures of this moment."""
        logs = {name: log.dispatcher.stats() for name, log in self._logs.items()}
        held = sum(len(log.waiting) + len(log.paused) for log in self._logs.values())
        return RunnerStats(running=self._schedule.busy + self._hung, held=held, logs=logs, **self._counts)

    def metrics(self, *, busiest: int) -> list[MetricRow]:
        """The same as rows, and the health of each log with its ages at this moment."""
        for log in self._logs.values():
            self._apply(log, log.dispatcher.handle_timeout(now_ms=self._now))
        is_up = self.error is None and not self.is_stopping
        return rows_of(self.stats(), self._logs.values(), busiest, is_up=is_up, now_ms=self._now)

    def why_blocked(self, name: str, offset: int) -> Blocking | None:
        """Return what a message waits for; None if it is at a handler, or done."""
        log = self.log(name)
        if offset in log.paused:
            return Blocking(BlockReason.GROUP_PAUSED)
        if offset in log.waiting:
            return Blocking(BlockReason.RETRY_WAIT)
        return log.dispatcher.why_blocked(offset)

    def busiest_keys(self, most: int) -> list[BusyKey]:
        """The keys with the most messages that are not done."""
        check_int("most", most, 1)
        counts = Counter((log.name, each.key) for log in self._logs.values() for each in log.dispatcher.outstanding())
        return [BusyKey(name, key, count) for (name, key), count in counts.most_common(most)]

    def stuck(self, least_ms: int) -> list[Stuck]:
        """The messages that keep others or the position waiting, oldest first.

        Args:
            least_ms: How long a handler has to run to be among them.
        """
        check_int("least_ms", least_ms, 0)
        found = [each for log in self._logs.values() for each in self._stuck_of(log, least_ms)]
        return sorted(found, key=lambda each: -each.age_ms)

    def set_log_end(self, name: str, end: int) -> None:
        """Note where a log ends, for the figure of its unread messages."""
        check_int("end", end)
        self.log(name).end = end

    # one message, one key

    def unblock(self, name: str, key: Key) -> bool:
        """Try all blocked messages of a key again, and end its quarantine; return whether there was any of that."""
        log, data = self.log(name), key_bytes(key)
        before = log.dispatcher.stats()
        effects = log.dispatcher.unblock(key, now_ms=self._now)
        after = log.dispatcher.stats()
        for trouble in log.troubles.values():
            if trouble.key == data and trouble.state == "blocked":
                trouble.failures = trouble.before = 0
                trouble.state = ""
        self._settle(log, effects)
        return (before.blocked, before.quarantined_keys) != (after.blocked, after.quarantined_keys)

    def park(self, name: str, offset: int) -> bool:
        """Skip a message that is not at a handler; return whether there was one."""
        log = self.log(name)
        known = log.dispatcher.describe(offset)
        if known is None or any(offset in run.offsets for run in log.runs):
            return False
        if known.blocking is not None and known.blocking.reason is BlockReason.BLOCKED:
            effects = log.dispatcher.park(offset, now_ms=self._now)
        else:
            run = self._schedule.take_back(log, offset)
            effects = log.dispatcher.gone(offset, now_ms=self._now)
            if run is not None:
                log.let_go((*run.deliveries, *run.behind))
                effects += log.dispatcher.release(*run.delivery.receipt, now_ms=self._now)
        log.forget(offset)
        self._report(INFO, "parked", "given up by an operator", log, known)
        self._settle(log, effects)
        return True

    def gone(self, name: str, offset: int) -> bool:
        """Settle a message, if it is at a handler when that ends; return whether there was one."""
        if self.park(name, offset):
            return True
        log = self.log(name)
        if log.dispatcher.describe(offset) is None:
            return False
        self._settle(log, log.dispatcher.gone(offset, now_ms=self._now))
        return True

    def pause_key(self, key: Key) -> None:
        """Start nothing of a key in any log until `resume_key`."""
        data = _some_key(key)
        self._schedule.paused_keys.add(data)
        runs = tuple(run for log in self._logs.values() for run in log.runs if run.delivery.key == data)
        if runs:
            self._out.append(Withdraw(runs))

    def resume_key(self, key: Key) -> None:
        """End `pause_key`."""
        self._schedule.resume(_some_key(key), self._logs.values())

    def skip_key(self, key: Key) -> int:
        """Skip all messages of a key that are not at a handler; return how many there were."""
        data = _some_key(key)
        return self._skip(lambda each: each == data)

    def redrive(self, name: str, key: Key, dead_letters: Iterable[DeadLetter[Message]]) -> int:
        """Bring dead letters of a key back, each at its place in the key; return how many were taken."""
        log = self.log(name)
        stored = [StoredLetter(each.offset, each.attempt, each.message) for each in dead_letters]
        before = log.dispatcher.stats().outstanding
        self._settle(log, log.dispatcher.redrive(key, stored, now_ms=self._now))
        return log.dispatcher.stats().outstanding - before

    # groups: of all logs, and of those that come later

    def set_group(self, name: str, limits: dict[str, int | None]) -> None:
        """Set the limits of a group."""
        GroupLimits(**limits)  # type: ignore[arg-type]  # checks them, also while there is no log
        self._for_all(name, lambda dispatcher, now: dispatcher.set_group(name, **limits, now_ms=now))  # type: ignore[arg-type]
        self._group_limits[name] = limits

    def pause_group(self, name: str) -> None:
        """Start nothing of a group until `resume_group`."""
        self._for_all(name, lambda dispatcher, now: dispatcher.pause_group(name, now_ms=now))
        self._paused_groups.add(name)

    def resume_group(self, name: str) -> None:
        """End `pause_group`, and the wait of a `RetryLater` for a group."""
        self._for_all(name, lambda dispatcher, now: dispatcher.resume_group(name, now_ms=now))
        self._paused_groups.discard(name)
        self._postponed_groups.pop(name, None)

    def skip_group(self, name: str) -> int:
        """Skip all messages of a group that are not at a handler; return how many there were."""
        self._check_groups(name)
        return self._skip(lambda key: key is not None and self._group_of(key) == name)

    # inside

    def _set_up(self, log: Assignment[Message]) -> None:
        now = self._now
        for name, limits in self._group_limits.items():
            log.dispatcher.set_group(name, **limits, now_ms=now)  # type: ignore[arg-type]  # checked by set_group
        for name in {*self._paused_groups, *self._postponed_groups}:
            log.dispatcher.pause_group(name, now_ms=now)

    def _check_groups(self, name: str) -> None:
        if self._config.rules is None or self._config.rules.group_of is None:
            raise ArgumentError(
                "name", name, "be a group of RunnerConfig(rules=Rules(group_of=...)), which is not given"
            )

    def _group_of(self, key: bytes) -> str:
        group_of = None if self._config.rules is None else self._config.rules.group_of
        return (None if group_of is None else group_of(key)) or ""

    def _for_all(
        self,
        name: str,
        call: Callable[[KeySharedDispatcher[Message], int], list[Effect[Message]]],
    ) -> None:
        self._check_groups(name)
        for log in self._logs.values():
            self._apply(log, call(log.dispatcher, self._now))
            self._set_alarm(log)

    def _postpone_group(self, key: bytes, until_ms: int) -> None:
        """Delay all keys of a group until a time, unless they wait longer already."""
        if self._config.rules is None or self._config.rules.group_of is None:
            return
        name = self._group_of(key)
        if until_ms > self._postponed_groups.get(name, 0):
            self._postponed_groups[name] = until_ms
            self._for_all(name, lambda dispatcher, now: dispatcher.pause_group(name, now_ms=now))
            self._alarms.at(until_ms, lambda: self._end_postponement(name, until_ms))

    def _end_postponement(self, name: str, until_ms: int) -> None:
        if self._postponed_groups.get(name) == until_ms:
            del self._postponed_groups[name]
            if name not in self._paused_groups:
                self._for_all(name, lambda dispatcher, now: dispatcher.resume_group(name, now_ms=now))

    def _is_busy(self) -> bool:
        return bool(self._postponed_groups) or super()._is_busy()

    def _skip(self, is_wanted: Callable[[bytes | None], bool]) -> int:
        wanted = [
            (name, each.offset)
            for name, log in self._logs.items()
            for each in log.dispatcher.outstanding()
            if is_wanted(each.key)
        ]
        return sum(self.park(name, offset) for name, offset in wanted)

    def _stuck_of(self, log: Assignment[Message], least_ms: int) -> Iterator[Stuck]:
        """Yield what is stuck of a log; one pass over its outstanding messages."""
        found = self._reasons(log, least_ms)
        count: Counter[bytes | None] = Counter()
        keys: dict[int, bytes | None] = {}
        groups: set[str] = set()  # of a paused group the first message is enough
        for each in log.dispatcher.outstanding():
            count[each.key] += 1
            reason = None if each.blocking is None else each.blocking.reason
            if each.key is not None and reason is BlockReason.GROUP_PAUSED and each.offset not in found:
                group = self._group_of(each.key)
                if group not in groups:
                    groups.add(group)
                    found[each.offset] = f"its group {group!r} is paused", 0
            if each.offset in found:
                keys[each.offset] = each.key
        for offset, key in keys.items():
            what, age_ms = found[offset]
            yield Stuck(log.name, offset, key, what, age_ms, 0 if key is None else count[key] - 1)

    def _reasons(self, log: Assignment[Message], least_ms: int) -> dict[int, tuple[str, int]]:
        """Return why messages are stuck that the engine knows of, and for how long, by offset."""
        found: dict[int, tuple[str, int]] = {}
        for run in log.runs:
            ran_ms = None if run.started_ms is None else self._now - run.started_ms
            if run in log.unrecorded:
                found[run.delivery.offset] = "waits for a commit that records it", 0
            elif ran_ms is not None and ran_ms >= least_ms:
                found[run.delivery.offset] = f"handler runs for {duration(ran_ms)}", ran_ms
        for offset, trouble in log.troubles.items():
            if trouble.state:
                found.setdefault(offset, (self._what_of(trouble), self._now - trouble.since_ms))
        for offset in log.waiting:
            found.setdefault(offset, ("waits for an earlier handler of its key, or of its batch", 0))
        found |= dict.fromkeys(log.paused, ("its key is paused", 0))
        return found

    def _what_of(self, trouble: Trouble) -> str:
        """Return what a message waits for that has failed or was postponed."""
        waited = duration(self._now - trouble.since_ms)
        left = duration(max(0, (trouble.due_ms or 0) - self._now))
        failures = f"{trouble.failures} failure{'s' * (trouble.failures != 1)}"
        reason = f"after {failures}, {cause(trouble.error)}"
        match trouble.state:
            case "retry":
                return f"retry in {left} {reason}"
            case "postponed":
                return f"postponed, comes again in {left}"
            case "blocked":
                return f"blocked for {waited} {reason}"
            case _:
                return f"waits for the dead-letter store for {waited} {reason}"


def _some_key(key: Key) -> bytes:
    data = key_bytes(key)
    if data is None:
        raise ArgumentError("key", key, "be bytes or str; messages without a key are paused and skipped one by one")
    return data
