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
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow


class Noting(InFlightWindow):
    """Has a field of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened: list[int] = []


class Named(ContiguousCursor):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def test_the_build_that_was_asked_for_runs() -> None:
    """Else a whole lane could pass on the pure build and show nothing."""
    wanted = os.environ.get("KEYSHARED_COMPILED")

    assert wanted is None or keyshared.COMPILED is (wanted == "1")


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


@pytest.mark.interpreted("methods of compiled parts stay bound to the original")
def test_what_a_copy_is_told_changes_nothing_of_its_original() -> None:
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


class Host:
    """Keeps methods of a dispatcher, as hosts do."""

    def __init__(self) -> None:
        self.dispatcher = KeySharedDispatcher[object](HashRing())
        self.offer = self.dispatcher.offer


@pytest.mark.parametrize("again", [pickled])
def test_a_method_that_is_kept_is_bound_anew_in_a_copy(again: Any) -> None:
    host = Host()
    before = host.dispatcher.snapshot()

    twin = again(host)
    twin.dispatcher.add_consumer("c")

    assert twin.dispatcher == twin.offer.__self__
    assert [Deliver(0, b"k", "c", 1, 0, None)] == twin.offer(0, "k")
    assert before == host.dispatcher.snapshot()


def test_a_method_is_what_methods_are() -> None:
    dispatcher = KeySharedDispatcher[object](HashRing())
    method = dispatcher.ack

    assert inspect.ismethod(method)
    assert method == dispatcher.ack
    assert ("ack", "KeySharedDispatcher.ack") == (method.__name__, method.__qualname__)
    assert ["offset", "consumer", "attempt", "now_ms"] == list(inspect.signature(method).parameters)


def test_an_argument_that_is_wrong_is_refused_by_the_face() -> None:
    dispatcher = KeySharedDispatcher[object](HashRing())
    wrong: Any = 1.5
    with pytest.raises(ArgumentError, match=r"limit is 1\.5"):
        dispatcher.add_consumer("c", limit=wrong)
    with pytest.raises(SnapshotError):
        KeySharedDispatcher[object](HashRing(), resume_from=wrong)


@pytest.mark.parametrize("kind", [ContiguousCursor, InFlightWindow, KeySharedDispatcher])
def test_every_public_method_has_a_signature_and_a_docstring(kind: type) -> None:
    for name, method in inspect.getmembers(kind, inspect.isroutine):
        if not name.startswith("_"):
            assert inspect.signature(method).parameters
            assert inspect.getdoc(method)
    assert inspect.signature(kind).parameters
    assert inspect.getdoc(kind)
