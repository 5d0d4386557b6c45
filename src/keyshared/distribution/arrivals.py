"""Records of several clusters judged by where they arrived: lost, perished, duplicated or reordered.

`judge` knows nothing of trees or flags: it looks at what arrived where. It judges real logs as well as simulated ones.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from keyshared._checks import checked_rows
from keyshared.copyflags import CopyFlags
from keyshared.distribution.distributor import Hop

__all__ = ["RecordArrival", "RecordFault", "ReplicationReport", "judge"]


class RecordArrival(NamedTuple):
    """One record in the log of one cluster.

    Attributes:
        at_ms: When it arrived.
        cluster: The cluster.
        origin: The cluster on which it was produced.
        sequence: Its number on that origin; a later one has a greater number.
        flags: Its copy flags there.
        hop: The link that brought it; None where it was produced.
    """

    at_ms: int
    cluster: str
    origin: str
    sequence: int
    flags: CopyFlags = CopyFlags()
    hop: Hop | None = None


class RecordFault(NamedTuple):
    """A record, by its origin and number there, and the cluster where something is wrong with it."""

    origin: str
    sequence: int
    cluster: str


@dataclass(frozen=True, slots=True)
class ReplicationReport:
    """The faults among the records, on the clusters that are left. Each kind is sorted and names each case once.

    Attributes:
        produced: How many records there were.
        copies: How many arrivals after the first of a record, anywhere.
        lost: Records that a cluster has not got, though another one that is left has them.
        perished: Records that no cluster has that is left, named with their origin: they died with their clusters.
        duplicated: Records that a cluster has more than once.
        reordered: Records that came to a cluster after a newer one of the same origin. Repetitions do not count.
        max_lag_ms: Longest time from the first arrival of a record to the first one on another cluster.
    """

    produced: int
    copies: int
    lost: tuple[RecordFault, ...]
    perished: tuple[RecordFault, ...]
    duplicated: tuple[RecordFault, ...]
    reordered: tuple[RecordFault, ...]
    max_lag_ms: int

    @property
    def exactly_once_in_order(self) -> bool:
        """Whether every record is on every cluster once, in the order of its origin."""
        return not (self.lost or self.perished or self.duplicated or self.reordered)


def judge(arrivals: Iterable[RecordArrival], clusters: Collection[str]) -> ReplicationReport:
    """Find the records that were lost, doubled or overtaken. O(a + r c), a arrivals of r records, c clusters.

    Args:
        arrivals: Of each cluster all of its log in order, also of clusters that are gone by now; clusters may be mixed
            in any way.
        clusters: Those that every record should be on.

    Example:
        >>> here, there = RecordArrival(0, "c1", "c1", 0), RecordArrival(7, "c2", "c1", 0)
        >>> judge([here, there, there], ["c1", "c2", "c3"]).duplicated
        (RecordFault(origin='c1', sequence=0, cluster='c2'),)
    """
    left = frozenset(clusters)
    times: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)  # first arrivals, by record and cluster
    newest: dict[tuple[str, str], int] = {}
    duplicated: set[RecordFault] = set()
    reordered: set[RecordFault] = set()
    total = 0
    for at_ms, cluster, origin, sequence, _, _ in checked_rows(
        "arrival", arrivals, len(RecordArrival._fields), "the fields of RecordArrival"
    ):
        total += 1
        case = RecordFault(origin, sequence, cluster)
        seen = times[origin, sequence]
        if cluster in seen:
            duplicated.add(case)
            continue
        seen[cluster] = at_ms
        if newest.setdefault((cluster, origin), sequence) > sequence:
            reordered.add(case)
        newest[cluster, origin] = max(newest[cluster, origin], sequence)
    missing = {record: left.difference(seen) for record, seen in times.items()}
    lost = [RecordFault(*record, name) for record, names in missing.items() if names != left for name in names]
    return ReplicationReport(
        produced=len(times),
        copies=total - len(times),
        lost=tuple(sorted(lost)),
        perished=tuple(sorted(RecordFault(*record, record[0]) for record, names in missing.items() if names == left)),
        duplicated=tuple(sorted(case for case in duplicated if case.cluster in left)),
        reordered=tuple(sorted(case for case in reordered if case.cluster in left)),
        max_lag_ms=max((max(seen.values()) - min(seen.values()) for seen in times.values()), default=0),
    )
