"""The type of the items is a parameter of the dispatcher: mypy checks this file, and it runs.

What must be refused carries a ``type: ignore``: mypy says so if it is not.
"""

import copy
import pickle
from typing import TYPE_CHECKING, NamedTuple, assert_never, assert_type, get_args, get_origin

from keyshared import DeadLetter, Deliver, Effect, HashRing, KeySharedDispatcher, RetryPolicy
from keyshared.config import DispatcherConfig
from keyshared.leases import Lease, Leased, LeaseQueue, NothingToLease, Reservation

if TYPE_CHECKING:
    from keyshared.dispatcher import Message


class Order(NamedTuple):
    number: int


ORDER = Order(7)


def dispatcher() -> KeySharedDispatcher[Order]:
    made = KeySharedDispatcher[Order](HashRing(["c1"]))
    assert [] == made.add_consumer("c1")
    return made


def item_of(effect: Effect[Order]) -> Order | None:
    match effect:
        case Deliver(offset=offset, item=item):
            assert_type(offset, int)
            assert_type(item, Order)
            return item
        case DeadLetter(item=item):
            assert_type(item, Order)
            return item
        case _:
            return None


def kind_of(effect: Effect) -> str:
    if isinstance(effect, Deliver | DeadLetter):
        assert_type(effect, Deliver[object] | DeadLetter[object])
        assert_type(effect.item, object)
    return type(effect).__name__


def test_what_goes_in_comes_out() -> None:
    effects = dispatcher().offer(0, "a", ORDER)

    assert_type(effects, list[Effect[Order]])
    assert [ORDER] == [item_of(effect) for effect in effects]
    assert ["Deliver"] == [kind_of(effect) for effect in effects]  # who asks for no type takes every type


def test_a_delivery_that_was_looked_for_knows_its_item() -> None:
    (effect,) = dispatcher().offer(0, "a", ORDER)

    assert isinstance(effect, Deliver)
    assert_type(effect, Deliver[Order])
    assert_type(effect.item, Order)
    assert_type(effect.receipt, tuple[int, str, int])
    assert (0, "c1", 1) == effect.receipt


def test_every_way_in_takes_items_of_that_type_alone() -> None:
    d = dispatcher()
    batch: list[Message[Order]] = [(0, "a", ORDER), (1, b"b", ORDER), (2, None, ORDER)]

    assert_type(d.offer_many(batch), list[Effect[Order]])
    d.offer(3, "a", "text")  # type: ignore[arg-type]
    d.offer_many([(4, "a", "text")])  # type: ignore[list-item]
    d.loaded(0, "text")  # type: ignore[arg-type]
    KeySharedDispatcher[Order].restore(d.snapshot(), HashRing(), now_ms=0, items={0: "text"})  # type: ignore[dict-item]


def test_every_answer_returns_effects_of_that_type() -> None:
    d = dispatcher()
    d.offer(0, "a", ORDER)
    d.offer(1, "a", ORDER)

    assert_type(d.in_flight(), list[Deliver[Order]])
    assert [ORDER] == [delivery.item for delivery in d.in_flight()]
    assert_type(d.outstanding_effects(), list[Effect[Order]])
    assert_type(d.release(0, "c1", 1), list[Effect[Order]])
    assert_type(d.ack(0, "c1", 2), list[Effect[Order]])
    assert_type(d.handle_timeout(now_ms=1), list[Effect[Order]])
    assert [1] == [delivery.offset for delivery in d.in_flight()]


def test_a_restored_dispatcher_takes_the_type_of_its_items() -> None:
    d = dispatcher()
    d.offer(0, "a", ORDER)

    again = KeySharedDispatcher.restore(d.snapshot(), HashRing(), now_ms=0, items={0: ORDER})

    assert_type(again, KeySharedDispatcher[Order])
    assert [ORDER] == [delivery.item for delivery in again.in_flight()]


def test_a_dispatcher_of_no_named_type_takes_anything() -> None:
    d = KeySharedDispatcher(HashRing(["c1"]))
    d.add_consumer("c1")

    assert_type(d, KeySharedDispatcher[object])
    assert_type(d.offer(0, "a", ORDER), list[Effect[object]])
    assert_type(d.offer(1, "b", "text"), list[Effect[object]])
    assert [ORDER, "text"] == [delivery.item for delivery in d.in_flight()]


def test_an_item_that_was_not_given_is_none() -> None:
    d = dispatcher()

    assert [None] == [item_of(effect) for effect in d.offer(0, "a")]


def test_a_match_over_all_effects_of_a_type_is_exhaustive() -> None:
    def settled(effect: Deliver[Order] | DeadLetter[Order]) -> Order:
        match effect:
            case Deliver(_, _, consumer, _, _, item):
                assert_type(consumer, str)
                return item
            case DeadLetter(_, _, _, _, item):
                return item
            case _:
                assert_never(effect)

    config = DispatcherConfig(retry=RetryPolicy(max_redeliveries=0))
    d = KeySharedDispatcher[Order](HashRing(["c1"]), config)
    d.add_consumer("c1")
    d.offer(0, "a", ORDER)

    letters = [effect for effect in d.nack(0, "c1", 1) if isinstance(effect, DeadLetter)]

    assert_type(letters, list[DeadLetter[Order]])
    assert [ORDER] == [settled(letter) for letter in letters]


def test_an_effect_with_an_item_is_a_tuple_with_names() -> None:
    made = Deliver(7, b"k", "c1", 2, 1, ORDER)

    assert_type(made, Deliver[Order])
    assert (7, b"k", "c1", 2, 1, ORDER) == tuple(made)
    assert ("offset", "key", "consumer", "attempt", "failures", "item") == made._fields
    assert "Deliver(offset=7, key=b'k', consumer='c1', attempt=2, failures=1, item=Order(number=7))" == repr(made)
    assert 8 == made._replace(offset=8).offset
    assert {"offset": 7, "item": ORDER} == {name: made._asdict()[name] for name in ("offset", "item")}
    assert [made, made] == [copy.copy(made), pickle.loads(pickle.dumps(made))]  # noqa: S301 - its own bytes
    assert not hasattr(made, "__dict__")
    assert {Deliver, DeadLetter} == {get_origin(kind) for kind in get_args(Effect)} - {None}


def test_a_lease_queue_knows_the_type_of_its_items() -> None:
    queue = LeaseQueue[Order](HashRing())
    queue.add_consumer("c1")
    queue.offer(0, "a", ORDER)
    queue.offer(1, "b", "text")  # type: ignore[arg-type]
    queue.loaded(0, "text")  # type: ignore[arg-type]

    lease, effects = queue.consume("c1")
    assert_type(effects, list[Effect[Order]])
    assert isinstance(lease, Lease)
    assert_type(lease, Lease[Order])
    assert_type(lease.messages, tuple[Leased[Order], ...])
    assert [ORDER] == [message.item for message in lease]
    assert_type(queue.leases(), list[Lease[Order]])
    assert_type(queue.reserve("c1").result, Reservation[Order] | NothingToLease)
    assert_type(queue.nack(0, lease.id).effects, list[Effect[Order]])


def test_a_restored_lease_queue_takes_the_type_of_its_items() -> None:
    queue = LeaseQueue[Order](HashRing())
    queue.offer(0, "a", ORDER)

    again = LeaseQueue.restore(queue.snapshot(), HashRing(), now_ms=0, items={0: ORDER})

    assert_type(again, LeaseQueue[Order])
    assert_type(LeaseQueue(HashRing()), LeaseQueue[object])
