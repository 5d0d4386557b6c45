"""Joins and leaves cost what the points of one consumer cost: counted in steps of the interpreter, not in time."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from tests.steps import steps_of

from keyshared.config import DispatcherConfig, DrainUnit, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.hashing import XXH64_SEED_42, KeyHash
from keyshared.placement.ring_points import RingPoints
from keyshared.ring import HashRing
from keyshared.router import KeyRouter

FEW: Final = 10
MANY: Final = 1_000
RINGS: Final[dict[str, Callable[..., HashRing]]] = {
    "default": HashRing,
    "pulsar": HashRing.pulsar,
    "instances of one name": lambda names=(): HashRing.pulsar([f"w#{n}" for n in names], separator="#"),
    "danube": HashRing.danube,
}


def named(count: int) -> list[str]:
    return [str(n) for n in range(count)]


def with_members(count: int, placement: HashRing, **config: Any) -> KeySharedDispatcher[object]:
    """Return a dispatcher whose members were on its ring already."""
    dispatcher = KeySharedDispatcher[object](placement, DispatcherConfig(**config))
    for name in placement.consumers:
        dispatcher.add_consumer(name)
    assert count == len(placement.consumers)
    return dispatcher


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", RINGS)
def test_a_ring_takes_hardly_more_steps_with_a_thousand_consumers_than_with_ten(kind: str) -> None:
    newcomer = "w#new" if kind.startswith("inst") else "123456"
    cost: dict[str, list[int]] = {"add": [], "weigh": [], "remove": []}
    for count in (FEW, MANY):
        ring = RINGS[kind](named(count))
        cost["add"].append(steps_of(ring.add, newcomer))
        cost["weigh"].append(steps_of(ring.set_weight, newcomer, 2))
        cost["remove"].append(steps_of(ring.remove, newcomer))

    assert all(many < 2.5 * few for few, many in cost.values()), cost


def test_what_moved_takes_no_more_steps_to_read_with_a_thousand_consumers() -> None:
    few, many = (HashRing(named(count)).add("new") for count in (FEW, MANY))

    assert steps_of(list, many) < 2.5 * steps_of(list, few)


def test_an_owner_is_found_after_a_join_without_a_pass_over_the_points() -> None:
    few, many = HashRing(named(FEW)), HashRing(named(MANY))
    few.add("new")
    many.add("new")

    assert steps_of(many.owner, "order-1") < 2 * steps_of(few.owner, "order-1")


def test_a_change_hashes_the_points_of_one_consumer() -> None:
    hashed = 0

    def counted(data: bytes) -> int:
        nonlocal hashed
        hashed += 1
        return XXH64_SEED_42.function(data)

    ring = HashRing(named(300), vnodes=10, key_hash=KeyHash("counted", 64, counted))
    for change in (partial(ring.add, "new"), partial(ring.set_weight, "new", 2), partial(ring.remove, "299")):
        hashed = 0
        change()
        assert 10 == hashed


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "config",
    [
        *({"unit": unit} for unit in DrainUnit),
        {"measure": True, "tell_settled": True, "drain_timeout_ms": 50},
        {"max_in_flight": 50, "unmatched": Unmatched.ERROR},
    ],
    ids=str,
)
def test_a_dispatcher_takes_hardly_more_steps_with_a_thousand_consumers_than_with_ten(config: dict[str, Any]) -> None:
    cost: dict[str, list[int]] = {}
    for count in (FEW, MANY):
        d = with_members(count, HashRing(named(count)), **config, inactive_grace_ms=1)
        calls: dict[str, Callable[[], object]] = {
            "join": partial(d.add_consumer, "new"),
            "offer": partial(d.offer, 0, "order-1"),
            "join again": partial(d.add_consumer, "newer"),
            "drain": partial(d.remove_consumer, "newer", drain_ms=5),
            "silent": partial(d.set_inactive, "new"),
            "back": partial(d.set_active, "new"),
            "silent again": partial(d.set_inactive, "new"),
            "evicted": partial(d.handle_timeout, now_ms=100),
            "weight": partial(d.set_weight, "7", 2),
            "leave": partial(d.remove_consumer, "8"),
            "rejoin": partial(d.add_consumer, "8"),
        }
        for name, call in calls.items():
            cost.setdefault(name, []).append(steps_of(call))
        d.check_invariants()

    assert all(many < 2.5 * few for few, many in cost.values()), cost


@pytest.mark.parametrize("filters", [(), ("order-*",)], ids=["everything", "filtered"])
def test_a_consumer_that_is_on_the_ring_already_joins_without_a_look_at_the_others(filters: tuple[str, ...]) -> None:
    cost = []
    for count in (FEW, MANY):
        d = KeySharedDispatcher[object](HashRing([*named(count), "last"], vnodes=3))
        for name in named(count):
            d.add_consumer(name, filters=filters)
        cost.append(steps_of(d.add_consumer, "last", filters=filters))

    assert cost[1] < 1.2 * cost[0], cost


@pytest.mark.no_cover
def test_a_router_joins_and_passes_over_without_a_look_at_the_others() -> None:
    cost: dict[str, list[int]] = {"join": [], "away": [], "leave": []}
    for count in (FEW, MANY):
        router = KeyRouter(HashRing(named(count)))
        for name in named(count):
            router.add_consumer(name)
        cost["join"].append(steps_of(router.add_consumer, "new"))
        cost["away"].append(steps_of(router.set_inactive, "new"))
        cost["leave"].append(steps_of(router.remove_consumer, "new"))

    assert all(many < 2.5 * few for few, many in cost.values()), cost


def test_joins_between_messages_never_go_through_all_points(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Any:
        raise AssertionError("nobody asked for so many owners that runs would pay")

    d = with_members(FEW, HashRing(named(FEW)))
    monkeypatch.setattr(RingPoints, "runs", never)
    for offset in range(50):
        d.add_consumer(f"new-{offset}")
        d.offer(offset, b"%d" % offset)
        d.remove_consumer(f"new-{offset // 2}")


def test_steps_of_a_pass_over_all_consumers_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ring of before: everything anew at each join."""

    def all_anew(self: HashRing, _: object, **__: object) -> Any:
        known = [point for name, m in self._consumers.items() for point in self._points_of(name, m, 0, m.vnodes)]
        self._points = RingPoints(known, 64, 16, latest_owns_exact=False)
        self._ranges = None
        return []

    monkeypatch.setattr(HashRing, "_change", all_anew)
    few, many = (HashRing(named(count)) for count in (FEW, 10 * FEW))
    assert steps_of(many.add, "new") > 4 * steps_of(few.add, "new")
