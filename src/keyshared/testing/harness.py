"""What there is to know of a broker on trial besides its driver."""

from typing import NamedTuple

from keyshared.testing.claims import Claims
from keyshared.testing.steps import Step

__all__ = ["Harness"]


class Harness(NamedTuple):
    """What a broker claims, and how much of it is tried.

    Attributes:
        claims: What it claims.
        max_outstanding: How many messages are published and not done at once; more are not published.
        retry_ms: How long a message may wait at most after it was nacked or has expired.
        rest_ms: How long the broker may need at most for anything.
        untried: Kinds of steps that are passed over.
        max_consumers: How many consumers are connected at once. None: any number.
    """

    claims: Claims = Claims()
    max_outstanding: int = 8
    retry_ms: int = 0
    rest_ms: int = 1_000
    untried: frozenset[type[Step]] = frozenset()
    max_consumers: int | None = None

    @property
    def timeouts(self) -> tuple[int, ...]:
        """The times that matter: just before, at and after them something may happen."""
        times = (self.claims.ack_timeout_ms, self.retry_ms, self.rest_ms)
        slack = self.claims.tolerance_ms
        exact = [ms for ms in times if ms is not None]
        return tuple([near for ms in exact for near in (ms - slack, ms, ms + slack)] if slack else exact)
