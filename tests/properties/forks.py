"""Copies of one state, made by pickling: many of the same cost a fraction of what as many deep copies do."""

import copyreg
import pickle
from collections.abc import Callable, Iterable
from enum import Enum
from io import BytesIO
from types import FunctionType, MethodType
from typing import Any

from tests.kit.recorder import Recorder
from tests.placements import Ranking

from keyshared.glob import KeyFilter

__all__ = ["copies_of"]

SAME_IN_ALL = (type, FunctionType, Enum, KeyFilter, Ranking)


class _Kinds(dict[type, bool]):
    """Whether values of a type are the same in all copies: looked up, because it is asked of every number."""

    def __missing__(self, kind: type) -> bool:
        self[kind] = issubclass(kind, SAME_IN_ALL)
        return self[kind]


KINDS = _Kinds()


def copies_of(state: Any, shared: Iterable[object] = ()) -> Callable[[], Any]:
    """Return what makes an independent copy of the state as it is now, each time.

    Args:
        state: What can be pickled, but for recorders and functions, which need not.
        shared: What never changes, and is the same in all copies; as classes, functions and rankings are.
    """
    file = BytesIO()
    pickler = _Pickler(file, shared)
    pickler.dump(state)
    # A class of its own each time: only so is what loads a method in C, which is called hundreds of times.
    unpickler = type("_Unpickler", (pickle.Unpickler,), {"persistent_load": pickler.kept.__getitem__})
    text = file.getvalue()
    return lambda: unpickler(BytesIO(text)).load()


class _Pickler(pickle.Pickler):
    """Leaves out what all copies share, and keeps that in a list."""

    def __init__(self, file: BytesIO, shared: Iterable[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        parts: dict[type, Callable[[Any], Any]] = {Recorder: _parts_of_a_recorder, MethodType: _parts_of_a_method}
        self.dispatch_table = {**copyreg.dispatch_table, **parts}
        self.shared = {id(each) for each in shared}
        self.kept: list[object] = []
        self.places: dict[int, int] = {}

    def persistent_id(self, obj: object) -> int | None:
        if not KINDS[type(obj)] and id(obj) not in self.shared:
            return None
        place = self.places.setdefault(id(obj), len(self.kept))
        if place == len(self.kept):
            self.kept.append(obj)
        return place


def _parts_of_a_recorder(recorder: Recorder) -> tuple[Any, ...]:
    """A recorder has any attribute, so it cannot be asked how it is made."""
    return object.__new__, (Recorder,), vars(recorder), None, None, _fill


def _parts_of_a_method(method: MethodType) -> tuple[Any, ...]:
    """By itself pickle looks a method up by its name, and the judges have a hundred."""
    return MethodType, (method.__func__, method.__self__)


def _fill(recorder: Recorder, members: dict[str, Any]) -> None:
    vars(recorder).update(members)
