"""The non-reliable variant (rule 14): placement, filters, and what the host says of its channels."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.alphabet import AlphabetRing

from keyshared.errors import (
    ArgumentError,
    ConsumerExistsError,
    InvariantError,
    KeySharedError,
    KeyTypeError,
    UnknownConsumerError,
)
from keyshared.glob import KeyFilter
from keyshared.ring import HashRing
from keyshared.router import KeyRouter


def router(*names: str) -> KeyRouter:
    made = KeyRouter(AlphabetRing())
    for name in names:
        made.add_consumer(name)
    return made


def test_all_messages_of_a_key_go_to_one_consumer() -> None:
    made = KeyRouter(HashRing())
    for number in range(5):
        made.add_consumer(f"c{number}")

    routed = {key: {made.route(f"key-{key}") for _ in range(3)} for key in range(100)}
    assert all(len(consumers) == 1 for consumers in routed.values())
    assert 5 == len(set.union(*routed.values()))


def test_without_consumers_every_message_is_dropped() -> None:
    assert [None, None] == [router().route(key) for key in ("a", None)]


def test_a_key_that_no_filter_accepts_is_dropped() -> None:
    made = KeyRouter(AlphabetRing())
    made.add_consumer("ann", filters=["payment", "ship*"])

    assert ["ann", "ann", None] == [made.route(key) for key in ("payment", "shipping", "invoice")]


def test_a_full_channel_drops_its_keys_and_hands_them_to_nobody_else() -> None:
    made = router("ann", "bob")

    made.set_full("bob")
    assert (None, "bob") == (made.route("b"), made.owner("b"))
    assert "ann" == made.route("a")
    made.set_ready("bob")
    assert "bob" == made.route("b")


def test_keys_of_a_consumer_that_only_the_placement_knows_go_nowhere() -> None:
    made = KeyRouter(AlphabetRing(["bob"]))
    made.add_consumer("ann")

    with pytest.raises(UnknownConsumerError):
        made.set_weight("bob", 2)
    assert ["ann", None] == [made.route(key) for key in ("a", "b")]
    made.add_consumer("bob")
    assert "bob" == made.route("b")


class TestWithoutAKey:
    """Messages that any consumer without filters may have."""

    def test_consumers_take_turns_in_the_order_of_joining(self) -> None:
        made = router("cat", "ann", "bob")

        assert ["cat", "ann", "bob", "cat"] == [made.route(None) for _ in range(4)]

    def test_a_message_without_a_key_has_no_owner(self) -> None:
        assert None is router("ann").owner(None)

    def test_only_consumers_without_filters_or_with_a_bare_star_take_part(self) -> None:
        made = router("ann", "bob", "cat")
        made.set_filters("ann", ["a*"])
        made.set_filters("bob", ["b", "*"])
        made.set_filters("cat", ["**"])  # accepts every key, but a message without one has nothing to match

        assert ["bob", "bob"] == [made.route(None) for _ in range(2)]

    def test_full_and_inactive_consumers_miss_their_turn_and_come_back_at_the_end(self) -> None:
        made = router("ann", "bob", "cat")

        made.set_full("ann")
        made.set_inactive("bob")
        assert ["cat", "cat"] == [made.route(None) for _ in range(2)]
        made.set_active("bob")
        made.set_ready("ann")
        assert ["cat", "bob", "ann", "cat"] == [made.route(None) for _ in range(4)]

    def test_telling_the_same_thing_twice_costs_nobody_its_turn(self) -> None:
        made = router("ann", "bob")

        made.set_ready("ann")
        made.set_active("ann")
        made.set_filters("ann", ["*"])
        assert "ann" == made.route(None)

    def test_a_message_with_a_key_is_nobodys_turn(self) -> None:
        made = router("ann", "bob")

        made.route("a")
        assert "ann" == made.route(None)


BAD_CALLS: list[tuple[Callable[[KeyRouter], object], type[KeySharedError], tuple[object, ...]]] = [
    (lambda r: r.add_consumer("ann"), ConsumerExistsError, ("ann",)),
    (lambda r: r.add_consumer("out"), ConsumerExistsError, ("out",)),  # away, but still there
    (lambda r: r.add_consumer(""), ArgumentError, ("name", "", "be a non-empty str")),
    (lambda r: r.add_consumer(["zoe"]), ArgumentError, ("name", ["zoe"], "be a str")),  # type: ignore[arg-type]
    (lambda r: r.add_consumer("zoe", weight=0), ArgumentError, ("weight", 0, "be a finite number above 0")),
    (
        lambda r: r.add_consumer("zoe", filters="a*"),
        ArgumentError,
        ("patterns", "a*", "be a collection of patterns"),
    ),
    (lambda r: r.add_consumer("zoe", filters=[1]), ArgumentError, ("pattern", 1, "be a str")),  # type: ignore[list-item]
    (lambda r: r.set_filters("ann", "a*"), ArgumentError, ("patterns", "a*", "be a collection of patterns")),
    (lambda r: r.set_filters("zoe", []), UnknownConsumerError, ("zoe",)),
    (lambda r: r.set_weight("zoe", 1), UnknownConsumerError, ("zoe",)),
    (lambda r: r.set_weight("ann", -1), ArgumentError, ("weight", -1, "be a finite number above 0")),
    (lambda r: r.set_active("zoe"), UnknownConsumerError, ("zoe",)),
    (lambda r: r.set_full("zoe"), UnknownConsumerError, ("zoe",)),
    (lambda r: r.set_ready("zoe"), UnknownConsumerError, ("zoe",)),
    (lambda r: r.remove_consumer([]), ArgumentError, ("name", [], "be a str")),  # type: ignore[arg-type]
    (lambda r: r.set_inactive([]), ArgumentError, ("name", [], "be a str")),  # type: ignore[arg-type]
    (lambda r: r.set_active([]), ArgumentError, ("name", [], "be a str")),  # type: ignore[arg-type]
    (lambda r: r.set_full([]), ArgumentError, ("name", [], "be a str")),  # type: ignore[arg-type]
    (lambda r: r.route(1), KeyTypeError, ("int",)),  # type: ignore[arg-type]
    (lambda r: r.owner(1), KeyTypeError, ("int",)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "error", "fields"), BAD_CALLS)
def test_a_mistake_is_named_and_changes_nothing(
    call: Callable[[KeyRouter], object], error: type[KeySharedError], fields: tuple[object, ...]
) -> None:
    made = KeyRouter(HashRing())
    for name in ("ann", "out", "bob"):
        made.add_consumer(name)
    made.set_inactive("out")
    keys = [f"key-{number}" for number in range(50)]
    before = [made.owner(key) for key in keys]

    with pytest.raises(error) as caught:
        call(made)

    assert fields == caught.value.args
    made.check_invariants()
    assert before == [made.owner(key) for key in keys]
    assert ["ann", "bob", "ann"] == [made.route(None) for _ in range(3)]


@pytest.mark.parametrize(
    ("breakage", "fact"),
    [
        (lambda r: r._full.add("zoe"), "routing knows every consumer"),
        (lambda r: r._away.add("zoe"), "routing knows every consumer"),
        (lambda r: r._routing.acceptance.add("zoe", KeyFilter()), "routing knows every consumer and its filter"),
        (lambda r: r._full.add("ann"), "turns"),
        (lambda r: setattr(r._routing, "_selective", 5), "counts"),
    ],
    ids=["full", "away", "filters", "turns", "routing"],
)
def test_a_drift_of_its_books_is_named(breakage: Callable[[KeyRouter], None], fact: str) -> None:
    made = router("ann", "bob")
    breakage(made)

    with pytest.raises(InvariantError, match=fact):
        made.check_invariants()


class SlowRouter:
    """The same, remembering only what was said, and searching all of it for every message."""

    def __init__(self) -> None:
        self.ring = AlphabetRing()
        self.said: dict[str, dict[str, Any]] = {}
        self.clock = 0

    def stamp(self, name: str) -> None:
        """Note since when a consumer waits for a message without a key."""
        said = self.said[name]
        may = said["active"] and not said["full"] and (not said["filters"] or "*" in said["filters"])
        self.clock += 1
        said["since"] = (said["since"] or self.clock) if may else None

    def add(self, name: str, filters: tuple[str, ...], weight: int) -> None:
        self.ring.add(name, weight=weight)
        self.said[name] = {"filters": filters, "active": True, "full": False, "since": None}
        self.stamp(name)

    def owner(self, key: bytes) -> str | None:
        walk = self.ring.ranges.walk(key[0])
        able = (n for n in walk if self.said[n]["active"] and KeyFilter(self.said[n]["filters"]).accepts(key))
        return next(able, None)

    def route(self, key: bytes | None) -> str | None:
        if key is not None:
            name = self.owner(key)
            return None if name is None or self.said[name]["full"] else name
        waiting = [(said["since"], name) for name, said in self.said.items() if said["since"] is not None]
        if not waiting:
            return None
        name = min(waiting)[1]
        self.said[name]["since"] = None
        self.stamp(name)
        return name


names = st.sampled_from(["ann", "bob", "cat"])
patterns = st.sampled_from([(), ("*",), ("b*",), ("?",), ("a*", "*")])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), names, patterns, st.integers(1, 3)),
        st.tuples(st.sampled_from(["remove", "set_inactive", "set_active", "set_full", "set_ready"]), names),
        st.tuples(st.just("set_filters"), names, patterns),
        st.tuples(st.just("set_weight"), names, st.integers(1, 3)),
        st.tuples(st.just("route"), st.sampled_from([None, b"a", b"b1", b"b", b"c"])),
    ),
    max_size=30,
)


def step_slowly(slow: SlowRouter, step: tuple[Any, ...]) -> object:
    """What the step does to the slow one, and what it answers; the error if the name is not (or already) there."""
    action, name, *rest = step
    if action == "route":
        return slow.route(name)
    if (name in slow.said) == (action == "add"):
        quiet = action in {"remove", "set_inactive"}
        return None if quiet else ConsumerExistsError if action == "add" else UnknownConsumerError
    if action == "add":
        slow.add(name, *rest)
    elif action == "remove":
        slow.ring.remove(name)
        del slow.said[name]
    elif action == "set_weight":
        slow.ring.set_weight(name, *rest)
    else:
        field, value = {
            "set_filters": ("filters", rest[0] if rest else None),
            "set_inactive": ("active", False),
            "set_active": ("active", True),
            "set_full": ("full", True),
            "set_ready": ("full", False),
        }[action]
        slow.said[name][field] = value
        slow.stamp(name)
    return None


def step_fast(fast: KeyRouter, step: tuple[Any, ...]) -> object:
    """What the router answers, or the type of the error that it raises."""
    action, name, *rest = step
    try:
        if action == "add":
            fast.add_consumer(name, filters=rest[0], weight=rest[1])
            return None
        return getattr(fast, "remove_consumer" if action == "remove" else action)(name, *rest)
    except KeySharedError as error:
        return type(error)


EVERY_STEP: list[tuple[Any, ...]] = [
    *[("add", name, (), 1) for name in ("ann", "bob", "cat")],
    *[("set_full", "bob"), ("set_inactive", "bob"), ("route", b"b"), ("route", None), ("set_active", "bob")],
    *[("route", b"b"), ("set_ready", "bob"), ("route", b"b"), ("route", None), ("route", None), ("route", None)],
    *[("set_full", "bob"), ("set_inactive", "bob"), ("remove", "bob"), ("route", b"b"), ("remove", "bob")],
    *[("add", "bob", ("b*",), 1), ("route", b"b"), ("set_weight", "ann", 3), ("set_filters", "bob", ("*",))],
    *[("set_inactive", name) for name in ("ann", "bob", "cat")],
    *[("route", b"b"), ("route", None), ("set_active", "ann"), ("route", b"c"), ("set_inactive", "dan")],
]


@given(steps)
@example(EVERY_STEP)
def test_it_answers_as_one_that_searches_everything_every_time(plan: list[tuple[Any, ...]]) -> None:
    fast, slow = KeyRouter(AlphabetRing()), SlowRouter()
    for step in plan:
        assert step_slowly(slow, step) == step_fast(fast, step)
        fast.check_invariants()
        for key in (b"a", b"b", b"b1", b"z"):
            assert slow.owner(key) == fast.owner(key)
