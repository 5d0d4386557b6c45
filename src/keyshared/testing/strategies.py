"""Hypothesis strategies for what goes into a Key-Shared system: reusable outside the machine too."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

__all__ = [
    "COLLIDING",
    "FILTERS",
    "KEYS",
    "NAMES",
    "ClusterTree",
    "cluster_trees",
    "consumer_names",
    "delays_ms",
    "filters",
    "keys",
]

ClusterTree: TypeAlias = str | Sequence["ClusterTree"]
"""A cluster's name, or the branches of a node."""

COLLIDING: Final = (
    (b"Aa", b"BB"),  # Java's String.hashCode
    (b"plumless", b"buckeroo"),  # CRC-32
    (b"k176", b"k358"),  # the slot of keyshared's own hash
)
"""Different keys of one hash: a system that tells keys apart by their hash takes them for one."""

KEYS: Final = (
    *(b"a", b"b", b"c", b"d", b""),
    *(key for pair in COLLIDING for key in pair),
    *("ключ".encode(), "e\u0301".encode(), b"\xff\x00", b"a b", b"a/0"),
)
"""Keys that find faults: some plain ones, the empty one, colliding ones, Unicode (one not normalised), no UTF-8."""

NAMES: Final = ("c1", "c2", "c3", "c11", "g2/c1")
"""Names that find faults: of names with digits at the end a number may be appended, and a group's prefix stripped."""

FILTERS: Final[tuple[tuple[str, ...], ...]] = ((), ("a",), ("b", "c*"), ("*",), ("?",))
"""What consumers may want: everything, one key, some, everything again, all keys of one character."""

_DELAYS_MS: Final = (1, 10, 100, 1_000)


def keys(*, keyless: bool = False) -> st.SearchStrategy[bytes | None]:
    """Keys, few of them most of the time: faults of order need messages of the same key.

    Args:
        keyless: Whether there are messages without a key, as None.
    """
    few: st.SearchStrategy[bytes | None] = st.sampled_from(KEYS[:2])
    many: st.SearchStrategy[bytes | None] = st.sampled_from(KEYS)
    return st.one_of(few, few, many, *([st.none()] if keyless else []))


def consumer_names(most: int = len(NAMES)) -> st.SearchStrategy[str]:
    """Names of consumers.

    Args:
        most: How many different ones.
    """
    return st.sampled_from([*NAMES, *(f"c{number}" for number in range(12, 12 + most))][:most])


def filters() -> st.SearchStrategy[tuple[str, ...]]:
    """Patterns of the keys that a consumer wants; often none."""
    return st.sampled_from(((), *FILTERS))


def delays_ms(*limits: int | None) -> st.SearchStrategy[int]:
    """Milliseconds that pass, among them those just before, at and after each limit.

    Args:
        limits: Timeouts of the system; None is passed over.
    """
    near = [limit + step for limit in limits if limit is not None for step in (-1, 0, 1) if limit + step > 0]
    return st.sampled_from([*_DELAYS_MS, *near])


def cluster_trees(most: int = 6) -> st.SearchStrategy[ClusterTree]:
    """Shapes of trees in which clusters hand copies on, as `keyshared.distribution.DistributionTree` takes them.

    Args:
        most: How many clusters at most, at least two.
    """
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
