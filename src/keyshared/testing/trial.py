"""Run a machine as data: what it found, after how many tries, instead of a failing test."""

from typing import Final, NamedTuple

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from keyshared.testing.guarantees import Promise, Violation
from keyshared.testing.history import Happening
from keyshared.testing.machine import KeySharedMachine, PromiseBrokenError

__all__ = ["BUDGET", "Finding", "find_violation"]

BUDGET: Final = settings(max_examples=500, derandomize=True, database=None, deadline=None)
"""How hard to try by default: seconds, and the same tries every time."""


class Finding(NamedTuple):
    """What a machine has found.

    Attributes:
        violation: The broken promise and its proof.
        examples: How many tries it took to find, before shrinking.
        history: What happens in the shortest way to it.
        script: The steps of that way, as Hypothesis prints them. The last one, ``teardown``, heals everything.
    """

    violation: Violation
    examples: int
    history: tuple[Happening, ...]
    script: tuple[str, ...]

    @property
    def steps(self) -> int:
        """How many steps are left after shrinking, without the last one."""
        return len(self.script) - 1

    def __str__(self) -> str:
        return "\n".join([*self.script, str(self.violation)])


def find_violation(machine: type[KeySharedMachine], settings: settings = BUDGET) -> Finding | None:
    """Try to break a broker.

    Args:
        machine: Its machine.
        settings: Hypothesis' settings: how many examples, how many steps each, and whether to shrink. Only the first
            fault is looked for, whatever they say.

    Returns:
        What was found; None if the broker kept its promises in every try.

    Raises:
        Exception: Whatever else the driver or the broker raises.
    """
    tries = 0
    found: list[tuple[Promise, int]] = []

    class Counted(machine):  # type: ignore[valid-type,misc]  # whatever machine is given
        def __init__(self) -> None:
            super().__init__()
            nonlocal tries
            tries += 1

        def blame(self, violation: Violation) -> None:
            if not found:
                found.append((violation.promise, tries))
            if violation.promise != found[0][0]:
                # Shrinking stays with the promise that was found first. Not by reject(): Hypothesis does not take that
                # from a teardown after it has cut a try off.
                self.is_broken = True
            if not self.is_broken:
                super().blame(violation)

    Counted.__name__ = machine.__name__
    try:
        run_state_machine_as_test(Counted, settings=_first_fault_only(settings))
    except PromiseBrokenError as broken:
        script = [line for note in getattr(broken, "__notes__", []) for line in note.splitlines()]
        steps = tuple(line for line in script if line.startswith("state."))
        return Finding(broken.violation, found[0][1], broken.history, steps)
    return None


def _first_fault_only(chosen: settings) -> settings:
    return settings(chosen, report_multiple_bugs=False, print_blob=False)
