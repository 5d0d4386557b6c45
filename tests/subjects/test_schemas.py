from dataclasses import replace
from typing import Any

import pytest

from keyshared.errors import ArgumentError
from keyshared.subjects import (
    Clash,
    ClashReason,
    Compatibility,
    Conflict,
    HeldStep,
    Mode,
    NameIssue,
    NamePattern,
    Reference,
    Register,
    Registration,
    RegistryView,
    SchemaDistribution,
    SetCompatibility,
    SoftDelete,
)

HERE = NamePattern("{tenant}-{instance}-{topic}", known={"instance": ["eu", "us"]}).for_subjects()
THERE = NamePattern("{tenant}-{topic}").for_subjects()
SCHEMAS = SchemaDistribution("c1", {"c1": HERE, "c2": THERE})
IMPORT: dict[str | None, Mode] = {None: Mode.IMPORT}

ORDERS = Registration("t-eu-orders-value", 1, 7, "orders")
ORDERS_THERE = replace(ORDERS, subject="t-orders-value")
BILLS = Registration("t-eu-bills-value", 1, 8, "bills", references=[Reference("o", "t-eu-orders-value", 1)])
BILLS_THERE = replace(BILLS, subject="t-bills-value", references=[Reference("o", "t-orders-value", 1)])


def view(*registrations: Registration, modes: dict[str | None, Mode] = IMPORT, **levels: Compatibility) -> RegistryView:
    return RegistryView(registrations, {name.replace("_", "-"): level for name, level in levels.items()}, modes)


def test_a_schema_is_registered_under_its_own_id_and_version() -> None:
    plan = SCHEMAS.propose("c2", view(replace(ORDERS, version=3)), view())
    assert (Register(replace(ORDERS_THERE, version=3)),) == plan.steps
    assert plan.is_complete


def test_what_is_there_already_needs_no_step_and_no_mode() -> None:
    plan = SCHEMAS.propose("c2", view(ORDERS), view(ORDERS_THERE, modes={}))
    assert ((), (ORDERS_THERE,)) == (plan.steps, plan.present)
    assert plan.is_complete


def test_one_schema_under_two_subjects_keeps_its_one_id() -> None:
    other = replace(ORDERS, subject="t-eu-returns-value")
    plan = SCHEMAS.propose("c2", view(ORDERS, other), view(ORDERS_THERE))
    assert (Register(replace(other, subject="t-returns-value")),) == plan.steps


def test_an_id_of_another_schema_is_never_overwritten() -> None:
    theirs = Registration("x-local-value", 4, 7, "something else", deleted=True)
    plan = SCHEMAS.propose("c2", view(ORDERS), view(theirs))
    clash = Clash(ClashReason.ID_TAKEN, (theirs,))
    assert ((), (Conflict(ORDERS, "t-orders-value", (clash,)),)) == (plan.steps, plan.conflicts)
    assert not plan.is_complete


def test_a_version_of_another_schema_is_never_overwritten() -> None:
    theirs = replace(ORDERS_THERE, id=9, schema="something else")
    plan = SCHEMAS.propose("c2", view(ORDERS), view(theirs))
    assert ((), (Clash(ClashReason.VERSION_TAKEN, (theirs,)),)) == (plan.steps, plan.conflicts[0].clashes)


def test_a_schema_that_has_another_id_there_is_a_conflict() -> None:
    theirs = replace(ORDERS_THERE, subject="x-local-value", id=9)
    plan = SCHEMAS.propose("c2", view(ORDERS), view(theirs))
    assert ((), (Clash(ClashReason.OTHER_ID, (theirs,)),)) == (plan.steps, plan.conflicts[0].clashes)


def test_a_subject_that_has_the_schema_as_another_version_is_a_conflict() -> None:
    theirs = replace(ORDERS_THERE, version=4)
    plan = SCHEMAS.propose("c2", view(ORDERS), view(theirs))
    assert ((), (Clash(ClashReason.OTHER_VERSION, (theirs,)),)) == (plan.steps, plan.conflicts[0].clashes)
    assert (Register(ORDERS_THERE),) == SCHEMAS.propose("c2", view(ORDERS), view(replace(theirs, deleted=True))).steps


def test_everything_that_is_in_the_way_is_told_at_once() -> None:
    local = Registration("x-local-value", 1, 7, "something else")
    same = replace(ORDERS_THERE, id=9)
    [conflict] = SCHEMAS.propose("c2", view(ORDERS), view(local, same)).conflicts
    reasons = [ClashReason.ID_TAKEN, ClashReason.VERSION_TAKEN, ClashReason.OTHER_ID]
    assert reasons == [clash.reason for clash in conflict.clashes]


