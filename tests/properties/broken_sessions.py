"""The real dispatcher with sessions of keys, and one fault each."""

from tests.broken_parts import Broken

from keyshared._dispatch.gates import key_of
from keyshared._dispatch.sessions import Session, Sessions
from keyshared._window.lanes import Consumer, Entry
from keyshared.config import DispatcherConfig
from keyshared.effects import KeyEnd, KeyEnded

__all__ = ["BROKEN_SESSIONS"]


class BeginsBeforeTheEnd(Broken):
    """Of a key that has moved the next session begins, and then the one before it ends."""

    class _Fault(Sessions):
        __slots__ = ()

        def opened(self, entry: Entry, holder: Consumer) -> None:
            place = len(self._told)
            super().opened(entry, holder)
            self._told[place:] = self._told[place:][::-1]

    @staticmethod
    def shows_with(config: DispatcherConfig) -> bool:
        """Where a session that is over without a flush lingers until its key has moved."""
        return config.sessions is not None and config.sessions.linger_ms > 0 and config.sessions.flush_ms == 0


class EndsWhileOpen(Broken):
    """A session ends with the first of its deliveries that does."""

    class _Fault(Sessions):
        __slots__ = ()

        def closed(self, entry: Entry) -> None:
            super().closed(entry)
            session = self._by_key.get(key_of(entry) or b"")
            if session is not None and session.open:
                self._told.append(KeyEnded(session.key, session.consumer.name, session.number, KeyEnd.IDLE))


class DeliversWhileFlushing(Broken):
    """A consumer that was asked to flush is handed more of the key."""

    class _Fault(Sessions):
        __slots__ = ()

        def refuses(self, entry: Entry, owner: Consumer) -> bool:
            session = self._by_key.get(key_of(entry) or b"")
            return super().refuses(entry, owner) and (session is None or session.consumer is not owner)


class LingerForgotten(Broken):
    """A session ends with its last delivery, however long it should linger."""

    class _Fault(Sessions):
        __slots__ = ()

        def _look(self, session: Session, now: int) -> None:
            super()._look(session, now)
            if session.deadline is not None and session.ending is None:
                self._close(session, KeyEnd.IDLE, now)


class LostSessionStaysOpen(Broken):
    """Who is gone is asked to flush like everybody else."""

    class _Fault(Sessions):
        __slots__ = ()

        def lose(self, consumer: Consumer) -> None:
            pass


class SessionNumberComesAgain(Broken):
    """The first session is number 1, and so are all others."""

    class _Fault(Sessions):
        __slots__ = ()

        def _begin(self, key: bytes, consumer: Consumer) -> Session:
            self._last = 0
            return super()._begin(key, consumer)


BROKEN_SESSIONS = (
    BeginsBeforeTheEnd,
    EndsWhileOpen,
    DeliversWhileFlushing,
    LingerForgotten,
    LostSessionStaysOpen,
    SessionNumberComesAgain,
)
