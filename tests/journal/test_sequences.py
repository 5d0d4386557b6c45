"""The sequences that have come: as many stretches as there are gaps, and one more."""

from hypothesis import given
from hypothesis import strategies as st

from keyshared.journal.sequences import Sequences


@given(st.lists(st.integers(-9, 9)))
def test_each_sequence_is_new_once_and_the_stretches_are_all_that_came(numbers: list[int]) -> None:
    sequences, came = Sequences(), set[int]()
    for number in numbers:
        assert sequences.is_next(number) == all(number > other for other in came)
        assert (sequences.note(number) is None) == (number in came)
        came.add(number)
        assert came == {each for first, last in sequences.stretches for each in range(first, last + 1)}
        firsts = sorted(each for each in came if each - 1 not in came)
        assert firsts == [first for first, _ in sequences.stretches]
