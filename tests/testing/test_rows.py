import csv
import io
import json
from base64 import b64encode
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.testing import HistoryError
from keyshared.testing.history import Delivered, Event, Gone, Held, HoldReason, Published, Quiet
from keyshared.testing.rows import (
    COLUMNS,
    HISTORY_VERSION,
    KINDS,
    from_rows,
    read_csv,
    read_jsonl,
    to_rows,
    write_jsonl,
)

INTS = st.integers(-(1 << 63), (1 << 63) - 1)
events: st.SearchStrategy[Event] = st.one_of(
    *(
        st.builds(kind, **{name: INTS for name in ("offset", "limit", "resume_offset") if name in kind.__slots__})
        | st.from_type(kind)
        for kind in get_args(Event)
    )
).filter(
    lambda event: all(
        not isinstance(value, int) or -(1 << 63) <= value < 1 << 63
        for value in (getattr(event, name) for name in event.__slots__)
    )
)
PUBLISHED = {"version": 2, "event": "published", "offset": 0}


@given(st.lists(events, max_size=5))
def test_json_lines_read_back_what_was_written(history: list[Event]) -> None:
    lines = list(write_jsonl(history))
    assert all(line.isascii() and line.endswith("}\n") and "\n" not in line[:-1] for line in lines)
    assert history == list(read_jsonl(lines))


@given(st.lists(events, max_size=5))
def test_rows_read_back_what_was_written(history: list[Event]) -> None:
    rows = list(to_rows(history))
    assert all([column.name for column in COLUMNS] == list(row) for row in rows)
    assert history == list(from_rows(rows))


def can_stand_in_csv(event: Event) -> bool:
    """An empty cell is null, so an empty text cannot be written; a key can, in base64, unless it is empty."""
    values = [getattr(event, name) for name in event.__slots__]
    return all(value not in {"", b""} and "\0" not in str(value) for value in values)


@given(st.lists(events.filter(can_stand_in_csv), max_size=5))
def test_csv_reads_back_what_was_written(history: list[Event]) -> None:
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, [*(column.name for column in COLUMNS if column.name != "key"), "key_base64", "x_own"])
    writer.writeheader()
    for row in to_rows(history):
        key = row.pop("key")
        cells: dict[str, object] = {
            name: str(value).lower() if type(value) is bool else value for name, value in row.items()
        }
        writer.writerow(cells | {"key_base64": b64encode(key).decode() if isinstance(key, bytes) else None, "x_own": 7})
    file.seek(0)
    assert history == list(read_csv(file))


def test_csv_without_a_version_is_version_2_and_its_keys_may_be_texts() -> None:
    lines = ["event,offset,key\r\n", "\r\n", 'published,0,"a\n', 'b"\r\n']
    assert [Published(offset=0, key=b"a\nb")] == list(read_csv(lines))


NAMES = ", ".join(column.name for column in COLUMNS)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["event\n", "quiet\n", '"quiet'], "line 3 is 'unexpected end of data'; it must be CSV"),
        (["event,at_ms\n", "quiet\n"], "line 2 is ['quiet']; it must have 2 cells, as the first line has"),
        (["event,at_ms\n", "quiet,1e3\n"], "at_ms of line 2 is '1e3'; it must be an int of 64 bits"),
        (["event,at_ms\n", f"quiet,{1 << 63}\n"], f"at_ms of line 2 is {1 << 63}; it must be an int of 64 bits"),
        (
            ["event,offset,consumer,counted\n", "acked,0,c1,yes\n"],
            "counted of line 2 is 'yes'; it must be true or false",
        ),
        (
            ["version,event\n", "1,quiet\n"],
            "version of line 2 is 1; it must be 2, the version that this reader knows",
        ),
        (
            ["event,x_number\n", "published,0\n"],
            "offset of line 2 is None; it must be there: published needs it",
        ),
        (
            ["event,offset,attempts\n", "published,0,\n"],
            f"a column of line 1 is 'attempts'; it must be one of {NAMES}, key_base64, or begin with x_",
        ),
        (
            ["\n", "event,offset,offset\n", "published,0,1\n"],
            "a column of line 2 is 'offset'; it must be there once",
        ),
        (
            ["event,offset,key,key_base64\n", "published,0,k,aw==\n"],
            "key_base64 of line 2 is 'aw=='; it must not stand beside key",
        ),
    ],
)
def test_a_line_of_csv_that_is_none_is_named(lines: list[str], text: str) -> None:
    with pytest.raises(HistoryError) as raised:
        list(read_csv(lines))
    assert text == str(raised.value)


def test_a_table_reads_back_what_was_written() -> None:
    arrow = pytest.importorskip("pyarrow")
    history: list[Event] = [
        Published(offset=0, key=b"\xff", at_ms=1),
        Delivered(offset=0, key=b"\xff", consumer="a", attempt=1),
        Held(offset=0, reason=HoldReason.RETRY, until_ms=9),
        Gone(consumer="a", drains=True),
    ]
    types = {
        column.name: getattr(arrow, f"{column.arrow}_" if column.arrow == "bool" else column.arrow)()
        for column in COLUMNS
    }
    schema = arrow.schema([arrow.field(column.name, types[column.name], column.nullable) for column in COLUMNS])
    table = arrow.Table.from_pylist(list(to_rows(history)), schema=schema)
    assert history == list(from_rows(table.to_pylist()))


