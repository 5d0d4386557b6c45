"""One distributor: flags in, copies out."""

from typing import Any

import pytest

from keyshared.copyflags import CopyFlags
from keyshared.distribution import Copy, DistributionTree, Distributor, Hop
from keyshared.errors import ArgumentError


@pytest.mark.parametrize(("flags", "due"), [(0b000, True), (0b001, False), (0b010, False), (0b100, True)])
def test_a_distributor_copies_with_its_bit_unless_that_or_a_lower_one_is_set(flags: int, *, due: bool) -> None:
    copies = (Copy("b", CopyFlags(flags | 0b10)), Copy("c", CopyFlags(flags | 0b10)))

    assert (copies if due else ()) == Distributor("a", 2, ["b", "c"]).copies(CopyFlags(flags))
    assert (copies[0] if due else None) == Hop("a", 2, "b").forward(CopyFlags(flags))


def test_a_distributor_has_a_link_for_each_sibling() -> None:
    distributor = Distributor("a", 2, ["b", "c"])

    assert (Hop("a", 2, "b"), Hop("a", 2, "c")) == distributor.hops
    assert distributor == Distributor("a", 2, ("b", "c"))
    assert "'a' at level 2 to 'b'" == str(distributor.hops[0])


@pytest.mark.parametrize(
    ("cluster", "level", "targets", "parameter"),
    [
        ("", 1, ["b"], "cluster"),
        (7, 1, ["b"], "cluster"),
        ("a", 0, ["b"], "level"),
        ("a", True, ["b"], "level"),
        ("a", 1, [], "targets"),
        ("a", 1, "b", "targets"),
        ("a", 1, [""], "target"),
        ("a", 1, [None], "target"),
        ("a", 1, ["b", "b"], "targets"),
        ("a", 1, ["b", "a"], "targets"),
    ],
)
def test_a_distributor_that_can_never_work_is_refused(cluster: Any, level: Any, targets: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        Distributor(cluster, level, targets)

    assert parameter == caught.value.parameter


@pytest.mark.parametrize("flags", [0, 5, None, "5", b"\5", True], ids=repr)
def test_what_are_no_flags_is_refused(flags: Any) -> None:
    tree = DistributionTree({2: ["a", "b"]})
    for call in (Hop("a", 2, "b").forward, Distributor("a", 2, ["b"]).copies, lambda given: tree.copies("a", given)):
        with pytest.raises(ArgumentError, match=r"flags is .* be a CopyFlags"):
            call(flags)


def test_a_link_of_no_level_is_refused_when_it_is_used() -> None:
    with pytest.raises(ArgumentError, match="level"):
        Hop("a", 0, "b").forward(CopyFlags())
