"""Schemas from the primary cluster to the others: the same id everywhere, and never one over another.

A registry keeps schemas under numbers of its own, its *ids*, and every message carries one. So a message that is copied
to another cluster can be read there only if the id stands for the same schema there. Only the primary, where schemas
are registered, distributes them; there is no tree and there are no copy flags.

`SchemaDistribution.propose` compares a view of the primary's registry with a view of another one and returns the calls
to make there. It never puts a schema in the place of another one: it reports what is in the way.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias, TypeVar

from keyshared._checks import check_kind, check_mapping, check_text
from keyshared.errors import ArgumentError, shown
from keyshared.subjects.names import NamePattern, NameProblem
from keyshared.subjects.registry import (
    DEFAULT_COMPATIBILITY,
    Compatibility,
    Mode,
    Reference,
    Registration,
    RegistryView,
)
from keyshared.subjects.translation import Collision, NameTranslation

__all__ = [
    "Clash",
    "ClashReason",
    "Conflict",
    "HeldStep",
    "Register",
    "RegistryStep",
    "SchemaDistribution",
    "SchemaProposal",
    "SetCompatibility",
    "SoftDelete",
]

_Slot: TypeAlias = tuple[str, int]  # subject, version
_K = TypeVar("_K")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Register:
    """Register a schema under exactly this subject, version and id; a `SoftDelete` follows if it is to be deleted."""

    registration: Registration


@dataclass(frozen=True, slots=True)
class SoftDelete:
    """Delete a version of a subject softly."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SetCompatibility:
    """Set the level of a subject, or with None take the subject's own away."""

    subject: str
    level: Compatibility | None


RegistryStep: TypeAlias = Register | SoftDelete | SetCompatibility


class ClashReason(StrEnum):
    """Why a schema cannot be registered."""

    ID_TAKEN = "id taken"  # the id stands for another schema there
    VERSION_TAKEN = "version taken"  # that version of the subject is another schema, or has another id
    OTHER_ID = "other id"  # the schema is there, and only under other ids: a registry gives one schema one id
    OTHER_VERSION = "other version"
    """The subject has the schema already, as a version that stays: a registry makes no second."""
    REFERENCE_MISSING = "reference missing"  # a schema that it uses is not there, and no step brings it
    REFERENCE_DELETED = "reference deleted"
    """A schema that it uses is deleted softly there: registries take nothing new that uses it."""


@dataclass(frozen=True, slots=True)
class Clash:
    """One thing that is in the way of a registration.

    Attributes:
        reason: Why.
        holders: The registrations of the target that are in the way; none for a missing reference.
        reference: The reference that it is about, as the source has it; None for other reasons.
    """

    reason: ClashReason
    holders: tuple[Registration, ...] = ()
    reference: Reference | None = None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A registration of the primary that must not be made under this subject of the target; a person has to decide."""

    source: Registration
    subject: str
    clashes: tuple[Clash, ...]


@dataclass(frozen=True, slots=True)
class HeldStep:
    """A step that has to wait, for a change of mode (`Mode.IMPORT` permits every step) or for another registration.

    Attributes:
        step: The step.
        mode: The mode that is in its way, if it is that.
        behind: The registration that is in its way, if it is that. A delete waits for the users of the schema:
            registries neither delete what is used nor take what uses something deleted. And what needs something that
            is held waits for it.
    """

    step: RegistryStep
    mode: Mode | None = None
    behind: Registration | None = None


@dataclass(frozen=True, slots=True)
class SchemaProposal:
    """The calls to make on the target, and what cannot be done.

    Each registration of the source is in exactly one place: its subject is in ``collisions`` or ``problems``, or it is
    in ``present`` or ``conflicts``, or a `Register` of it is in ``steps`` or ``held``.

    Attributes:
        steps: Calls to make, in this order. Making one again does no harm.
        present: Registrations that are there already, under the right id, as the target has them.
        conflicts: Registrations that must not be made.
        held: Steps that wait for a change of mode, or for something that is itself in ``held`` or in ``conflicts``.
        collisions: Subjects that would become one on the target; nothing of them is distributed.
        problems: Subjects that the patterns cannot translate.
        global_levels: Levels of both registries for subjects without their own, source first, if they differ. They
            belong to a registry and not to a subject, so the proposal leaves them alone.
    """

    steps: tuple[RegistryStep, ...] = ()
    present: tuple[Registration, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    held: tuple[HeldStep, ...] = ()
    collisions: tuple[Collision, ...] = ()
    problems: tuple[NameProblem, ...] = ()
    global_levels: tuple[Compatibility, Compatibility] | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the target will have everything once the steps are made."""
        return not (self.conflicts or self.held or self.collisions or self.problems)


