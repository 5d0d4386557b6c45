"""Log records at the edges: what an operator has to know, as a line of text and as fields.

Each record has an attribute ``kafka``: a dict with ``event``, ``topic`` and ``partition``, and with what else is known.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from keyshared.effects import Blocked, Dropped, Effect
from keyshared.run import Hooks, PartlyDone, Reject, RetryLater

__all__ = ["fields", "logger", "with_records"]

logger: Final = logging.getLogger("keyshared_kafka")


def fields(event: str, log: str, **more: object) -> dict[str, object]:
    """Return the ``extra`` of a record.

    Example:
        >>> fields("lost", "orders-7")
        {'kafka': {'event': 'lost', 'topic': 'orders', 'partition': 7}}
    """
    topic, _, partition = log.rpartition("-")
    return {"kafka": {"event": event, "topic": topic, "partition": int(partition), **more}}


def with_records(hooks: Hooks | None) -> Hooks:
    """Return hooks that log what has gone wrong, and then call the user's."""
    theirs = hooks or Hooks()
    return replace(
        theirs,
        ended=_both(_ended, theirs.ended),
        overdue=_both(_overdue, theirs.overdue),
        noticed=_both(_noticed, theirs.noticed),
    )


def _both(ours: Callable[..., None], theirs: Callable[..., object] | None) -> Callable[..., object]:
    if theirs is None:
        return ours

    def both(*arguments: Any) -> object:  # noqa: ANN401 - whatever the hook gets
        ours(*arguments)
        return theirs(*arguments)  # the runner looks at it

    return both


def _ended(log: str, offsets: Sequence[int], raised: BaseException | None, ran_ms: int) -> None:
    if raised is None or not logger.isEnabledFor(logging.INFO):
        return
    done, error = (raised.done, raised.error) if isinstance(raised, PartlyDone) else (0, raised)
    offset = offsets[done]  # an error that names none of a batch is that of the first
    more = {"offset": offset, "ran_ms": ran_ms}
    if isinstance(error, Reject):
        logger.info("%s/%d: rejected: %s", log, offset, error, extra=fields("rejected", log, **more))
    elif isinstance(error, Exception) and not isinstance(error, RetryLater):
        logger.info("%s/%d: failed: %r", log, offset, error, exc_info=error, extra=fields("failed", log, **more))


def _overdue(log: str, offset: int, ran_ms: int) -> None:
    more = {"offset": offset, "ran_ms": ran_ms}
    logger.warning("%s/%d: its handler has run for %d ms", log, offset, ran_ms, extra=fields("overdue", log, **more))


def _noticed(log: str, effect: Effect[Any]) -> None:
    if isinstance(effect, Blocked | Dropped):
        event = type(effect).__name__.lower()
        logger.warning("%s/%d: %s", log, effect.offset, event, extra=fields(event, log, offset=effect.offset))
