"""Time acts first in every call of a lease queue, and not at all in one that is refused."""

from typing import Any

import pytest
from tests.leasing import WatchedQueue, count_leased, fill, lease, lease_config, queue

from keyshared.buckets import BucketLayout, BucketPlacement
from keyshared.config import Poison, Rules
from keyshared.dispatcher import StoredLetter
from keyshared.effects import Blocked, Call, DeadLetter, Ignored, IgnoredReason, Released, ReleaseReason, Skipped
from keyshared.errors import (
    ArgumentError,
    ConsumerExistsError,
    KeyTypeError,
    OffsetOrderError,
    RedriveTooEarlyError,
    WindowFullError,
)
from keyshared.ring import HashRing

EXPIRED = ReleaseReason.ACK_TIMEOUT


def over_at_100(*keys: str, **config: Any) -> WatchedQueue:
    """The first of these keys is leased by ann until 100, and that was its last delivery."""
    made = queue("ann", **{"max_delivery_attempts": 1, "poison": Poison.BLOCK, **config})
    fill(made, *keys)
    lease(made, "ann", 1, now_ms=0)
    return made


def test_a_key_that_is_blocked_by_now_is_unblocked() -> None:
    made = over_at_100("a")

    assert [Released(0, "ann", 1, EXPIRED, 1, None), Blocked(0, b"a", 1)] == made.unblock("a", now_ms=100).effects
    assert (0,) == lease(made, "ann").offsets


@pytest.mark.parametrize("archive_blocked", [False, True])
def test_a_dead_letter_that_is_written_by_now_is_not_asked_for(archive_blocked: bool) -> None:
    poison = Poison.BLOCK if archive_blocked else Poison.DEAD_LETTER
    made = queue("ann", max_delivery_attempts=1, poison=poison, archive_blocked=archive_blocked)
    fill(made, "a", "b")
    lease(made, "ann", 2, now_ms=0)

    result, effects = made.dead_lettered(1, now_ms=100)
    assert result is None
    assert [DeadLetter(0, b"a", 1, 1, None)] == [effect for effect in effects if isinstance(effect, DeadLetter)]
    assert effects[:2] == [Released(0, "ann", 1, EXPIRED, 1, None), Released(1, "ann", 1, EXPIRED, 1, None)]


def with_a_letter(**config: Any) -> tuple[WatchedQueue, StoredLetter[Any]]:
    """Message 0 is in the dead-letter store, 1 of the same key is leased until 100, and that is its last delivery."""
    made = queue("ann", redrive=True, max_delivery_attempts=1, poison=Poison.DEAD_LETTER, quarantine=True, **config)
    fill(made, "a")
    letter = made.reject(0, lease(made, "ann", now_ms=0).id).effects[-1]
    assert isinstance(letter, DeadLetter)
    made.dead_lettered(0)
    made.unblock("a")
    fill(made, "a", start=1)
    lease(made, "ann")
    return made, StoredLetter(letter.offset, letter.attempt, letter.item)


def test_a_letter_of_a_key_that_is_in_quarantine_by_now_is_ignored() -> None:
    made, letter = with_a_letter()
    ignored = Ignored(0, None, letter.attempt, Call.REDRIVE, IgnoredReason.IS_QUARANTINED)

    effects = made.handle_timeout(now_ms=100).effects  # a call that may raise looks at the state before time acts
    result, _ = made.redrive("a", [letter], now_ms=100)
    assert [ignored] == result
    assert [Released(1, "ann", 1, EXPIRED, 1, None), DeadLetter(1, b"a", 1, 1, None)] == effects


def no_tenant(_: bytes) -> str:
    raise ValueError("no tenant")


