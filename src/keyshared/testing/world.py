"""What a bench has to know of a broker besides its driver."""

from typing import NamedTuple

from keyshared.testing.guarantees import Guarantees
from keyshared.testing.steps import Step

__all__ = ["World"]


class World(NamedTuple):
    """What a broker claims, and how much of it is tried.

    Attributes:
        guarantees: What it claims.
        max_outstanding: How many messages are published and not done at once; more are not published.
        retry_ms: How long a message may wait at most after it was nacked or has expired.
        rest_ms: How long it may need at most for anything.
        untried: Kinds of steps that are passed over.
        max_consumers: How many are connected at once; nobody else joins. None: any number.
    """

    guarantees: Guarantees = Guarantees()
    max_outstanding: int = 8
    retry_ms: int = 0
    rest_ms: int = 1_000
    untried: frozenset[type[Step]] = frozenset()
    max_consumers: int | None = None

    @property
    def timeouts(self) -> tuple[int, ...]:
        """The times that matter: just before, at and after them something may happen."""
        times = (self.guarantees.ack_timeout_ms, self.retry_ms, self.rest_ms)
        slack = self.guarantees.tolerance_ms
        exact = [ms for ms in times if ms is not None]
        return tuple([near for ms in exact for near in (ms - slack, ms, ms + slack)] if slack else exact)
