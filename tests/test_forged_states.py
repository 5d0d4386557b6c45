"""Stored states with one part damaged: refused, or what comes of them is sound and says the same."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple
from zlib import crc32

import pytest
from tests.leasing import lease_config
from tests.public_calls import dispatcher, queue

from keyshared.config import DispatcherConfig, Poison, RetryPolicy
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher, StoredLetter
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.leases import Lease, LeaseQueue
from keyshared.offsets import ProvenanceVector
from keyshared.placement import HashRange, RangeMap
from keyshared.ring import HashRing

NUMBERS = (-1, 0, 1, 5, 2**63, 2**64, 2**256, 0.5, float("nan"))
ODD: tuple[object, ...] = (None, True, False, *NUMBERS, "", "odd", "\ud800", [], [None], {}, {"a": 1})


class Stored(NamedTuple):
    """Something with a state, and how to go there and back."""

    state: Callable[[], Any]
    restore: Callable[[Any], Any]
    write: Callable[[Any], Any]


def ring() -> HashRing:
    return HashRing(vnodes=3, slot_bits=4)


def crowded() -> KeySharedDispatcher:
    """Something drains, is in quarantine, spilled, loading, acked late, archived, and known from a token."""
    before = ContiguousCursor(0)
    for offset in range(1, 30):
        before.offer(offset)
    before.settle_many([12, 13, 25])
    made = KeySharedDispatcher(ring(), CROWDED, resume_from=before.to_token().text)
    made.add_consumer("ann", now_ms=0)
    for offset, key in enumerate(["a", "b", "a", "a", "a", "c", "d", "d"], start=1):
        made.offer(offset, key, now_ms=0)
    made.nack(2, "ann", 1, now_ms=1)
    made.ack(2, "ann", 1, now_ms=1)  # late, and noted
    made.reject(6, "ann", 1, now_ms=2)
    made.reject(7, "ann", 1, now_ms=2)
    made.add_consumer("bob", now_ms=3)
    made.add_consumer("eve", now_ms=3)
    made.set_inactive("eve", now_ms=4)
    return made


CROWDED = DispatcherConfig(
    window=6,
    max_tracked=40,
    max_loaded_per_key=2,
    drain_timeout_ms=50,
    ack_timeout_ms=None,
    quarantine=True,
    retry=RetryPolicy(max_redeliveries=3, base_delay_ms=0),
)


HELD = DispatcherConfig(
    window=4, max_loaded_per_key=1, poison=Poison.BLOCK, retry=RetryPolicy(max_redeliveries=1, base_delay_ms=5)
)


def held() -> KeySharedDispatcher:
    """Something waits for its retry, is blocked, is being loaded."""
    made = KeySharedDispatcher(ring(), HELD)
    made.add_consumer("ann", filters=["?"], weight=3, now_ms=0)
    for offset, key in enumerate(["a", "b", "c", "c"]):
        made.offer(offset, key, now_ms=0)
    made.nack(0, "ann", 1, now_ms=1)
    made.reject(1, "ann", 1, now_ms=1)
    made.ack(2, "ann", 1, now_ms=1)
    made.remove_consumer("ann", drain_ms=9, now_ms=2)
    made.add_consumer("bob", filters=["?"], now_ms=2)
    return made


BATCHES = lease_config(batch_per_key=2, tell_settled=True, max_delivery_attempts=1, poison=Poison.BLOCK)


def batches() -> LeaseQueue:
    """Who drains has leased one batch and reserved another; something was rejected, and something is for later."""
    made = LeaseQueue(ring(), BATCHES)
    made.add_consumer("ann", now_ms=0)
    for offset, key in enumerate(["a", "a", "b", "b", "c"]):
        made.offer(offset, key, now_ms=0)
    made.offer(5, "d", not_before_ms=9, now_ms=0)
    lease, _ = made.consume("ann", 2, now_ms=0)
    assert isinstance(lease, Lease)
    made.reserve("ann", 2, now_ms=1)
    refused, _ = made.consume("ann", now_ms=1)
    assert isinstance(refused, Lease)
    made.reject(4, refused.id, reason="refused", now_ms=2)
    made.remove_consumer("ann", drain_ms=7, now_ms=2)
    return made


LETTERS = lease_config(redrive=True, latest_only=True)


def letters() -> LeaseQueue:
    """A dead letter has come back and is reserved, and what is newer of its key waits; something else is leased."""
    made = LeaseQueue(ring(), LETTERS)
    made.add_consumer("ann", now_ms=0)
    made.offer(0, "a", now_ms=0)
    made.offer(1, "b", now_ms=0)
    lease, _ = made.consume("ann", 2, now_ms=0)
    assert isinstance(lease, Lease)
    made.reject(0, lease.id, now_ms=5)
    made.dead_lettered(0)
    made.offer(2, "a")
    made.redrive("a", [StoredLetter(0, 1)])
    made.reserve("ann", 3, now_ms=7)
    return made


def sealed(numbers: Any) -> str:
    """A cursor token of any numbers: seven bits a byte, lowest first, and the checksum of all."""
    digits = bytearray()
    for number in numbers:
        rest = number
        while rest > 127:
            digits.append(128 | rest & 127)
            rest >>= 7
        digits.append(rest)
    checksum = crc32(b"ksc1." + digits).to_bytes(4, "big")
    return "ksc1." + urlsafe_b64encode(digits + checksum).decode().rstrip("=")


def token_state() -> Any:
    """Position 5 (as 1 + zigzag), its distance to the safe cursor, and two stretches."""
    return [11, 2, 1, 2, 0, 3]


def read_token(state: Any) -> ContiguousCursor:
    if type(state) is not list or not all(type(number) is int and number >= 0 for number in state):
        raise SnapshotError("token", state, "be numbers, to be written at all")
    return ContiguousCursor.from_token(sealed(state))


def numbers_of(cursor: ContiguousCursor) -> list[int]:
    """The numbers of its token, read without the code under test."""
    body = cursor.to_token(1 << 20).text.removeprefix("ksc1.")
    numbers, number, bits = [], 0, 0
    for digit in urlsafe_b64decode(body + "=" * (-len(body) % 4))[:-4]:
        number |= (digit & 127) << bits
        bits += 7
        if digit < 128:
            numbers.append(number)
            number = bits = 0
    return numbers


STORED = {
    "crowded": Stored(
        lambda: crowded().snapshot(),
        lambda state: KeySharedDispatcher.restore(state, ring(), CROWDED, now_ms=0),
        lambda made: made.snapshot(),
    ),
    "held": Stored(
        lambda: held().snapshot(),
        lambda state: KeySharedDispatcher.restore(state, ring(), HELD, now_ms=0),
        lambda made: made.snapshot(),
    ),
    "token": Stored(token_state, read_token, numbers_of),
    "dispatcher": Stored(
        lambda: dispatcher().snapshot(),
        lambda state: KeySharedDispatcher.restore(state, ring(), DispatcherConfig(window=10), now_ms=0),
        lambda made: made.snapshot(),
    ),
    "leases": Stored(
        lambda: queue().snapshot(),
        lambda state: LeaseQueue.restore(state, ring(), now_ms=0),
        lambda made: made.snapshot(),
    ),
    "leased batches": Stored(
        lambda: batches().snapshot(),
        lambda state: LeaseQueue.restore(state, ring(), BATCHES, now_ms=0),
        lambda made: made.snapshot(),
    ),
    "leased letters": Stored(
        lambda: letters().snapshot(),
        lambda state: LeaseQueue.restore(state, ring(), LETTERS, now_ms=0),
        lambda made: made.snapshot(),
    ),
    "ranges": Stored(RangeMap([(HashRange(0, 9), "ann")]).to_json, RangeMap.from_json, RangeMap.to_json),
    "provenance": Stored(ProvenanceVector({"a": 3}).to_json, ProvenanceVector.from_json, ProvenanceVector.to_json),
}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in plain data."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from places(part, (*path, name))


def changed(state: Any, path: tuple[Any, ...], value: object) -> Any:
    """The same but for one place; what is beside the way to it is shared."""
    if not path:
        return value
    forged = copy(state)
    forged[path[0]] = changed(state[path[0]], path[1:], value)
    return forged


def replacements(state: Any, path: tuple[Any, ...]) -> Iterator[object]:
    """What no state has, what stands elsewhere in this one, and lists with one part less or more."""
    yield from ODD
    found = [part_at(state, other) for other in places(state)]
    yield from {repr(part): part for part in found if not isinstance(part, dict | list)}.values()
    part = part_at(state, path)
    if isinstance(part, list):
        yield from (part[:index] + part[index + 1 :] for index in range(len(part)))
        yield from (part[:index] + part[index : index + 1] + part[index:] for index in range(len(part)))
        yield part[::-1]


def part_at(state: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        state = state[step]
    return state


def same(state: object, other: object) -> bool:
    """Equal, with types: 1 is neither True nor 1.0 to who reads it elsewhere."""
    return repr(state) == repr(other)


def verdict(stored: Stored, forged: Any) -> str | None:
    try:
        made = stored.restore(forged)
    except ArgumentError:
        return None
    except Exception as error:  # noqa: BLE001 - what comes out is the question
        return f"raises {type(error).__name__}: {error}"
    if hasattr(made, "check_invariants"):
        made.check_invariants()
    return None if same(forged, stored.write(made)) else "is taken for something else"


@pytest.mark.no_cover
@pytest.mark.parametrize("name", sorted(STORED))
def test_a_state_that_was_changed_is_refused_or_is_a_state(name: str) -> None:
    stored = STORED[name]
    state = stored.state()

    assert None is verdict(stored, state)
    assert [] == [
        f"{path} = {value!r} {problem}"
        for path in places(state)
        for value in replacements(state, path)
        if (problem := verdict(stored, changed(state, path, value))) is not None
    ]
    assert same(stored.state(), state), "reading changes nothing"