@pytest.mark.parametrize(
    ("placement", "rules", "key"),
    [
        (HashRing(), Rules(mark="m", group_of=lambda key: no_tenant(key) if key == b"odd" else "g"), "odd"),
        (BucketPlacement(BucketLayout.equal_width(4)), None, "too long"),
    ],
)
def test_a_key_that_is_refused_lets_no_time_act(placement: Any, rules: Rules | None, key: str) -> None:
    made = WatchedQueue(placement, lease_config(redrive=True, ack_timeout_ms=10), rules=rules)
    made.add_consumer("c1")
    fill(made, "aa", "bb")
    held = lease(made, "c1", 2)
    made.reject(1, held.id)
    made.dead_lettered(1)
    before = made.snapshot()
    with pytest.raises(ArgumentError):
        made.redrive(key, [StoredLetter(1, 1, "x")], now_ms=50)
    assert before == made.snapshot()
    assert [Released] == [type(each) for each in made.handle_timeout(now_ms=50).effects]


@pytest.mark.parametrize("wrong", [5, None, "", b""], ids=["int", "none", "text", "bytes"])
def test_what_are_no_letters_or_handles_is_refused(wrong: Any) -> None:
    made, _ = with_a_letter()
    with pytest.raises(ArgumentError, match=r"letters is .*; it must be a collection of letters"):
        made.redrive("a", wrong)
    with pytest.raises(ArgumentError, match=r"handles is .*; it must be a collection of handles"):
        made.ack_many(wrong)


def test_letters_that_are_refused_let_no_time_act() -> None:
    made, letter = with_a_letter(window=2, max_tracked=2)
    fill(made, "b", start=2)

    for letters, error in (
        ([letter], WindowFullError),
        ([StoredLetter(3, 0)], RedriveTooEarlyError),
        ([StoredLetter(0, -1)], ArgumentError),
        ([StoredLetter(-(1 << 63), 0)], ArgumentError),
        ([StoredLetter(True, 0)], ArgumentError),
        ([(0, 1)], ArgumentError),
        (["letter"], ArgumentError),
    ):
        with pytest.raises(error):
            made.redrive("a", letters, now_ms=100)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(KeyTypeError):
        made.redrive(5, [], now_ms=100)  # type: ignore[arg-type]  # on purpose
    assert 1 == count_leased(made)


def test_nothing_is_redriven_where_nothing_can_be() -> None:
    with pytest.raises(ArgumentError, match="redrive is False"):
        over_at_100("a").redrive("a", [], now_ms=100)
    with pytest.raises(RedriveTooEarlyError):
        queue("ann", redrive=True).redrive("a", [StoredLetter(0, 0)])


def test_an_offer_acts_before_time_does() -> None:
    made = over_at_100("a", "b", latest_only=True)

    assert [Skipped, Released, Blocked] == [type(each) for each in made.offer(2, "b", now_ms=100).effects]


def test_what_is_refused_by_the_state_as_it_stands_is_not_once_time_has_acted() -> None:
    made = over_at_100("a", poison=Poison.DROP, window=1, max_tracked=1)
    made.remove_consumer("ann", drain_ms=None)

    with pytest.raises(WindowFullError):
        made.offer(1, "a", now_ms=100)
    with pytest.raises(ConsumerExistsError):
        made.add_consumer("ann", now_ms=100)
    assert 1 == count_leased(made), "a call that raises has changed nothing"
    assert [Released(0, "ann", 1, EXPIRED, 1, None)] == made.handle_timeout(now_ms=100).effects[:1]
    made.offer(1, "a")
    made.add_consumer("ann")


@pytest.mark.parametrize(
    ("offset", "key", "error"),
    [(True, "a", OffsetOrderError), (1 << 64, "a", ArgumentError), (1, 5, KeyTypeError)],
)
def test_a_duplicate_has_arguments_that_can_work(offset: Any, key: Any, error: type[ArgumentError]) -> None:
    made = queue("ann")
    made.offer(0, "a", producer=("web", 7))

    with pytest.raises(error):
        made.offer(offset, key, producer=("web", 7))