class SchemaDistribution:
    """Which cluster distributes schemas, and how each names its subjects. A value: it never changes.

    Args:
        primary: The only cluster where schemas are registered, and so the only one that distributes them.
        subjects: How every cluster names its subjects, the primary included; see `NameTranslation`.
        defaults: By cluster, values of fields that only its pattern has.

    Source:
        Axual, "Schema Distribution model"; differs: conflicts are reported, ids are never overwritten.

    Example:
        >>> eu = NamePattern.from_brackets("[tenant|instance|environment]-topic", known={"instance": "eu"})
        >>> us = NamePattern.from_brackets("[tenant|environment]-topic")
        >>> schemas = SchemaDistribution("c1", {"c1": eu.for_subjects(), "c2": us.for_subjects()})
        >>> schemas.targets("c1"), schemas.targets("c2")
        (('c2',), ())
        >>> here = RegistryView([Registration("acme-eu-prod-orders-value", 1, 7, '"int"')])
        >>> there = RegistryView(modes={None: Mode.IMPORT})
        >>> schemas.propose("c2", here, there).steps[0].registration.subject
        'acme-prod-orders-value'
    """

    __slots__ = ("_primary", "_translations")

    def __init__(
        self,
        primary: str,
        subjects: Mapping[str, NamePattern],
        *,
        defaults: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        check_mapping("subjects", subjects)
        if check_text("primary", primary) not in subjects:
            raise ArgumentError("primary", primary, f"be one of the clusters, {shown(tuple(subjects))}")
        others = [cluster for cluster in subjects if cluster != primary]
        given = {} if defaults is None else check_mapping("defaults", defaults)
        for cluster in given:
            if cluster not in others:
                raise ArgumentError("defaults", cluster, f"be for one of the targets, {shown(tuple(others))}")
        self._primary = primary
        self._translations = {
            cluster: NameTranslation(subjects[primary], subjects[cluster], defaults=given.get(cluster))
            for cluster in others
        }

    @property
    def primary(self) -> str:
        """The cluster that distributes."""
        return self._primary

    def targets(self, cluster: str) -> tuple[str, ...]:
        """List the clusters that a cluster distributes schemas to: for the primary all others, else none."""
        return tuple(self._translations) if cluster == self._primary else ()

    def translation(self, target: str) -> NameTranslation:
        """Return the translation of subjects from the primary to one of its targets."""
        if target not in self._translations:
            raise ArgumentError("target", target, f"be one of {tuple(self._translations)}")
        return self._translations[target]

    def propose(self, target: str, here: RegistryView, there: RegistryView) -> SchemaProposal:
        """Compare the primary's registry (``here``) with a target's; when its steps are made, the next one has none.

        Raises:
            ArgumentError: Schemas of the primary use each other in a circle.

        Complexity:
            O(n + r), n registrations of both sides, r references, besides the translation of the subjects; a schema
            that was registered k times in one subject, deleted in between, adds O(k**2).
        """
        for parameter, view in (("here", here), ("there", there)):
            check_kind(parameter, view, RegistryView)
        return _Comparison(self.translation(target), here, there).result()


class _Comparison:
    """One run of `SchemaDistribution.propose`."""

    def __init__(self, translation: NameTranslation, here: RegistryView, there: RegistryView) -> None:
        self.here = here
        self.there = there
        self.names = translation.resolve(here.subjects)
        self.translated = dict(self.names.translated)
        self.here_slots = {one.slot: one for one in here.registrations if one.subject in self.translated}
        self.here_ids = _grouped((one.content, one.id) for one in here.registrations)
        self.there_slots = {one.slot: one for one in there.registrations}
        self.there_by_id = _grouped((one.id, one) for one in there.registrations)
        self.there_by_content = _grouped((one.content, one) for one in there.registrations)
        self.here_versions = _grouped(((one.subject, one.id), one.version) for one in here.registrations)
        live = [one for one in there.registrations if not one.deleted]
        self.there_users = _grouped((used.slot, one) for one in live for used in one.references)
        self.users = _grouped((used.slot, one.slot) for one in self.here_slots.values() for used in one.references)
        # What can be used on the target, now or once the steps are made; and what is there, but deleted.
        self.usable: set[_Slot] = set()
        self.gone: dict[_Slot, Registration] = {}
        self.waiting: set[_Slot] = set()
        self.registers: dict[_Slot, RegistryStep] = {}
        self.deletes: dict[_Slot, RegistryStep] = {}
        self.deleted_there: set[_Slot] = set()
        self.levels: list[RegistryStep] = []
        self.present: list[Registration] = []
        self.conflicts: list[Conflict] = []
        self.held: list[HeldStep] = []
        self.held_deletes: dict[_Slot, HeldStep] = {}

    def result(self) -> SchemaProposal:
        used_first = self._used_first()
        for slot in used_first:
            self._compare(self.here_slots[slot])
        self._compare_deletes(used_first)
        while self._hold_registers(used_first):  # each round holds more, and what is held can hold a delete
            self._compare_deletes(used_first)
        for subject in self.here.subjects:
            if subject in self.translated:
                self._compare_levels(subject)
        mine = self.here.compatibility.get(None, DEFAULT_COMPATIBILITY)
        theirs = self.there.compatibility.get(None, DEFAULT_COMPATIBILITY)
        return SchemaProposal(
            steps=(*self._in_order(), *self.levels),
            present=tuple(self.present),
            conflicts=tuple(self.conflicts),
            held=(*self.held, *self.held_deletes.values()),
            collisions=self.names.collisions,
            problems=self.names.problems,
            global_levels=None if mine is theirs else (mine, theirs),
        )

    def _used_first(self) -> list[_Slot]:
        order: TopologicalSorter[_Slot] = TopologicalSorter()
        for slot in self.here_slots:
            order.add(slot)  # all of them first: then the order depends on nothing but the view's
        for slot, one in self.here_slots.items():
            order.add(slot, *(used.slot for used in one.references if used.slot in self.here_slots))
        try:
            return list(order.static_order())
        except CycleError as error:
            raise ArgumentError("references", error.args[1], "not form a circle") from error

    def _in_order(self) -> list[RegistryStep]:
        """Order the steps like the history that they repeat.

        A registry takes nothing that uses what is not there, deletes nothing that is used, and takes a schema a second
        time in one subject only when the version that had it is deleted. So what is deleted comes and goes first.
        """
        order: TopologicalSorter[tuple[_Slot, bool]] = TopologicalSorter()
        steps = {(slot, False): step for slot, step in self.registers.items()}
        steps |= {(slot, True): step for slot, step in self.deletes.items()}
        for key in steps:
            order.add(key)
        for slot, is_delete in steps:
            one = self.here_slots[slot]
            if is_delete:
                users = self.users.get(slot, ())
                before = [(slot, False), *((user, kind) for user in users for kind in (False, True))]
            else:
                before = [(used.slot, False) for used in one.references]
                before += [(other, kind) for other in self._sooner(one) for kind in (False, True)]
            order.add((slot, is_delete), *(key for key in before if key in steps))
        try:
            return [steps[key] for key in order.static_order()]
        except CycleError:
            # Only a registry that deletes what is used comes to this; so it takes the plain order.
            return list(steps.values())

    def _sooner(self, one: Registration) -> list[_Slot]:
        """Versions of the same schema in the same subject that have to come, and go if they are deleted, before one."""
        alike = (self.here_slots[one.subject, version] for version in self.here_versions[one.subject, one.id])
        return [other.slot for other in alike if (not other.deleted, other.version) < (not one.deleted, one.version)]

    def _compare(self, one: Registration) -> None:
        wanted = self._wanted(one)
        found = self.there_slots.get(wanted.slot)
        if found is not None and _is_same(found, wanted) and (one.deleted or not found.deleted):
            self.present.append(found)
            if found.deleted:
                self.gone[one.slot] = found
            else:
                self.usable.add(one.slot)
            return
        clashes = [*self._unusable(one), *_clashes(self, one, wanted)]
        if clashes:
            self.waiting.add(one.slot)
            self.conflicts.append(Conflict(one, wanted.subject, tuple(clashes)))
        elif (mode := self.there.mode(wanted.subject)) is Mode.IMPORT:
            self.usable.add(one.slot)
            self.registers[one.slot] = Register(wanted)
        else:
            self.waiting.add(one.slot)
            self.held.append(HeldStep(Register(wanted), mode))

    def _wanted(self, one: Registration) -> Registration:
        references = [replace(used, subject=self.translated.get(used.subject, used.subject)) for used in one.references]
        return replace(one, subject=self.translated[one.subject], references=references, deleted=False)

    def _unusable(self, one: Registration) -> list[Clash]:
        clashes: list[Clash] = []
        for used in one.references:
            if used.slot in self.gone:
                clashes.append(Clash(ClashReason.REFERENCE_DELETED, (self.gone[used.slot],), used))
            elif used.slot not in self.usable:
                clashes.append(Clash(ClashReason.REFERENCE_MISSING, reference=used))
        return clashes

    def _compare_deletes(self, used_first: list[_Slot]) -> None:
        self.deletes.clear()
        self.deleted_there.clear()
        self.held_deletes.clear()
        for slot in reversed(used_first):
            self._compare_deleted(self.here_slots[slot])

    def _hold_registers(self, used_first: list[_Slot]) -> bool:
        """Hold what comes after a delete that is held, and what uses that; return whether there was anything."""
        held: set[_Slot] = set()
        for slot in used_first:
            if slot in self.registers:
                one = self.here_slots[slot]
                blocks = [other for other in self._sooner(one) if other in self.held_deletes or other in held]
                blocks += [used.slot for used in one.references if used.slot in held]
                if blocks:
                    self.held.append(HeldStep(self.registers.pop(slot), behind=self.here_slots[blocks[0]]))
                    held.add(slot)
        self.usable -= held
        self.waiting |= held
        return bool(held)

    def _compare_deleted(self, one: Registration) -> None:
        """Delete what the source has deleted, once nothing waits that uses it."""
        if not one.deleted or one.slot not in self.usable:
            return
        step = SoftDelete(self.translated[one.subject], one.version)
        mode = self.there.mode(step.subject)
        user = self._user_left(one, step)
        if mode is not Mode.READONLY and user is None:
            self.deletes[one.slot] = step
            self.deleted_there.add((step.subject, step.version))
            return
        self.waiting.add(one.slot)  # what this one uses waits as well
        self.held_deletes[one.slot] = HeldStep(step, mode) if mode is Mode.READONLY else HeldStep(step, behind=user)

    def _user_left(self, one: Registration, delete: SoftDelete) -> Registration | None:
        for slot in self.users.get(one.slot, ()):
            if slot in self.waiting:
                return self.here_slots[slot]
        there = self.there_users.get((delete.subject, delete.version), ())
        left = [user for user in there if user.slot not in self.deleted_there]
        # Users that come now, and stay, are reported as they will be there: so the next plan says the same.
        coming = [slot for slot in self.users.get(one.slot, ()) if slot in self.registers and slot not in self.deletes]
        left += [self._wanted(self.here_slots[slot]) for slot in coming]
        return min(left, key=_slot_of, default=None)

    def _compare_levels(self, subject: str) -> None:
        translated = self.translated[subject]
        level, mode = self.here.compatibility.get(subject), self.there.mode(translated)
        if level is self.there.compatibility.get(translated):
            return
        step = SetCompatibility(translated, level)
        if mode is Mode.READONLY:
            self.held.append(HeldStep(step, mode))
        else:
            self.levels.append(step)


def _clashes(run: _Comparison, one: Registration, wanted: Registration) -> list[Clash]:
    """List what is in the way on the target. What is deleted softly there counts: it owns its id and version."""
    clashes: list[Clash] = []
    others = tuple(there for there in run.there_by_id.get(wanted.id, ()) if there.content != wanted.content)
    if others:
        clashes.append(Clash(ClashReason.ID_TAKEN, others))
    found = run.there_slots.get(wanted.slot)
    if found is not None and not _is_same(found, wanted):  # the same one, deleted there, is brought back
        clashes.append(Clash(ClashReason.VERSION_TAKEN, (found,)))
    alike = tuple(run.there_by_content.get(wanted.content, ()))
    # A primary that has the schema under several ids itself, as imports can leave it, hands on all of them.
    if alike and not {there.id for there in alike}.intersection(run.here_ids[one.content]):
        clashes.append(Clash(ClashReason.OTHER_ID, alike))
    # Versions that the primary has as well are no clash: they are deleted by then, or it has the schema twice too. But
    # what is deleted at the primary beside a live version could come only if that one went away for a while. That is
    # told where nothing else is in the way: a plan that is made again, when the live one has come, says the same.
    alike_here = [run.here_slots[one.subject, version] for version in run.here_versions[one.subject, one.id]]
    mine = {(wanted.subject, other.version) for other in alike_here if other.deleted or not one.deleted or clashes}
    same = [there for there in alike if there.id == wanted.id and there.subject == wanted.subject]
    versions = tuple(there for there in same if not there.deleted and there.slot not in mine)
    if versions:
        clashes.append(Clash(ClashReason.OTHER_VERSION, versions))
    return clashes


def _is_same(one: Registration, other: Registration) -> bool:
    return (one.id, one.content) == (other.id, other.content)


def _slot_of(one: Registration) -> _Slot:
    return one.slot


def _grouped(pairs: Iterable[tuple[_K, _T]]) -> dict[_K, list[_T]]:
    groups: dict[_K, list[_T]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
