"""What is found in files before Spark starts: none of these tests needs a session."""

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
import pyarrow as pa
from pyarrow import parquet

from keyshared.errors import ArgumentError
from keyshared.spark.logs.files import Head, Source, check_named, format_of, head_of, local_path, sample_of

COLUMNS = ("user", "shard", "at")


def written(path: Path, text: str | bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def named(path: str) -> tuple[str, ...]:
    head = head_of(Source(path))
    assert head is not None
    return head.columns


def test_the_columns_of_a_csv_are_in_its_first_line_that_is_not_blank(tmp_path: Path) -> None:
    text = '\ufeff\n"user",shard,at\r\na,b,1\n'.replace('\n"', '"')
    assert named(written(tmp_path / "log.csv", text)) == COLUMNS
    assert named(written(tmp_path / "blank.CSV", "\n\nuser,shard,at\n")) == COLUMNS
    assert named(written(tmp_path / "log.csv.gz", gzip.compress(b"user,shard,at\n"))) == COLUMNS
    assert named(written(tmp_path / "log.csv.bz2", bz2.compress(b"user,shard,at\n"))) == COLUMNS


def test_names_that_a_header_lacks_or_repeats_are_those_that_spark_makes(tmp_path: Path) -> None:
    assert named(written(tmp_path / "log.csv", "a,,A,b\n")) == ("a0", "_c1", "A2", "b")


def test_the_columns_of_json_are_those_of_all_lines_that_were_read(tmp_path: Path) -> None:
    lines = '{"shard": 1, "at": 2}\n{"user": "a\u2028b", "shard": 1, "at": 3}\n'
    assert Head(("shard", "at", "user"), whole=True, nested=True) == head_of(
        Source(written(tmp_path / "log.jsonl", lines))
    )


def test_a_column_that_may_come_further_below_in_json_is_left_to_spark(tmp_path: Path) -> None:
    long = "\n".join([json.dumps({"at": 1, "text": "x" * 1_000})] * 1_100)
    folder = tmp_path / "logs"
    heads = [
        head_of(Source(written(tmp_path / "long.json", long))),
        head_of(Source(written(tmp_path / "odd.json", '{"at": 1}\n{x}\n'))),
    ]
    written(folder / "a.json", '{"at": 1}\n')
    assert (one := head_of(Source(str(folder)))) is not None
    assert one.whole
    written(folder / "b.json", '{"user": 1}\n')
    heads.append(head_of(Source(str(folder))))
    for head in heads:
        assert head is not None
        check_named("--key", "user", head, "long.json")


@pytest.mark.parametrize("text", ["[{}]\n", "{'single': 1}\n", "x" * (1 << 20) + "\n\n"])
def test_json_that_only_spark_understands_is_left_to_it(tmp_path: Path, text: str) -> None:
    assert head_of(Source(written(tmp_path / "log.json", text))) is None


def test_a_csv_whose_first_line_does_not_end_is_left_to_spark(tmp_path: Path) -> None:
    assert head_of(Source(written(tmp_path / "log.csv", "x" * ((1 << 20) + 1)))) is None


def test_the_columns_of_a_folder_are_those_of_its_first_file_and_of_its_partitions(tmp_path: Path) -> None:
    folder = tmp_path / "year.2024" / "day=1" / "shard=7"
    folder.mkdir(parents=True)
    written(tmp_path / "year.2024" / "_SUCCESS", "")
    written(tmp_path / "year.2024" / ".part.crc", "x")
    parquet.write_table(pa.table({"user": ["a"], "at": [1]}), folder / "part-0.parquet")
    assert named(str(tmp_path / "year.2024")) == ("user", "at", "day", "shard")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.csv", "csv"),
        ("a.b.JSON.gz", "json"),
        ("s3a://logs/2024/", "parquet"),
        ("a.ndjson", "json"),
        ("a", "parquet"),
    ],
)
def test_the_extension_says_the_format(path: str, kind: str) -> None:
    assert kind == format_of(Source(path))


def test_a_folder_is_of_the_format_of_its_first_file(tmp_path: Path) -> None:
    written(tmp_path / "logs" / "part-0.csv.gz", gzip.compress(b"user\n"))
    (tmp_path / "empty").mkdir()
    assert ("csv", "parquet") == (format_of(Source(str(tmp_path / "logs"))), format_of(Source(str(tmp_path / "empty"))))


@pytest.mark.parametrize("path", ["hdfs:///logs", "s3a://b/log.csv", "logs/*.csv", "logs/{a,b}.csv", "log.csv.zst"])
def test_what_cannot_be_read_here_is_left_to_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv.zst").write_text("packed")
    assert head_of(Source(path)) is None


