"""Hearts with one realistic fault each, and where it shows."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from keyshared.effects import DeadLetter, Deliver
from keyshared.run import PartlyDone
from keyshared.run.actions import Commit, Overdue, Settle, Withdraw
from keyshared.run.assignment import POOL, Assignment, Run, Why
from keyshared.run.batches import next_run
from keyshared.run.engine import Engine
from keyshared.run.schedule import RunQueue

Raised: TypeAlias = BaseException | None


class DoesNotWaitForTheCancelled(Engine[Any]):
    """A handler that is overdue has failed at once, and its message is tried again while it still ends."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.given_up: set[Run[Any]] = set()

    def advance(self, *, now_ms: int | None = None) -> list[Any]:
        actions = super().advance(now_ms=now_ms)
        for action in actions:
            if isinstance(action, Overdue):
                self.ended(action.run, TimeoutError())
                self.given_up.add(action.run)
        return actions

    def ended(self, run: Run[Any], raised: Raised, *, now_ms: int | None = None) -> Raised:
        return None if run in self.given_up else super().ended(run, raised, now_ms=now_ms)


class CancelsTwice(Engine[Any]):
    """A handler that cleans up is cancelled again when its timeout has passed once more, or when its log leaves."""

    def _cancel(self, runs: Iterable[Run[Any]], why: Why) -> None:
        for run in runs:
            run.cancelled = None
            super()._cancel([run], why)


class BelievesTheCancelled(Engine[Any]):
    """A handler that was cancelled, and returns all the same, has done its message."""

    def ended(self, run: Run[Any], raised: Raised, *, now_ms: int | None = None) -> Raised:
        if raised is None:
            run.cancelled = None
        return super().ended(run, raised, now_ms=now_ms)


class Forgetful(RunQueue[Any]):
    """Forgets which handlers were abandoned."""

    def abandon(self, run: Run[Any]) -> None:
        run.is_abandoned = True

    def ended_abandoned(self, run: Run[Any]) -> None: ...


class RunsBesideAbandoned(Engine[Any]):
    """A log that comes again does not wait for handlers of its earlier assignment."""

    def __init__(self, *args: Any, ahead: int, **settings: Any) -> None:
        super().__init__(*args, ahead=ahead, **settings)
        self._schedule = Forgetful(self._config.workers + ahead, self._config.batch or 1)


class CommitsBeforeTheLetterIsWritten(Engine[Any]):
    """A dead letter counts as done when its write begins."""

    def _give_up(self, log: Assignment[Any], effect: DeadLetter[Any]) -> None:
        super()._give_up(log, effect)
        self._settle(log, log.dispatcher.dead_lettered(effect.offset))


class CountsTimeInTheQueue(Engine[Any]):
    """The timeout begins when a message is handed out."""

    def _start(self, run: Run[Any]) -> None:
        super()._start(run)
        run.started_ms = self._now


class BelievesLateAnswers(Engine[Any]):
    """An answer from before a log was lost counts for its next stay."""

    def ended(self, run: Run[Any], raised: Raised, *, now_ms: int | None = None) -> Raised:
        told = super().ended(run, raised, now_ms=now_ms)
        log = self._logs.get(run.log.name)
        if run.is_abandoned and raised is None and log is not None:
            self._settle(log, log.dispatcher.ack(run.delivery.offset, POOL, 1))
        return told


class LeavesWithoutItsLastCommit(Engine[Any]):
    """What was done since the last commit is redone after an orderly stop."""

    def _leave(self, log: Assignment[Any], until_ms: int) -> None:
        super()._leave(log, until_ms)
        log.is_unstorable = True


class CommitsTwiceAtOnce(Engine[Any]):
    """A commit does not wait for the one before."""

    def _commit_changed(self) -> None:
        super()._commit_changed()
        for log in self._logs.values():
            log.is_committing = False


class ForgetsWhatWasPutOff(Engine[Any]):
    """A message that was put off never comes again."""

    def _put_off(self, log: Assignment[Any], delivery: Deliver[Any], delay_ms: int) -> None: ...


class StartsWhatLeaves(Engine[Any]):
    """What is on its way to a worker when its log leaves is not taken back."""

    def _leave(self, log: Assignment[Any], until_ms: int) -> None:
        super()._leave(log, until_ms)
        self._out = [action for action in self._out if not isinstance(action, Withdraw)]


class BlamesTheFirstOfABatch(Engine[Any]):
    """A batch that fails as a whole counts as a failure of its first message."""

    def ended(self, run: Run[Any], raised: Raised, *, now_ms: int | None = None) -> Raised:
        if isinstance(raised, Exception) and not isinstance(raised, PartlyDone):
            raised = PartlyDone(0, raised)
        return super().ended(run, raised, now_ms=now_ms)


class TriesABatchAgainAsOne(Engine[Any]):
    """Which messages were in a batch that has failed is forgotten."""

    def advance(self, *, now_ms: int | None = None) -> list[Any]:
        for log in self._logs.values():
            log.alone.clear()
        return super().advance(now_ms=now_ms)


class BelievesThatAllIsDone(Engine[Any]):
    """A batch of which a part is done counts as done."""

    def ended(self, run: Run[Any], raised: Raised, *, now_ms: int | None = None) -> Raised:
        return super().ended(run, None if isinstance(raised, PartlyDone) else raised, now_ms=now_ms)


class RunsABatchBesideItself(Engine[Any]):
    """What has to wait for the first message of a broken batch does not."""

    def _start(self, run: Run[Any]) -> None:
        super()._start(run)
        following, run.behind = next_run(run), ()
        if following is not None:
            self._schedule.add(following)


class SettlesOneOfSeveral(Engine[Any]):
    """Of the messages that are done at once, the last one is settled."""

    def _end_well(self, ended: dict[Assignment[Any], list[Run[Any]]]) -> None:
        super()._end_well({log: runs[-1:] for log, runs in ended.items()})
        ended.clear()


class TellsBeforeTheLetterIsWritten(Engine[Any]):
    """A message that is given up counts as settled when the write of its dead letter begins."""

    def _give_up(self, log: Assignment[Any], effect: DeadLetter[Any]) -> None:
        super()._give_up(log, effect)
        log.settled.append(effect.offset)


class TellsTwiceAtOnce(Engine[Any]):
    """A log is told what is settled while it is still being told of others."""

    def _look_at_logs(self) -> None:
        for log in self._touched:
            log.is_settling = False
        super()._look_at_logs()


class LeavesWithoutTellingTheLast(Engine[Any]):
    """What is settled while its log leaves is not told."""

    def advance(self, *, now_ms: int | None = None) -> list[Any]:
        actions = super().advance(now_ms=now_ms)
        return [action for action in actions if not (isinstance(action, Settle) and self._forgets(action.log))]

    def _forgets(self, log: Assignment[Any]) -> bool:
        if log.is_leaving:
            log.is_settling = False
            self._let_leave()
        return log.is_leaving


class BelievesTheRefusalOfALostLog(Engine[Any]):
    """A store that refuses the commit of a log that is somebody else's stops everything."""

    def committed(self, asked: Commit[Any], error: BaseException | None, *, now_ms: int | None = None) -> None:
        super().committed(asked, error, now_ms=now_ms)
        if error is not None:
            self.fail(error)
