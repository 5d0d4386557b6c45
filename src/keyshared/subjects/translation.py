"""Names of one cluster translated to those of another, and the names that would become one by that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from keyshared._checks import check_kind
from keyshared.errors import ArgumentError
from keyshared.subjects.names import NameIssue, NamePattern, NameProblem, checked_names, given_mapping

__all__ = ["Collision", "NameTranslation", "ResolvedNames"]


@dataclass(frozen=True, slots=True)
class Collision:
    """The names of one cluster, in the given order, that would be one name on the other."""

    translated: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResolvedNames:
    """The result for a set of names.

    Attributes:
        translated: Pairs of a name and its translation; each translation once.
        collisions: Names that must not be translated, because others would have the same translation.
        problems: Names that cannot be translated.
    """

    translated: tuple[tuple[str, str], ...]
    collisions: tuple[Collision, ...]
    problems: tuple[NameProblem, ...]


class NameTranslation:
    """From the names of one cluster to those of another: of topics, of groups, or of subjects.

    A field that only the source has is dropped. One that only the target has needs a value: the target's constant, or a
    default.

    Args:
        source: Reads the names.
        target: Writes them.
        defaults: Values of fields that only the target has.

    Raises:
        ArgumentError: A field is added without a default, source and target know a field but no value of both, or a
            suffix of the source is none of the target.

    Source:
        Axual, "Schema Distribution model"; differs: collisions and ambiguous names are reported, never distributed.

    Example:
        >>> here = NamePattern.from_brackets("[tenant|instance|environment]-topic", known={"instance": "eu"})
        >>> there = NamePattern.from_brackets("[tenant|environment]-topic")
        >>> NameTranslation(here.for_subjects(), there.for_subjects()).translate("acme-eu-prod-orders-value")
        'acme-prod-orders-value'
    """

    __slots__ = ("_defaults", "_source", "_target")

    def __init__(self, source: NamePattern, target: NamePattern, *, defaults: Mapping[str, str] | None = None) -> None:
        for parameter, pattern in (("source", source), ("target", target)):
            check_kind(parameter, pattern, NamePattern)
        self._source = source
        self._target = target
        self._defaults = self._checked_defaults(dict(given_mapping("defaults", defaults)))
        for field in set(source.fields) & set(target.fields):
            here, there = set(source.values(field)), set(target.values(field))
            if here and there and not here & there:
                raise ArgumentError(f"target.known[{field!r}]", sorted(there), f"share a value with {sorted(here)}")
        if not set(source.suffixes).issubset(target.suffixes):
            raise ArgumentError("target.suffixes", target.suffixes, f"have those of the source, {source.suffixes}")

    @property
    def source(self) -> NamePattern:
        """Reads the names."""
        return self._source

    @property
    def target(self) -> NamePattern:
        """Writes them."""
        return self._target

    @property
    def dropped(self) -> tuple[str, ...]:
        """Fields that only the source has, in its order."""
        return tuple(field for field in self._source.fields if field not in self._target.fields)

    @property
    def is_injective(self) -> bool:
        """Whether two names can never have one translation: every field that is dropped has one value only."""
        return all(self._source.constant(field) is not None for field in self.dropped)

    def translate(self, name: str) -> str | NameProblem:
        """Return a name on the target, which the target reads in one way only; or why there is none."""
        parsed = self._source.parse(name)
        if isinstance(parsed, NameProblem):
            return parsed
        values = {field: value for field, value in parsed.fields if field in self._target.fields} | self._defaults
        for field, value in values.items():
            if not self._target.allows(field, value):
                return NameProblem(name, NameIssue.NOT_ALLOWED, field=field)
        translated = self._target.format(values, parsed.suffix)
        # A name with two readings there is no name: it might be another topic's as well.
        read_back = self._target.parse(translated)
        if isinstance(read_back, NameProblem):
            return NameProblem(name, NameIssue.AMBIGUOUS_THERE, read_back.readings)
        return translated

    def resolve(self, names: Iterable[str]) -> ResolvedNames:
        """Translate all known names, in the given order, and find those that would become one. Repetitions count once.

        Example:
            >>> drop = NameTranslation(NamePattern("{instance}-{topic}"), NamePattern("{topic}"))
            >>> drop.resolve(["eu-orders", "us-orders", "eu-bills"]).collisions
            (Collision(translated='orders', names=('eu-orders', 'us-orders')),)
        """
        problems: list[NameProblem] = []
        sources: dict[str, list[str]] = {}
        for name in dict.fromkeys(checked_names("names", names)):
            translated = self.translate(name)
            if isinstance(translated, NameProblem):
                problems.append(translated)
            else:
                sources.setdefault(translated, []).append(name)
        return ResolvedNames(
            tuple((names[0], translated) for translated, names in sources.items() if len(names) == 1),
            tuple(Collision(translated, tuple(names)) for translated, names in sources.items() if len(names) > 1),
            tuple(problems),
        )

    def inverse(self, *, defaults: Mapping[str, str] | None = None) -> "NameTranslation":
        """Return the opposite translation: if this one `is_injective`, it takes every translation back to its name.

        ``defaults`` are values of the fields that were dropped on the way there, as far as the source has no constant.
        """
        return NameTranslation(self._target, self._source, defaults=defaults)

    def __repr__(self) -> str:
        return f"NameTranslation({self._source!r}, {self._target!r}, defaults={self._defaults})"

    def _checked_defaults(self, defaults: dict[str, str]) -> dict[str, str]:
        added = [field for field in self._target.fields if field not in self._source.fields]
        for field in defaults:
            if field not in added:
                raise ArgumentError("defaults", field, f"be a field that only the target has; these are {added}")
        filled = {field: defaults.get(field, self._target.constant(field)) for field in added}
        for field, value in filled.items():
            if type(value) is not str or not self._target.allows(field, value):
                raise ArgumentError(
                    f"defaults[{field!r}]", value, "be a value that the target allows: the source has none"
                )
        return {field: value for field, value in filled.items() if value is not None}
