"""What one handler gets, a message or a batch of a key, and how many messages of it are done."""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple, TypeVar

from keyshared.effects import Deliver
from keyshared.errors import ArgumentError
from keyshared.run.assignment import Assignment, Run, Why
from keyshared.run.errors import PartlyDone, Reject
from keyshared.run.functions import NotAwaitedError

__all__ = ["Verdict", "next_run", "runs_of", "verdict"]

Message = TypeVar("Message")


class Verdict(NamedTuple):
    """How a handler has ended.

    Attributes:
        done: How many of its messages are done, counted from the first.
        error: How the next one has ended.
        is_clear: Whether the error is that of this message, and not of any one in the batch.
        raised: The exception of the handler, as it is reported.
    """

    done: int
    error: BaseException
    is_clear: bool
    raised: BaseException


def runs_of(log: Assignment[Message], deliveries: Iterable[Deliver[Message]]) -> list[Run[Message]]:
    """Return a run for each message, or for each batch: those of one key that stand side by side."""
    if not log.has_batches:
        return [Run(log, (delivery,)) for delivery in deliveries]
    runs: list[Run[Message]] = []
    for key, same in groupby(deliveries, key=attrgetter("key")):
        if key is None:
            runs += [Run(log, (delivery,)) for delivery in same]
        else:
            runs.append(_first_run(log, tuple(same)))
    return runs


def next_run(run: Run[Message]) -> Run[Message] | None:
    """Return the run that had to wait for one that has ended well."""
    return _first_run(run.log, run.behind) if run.behind else None


def _first_run(log: Assignment[Message], batch: tuple[Deliver[Message], ...]) -> Run[Message]:
    """Put what has failed before in a run of its own: nothing else may pay for it."""
    suspects = (at for at, each in enumerate(batch) if each.failures or each.offset in log.alone)
    together = max(1, next(suspects, len(batch)))
    return Run(log, batch[:together], batch[together:])


def verdict(run: Run[Message], raised: BaseException, *, now_ms: int) -> Verdict:
    """Return what an exception means for the messages of a handler.

    Args:
        run: The handler's. If it was cancelled because it ran for too long, that is its error.
        raised: The exception.
        now_ms: The time.
    """
    many = len(run.deliveries)
    if isinstance(raised, PartlyDone) and raised.done < many:
        error = _as_it_counts(run, raised.error, now_ms=now_ms)
        told = raised if error is raised.error else PartlyDone(raised.done, error)
        return Verdict(raised.done, error, is_clear=True, raised=told)
    if isinstance(raised, PartlyDone):
        error = ArgumentError("done", raised.done, f"be below {many}, the length of the batch")
    else:
        error = _as_it_counts(run, raised, now_ms=now_ms)
    return Verdict(0, error, is_clear=many == 1, raised=error)


def _as_it_counts(run: Run[Message], raised: BaseException, *, now_ms: int) -> BaseException:
    if run.cancelled is not Why.TIMEOUT or isinstance(raised, NotAwaitedError | Reject):
        return raised
    error = TimeoutError(f"the handler ran for {now_ms - (run.started_ms or 0)} ms and was cancelled")
    error.__cause__ = raised
    return error
