"""Trees that are changed again and again while records are under way: every change that there is, at its worst."""

import copy
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from random import Random
from typing import Any

from tests.distribution.trees import chosen_hops, links_of, random_shape

from keyshared.distribution import DistributionTree, Hop, Quiescence, Replication, ReplicationReport, TreeChange, judge
from keyshared.errors import TopologyError

Planned = TreeChange[DistributionTree]

KINDS = ("add", "add above", "add wide", "move", "remove", "renumber")
SPEEDS = (0.0, 0.01, 1.0, 100.0)  # a link that is starved, one that lags, two that do not


def movable(tree: DistributionTree) -> list[tuple[Hop, str]]:
    """Every link that could have another target, with each of those."""
    return [
        (hop, other)
        for cluster, level, possible in links_of(tree.nested)
        for hop in tree.hops()
        if (hop.cluster, hop.level) == (cluster, level) and hop.target in possible
        for other in possible
        if other != hop.target
    ]


def tree_with_odd_levels(random: Random, leaves: int) -> DistributionTree:
    """A tree with targets at random, whose levels stand close together or far apart: a renumbering moves them all."""

    def levelled(nested: Any) -> tuple[Any, int]:
        if isinstance(nested, str):
            return nested, 0
        branches = [levelled(branch) for branch in nested]
        level = max(below for _, below in branches) + random.choice((1, 2, 5, 20))
        return {level: [branch for branch, _ in branches]}, level

    nested, _ = levelled(random_shape(random, [f"c{number}" for number in range(leaves)]))
    return DistributionTree(nested, chosen_hops(nested, random))


def a_change(tree: DistributionTree, kind: str, random: Random, name: str) -> Planned | None:
    """A change of a kind, at random; None if there is none, or it is refused for the levels or the shape."""
    match kind:
        case "move":
            choices = movable(tree)
            return tree.propose_move(*random.choice(choices)) if choices else None
        case "remove":
            return tree.propose_remove(random.choice(tree.clusters)) if len(tree.clusters) > 1 else None
        case "renumber":
            return tree.propose_renumber()
        case "add":
            near = [random.choice(tree.clusters)]
        case _:
            near = random.sample(tree.clusters, random.randint(1, len(tree.clusters)))
    try:
        change = tree.propose_add(name, near=near, wide=kind == "add wide")
    except TopologyError:
        return None
    return tree.propose_add(name, near=near, wide=kind == "add wide", source=random.choice(feeding(change)))


def feeding(change: Planned) -> list[str]:
    """The clusters that copy to a new one."""
    assert change.fill is not None
    return [hop.cluster for hop in change.added if hop.target == change.fill.target]


@dataclass
class Changing:
    """A tree, the world that it runs in, and a schedule that does its worst."""

    tree: DistributionTree
    random: Random
    plan: Callable[[Planned], Planned] = lambda change: change
    drain: Callable[[Planned], Quiescence[DistributionTree]] = Quiescence
    replication: type[Replication] = Replication
    names: int = 0
    reborn: bool = False  # whether new clusters take the names of those that are gone
    speeds: dict[Hop, float] = field(default_factory=dict)
    world: Replication = field(init=False)

    def __post_init__(self) -> None:
        self.world = self.replication(self.tree.clusters, self.tree.hops())

    def traffic(self, steps: int, stopped: Collection[Hop] = (), silent: Collection[str] = ()) -> None:
        """Produce and distribute; links have speeds of their own, and take turns in being the slow one."""
        rate = self.random.choice((0.05, 0.3, 0.8))
        for _ in range(steps):
            if self.random.random() < 0.1:
                self.speeds.clear()
            origins = [cluster for cluster in self.world.clusters if cluster not in silent]
            if origins and self.random.random() < rate:
                self.world.produce(self.random.choice(origins))
            ready = [hop for hop in self.world.ready() if hop not in stopped]
            weights = [self.speeds.setdefault(hop, self.random.choice(SPEEDS)) for hop in ready]
            if any(weights):
                self.world.work(self.random.choices(ready, weights)[0])

    def drained(self, change: Planned) -> Quiescence[DistributionTree]:
        drain, left = self.drain(change), 60  # or each level would have more to read than the one above it
        stopped = drain.stop
        while not drain.observe(self.world.log_ends(), self.world.positions()):
            # what the observation stops takes a while to stand still
            self.traffic(self.random.choice((0, 0, 3)), stopped, drain.silent)
            stopped = drain.stop
            steps = min(left, self.random.choice((0, 0, 4, 12)))
            left -= steps
            self.traffic(steps, drain.stop, drain.silent)
            for hop in drain.watch:
                if hop in self.world.ready() and hop not in drain.stop:
                    self.world.work(hop)
        for still in (stopped, drain.stop):
            self.traffic(self.random.choice((0, 0, 3)), still, drain.silent)
        return drain

    def change(self, kind: str) -> bool:
        """Make a change in good order; whether there was one to make."""
        self.names += 1
        gone = sorted(self.world._gone - {*self.tree.clusters}) if self.reborn else []
        change = a_change(self.tree, kind, self.random, gone[0] if gone else f"new {self.names}")
        if change is None:
            return False
        change = self.plan(change)
        quiesced = self.drained(change).quiesced() if change.needs_drain else None
        starts = None
        if change.added and self.random.random() < 0.5:  # what stood still goes on before the change is in force
            starts = change.starts(self.world.log_ends(), self.world.positions())
            self.traffic(10)
        self.world.apply(change, starts=starts)
        self.tree = self.tree.apply(change, quiesced)
        return True

    def lose(self) -> None:
        """Destroy a cluster, and go on without it."""
        if len(self.tree.clusters) > 1:
            lost = self.random.choice(self.tree.clusters)
            self.world.destroy(lost)
            self.traffic(10)
            change = self.tree.propose_loss(lost)
            self.world.apply(change)
            self.tree = self.tree.apply(change)

    def end(self) -> ReplicationReport:
        """Let one link after the other run dry, in an order at random, as long as any of them has something to read."""
        turns = {hop: self.random.random() for hop in self.world.positions()}
        while ready := self.world.ready():
            self.world.work(min(ready, key=turns.__getitem__))
        return self.world.report()


