"""The index over offsets and timestamps: what it answers, what it says of its error, and what it refuses."""

import pickle
from array import array
from collections.abc import Callable, Iterable

import pytest

from keyshared.errors import ArgumentError, InvariantError, OffsetOrderError
from keyshared.offsets import DEFAULT_INTERVAL, Bounds, OffsetIndex


def indexed(records: Iterable[tuple[int, int]], interval: int = 1, start: int = 0) -> OffsetIndex:
    index = OffsetIndex(interval, start=start)
    for offset, timestamp in records:
        index.append(offset, timestamp)
        index.check_invariants()
    return index


def exactly(value: int) -> Bounds:
    return Bounds(value, value)


# Kafka's rule


def test_an_empty_log_gives_its_end_and_no_timestamp() -> None:
    index = OffsetIndex(start=25)
    assert (exactly(25), None) == (index.find_offset(0), index.find_timestamp(30))
    assert (25, 25, 0, 0) == (index.start, index.end, index.pieces, index.nbytes)


@pytest.mark.parametrize("interval", [1, 2, 100])
def test_the_timestamp_is_that_of_the_last_record_not_above(interval: int) -> None:
    index = indexed([(10, 5), (12, 9), (17, 13)], interval)
    found = [index.find_timestamp(offset) for offset in (10, 11, 12, 16, 17, 99)]
    answers = [5, 5, 9, 9, 13, 13]
    assert all(
        bounds is not None and bounds.low <= answer <= bounds.high
        for bounds, answer in zip(found, answers, strict=True)
    )
    assert interval == 2 or list(map(exactly, answers)) == found


# Timestamps of offsets


# Size and error


def test_regular_records_are_one_run_however_many() -> None:
    index = indexed(((2 * offset, 1_000 + 10 * offset) for offset in range(200)), interval=8)
    assert (1, 48) == (index.pieces, index.nbytes)
    assert exactly(2 * 51) == index.find_offset(1_501)
    assert exactly(1_500) == index.find_timestamp(101)


@pytest.mark.parametrize("rise", [-7, 0, 7])
def test_a_run_may_stand_still_or_go_back(rise: int) -> None:
    index = indexed((offset, 1_000 + rise * offset) for offset in range(10))
    assert 1 == index.pieces
    assert exactly(0) == index.find_offset(1_000)
    assert exactly(1_000 + 4 * rise) == index.find_timestamp(4)
    assert exactly(10 if rise <= 0 else 1) == index.find_offset(1_001)


def test_a_loose_block_that_is_young_enough_as_a_whole_answers_exactly() -> None:
    index = indexed(enumerate([100, 150, 130, 160, 200, 210, 290, 300]), interval=4)
    assert (exactly(0), exactly(4)) == (index.find_offset(100), index.find_offset(200))


def test_the_open_block_takes_24_bytes_for_each_record() -> None:
    assert 3 * 24 == indexed(enumerate([100, 150, 130]), interval=4).nbytes


