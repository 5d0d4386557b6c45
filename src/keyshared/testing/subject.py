"""What is tried: a driver, what its broker claims, and how large the world is in which it is tried."""

from collections.abc import Sequence
from typing import Any, ClassVar

from keyshared.testing._arguments import check_class, check_kind
from keyshared.testing.claims import Claims
from keyshared.testing.draw import DELAYS_MS, FILTERS, KEYS, NAMES, World
from keyshared.testing.driver import AnyDriver, AsyncDriver, Driver, abilities
from keyshared.testing.errors import ClaimsError
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
    def timeouts(cls) -> Sequence[int]:
        """Return the times that matter: just before, at and after them something may happen."""
        times, slack = (cls.claims.ack_timeout_ms, cls.retry_ms, cls.rest_ms), cls.claims.tolerance_ms
        exact = [ms for ms in times if ms is not None]
        return [near for ms in exact for near in (ms - slack, ms, ms + slack)] if slack else exact

    @classmethod
    def world(cls, steps: int) -> World:
        """Return what schedules are made of; they have so many steps at most."""
        driver = cls.driver_class
        near = [timeout + step for timeout in cls.timeouts() for step in (-1, 0, 1) if timeout + step > 0]
        return World(
            can=abilities(driver),
            keys=cls.keys,
            names=cls.names,
            delays=(*DELAYS_MS, *near),
            filters=FILTERS if driver.takes_filters else ((),),
            most_consumers=cls.max_consumers,
            most_steps=steps,
        )


def subject_of(
    subject: type[Subject] | type[AnyDriver],
    claims: Claims | None = None,
    untried: frozenset[type[Step]] = frozenset(),
) -> type[Subject]:
    """Return a subject, or one of a driver, which claims what `Claims` has by default.

    Args:
        subject: The subject or the driver.
        claims: What it claims instead.
        untried: What else is not tried.

    Raises:
        TypeError: It is no class of a subject or a driver, or an attribute of it is of the wrong kind.
        ClaimsError: An attribute has a wrong value.
    """
    check_class("subject", subject, Subject, Driver, AsyncDriver)
    base = subject if issubclass(subject, Subject) else Subject
    attributes: dict[str, Any] = {"untried": base.untried | untried}
    if base is not subject:
        attributes["driver_class"] = subject
    if claims is not None:
        attributes["claims"] = claims
    made: type[Subject] = type(subject.__name__, (base,), attributes)
    check_class("driver_class", getattr(made, "driver_class", None), Driver, AsyncDriver)
    check_kind("claims", made.claims, Claims)
    for name in ("keys", "names"):
        if not getattr(made, name) or isinstance(getattr(made, name), str | bytes):
            raise ClaimsError(name, getattr(made, name), "be a sequence with at least one value")
    return made
