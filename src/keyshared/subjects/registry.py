"""The content of a schema registry at one moment, as values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

from keyshared._checks import check_bool, check_int, check_mapping, check_several, check_text, checked_kinds
from keyshared.errors import ArgumentError

__all__ = ["DEFAULT_COMPATIBILITY", "Compatibility", "Mode", "Reference", "Registration", "RegistryView"]

_Slot: TypeAlias = tuple[str, int]  # subject, version
_T = TypeVar("_T")
_Setting = TypeVar("_Setting", bound=StrEnum)


class Mode(StrEnum):
    """The changes that a registry lets its clients make to a subject."""

    READWRITE = "READWRITE"  # the registry gives out ids itself
    READONLY = "READONLY"  # nothing can be changed
    IMPORT = "IMPORT"  # the client says which id and version; compatibility is not checked


class Compatibility(StrEnum):
    """The rule by which a new version of a subject may differ from those before it."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


DEFAULT_COMPATIBILITY: Final = Compatibility.BACKWARD  # Confluent, Karapace, Redpanda


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """The use of one schema by another: its name there, and the subject and version that it is registered as."""

    name: str
    subject: str
    version: int

    def __post_init__(self) -> None:
        check_text("name", self.name)
        check_text("subject", self.subject)
        check_int("version", self.version, 1)

    @property
    def slot(self) -> tuple[str, int]:
        """Subject and version of what is used."""
        return self.subject, self.version


@dataclass(frozen=True, slots=True)
class Registration:
    """One version of one subject.

    Attributes:
        subject: The subject.
        version: Its version, from 1 on.
        id: The registry's number for the schema, from 1 on.
        schema: The schema's text or a fingerprint of it. It is compared and nothing else, so both registries must give
            the same one for the same schema.
        schema_type: The kind of text.
        references: The other schemas that it uses.
        deleted: It is deleted softly: not listed any more, but old messages can still be read with its id.
    """

    subject: str
    version: int
    id: int
    schema: str
    schema_type: str = "AVRO"
    references: Sequence[Reference] = ()
    deleted: bool = False

    def __post_init__(self) -> None:
        for name in ("subject", "schema", "schema_type"):
            check_text(name, getattr(self, name))
        check_int("version", self.version, 1)
        check_int("id", self.id, 1)
        object.__setattr__(self, "references", _instances("references", self.references, Reference))
        check_bool("deleted", self.deleted)

    @property
    def slot(self) -> tuple[str, int]:
        """Its subject and version: no registry has two of one."""
        return self.subject, self.version

    @property
    def content(self) -> tuple[str, str, tuple[Reference, ...]]:
        """The schema that an id names: type, text and references."""
        return self.schema_type, self.schema, tuple(sorted(self.references))


@dataclass(frozen=True, slots=True)
class RegistryView:
    """The content of a registry at one moment.

    Attributes:
        registrations: All of them, those that are deleted softly included: they still own their id and their version.
        compatibility: Levels that were set, by subject; under None the registry's own.
        modes: Modes that were set, by subject; under None the registry's own.

    Raises:
        ArgumentError: One version of a subject or one id has two meanings: the view was not taken at one moment.

    Example:
        >>> RegistryView([Registration("orders-value", 1, 7, "int"), Registration("bills-value", 1, 7, "long")])
        Traceback (most recent call last):
        ...
        keyshared.errors.ArgumentError: id is 7; it must stand for one schema in one view
    """

    registrations: Sequence[Registration] = ()
    compatibility: Mapping[str | None, Compatibility] = field(default_factory=dict)
    modes: Mapping[str | None, Mode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "registrations", _instances("registrations", self.registrations, Registration))
        object.__setattr__(self, "compatibility", _settings("compatibility", self.compatibility, Compatibility))
        object.__setattr__(self, "modes", _settings("modes", self.modes, Mode))
        slots: set[_Slot] = set()
        contents: dict[int, object] = {}
        for one in self.registrations:
            if one.slot in slots:
                raise ArgumentError("version", one.slot, "be registered once in one view")
            slots.add(one.slot)
            if contents.setdefault(one.id, one.content) != one.content:
                raise ArgumentError("id", one.id, "stand for one schema in one view")

    @property
    def subjects(self) -> tuple[str, ...]:
        """Every subject that has a version or a level, in order of first mention."""
        named = (*(one.subject for one in self.registrations), *self.compatibility)
        return tuple(subject for subject in dict.fromkeys(named) if subject is not None)

    def mode(self, subject: str) -> Mode:
        """Return the mode of a subject, which need not exist: its own, else the registry's, else `Mode.READWRITE`."""
        return self.modes.get(subject, self.modes.get(None, Mode.READWRITE))


def _instances(parameter: str, values: Iterable[_T], kind: type[_T]) -> tuple[_T, ...]:
    return tuple(checked_kinds(parameter, check_several(parameter, values, parameter), kind))


def _settings(
    parameter: str, values: Mapping[str | None, _Setting], kind: type[_Setting]
) -> dict[str | None, _Setting]:
    """Copy settings by subject; what a registry's API says, such as "FULL", is taken for the member."""
    check_mapping(parameter, values)
    checked: dict[str | None, _Setting] = {}
    for subject, value in values.items():
        if subject is not None:
            check_text(parameter, subject)
        try:
            checked[subject] = kind(value)
        except ValueError:
            raise ArgumentError(f"{parameter}[{subject!r}]", value, f"be one of {[str(one) for one in kind]}") from None
    return checked
