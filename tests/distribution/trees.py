"""Distribution trees for tests: small shapes, every choice of targets, and what a record does, told the slow way."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from random import Random
from typing import Any

from hypothesis import strategies as st

from keyshared.distribution import DistributionTree, Hop, Quiesced, Quiescence, Replication, TreeChange

# The two trees of the page.
BALANCED: Any = {3: [{1: ["1", "2"]}, {1: ["3", "4"]}]}
UNBALANCED: Any = {3: [{2: ["1", {1: ["2", "3"]}]}, {1: ["4", "5"]}]}

Links = list[tuple[str, int, list[str]]]


def all_shapes(names: Sequence[str], max_arity: int | None = None) -> Iterator[Any]:
    """Every ordered tree over these clusters, as nested lists."""
    if len(names) == 1:
        yield names[0]
        return
    for parts in _cut(names, max_arity or len(names)):
        yield from map(list, product(*(tuple(all_shapes(part, max_arity)) for part in parts)))


def _cut(names: Sequence[str], most: int) -> Iterator[list[Sequence[str]]]:
    """Every way to cut into at least two and at most so many parts."""
    for bits in range(1, 1 << (len(names) - 1)):
        cuts = [0, *(index + 1 for index in range(len(names) - 1) if bits >> index & 1), len(names)]
        if len(cuts) - 1 <= most:
            yield [names[start:stop] for start, stop in pairwise(cuts)]


def clusters_of(nested: Any) -> list[str]:
    if isinstance(nested, str):
        return [nested]
    branches = next(iter(nested.values())) if isinstance(nested, Mapping) else nested
    return [name for branch in branches for name in clusters_of(branch)]


def links_of(nested: Any) -> Links:
    """Cluster, level and possible targets of every link of a shape with levels: from the definition, node by node."""
    if isinstance(nested, str):
        return []
    ((level, branches),) = nested.items()
    found: Links = []
    for own in branches:
        for other in branches:
            if other is not own:
                found += [(cluster, level, clusters_of(other)) for cluster in clusters_of(own)]
    return found + [link for branch in branches for link in links_of(branch)]


def all_plans(nested: Any) -> Iterator[list[Hop]]:
    """Every choice of targets for a shape with levels."""
    links = links_of(nested)
    for targets in product(*(possible for _, _, possible in links)):
        yield [Hop(cluster, level, target) for (cluster, level, _), target in zip(links, targets, strict=True)]


def chosen_hops(nested: Any, random: Random) -> list[Hop]:
    return [Hop(cluster, level, random.choice(possible)) for cluster, level, possible in links_of(nested)]


def arrivals(hops: Iterable[Hop], origin: str, limit: int = 10_000) -> Counter[str]:
    """Where a record arrives how often: flags as a set, and the rule of the page as it is written there."""
    plan = tuple(hops)
    arrived = Counter([origin])
    waiting: list[tuple[str, frozenset[int]]] = [(origin, frozenset())]
    while waiting and arrived.total() < limit:
        cluster, flags = waiting.pop()
        for hop in plan:
            if hop.cluster == cluster and not any(flag <= hop.level for flag in flags):
                arrived[hop.target] += 1
                waiting.append((hop.target, flags | {hop.level}))
    return arrived


@st.composite
def shapes(draw: st.DrawFn, min_leaves: int = 1, max_leaves: int = 16, max_arity: int = 5) -> Any:
    def built(names: Sequence[str]) -> Any:
        if len(names) == 1:
            return names[0]
        arity = draw(st.integers(2, min(max_arity, len(names))))
        inner = st.sets(st.integers(1, len(names) - 1), min_size=arity - 1, max_size=arity - 1)
        cuts = [0, *sorted(draw(inner)), len(names)]
        return [built(names[start:stop]) for start, stop in pairwise(cuts)]

    return built([f"c{number}" for number in range(draw(st.integers(min_leaves, max_leaves)))])


def random_shape(random: Random, names: Sequence[str], max_arity: int = 3) -> Any:
    if len(names) == 1:
        return names[0]
    arity = random.randint(2, min(max_arity, len(names)))
    cuts = [0, *sorted(random.sample(range(1, len(names)), arity - 1)), len(names)]
    return [random_shape(random, names[start:stop], max_arity) for start, stop in pairwise(cuts)]


def random_tree(random: Random, leaves: int, max_arity: int = 3) -> DistributionTree:
    """A tree with targets at random."""
    nested = DistributionTree(random_shape(random, [f"c{number}" for number in range(leaves)], max_arity)).nested
    return DistributionTree(nested, chosen_hops(nested, random))


def traffic(
    world: Replication,
    random: Random,
    steps: int,
    *,
    origins: Sequence[str] | None = None,
    stopped: Iterable[Hop] = (),
    crash: float = 0.0,
) -> None:
    """Produce and distribute at random; links that are stopped do nothing."""
    still = set(stopped)
    where = world.clusters if origins is None else origins
    for _ in range(steps):
        if where and random.random() < 0.3:
            world.produce(random.choice(where))
        ready = [hop for hop in world.ready() if hop not in still]
        if ready:
            world.work(random.choice(ready), crash=random.random() < crash)


def drained(
    world: Replication,
    change: TreeChange[DistributionTree],
    random: Random,
    *,
    drain: Quiescence[DistributionTree] | None = None,
    silent: bool = True,
) -> Quiesced[DistributionTree]:
    """Do what a drain asks for, while everything else goes on; or not all of it."""
    drain = drain or Quiescence(change)
    while not drain.observe(world.log_ends(), world.positions()):
        origins = [cluster for cluster in world.clusters if not silent or cluster not in drain.silent]
        traffic(world, random, 5, origins=origins if random.random() < 0.5 else (), stopped=drain.stop)
        for hop in drain.watch:
            if hop in world.ready() and hop not in drain.stop:
                world.work(hop)
    return drain.quiesced()


def dice(seed: int) -> Random:
    """The same throws for the same seed."""
    return Random(seed)  # schedules are no secrets
