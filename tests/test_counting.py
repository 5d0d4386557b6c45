"""What is counted of a call is the same each time."""

import gc
from collections.abc import Callable, Iterator

import pytest
from tests.steps import steps_of
from tests.work import work_of

from keyshared.testing.files import collector_at_rest


@pytest.fixture
def _something_is_called_at_each_collection() -> Iterator[None]:
    """And there is one for each new list."""
    heard: list[None] = []

    def hear(*_: object) -> None:
        heard.append(None)

    before = gc.get_threshold()
    gc.callbacks.append(hear)
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(hear)
    assert heard


@pytest.mark.usefixtures("_something_is_called_at_each_collection")
@pytest.mark.parametrize("count", [steps_of, work_of])
def test_what_runs_when_garbage_is_collected_is_not_counted(count: Callable[[Callable[[], object]], int]) -> None:
    def make_lists() -> list[list[int]]:
        return [[number] for number in range(100)]

    with collector_at_rest():
        expected = count(make_lists)
    assert expected == count(make_lists)
