"""Look for a schedule that breaks a promise: run schedules, make one that breaks something shorter, and search."""

import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from traceback import walk_tb
from typing import Final, NamedTuple

from keyshared.testing.bench import LAST, Bench
from keyshared.testing.claims import Claims, Promise, Unjudged, Violation
from keyshared.testing.draw import draw_schedule
from keyshared.testing.driver import AnyDriver, abilities
from keyshared.testing.errors import ClaimsError, DriverError, UnsupportedError
from keyshared.testing.history import Connected, Event
from keyshared.testing.steps import (
    Ack,
    AckThrough,
    BeginAck,
    BeginReceive,
    Fail,
    KillAt,
    Nack,
    OneOfSeveral,
    Poll,
    Postpone,
    Publish,
    PublishLater,
    PublishMany,
    Schedule,
    Step,
    Wait,
)
from keyshared.testing.subject import Subject, subject_of

__all__ = [
    "BUDGET",
    "Budget",
    "Finding",
    "Raised",
    "ScheduleRun",
    "Search",
    "find_violation",
    "find_violations",
    "run_schedule",
    "search",
    "shorten",
]


class Budget(NamedTuple):
    """How hard to try.

    Attributes:
        tries: How many schedules are drawn and run at most.
        steps: How many steps a schedule has at most.
        seed: Draws other schedules.
        seconds: For how long schedules are drawn at most; None: until all tries are made.
        shortens: Whether a schedule that breaks something is made shorter.
    """

    tries: int = 500
    steps: int = 50
    seed: int = 0
    seconds: float | None = None
    shortens: bool = True


BUDGET: Final = Budget()
"""How hard to try by default: seconds, and the same tries every time."""

_FEW: Final = 12  # steps: so many may be tried in pairs
_PLACES: Final = range(4)
_PLAIN_KEYS: Final = (b"a", b"b", b"c")
_DELAYS_MS: Final = (1, 10, 100)
_MORE: Final = (None, 2)  # as much as it may have is easier than two, and two easier than one
_OF_THE_KIT: Final = (DriverError, UnsupportedError, ClaimsError)  # mistakes of the caller: they end a search
_OF_WAITING: Final = frozenset({Promise.NO_LOSS, Promise.PROGRESS})
_NO_TIME: Final = "(no time passes: if the message would come after a timeout, write advance, and claim ack_timeout_ms)"
_KIT: Final = str(Path(__file__).parent)
_STDLIB: Final = sysconfig.get_paths()["stdlib"]
_SITE: Final = sysconfig.get_paths()["purelib"]


class Raised(NamedTuple):
    """An exception that the system or its driver raised.

    Attributes:
        error: The exception.
        by: "the system" or "the driver", by the deepest line of the traceback that is not Python's own.
        place: That line, as ``file:line in function``.
    """

    error: Exception
    by: str
    place: str

    @property
    def kind(self) -> tuple[type[Exception], str]:
        """Return what two exceptions have in common that count as one finding."""
        return type(self.error), self.place

    def __str__(self) -> str:
        return f"exception: {self.by} raised {type(self.error).__name__}: {self.error} ({self.place})"