def test_blocks_may_be_measured_in_bytes() -> None:
    index = OffsetIndex(4_096)
    for offset, (timestamp, size) in enumerate([(1, 1_000), (5, 3_000), (6, 96), (9, 5_000), (20, 1)]):
        index.append(offset, timestamp, size)
    assert (2, 3) == (index.pieces, index.nbytes // 48 + 1)
    assert Bounds(0, 2) == index.find_offset(4)


def test_the_default_is_an_entry_for_64_records() -> None:
    index = indexed(((offset, offset * offset) for offset in range(2 * 64)), DEFAULT_INTERVAL)
    assert (64, 2) == (DEFAULT_INTERVAL, index.pieces)


def test_a_block_that_was_cut_may_have_lost_the_record_that_was_looked_for() -> None:
    index = indexed(enumerate([900, 100, 200, 300, 350, 410, 400, 500, 600]), interval=4)
    index.truncate(2)
    index.check_invariants()
    assert Bounds(2, 3) == index.find_offset(100)
    assert Bounds(2, 4) == index.find_offset(200)
    assert Bounds(2, 3) == index.find_offset(50)  # every record of the block is young enough, the last one is there
    assert Bounds(2, 7) == index.find_offset(450)  # or not in this block any more
    assert Bounds(2, 9) == index.find_offset(700)
    assert Bounds(2, 9) == index.find_offset(900)  # nowhere, unless the cut left it
    assert exactly(9) == index.find_offset(901)
    assert Bounds(100, 900) == index.find_timestamp(1)
    index.truncate(3)
    assert Bounds(3, 7) == index.find_offset(450)


def test_a_run_is_cut_exactly() -> None:
    index = indexed([(0, 0), (3, 30), (6, 60), (9, 90), (12, 120)])
    index.truncate(4)
    index.check_invariants()
    assert (exactly(6), exactly(60), exactly(9)) == (
        index.find_offset(0),
        index.find_timestamp(4),
        index.find_offset(61),
    )


def test_truncating_beyond_the_end_leaves_an_empty_log_that_goes_on_there() -> None:
    index = indexed(enumerate([10, 20, 30]))
    index.truncate(50)
    assert (50, 50, 0) == (index.start, index.end, index.nbytes)
    with pytest.raises(OffsetOrderError, match="cannot take offset 49 after 49"):
        index.append(49, 1)
    index.append(50, 1)
    assert exactly(50) == index.find_offset(0)


# Retention


def test_truncating_below_the_start_does_nothing() -> None:
    index = indexed([(25, 1), (26, 5)], start=25)
    index.truncate(25)
    index.truncate(3)
    assert (25, exactly(25)) == (index.start, index.find_offset(0))


# Misuse


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda _: OffsetIndex(0), ArgumentError("interval", 0, "be an int of at least 1")),
        (lambda _: OffsetIndex(True), ArgumentError("interval", True, "be an int of at least 1")),
        (lambda _: OffsetIndex(start=-1), ArgumentError("start", -1, "be an int from 0 up to 63 bits")),
        (lambda index: index.append(11, 1), OffsetOrderError(11, 11)),
        (lambda index: index.append("12", 1), OffsetOrderError("12", 11)),
        (lambda index: index.append(1 << 63, 1), ArgumentError("offset", 1 << 63, "be an int from 0 up to 63 bits")),
        (
            lambda index: index.append(12, 1 << 63),
            ArgumentError("timestamp_epoch_ms", 1 << 63, "be an int of at most 63 bits and a sign"),
        ),
        (
            lambda index: index.append(12, -(1 << 63) - 1),
            ArgumentError("timestamp_epoch_ms", -(1 << 63) - 1, "be an int of at most 63 bits and a sign"),
        ),
        (
            lambda index: index.append(12, 1.5),
            ArgumentError("timestamp_epoch_ms", 1.5, "be an int of at most 63 bits and a sign"),
        ),
        (lambda index: index.append(12, 1, 0), ArgumentError("size", 0, "be an int of at least 1")),
        (lambda index: index.find_offset(None), ArgumentError("timestamp_epoch_ms", None, "be an int")),
        (lambda index: index.find_timestamp("1"), ArgumentError("offset", "1", "be an int")),
        (lambda index: index.truncate(-1), ArgumentError("before", -1, "be an int from 0 up to 63 bits")),
        (lambda index: index.truncate(True), ArgumentError("before", True, "be an int from 0 up to 63 bits")),
    ],
)
def test_a_bad_argument_is_named_and_changes_nothing(call: Callable[[OffsetIndex], object], error: Exception) -> None:
    index = indexed([(10, 100), (11, 50)], interval=4)
    before = pickle.dumps(index)
    with pytest.raises(type(error)) as caught:
        call(index)
    assert error.args == caught.value.args
    assert before == pickle.dumps(index)


def test_the_widest_numbers_fit() -> None:
    top = (1 << 63) - 1
    index = indexed([(0, -top - 1), (top, top)])
    assert (exactly(top), exactly(top)) == (index.find_offset(0), index.find_timestamp(top))
    assert exactly(-top - 1) == index.find_timestamp(top - 1)


def test_a_pickled_index_goes_on() -> None:
    index = indexed(enumerate([100, 150, 130, 160, 200]), interval=2)
    again = pickle.loads(pickle.dumps(index))  # noqa: S301 - our own
    again.append(5, 900)
    again.append(6, 950)
    assert (exactly(6), exactly(5)) == (again.find_offset(901), index.find_offset(901))
    again.check_invariants()


def test_the_repr_says_what_it_covers() -> None:
    assert "<OffsetIndex of offsets 25 to 27 in 1 pieces>" == repr(indexed([(25, 1), (26, 5)], start=25))


DAMAGE: dict[str, dict[str, dict[int, int]]] = {
    "a piece begins above its end": {"_first": {0: 99}},
    "pieces overlap": {"_last": {0: 3}},
    "low above high": {"_high": {0: 99}},
    "half a step": {"_step": {1: 3}},
    "an uneven rise": {"_high": {1: 321}},
    "an open block with a wrong top": {"_tops": {0: -1}},
    "a piece with a wrong top": {"_top": {0: 1}},
    "an offset twice in the open block": {"_offsets": {0: 7}},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_columns_are_found(damage: str) -> None:
    index = indexed(enumerate([100, 150, 130, 300, 310, 320, 500, 510]), interval=3)
    assert 2 == index.pieces
    for name, values in DAMAGE[damage].items():
        for piece, value in values.items():
            getattr(index, name)[piece] = value
    with pytest.raises(InvariantError):
        index.check_invariants()


@pytest.mark.parametrize(("name", "value"), [("_end", 3), ("_start", 3), ("_cut", True), ("_first", array("q", [0]))])
def test_damaged_bounds_are_found(name: str, value: object) -> None:
    index = indexed(enumerate([100, 110, 120, 300, 350, 320, 500]), interval=3)
    setattr(index, name, value)
    with pytest.raises(InvariantError):
        index.check_invariants()
