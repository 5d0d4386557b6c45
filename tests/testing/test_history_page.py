"""The page about the format says what the readers do."""

import re
from dataclasses import MISSING, fields
from pathlib import Path

from keyshared.testing.claims import JUDGED
from keyshared.testing.history import HoldReason, SettledBy
from keyshared.testing.rows import COLUMNS, HISTORY_VERSION, KINDS

PAGE = (Path(__file__).parents[2] / "docs" / "history.md").read_text("utf-8")


def table(head: str) -> dict[str, list[str]]:
    """The rows of the table whose first row begins so, by their first cell."""
    _, _, rest = PAGE.partition(f"\n| {head} |")
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {first.strip("`"): others for first, *others in cells}


def test_every_column_is_described() -> None:
    described = [(name, arrow, null == "yes") for name, (arrow, null, _) in table("column | type").items()]
    assert [tuple(column) for column in COLUMNS] == described


def test_every_event_is_described_with_its_fields() -> None:
    expected = {
        name: [
            f"**{field.name}**" if field.default is MISSING else field.name
            for field in fields(kind)
            if field.name != "at_ms"
        ]
        for name, kind in KINDS.items()
    }
    described = {
        name: [field for field in told.split(", ") if field] for name, (told, _) in table("event | fields").items()
    }
    assert expected == described


def test_every_fixed_reason_is_described() -> None:
    events = table("event | fields")
    for name, reasons in (("held", HoldReason), ("settled", SettledBy)):
        assert [str(reason) for reason in reasons] == re.findall(r"`(\w+)`", events[name][1])


def test_every_promise_says_what_it_needs() -> None:
    assert JUDGED == {name for names in table("promise | needs") for name in names.split(", ")}


def test_the_version_is_that_of_the_readers() -> None:
    assert f"version of this format: {HISTORY_VERSION}" == table("column | type")["version"][2]
