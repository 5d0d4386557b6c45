"""A message that is sent twice is told from a new one by its number."""

from typing import Any

import pytest

from keyshared.errors import ArgumentError, SnapshotError
from keyshared.leases import ProducerSequences


def taken(*produced: tuple[str, int]) -> ProducerSequences:
    sequences = ProducerSequences()
    for each in produced:
        assert None is sequences.repeated(each)
        sequences.take(each)
    return sequences


def test_a_number_that_is_not_above_the_last_one_was_seen() -> None:
    sequences = taken(("p", 3), ("p", 7))

    assert [7, 7, 7, None] == [sequences.repeated(("p", number)) for number in (3, 5, 7, 8)]


def test_producers_know_nothing_of_each_other() -> None:
    assert None is taken(("p", 7)).repeated(("q", 1))


def test_asking_takes_nothing() -> None:
    sequences = taken(("p", 1))
    sequences.repeated(("p", 2))

    assert None is sequences.repeated(("p", 2))


def test_a_forgotten_producer_begins_anew() -> None:
    sequences = taken(("p", 7))
    sequences.forget("p")
    sequences.forget("nobody")

    assert None is sequences.repeated(("p", 1))


def test_numbers_are_plain_data() -> None:
    sequences = taken(("p", 7), ("q", -1))
    again = ProducerSequences.restore(sequences.snapshot())

    assert {"p": 7, "q": -1} == sequences.snapshot() == again.snapshot()


@pytest.mark.parametrize("data", [None, [], {"p": "1"}, {"p": True}])
def test_other_data_is_refused(data: object) -> None:
    with pytest.raises(SnapshotError, match="producers"):
        ProducerSequences.restore(data)


@pytest.mark.parametrize("produced", ["p", ("p",), ("p", 1, 1), (1, 1), ("p", "1"), ("p", 1.0), ("p", False), None])
def test_what_is_no_pair_of_name_and_number_is_refused(produced: Any) -> None:
    with pytest.raises(ArgumentError):
        ProducerSequences().repeated(produced)
