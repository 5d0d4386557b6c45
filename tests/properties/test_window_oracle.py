"""The window against its slow book, and the broken windows that the book catches."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.window_book import run

from keyshared import window as faces
from keyshared._core.records import Consumer, Lane
from keyshared._core.window import Window


@given(data=st.data())
def test_the_window_agrees_with_its_book(data: st.DataObject) -> None:
    window = run(lambda options: data.draw(st.sampled_from(options)), data.draw(st.integers(1, 40)))
    window.check_invariants()


class ForgetsCapacity(Window):
    """A raised limit serves nothing."""

    def set_limit(self, consumer: Consumer, limit: int) -> None:
        super().set_limit(consumer, limit)
        self.freed.pop(consumer)


class ServesTheNewest(Window):
    """What began to wait last goes out first."""

    def _serve(self, consumer: Consumer) -> None:
        for lane in list(consumer.ready.lanes)[-1:]:
            consumer.ready.lanes.move_to_end(lane, last=False)
        super()._serve(consumer)


class KeepsPayloads(Window):
    """What comes back keeps its payload, however many wait."""

    def _spill_returned(self) -> None:
        self.returned.clear()


class FeedsNobody(Window):
    """A slot that is free again loads nothing."""

    def _feed(self) -> None:
        self._serve_freed()


class ArchivesAtOnce(Window):
    """A quarantined key does not wait for its open deliveries."""

    def look(self, lane: Lane) -> bool:
        opened, lane.open = lane.open, 0 if lane.key in self.quarantined else lane.open
        try:
            return super().look(lane)
        finally:
            lane.open += opened if lane.key in self.quarantined else 0


BROKEN = [ForgetsCapacity, ServesTheNewest, KeepsPayloads, FeedsNobody, ArchivesAtOnce]


def lives() -> None:
    for seed in range(100):
        run(Random(seed).choice, 60)


@pytest.mark.interpreted("replaces a class of the core")
@pytest.mark.parametrize("broken", BROKEN)
def test_the_book_catches_a_broken_window(broken: type[Window], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faces, "Window", broken)
    with pytest.raises(AssertionError):
        lives()
