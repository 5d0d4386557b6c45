"""A simulation of clusters that distribute to one another: on a virtual clock, exact.

In `Replication` each cluster has a log, each link a position in the log of its cluster, and every input says when it
happens. It obeys any links, wrong ones too, and asks for no proof: it is there to show what breaks. Nothing is random:
an interleaving is the order of the calls. `judge` judges what arrived.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Final, NamedTuple

from keyshared._checks import check_int, check_kind, checked_kinds, checked_now
from keyshared.copyflags import CopyFlags
from keyshared.distribution.arrivals import RecordArrival, ReplicationReport, judge
from keyshared.distribution.change import TreeChange
from keyshared.distribution.distributor import Hop
from keyshared.distribution.tree import DistributionTree
from keyshared.errors import ArgumentError, shown

__all__ = ["Replication"]

DEFAULT_MAX_COPIES: Final = 100_000  # far beyond any tree that is right; so only a loop reaches it


class _Record(NamedTuple):
    origin: str
    sequence: int
    flags: CopyFlags


class Replication:
    """Clusters with logs and links with positions, moved by hand. Not thread-safe.

    ``arrivals`` has what came where up to now, for `judge`. A cluster that is added under the name of one that is gone
    is another cluster: of the one that is gone, ``"c1"`` becomes ``"c1 (1)"`` there. A cluster that is not there is an
    ArgumentError. Each ``now_ms`` is not before that of the previous call (a ClockError), None for the same.

    Args:
        clusters: Names of the clusters.
        hops: The links between them: those of a tree (`DistributionTree.hops`), or wrong ones.

    Example:
        >>> tree = DistributionTree({3: [{1: ["c1", "c2"]}, {1: ["c3", "c4"]}]})
        >>> world = Replication(tree.clusters, tree.hops())
        >>> world.produce("c1", now_ms=0)
        0
        >>> [tuple(hop) for hop in world.ready()]
        [('c1', 3, 'c3'), ('c1', 1, 'c2')]
        >>> world.settle(now_ms=5)
        True
        >>> world.report().copies, world.report().exactly_once_in_order
        (3, True)
    """

    __slots__ = ("_down", "_gone", "_logs", "_next", "_now_ms", "_positions", "arrivals")

    def __init__(self, clusters: Iterable[str], hops: Iterable[Hop]) -> None:
        names, links = tuple(clusters), tuple(checked_kinds("hop", hops, Hop))
        for what, given in (("clusters", names), ("hops", links)):
            if len(set(given)) < len(given):
                raise ArgumentError(what, given, "be given once each")
        self._logs: dict[str, list[_Record]] = {name: [] for name in names}
        self._positions = dict.fromkeys(links, 0)
        self._down: set[str] = set()
        self._gone: set[str] = set()
        self._next: Counter[str] = Counter()
        self._now_ms = 0
        self.arrivals: list[RecordArrival] = []
        for hop in links:
            self._checked("hop", hop.cluster)
            self._checked("hop", hop.target)

    def produce(self, cluster: str, *, flags: int = 0, now_ms: int | None = None) -> int:
        """Produce a record on a cluster that is up, and return its sequence number there.

        ``flags`` are those of its header: 0 of a fresh record, something else if an application copied a header.
        """
        self._usable(cluster)
        header = CopyFlags(flags)
        self._tick(now_ms)
        sequence = self._next[cluster]
        self._next[cluster] += 1
        self._append(cluster, _Record(cluster, sequence, header), None)
        return sequence

    def ready(self) -> list[Hop]:
        """List the links that have something to read, between clusters that are up, in the given order. O(links)."""
        return [hop for hop in self._positions if self._is_ready(hop)]

    def work(self, hop: Hop, *, crash: bool = False, now_ms: int | None = None) -> bool:
        """Read the next record of a link that is `ready`: copy it if it is due, then commit, or crash before that.

        Returns:
            Whether it was copied.
        """
        if check_kind("hop", hop, Hop) not in self._positions or not self._is_ready(hop):
            raise ArgumentError("hop", hop, "be one of ready()")
        self._tick(now_ms)
        record = self._next_of(hop)
        copy = hop.forward(record.flags)
        if copy is not None:
            self._append(copy.target, record._replace(flags=copy.flags), hop)
        if not crash:
            self._positions[hop] += 1
        return copy is not None

    def down(self, cluster: str, *, now_ms: int | None = None) -> None:
        """Cut a cluster off; it keeps its log."""
        self._enter(cluster, now_ms)
        self._down.add(cluster)

    def up(self, cluster: str, *, now_ms: int | None = None) -> None:
        """Bring a cluster back, with its log."""
        self._enter(cluster, now_ms)
        self._down.discard(cluster)

    def destroy(self, cluster: str, *, now_ms: int | None = None) -> None:
        """Destroy a cluster with its log. Links to it wait until the tree is changed; those from it end."""
        self._enter(cluster, now_ms)
        self._forget(cluster)

    def apply(
        self,
        change: TreeChange[DistributionTree],
        *,
        starts: Mapping[Hop, int] | None = None,
        now_ms: int | None = None,
    ) -> None:
        """Bring a change of the tree into force, drained or not. A cluster that it adds is filled at once.

        Args:
            change: The change.
            starts: Where added links start: `TreeChange.starts`, if links that stood still have gone on since. By
                default from the present logs and positions.
            now_ms: When, not before the previous call.

        Raises:
            ArgumentError: The change moves a link that is not there (those from a cluster that is gone may be missing),
                or adds one that is; a new cluster has records already; or the one that it is filled from is down or
                gone.
        """
        check_kind("change", change, TreeChange)
        self._check_links(change)
        before, after = change.before.clusters, change.after.clusters
        new = [cluster for cluster in after if cluster not in before]
        for cluster in filter(self._logs.get, new):
            raise ArgumentError("change", cluster, "add a cluster whose log is empty")
        if change.fill is not None:
            self._usable(change.fill.cluster)
        begins = self._begins(change, starts)
        self._tick(now_ms)
        new_of = dict(change.moved)
        removed = set(change.removed)
        self._positions = {
            new_of.get(hop, hop): 0 if change.rewind and hop in new_of else position
            for hop, position in self._positions.items()
            if hop not in removed
        }
        reads = {*self._logs, *new}  # nothing comes from a cluster that is gone
        self._positions.update({hop: begin for hop, begin in begins.items() if hop.cluster in reads})
        for cluster in new:  # and no other: a destroyed one stays away
            self._begin(cluster)
        if change.fill is not None:
            self._fill(change.fill, begins[change.fill])
        for cluster in before:
            if cluster not in after and cluster in self._logs:
                self._forget(cluster)

    def settle(self, *, now_ms: int | None = None, max_copies: int = DEFAULT_MAX_COPIES) -> bool:
        """Run all links until none has anything to read; False if that takes more than ``max_copies`` copies."""
        check_int("max_copies", max_copies, 0)
        self._tick(now_ms)
        end = len(self.arrivals) + max_copies
        while ready := self.ready():
            for hop in ready:
                if len(self.arrivals) == end and hop.forward(self._next_of(hop).flags):
                    return False
                self.work(hop)
        return True

    @property
    def clusters(self) -> tuple[str, ...]:
        """Clusters that are not gone, in the order in which they came."""
        return tuple(self._logs)

    def log_ends(self) -> dict[str, int]:
        """Return the offset after the last record of each cluster, for `Quiescence.observe`."""
        return {cluster: len(log) for cluster, log in self._logs.items()}

    def positions(self) -> dict[Hop, int]:
        """Return the offset that each link reads next, for `Quiescence.observe`."""
        return dict(self._positions)

    def report(self) -> ReplicationReport:
        """Judge what has arrived up to now."""
        return judge(self.arrivals, self.clusters)

    def _is_ready(self, hop: Hop) -> bool:
        if hop.target not in self._logs or not self._down.isdisjoint((hop.cluster, hop.target)):
            return False
        return self._positions[hop] < len(self._logs[hop.cluster])

    def _next_of(self, hop: Hop) -> _Record:
        return self._logs[hop.cluster][self._positions[hop]]

    def _check_links(self, change: TreeChange[DistributionTree]) -> None:
        for moved in change.moved:
            if moved.old not in self._positions and moved.old.cluster not in self._gone:
                raise ArgumentError("change", moved.old, "move links that are there")
        for hop in change.added:
            if hop in self._positions:
                raise ArgumentError("change", hop, "add links that are not there yet")

    def _begins(self, change: TreeChange[DistributionTree], starts: Mapping[Hop, int] | None) -> dict[Hop, int]:
        """Return where each added link begins, within the log that it reads."""
        begins = change.starts(self.log_ends(), self.positions()) if starts is None else starts
        if not isinstance(begins, Mapping):
            raise ArgumentError("starts", starts, "be None or a mapping of links to offsets")
        for hop in change.added:
            end = len(self._logs.get(hop.cluster, ()))
            if type(begins.get(hop)) is not int or not 0 <= begins[hop] <= end:
                raise ArgumentError(
                    f"starts[{hop!r}]", begins.get(hop), f"be an offset from 0 to {end}, where its log ends"
                )
        return {hop: begins[hop] for hop in change.added}

    def _fill(self, hop: Hop, end: int) -> None:
        """Copy everything before the cut to a new cluster, as if it was produced at the source just now."""
        flags = CopyFlags.of(hop.level)
        for record in self._logs[hop.cluster][:end]:
            self._append(hop.target, record._replace(flags=flags), hop)

    def _begin(self, cluster: str) -> None:
        """Begin the log of a new cluster. What came to an earlier one of its name came to another cluster."""
        self._logs[cluster] = []
        self._gone.discard(cluster)
        named = {arrival.cluster for arrival in self.arrivals}
        if cluster in named:
            earlier = next(
                name for turn in count(1) if (name := f"{cluster} ({turn})") not in named | self._logs.keys()
            )
            self.arrivals[:] = (
                arrival._replace(cluster=earlier) if arrival.cluster == cluster else arrival
                for arrival in self.arrivals
            )

    def _forget(self, cluster: str) -> None:
        """Drop a cluster that is gone: its log, and the positions of the links from it."""
        del self._logs[cluster]
        self._gone.add(cluster)
        self._down.discard(cluster)
        self._positions = {hop: position for hop, position in self._positions.items() if hop.cluster != cluster}

    def _append(self, cluster: str, record: _Record, hop: Hop | None) -> None:
        self._logs[cluster].append(record)
        self.arrivals.append(RecordArrival(self._now_ms, cluster, *record, hop))

    def _tick(self, now_ms: int | None) -> None:
        self._now_ms = checked_now(now_ms, self._now_ms)

    def _enter(self, cluster: str, now_ms: int | None) -> None:
        """Check the cluster of an input before time moves."""
        self._checked("cluster", cluster)
        self._tick(now_ms)

    def _checked(self, parameter: str, cluster: str) -> None:
        if cluster not in self._logs:
            raise ArgumentError(parameter, cluster, f"be one of {', '.join(map(shown, self._logs))}")

    def _usable(self, cluster: str) -> None:
        self._checked("cluster", cluster)
        if cluster in self._down:
            raise ArgumentError("cluster", cluster, "be up")
