"""What holds in either build, and what compiling could break: subclasses, copies, introspection."""

import copy
import inspect
import os
import pickle
from typing import Any

import pytest

import keyshared
from keyshared.config import DispatcherConfig
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, Deliver
from keyshared.ring import HashRing
from keyshared.window import Consumer, Entry, InFlightWindow


class Noting(InFlightWindow):
    """Overrides a step that the window itself takes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened: list[int] = []

    def _open(self, lane: Any, entry: Entry, consumer: Consumer, granted: list[Entry]) -> None:
        self.opened.append(entry.offset)
        super()._open(lane, entry, consumer, granted)


class Named(ContiguousCursor):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def test_the_build_that_was_asked_for_runs() -> None:
    """Else a whole lane could pass on the pure build and show nothing."""
    wanted = os.environ.get("KEYSHARED_COMPILED")

    assert wanted is None or keyshared.COMPILED is (wanted == "1")


def test_what_a_subclass_overrides_is_called_from_inside() -> None:
    window = Noting(HashRing(["c"]), capacity=9)
    window.offer(1, b"k")
    window.offer(2, b"k")
    window.add(Consumer("c", 0, 5))
    window.reassign()

    (first,) = window.wake()
    window.move(first, keyshared.window.State.QUEUED)
    window.wake()

    assert [1, 1] == window.opened


def pickled(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301  # its own


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
def test_fields_and_slots_of_a_subclass_are_copied_and_pickled(again: Any) -> None:
    window = Noting(HashRing(["c"]), capacity=9)
    window.opened.append(7)
    cursor = Named("of a log")
    cursor.offer(3)

    assert [7] == again(window).opened
    assert ("of a log", 3) == (again(cursor).name, again(cursor).resume_offset)


def test_a_copy_of_a_dispatcher_goes_on() -> None:
    dispatcher = KeySharedDispatcher[object](HashRing())
    dispatcher.add_consumer("c")
    dispatcher.offer(0, "k")
    dispatcher.offer(1, "k")

    match copy.deepcopy(dispatcher).ack(0, "c", 1):
        case [Deliver(offset=1), CursorAdvanced(safe_cursor=0)]:
            pass
        case effects:
            pytest.fail(f"{effects}")


def test_what_a_copy_is_told_changes_nothing_of_its_original() -> None:
    """A deep copy keeps bound methods of compiled objects: those of the original. So nothing may hold any."""
    dispatcher = KeySharedDispatcher[object](HashRing(), DispatcherConfig(ack_timeout_ms=10))
    dispatcher.add_consumer("c", now_ms=0)
    dispatcher.offer(0, "k", now_ms=0)
    again = copy.deepcopy(dispatcher)
    before = dispatcher.snapshot()

    again.handle_timeout(now_ms=99)
    again.add_consumer("d", filters=["k*"])

    assert before == dispatcher.snapshot()
    again.check_invariants()
    dispatcher.check_invariants()


@pytest.mark.parametrize("kind", [ContiguousCursor, InFlightWindow, KeySharedDispatcher])
def test_every_public_method_has_a_signature_and_a_docstring(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isroutine):
        if not name.startswith("_"):
            assert inspect.signature(method).parameters
            assert inspect.getdoc(method)
    assert inspect.signature(kind).parameters
    assert inspect.getdoc(kind)