def test_every_field_of_every_event_has_a_column() -> None:
    used = {name for kind in KINDS.values() for name in kind.__slots__} | {"version", "event"}
    assert used == {column.name for column in COLUMNS}


def test_every_event_has_a_name() -> None:
    assert set(get_args(Event)) == set(KINDS.values())
    assert {"published", "dead_lettered", "at_rest", "placement_changed"} < KINDS.keys()


def test_readers_are_lazy() -> None:
    def lines() -> Any:
        yield '{"version": 2, "event": "quiet"}'
        raise AssertionError

    assert Quiet() == next(read_jsonl(lines()))


def test_blank_lines_and_columns_of_ones_own_are_passed_over() -> None:
    lines = ["\n", "", '{"version":2,"event":"quiet","x_host":"b7","consumer":null}\r\n', "  "]
    assert [Quiet()] == list(read_jsonl(lines))


def test_a_key_may_be_a_text() -> None:
    assert [Published(offset=0, key="\u00e9".encode())] == list(from_rows([PUBLISHED | {"key": "\u00e9"}]))


@pytest.mark.parametrize(
    ("row", "field", "requirement"),
    [
        ({}, "version", "be 2, the version that this reader knows"),
        (PUBLISHED | {"version": 1}, "version", "be 2, the version that this reader knows"),
        (PUBLISHED | {"version": True}, "version", "be 2, the version that this reader knows"),
        (PUBLISHED | {"event": "exploded"}, "event", f"be one of {', '.join(KINDS)}"),
        (PUBLISHED | {"event": None}, "event", f"be one of {', '.join(KINDS)}"),
        (PUBLISHED | {"event": []}, "event", f"be one of {', '.join(KINDS)}"),
        (PUBLISHED | {"offset": None}, "offset", "be there: published needs it"),
        (PUBLISHED | {"offset": "0"}, "offset", "be an int of 64 bits"),
        (PUBLISHED | {"offset": True}, "offset", "be an int of 64 bits"),
        (PUBLISHED | {"offset": 0.0}, "offset", "be an int of 64 bits"),
        (PUBLISHED | {"offset": 1 << 63}, "offset", "be an int of 64 bits"),
        (PUBLISHED | {"at_ms": "now"}, "at_ms", "be an int of 64 bits"),
        (PUBLISHED | {"key": 5}, "key", "be bytes, or a str that UTF-8 can encode"),
        (PUBLISHED | {"key": "\ud800"}, "key", "be bytes, or a str that UTF-8 can encode"),
        (PUBLISHED | {"consumer": "a"}, "consumer", "be null: published has no such field"),
        (PUBLISHED | {"offsets": None}, "offsets", "not be there: columns of your own begin with x_"),
        ({"version": 2, "event": "connected", "consumer": b"a"}, "consumer", "be a str"),
        ({"version": 2, "event": "gone", "consumer": "a", "drains": 1}, "drains", "be true or false"),
        (
            {"version": 2, "event": "settled", "offset": 0, "reason": "luck"},
            "reason",
            "be one of 'late_ack', 'operator', 'superseded', 'nobody'",
        ),
    ],
)
def test_a_row_that_is_none_is_named_with_its_field(row: dict[str, object], field: str, requirement: str) -> None:
    with pytest.raises(HistoryError) as raised:
        list(from_rows([PUBLISHED, row]))
    assert (1, "row", field, requirement) == (
        raised.value.number,
        raised.value.unit,
        raised.value.field,
        raised.value.requirement,
    )
    assert f"{field} of row 1 is {row.get(field)!r}; it must {requirement}" == str(raised.value)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("oops", "line 1 is 'oops'; it must be one JSON object"),
        ("[" * 100_000, f"line 1 is {'[' * 80!r}; it must be one JSON object"),
        ("[]", "line 1 is []; it must be an object with the fields of an event"),
        (
            json.dumps(PUBLISHED | {"key": "k", "key_base64": "aw=="}),
            "key_base64 of line 1 is 'aw=='; it must not stand beside key",
        ),
        (json.dumps(PUBLISHED | {"key_base64": "?"}), "key_base64 of line 1 is '?'; it must be a str in base64"),
        (json.dumps(PUBLISHED | {"key_base64": 5}), "key_base64 of line 1 is 5; it must be a str in base64"),
    ],
)
def test_a_line_that_is_none_is_named(line: str, text: str) -> None:
    with pytest.raises(HistoryError) as raised:
        list(read_jsonl([line]))
    assert text == str(raised.value)


def test_what_is_no_line_or_no_event_is_named() -> None:
    with pytest.raises(HistoryError, match="line 2 is 5; it must be a str"):
        list(read_jsonl(["", 5]))  # type: ignore[list-item]  # on purpose
    with pytest.raises(HistoryError, match=r"event 1 is 5; it must be a value of keyshared\.testing\.history"):
        list(write_jsonl([Quiet(), 5]))  # type: ignore[list-item]  # on purpose


def test_every_row_says_its_version() -> None:
    assert [HISTORY_VERSION] == [row["version"] for row in to_rows([Quiet()])]