def test_a_uri_of_a_file_is_its_path_and_nothing_in_it_is_escaped_as_spark_reads_it(tmp_path: Path) -> None:
    path = Path(written(tmp_path / "my ümlaut%20log #2.csv", "user,shard,at\n"))
    for uri in (f"file:{path}", f"file://{path}", f"file://localhost{path}"):
        assert path == local_path(uri)
        assert named(uri) == COLUMNS
    with pytest.raises(ArgumentError, match="a file or folder that exists"):
        head_of(Source(path.as_uri()))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("log.txt", "a", r"it must end in one of \.parquet, \.csv, .*, or come with a format, such as csv"),
        ("empty.csv", "", "it must begin with a line of column names, and it is empty"),
        ("log.json", "[\n  {\n", "it must hold a JSON object in each line, and its first lines are none"),
        ("log.parquet", "a,b\n", "it must be a parquet file that can be read"),
        ("log.csv.gz", "a,b\n", r"it must be a csv file that can be read \(Not a gzipped file"),
    ],
)
def test_a_file_that_is_no_log_is_refused(tmp_path: Path, name: str, text: str, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        head_of(Source(written(tmp_path / name, text)))


def test_what_is_not_there_is_refused_and_what_comes_close_is_named(tmp_path: Path) -> None:
    written(tmp_path / "events.csv", "a\n")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArgumentError, match=r"it must be a file or folder that exists; did you mean .*/events\.csv\?"):
        head_of(Source(str(tmp_path / "event.csv")))
    with pytest.raises(ArgumentError, match=r"that exists$"):
        head_of(Source(str(tmp_path / "nowhere" / "log.csv")))
    with pytest.raises(ArgumentError, match="it must hold at least one file, and it is an empty folder"):
        head_of(Source(str(tmp_path / "empty")))


@pytest.mark.parametrize("column", ["User", "`user`", "event.id", "`trace.id`", "event.trace.id"])
def test_a_column_is_found_as_spark_finds_it(column: str) -> None:
    check_named("--key", column, Head(("user", "event", "trace.id"), whole=True, nested=True), "log.json")


@pytest.mark.parametrize(
    ("column", "told"),
    [
        ("usr", r"--key is 'usr'; it must be a column of log\.csv \(user, trace\.id\); did you mean user\?"),
        ("zzz", r"--key is 'zzz'; it must be a column of log\.csv \(user, trace\.id\)$"),
        ("user.id", r"it must be a column of log\.csv"),
        ("", r"it must be a column of log\.csv"),
        ("Trace.id", r"it must stand in backticks, because its name is no plain word: `trace\.id`"),
    ],
)
def test_a_column_that_is_missing_is_refused_with_what_was_meant(column: str, told: str) -> None:
    with pytest.raises(ArgumentError, match=told):
        check_named("--key", column, Head(("user", "trace.id"), whole=True, nested=False), "log.csv")


def test_values_of_a_column_are_shown_as_they_are_written_or_stored(tmp_path: Path) -> None:
    text = written(tmp_path / "log.csv", "a,At\nx,007\nx\nx, \nx,8\n")
    lines = written(tmp_path / "log.json", '{"at": 7}\n{}\n{"at": null}\n{"At": "8"}\n')
    parquet.write_table(pa.table({"at": [7, None, 8], "none": pa.nulls(3)}), tmp_path / "log.parquet")
    stored = str(tmp_path / "log.parquet")
    assert (["007", "8"], [7, "8"], [7, 8]) == tuple(sample_of(Source(each), "`at`") for each in (text, lines, stored))
    nowhere = [("s3a://b/log.csv", "at"), (lines, "at.ms"), (stored, "day"), (stored, "none"), (text, "nope")]
    assert [None] * 5 == [sample_of(Source(each[0]), each[1]) for each in nowhere]


def test_the_options_of_a_csv_say_how_it_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "log.txt", "'n\tö'\tat\nx\t7\n".encode("utf-16-le"))
    options = {"SEP": "\\t", "Encoding": "UTF-16LE", "quote": "'"}
    with_header = Source(path, "csv", None, options)
    without = with_header._replace(options={**options, "header": "False"})
    assert Head(("n\tö", "at"), whole=True, nested=False) == head_of(with_header)
    assert Head(("_c0", "_c1"), whole=True, nested=False) == head_of(without)
    assert (["7"], ["at", "7"]) == (sample_of(with_header, "at"), sample_of(without, "_c1"))
    with pytest.raises(ArgumentError, match="encoding is 'latin1'; it must be one of utf-8, iso-8859-1, "):
        head_of(Source(path, "csv", None, {"encoding": "latin1"}))


@pytest.mark.parametrize(
    "how",
    [
        {"schema": "a int"},
        {"format": "orc"},
        {"format": "json", "options": {"multiLine": "true"}},
        {"options": {"comment": "#"}},
        {"options": {"sep": "||"}},
    ],
)
def test_what_only_spark_knows_how_to_read_must_be_there_and_is_left_to_it(tmp_path: Path, how: dict[str, Any]) -> None:
    assert head_of(Source(written(tmp_path / "log.csv", "a,b\n"), **how)) is None
    with pytest.raises(ArgumentError, match="a file or folder that exists"):
        head_of(Source(str(tmp_path / "none.csv"), **how))