def test_the_ids_of_a_primary_that_has_a_schema_twice_all_arrive() -> None:
    again = replace(ORDERS, subject="t-eu-returns-value", id=9)
    plan = SCHEMAS.propose("c2", view(ORDERS, again), view(replace(again, subject="t-returns-value")))
    assert (Register(ORDERS_THERE),) == plan.steps


@pytest.mark.parametrize("mode", [Mode.READWRITE, Mode.READONLY])
def test_nothing_is_registered_before_the_target_is_in_import_mode(mode: Mode) -> None:
    plan = SCHEMAS.propose("c2", view(ORDERS), view(modes={None: Mode.IMPORT, "t-orders-value": mode}))
    assert ((), (HeldStep(Register(ORDERS_THERE), mode),)) == (plan.steps, plan.held)
    assert (HeldStep(Register(ORDERS_THERE), mode),) == SCHEMAS.propose(
        "c2", view(ORDERS), view(modes={None: mode})
    ).held


def test_a_registry_that_says_nothing_is_open_for_writing() -> None:
    assert Mode.READWRITE is RegistryView().mode("any")
    assert Mode.IMPORT is view().mode("any")


def test_what_was_deleted_softly_still_arrives_and_is_deleted_there() -> None:
    plan = SCHEMAS.propose("c2", view(replace(ORDERS, deleted=True)), view())
    assert (Register(ORDERS_THERE), SoftDelete("t-orders-value", 1)) == plan.steps
    plan = SCHEMAS.propose("c2", view(replace(ORDERS, deleted=True)), view(ORDERS_THERE, modes={}))
    assert (SoftDelete("t-orders-value", 1),) == plan.steps
    plan = SCHEMAS.propose("c2", view(replace(ORDERS, deleted=True)), view(replace(ORDERS_THERE, deleted=True)))
    assert ((), True) == (plan.steps, plan.is_complete)


def test_what_was_deleted_there_only_is_brought_back() -> None:
    plan = SCHEMAS.propose("c2", view(ORDERS), view(replace(ORDERS_THERE, deleted=True)))
    assert ((Register(ORDERS_THERE),), ()) == (plan.steps, plan.present)


@pytest.mark.parametrize(("mine", "theirs"), [(2, 1), (1, 2)])
def test_a_version_is_not_brought_back_beside_another_one_of_the_same_schema(mine: int, theirs: int) -> None:
    here = replace(ORDERS, version=mine)
    other = replace(ORDERS_THERE, version=theirs)
    plan = SCHEMAS.propose("c2", view(here), view(other, replace(ORDERS_THERE, version=mine, deleted=True)))

    assert ((), ()) == (plan.steps, plan.present)
    assert (Conflict(here, "t-orders-value", (Clash(ClashReason.OTHER_VERSION, (other,)),)),) == plan.conflicts


def test_a_registry_that_is_read_only_holds_deletes_and_levels() -> None:
    here = view(replace(ORDERS, deleted=True), t_eu_orders_value=Compatibility.FULL)
    plan = SCHEMAS.propose("c2", here, view(ORDERS_THERE, modes={None: Mode.READONLY}))
    steps = (SoftDelete("t-orders-value", 1), SetCompatibility("t-orders-value", Compatibility.FULL))
    assert {HeldStep(step, Mode.READONLY) for step in steps} == set(plan.held)
    assert plan.steps == ()


def test_a_schema_that_was_deleted_and_came_again_repeats_its_history() -> None:
    here = view(replace(ORDERS, version=2), replace(ORDERS, deleted=True))
    steps = SCHEMAS.propose("c2", here, view()).steps
    assert (
        Register(ORDERS_THERE),
        SoftDelete("t-orders-value", 1),
        Register(replace(ORDERS_THERE, version=2)),
    ) == steps


def test_a_schema_whose_first_version_was_brought_back_repeats_its_history_and_is_there_once() -> None:
    """A registry with a live version makes no second one: the deleted version comes and goes first."""
    again = replace(ORDERS, version=2, deleted=True)
    steps = SCHEMAS.propose("c2", view(ORDERS, again), view()).steps
    there = replace(ORDERS_THERE, version=2)
    assert (Register(there), SoftDelete("t-orders-value", 2), Register(ORDERS_THERE)) == steps


