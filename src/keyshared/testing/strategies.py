"""Hypothesis strategies for what goes into a Key-Shared system: reusable outside the machine too."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, Final, TypeAlias

from keyshared._checks import check_extra

check_extra("testing", "hypothesis")

from hypothesis import strategies as st

from keyshared.testing._given import check_count, check_kind
from keyshared.testing.driver import ABILITIES, AnyDriver, abilities
from keyshared.testing.steps import (
    NEEDS,
    Ack,
    AckLate,
    AckThrough,
    BeginAck,
    BeginReceive,
    Connect,
    Disconnect,
    Fail,
    FinishAck,
    FinishReceive,
    Flap,
    KillAt,
    Nack,
    NackLate,
    Poll,
    Postpone,
    Publish,
    PublishLater,
    ReadOn,
    Restart,
    Schedule,
    Step,
    StopReading,
    Wait,
)

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
    "schedules",
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
    return st.sampled_from([*_DELAYS_MS, *near])


def schedules(
    driver: type[AnyDriver] | None = None,
    *,
    keys: st.SearchStrategy[bytes | None] = keys(),  # noqa: B008  # a strategy is a value
    names: st.SearchStrategy[str] = st.sampled_from(NAMES[:3]),  # noqa: B008  # likewise
    delays: st.SearchStrategy[int] = delays_ms(),  # noqa: B008  # likewise
    most: int = 50,
) -> st.SearchStrategy[Schedule]:
    """Whole schedules: publishes, joins, leaves, flaps, acks, nacks, poison, timeouts, restarts, in any order.

    For `keyshared.testing.replay.run_schedule`, or for a test of your own that takes the steps in its own way. The
    machine sees what the broker does before it draws the next step, so it needs fewer tries; a schedule is drawn first.

    Args:
        driver: Only steps that it can take; None: all kinds.
        keys: What is published.
        names: What consumers are called. Few, or most steps of theirs are of somebody who is not there.
        delays: Milliseconds that pass; see `delays_ms`.
        most: How many steps at most. The first is a join.
    """
    for name, strategy in (("keys", keys), ("names", names), ("delays", delays)):
        check_kind(name, strategy, st.SearchStrategy)
    check_count("most", most, 1)
    can = frozenset(ABILITIES) if driver is None else abilities(driver)
    wanted = filters() if driver is None or driver.takes_filters else st.just(())
    joins = st.builds(Connect, names, wanted)
    steps = _steps(can, joins, keys, names, delays)
    # The length is drawn first: left to itself, Hypothesis draws five steps on average.
    more = st.integers(0, most - 1).flatmap(lambda length: st.lists(steps, min_size=length, max_size=length))
    return st.tuples(joins, more).map(lambda drawn: (drawn[0], *drawn[1]))


def _steps(
    can: frozenset[str],
    joins: st.SearchStrategy[Connect],
    keys: st.SearchStrategy[bytes | None],
    names: st.SearchStrategy[str],
    delays: st.SearchStrategy[int],
) -> st.SearchStrategy[Step]:
    """Steps, messages and their acks more often than the rest."""
    open_now, over, half = st.integers(0, 7), st.integers(0, 3), st.integers(1, 3)
    first = st.lists(names, min_size=1, max_size=2, unique=True).map(tuple)
    messages: list[st.SearchStrategy[Step]] = [st.builds(Publish, keys, st.integers(1, 4)), st.builds(Ack, open_now)]
    rare: dict[type[Step], st.SearchStrategy[Step]] = {
        Connect: joins,
        Disconnect: st.builds(Disconnect, names),
        Flap: st.builds(Flap, names),
        StopReading: st.builds(StopReading, names),
        ReadOn: st.just(ReadOn()),
        AckLate: st.builds(AckLate, over),
        Poll: st.builds(Poll, first, st.sampled_from([None, 1, 2] if "receive_some" in can else [None])),
        Nack: st.builds(Nack, open_now),
        NackLate: st.builds(NackLate, over),
        Wait: st.builds(Wait, delays),
        AckThrough: st.builds(AckThrough, open_now),
        Postpone: st.builds(Postpone, open_now, delays),
        PublishLater: st.builds(PublishLater, keys, delays),
        Fail: st.builds(Fail, open_now, st.integers(2, 6)),
        Restart: st.just(Restart()),
        KillAt: st.builds(KillAt, st.integers(1, 24)),
        BeginReceive: st.builds(BeginReceive, names, half),
        FinishReceive: st.builds(FinishReceive, over),
        BeginAck: st.builds(BeginAck, open_now, half),
        FinishAck: st.builds(FinishAck, over),
    }
    possible = [strategy for kind, strategy in rare.items() if NEEDS.get(kind, frozenset()) <= can]
    return st.one_of(*messages, *messages, *possible)


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