class ScheduleRun(NamedTuple):
    """The outcome of a schedule.

    Attributes:
        history: What has happened.
        violation: What was broken first; the run ended there. None if nothing was.
        taken: The steps that did something; the others could not be taken when their turn came.
        in_the_end: Whether all steps were taken: a violation then showed only when all consumers answered everything,
            and time passed, until nothing came any more.
        raised: The exception with which the run ended, if it did.
        unjudged: The claimed promises that this run does not show, or not in full.
        unjudged_messages: How many messages are not judged, by what is missing.
    """

    history: tuple[Event, ...]
    violation: Violation | None
    taken: Schedule
    in_the_end: bool
    raised: Raised | None
    unjudged: tuple[Unjudged, ...]
    unjudged_messages: Counter[str]


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken promise, or an exception, that a search has found.

    Attributes:
        violation: The broken promise and its proof; None for an exception.
        raised: The exception; None for a broken promise.
        tries: How many schedules it took to find.
        history: What happens in the shortest way to it.
        schedule: The steps of that way: `run_schedule` takes them again.
        in_the_end: Whether it shows only after the last of them, when all consumers answer everything.
        replayed: Whether it was seen again when the same steps were taken again. If not, chance decides, or it was
            something from outside.
        passes_time: Whether the driver can let time pass (`Driver.advance`).
    """

    violation: Violation | None
    raised: Raised | None
    tries: int
    history: tuple[Event, ...]
    schedule: Schedule
    in_the_end: bool = False
    replayed: bool = True
    passes_time: bool = True

    @property
    def steps(self) -> int:
        """How many steps are left after shortening."""
        return len(self.schedule)

    @property
    def what(self) -> str:
        """The id of the promise, or ``exception``."""
        return "exception" if self.violation is None else str(self.violation.promise)

    def __str__(self) -> str:
        once = [] if self.replayed else ["(seen once: the same steps did not show it again)"]
        end = [_explain_end(self.history, passes_time=self.passes_time)] if self.in_the_end else []
        return "\n".join([*once, *map(repr, self.schedule), *end, str(self.violation or self.raised), *self._hint])

    @property
    def _hint(self) -> list[str]:
        waits = self.violation is not None and self.violation.promise in _OF_WAITING
        return [_NO_TIME] if waits and not self.passes_time else []


class Search(NamedTuple):
    """The outcome of a search.

    Attributes:
        finding: What was found first, shortened; None if nothing was.
        tries: How many schedules were run.
        unjudged: The claimed promises that no schedule has shown in full, and what is missing.
        unjudged_messages: How many messages were not judged, by what is missing.
    """

    finding: Finding | None
    tries: int
    unjudged: tuple[Unjudged, ...]
    unjudged_messages: Counter[str]


class _BrokenError(Exception):
    """A promise is broken: nothing that follows is of interest."""


# --- one schedule -----------------------------------------------------------------------------------------------------


def run_schedule(
    subject: type[Subject] | type[AnyDriver], schedule: Iterable[Step], claims: Claims | None = None
) -> ScheduleRun:
    """Take the steps of a schedule with a fresh broker, and write down what happens.

    In the end all consumers answer everything until nothing comes any more, so that what is lost shows too.

    Args:
        subject: Its machine; or its driver. The driver is closed in the end.
        schedule: The steps.
        claims: What the broker claims; None: what the machine does, and of a driver everything that one history can
            show. To judge nothing here and have the whole history, however broken: ``Claims(promises=set())``.

    Returns:
        The history until the end, or until something was broken or raised; what that was; and the steps that did
        something.

    Raises:
        DriverError: A method of the driver returned something that it must not.
        UnsupportedError: The driver has only one of two methods that need each other, or lacks a needed one.

    Complexity:
        O(steps) calls of the driver, and O(messages) for the end.

    Example:
        >>> from keyshared.testing.dispatcher import DispatcherDriver
        >>> from keyshared.testing.steps import Connect
        >>> run = run_schedule(DispatcherDriver, [Connect("c1"), Publish(b"a"), Ack()], Claims(per_consumer=2))
        >>> [type(event).__name__ for event in run.history[:6]]
        ['Connected', 'Committed', 'Quiet', 'Published', 'Owned', 'Delivered']
        >>> print(run.violation)
        None
    """
    return _run(subject_of(subject, claims), schedule)


def _run(machine: type[Subject], schedule: Iterable[Step]) -> ScheduleRun:
    found: list[Violation] = []
    raised: Raised | None = None

    def blame(violation: Violation) -> None:
        found.append(violation)
        raise _BrokenError

    bench = Bench(machine, blame)
    try:
        for step in schedule:
            bench.take(step)
        bench.heal()
    except _BrokenError:
        pass
    except _OF_THE_KIT:
        raise
    except Exception as error:  # noqa: BLE001  # whatever the system raises is a finding
        raised = _raised(error, machine.driver_class)
    finally:
        bench.driver.close()
    log, violation = bench.log, found[0] if found else None
    unjudged = tuple(log.checker.unjudged())
    history = tuple(log.history)
    return ScheduleRun(
        history, violation, tuple(bench.taken), log.in_the_end, raised, unjudged, log.checker.unjudged_messages
    )


def _raised(error: Exception, driver: type[AnyDriver]) -> Raised:
    """Return who raised an exception: a line of the driver's own file, or one of the system behind it."""
    frames = [(frame.f_code, line) for frame, line in walk_tb(error.__traceback__)]
    foreign = [each for each in frames if not _is_of_python(each[0].co_filename)]
    code, line = (foreign or frames)[-1]
    own_file = getattr(sys.modules.get(driver.__module__), "__file__", None)
    methods = [method for cls in driver.__mro__ for method in vars(cls).values()]
    is_own = code.co_filename == own_file or code in [getattr(method, "__code__", None) for method in methods]
    is_drivers = is_own or not foreign
    return Raised(
        error, "the driver" if is_drivers else "the system", f"{Path(code.co_filename).name}:{line} in {code.co_name}"
    )