def test_a_first_version_waits_while_the_second_one_cannot_be_deleted() -> None:
    again = replace(ORDERS, version=2, deleted=True)
    user = replace(BILLS_THERE, subject="x-local-value", references=[Reference("o", "t-orders-value", 2)])
    there = view(replace(ORDERS_THERE, version=2), user)
    plan = SCHEMAS.propose("c2", view(ORDERS, again), there)
    held = (HeldStep(Register(ORDERS_THERE), behind=again), HeldStep(SoftDelete("t-orders-value", 2), behind=user))
    assert ((), held) == (plan.steps, plan.held)


def test_a_deleted_version_is_not_made_beside_a_live_one() -> None:
    again = replace(ORDERS, version=2, deleted=True)
    plan = SCHEMAS.propose("c2", view(ORDERS, again), view(ORDERS_THERE))
    clash = Clash(ClashReason.OTHER_VERSION, (ORDERS_THERE,))
    assert ((), (Conflict(again, "t-orders-value", (clash,)),)) == (plan.steps, plan.conflicts)


def test_a_conflict_is_told_alike_before_and_after_the_live_version_has_come() -> None:
    gone, again = replace(ORDERS, deleted=True), replace(ORDERS, version=3)
    local = Registration("t-orders-value", 1, 9, "something else")  # where the deleted one would have to be
    come = replace(ORDERS_THERE, version=3)
    before = SCHEMAS.propose("c2", view(gone, again), view(local))
    after = SCHEMAS.propose("c2", view(gone, again), view(local, come))
    assert ((Register(come),), ()) == (before.steps, after.steps)
    conflict = Conflict(gone, "t-orders-value", (Clash(ClashReason.VERSION_TAKEN, (local,)),))
    assert ((conflict,), (conflict,)) == (before.conflicts, after.conflicts)


def test_levels_travel_with_their_subjects() -> None:
    here = view(ORDERS, t_eu_orders_value=Compatibility.FULL, t_eu_bills_key=Compatibility.NONE, odd=Compatibility.NONE)
    there = view(ORDERS_THERE, t_orders_value=Compatibility.BACKWARD, modes={})
    plan = SCHEMAS.propose("c2", here, there)
    assert {
        SetCompatibility("t-orders-value", Compatibility.FULL),
        SetCompatibility("t-bills-key", Compatibility.NONE),
    } == set(plan.steps)
    assert [("odd", NameIssue.NO_MATCH)] == [(one.name, one.problem) for one in plan.problems]


def test_a_level_that_the_primary_does_not_have_is_taken_away() -> None:
    plan = SCHEMAS.propose(
        "c2", view(ORDERS), view(ORDERS_THERE, t_orders_value=Compatibility.NONE, x=Compatibility.FULL)
    )
    assert (SetCompatibility("t-orders-value", None),) == plan.steps


def test_different_levels_of_whole_registries_are_told_and_left_alone() -> None:
    there = RegistryView(compatibility={None: Compatibility.FULL})
    plan = SCHEMAS.propose("c2", RegistryView(), there)
    assert ((), (Compatibility.BACKWARD, Compatibility.FULL)) == (plan.steps, plan.global_levels)
    assert SCHEMAS.propose("c2", there, there).global_levels is None


def test_subjects_that_collide_are_not_distributed() -> None:
    plan = SCHEMAS.propose("c2", view(ORDERS, replace(ORDERS, subject="t-us-orders-value")), view())
    assert ((), ("t-eu-orders-value", "t-us-orders-value")) == (plan.steps, plan.collisions[0].names)
    assert not plan.is_complete


def test_references_are_translated_and_registered_first() -> None:
    assert (Register(ORDERS_THERE), Register(BILLS_THERE)) == SCHEMAS.propose("c2", view(BILLS, ORDERS), view()).steps
    assert (Register(BILLS_THERE),) == SCHEMAS.propose("c2", view(BILLS, ORDERS), view(ORDERS_THERE)).steps
    assert (ORDERS_THERE, BILLS_THERE) == SCHEMAS.propose(
        "c2", view(BILLS, ORDERS), view(BILLS_THERE, ORDERS_THERE)
    ).present


def test_users_are_deleted_before_what_they_use() -> None:
    here = view(replace(ORDERS, deleted=True), replace(BILLS, deleted=True))
    deletes = (SoftDelete("t-bills-value", 1), SoftDelete("t-orders-value", 1))
    assert (Register(ORDERS_THERE), Register(BILLS_THERE), *deletes) == SCHEMAS.propose("c2", here, view()).steps
    assert deletes == SCHEMAS.propose("c2", here, view(ORDERS_THERE, BILLS_THERE)).steps


