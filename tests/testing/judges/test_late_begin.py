"""Histories that begin late, when a system has been at work for long: it is never blamed for what they leave out."""

from random import Random
from typing import Any

import pytest
from tests.testing.judges.happenings import acked, connected, delivered, nacked, published, released

from keyshared.testing import Checker, Guarantees, Promise, check_history
from keyshared.testing.history import (
    Acked,
    AtRest,
    Committed,
    Delivered,
    Done,
    Expired,
    Happening,
    Published,
    Quiet,
    Settled,
    SettledBy,
)

CLAIMS = Guarantees(
    promises={"no-loss", "fence", "settled-once", "safe-cursor", "key-order", "one-holder"}, tells_done=True
)
UNFENCED = Guarantees(promises=CLAIMS.promises - {Promise.FENCE}, tells_done=True)


class System:
    """Keeps all that is claimed: one delivery of a key at a time, in order; acks of ended deliveries count late."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.numbered = random.random() < 0.7
        self.history: list[Happening] = []
        self.next_offset = 0
        self.waiting: dict[bytes, list[int]] = {b"k": [], b"l": []}
        self.open: dict[bytes, tuple[str, int]] = {}
        self.past: dict[int, list[tuple[str, int]]] = {}  # the deliveries of what is outstanding
        self.noted: set[int] = set()

    def run(self, steps: int) -> list[Happening]:
        acts = [self.publish, self.publish, self.deliver, self.ack, self.expire]
        for _ in range(steps):
            self.random.choice([*acts, self.ack_late])(self.random.choice([b"k", b"l"]))
        for key, waiting in self.waiting.items():
            while waiting:
                self.deliver(key)
                self.ack(key)
        return [*self.history, AtRest()]

    def publish(self, key: bytes) -> None:
        self.history.append(Published(offset=self.next_offset, key=key))
        self.waiting[key].append(self.next_offset)
        self.next_offset += self.random.choice([1, 1, 3])

    def deliver(self, key: bytes) -> None:
        if not self.waiting[key] or key in self.open:
            return
        offset = self.waiting[key][0]
        if offset in self.noted:  # it is done instead
            self.history.append(Settled(offset=offset, reason=SettledBy.LATE_ACK))
            self.end(key)
            return
        past = self.past.setdefault(offset, [])
        past.append((self.random.choice("ab"), len(past) + 1))
        self.open[key] = past[-1]
        self.history.append(Delivered(offset=offset, key=key, **self.named(past[-1])))

    def named(self, delivery: tuple[str, int]) -> dict[str, Any]:
        consumer, attempt = delivery
        return {"consumer": consumer, "attempt": attempt if self.numbered else None}

    def ack(self, key: bytes) -> None:
        if key in self.open:
            open_one = self.open.pop(key)
            self.history.append(Acked(offset=self.waiting[key][0], counted=True, **self.named(open_one)))
            self.end(key)

    def expire(self, key: bytes) -> None:
        if key in self.open:
            self.history.append(Expired(offset=self.waiting[key][0], **self.named(self.open.pop(key))))

    def ack_late(self, key: bytes) -> None:
        """Of a delivery that has ended: at once if nothing is open, as soon as it comes back in the other case."""
        offset = self.waiting[key][0] if self.waiting[key] else -1
        past = [each for each in self.past.get(offset, ()) if each != self.open.get(key)]
        if not past or (key in self.open and not self.numbered):
            return
        late = self.random.choice(past)
        counts = self.random.random() < 0.5 and key not in self.open
        if not counts:
            self.noted.add(offset)
        self.history.append(Acked(offset=offset, counted=counts, **self.named(late)))
        if counts:
            self.end(key)

    def end(self, key: bytes) -> None:
        offset = self.waiting[key].pop(0)
        if self.random.random() < 0.7 and not any(self.waiting.values()):
            self.history.append(Committed(resume_offset=self.next_offset))
        self.history.append(Done(offset=offset))


@pytest.mark.no_cover
@pytest.mark.parametrize("claims", [CLAIMS, UNFENCED], ids=["fenced", "unfenced"])
def test_a_system_that_keeps_all_is_not_blamed_wherever_its_history_begins(claims: Guarantees) -> None:
    for seed in range(80):
        history = System(Random(seed)).run(30)
        assert [] == check_history(history, claims), seed
        for begin in range(len(history)):
            assert [] == check_history(history[begin:], claims), (seed, begin)


OLD: list[Happening] = [published(10), delivered(5, attempt=2)]
"""What waits behind it is older than the history: attempt 1 was made before that began."""


def blamed(history: list[Happening], promise: str) -> list[tuple[int, ...]]:
    return [each.proof for each in check_history(history, CLAIMS) if each.promise == promise]


def test_a_late_ack_may_have_come_before_the_history_began() -> None:
    late = Settled(offset=5, reason=SettledBy.LATE_ACK)
    assert [] == blamed([*OLD, Expired(offset=5, consumer="a", attempt=2), late], "no-loss")
    first: list[Happening] = [published(10), delivered(5), Expired(offset=5, consumer="a", attempt=1), late]
    assert [(2, 3)] == blamed(first, "no-loss")
    assert [(2, 3)] == blamed([published(5), *first[1:]], "no-loss")


def test_an_ack_of_a_delivery_from_before_the_history_may_count_while_none_is_open() -> None:
    back: list[Happening] = [*OLD, nacked(5, attempt=2, counted=True)]
    assert [] == blamed([*back, acked(5, "b", attempt=1, counted=True)], "fence")
    assert [(1, 3)] == blamed([*back, acked(5, "b", attempt=2, counted=True)], "fence")  # its number is another's
    assert [(1, 2)] == blamed([*OLD, acked(5, "b", attempt=1, counted=True)], "fence")
    told: list[Happening] = [published(5), *back[1:]]
    assert [(1, 3)] == blamed([*told, acked(5, "b", attempt=1, counted=True)], "fence")


UNNUMBERED: list[Happening] = [published(10), delivered(5, attempt=None)]


def test_an_answer_without_a_number_may_be_of_a_delivery_from_before_the_history() -> None:
    for answer in (acked, nacked):
        assert [] == blamed([*UNNUMBERED, answer(5, attempt=None, counted=False)], "no-loss")
        begun: list[Happening] = [published(5), UNNUMBERED[1], answer(5, attempt=None, counted=False)]
        assert [(1, 2)] == blamed(begun, "no-loss")
    seen: list[Happening] = [*UNNUMBERED, acked(5, attempt=None)]
    assert [] == blamed([*seen, delivered(5, attempt=None)], "no-loss")
    assert [] == blamed([*seen, acked(5, attempt=None, counted=True)], "no-loss")


def test_the_end_of_a_delivery_from_before_the_history_may_be_told_late() -> None:
    assert [] == blamed([*OLD, released(5, attempt=1)], "fence")
    assert [] == blamed([*OLD, Expired(offset=5, consumer="b", attempt=1)], "fence")
    assert [(1, 2)] == blamed([*OLD, released(5, attempt=3)], "fence")
    ended: list[Happening] = [nacked(5, attempt=None), released(5, attempt=None)]
    assert [] == blamed([*UNNUMBERED, *ended], "fence")
    assert [(1, 3)] == blamed([published(5), UNNUMBERED[1], *ended], "fence")


def test_where_nobody_says_whether_such_an_ack_counted_its_message_may_be_done() -> None:
    seen: list[Happening] = [*OLD, nacked(5, attempt=2, counted=True), acked(5, "b", attempt=1)]
    assert [] == blamed([*seen, Committed(resume_offset=6)], "safe-cursor")
    others: list[Happening] = [*seen[:-1], acked(5, "b", attempt=2)]
    assert [(2, 4)] == blamed([*others, Committed(resume_offset=6)], "safe-cursor")


def test_what_ended_before_the_history_began_is_said_to_be_done_in_it() -> None:
    begins: tuple[list[Happening], ...] = ([], [published(10)])
    for before in begins:
        checker = Checker(CLAIMS)
        assert [] == [each for row in (*before, Done(offset=5), AtRest()) for each in checker.feed(row)]
        reasons = {each.promise: each.reason for each in checker.unjudged()}
        assert (
            "what is said to be done, and was not told of, may have ended before the history began"
            == (reasons[Promise.SETTLED_ONCE])
        )
    assert [(1,)] == blamed([published(10), Done(offset=11)], "settled-once")
    assert [(4,)] == blamed(
        [published(10), *OLD[1:], acked(5, attempt=2), Done(offset=5), Done(offset=5)], "settled-once"
    )


OLDER = "offsets below the first Published are taken for older than the history"


def why_not_in_full(history: list[Happening]) -> str | None:
    checker = Checker(Guarantees(promises={"no-loss"}))
    for happening in [*history, AtRest()]:
        assert [] == checker.feed(happening)
    return next((each.reason for each in checker.unjudged()), None)


@pytest.mark.parametrize("place", range(3))
def test_that_a_backlog_is_older_is_said_wherever_it_stands(place: int) -> None:
    backlog: list[Happening] = [delivered(3), acked(3, counted=True)]
    log: list[Happening] = [published(10), delivered(10), acked(10)]
    assert OLDER == why_not_in_full([*backlog[:place], log[0], *backlog[place:], *log[1:]])
    assert why_not_in_full(log) is None


@pytest.mark.parametrize("backlog", [delivered(3), acked(3, counted=True)])
@pytest.mark.parametrize("place", range(2))
def test_that_what_is_older_may_hold_keys_is_said(backlog: Happening, place: int) -> None:
    log: list[Happening] = [published(10, b"l"), delivered(10, key=b"l"), connected("a"), Quiet()]
    for history, is_said in (([*log[:place], backlog, *log[place:]], True), (log, False)):
        checker = Checker(Guarantees(promises={"progress"}))
        assert [] == list(checker.violations(history))
        assert is_said == any("may hold keys" in each.reason for each in checker.unjudged())


def test_that_an_end_is_older_is_said_also_without_a_delivery() -> None:
    assert OLDER == why_not_in_full([acked(3, counted=True), published(10), delivered(10), acked(10)])
    assert why_not_in_full([acked(10, counted=True), published(10)]) is None


def test_what_was_told_before_the_first_publication_and_never_published_is_named() -> None:
    begun: tuple[list[Happening], ...] = (
        [delivered(12)],
        [delivered(12), acked(12)],
        [acked(12, counted=True)],
    )
    for before in begun:
        history = [*before, published(10, b"l")]
        row = len(history)
        for end, proof in (([published(13)], (0, row)), ([AtRest()], (0, row)), ([], (0,))):
            assert [proof] == blamed([*history, *end], "no-loss"), (history, end)
        assert [] == blamed([*history[:-1], published(12)], "no-loss")
