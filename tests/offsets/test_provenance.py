"""The provenance vector: what it covers, where it resumes, and which data it refuses."""

import pickle
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.errors import ArgumentError, SnapshotError
from keyshared.offsets import OffsetIndex, ProvenanceVector

TARGET = [(70, "us", 0), (71, "us", 1), (72, "eu", 0), (73, "eu", 1), (74, "eu", 2)]


def new(vector: ProvenanceVector) -> list[int]:
    """Offsets of the target's records that the vector, used as a filter, lets through."""
    return [at for at, origin, offset in TARGET if vector.observe(origin, offset)]


def test_it_covers_what_was_observed_and_everything_before_it_of_that_origin() -> None:
    vector = ProvenanceVector()
    assert vector.observe("eu", 5)
    assert [True, True, False] == [vector.covers("eu", offset) for offset in (0, 5, 6)]
    assert not vector.covers("us", 0)


def test_observing_again_changes_nothing_and_says_so() -> None:
    vector = ProvenanceVector({"eu": 5})
    assert [False, False] == [vector.observe("eu", 5), vector.observe("eu", 2)]
    assert {"eu": 5} == vector.positions


@pytest.mark.parametrize(
    ("positions", "offset"),
    [({"eu": 1, "us": 0}, 71), ({"us": 1}, 72), ({}, 70), ({"eu": 2, "us": 1}, None)],
)
def test_it_resumes_at_the_first_record_that_is_not_covered(positions: dict[str, int], offset: int | None) -> None:
    assert offset == ProvenanceVector(positions).first_uncovered(TARGET)


def test_records_behind_the_answer_are_not_read() -> None:
    records = iter(TARGET)
    ProvenanceVector({"us": 0}).first_uncovered(records)
    assert TARGET[2:] == list(records)


def test_as_a_filter_it_lets_every_record_through_once() -> None:
    vector = ProvenanceVector({"eu": 1, "us": 0})
    assert [71, 74] == new(vector)
    assert [] == new(vector)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), max_size=30), st.data())
def test_an_index_for_each_origin_finds_what_reading_the_log_finds(
    steps: list[tuple[str, int]], data: st.DataObject
) -> None:
    newest: Counter[str] = Counter()
    log, by_origin = [], {origin: OffsetIndex(interval=1) for origin in "abcd"}
    for at, (origin, step) in enumerate(steps):
        newest[origin] += step
        log.append((at, origin, newest[origin]))
        by_origin[origin].append(at, newest[origin])
    vector = ProvenanceVector(data.draw(st.dictionaries(st.sampled_from("abcx"), st.integers(0, 20))))

    assert vector.first_uncovered(log) == vector.find_uncovered(by_origin)


def test_an_origin_of_which_nothing_is_left_moves_nobody_back() -> None:
    log = [(0, "us", 0), *((1 + number, "eu", number) for number in range(200))]
    vector = ProvenanceVector({"us": 0, "eu": 197})
    by_origin = {"us": OffsetIndex(), "eu": OffsetIndex()}
    for at, origin, offset in log:
        by_origin[origin].append(at, offset)

    assert 199 == vector.first_uncovered(log) == vector.find_uncovered(by_origin)
    vector.observe("eu", 199)
    assert vector.find_uncovered(by_origin) is None
    assert ProvenanceVector().find_uncovered({}) is None
    for wrong, parameter in (([by_origin], "by_origin"), ({"eu": log}, "by_origin['eu']")):
        with pytest.raises(ArgumentError) as caught:
            vector.find_uncovered(wrong)  # type: ignore[arg-type]  # that is the point
        assert parameter == caught.value.parameter


def test_merging_covers_what_either_covers_and_leaves_the_other_alone() -> None:
    one, other = ProvenanceVector({"eu": 5, "us": 1}), ProvenanceVector({"us": 3, "ap": 0, "eu": 2})
    one.merge(other)
    assert {"ap": 0, "eu": 5, "us": 3} == one.positions
    assert {"ap": 0, "eu": 2, "us": 3} == other.positions


