"""Names of topics, groups and schema subjects, and their names on another cluster.

On a cluster the topic ``orders`` has a technical name that a pattern makes of fields, such as
``{tenant}-{instance}-{environment}-{topic}``, and its schemas have that name plus ``-key`` or ``-value``
(TopicNameStrategy). A distributor reads a name with the pattern of one cluster and writes it with that of another.

``a-b-c`` fits ``{tenant}-{topic}`` twice if tenants may have a dash. So *every* split of a name is tried, and two that
fit are a result of their own, never a guess.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from keyshared._checks import check_kind, check_mapping, check_several, check_text
from keyshared.errors import ArgumentError, shown

__all__ = [
    "SUBJECT_SUFFIXES",
    "NameIssue",
    "NamePattern",
    "NameProblem",
    "ParsedName",
]

SUBJECT_SUFFIXES: Final = ("-key", "-value")  # TopicNameStrategy, the default of Confluent's serializers
_FIELD: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_BRACKETS: Final = re.compile(r"\[([^\[\]]*)\]")
_NO_SUFFIX: Final = ("",)

_Rest: TypeAlias = tuple[int, int, Any] | None


class NameIssue(StrEnum):
    """Why a name was not read or not translated."""

    NO_MATCH = "no match"  # no split of the name fits the pattern
    AMBIGUOUS = "ambiguous"  # more than one does
    NOT_ALLOWED = "not allowed"  # the other cluster's pattern does not allow the value of a field
    AMBIGUOUS_THERE = "ambiguous there"
    """The other cluster's pattern could read the translated name in more than one way."""


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ParsedName:
    """The meaning of a name: pairs of a field and its value, and the suffix such as ``-value``, or none.

    Example:
        >>> NamePattern("{tenant}-{topic}").parse("acme-orders")["topic"]
        'orders'
    """

    fields: tuple[tuple[str, str], ...]
    suffix: str = ""

    def __getitem__(self, field: str) -> str:
        """Return the value of a field, or raise KeyError."""
        return dict(self.fields)[field]


@dataclass(frozen=True, slots=True)
class NameProblem:
    """A name that was not read or not translated, and why.

    Attributes:
        name: The name.
        problem: What is wrong with it.
        readings: Two of its readings if there are several; for `NameIssue.AMBIGUOUS_THERE` those of the translated
            name.
        field: The field, for `NameIssue.NOT_ALLOWED`.
    """

    name: str
    problem: NameIssue
    readings: tuple[ParsedName, ...] = ()
    field: str | None = None


