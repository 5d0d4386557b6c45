"""Small histories split into the logs of processes, and every order that those logs allow, found by trying all."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple

from tests.testing.tiny_histories import TinyWorld, claimed

from keyshared.testing import Guarantees, MergeError, Promise, check_history, merge_histories
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Delivered,
    Expired,
    Happening,
    Nacked,
    Published,
    Redriven,
    Released,
)

__all__ = ["Case", "Logs", "all_orders", "cases", "complaints"]

Place = tuple[int, int]


class Logs(NamedTuple):
    """What processes tell, and how far their clocks may be wrong."""

    producers: list[list[Happening]]
    consumers: list[list[Happening]]
    clock_error_ms: int | None

    @property
    def all(self) -> list[list[Happening]]:
        return [*self.producers, *self.consumers]


def happened(random: Random, length: int) -> list[Happening]:
    """A tiny history that can have happened: nothing is told of before it was published, if ever it was."""
    history = TinyWorld(random).history(length)
    published = {each.offset: each for each in history if isinstance(each, Published)}
    left = [published[offset] for offset in sorted(published)]
    found: list[Happening] = []
    for happening in history:
        if isinstance(happening, Published):
            upto = happening.offset
        elif isinstance(happening, Committed):
            upto = happening.resume_offset - 1
        else:
            upto = getattr(happening, "offset", -1)
        while left and left[0].offset <= upto:
            found.append(left.pop(0))
        if isinstance(happening, Redriven) and left and upto not in published:
            found.append(left.pop(0))
        if isinstance(happening, Redriven) and (not found or upto > max(published, default=-1)):
            continue
        if not isinstance(happening, Published):
            found.append(happening)
    return found


def split(history: Sequence[Happening], random: Random) -> Logs:
    """Who told what: each consumer one process, mostly; what is of no consumer any of them."""
    producers: list[list[Happening]] = [[] for _ in range(random.choice([1, 1, 2]))]
    consumers: list[list[Happening]] = [[] for _ in range(random.choice([1, 1, 2, 2, 3]))]
    process: dict[str, int] = {}
    by_consumer = random.random() < 0.8
    both = random.random() < 0.1
    for happening in history:
        name = getattr(happening, "consumer", None)
        at = random.randrange(len(consumers))
        if isinstance(happening, Published) and not both:
            random.choice(producers).append(happening)
        else:
            consumers[process.setdefault(name, at) if name is not None and by_consumer else at].append(happening)
    return Logs(producers, consumers, random.choice([None, None, 0, 2, 8]))


def all_orders(logs: Logs, most: int) -> list[list[Happening]] | None:
    """Every order that the logs allow; None if there are more than so many."""
    every = logs.all
    places = [(log, number) for log, told in enumerate(every) for number in range(len(told))]
    before = {place: {other for other in places if comes_first(other, place, logs)} for place in places}
    found: list[list[Happening]] = []
    for order in orders(tuple(len(told) for told in every), before):
        found.append([every[log][number] for log, number in order])
        if len(found) > most:
            return None
    return found


def orders(lengths: tuple[int, ...], before: dict[Place, set[Place]]) -> Iterator[list[Place]]:
    order: list[Place] = []
    taken: set[Place] = set()

    def more() -> Iterator[list[Place]]:
        if len(order) == sum(lengths):
            yield list(order)
        for log, length in enumerate(lengths):
            number = sum(place[0] == log for place in order)
            if number < length and before[log, number] <= taken:
                order.append((log, number))
                taken.add((log, number))
                yield from more()
                taken.discard(order.pop())

    return more()


def comes_first(one: Place, other: Place, logs: Logs) -> bool:
    """Whether an entry must have happened before another one, by a rule of its own: not by way of others."""
    every = logs.all
    a, b = every[one[0]][one[1]], every[other[0]][other[1]]
    if one[0] == other[0]:
        return one[1] < other[1]
    error = logs.clock_error_ms
    if error is not None and a.at_ms is not None and b.at_ms is not None and a.at_ms + error < b.at_ms:
        return True
    return is_published_first(a, b, every) or is_delivery_of(one, other, every) or ends(one, other, logs)


def is_published_first(a: Happening, b: Happening, every: Sequence[Sequence[Happening]]) -> bool:
    if not isinstance(a, Published):
        return False
    if isinstance(b, Published):
        return a.offset < b.offset
    if isinstance(b, Committed):
        return a.offset < b.resume_offset
    offset: int | None = getattr(b, "offset", None)
    if offset is None:
        return False
    published = sorted(each.offset for told in every for each in told if isinstance(each, Published))
    if isinstance(b, Redriven) and offset not in published and published[0] < offset:
        return a.offset <= next(each for each in published if each > offset)  # else it would be published later
    return a.offset <= offset


def is_delivery_of(one: Place, other: Place, every: Sequence[Sequence[Happening]]) -> bool:
    answer = every[other[0]][other[1]]
    if not isinstance(answer, Acked | Nacked | Expired | Released):
        return False
    fits = [
        (log, number)
        for log, told in enumerate(every)
        for number, each in enumerate(told)
        if isinstance(each, Delivered)
        and (each.offset, each.consumer) == (answer.offset, answer.consumer)
        and (each.attempt is None or answer.attempt is None or each.attempt == answer.attempt)
    ]
    return {log for log, _ in fits} == {one[0]} and min(fits) == one


def ends(one: Place, other: Place, logs: Logs) -> bool:
    return is_the_end(other, logs) and not is_the_end(one, logs)


def is_the_end(place: Place, logs: Logs) -> bool:
    told = logs.all[place[0]]
    last = told[-1]
    if place[1] < len(told) - 1 or not isinstance(last, AtRest):
        return False
    return logs.clock_error_ms is None or last.at_ms is None


class Case(NamedTuple):
    """Logs with what is claimed, all their orders, and what each of these breaks."""

    seed: int
    logs: Logs
    guarantees: Guarantees
    orders: list[list[Happening]]
    broken: list[frozenset[Promise]]


def cases(seeds: Sequence[int], most: int = 300) -> Iterator[Case]:
    """The case of each seed, without those that have too many orders."""
    for seed in seeds:
        random = Random(seed)  # reproducible, not secret
        history = happened(random, random.randrange(3, 9))
        guarantees = claimed(random)
        if random.random() < 0.7:
            guarantees = replace(guarantees, ack_timeout_ms=None)
        if random.random() < 0.5:
            guarantees = replace(guarantees, window=None, max_tracked=None, open_at_once=None, look_ahead=None)
            guarantees = replace(guarantees, waiting_per_key=None, waiting_per_consumer=None, linger_ms=None)
        logs = split(history, random)
        found = all_orders(logs, most)
        if found is not None:
            broken = [frozenset(each.promise for each in check_history(order, guarantees)) for order in found]
            yield Case(seed, logs, guarantees, found, broken)


def complaints(case: Case) -> Iterator[str]:
    """What the merge says of a case that trying all orders does not."""
    logs = case.logs
    try:
        merged = merge_histories(logs.producers, logs.consumers, case.guarantees, clock_error_ms=logs.clock_error_ms)
    except MergeError as error:
        if case.orders:
            yield f"{case.seed}: there are orders, but {error}"
        return
    if list(merged.history) not in case.orders:
        yield f"{case.seed}: no log allows this order: {merged.history}"
    for promise in sorted(merged.decided):
        if len({promise in broken for broken in case.broken}) > 1:
            yield f"{case.seed}: {promise} is decided, and one order breaks it while another one keeps it"
