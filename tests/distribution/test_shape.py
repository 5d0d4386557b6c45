"""The shape of a tree: what is read, what is refused and where, and how it is edited."""

from typing import Any

import pytest
from tests.distribution.trees import UNBALANCED, all_shapes, clusters_of

from keyshared.copyflags import MAX_LEVEL
from keyshared.distribution import LEVEL_STEP, MAX_DEPTH, Node
from keyshared.distribution.shape import add, at, crowded, leaves, parse, path_of, relevel, remove, to_nested
from keyshared.errors import TopologyError


def chain(depth: int) -> Any:
    nested: Any = "c"
    for number in range(depth):
        nested = [f"c{number}", nested]
    return nested


def endless() -> Any:
    nested: list[Any] = ["c1"]
    nested.append(nested)
    return nested


def test_a_cluster_alone_is_a_tree() -> None:
    assert "c1" == parse("c1")
    assert ("c1",) == leaves("c1")


def test_levels_of_your_own_are_kept() -> None:
    assert UNBALANCED == to_nested(parse(UNBALANCED))


def test_lists_get_levels_with_room_in_between() -> None:
    assert {32: [{16: ["c1", "c2"]}, "c3"]} == to_nested(parse([("c1", "c2"), "c3"]))


def test_a_list_gets_a_level_above_those_below_it() -> None:
    assert {32: ["c1", {17: ["c2", "c3"]}]} == to_nested(parse(["c1", {17: ["c2", "c3"]}]))
    assert {32: ["c1", {16: ["c2", "c3"]}]} == to_nested(parse(["c1", {16: ["c2", "c3"]}]))
    assert {16: ["c1", {15: ["c2", "c3"]}]} == to_nested(parse(["c1", {15: ["c2", "c3"]}]))
    top = MAX_LEVEL - LEVEL_STEP
    assert {MAX_LEVEL: ["c1", {top: ["c2", "c3"]}]} == to_nested(parse(["c1", {top: ["c2", "c3"]}]))


@pytest.mark.parametrize(
    ("nested", "path", "parameter", "value"),
    [
        ({3: [{1: ["a", "b"]}, {3: ["c", "d"]}]}, "tree[1]", "chain of levels from the root", (3, 3)),
        ({3: [{4: ["a", "b"]}, "c"]}, "tree[0]", "chain of levels from the root", (3, 4)),
        ({9: ["c", {5: ["d", {6: ["a", "b"]}]}]}, "tree[1][1]", "chain of levels from the root", (9, 5, 6)),
        ({3: ["c", ["a", "b"]]}, "tree[1]", "chain of levels from the root", (3, 16)),
        ([["a", "b"], ["c", "a"]], "tree[1][1]", "cluster", "a"),
        (["a", "a"], "tree[1]", "cluster", "a"),
        ([["a"], "b"], "tree[0]", "number of branches", 1),
        ([[], "b"], "tree[0]", "number of branches", 0),
        ([], "tree", "number of branches", 0),
        ({1: ["a"]}, "tree", "number of branches", 1),
        ({}, "tree", "number of levels", 0),
        (["a", {1: ["b", "c"], 2: ["d", "e"]}], "tree[1]", "number of levels", 2),
        ({0: ["a", "b"]}, "tree", "level", 0),
        ({-1: ["a", "b"]}, "tree", "level", -1),
        ({True: ["a", "b"]}, "tree", "level", True),
        ({"1": ["a", "b"]}, "tree", "level", "1"),
        ({MAX_LEVEL + 1: ["a", "b"]}, "tree", "level", MAX_LEVEL + 1),
        (["a", {MAX_LEVEL: ["b", "c"]}], "tree", "level", MAX_LEVEL + LEVEL_STEP),
        ("", "tree", "branch", ""),
        (["a", ""], "tree[1]", "branch", ""),
        (["a", b"b"], "tree[1]", "branch", b"b"),
        (["a", None], "tree[1]", "branch", None),
        ({1: "ab"}, "tree", "branch", "ab"),
        ({1: {2: ["a", "b"]}}, "tree", "branch", {2: ["a", "b"]}),
        (chain(MAX_DEPTH + 1), "tree" + "[1]" * MAX_DEPTH, "depth", MAX_DEPTH + 1),
        (endless(), "tree[1][0]", "cluster", "c1"),
    ],
)
def test_a_shape_that_is_not_in_order_is_refused_by_its_place(
    nested: Any, path: str, parameter: str, value: object
) -> None:
    with pytest.raises(TopologyError) as caught:
        parse(nested)

    assert (path, parameter, value) == (caught.value.path, caught.value.parameter, caught.value.value)


def test_the_first_place_of_a_cluster_that_is_named_twice_is_told() -> None:
    with pytest.raises(TopologyError, match=r"at tree\[1\]\[1\]: .* named once; it is at tree\[0\]\[0\] already"):
        parse([["a", "b"], ["c", "a"]])


