"""Calls of a queue of leases with every answer, and the snapshots at some cuts."""

from random import Random
from typing import Any

from tests.compatibility.plain import plain
from tests.leasing import lease_config

from keyshared.config import Poison
from keyshared.errors import KeySharedError
from keyshared.leases import Lease, LeaseConfig, LeaseQueue, Reservation
from keyshared.ring import HashRing

__all__ = ["check_leases", "check_leases_writes", "leases"]

CALLS = 70
CUTS = (25, 50)
ITEM = "item"
KINDS = (*["offer", "ack"] * 6, *["consume", "join"] * 4, "leave", "reserve", "commit", "nack", "dead", "wait")
CONFIGS: dict[str, LeaseConfig] = {
    "usual": lease_config(ack_timeout_ms=50, reservation_timeout_ms=20, max_delivery_attempts=2),
    "holes": lease_config(ack_timeout_ms=50, max_ack_holes=2, poison=Poison.BLOCK, max_delivery_attempts=2),
    "batches": lease_config(ack_timeout_ms=50, batch_per_key=3, tell_settled=True, measure=True),
    "redrive": lease_config(ack_timeout_ms=50, max_delivery_attempts=1, poison=Poison.DEAD_LETTER, redrive=True),
    "unspilled": lease_config(ack_timeout_ms=50, spill=False, window=8, max_waiting_per_key=3),
}


def leases(seed: int) -> dict[str, Any]:
    """Calls that nobody has seen before."""
    rng, name = Random(seed), list(CONFIGS)[seed % len(CONFIGS)]
    queue = LeaseQueue(_ring(), CONFIGS[name])
    calls, answers, states, now, offset, ids = [], [], {}, 0, -1, [1]
    for place in range(CALLS):
        if place in CUTS:
            states[str(place)] = queue.snapshot()
        now += rng.choice([0, 1, 3, 15])
        # a call that is refused moves no clock, and a snapshot counts from the clock
        kind = "wait" if place + 1 in CUTS else rng.choice(KINDS)
        offset += kind == "offer"
        who, lease, message = rng.choice("xyz"), rng.choice(ids[-4:]), rng.randrange(offset + 2)
        held = [handle for each in queue.leases() for handle in each.handles]
        if held and rng.random() < 0.7:
            message, lease = rng.choice(held)
        calls_of: dict[str, list[Any]] = {
            "offer": ["offer", offset, rng.choice(["a", "b", "c", None]), ITEM],
            "consume": ["consume", who, rng.choice([1, 3])],
            "reserve": ["reserve", who, 2],
            "commit": ["commit", lease],
            "ack": ["ack", message, lease],
            "nack": ["nack", message, lease],
            "dead": ["dead_lettered", message],
            "join": ["add_consumer", who],
            "leave": ["remove_consumer", who],
            "wait": ["handle_timeout"],
        }
        call = calls_of[kind]
        answer = _answer(queue, call, now)
        ids += [answer.result.id] if isinstance(getattr(answer, "result", None), Lease | Reservation) else []
        calls.append([now, *call])
        answers.append(plain(answer))
    return {"config": name, "calls": calls, "answers": answers, "states": states}


def check_leases(kept: dict[str, Any]) -> None:
    """The same answers from the beginning, and from every snapshot on."""
    config = CONFIGS[kept["config"]]
    starts = {0: LeaseQueue(_ring(), config)}
    for place, state in kept["states"].items():
        before, items = kept["calls"][int(place) - 1][0], dict.fromkeys(range(CALLS), ITEM)
        starts[int(place)] = LeaseQueue.restore(state, _ring(), config, now_ms=before, items=items)
    for place, queue in starts.items():
        for (now, *call), answer in zip(kept["calls"][place:], kept["answers"][place:], strict=True):
            assert answer == plain(_answer(queue, call, now)), (place, now, call)


def check_leases_writes(kept: dict[str, Any]) -> None:
    """The snapshots that are written today are the kept ones."""
    queue = LeaseQueue(_ring(), CONFIGS[kept["config"]])
    for place, (now, *call) in enumerate(kept["calls"]):
        if str(place) in kept["states"]:
            assert kept["states"][str(place)] == queue.snapshot()
        _answer(queue, call, now)


def _ring() -> HashRing:
    return HashRing(vnodes=3, slot_bits=4)


def _answer(queue: LeaseQueue, call: list[Any], now: int) -> Any:
    name, *arguments = call
    try:
        return getattr(queue, name)(*arguments, now_ms=now)
    except KeySharedError as error:
        return type(error).__name__