def lived(random: Random, kinds: Iterable[str], leaves: int, **parts: Any) -> Changing:
    """A tree that was changed in these ways, with traffic in between."""
    life = Changing(tree_with_odd_levels(random, leaves), random, **parts)
    for kind in kinds:
        life.traffic(random.choice((0, 5, 20)))
        life.change(kind)
    life.traffic(20)
    return life


def all_adds(tree: DistributionTree, name: str) -> Iterator[Planned]:
    """Every way to add a cluster: beside every subtree, as a branch of every node, filled from every cluster."""
    seen = set()
    for size in range(1, len(tree.clusters) + 1):
        for near in combinations(tree.clusters, size):
            for wide in (False, True):
                try:
                    planned = tree.propose_add(name, near=near, wide=wide)
                except TopologyError:
                    continue
                for source in feeding(planned):
                    change = tree.propose_add(name, near=near, wide=wide, source=source)
                    if change not in seen:
                        seen.add(change)
                        yield change


def all_other_changes(tree: DistributionTree) -> Iterator[Planned]:
    """Every move, removal and renumbering."""
    yield from (tree.propose_move(*choice) for choice in movable(tree))
    yield from (tree.propose_remove(cluster) for cluster in tree.clusters if len(tree.clusters) > 1)
    renumbering = tree.propose_renumber()
    if renumbering.moved:
        yield renumbering


Event = str | Planned  # a record is produced there, or a change begins


@dataclass
class _State:
    world: Replication
    at: int = 0
    drain: Quiescence[DistributionTree] | None = None

    def twin(self) -> "_State":
        world = copy.copy(self.world)
        world._logs = {cluster: list(log) for cluster, log in world._logs.items()}
        world._positions = dict(world._positions)
        world._next = copy.copy(world._next)
        world._gone = set(world._gone)
        world.arrivals = list(world.arrivals)
        drain = copy.copy(self.drain)
        if drain is not None:
            drain._stages = [replace(stage) for stage in drain._stages]
        return _State(world, self.at, drain)

    @property
    def key(self) -> object:
        stages = self.drain and tuple((stage.level, tuple(stage.marks.items())) for stage in self.drain._stages)
        logs = tuple(map(tuple, self.world._logs.values()))
        return self.at, logs, tuple(self.world._positions.items()), stages


def _next_states(state: _State, events: list[Event]) -> Iterator[_State]:
    stopped = state.drain.stop if state.drain else ()
    for hop in state.world.ready():
        if hop not in stopped:
            twin = state.twin()
            twin.world.work(hop)
            yield twin
    if state.drain is not None:
        twin = state.twin()
        assert twin.drain is not None
        if twin.drain.observe(twin.world.log_ends(), twin.world.positions()):
            twin.world.apply(twin.drain.quiesced().change)
            twin.drain = None
        yield twin
    if state.at < len(events):
        event = events[state.at]
        twin = state.twin()
        twin.at += 1
        if isinstance(event, str):
            if event in state.world.clusters and (state.drain is None or event not in state.drain.silent):
                twin.world.produce(event)
                yield twin
        elif state.drain is None:
            if event.needs_drain:
                twin.drain = Quiescence(event)
            else:
                twin.world.apply(event)
            yield twin


def _pass(state: _State) -> None:
    world, stopped = state.world, state.drain.stop if state.drain else ()
    for hop in world.ready():
        while hop not in stopped and hop in world.ready() and hop.forward(world._next_of(hop).flags) is None:
            world.work(hop)


def every_end(tree: DistributionTree, events: list[Event]) -> Iterator[ReplicationReport]:
    """What becomes of these events in every possible order of everything that links and drains do in between.

    A link passes what is none of its business at once: that it reads it, and when, changes nothing for the others.
    """
    waiting = [_State(Replication(tree.clusters, tree.hops()))]
    seen = {waiting[0].key}
    while waiting:
        state = waiting.pop()
        ended = state.at == len(events) and state.drain is None and not state.world.ready()
        if ended:
            yield judge(state.world.arrivals, state.world.clusters)
            continue
        stuck = True
        for following in _next_states(state, events):
            _pass(following)
            stuck = stuck and following.key == state.key
            if following.key not in seen:
                seen.add(following.key)
                waiting.append(following)
        assert not stuck, (tree, events, state.key)
