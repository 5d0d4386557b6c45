"""What is tried: a driver, what its broker claims, and how large the world is in which it is tried."""

from collections.abc import Sequence
from typing import ClassVar

from keyshared.testing._given import check_class, check_kind
from keyshared.testing.claims import Claims
from keyshared.testing.draw import DELAYS_MS, FILTERS, KEYS, NAMES, World
from keyshared.testing.driver import AnyDriver, AsyncDriver, Driver, abilities
from keyshared.testing.errors import ClaimsError
from keyshared.testing.harness import Harness
from keyshared.testing.steps import Step

__all__ = ["Subject", "subject_of"]


class Subject:
    """Names what is tried, and what it claims; `keyshared.testing.machine.KeySharedMachine` adds a ``TestCase``.

    Attributes:
        driver_class: How to operate the broker; a `Driver` or an `AsyncDriver`.
        claims: What the broker claims. Set ``ack_timeout_ms`` if it takes unanswered messages back and its driver
            reports no `Expired`, with ``tolerance_ms`` if its timers are not exact; ``per_consumer`` if it has such a
            limit, which is then tried.
        max_consumers: How many consumers are connected at once. Where consumers say what they want, the kit's own one
            joins in the end, which wants everything.
        max_outstanding: How many messages are published and not done at once; at most what the broker can take.
        retry_ms: How long a message may wait at most after it was nacked or has expired.
        rest_ms: How long the broker may need at most for anything: so much time passes, more than once, before what
            has not come is called lost.
        untried: Kinds of steps that are not tried, such as ``LATE_ANSWERS`` of `keyshared.testing.steps`.
        keys: What is published.
        names: What consumers are called. Few names and keys make a small world, in which rare faults show sooner.
    """

    driver_class: ClassVar[type[AnyDriver]]
    claims: ClassVar[Claims] = Claims()
    max_consumers: ClassVar[int] = 3
    max_outstanding: ClassVar[int] = 8
    retry_ms: ClassVar[int] = 0
    rest_ms: ClassVar[int] = 1_000
    untried: ClassVar[frozenset[type[Step]]] = frozenset()
    keys: ClassVar[Sequence[bytes | None]] = KEYS
    names: ClassVar[Sequence[str]] = NAMES

    @classmethod
    def harness(cls, claims: Claims | None = None, untried: frozenset[type[Step]] = frozenset()) -> Harness:
        """Return what the attributes of the class say of the broker.

        Args:
            claims: What to claim instead.
            untried: What else is not tried.
        """
        check_class("driver_class", getattr(cls, "driver_class", None), Driver, AsyncDriver)
        check_kind("claims", cls.claims, Claims)
        for name in ("keys", "names"):
            if not getattr(cls, name) or isinstance(getattr(cls, name), str | bytes):
                raise ClaimsError(name, getattr(cls, name), "be a sequence with at least one value")
        return Harness(
            cls.claims if claims is None else claims,
            cls.max_outstanding,
            cls.retry_ms,
            cls.rest_ms,
            cls.untried | untried,
            cls.max_consumers,
        )

    @classmethod
    def world(cls, steps: int, timeouts: Sequence[int]) -> World:
        """Return what schedules are made of.

        Args:
            steps: How many steps they have at most.
            timeouts: Times after which something may happen.
        """
        driver = cls.driver_class
        near = [timeout + step for timeout in timeouts for step in (-1, 0, 1) if timeout + step > 0]
        return World(
            can=abilities(driver),
            keys=cls.keys,
            names=cls.names,
            delays=(*DELAYS_MS, *near),
            filters=FILTERS if driver.takes_filters else ((),),
            most_consumers=cls.max_consumers,
            most_steps=steps,
        )


def subject_of(subject: type[Subject] | type[AnyDriver]) -> type[Subject]:
    """Return a subject, or one of a driver that claims what `Claims` has by default."""
    check_class("subject", subject, Subject, Driver, AsyncDriver)
    if issubclass(subject, Subject):
        return subject
    return type(f"{subject.__name__}Subject", (Subject,), {"driver_class": subject})
