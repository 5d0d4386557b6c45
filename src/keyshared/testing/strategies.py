"""Hypothesis strategies for what goes into a Key-Shared system, for tests of your own."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

from keyshared._checks import check_extra

check_extra("testing", "hypothesis")

from hypothesis import strategies as st

from keyshared.testing._given import check_class, check_count, check_kind
from keyshared.testing.draw import DELAYS_MS, FILTERS, KEYS, NAMES, World, draw_schedule
from keyshared.testing.driver import ABILITIES, AnyDriver, AsyncDriver, Driver, abilities
from keyshared.testing.steps import Schedule

__all__ = ["ClusterTree", "cluster_trees", "consumer_names", "delays_ms", "filters", "keys", "schedules"]

ClusterTree: TypeAlias = str | Sequence["ClusterTree"]
"""A cluster's name, or the branches of a node."""


def keys(*, keyless: bool = False) -> st.SearchStrategy[bytes | None]:
    """Keys, few of them most of the time: faults of order need messages of the same key.

    Args:
        keyless: Whether there are messages without a key, as None.
    """
    check_kind("keyless", keyless, bool)
    few: st.SearchStrategy[bytes | None] = st.sampled_from(KEYS[:2])
    many: st.SearchStrategy[bytes | None] = st.sampled_from(KEYS)
    return st.one_of(few, few, many, *([st.none()] if keyless else []))


def consumer_names(most: int = len(NAMES)) -> st.SearchStrategy[str]:
    """Names of consumers.

    Args:
        most: How many different ones.
    """
    check_count("most", most, 1)
    return st.sampled_from([*NAMES, *(f"c{number}" for number in range(12, 12 + most))][:most])


def filters() -> st.SearchStrategy[tuple[str, ...]]:
    """Patterns of the keys that a consumer wants; often none."""
    return st.sampled_from(((), *FILTERS))


def delays_ms(*limits: int | None) -> st.SearchStrategy[int]:
    """Milliseconds that pass, among them those just before, at and after each limit.

    Args:
        limits: Timeouts of the system; None is passed over.
    """
    for limit in limits:
        if limit is not None:
            check_kind("limits", limit, int)
    near = [limit + step for limit in limits if limit is not None for step in (-1, 0, 1) if limit + step > 0]
    return st.sampled_from([*DELAYS_MS, *near])


def schedules(driver: type[AnyDriver] | None = None, *, most: int = 50) -> st.SearchStrategy[Schedule]:
    """Whole schedules, as a search draws them: for `keyshared.testing.find.run_schedule`.

    Args:
        driver: Only steps that it can take; None: all kinds.
        most: How many steps at most. The first is a join.
    """
    check_count("most", most, 1)
    if driver is not None:
        check_class("driver", driver, Driver, AsyncDriver)
    can = frozenset(ABILITIES) if driver is None else abilities(driver)
    wanted = FILTERS if driver is None or driver.takes_filters else ((),)
    world = World(can=can, filters=wanted, most_steps=most)
    return st.randoms(use_true_random=False).map(lambda random: draw_schedule(random, world))


def cluster_trees(most: int = 6) -> st.SearchStrategy[ClusterTree]:
    """Shapes of trees in which clusters hand copies on, as `keyshared.distribution.DistributionTree` takes them.

    Args:
        most: How many clusters at most, at least two.
    """
    check_count("most", most, 2)
    leaves = st.integers(2, 3).map(lambda count: [None] * count)
    return (
        st.recursive(leaves, lambda branches: st.lists(branches, min_size=2, max_size=3), max_leaves=most)
        .map(lambda shape: _name(shape, count(1)))
        .filter(lambda tree: _size(tree) <= most)
    )


def _name(shape: Sequence[Any], numbers: Iterator[int]) -> ClusterTree:
    return [f"c{next(numbers)}" if branch is None else _name(branch, numbers) for branch in shape]


def _size(tree: ClusterTree) -> int:
    return 1 if isinstance(tree, str) else sum(map(_size, tree))
