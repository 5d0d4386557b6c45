"""Histories about what consumers keep for keys: one-session, kept and broken."""

from tests.testing.checks.events import A, B, Case, K, L, acked, delivered, gone, published

from keyshared.testing import Claims, Promise
from keyshared.testing.history import Event, Quiet, SessionBegun, SessionEnded, SessionEnding, SessionEnds

__all__ = ["LINGERS", "SESSION_CASES", "begun", "ended"]

SESSIONS = Claims(promises={"one-session"}, sessions=True, per_key=2)
LINGERS = Claims(promises={"one-session"}, sessions=True, linger_ms=10)


def begun(session: int = 1, consumer: str = "a", key: bytes = K, at_ms: int | None = None) -> SessionBegun:
    return SessionBegun(key=key, consumer=consumer, session=session, at_ms=at_ms)


def ending(session: int = 1, consumer: str = "a") -> SessionEnding:
    return SessionEnding(key=K, consumer=consumer, session=session)


def ended(
    session: int = 1, consumer: str = "a", reason: SessionEnds = SessionEnds.MOVED, at_ms: int | None = None
) -> SessionEnded:
    return SessionEnded(key=K, consumer=consumer, session=session, reason=reason, at_ms=at_ms)


WORK: list[Event] = [A, B, published(0), published(1), begun(), delivered(0)]
SESSION_CASES = [
    Case(
        "a key is handed over when it is flushed",
        Promise.ONE_SESSION,
        [*WORK, acked(0), ending(), ended(), begun(2, "b"), delivered(1, "b")],
        None,
        SESSIONS,
    ),
    Case(
        "messages without a key have none",
        Promise.ONE_SESSION,
        [A, published(0, None), delivered(0, key=None)],
        None,
        SESSIONS,
    ),
    Case("nothing claims sessions", Promise.ONE_SESSION, [A, published(0), delivered(0)]),
    Case("a key goes out in no session", Promise.ONE_SESSION, [A, published(0), delivered(0)], (2,), SESSIONS),
    Case("one begins before the other has ended", Promise.ONE_SESSION, [*WORK, begun(2, "b")], (4, 6), SESSIONS),
    Case("a number comes again", Promise.ONE_SESSION, [begun(), ended(), begun()], (0, 2), SESSIONS),
    Case("it ends while something is open", Promise.ONE_SESSION, [*WORK, ended()], (5, 6), SESSIONS),
    Case(
        "it is to flush while something is open",
        Promise.ONE_SESSION,
        [*WORK, ending(), acked(0), ended()],
        None,
        SESSIONS,
    ),
    Case(
        "it is to flush, and ends while something is open",
        Promise.ONE_SESSION,
        [*WORK, ending(), ended()],
        (5, 7),
        SESSIONS,
    ),
    Case(
        "who has lost it has another one",
        Promise.ONE_SESSION,
        [*WORK, gone("a"), acked(0), ended(), begun(2), Quiet()],
        None,
        SESSIONS,
    ),
    Case(
        "who is gone twice has it still",
        Promise.ONE_SESSION,
        [*WORK, gone("a"), A, gone("a"), Quiet()],
        (4, 6, 9),
        SESSIONS,
    ),
    Case("the key goes to somebody else", Promise.ONE_SESSION, [*WORK, delivered(1, "b")], (4, 6), SESSIONS),
    Case(
        "the key goes out while it is flushed",
        Promise.ONE_SESSION,
        [*WORK, acked(0), ending(), delivered(1)],
        (7, 8),
        SESSIONS,
    ),
    Case("who is gone still has it", Promise.ONE_SESSION, [*WORK, gone("a"), Quiet()], (4, 6, 7), SESSIONS),
    Case("who is gone has lost it", Promise.ONE_SESSION, [*WORK, gone("a"), ended(), Quiet()], None, SESSIONS),
    Case("who drains has it still", Promise.ONE_SESSION, [*WORK, gone("a", drains=True), Quiet()], None, SESSIONS),
    Case("somebody else is gone", Promise.ONE_SESSION, [*WORK, gone("b"), Quiet()], None, SESSIONS),
    Case(
        "an end that names no session says nothing",
        Promise.ONE_SESSION,
        [*WORK, ended(2), ended(1, "b"), ending(2), delivered(1)],
        None,
        SESSIONS,
    ),
    Case(
        "it has not lingered",
        Promise.ONE_SESSION,
        [A, begun(at_ms=0), delivered(0), acked(0), ended(reason=SessionEnds.IDLE, at_ms=9)],
        (1, 4),
        LINGERS,
    ),
    Case(
        "it has lingered",
        Promise.ONE_SESSION,
        [A, begun(at_ms=0), delivered(0), acked(0), ended(reason=SessionEnds.IDLE, at_ms=10)],
        None,
        LINGERS,
    ),
    Case(
        "what moves need not linger",
        Promise.ONE_SESSION,
        [A, begun(at_ms=0), delivered(0), acked(0), ended(reason=SessionEnds.MOVED, at_ms=9)],
        None,
        LINGERS,
    ),
    Case(
        "of several keys each has its own",
        Promise.ONE_SESSION,
        [A, begun(), begun(key=L), delivered(0), delivered(1, key=L)],
        None,
        SESSIONS,
    ),
]
