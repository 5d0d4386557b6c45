"""The page tells what the kit finds: every fault by its name, with a promise that it breaks, and a sample."""

import pytest
from tests.kit.all_faults import FAULTS
from tools.draw_kit_table import PAGE, TABLE_PAGE, cut, is_current, rows

PROVE, VERIFICATION = PAGE.read_text("utf-8"), TABLE_PAGE.read_text("utf-8")
ROWS = rows(cut(VERIFICATION, "table")[1])


def test_the_pages_are_current() -> None:
    assert is_current(PROVE, VERIFICATION)


@pytest.mark.parametrize("name", ["CursorOneTooFar", "SplitsStartNoDrain"])
def test_a_page_without_a_fault_is_not_current(name: str) -> None:
    lines = VERIFICATION.splitlines(keepends=True)
    assert not is_current(PROVE, "".join(line for line in lines if not line.startswith(f"| `{name}`")))


def test_a_page_with_a_promise_that_a_fault_does_not_break_is_not_current() -> None:
    assert not is_current(PROVE, VERIFICATION.replace("| safe-cursor |", "| fairness |"))


def test_a_page_with_a_sample_of_something_else_is_not_current() -> None:
    assert not is_current(PROVE.replace("\none-holder: ", "\nno-loss: "), VERIFICATION)


def test_a_page_without_a_place_for_the_table_is_no_such_page() -> None:
    with pytest.raises(SystemExit, match="has no place for the table"):
        cut("# Prove your broker", "table")


def test_every_promise_of_the_table_is_broken_by_its_fault() -> None:
    assert [fault.name for fault in FAULTS] == [name for name, _ in ROWS]
    assert all(promise in fault.promises for (_, promise), fault in zip(ROWS, FAULTS, strict=True))
