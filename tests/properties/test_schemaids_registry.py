"""Plans carried out on registries that refuse what real ones refuse, over rounds of changes on both sides."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from keyshared.subjects import (
    Clash,
    Compatibility,
    Mode,
    NamePattern,
    Reference,
    Register,
    Registration,
    RegistryView,
    SchemaDistribution,
    SchemaProposal,
    SetCompatibility,
    SoftDelete,
)
from keyshared.subjects import schemas as schemaids

HERE = NamePattern("{site}-{topic}", known={"site": "eu"}).for_subjects()
THERE = NamePattern("{topic}").for_subjects()
SCHEMAS = SchemaDistribution("c1", {"c1": HERE, "c2": THERE})
TOPICS = ("a-value", "b-value", "c-key")
TEXTS = ("int", "long", "text")
LEVELS = (None, Compatibility.FULL, Compatibility.NONE)


class Registry:
    """What registries have in common: an id is one schema for good, and what is used stays."""

    def __init__(self, mode: Mode) -> None:
        self.slots: dict[tuple[str, int], Registration] = {}
        self.levels: dict[str | None, Compatibility] = {}
        self.modes: dict[str | None, Mode] = {None: mode}
        self.next_id = 1

    def view(self) -> RegistryView:
        return RegistryView(list(self.slots.values()), dict(self.levels), dict(self.modes))

    def mode(self, subject: str) -> Mode:
        return self.modes.get(subject, self.modes[None])

    def post(self, subject: str, schema: str, references: list[Reference]) -> None:
        """Register as a producer does: the registry finds the id and the version."""
        new = Registration(subject, 1, 1, schema, references=references)
        same = [one for one in self.slots.values() if one.content == new.content]
        if any(one.subject == subject and not one.deleted for one in same):
            return
        versions = [version for name, version in self.slots if name == subject]
        id_ = same[0].id if same else self.next_id
        self.next_id = max(self.next_id, id_ + 1)
        new = replace(new, version=max(versions, default=0) + 1, id=id_)
        self.slots[new.slot] = new

    def users(self, slot: tuple[str, int]) -> list[Registration]:
        return [
            one for one in self.slots.values() if not one.deleted and slot in [used.slot for used in one.references]
        ]

    def may_restore(self, one: Registration) -> bool:
        """Whether a deleted version can come back: its schema is in the subject once, and what it uses is there."""
        live = [other for other in self.slots.values() if not other.deleted]
        alike = any((other.subject, other.content) == (one.subject, one.content) for other in live)
        return not alike and {used.slot for used in one.references} <= {other.slot for other in live}

    def restore(self, one: Registration) -> None:
        self.slots[one.slot] = replace(one, deleted=False)

    def import_(self, new: Registration) -> None:
        assert self.mode(new.subject) is Mode.IMPORT, "not in import mode"
        assert not new.deleted, "a version cannot be registered as deleted"
        for one in self.slots.values():
            assert one.id != new.id or one.content == new.content, "overwrites an id"
            twice = one.subject == new.subject and one.id == new.id and one.version < new.version
            assert not twice or one.deleted, "an earlier version of the subject has the schema: no version is made"
        old = self.slots.get(new.slot)
        assert old is None or (old.id, old.content) == (new.id, new.content), "overwrites a version"
        for used in new.references:
            assert used.slot in self.slots, "uses what is not there"
            assert not self.slots[used.slot].deleted, "uses what is deleted"
        self.slots[new.slot] = new

    def delete(self, subject: str, version: int) -> None:
        assert self.mode(subject) is not Mode.READONLY, "read only"
        assert not self.users((subject, version)), "deletes what is used"
        assert not self.slots[subject, version].deleted, "deleted twice"
        self.slots[subject, version] = replace(self.slots[subject, version], deleted=True)

    def set_level(self, subject: str, level: Compatibility | None) -> None:
        assert self.mode(subject) is not Mode.READONLY, "read only"
        assert self.levels.get(subject) is not level, "set to what it was"
        self.levels.pop(subject, None)
        if level is not None:
            self.levels[subject] = level

    def carry_out(self, plan: SchemaProposal) -> None:
        for step in plan.steps:
            match step:
                case Register(registration):
                    self.import_(registration)
                case SoftDelete(subject, version):
                    self.delete(subject, version)
                case SetCompatibility(subject, level):
                    self.set_level(subject, level)


def produce(registry: Registry, draw: st.DrawFn, prefix: str) -> None:
    subject, schema = prefix + draw(st.sampled_from(TOPICS)), draw(st.sampled_from(TEXTS))
    kinds = ["post", "post", "post with reference", "delete", "delete", "restore", "level", "careless delete"]
    match draw(st.sampled_from(kinds)):
        case "post":
            registry.post(subject, schema, [])
        case "post with reference":
            live = [one for one in registry.slots.values() if not one.deleted and not one.references]
            if live:
                registry.post(subject, schema, [Reference("other", *draw(st.sampled_from(live)).slot)])
        case "delete" | "careless delete" as kind:  # not every registry minds what is used
            live = [one for one in registry.slots.values() if not one.deleted]
            free = [one for one in live if kind == "careless delete" or not registry.users(one.slot)]
            if free:
                one = draw(st.sampled_from(free))
                registry.slots[one.slot] = replace(one, deleted=True)
        case "restore":
            gone = [one for one in registry.slots.values() if one.deleted and registry.may_restore(one)]
            if gone:
                registry.restore(draw(st.sampled_from(gone)))
        case _:
            level = draw(st.sampled_from(LEVELS))
            if registry.levels.get(subject) is not level:
                registry.set_level(subject, level)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[RegistryView], Registry, list[dict[str | None, Mode]]]:
    """Give views of a primary as time passes, a target with a past of its own, and its modes as time passes."""
    primary, target = Registry(Mode.READWRITE), Registry(Mode.READWRITE)
    if draw(st.booleans()):
        # another prefix or the same one: local registrations that are, or are not, in the way
        target.next_id = draw(st.sampled_from([1, 2, 100]))
        for _ in range(draw(st.integers(1, 4))):
            produce(target, draw, draw(st.sampled_from(["", "local-"])))
    views, modes = [], []
    for _ in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(0, 6))):
            produce(primary, draw, "eu-")
        views.append(primary.view())
        some: dict[str | None, Mode] = draw(
            st.dictionaries(st.sampled_from(TOPICS), st.sampled_from(list(Mode)), max_size=1)
        )
        everywhere: dict[str | None, Mode] = {None: draw(st.sampled_from([Mode.IMPORT, Mode.IMPORT, Mode.READWRITE]))}
        modes.append(everywhere | some)
    return views, target, modes


def account(plan: SchemaProposal, here: RegistryView, target: Registry) -> None:
    """Every registration of the primary is on the target, id and all, or the plan says why it is not."""
    reported = {conflict.source.slot for conflict in plan.conflicts}
    held = [held.step for held in plan.held]
    waiting = {step.registration.slot for step in held if isinstance(step, Register)}
    not_deleted = {(step.subject, step.version) for step in held if isinstance(step, SoftDelete)}
    for one in here.registrations:
        slot = one.subject.removeprefix("eu-"), one.version
        assert (slot in waiting) + (one.slot in reported) <= 1
        if one.slot in reported or slot in waiting:
            continue
        there = target.slots[slot]
        assert (one.id, one.schema) == (there.id, there.schema)
        assert [("eu-" + used.subject, used.version) for used in there.references] == [u.slot for u in one.references]
        assert one.deleted == (there.deleted or slot in not_deleted)


def check(world: tuple[list[RegistryView], Registry, list[dict[str | None, Mode]]]) -> None:
    views, target, modes = world
    for here, mode in zip(views, modes, strict=True):
        target.modes = mode
        before = dict(target.slots)
        plan = SCHEMAS.propose("c2", here, target.view())
        target.carry_out(plan)
        for slot, one in before.items():
            assert replace(one, deleted=False) == replace(target.slots[slot], deleted=False)
        account(plan, here, target)
        for subject in here.subjects:
            kept = [held.step for held in plan.held if isinstance(held.step, SetCompatibility)]
            if subject.removeprefix("eu-") not in [step.subject for step in kept]:
                assert here.compatibility.get(subject) == target.levels.get(subject.removeprefix("eu-"))
        again = SCHEMAS.propose("c2", here, target.view())
        assert (again.steps, again.held, again.conflicts) == ((), plan.held, plan.conflicts)


@given(worlds())
def test_plans_are_carried_out_and_nothing_is_lost_or_overwritten(
    world: tuple[list[RegistryView], Registry, list[dict[str | None, Mode]]],
) -> None:
    check(world)


# Faults: each takes one rule away, and a registry or the account has to notice

_compared = schemaids._Comparison


class DeletesAtOnce(_compared):
    """A delete does not wait for what uses the schema."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]  # handed on as they are
        self.users = {}


