"""Real systems under the kit: what it finds in each, and the page that says so. `make nightly` only."""

from dataclasses import replace
from pathlib import Path

import pytest
from examples.subjects import lanes, queues, streams
from hypothesis import Phase, settings

from keyshared.testing import Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.trial import find_violation

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "real-subjects.md").read_text("utf-8")
# Each step waits for a server: the profile's thousands, and shrinking, would take hours.
BUDGET = settings(max_examples=100, phases=(Phase.generate,), derandomize=True, database=None, deadline=None)
FOUND: dict[type[KeySharedMachine], Promise | None] = {
    lanes.LanePoolMachine: Promise.ONE_HOLDER,
    lanes.LanePlacementMachine: Promise.MINIMAL_MOVE,
    lanes.LaneProgressMachine: Promise.PROGRESS,
    streams.GroupMachine: Promise.ONE_HOLDER,
    streams.LateAckMachine: Promise.FENCE,
    streams.LaneMachine: Promise.KEY_ORDER,
    streams.PatientLaneMachine: None,
    streams.FrontMachine: None,
    queues.SkipLockedMachine: Promise.ONE_HOLDER,
    queues.AdvisoryLockMachine: None,
    queues.SortedAdvisoryLockMachine: Promise.PROGRESS,
    queues.HeadOfKeyMachine: None,
}

pytestmark = pytest.mark.slow
subject = pytest.mark.parametrize("machine", FOUND, ids=lambda machine: machine.__name__)


@subject
def test_the_kit_finds_in_a_real_system_what_the_page_says(machine: type[KeySharedMachine]) -> None:
    promise = FOUND[machine]
    # Which of several broken promises shows first is chance; so the one that the page names is claimed alone.
    claimed = machine.guarantees if promise is None else replace(machine.guarantees, promises={promise})
    finding = find_violation(type(machine.__name__, (machine,), {"guarantees": claimed}), BUDGET)
    assert promise == (None if finding is None else finding.violation.promise), finding


@subject
def test_the_page_tells_what_was_found_in_each_system(machine: type[KeySharedMachine]) -> None:
    row = next(line for line in PAGE.splitlines() if f"| `{machine.__name__}` |" in line)
    promise = FOUND[machine]
    assert (f"| {'nothing' if promise is None else promise} |") in row
