"""Logs of distributions, right and broken: where the copies of a message come to lie, and what judges them."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from keyshared.copyflags import CopyFlags
from keyshared.distribution import DistributionTree, Hop, RecordArrival, judge
from keyshared.spark.copy_audit import Copies

Due: TypeAlias = Callable[[Hop, CopyFlags], bool]
MOST = 200  # copies of a message that goes in circles


class Lying(NamedTuple):
    """One record in one cluster's log."""

    message_id: str
    cluster: str
    flags: CopyFlags


def by_the_rule(hop: Hop, flags: CopyFlags) -> bool:
    return flags.is_due(hop.level)


def own_bit_only(hop: Hop, flags: CopyFlags) -> bool:
    return not flags & CopyFlags.bit(hop.level)


def any_bit(_: Hop, flags: CopyFlags) -> bool:
    return not flags


def ignored(_: Hop, __: CopyFlags) -> bool:
    return True


def spread(message_id: str, hops: Sequence[Hop], origin: str, *, due: Due = by_the_rule, flags: int = 0) -> list[Lying]:
    """Produce a message and let the links work until nobody has to, or it has gone in circles long enough."""
    lying = [Lying(message_id, origin, CopyFlags(flags))]
    for record in lying:
        for hop in hops:
            if hop.cluster == record.cluster and due(hop, record.flags) and len(lying) < MOST:
                lying.append(Lying(message_id, hop.target, record.flags.crossing(hop.level)))
    return lying


def broken_logs(tree: DistributionTree, rng: Random, messages: int) -> Iterator[list[Lying]]:
    """The copies of one message each time; most are wrong, in all the ways there are."""
    plan, clusters = tree.hops(), tree.clusters
    for number in range(messages):
        name, origin, fate = f"m{number}", rng.choice(clusters), rng.randrange(8)
        if fate == 0:
            yield spread(name, plan, origin, due=rng.choice([own_bit_only, any_bit, ignored]))
        elif fate == 1:
            yield spread(name, rng.sample(plan, len(plan) - 1), origin)
        elif fate == 2:
            hop = rng.choice(plan)
            wrong = hop._replace(target=rng.choice([name for name in clusters if name != hop.cluster]))
            yield spread(name, [*(other for other in plan if other != hop), wrong], origin)
        elif fate == 3:
            yield spread(name, plan, origin, flags=CopyFlags.bit(rng.choice(plan).level))
        elif fate == 4:
            lying = spread(name, plan, origin)
            yield [*lying, *rng.choices(lying, k=rng.randrange(1, 3))]
        elif fate == 5:
            lying = spread(name, plan, origin)
            yield rng.sample(lying, rng.randrange(1, len(lying) + 1))
        elif fate == 6:
            yield [*spread(name, plan, origin), Lying(name, "gone", CopyFlags())]
        else:
            yield spread(name, plan, origin)


def judged(tree: DistributionTree, lying: Sequence[Lying]) -> tuple[set[str], set[str]]:
    """Where a message was lost and where it was doubled, by the judge of the core."""
    report = judge([RecordArrival(0, record.cluster, "x", 0, record.flags) for record in lying], tree.clusters)
    assert () == report.perished
    return {case.cluster for case in report.lost}, {case.cluster for case in report.duplicated}


def counted(lying: Sequence[Lying]) -> list[Copies]:
    """The same, equal copies put together, as the audit has them."""
    return [Copies(*record[1:], lying.count(record)) for record in sorted(set(lying))]