def test_a_schema_whose_reference_does_not_arrive_does_not_arrive_either() -> None:
    missing = (Clash(ClashReason.REFERENCE_MISSING, reference=BILLS.references[0]),)
    taken = Registration("x-local-value", 1, 7, "something else")
    for here, there in ((view(BILLS), view()), (view(ORDERS, BILLS), view(taken))):
        plan = SCHEMAS.propose("c2", here, there)
        assert ((), (Conflict(BILLS, "t-bills-value", missing),)) == (plan.steps, plan.conflicts[-1:])


def test_a_schema_whose_reference_is_deleted_there_is_a_conflict() -> None:
    gone = replace(ORDERS_THERE, deleted=True)
    plan = SCHEMAS.propose("c2", view(replace(ORDERS, deleted=True), BILLS), view(gone))
    assert (Clash(ClashReason.REFERENCE_DELETED, (gone,), BILLS.references[0]),) == plan.conflicts[0].clashes


def test_what_a_held_schema_uses_is_not_deleted_before_it() -> None:
    here = view(replace(ORDERS, deleted=True), replace(BILLS, deleted=True))
    there = view(modes={None: Mode.IMPORT, "t-bills-value": Mode.READWRITE})
    plan = SCHEMAS.propose("c2", here, there)
    assert (Register(ORDERS_THERE),) == plan.steps
    delete = HeldStep(SoftDelete("t-orders-value", 1), behind=replace(BILLS, deleted=True))
    assert (HeldStep(Register(BILLS_THERE), Mode.READWRITE), delete) == plan.held
    there = view(ORDERS_THERE, BILLS_THERE, modes={None: Mode.IMPORT, "t-bills-value": Mode.READONLY})
    assert [SoftDelete("t-bills-value", 1), SoftDelete("t-orders-value", 1)] == [
        held.step for held in SCHEMAS.propose("c2", here, there).held
    ]


def test_what_a_schema_in_conflict_uses_is_not_deleted_before_it() -> None:
    here = view(replace(ORDERS, deleted=True), replace(BILLS, deleted=True))
    plan = SCHEMAS.propose("c2", here, view(Registration("x-local-value", 1, 8, "something else")))
    assert (Register(ORDERS_THERE),) == plan.steps
    assert (HeldStep(SoftDelete("t-orders-value", 1), behind=replace(BILLS, deleted=True)),) == plan.held


def test_what_a_schema_uses_that_comes_with_the_same_plan_is_not_deleted() -> None:
    here = view(replace(ORDERS, deleted=True), BILLS)
    delete = SoftDelete("t-orders-value", 1)
    plan = SCHEMAS.propose("c2", here, view())

    assert (Register(ORDERS_THERE), Register(BILLS_THERE)) == plan.steps
    assert (HeldStep(delete, behind=BILLS_THERE),) == plan.held
    again = SCHEMAS.propose("c2", here, view(ORDERS_THERE, BILLS_THERE))
    assert ((), plan.held) == (again.steps, again.held)
    gone = view(replace(ORDERS, deleted=True), replace(BILLS, deleted=True))
    assert SoftDelete("t-bills-value", 1) in SCHEMAS.propose("c2", gone, view()).steps
    assert SCHEMAS.propose("c2", gone, view()).is_complete


def test_what_the_target_itself_uses_is_not_deleted() -> None:
    local = Registration("x-local-value", 1, 9, "local", references=[Reference("o", "t-orders-value", 1)])
    plan = SCHEMAS.propose("c2", view(replace(ORDERS, deleted=True)), view(ORDERS_THERE, local))
    assert ((), (HeldStep(SoftDelete("t-orders-value", 1), behind=local),)) == (plan.steps, plan.held)
    plan = SCHEMAS.propose("c2", view(replace(ORDERS, deleted=True)), view(ORDERS_THERE, replace(local, deleted=True)))
    assert (SoftDelete("t-orders-value", 1),) == plan.steps


def test_what_comes_after_a_delete_that_is_held_is_held() -> None:
    gone, back = replace(ORDERS, deleted=True), replace(ORDERS, version=2)
    bills, extra = replace(BILLS, deleted=True), replace(BILLS, subject="t-eu-extra-value", id=9, schema="extra")
    extra = replace(extra, references=[Reference("o", ORDERS.subject, 2)])
    there = view(Registration("x-local-value", 1, 8, "something else"))
    plan = SCHEMAS.propose("c2", view(gone, back, bills, extra), there)
    assert (Register(ORDERS_THERE),) == plan.steps
    assert [("t-orders-value", gone), ("t-extra-value", back)] == [
        (held.step.registration.subject, held.behind) for held in plan.held if isinstance(held.step, Register)
    ]
    assert HeldStep(SoftDelete("t-orders-value", 1), behind=bills) in plan.held


