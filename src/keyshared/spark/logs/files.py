"""What a file of messages holds, read without Spark: a wrong path or column is told before a session has started.

Plain Python. What cannot be read here (other file systems, patterns, formats of other packages) is left to Spark.
"""

import bz2
import csv
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final, NamedTuple, cast

import pyarrow as pa
from pyarrow import parquet

from keyshared.errors import ArgumentError
from keyshared.spark.frames.checks import parts_of, quoted

__all__ = ["Head", "Source", "check_named", "format_of", "head_of", "local_path", "sample_of", "spark_path"]

_FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json"}
_OPENED: Final[dict[str, Callable[[Path], object]]] = {".gz": gzip.open, ".bz2": bz2.open}
_KNOWN: Final = {"csv": frozenset({"sep", "delimiter", "header", "encoding", "charset", "quote", "inferschema"})}
_ENCODINGS: Final = ("utf-8", "iso-8859-1", "us-ascii", "utf-16", "utf-16be", "utf-16le", "utf-32")
_TABLES: Final = {"iceberg"}  # named by a catalog, or by a path
_PACKED: Final = {".deflate", ".lz4", ".snappy", ".xz", ".zst"}  # Spark can read some of them
_READ: Final = 1 << 20  # bytes of a text file
_SAMPLE: Final = 100  # values of a column
_PATTERN: Final = re.compile(r"[*?\[{]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_FILE: Final = re.compile(r"file:(//[^/]*)?")
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_WRAPPED: Final = re.compile(r"\s*(\{.*\}|\[.*\])\s*$")
_NAMED: Final = re.compile(r"([^=]+)=")  # a folder of a partitioned table


class Source(NamedTuple):
    """What is read, and how.

    Attributes:
        path: A file, a folder or a pattern.
        format: As Spark names it; None: by the extension.
        schema: Columns and types as Spark writes them; None: as the file says.
        options: Of Spark's reader; they come before the ones by default.
    """

    path: str
    format: str | None = None
    schema: str | None = None
    options: Mapping[str, str] = MappingProxyType({})

    def option(self, *names: str, default: str) -> str:
        """Return an option, whose name may be written in any case, as in Spark.

        Args:
            names: What it is called.
            default: What it is where nobody says it.
        """
        return next((value for name, value in self.options.items() if name.casefold() in names), default)


class Head(NamedTuple):
    """The beginning of a file.

    Attributes:
        columns: Their names, in order.
        whole: Whether there are no others: lines of JSON further below may have more.
        nested: Whether a column may have fields of its own.
    """

    columns: tuple[str, ...]
    whole: bool
    nested: bool


def local_path(path: str) -> Path | None:
    """Return the path on this machine; None for a pattern, or a path on another file system.

    Args:
        path: What Spark is to read.
    """
    uri = _FILE.match(path)
    if uri is not None:
        path = path[uri.end() :]  # nothing in it is escaped: Spark takes it as it stands
    elif _SCHEME.match(path):
        return None
    return None if _PATTERN.search(path) else Path(path)


def spark_path(path: Path) -> str:
    """Return how Spark is told a path on this machine: nothing in it is escaped, or it would be another one.

    Args:
        path: Of a file or folder.
    """
    return f"file://{path.resolve().as_posix()}"


def format_of(source: Source) -> str:
    """Return the format that was said, that of a file by its extension, or of a folder by its own or its first file's.

    Args:
        source: What Spark is to read.

    Returns:
        As Spark names it. A folder that says nothing is one of Parquet.

    Raises:
        ArgumentError: A file has an extension that is none of these.
    """
    if source.format is not None:
        return source.format
    suffixes = Path(source.path).suffixes
    found = _format_by(suffixes)
    if found is not None:
        return found
    local = local_path(source.path)
    if local is not None and local.is_dir():
        first = next(_data_files(local), None)
        suffixes = first.suffixes if first is not None else []
        found = _format_by(suffixes)
    if found is None and suffixes:
        told = f"end in one of {', '.join(_FORMATS)}, be a folder of such files, or come with a format, such as csv"
        raise ArgumentError("path", source.path, told)
    return found or "parquet"


def head_of(source: Source) -> Head | None:
    """Read the beginning of a file, or of the first file in a folder.

    Args:
        source: What Spark is to read.

    Returns:
        What was found; None if that is left to Spark.

    Raises:
        ArgumentError: The extension is unknown, there is nothing, or what is there is of another format.
    """
    kind, local = format_of(source), local_path(source.path)
    if local is None or kind.casefold() in _TABLES:
        return None
    file = _first_file(local, source.path)
    if not _is_readable(source, kind, file):
        return None
    try:
        head = _HEADS[kind](file, source)
    except (
        OSError,
        EOFError,
        LookupError,
        pa.ArrowException,
        csv.Error,
    ) as error:
        raise ArgumentError("path", str(file), f"be a {kind} file that can be read ({_short(error)})") from None
    if head is None:
        return None
    folders = [named[1] for part in file.relative_to(local).parts[:-1] if (named := _NAMED.match(part))]
    columns = (*head.columns, *(name for name in folders if name not in head.columns))
    # Spark takes the columns of CSV and Parquet from one file, and those of JSON from all
    alone = kind != "json" or file == local or len(list(islice(_data_files(local), 2))) == 1
    return head._replace(columns=columns, whole=head.whole and alone)


def _is_readable(source: Source, kind: str, file: Path) -> bool:
    """Return whether Spark does nothing with the file that would not be done here."""
    known = source.schema is None and {name.casefold() for name in source.options} <= _KNOWN.get(kind, frozenset())
    return known and kind in _HEADS and file.suffix.lower() not in _PACKED


def check_named(parameter: str, column: str, head: Head, path: str) -> None:
    """Check that a file has a column.

    Args:
        parameter: Who names it, for the error.
        column: Its name, as Spark reads it: a name with a dot in it stands in backticks.
        head: The beginning of the file.
        path: The file, for the error.

    Raises:
        ArgumentError: It has not; the error names what comes close.
    """
    parts, there = parts_of(column), {name.lower(): name for name in head.columns}
    exact = there.get(column.lower())
    found = bool(parts) and parts[0].lower() in there and (head.nested or len(parts) == 1)
    if exact is not None and not found:
        raise ArgumentError(
            parameter, column, f"stand in backticks, because its name is no plain word: {quoted(exact)}"
        )
    if not found and head.whole:
        close = get_close_matches(column.lower(), there, n=1)
        meant = f"; did you mean {there[close[0]]}?" if close else ""
        raise ArgumentError(parameter, column, f"be a column of {path} ({', '.join(head.columns)}){meant}")


def sample_of(source: Source, column: str) -> list[object] | None:
    """Return some values of a column that the first file has.

    Args:
        source: What Spark is to read, where `head_of` has found something.
        column: Its name, as Spark reads it.

    Returns:
        Text from CSV, otherwise what is stored; None if there are none in the beginning of the file, for a field of a
        column, and for the name of a folder.
    """
    local, parts = local_path(source.path), parts_of(column)
    if local is None or len(parts) != 1:
        return None
    try:
        values = _VALUES[format_of(source)](_first_file(local, source.path), parts[0], source)
        return [value for value in values if value is not None and str(value).strip()] or None
    except (ValueError, StopIteration):  # it is further below, or the name of a folder
        return None


def _format_by(suffixes: Sequence[str]) -> str | None:
    lower = [suffix.lower() for suffix in reversed(suffixes)]
    return next((_FORMATS[suffix] for suffix in lower if suffix in _FORMATS), None)


def _data_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that Spark would read: none whose names begin with a dot or underscore."""
    for each in sorted(folder.iterdir()):
        hidden = each.name.startswith(".") or (each.name.startswith("_") and "=" not in each.name)
        if not hidden:
            yield from _data_files(each) if each.is_dir() else (each,)


def _first_file(local: Path, path: str) -> Path:
    if not local.exists():
        around = [each.name for each in local.parent.iterdir()] if local.parent.is_dir() else []
        close = get_close_matches(local.name, around, n=1)
        meant = f"; did you mean {local.parent / close[0]}?" if close else ""
        raise ArgumentError("path", path, f"be a file or folder that exists{meant}")
    first = next(_data_files(local), None) if local.is_dir() else local
    if first is None:
        raise ArgumentError("path", path, "hold at least one file, and it is an empty folder")
    return first


def _lines(file: Path, encoding: str = "utf-8") -> tuple[list[str], bool]:
    """Return the first lines that are not blank, and whether these are all."""
    opened = _OPENED.get(file.suffix.lower())
    with cast("BinaryIO", opened(file)) if opened else file.open("rb") as stream:
        data = stream.read(_READ + 1)
    whole = len(data) <= _READ
    if not whole:  # the last line is cut
        data = data[: data.rfind(b"\n", 0, _READ) + 1]
    # as Spark does: unlike str.splitlines, and bytes that are no text do no harm in a column that nobody names
    lines = _LINE_END.split(data.decode(encoding, errors="replace").removeprefix("\ufeff"))
    return [line for line in lines if line.strip()], whole


def _csv_rows(file: Path, source: Source) -> tuple[list[list[str]], bool]:
    """Return the names of columns and after them the first rows, and whether there is something to read."""
    encoding = source.option("encoding", "charset", default="utf-8")
    if encoding.casefold() not in _ENCODINGS:
        raise ArgumentError("encoding", encoding, f"be one of {', '.join(_ENCODINGS)}: Spark knows no others")
    lines, whole = _lines(file, encoding)
    separator = source.option("sep", "delimiter", default=",").replace("\\t", "\t")
    quote = source.option("quote", default='"')
    if len(separator) != 1 or len(quote) != 1 or not lines:
        return [], whole and not lines
    rows = list(csv.reader(lines[: _SAMPLE + 1], delimiter=separator, quotechar=quote, escapechar="\\"))
    if source.option("header", default="true").casefold() == "true":
        folded = [name.lower() for name in rows[0]]
        return [[_safe(name, i, folded) for i, name in enumerate(rows[0])], *rows[1:]], False
    return [[f"_c{i}" for i in range(len(rows[0]))], *rows], False


def _csv_head(file: Path, source: Source) -> Head | None:
    rows, empty = _csv_rows(file, source)
    if empty:
        raise ArgumentError("path", str(file), "begin with a line of column names, and it is empty")
    return Head(tuple(rows[0]), whole=True, nested=False) if rows else None


def _safe(name: str, index: int, folded: Sequence[str]) -> str:
    """Return the name that Spark makes of one in a header."""
    if not name:
        return f"_c{index}"
    return f"{name}{index}" if folded.count(name.lower()) > 1 else name


def _json_head(file: Path, _: Source) -> Head | None:
    lines, whole = _lines(file)
    rows = [_json_row(line) for line in lines]
    objects = [row for row in rows if isinstance(row, dict)]
    if objects:
        whole = whole and len(objects) == len(rows)
        return Head(tuple(dict.fromkeys(chain.from_iterable(objects))), whole=whole, nested=True)
    # Spark reads more than the standard says: arrays of messages, single quotes
    if any(_WRAPPED.match(line) for line in lines) or (not lines and not whole):
        return None
    raise ArgumentError("path", str(file), "hold a JSON object in each line, and its first lines are none")


def _json_row(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _parquet_head(file: Path, _: Source) -> Head:
    with _parquet(file) as opened:
        return Head(tuple(opened.schema_arrow.names), whole=True, nested=True)


def _parquet(file: Path) -> parquet.ParquetFile:
    return parquet.ParquetFile(file)


def _csv_values(file: Path, column: str, source: Source) -> list[object]:
    names, *rows = _csv_rows(file, source)[0]
    index = [name.lower() for name in names].index(column.lower())
    return [row[index] for row in rows if index < len(row)]


def _json_values(file: Path, column: str, _: Source) -> list[object]:
    rows = (_json_row(line) for line in _lines(file)[0])
    found = [value for row in rows if isinstance(row, dict) for name, value in row.items() if _same(name, column)]
    return found[:_SAMPLE]


def _parquet_values(file: Path, column: str, _: Source) -> list[object]:
    with _parquet(file) as opened:
        name = next(name for name in opened.schema_arrow.names if _same(name, column))
        first = next(opened.iter_batches(batch_size=_SAMPLE, columns=[name]), None)
    return [] if first is None else list(first.column(0).to_pylist())


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _short(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error).partition("\n")[0]


_VALUES: Final[dict[str, Callable[[Path, str, Source], list[object]]]] = {
    "csv": _csv_values,
    "json": _json_values,
    "parquet": _parquet_values,
}
_HEADS: Final[dict[str, Callable[[Path, Source], Head | None]]] = {
    "csv": _csv_head,
    "json": _json_head,
    "parquet": _parquet_head,
}
