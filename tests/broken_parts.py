"""The real dispatcher, one part of which has a fault: everything else of it is as it is."""

from collections.abc import Mapping
from operator import attrgetter
from types import new_class
from typing import Any, ClassVar, Final

from keyshared._dispatch.acceptance import Acceptance
from keyshared._dispatch.endings import Endings
from keyshared._dispatch.membership import Membership
from keyshared._dispatch.outbox import Outbox
from keyshared._dispatch.routing import Routing
from keyshared._dispatch.sessions import Sessions
from keyshared._dispatch.timers import Duty
from keyshared._dispatch.units import SlotUnits
from keyshared._window.gate import DrainGate
from keyshared._window.holes import MeasuringCursor
from keyshared._window.lanes import Entry
from keyshared.config import DispatcherConfig
from keyshared.cursor import ContiguousCursor
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.window import InFlightWindow

__all__ = ["Broken", "put_at_the_tail"]

_PARTS: Final[Mapping[type, str]] = {
    InFlightWindow: "_window",
    ContiguousCursor: "_window.cursor",
    DrainGate: "_window._gate",
    SlotUnits: "_window._gate._units",
    Routing: "_routing",
    Acceptance: "_routing.acceptance",
    Endings: "_endings",
    Membership: "_membership",
    Outbox: "_outbox",
    Sessions: "_sessions",
}


class Broken(KeySharedDispatcher[object]):
    """A dispatcher one part of which is of the class `_Fault` from the first call on, where it has that part.

    Attributes:
        _Fault: A class of the part that overrides what is wrong; without state of its own, so that the part, which was
            made by the dispatcher, can become one.
    """

    _Fault: ClassVar[type]

    def __init__(self, placement: Any, config: DispatcherConfig | None = None, **kwargs: Any) -> None:
        super().__init__(placement, config, **kwargs)
        (path,) = (path for kind, path in _PARTS.items() if issubclass(self._Fault, kind))
        *whole, name = path.split(".")
        owner: Any = attrgetter(".".join(whole))(self) if whole else self
        part = getattr(owner, name, None)
        if part is not None:  # the gate of a key counts no units
            # A cursor that measures passes on what it overrides, and has fields that a fault cannot stand before.
            kinds = (type(part), self._Fault) if isinstance(part, MeasuringCursor) else (self._Fault, type(part))
            part.__class__ = new_class(self._Fault.__name__, kinds, {}, lambda names: names.update(__slots__=()))
            self._duties = {kind: _of_its_class_now(duty) for kind, duty in self._duties.items()}


def put_at_the_tail(entry: Entry) -> None:
    """Take a message out of its lane, and put it behind all others."""
    lane = entry.lane
    older, after = lane.head, entry.after
    while older is not None and older is not entry and older.after is not entry:
        older = older.after
    is_last = lane.tail is entry
    lane.unlink(entry, 1 << 62)
    entry.after = None
    if older is not None and older is not entry:
        older.after = after
        lane.gaps -= 1
        lane.tail = older if is_last else lane.tail
    lane.append(entry)


def _of_its_class_now(duty: Duty) -> Duty:
    """The duty of whatever class its object has become."""
    return duty._replace(act=getattr(duty.act.__self__, duty.act.__name__))  # type: ignore[attr-defined]  # a method
