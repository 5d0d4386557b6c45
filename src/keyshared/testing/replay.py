"""Run a schedule against a broker, without Hypothesis; and make one that breaks something shorter."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from keyshared.testing.bench import Bench
from keyshared.testing.driver import AnyDriver
from keyshared.testing.guarantees import Guarantees, Violation
from keyshared.testing.history import Happening
from keyshared.testing.steps import (
    Ack,
    AckLate,
    AckThrough,
    BeginAck,
    BeginReceive,
    Fail,
    FinishAck,
    FinishReceive,
    KillAt,
    Nack,
    NackLate,
    Poll,
    Postpone,
    Publish,
    PublishLater,
    Schedule,
    Step,
    Wait,
)
from keyshared.testing.world import World

__all__ = ["ScheduleRun", "run_schedule", "shorten"]

_FEW: Final = 12  # steps: so many may be tried in pairs
_PLACES: Final = range(4)
_PLAIN_KEYS: Final = (b"a", b"b", b"c")
_DELAYS_MS: Final = (1, 10, 100)
_NAMES_A_PLACE: Final = (
    *(Ack, AckLate, AckThrough, Nack, NackLate, Postpone, Fail, BeginAck, FinishAck, FinishReceive),
)
_MORE: Final = (None, 2)  # as much as it may have is easier than two, and two easier than one


class ScheduleRun(NamedTuple):
    """What came of a schedule.

    Attributes:
        history: What has happened. Of a broker that remembers only its cursor: since it was started last.
        violation: What was broken first; the replay ended there. None if nothing was.
        taken: The steps that did something; the others could not be taken when their turn came.
        in_the_end: Whether all steps were taken: a violation then showed only when everybody answered everything, and
            time passed, until nothing came any more.
    """

    history: tuple[Happening, ...]
    violation: Violation | None
    taken: Schedule
    in_the_end: bool


class _BrokenError(Exception):
    """A promise is broken: nothing that follows is of interest."""


def run_schedule(
    driver: Callable[[], AnyDriver],
    schedule: Iterable[Step],
    guarantees: Guarantees | None = None,
    *,
    max_outstanding: int = 8,
    retry_ms: int = 0,
    rest_ms: int = 1_000,
    untried: frozenset[type[Step]] = frozenset(),
    max_consumers: int | None = None,
) -> ScheduleRun:
    """Take the steps of a schedule with a fresh broker, and write down what happens.

    In the end everybody answers everything until nothing comes any more, so that what is lost shows too.

    Args:
        driver: Gives a driver of a fresh broker: mostly its class. It is closed in the end.
        schedule: The steps.
        guarantees: What the broker claims; by default everything that one history can show. To judge nothing here and
            have the whole history, however broken: ``Guarantees(promises=set())``.
        max_outstanding: How many messages are published and not done at once; more are not published.
        retry_ms: How long a message may wait at most after it was nacked or has expired.
        rest_ms: How long the broker may need at most for anything.
        untried: Kinds of steps that are passed over.
        max_consumers: How many are connected at once; more do not join. None: any number.

    Returns:
        The history until the end, or until something was broken; what that was; and the steps that did something.

    Raises:
        Exception: Whatever the driver or the broker raises.

    Complexity:
        O(steps) calls of the driver, and O(messages) for the end.

    Example:
        >>> from keyshared.testing.adapters.dispatcher import DispatcherDriver
        >>> from keyshared.testing.steps import Connect
        >>> replay = run_schedule(DispatcherDriver, [Connect("c1"), Publish(b"a"), Ack()], Guarantees(per_consumer=2))
        >>> [type(happening).__name__ for happening in replay.history[:6]]
        ['Connected', 'Committed', 'Quiet', 'Published', 'Owned', 'Delivered']
        >>> print(replay.violation)
        None
    """
    found: list[Violation] = []

    def blame(violation: Violation) -> None:
        found.append(violation)
        raise _BrokenError

    claimed = Guarantees() if guarantees is None else guarantees
    bench = Bench(driver, World(claimed, max_outstanding, retry_ms, rest_ms, untried, max_consumers), blame)
    try:
        for step in schedule:
            bench.take(step)
        bench.heal()
    except _BrokenError:
        pass
    finally:
        bench.driver.close()
    return ScheduleRun(tuple(bench.history), found[0] if found else None, tuple(bench.taken), bench.in_the_end)


def shorten(schedule: Sequence[Step], breaks: Callable[[Schedule], bool]) -> Schedule:
    """Find a shorter and simpler schedule that still breaks something.

    Runs of steps are left out, long ones first, then single ones; then numbers are lowered; in the end a step is left
    out while a later answer is given for another delivery.

    Args:
        schedule: It breaks something.
        breaks: Whether another schedule does too. Asked many times; it should answer the same each time.

    Returns:
        The shorter one, in which no single step can be left out; the same if there is none.

    Complexity:
        O(n log n) questions mostly, n steps; O(n^2) at worst.

    Example:
        >>> shorten([Publish(b"a"), Ack(3), Publish(b"b", 2)], lambda steps: Publish(b"b", 2) in steps)
        (Publish(key=b'b', count=2),)
    """
    best = _without_runs(tuple(schedule), breaks)
    while True:
        simpler = next(filter(breaks, _simpler(best)), None)
        if simpler is None:
            return best
        best = _without_runs(simpler, breaks)


def _without_runs(schedule: Schedule, breaks: Callable[[Schedule], bool]) -> Schedule:
    length = len(schedule)
    while length:
        start, before = 0, len(schedule)
        while start < len(schedule):
            shorter = schedule[:start] + schedule[start + length :]
            if breaks(shorter):
                schedule = shorter
            else:
                start += length
        if length > 1 or len(schedule) == before:
            length //= 2
    return schedule


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """Return schedules with one step made easier, or with one step less where only that step was in the way."""
    for position, step in enumerate(schedule):
        for easier in _easier(step):
            yield (*schedule[:position], easier, *schedule[position + 1 :])
    if len(schedule) > _FEW:
        return
    for left_out in range(len(schedule)):
        shorter = schedule[:left_out] + schedule[left_out + 1 :]
        for position in range(left_out, len(shorter)):
            step = shorter[position]
            if isinstance(step, _NAMES_A_PLACE):
                for place in _PLACES:
                    yield (*shorter[:position], replace(step, which=place), *shorter[position + 1 :])


def _easier(step: Step) -> Iterator[Step]:  # noqa: C901, PLR0912  # one case for each kind
    match step:
        case Poll(first, most):
            yield from (replace(step, first=first[:fewer]) for fewer in range(len(first)))
            if most is not None:
                yield from (replace(step, most=more) for more in _MORE if more is None or more > most)
        case KillAt(statement):
            yield from (KillAt(sooner) for sooner in range(1, statement))
        case BeginReceive(consumer, statements):
            yield from (BeginReceive(consumer, fewer) for fewer in range(1, statements))
        case BeginAck(which, statements):
            yield Ack(which)
            yield from (replace(step, statements=fewer) for fewer in range(1, statements))
            yield from (replace(step, which=lower) for lower in range(which))
        case Publish(key, count):
            yield from (replace(step, count=fewer) for fewer in range(1, count))
            yield from (replace(step, key=plain) for plain in _earlier(_PLAIN_KEYS, key))
        case PublishLater(key, ms):
            yield Publish(key)
            yield from (replace(step, ms=less) for less in _DELAYS_MS if less < ms)
            yield from (replace(step, key=plain) for plain in _earlier(_PLAIN_KEYS, key))
        case Postpone(which, ms):
            yield from (replace(step, ms=less) for less in _DELAYS_MS if less < ms)
            yield from (replace(step, which=lower) for lower in range(which))
        case AckThrough(which):
            yield Ack(which)
            yield from (replace(step, which=lower) for lower in range(which))
        case Wait(ms):
            yield from (Wait(less) for less in _DELAYS_MS if less < ms)
        case Fail(which, times):
            yield Nack(which)
            yield from (replace(step, times=fewer) for fewer in range(2, times))
            yield from (replace(step, which=lower) for lower in range(which))
        case Ack(which) | AckLate(which) | Nack(which) | NackLate(which) | FinishAck(which) | FinishReceive(which):
            yield from (replace(step, which=lower) for lower in range(which))
        case _:
            pass


def _earlier(plain: Sequence[bytes], key: bytes | None) -> Sequence[bytes]:
    """Return keys that are plainer than a key; no key means something, and stays."""
    if key is None:
        return ()
    return plain[: plain.index(key)] if key in plain else plain