def test_compacting_forgets_an_origin_of_which_nothing_covered_remains() -> None:
    vector = ProvenanceVector({"ap": 3, "eu": 5, "us": 9})
    assert ("ap", "eu") == vector.compact({"eu": 6, "ap": 100, "us": 9, "nowhere": 4})
    assert {"us": 9} == vector.positions


def test_a_copy_goes_its_own_way() -> None:
    one = ProvenanceVector({"eu": 5})
    other = one.copy()
    other.observe("eu", 6)
    assert ({"eu": 5}, {"eu": 6}) == (one.positions, other.positions)
    one.positions["eu"] = 99
    assert {"eu": 5} == one.positions


def test_vectors_are_equal_if_their_positions_are_and_are_no_keys() -> None:
    one, other = ProvenanceVector({"eu": 5, "us": 1}), ProvenanceVector({"us": 1, "eu": 5})
    assert one == other == pickle.loads(pickle.dumps(one))  # noqa: S301 - our own
    assert one != ProvenanceVector({"eu": 5})
    assert one != {"eu": 5, "us": 1}
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_it_shows_its_origins_in_order() -> None:
    vector = ProvenanceVector({"us": 1, "eu": 5})
    assert (["eu", "us"], 2) == (list(vector), len(vector))
    assert "ProvenanceVector({'eu': 5, 'us': 1})" == repr(vector)


def test_json_goes_there_and_back() -> None:
    vector = ProvenanceVector({"us": 1, "eu": (1 << 63) - 1})
    data = vector.to_json()
    assert {"version": 1, "positions": {"eu": (1 << 63) - 1, "us": 1}} == data
    assert vector == ProvenanceVector.from_json(data)


@pytest.mark.parametrize(
    "data",
    [
        None,
        {"version": 1},
        {"version": 2, "positions": {}},
        {"version": 1, "positions": None},
        {"version": 1, "positions": [["eu", 1]]},
        {"version": 1, "positions": {"eu": -1}},
        {"version": 1, "positions": {"eu": True}},
    ],
    ids=repr,
)
def test_damaged_json_is_refused(data: object) -> None:
    with pytest.raises(SnapshotError):
        ProvenanceVector.from_json(data)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda v: type(v)([("eu", 1)]),
            ArgumentError("positions", [("eu", 1)], "be a mapping"),
        ),
        (lambda v: v.observe("", 1), ArgumentError("origin", "", "be a non-empty str")),
        (lambda v: v.observe(b"eu", 1), ArgumentError("origin", b"eu", "be a non-empty str")),
        (lambda v: v.observe("eu", -1), ArgumentError("offset", -1, "be an int from 0 up to 63 bits")),
        (lambda v: v.observe("eu", 6.0), ArgumentError("offset", 6.0, "be an int from 0 up to 63 bits")),
        (lambda v: v.covers("eu", None), ArgumentError("offset", None, "be an int from 0 up to 63 bits")),
        (
            lambda v: v.first_uncovered([(0, "eu", 1), (1, "eu", "2")]),
            ArgumentError("offset", "2", "be an int from 0 up to 63 bits"),
        ),
        (lambda v: v.merge({"eu": 9}), ArgumentError("other", {"eu": 9}, "be a ProvenanceVector")),
        (
            lambda v: v.compact({"eu": 9, "us": "9"}),
            ArgumentError("offset", "9", "be an int from 0 up to 63 bits"),
        ),
        (lambda v: v.compact(["eu"]), ArgumentError("positions", ["eu"], "be a mapping")),
    ],
)
def test_a_bad_argument_is_named_and_changes_nothing(
    call: Callable[[ProvenanceVector], object], error: ArgumentError
) -> None:
    vector = ProvenanceVector({"eu": 5})
    with pytest.raises(ArgumentError) as caught:
        call(vector)
    assert error.args == caught.value.args
    assert {"eu": 5} == vector.positions
