"""What the strategies of the kit draw."""

from hypothesis import given
from hypothesis import strategies as st

from keyshared.distribution import DistributionTree
from keyshared.testing.strategies import (
    FILTERS,
    KEYS,
    NAMES,
    ClusterTree,
    cluster_trees,
    consumer_names,
    delays_ms,
    filters,
    keys,
)


@given(keys(), keys(keyless=True), consumer_names(), filters())
def test_what_is_drawn_is_what_is_listed(
    key: bytes | None, maybe: bytes | None, name: str, patterns: tuple[str, ...]
) -> None:
    assert key in KEYS
    assert maybe is None or maybe in KEYS
    assert name in NAMES
    assert patterns in FILTERS


@given(delays_ms(100, None))
def test_time_passes(ms: int) -> None:
    assert ms > 0


@given(st.data())
def test_trees_of_clusters_can_be_built(data: st.DataObject) -> None:
    tree: ClusterTree = data.draw(cluster_trees())
    assert DistributionTree(tree).plan()