def test_the_deepest_tree_that_is_allowed_can_be_worked_with() -> None:
    root = parse(chain(MAX_DEPTH))

    assert MAX_DEPTH + 1 == len(leaves(root))
    assert root == relevel(parse(to_nested(root)))


@pytest.mark.parametrize(
    ("clusters", "path"),
    [(["3"], (0, 1, 1)), (["2", "3"], (0, 1)), (["1", "3"], (0,)), (["1", "5"], ()), (["4"], (1, 0))],
)
def test_some_clusters_have_a_smallest_subtree(clusters: list[str], path: tuple[int, ...]) -> None:
    root = parse(UNBALANCED)

    assert path == path_of(root, clusters)
    assert set(clusters) <= set(leaves(at(root, path)))


def test_a_new_node_gets_the_level_in_the_middle_and_touches_no_other() -> None:
    root = parse([["a", "b"], "c"])

    assert {32: [{16: ["a", {8: ["b", "n"]}]}, "c"]} == to_nested(add(root, (0, 1), "n", wide=False))
    assert {32: [{24: [{16: ["a", "b"]}, "n"]}, "c"]} == to_nested(add(root, (0,), "n", wide=False))
    assert {32: [{16: ["a", "b"]}, {16: ["c", "n"]}]} == to_nested(add(root, (1,), "n", wide=False))
    assert {48: [{32: [{16: ["a", "b"]}, "c"]}, "n"]} == to_nested(add(root, (), "n", wide=False))
    assert {16: ["a", "n"]} == to_nested(add("a", (), "n", wide=False))


def test_a_wide_cluster_becomes_one_more_branch_and_needs_no_level() -> None:
    root = parse({2: [{1: ["a", "b"]}, "c"]})

    assert {2: [{1: ["a", "b", "n"]}, "c"]} == to_nested(add(root, (0, 1), "n", wide=True))
    assert {2: [{1: ["a", "b"]}, "c", "n"]} == to_nested(add(root, (0,), "n", wide=True))
    with pytest.raises(TopologyError, match="at tree: node above is None; it must exist"):
        add(root, (), "n", wide=True)


def test_without_a_free_level_nothing_is_added_and_the_ways_out_are_named() -> None:
    root = parse({3: [{2: [{1: ["a", "b"]}, "c"]}, {1: ["d", "e"]}]})

    with pytest.raises(TopologyError, match=r"at tree\[0\]\[0\]: .* is \(2, 1\); .* wide, or renumber"):
        add(root, (0, 0), "n", wide=False)
    with pytest.raises(TopologyError, match=r"is \(1, 0\)"):
        add(root, (0, 0, 1), "n", wide=False)
    with pytest.raises(TopologyError, match="level of a new root"):
        add(parse({MAX_LEVEL: ["a", "b"]}), (), "n", wide=False)


def test_a_warning_names_the_branches_without_a_free_level_above() -> None:
    root = parse({3: [{2: [{1: ["a", "b"]}, "c"]}, {1: ["d", "e"]}]})

    assert [("a", "b", "c"), ("a", "b"), ("a",), ("b",), ("d",), ("e",)] == list(map(leaves, crowded(root)))
    assert [] == list(crowded(parse([["a", "b"], "c"])))


@pytest.mark.parametrize("size", range(2, 6))
def test_what_is_removed_is_gone_and_the_rest_stays_in_order_with_its_levels(size: int) -> None:
    names = "abcde"[:size]
    for nested in all_shapes(names):
        root = parse(nested)
        for name in names:
            left = remove(root, name)
            assert [other for other in names if other != name] == clusters_of(to_nested(left))
            assert left == parse(to_nested(left))
            assert set(_levels(left)) <= set(_levels(root))


def _levels(branch: Any) -> list[int]:
    if not isinstance(branch, Node):
        return []
    return [branch.level, *(level for below in branch.branches for level in _levels(below))]


def test_a_node_that_is_left_with_one_branch_makes_way_for_it() -> None:
    root = parse(UNBALANCED)

    assert {3: [{1: ["2", "3"]}, {1: ["4", "5"]}]} == to_nested(remove(root, "1"))
    assert {3: [{2: ["1", {1: ["2", "3"]}]}, "5"]} == to_nested(remove(root, "4"))
    assert "5" == remove(parse(["4", "5"]), "4")
    assert {16: ["a", "c"]} == to_nested(remove(parse(["a", "b", "c"]), "b"))


def test_levels_are_handed_out_again_with_room() -> None:
    assert {48: [{32: ["1", {16: ["2", "3"]}]}, {16: ["4", "5"]}]} == to_nested(relevel(parse(UNBALANCED)))
    assert "a" == relevel("a")
