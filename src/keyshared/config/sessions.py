"""How long a consumer stays with a key that it has nothing of, and how long it may take to let go of it."""

from dataclasses import dataclass

from keyshared._checks import check_int, configuration

__all__ = ["KeySessions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySessions:
    """How long sessions of keys last: what a consumer may keep for a key begins and ends at one consumer at a time.

    Args:
        linger_ms: How long nothing of a key is open at its consumer before the session ends.
        flush_ms: How long a session that has to end waits for ``flushed()``; 0 asks for no flush, None waits for ever.

    Raises:
        ConfigError: A time is no int of at least 0.

    Example:
        >>> KeySessions(linger_ms=60_000, flush_ms=5_000)
        KeySessions(linger_ms=60000, flush_ms=5000)
    """

    linger_ms: int = 0
    flush_ms: int | None = 0

    @configuration()
    def __post_init__(self) -> None:
        check_int("linger_ms", self.linger_ms, 0)
        if self.flush_ms is not None:
            check_int("flush_ms", self.flush_ms, 0, ", or None for ever")
