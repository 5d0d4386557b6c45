"""Who keeps something for which key: read from the whole history again, in each row."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from keyshared.testing.claims import Promise
from keyshared.testing.history import (
    AtRest,
    Delivered,
    Event,
    Gone,
    Quiet,
    SessionBegun,
    SessionEnded,
    SessionEnding,
    SessionEnds,
)

if TYPE_CHECKING:
    from tests.testing.slow_judge import SlowJudge

__all__ = ["SlowSessions"]


class SlowSessions:
    """Judges sessions of keys for a slow judge."""

    def __init__(self, judge: "SlowJudge") -> None:
        self.judge = judge
        self.busy: list[set[bytes | None]] = []  # after each row: of which keys something may be open
        self.times: list[int | None] = []

    def look(self) -> None:
        """Take note of a row that was applied."""
        self.busy.append(self.keys(surely=False))
        self.times.append(self.judge.now)

    def keys(self, *, surely: bool) -> set[bytes | None]:
        """Of which keys something is open, surely or perhaps."""
        messages = self.judge.outstanding.values()
        chosen = [each for each in messages if (each.is_surely("open") if surely else each.state != "waits")]
        perhaps = set() if surely else {key for key, _ in self.judge.unclear.values()}
        return perhaps | {self.judge.place(each.offset, each.key) for each in chosen}

    def judged(self, event: Event) -> Iterator[Promise]:
        """Whether a row breaks the promise."""
        if self.judge.claims.sessions and self.is_wrong(event):
            yield Promise.ONE_SESSION

    def is_wrong(self, event: Event) -> bool:
        match event:
            case SessionBegun(key=key, session=number):
                told = [each for each in self.judge.history if isinstance(each, SessionBegun) and each.key == key]
                return self.on(key) is not None or any(number <= each.session for each in told)
            case SessionEnded():
                return self.names(event) and (event.key in self.keys(surely=True) or self.ends_too_early(event))
            case Delivered():
                return self.goes_astray(event)
            case Quiet() | AtRest():
                return any(self.is_lost(key) for key in self.told_keys())
            case _:
                return False

    def on(self, key: bytes) -> tuple[int, SessionBegun] | None:
        """The session of a key that has not ended, and the row of its beginning."""
        found = None
        for row, each in enumerate(self.judge.history):
            if isinstance(each, SessionBegun) and each.key == key:
                found = row, each
            elif isinstance(each, SessionEnded) and found is not None and self.same(each, found[1]):
                found = None
        return found

    def same(self, event: SessionEnding | SessionEnded, begun: SessionBegun) -> bool:
        return (event.key, event.consumer, event.session) == (begun.key, begun.consumer, begun.session)

    def names(self, event: SessionEnding | SessionEnded) -> bool:
        session = self.on(event.key)
        return session is not None and self.same(event, session[1])

    def ends_too_early(self, event: SessionEnded) -> bool:
        linger, now = self.judge.claims.linger_ms, self.judge.now
        session = self.on(event.key)
        if session is None or linger is None or now is None or event.reason is not SessionEnds.IDLE:
            return False
        since = session[0]
        if self.busy[-1] & {event.key}:
            return False
        while any(event.key in busy for busy in self.busy[since:]):
            since += 1
        idle = self.times[since]
        return idle is not None and now - idle < linger - self.judge.claims.tolerance_ms

    def goes_astray(self, event: Delivered) -> bool:
        key = self.judge.place(event.offset, event.key)
        if key is None:
            return False
        session = self.on(key)
        if session is None or session[1].consumer != event.consumer:
            return True
        later = self.judge.history[session[0] :]
        return any(isinstance(each, SessionEnding) and self.same(each, session[1]) for each in later)

    def told_keys(self) -> set[bytes]:
        return {each.key for each in self.judge.history if isinstance(each, SessionBegun)}

    def is_lost(self, key: bytes) -> bool:
        """Whether its consumer went away since it began, and since the last moment of quiet."""
        session = self.on(key)
        if session is None:
            return False
        later = self.judge.history[session[0] :]
        for each in reversed(later):
            if isinstance(each, Quiet | AtRest):
                return False
            if isinstance(each, Gone) and each.consumer == session[1].consumer and not each.drains:
                return True
        return False