class ForgetsDeleted(_compared):
    """What is deleted softly stays behind."""

    def _compare_deleted(self, one: Registration) -> None:
        pass


class RegistersInAnyMode(_compared):
    """The mode of the target is not asked for."""

    def _compare(self, one: Registration) -> None:
        self.there = replace(self.there, modes={None: Mode.IMPORT})
        super()._compare(one)


class KeepsReferences(_compared):
    """References go out under the primary's names."""

    def _wanted(self, one: Registration) -> Registration:
        return replace(super()._wanted(one), references=one.references)


class IgnoresReferences(_compared):
    """Whether what a schema uses is there makes no difference."""

    def _unusable(self, _: Registration) -> list[Clash]:
        return []


class UsersFirst(_compared):
    """The order is that of the primary's list, backwards."""

    def _in_order(self) -> list[schemaids.RegistryStep]:
        return [*reversed(list(self.registers.values())), *self.deletes.values()]


class LevelsStay(_compared):
    """Compatibility does not travel."""

    def _compare_levels(self, subject: str) -> None:
        pass


def overwrites(*_: object) -> list[Clash]:
    """Find nothing in the way, ever."""
    return []


def _clashes_without(reason: schemaids.ClashReason) -> Callable[..., list[Clash]]:
    real = schemaids._clashes
    return lambda *arguments: [clash for clash in real(*arguments) if clash.reason is not reason]


FAULTS: dict[str, tuple[str, object]] = {
    "overwrites": ("_clashes", overwrites),
    "overwrites an id": ("_clashes", _clashes_without(schemaids.ClashReason.ID_TAKEN)),
    "overwrites a version": ("_clashes", _clashes_without(schemaids.ClashReason.VERSION_TAKEN)),
} | {
    kind.__name__: ("_Comparison", kind)
    for kind in (
        DeletesAtOnce,
        ForgetsDeleted,
        RegistersInAnyMode,
        KeepsReferences,
        IgnoresReferences,
        UsersFirst,
        LevelsStay,
    )
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_plan_with_a_fault_fails(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemaids, *FAULTS[fault])
    quick = settings(max_examples=3_000, phases=[Phase.generate], derandomize=True, database=None)
    with pytest.raises((AssertionError, KeyError)):
        quick(given(worlds())(check))()
