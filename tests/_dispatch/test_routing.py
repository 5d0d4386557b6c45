"""Who owns a key, once filters and absences are laid over a placement."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.alphabet import FIRST_LETTER, AlphabetRing

from keyshared._dispatch.routing import Routing
from keyshared.errors import InvariantError
from keyshared.glob import KeyFilter
from keyshared.placement import RangeMap

ANY = KeyFilter()


def routing(*names: str, one_key: bytes | None = None) -> Routing:
    joined = Routing(AlphabetRing(), one_key=one_key)
    for name in names:
        joined.join(name, ANY, 1)
    return joined


def test_nobody_owns_anything_before_the_first_consumer() -> None:
    assert None is routing().owner(b"a")


def test_without_filters_the_placement_decides() -> None:
    assert ["ann", "bob", "ann"] == [routing("ann", "bob").owner(key) for key in (b"a", b"b", b"c")]


def test_a_filter_passes_a_key_on_clockwise() -> None:
    joined = routing("ann", "bob", "cat")

    joined.set_filter("bob", KeyFilter(["b?"]))
    assert ["bob", "cat"] == [joined.owner(key) for key in (b"b1", b"b22")]
    joined.set_filter("cat", KeyFilter(["nothing"]))
    assert "ann" == joined.owner(b"b22")
    joined.set_filter("ann", KeyFilter(["nothing"]))
    assert None is joined.owner(b"b22")


def test_a_filter_that_is_taken_back_leaves_no_trace() -> None:
    joined = routing("ann", "bob")
    joined.set_filter("bob", KeyFilter(["nothing"]))

    joined.set_filter("bob", KeyFilter(["*"]))
    assert "bob" == joined.owner(b"b")
    joined.check_invariants()


def test_whoever_is_away_is_passed_over_until_it_is_back() -> None:
    joined = routing("ann", "bob", "cat")

    joined.set_away("bob", away=True)
    joined.set_away("bob", away=True)
    assert "cat" == joined.owner(b"b")
    joined.set_away("bob", away=False)
    joined.set_away("bob", away=False)
    assert "bob" == joined.owner(b"b")
    joined.check_invariants()


def test_a_name_that_comes_again_is_not_away_any_more() -> None:
    joined = routing("ann", "bob")
    joined.set_away("bob", away=True)

    joined.leave("bob")
    joined.join("bob", ANY, 1)
    assert "bob" == joined.owner(b"b")
    joined.check_invariants()


def test_keys_of_a_name_that_never_joined_wait_for_it_with_and_without_filters() -> None:
    reserved = Routing(AlphabetRing(["bob"]))
    reserved.join("ann", ANY, 1)
    assert [None, "ann"] == [reserved.owner(key) for key in (b"b", b"c")]

    reserved.set_filter("ann", KeyFilter(["?"]))
    assert [None, "ann"] == [reserved.owner(key) for key in (b"b", b"c")]
    reserved.join("bob", KeyFilter(["x"]), 1)
    assert ["ann", "ann"] == [reserved.owner(key) for key in (b"b", b"c")]


class HoleInTheMiddle(AlphabetRing):
    """Letters from m on belong to nobody."""

    def _built(self) -> RangeMap:
        runs = [ord("m"), 256], [next(iter(self._weights), None), None]
        return RangeMap.from_stops(*runs, key_hash=FIRST_LETTER, slot_bits=8)


@pytest.mark.parametrize("filters", [[], ["?"]], ids=["unfiltered", "filtered"])
def test_the_keys_of_a_hole_belong_to_nobody(filters: list[str]) -> None:
    holed = Routing(HoleInTheMiddle())
    holed.join("ann", KeyFilter(filters), 1)

    assert ["ann", None] == [holed.owner(key) for key in (b"a", b"m")]


def test_one_key_stands_for_all() -> None:
    assert "ann" == routing("ann", "bob", one_key=b"").owner(b"b")


def test_what_a_leaver_accepts_is_known_until_it_is_forgotten() -> None:
    joined = routing("ann")
    joined.set_filter("ann", KeyFilter(["a?"]))
    joined.join("bob", KeyFilter(["b?"]), 1)

    joined.leave("bob")
    joined.forget("ann")  # it is here
    assert [True, True] == [bool(joined.acceptance.of(key)) for key in (b"a1", b"b1")]
    assert [True, False] == [joined.anyone_accepts(key) for key in (b"a1", b"b1")]
    joined.forget("bob")
    assert [True, False] == [bool(joined.acceptance.of(key)) for key in (b"a1", b"b1")]
    joined.check_invariants()


def test_later_changes_of_the_placement_that_was_given_have_no_effect() -> None:
    mine = AlphabetRing()
    joined = Routing(mine)
    joined.join("ann", ANY, 1)

    mine.add("bob")
    assert "ann" == joined.owner(b"b")
    assert ("bob",) == mine.consumers


def test_weights_reach_the_placement() -> None:
    joined = routing("ann", "cat")

    joined.set_weight("ann", 2)
    assert "ann" == joined.owner(b"b")
    assert joined.ranges.owner_of(b"b") == joined.owner(b"b")


def test_another_placement_takes_over_who_joined_and_keeps_the_order_it_knows() -> None:
    joined = routing("ann", "dan")

    joined.replace(AlphabetRing(["dan", "eve"]), [("ann", 2), ("dan", 1)])
    assert ["ann", "ann", "dan", None] == [joined.owner(key) for key in (b"a", b"b", b"c", b"e")]
    joined.check_invariants()


@pytest.mark.parametrize(
    ("breakage", "fact"),
    [
        (lambda r: setattr(r, "_selective", 1), "counts"),
        (lambda r: r._away.update(zoe=None), "joined"),
        (lambda r: r._strangers.update(ann=None), "still waits for"),
        (lambda r: r.acceptance.add("ann", KeyFilter()), "the filters of now"),
    ],
)
def test_a_drift_of_its_books_is_named(breakage: object, fact: str) -> None:
    joined = routing("ann")
    assert callable(breakage)
    breakage(joined)

    with pytest.raises(InvariantError, match=fact):
        joined.check_invariants()


names = st.sampled_from(["ann", "bob", "cat", "dan"])
patterns = st.sampled_from([(), ("*",), ("b*",), ("?",), ("a*", "c*")])
changes = st.lists(
    st.tuples(
        st.sampled_from(["join", "leave", "filter", "away", "back", "weight"]), names, patterns, st.integers(1, 3)
    ),
    max_size=12,
)


def slow_owner(ring: AlphabetRing, filters: dict[str, KeyFilter], away: set[str], key: bytes) -> str | None:
    """Ask everyone in clockwise order, every time."""
    for name in ring.ranges.walk(key[0]):
        if name not in away and filters[name].accepts(key):
            return name
    return None


@given(changes)
def test_owners_are_those_of_asking_everyone_in_turn(plan: list[tuple[str, str, tuple[str, ...], int]]) -> None:
    fast, ring = Routing(AlphabetRing()), AlphabetRing()
    filters: dict[str, KeyFilter] = {}
    away: set[str] = set()
    for change, name, globs, weight in plan:
        if change == "join" and name not in filters:
            fast.join(name, KeyFilter(globs), weight)
            ring.add(name, weight=weight)
            filters[name] = KeyFilter(globs)
        elif name not in filters:
            continue
        elif change == "leave":
            fast.leave(name)
            ring.remove(name)
            del filters[name]
            away.discard(name)
        elif change == "filter":
            fast.set_filter(name, KeyFilter(globs))
            filters[name] = KeyFilter(globs)
        elif change == "weight":
            fast.set_weight(name, weight)
            ring.set_weight(name, weight)
        elif change in {"away", "back"}:
            fast.set_away(name, away=change == "away")
            (away.add if change == "away" else away.discard)(name)
        fast.check_invariants()
        for key in (b"a", b"a1", b"b", b"c1", b"d", b"z"):
            assert slow_owner(ring, filters, away, key) == fast.owner(key)


def test_many_lookups_after_a_change_find_what_the_first_ones_found() -> None:
    joined = routing("ann", "bob")
    first = joined.owner

    assert ["bob"] * 50 == [joined.owner(b"b") for _ in range(50)]
    assert first != joined.owner  # a quicker way, prepared once it pays
    joined.leave("bob")
    assert ["ann"] * 50 == [joined.owner(b"b") for _ in range(50)]


def test_a_name_that_the_placement_brings_keeps_its_weight_when_it_joins() -> None:
    reserved = Routing(AlphabetRing(["bob", "cat"]))

    reserved.join("bob", ANY, None)
    reserved.check_invariants()
    assert ["bob", None] == [reserved.owner(key) for key in (b"b", b"c")]
    reserved.leave("bob")
    reserved.join("bob", ANY, None)  # it has left the placement, so it comes as anybody
    reserved.check_invariants()
    assert "bob" == reserved.owner(b"b")