def _is_of_python(file: str) -> bool:
    return file.startswith(_KIT) or (file.startswith(_STDLIB) and not file.startswith(_SITE))


def _explain_end(history: Iterable[Event], *, passes_time: bool) -> str:
    end = f"then all consumers answer what comes{', and time passes,' * passes_time} until nothing comes any more"
    joined = any(isinstance(each, Connected) and each.consumer == LAST for each in history)
    return f"({end}; {LAST!r} is the kit's own consumer for this, and takes all keys)" if joined else f"({end})"


# --- shorter schedules ------------------------------------------------------------------------------------------------


def shorten(schedule: Sequence[Step], breaks: Callable[[Schedule], bool]) -> Schedule:
    """Find a shorter and simpler schedule that still breaks something.

    Runs of steps are left out, long ones first, then single ones; then numbers are lowered; in the end a step is left
    out while a later answer is given for another delivery.

    Args:
        schedule: It breaks something.
        breaks: Whether another schedule does too. Called many times; it should return the same each time.

    Returns:
        The shorter one, in which no single step can be left out; the same if there is none.

    Complexity:
        O(n log n) calls mostly, n steps; O(n^2) at worst.

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
    """Yield schedules with one step made easier, or with one step less where only that step was in the way."""
    for position, step in enumerate(schedule):
        for easier in _easier(step):
            yield (*schedule[:position], easier, *schedule[position + 1 :])
    if len(schedule) > _FEW:
        return
    for left_out in range(len(schedule)):
        shorter = schedule[:left_out] + schedule[left_out + 1 :]
        for position in range(left_out, len(shorter)):
            step = shorter[position]
            if isinstance(step, OneOfSeveral):
                for place in _PLACES:
                    yield (*shorter[:position], replace(step, which=place), *shorter[position + 1 :])


def _easier(step: Step) -> Iterator[Step]:  # one case for each kind
    match step:
        case Poll(first, most):
            yield from (replace(step, first=first[:fewer]) for fewer in range(len(first)))
            if most is not None:
                yield from (replace(step, most=more) for more in _MORE if more is None or more > most)
        case KillAt(statement):
            yield from (KillAt(sooner) for sooner in range(1, statement))
        case BeginReceive(consumer, statements):
            yield from (BeginReceive(consumer, fewer) for fewer in range(1, statements))
        case Publish(key, count):
            yield from (replace(step, count=fewer) for fewer in range(1, count))
            yield from (replace(step, key=plain) for plain in _plainer(key))
        case PublishMany(keys):
            yield from (PublishMany(keys[:at] + keys[at + 1 :]) for at in range(len(keys)) if len(keys) > 1)
            for at, key in enumerate(keys):
                yield from (PublishMany((*keys[:at], plain, *keys[at + 1 :])) for plain in _plainer(key))
        case PublishLater(key, ms):
            yield Publish(key)
            yield from (replace(step, ms=less) for less in _DELAYS_MS if less < ms)
            yield from (replace(step, key=plain) for plain in _plainer(key))
        case Wait(ms):
            yield from (Wait(less) for less in _DELAYS_MS if less < ms)
        case _:
            yield from _easier_answer(step)


def _easier_answer(step: Step) -> Iterator[Step]:
    match step:
        case BeginAck(which, statements):
            yield Ack(which)
            yield from (replace(step, statements=fewer) for fewer in range(1, statements))
        case Postpone(_, ms):
            yield from (replace(step, ms=less) for less in _DELAYS_MS if less < ms)
        case AckThrough(which):
            yield Ack(which)
        case Fail(which, times):
            yield Nack(which)
            yield from (replace(step, times=fewer) for fewer in range(2, times))
        case _:
            pass
    if isinstance(step, OneOfSeveral):
        yield from (replace(step, which=lower) for lower in range(step.which))


def _plainer(key: bytes | None) -> Sequence[bytes]:
    """Return keys that are plainer than a key; no key means something, and stays."""
    if key is None:
        return ()
    return _PLAIN_KEYS[: _PLAIN_KEYS.index(key)] if key in _PLAIN_KEYS else _PLAIN_KEYS


# --- searches ---------------------------------------------------------------------------------------------------------


def find_violation(subject: type[Subject] | type[AnyDriver], budget: Budget = BUDGET) -> Finding | None:
    """Try to break a broker.

    Schedules are drawn and run, one after the other, until one breaks a promise or raises. That one is then shortened:
    every step that is left is needed.

    Args:
        subject: Its machine; or its driver, if it claims what `Claims` has by default.
        budget: How hard to try.

    Returns:
        What was found; None if the broker kept its promises in every try.

    Raises:
        DriverError: A method of the driver returned something that it must not.
        TypeError: The subject is no class of a machine or a driver.
    """
    return search(subject, budget).finding


def find_violations(subject: type[Subject] | type[AnyDriver], budget: Budget = BUDGET) -> tuple[Finding, ...]:
    """Find every promise that a broker breaks, each with its own shortest way to it.

    One search finds one broken promise, and may hide others behind it. So the search is repeated, each time without the
    promises and exceptions that were found already, until nothing is found.

    Args:
        subject: As in `find_violation`.
        budget: Likewise, for each search.

    Returns:
        One finding for each broken promise, and each exception, in the order in which they were found. Each was found
        while those before it were no longer claimed: its schedule may break them too.

    Raises:
        DriverError: A method of the driver returned something that it must not.
        TypeError: The subject is no class of a machine or a driver.

    Complexity:
        One search more than there are findings; a correct broker is searched once.
    """
    machine = subject_of(subject)
    found: list[Finding] = []
    while True:
        broken = {each.violation.promise for each in found if each.violation is not None}
        known = frozenset(each.raised.kind for each in found if each.raised is not None)
        claims = replace(machine.claims, promises=machine.claims.promises - broken)
        finding = search(machine, budget, claims=claims, known=known).finding
        if finding is None:
            return tuple(found)
        found.append(finding)


def search(
    subject: type[Subject] | type[AnyDriver],
    budget: Budget = BUDGET,
    *,
    claims: Claims | None = None,
    untried: frozenset[type[Step]] = frozenset(),
    known: frozenset[tuple[type[Exception], str]] = frozenset(),
) -> Search:
    """Search as `find_violation` does, and return what was tried and judged, too.

    Args:
        subject: As in `find_violation`.
        budget: Likewise.
        claims: What is claimed; None: what the machine claims.
        untried: Kinds of steps that are not tried, besides those of the machine.
        known: Exceptions that are no finding any more: `Raised.kind` of each.
    """
    machine = subject_of(subject, claims, untried)
    world = machine.world(budget.steps)
    random = Random(budget.seed)  # noqa: S311  # reproducible, not secret
    end = None if budget.seconds is None else time.monotonic() + budget.seconds
    missing: dict[Promise, Unjudged] | None = None
    messages: Counter[str] = Counter()
    finding: Finding | None = None
    tries = 0
    while tries < budget.tries and finding is None and (end is None or time.monotonic() < end):
        tries += 1
        run = _run(machine, draw_schedule(random, world))
        messages.update(run.unjudged_messages)
        now = {each.promise: each for each in run.unjudged}
        missing = now if missing is None else {promise: each for promise, each in missing.items() if promise in now}
        if run.violation is not None or (run.raised is not None and run.raised.kind not in known):
            finding = _shortened(run, tries, machine, budget)
    return Search(finding, tries, tuple((missing or {}).values()), messages)


def _shortened(run: ScheduleRun, tries: int, machine: type[Subject], budget: Budget) -> Finding:
    """Take the same steps again; if they show the same again, find fewer of them that do."""
    again = _run(machine, run.taken)
    replayed = _is_like(again, run)
    if replayed and budget.shortens:

        def breaks(schedule: Schedule) -> bool:
            return _has_only(machine, schedule, run.taken) and _is_like(_run(machine, schedule), run)

        shortest = _run(machine, shorten(again.taken, breaks))
        run = shortest if _is_like(shortest, run) else again
    passes_time = "advance" in abilities(machine.driver_class)
    return Finding(run.violation, run.raised, tries, run.history, run.taken, run.in_the_end, replayed, passes_time)


def _is_like(run: ScheduleRun, found: ScheduleRun) -> bool:
    """Whether a run shows the same, and by a step if that was so: the end hides what led to it."""
    if run.violation is None or found.violation is None:
        same = run.raised is not None and found.raised is not None and run.raised.kind == found.raised.kind
    else:
        same = run.violation.promise is found.violation.promise
    return same and run.in_the_end <= found.in_the_end


def _has_only(machine: type[Subject], schedule: Schedule, found: Schedule) -> bool:
    """Whether the machine could publish all that: if it has keys of its own, plainer ones may be none of them."""
    return machine.keys is Subject.keys or _keys_of(schedule) <= _keys_of(found)


def _keys_of(schedule: Schedule) -> set[bytes | None]:
    many = {key for step in schedule if isinstance(step, PublishMany) for key in step.keys}
    return many | {step.key for step in schedule if isinstance(step, Publish | PublishLater)}