class NamePattern:
    """The pattern by which a cluster makes names of fields. A value: never changes, and equal ones are equal.

    Args:
        text: Literal text, and fields in braces: ``{tenant}-{topic}``. Each field is named once.
        known: Fields whose values the cluster's configuration knows: one value, or several. They may have separators.
        plain: Fields that never have a separator, which is any text between two fields. None for all but the last of
            those that are not known; empty for no field at all. Any other field has any value that is not empty.
        suffixes: What follows the pattern, exactly one of them; none for topics and groups. See `for_subjects`.

    Source:
        Axual, "Schema Distribution model" and the pattern syntax of its configuration; differs: a name with several
        readings is reported.

    Example:
        >>> topics = NamePattern("{tenant}-{instance}-{environment}-{topic}", known={"instance": "eu-west"})
        >>> topics.parse("acme-eu-west-prod-order-events").fields[2:]
        (('environment', 'prod'), ('topic', 'order-events'))
        >>> topics.for_subjects().parse("acme-eu-west-prod-order-events-value").suffix
        '-value'
        >>> NamePattern("{tenant}-{topic}", plain=()).parse("a-b-c").problem
        <NameIssue.AMBIGUOUS: 'ambiguous'>
    """

    __slots__ = ("_fields", "_known", "_literals", "_plain", "_separators", "_suffixes", "_text")

    def __init__(
        self,
        text: str,
        *,
        known: Mapping[str, str | Collection[str]] | None = None,
        plain: Collection[str] | None = None,
        suffixes: Sequence[str] = (),
    ) -> None:
        self._text = check_text("text", text)
        pieces = _FIELD.split(text)
        self._literals: tuple[str, ...] = tuple(pieces[::2])
        self._fields: tuple[str, ...] = tuple(pieces[1::2])
        if not self._fields or len(set(self._fields)) < len(self._fields):
            raise ArgumentError("text", text, "have at least one {field}, and none twice")
        if any(brace in literal for literal in self._literals for brace in "{}"):
            raise ArgumentError("text", text, "have braces only around names of fields, such as {topic}")
        self._separators = tuple(dict.fromkeys(filter(None, self._literals[1:-1])))
        self._known = {
            field: _checked_values(f"known[{shown(field)}]", values)
            for field, values in given_mapping("known", known).items()
        }
        self._check_fields("known", self._known)
        unbound = tuple(field for field in self._fields if field not in self._known)
        if plain is None:
            plain = unbound[:-1]
        else:
            plain = checked_names("plain", plain)
            self._check_fields("plain", plain)
            if not set(plain).issubset(unbound):
                raise ArgumentError("plain", plain, "not name a field that is known")
        self._plain = frozenset(plain)
        self._suffixes = _checked_suffixes(suffixes)

    @classmethod
    def from_brackets(
        cls,
        text: str,
        *,
        separator: str = "-",
        known: Mapping[str, str | Collection[str]] | None = None,
        plain: Collection[str] | None = None,
        suffixes: Sequence[str] = (),
    ) -> "NamePattern":
        """Read the other notation for patterns: ``[tenant|instance|environment]-topic``.

        Names of fields are joined by the separator, for which a bar in brackets stands too; the rest is as for the
        class.

        Source:
            Axual, "Schema Distribution model".

        Example:
            >>> NamePattern.from_brackets("[tenant|environment]-topic").text
            '{tenant}-{environment}-{topic}'
        """
        check_text("separator", separator)
        for group in _BRACKETS.finditer(check_text("text", text)):
            before, behind = text[: group.start()], text[group.end() :]
            if (before and not before.endswith(separator)) or (behind and not behind.startswith(separator)):
                raise ArgumentError("text", text, f"have {shown(separator)} between a bracket and what is beside it")
        flat = _BRACKETS.sub(lambda group: group[1].replace("|", separator), text)
        braced = separator.join(f"{{{field}}}" for field in flat.split(separator))
        if _FIELD.sub("", braced) != separator * (braced.count("{") - 1):
            raise ArgumentError("text", text, f"be names of fields such as [tenant|environment]{separator}topic")
        return cls(braced, known=known, plain=plain, suffixes=suffixes)

    @property
    def text(self) -> str:
        """The pattern, with fields in braces."""
        return self._text

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields, in order."""
        return self._fields

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes that may follow the pattern; the empty text if none does."""
        return self._suffixes

    def for_subjects(self, suffixes: Sequence[str] = SUBJECT_SUFFIXES) -> "NamePattern":
        """Return the pattern of the schema subjects of these topics: their names, followed by one of the suffixes.

        Example:
            >>> NamePattern("{topic}").for_subjects().parse("orders-key")
            ParsedName(fields=(('topic', 'orders'),), suffix='-key')
        """
        return NamePattern(self._text, known=self._known, plain=self._plain, suffixes=suffixes)

    def constant(self, field: str) -> str | None:
        """Return the one value that a field can have; None if there is no such field or it may have others."""
        values = self._known.get(field, ())
        return values[0] if len(values) == 1 else None

    def values(self, field: str) -> tuple[str, ...]:
        """Return the values of a known field; none if it is not known."""
        return self._known.get(field, ())

    def allows(self, field: str, value: str) -> bool:
        """Return whether a field may have a value; never if there is no such field."""
        if field not in self._fields:
            return False
        if field in self._known:
            return value in self._known[field]
        return bool(value) and not (field in self._plain and self._has_separator(value))

    def parse(self, name: str) -> ParsedName | NameProblem:
        """Read a name of the cluster. O(s f n), s suffixes, f fields with their known values, n characters.

        Returns its only reading, or a `NameProblem` with `NameIssue.NO_MATCH` or `NameIssue.AMBIGUOUS`.
        """
        readings = tuple(islice(self._readings(check_text("name", name)), 2))
        if len(readings) == 1:
            return readings[0]
        return NameProblem(name, NameIssue.AMBIGUOUS if readings else NameIssue.NO_MATCH, readings)

    def format(self, values: Mapping[str, str], suffix: str = "") -> str:
        """Write a name. Reading it returns the same values, or `NameIssue.AMBIGUOUS` if it has other readings as well.

        Args:
            values: A value for each field; known fields with one value may be left out.
            suffix: One of `suffixes`.

        Example:
            >>> NamePattern("{tenant}-{topic}", known={"tenant": "acme"}).format({"topic": "orders"})
            'acme-orders'
        """
        self._check_fields("values", check_mapping("values", values))
        if suffix not in self._suffixes:
            raise ArgumentError("suffix", suffix, f"be one of {self._suffixes}")
        parts = [self._literals[0]]
        for field, literal in zip(self._fields, self._literals[1:], strict=True):
            value = values.get(field, self.constant(field))
            if type(value) is not str or not self.allows(field, value):
                raise ArgumentError(f"values[{field!r}]", value, self._requirement(field))
            parts += value, literal
        return "".join((*parts, suffix))

    def __eq__(self, other: object) -> bool:
        return self._identity() == other._identity() if isinstance(other, NamePattern) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        return (
            f"NamePattern({self._text!r}, known={self._known}, plain={sorted(self._plain)}, suffixes={self._suffixes})"
        )

    def _identity(self) -> tuple[object, ...]:
        known = frozenset((field, frozenset(values)) for field, values in self._known.items())
        return self._text, known, self._plain, frozenset(self._suffixes)

    def _check_fields(self, parameter: str, named: Iterable[str]) -> None:
        for field in named:
            if field not in self._fields:
                raise ArgumentError(parameter, field, f"be a field of {self._text!r}")

    def _requirement(self, field: str) -> str:
        if field in self._known:
            return f"be one of {self._known[field]}"
        without = f" without any of {self._separators}" if field in self._plain else ""
        return f"be a non-empty str{without}"

    def _has_separator(self, value: str) -> bool:
        return any(separator in value for separator in self._separators)

    def _readings(self, name: str) -> Iterator[ParsedName]:
        for suffix in self._suffixes:
            body = name[: len(name) - len(suffix)]
            if name.endswith(suffix) and body.startswith(self._literals[0]):
                for values in self._splits(body):
                    yield ParsedName(tuple(zip(self._fields, values, strict=True)), suffix)

    def _splits(self, body: str) -> Iterator[tuple[str, ...]]:
        """Split a name among the fields, shortest values first: in every way if there are two at most, else in two.

        Read from the end of the name: a search from its start would try the same rests again and again.
        """
        size = len(body)
        ends = self._plain_ends(body)
        # At most two readings of what follows each place, each a value's start and stop and the reading after it.
        rests: list[list[_Rest]] = [*([] for _ in range(size)), [None]]
        for field, literal in zip(reversed(self._fields), reversed(self._literals[1:]), strict=True):
            nearest = [size + 1] * (size + 2)  # the next place where a value may end so that the rest can be read
            for stop in range(size - len(literal), -1, -1):
                fits = rests[stop + len(literal)] and body.startswith(literal, stop)
                nearest[stop] = stop if fits else nearest[stop + 1]
            found: list[list[_Rest]] = []
            for start in range(size + 1):
                stops = self._stops(body, field, start, nearest, ends)
                after = ((start, stop, rest) for stop in stops for rest in rests[stop + len(literal)])
                found.append(list(islice(after, 2)))
            rests = found
        for reading in rests[len(self._literals[0])]:
            values, left = [], reading
            while left is not None:
                start, stop, left = left
                values.append(body[start:stop])
            yield tuple(values)

    def _plain_ends(self, body: str) -> list[int]:
        """Return for each place the end of the longest value from there that has no separator."""
        ends = [len(body)] * (len(body) + 1)
        for start in range(len(body) - 1, -1, -1):
            # it stops one character before its first separator is complete
            complete = [start + len(each) - 1 for each in self._separators if body.startswith(each, start)]
            ends[start] = min([ends[start + 1], *complete])
        return ends

    def _stops(self, body: str, field: str, start: int, nearest: list[int], ends: list[int]) -> Iterator[int]:
        """Return the places where the value of a field that starts here may end so that the rest can be read."""
        if field in self._known:
            yield from (stop for stop in self._known_stops(body, field, start) if nearest[stop] == stop)
            return
        end = ends[start] if field in self._plain else len(body)
        stop = nearest[start + 1]
        while stop <= end:
            yield stop
            stop = nearest[stop + 1]

    def _known_stops(self, body: str, field: str, start: int) -> Iterator[int]:
        return (start + len(value) for value in self._known[field] if body.startswith(value, start))


def given_mapping(parameter: str, values: Mapping[str, _T] | None) -> Mapping[str, _T]:
    """Check a mapping that may be left out."""
    return {} if values is None else check_mapping(parameter, values)


def checked_names(parameter: str, values: object) -> list[str]:
    """Check several texts, of which none is empty."""
    return [check_text(parameter, value) for value in check_several(parameter, values, "str")]


def _checked_values(parameter: str, values: object) -> tuple[str, ...]:
    checked = checked_names(parameter, [values] if type(values) is str else values)
    if not checked:
        raise ArgumentError(parameter, values, "have at least one value")
    return tuple(dict.fromkeys(checked))


def _checked_suffixes(suffixes: object) -> tuple[str, ...]:
    given = check_several("suffixes", suffixes, "str")
    checked = tuple(dict.fromkeys(check_kind("suffixes", suffix, str) for suffix in given))
    return checked or _NO_SUFFIX
