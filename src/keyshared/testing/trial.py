"""Run a machine as data: what it found, after how many tries, instead of a failing test."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from keyshared._checks import check_extra

check_extra("testing", "hypothesis")

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, FlakyStrategyDefinition
from hypothesis.stateful import run_state_machine_as_test

from keyshared.testing._given import check_class
from keyshared.testing.driver import AnyDriver, AsyncDriver, Driver
from keyshared.testing.ending import explain_end
from keyshared.testing.guarantees import Violation
from keyshared.testing.history import Happening
from keyshared.testing.machine import KeySharedMachine, PromiseBrokenError
from keyshared.testing.replay import ScheduleRun, run_schedule, shorten
from keyshared.testing.steps import Publish, PublishLater, Schedule, Step
from keyshared.testing.strategies import delays_ms, schedules

__all__ = ["BUDGET", "Finding", "find_violation", "find_violations"]

BUDGET: Final = settings(max_examples=500, derandomize=True, database=None, deadline=None)
"""How hard to try by default: seconds, and the same tries every time."""


class Finding(NamedTuple):
    """What a machine has found.

    Attributes:
        violation: The broken promise and its proof.
        examples: How many tries it took to find, before shrinking.
        history: What happens in the shortest way to it.
        schedule: The steps of that way: `keyshared.testing.replay.run_schedule` takes them again.
        in_the_end: Whether it shows only after the last of them, when everybody answers everything.
    """

    violation: Violation
    examples: int
    history: tuple[Happening, ...]
    schedule: Schedule
    in_the_end: bool = False

    @property
    def steps(self) -> int:
        """How many steps are left after shrinking."""
        return len(self.schedule)

    def __str__(self) -> str:
        end = [explain_end(self.history)] if self.in_the_end else []
        return "\n".join([*map(repr, self.schedule), *end, str(self.violation)])


def find_violation(subject: type[KeySharedMachine] | type[AnyDriver], settings: settings = BUDGET) -> Finding | None:
    """Try to break a broker.

    Hypothesis looks for a fault; the schedule that it has found is then shortened by replays, which takes a fraction of
    the time of Hypothesis' own shrinking, and does not end before every step that is left is needed. What a system
    breaks once and not again is told as it was found. If it does something else when the same steps are taken again,
    schedules are drawn first, and then run.

    Args:
        subject: Its machine; or its driver, if it claims what `Guarantees` has by default.
        settings: Hypothesis' settings: how many examples, how many steps each, and whether to shrink. Only the first
            fault is looked for, and a try may take any time, whatever they say.

    Returns:
        What was found; None if the broker kept its promises in every try.

    Raises:
        Exception: Whatever else the driver or the broker raises.
        TypeError: The subject is no class of a machine or a driver.
    """
    machine = _machine_of(subject)
    tries = found_at = 0
    first: PromiseBrokenError | None = None

    class Counted(machine):  # type: ignore[valid-type,misc]  # whatever machine is given
        def __init__(self) -> None:
            super().__init__()
            nonlocal tries
            tries += 1

        def blame(self, violation: Violation) -> None:
            nonlocal found_at, first
            found_at = found_at or tries  # Hypothesis tries it once more
            try:
                super().blame(violation)
            except PromiseBrokenError as broken:
                first = first or broken
                raise

    Counted.__name__ = machine.__name__
    try:
        run_state_machine_as_test(Counted, settings=_first_fault_only(settings))
    except PromiseBrokenError as error:
        broken = error
    except Flaky as error:  # a real system may answer otherwise when it is tried once more
        if first is not None:
            broken = first
        elif isinstance(error, FlakyStrategyDefinition):
            return _find_by_chance(machine, settings)
        else:
            raise
    else:
        return None
    finding = Finding(broken.violation, found_at, broken.history, broken.schedule, broken.in_the_end)
    return _shortened(finding, machine) if Phase.shrink in settings.phases else finding


def _find_by_chance(machine: type[KeySharedMachine], chosen: settings) -> Finding | None:
    """Draw schedules first: what a machine draws depends on what has happened, which is never the same here."""
    found: list[Finding] = []
    tries = 0

    @_first_fault_only(chosen)
    @given(_schedules_of(machine, chosen))
    def search(schedule: Schedule) -> None:
        nonlocal tries
        if not found:
            tries += 1
            run = _replay(machine, schedule)
            if run.violation is not None:
                found.append(Finding(run.violation, tries, run.history, run.taken, run.in_the_end))

    search()
    if not found:
        return None
    return _shortened(found[0], machine) if Phase.shrink in chosen.phases else found[0]


def _schedules_of(machine: type[KeySharedMachine], chosen: settings) -> st.SearchStrategy[Schedule]:
    """Draw what the machine would: who claims something for a small world only claims nothing beyond it."""
    few: dict[str, st.SearchStrategy[str]] = {}
    if machine.names is not KeySharedMachine.names:  # of the usual ones, most steps would be of somebody not there
        few["names"] = machine.names
    return schedules(
        machine.driver_class,
        keys=machine.keys,
        delays=delays_ms(*machine.world().timeouts),
        most=chosen.stateful_step_count,
        **few,
    )


def find_violations(
    subject: type[KeySharedMachine] | type[AnyDriver], settings: settings = BUDGET
) -> tuple[Finding, ...]:
    """Find every promise that a broker breaks, each with its own shortest way to it.

    One search finds one broken promise, and may hide others behind it. So the search is repeated, each time without the
    promises that were found already, until nothing is found.

    Args:
        subject: As in `find_violation`.
        settings: Likewise, for each search.

    Returns:
        One finding for each broken promise, in the order in which they were found. Each was found, and shortened, while
        those before it were no longer claimed: its schedule may break them too.

    Raises:
        Exception: Whatever else the driver or the broker raises.
        TypeError: The subject is no class of a machine or a driver.

    Complexity:
        One search more than there are findings; a correct broker is searched once.
    """
    machine = _machine_of(subject)
    found: list[Finding] = []
    while True:
        unknown = machine.guarantees.promises - {finding.violation.promise for finding in found}
        claims = replace(machine.guarantees, promises=unknown)
        finding = find_violation(type(machine.__name__, (machine,), {"guarantees": claims}), settings)
        if finding is None:
            return tuple(found)
        found.append(finding)


def _machine_of(subject: type[KeySharedMachine] | type[AnyDriver]) -> type[KeySharedMachine]:
    check_class("subject", subject, KeySharedMachine, Driver, AsyncDriver)
    if issubclass(subject, KeySharedMachine):
        return subject
    return type(f"{subject.__name__}Machine", (KeySharedMachine,), {"driver_class": subject})


def _first_fault_only(chosen: settings) -> settings:
    """What takes long (a server) is no fault, as in the ``TestCase`` of a machine."""
    phases = [phase for phase in chosen.phases if phase not in {Phase.shrink, Phase.explain}]
    return settings(
        chosen,
        report_multiple_bugs=False,
        print_blob=False,
        phases=phases,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def _shortened(finding: Finding, machine: type[KeySharedMachine]) -> Finding:
    """The same finding in fewer steps, if a replay shows it at all: a real system may answer otherwise each time."""
    found = _replay(machine, finding.schedule)

    def breaks(schedule: Schedule) -> bool:
        return _has_only(machine, schedule, finding.schedule) and _is_like(_replay(machine, schedule), found, finding)

    if not _is_like(found, found, finding):
        return finding
    shortest = _replay(machine, shorten(finding.schedule, breaks))
    if shortest.violation is None or not _is_like(shortest, found, finding):
        return finding
    return Finding(shortest.violation, finding.examples, shortest.history, shortest.taken, shortest.in_the_end)


def _has_only(machine: type[KeySharedMachine], schedule: Schedule, found: Schedule) -> bool:
    """Whether the machine could publish all that: if it has keys of its own, plainer ones may be none of them."""
    return machine.keys is KeySharedMachine.keys or _keys_of(schedule) <= _keys_of(found)


def _keys_of(schedule: Schedule) -> set[bytes | None]:
    return {step.key for step in schedule if isinstance(step, Publish | PublishLater)}


def _is_like(replay: ScheduleRun, found: ScheduleRun, finding: Finding) -> bool:
    """Whether a replay shows the same promise broken, and by a step if that was so: the end hides what led to it."""
    violation = replay.violation
    return (
        violation is not None
        and violation.promise is finding.violation.promise
        and replay.in_the_end <= found.in_the_end
    )


def _replay(machine: type[KeySharedMachine], schedule: Iterable[Step]) -> ScheduleRun:
    world = machine.world()
    return run_schedule(
        machine.driver_class,
        schedule,
        world.guarantees,
        max_outstanding=world.max_outstanding,
        retry_ms=world.retry_ms,
        rest_ms=world.rest_ms,
        untried=world.untried,
        max_consumers=world.max_consumers,
    )
