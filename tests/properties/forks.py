"""Copies of one state, made by pickling: many of the same cost a fraction of what as many deep copies do."""

import copyreg
import pickle
from collections.abc import Callable, Iterable
from io import BytesIO
from types import FunctionType
from typing import Any

from tests.placements import Ranking

from keyshared.testing.adapters.recorder import Recorder

__all__ = ["copies_of"]

SAME_IN_ALL = (type, FunctionType, Ranking)


def copies_of(state: Any, shared: Iterable[object] = ()) -> Callable[[], Any]:
    """Return what makes an independent copy of the state as it is now, each time.

    Args:
        state: What can be pickled, but for recorders and functions, which need not.
        shared: What never changes, and is the same in all copies; as classes, functions and rankings are.
    """
    file = BytesIO()
    pickler = _Pickler(file, shared)
    pickler.dump(state)
    kept, text = pickler.kept, file.getvalue()
    return lambda: _Unpickler(BytesIO(text), kept).load()


class _Pickler(pickle.Pickler):
    """Leaves out what all copies share."""

    def __init__(self, file: BytesIO, shared: Iterable[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.dispatch_table = {**copyreg.dispatch_table, Recorder: _parts_of_a_recorder}
        self.shared = {id(each) for each in shared}
        self.kept: dict[int, object] = {}

    def persistent_id(self, obj: object) -> int | None:
        if id(obj) not in self.shared and not isinstance(obj, SAME_IN_ALL):
            return None
        self.kept[id(obj)] = obj
        return id(obj)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BytesIO, kept: dict[int, object]) -> None:
        super().__init__(file)
        self.kept = kept

    def persistent_load(self, pid: int) -> object:
        return self.kept[pid]


def _parts_of_a_recorder(recorder: Recorder) -> tuple[Any, ...]:
    """A recorder has any attribute, so it cannot be asked how it is made."""
    return object.__new__, (Recorder,), vars(recorder), None, None, _fill


def _fill(recorder: Recorder, members: dict[str, Any]) -> None:
    vars(recorder).update(members)
