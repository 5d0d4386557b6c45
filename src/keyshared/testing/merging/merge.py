"""Merge the logs of several processes into one history, and say of which promises it shows nothing for sure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

from keyshared.testing._given import check_count, check_kind
from keyshared.testing.errors import LogEntry, MergeError
from keyshared.testing.guarantees import Guarantees, Promise, Unjudged
from keyshared.testing.history import Happening, Published
from keyshared.testing.merging.facts import Facts
from keyshared.testing.merging.order import Log, Order
from keyshared.testing.merging.races import Races

__all__ = ["MergedHistory", "merge_histories"]


class MergedHistory(NamedTuple):
    """One history of several logs.

    Attributes:
        history: What happened, in an order that all logs allow.
        open: The claimed promises whose verdict may depend on what no log tells: another order that all logs allow may
            be judged otherwise. Each names two entries of which either may have come first.
        decided: The other claimed promises: every order that the logs allow has the same verdict.
    """

    history: tuple[Happening, ...]
    open: tuple[Unjudged, ...]
    decided: frozenset[Promise]


def merge_histories(
    producers: Iterable[Iterable[Happening]],
    consumers: Iterable[Iterable[Happening]],
    guarantees: Guarantees | None = None,
    *,
    clock_error_ms: int | None = None,
) -> MergedHistory:
    """Merge the logs of several processes into one history, by what must have happened before what.

    An entry comes after what stands before it in its log. A `Published` comes after those with lower offsets. What
    tells of an offset comes after every `Published` up to it, and a `Committed` after those below its cursor. An answer
    comes after its delivery, if one other log tells of that. An `AtRest` at the end of a log comes after all that other
    logs tell, unless clocks say when it was.

    Args:
        producers: What each producer tells: only `Published`.
        consumers: What each consumer, broker or operator tells.
        guarantees: What the system claims; None: as for `check_history`.
        clock_error_ms: By how much the times of two logs may be wrong against each other at most, with the time until
            something is written down. What is earlier by more than that comes first. None: times order nothing.

    Raises:
        MergeError: The logs contradict each other, or one holds what does not belong there.
        GuaranteesError: ``clock_error_ms`` is negative.

    Complexity:
        O(n · (p + log l)) for n entries of l logs, p the parts of the books that an entry touches, and O(n · l) where
        logs know of each other. All of it is in memory.

    Example:
        >>> from keyshared.testing.history import Delivered, Published
        >>> one, other = (Delivered(offset=0, key=b"k", consumer=name) for name in "ab")
        >>> claims = Guarantees(promises={"fence"})
        >>> merged = merge_histories([[Published(offset=0, key=b"k")]], [[one], [other]], claims)
        >>> len(merged.history), [str(each.promise) for each in merged.open]
        (3, ['fence'])
    """
    logs = [(f"producers[{place}]", log, True) for place, log in enumerate(producers)]
    logs += [(f"consumers[{place}]", log, False) for place, log in enumerate(consumers)]
    return merge_logs(logs, guarantees, clock_error_ms)


def merge_logs(
    logs: Sequence[tuple[str, Iterable[Happening], bool]], guarantees: Guarantees | None, clock_error_ms: int | None
) -> MergedHistory:
    """Merge logs as `merge_histories` does; each with its name, and whether it is of a producer."""
    claims = Guarantees() if guarantees is None else guarantees
    check_kind("guarantees", claims, Guarantees)
    if clock_error_ms is not None:
        check_count("clock_error_ms", clock_error_ms, 0)
    read = [_read(name, log, is_producer=is_producer) for name, log, is_producer in logs]
    order = Order(read, clock_error_ms)
    races = Races(order, claims, Facts((each for log in read for each in log.happenings), claims))
    history: list[Happening] = []
    for spot in order:
        happening = read[spot.log].happenings[spot.number]
        races.look(spot, happening)
        history.append(happening)
    found = {
        promise: f"no log tells which came first, {one} or {other}" for promise, (one, other) in races.found.items()
    }
    left_open = tuple(Unjudged(promise, found[promise]) for promise in Promise if promise in found)
    return MergedHistory(tuple(history), left_open, frozenset(map(Promise, claims.promises)) - found.keys())


def _read(name: str, log: Iterable[Happening], *, is_producer: bool) -> Log:
    happenings: list[Happening] = []
    for number, happening in enumerate(log):
        if not isinstance(happening, get_args(Happening)):
            requirement = "be a value of keyshared.testing.history"
            raise MergeError((LogEntry(name, number, happening),), requirement)
        if is_producer and not isinstance(happening, Published):
            raise MergeError((LogEntry(name, number, happening),), "be Published, or stand in a log of a consumer")
        happenings.append(happening)
    return Log(name, tuple(happenings))