def test_a_history_that_no_registry_should_have_gets_the_plain_order() -> None:
    used = [Reference("one", ORDERS.subject, 1), Reference("two", ORDERS.subject, 2)]
    bills = replace(BILLS, references=used)
    orders = replace(ORDERS, deleted=True), replace(ORDERS, version=2)
    steps = SCHEMAS.propose("c2", view(*orders, replace(bills, deleted=True)), view()).steps
    assert [Register, Register, Register, SoftDelete, SoftDelete] == [type(step) for step in steps]
    waiting = SCHEMAS.propose("c2", view(*orders, bills), view())
    assert (Register(ORDERS_THERE),) == waiting.steps
    assert [Register, Register, SoftDelete] == [type(held.step) for held in waiting.held]


def test_schemas_that_use_each_other_in_a_circle_are_refused() -> None:
    one = replace(ORDERS, references=[Reference("b", BILLS.subject, 1)])
    with pytest.raises(ArgumentError, match="circle"):
        SCHEMAS.propose("c2", view(one, BILLS), view())


def test_only_the_primary_distributes() -> None:
    assert ("c1", ("c2",), ()) == (SCHEMAS.primary, SCHEMAS.targets("c1"), SCHEMAS.targets("c2"))
    assert "t-orders-value" == SCHEMAS.translation("c2").translate("t-eu-orders-value")
    for cluster in ("c1", "c3"):
        with pytest.raises(ArgumentError, match="target"):
            SCHEMAS.propose(cluster, view(), view())


def test_fields_that_a_target_adds_have_the_defaults_of_that_target() -> None:
    topics = NamePattern("{topic}").for_subjects()
    schemas = SchemaDistribution("c2", {"c1": THERE, "c2": topics}, defaults={"c1": {"tenant": "acme"}})
    assert "acme-t-key" == schemas.translation("c1").translate("t-key")


@pytest.mark.parametrize(
    ("primary", "defaults"), [("c3", {}), ("c1", {"c1": {}}), ("c1", {"c3": {}}), ("c2", {})], ids=str
)
def test_a_distribution_that_can_never_work_is_refused(primary: str, defaults: dict[str, dict[str, str]]) -> None:
    with pytest.raises(ArgumentError):
        SchemaDistribution(primary, {"c1": HERE, "c2": THERE}, defaults=defaults)


@pytest.mark.parametrize("which", [0, 1])
def test_only_views_are_compared(which: int) -> None:
    views: list[Any] = [view(), view()]
    views[which] = {}
    with pytest.raises(ArgumentError, match="RegistryView"):
        SCHEMAS.propose("c2", *views)


@pytest.mark.parametrize(
    "change",
    [
        {"subject": ""},
        {"schema": 7},
        {"schema_type": ""},
        {"version": 0},
        {"version": True},
        {"id": 0},
        {"id": "7"},
        {"references": "o"},
        {"references": 7},
        {"references": ["o"]},
        {"deleted": 1},
    ],
    ids=str,
)
def test_a_registration_that_no_registry_has_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=next(iter(change))):
        replace(ORDERS, **change)


@pytest.mark.parametrize("arguments", [("", "s", 1), ("n", "", 1), ("n", "s", 0)], ids=str)
def test_a_reference_that_no_registry_has_is_refused(arguments: tuple[str, str, int]) -> None:
    with pytest.raises(ArgumentError):
        Reference(*arguments)


@pytest.mark.parametrize(
    "options",
    [
        {"registrations": [ORDERS, ORDERS]},
        {"registrations": [ORDERS, replace(ORDERS, version=2, schema="other")]},
        {"registrations": [7]},
        {"compatibility": {"s": "SOMETIMES"}},
        {"compatibility": [("s", "FULL")]},
        {"modes": {"": Mode.IMPORT}},
    ],
    ids=str,
)
def test_a_view_that_contradicts_itself_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        RegistryView(**options)


def test_a_view_takes_levels_and_modes_as_registries_write_them() -> None:
    words: Any = {"s": "FULL_TRANSITIVE"}
    assert {"s": Compatibility.FULL_TRANSITIVE} == RegistryView(compatibility=words).compatibility


def test_the_order_of_references_means_nothing() -> None:
    one, two = Reference("a", "s", 1), Reference("b", "s", 2)
    assert replace(ORDERS, references=[one, two]).content == replace(ORDERS, references=[two, one]).content
