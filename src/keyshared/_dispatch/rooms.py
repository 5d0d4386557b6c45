"""Rooms: what a dispatcher keeps for a feature that most dispatchers do not use.

A room has its own state, deadlines, part of the snapshot and invariants. A dispatcher that does not use the feature has
no such room, and asks for none.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, cast

from keyshared._dispatch.endings import Endings
from keyshared._dispatch.snapshot import Reader
from keyshared._dispatch.timers import Duties, Timers
from keyshared.config import DispatcherConfig
from keyshared.effects import Effect
from keyshared.window import InFlightWindow

if TYPE_CHECKING:  # loaded only where they are used
    from keyshared._dispatch.gates import Gates
    from keyshared._dispatch.groups import Groups
    from keyshared._dispatch.ledger import Ledger
    from keyshared._dispatch.measure import HealthRoom
    from keyshared._dispatch.redrive import Redriven
    from keyshared._dispatch.scopes import ScopedWindow
    from keyshared._dispatch.sessions import Sessions

__all__ = [
    "Room",
    "dump_rooms",
    "groups_of",
    "health_of",
    "load_rooms",
    "redriven_of",
    "refresh_rooms",
    "rooms_for",
    "sessions_of",
]


class Room(Protocol):
    """The state of one feature.

    Attributes:
        name: Its field in the snapshot.
        duties: What happens when the deadlines that it has started have come.
    """

    @property
    def name(self) -> str: ...

    @property
    def duties(self) -> Duties: ...

    def refresh(self, now: int, notices: list[Effect]) -> None:
        """Look at what has changed in a call, at its end, and add what there is to tell."""

    def dump(self, now: int) -> object:
        """Return the state as plain data; None if there is nothing to keep."""

    def load(self, data: Reader, now: int) -> None:
        """Take what `dump` returned; what it gave None for is not loaded."""

    def check_invariants(self) -> None:
        """Raise `InvariantError` if the room contradicts itself or the window. For tests."""


def rooms_for(
    config: DispatcherConfig, window: InFlightWindow, timers: Timers, endings: Endings, ledger: "Ledger | None"
) -> tuple[Room, ...]:
    """Return the rooms that a configuration asks for; the modules of others are not loaded."""
    rooms: list[Room] = []
    if config.drain_timeout_ms is not None:
        from keyshared._dispatch.drain_deadlines import DrainDeadlines  # noqa: PLC0415  # only where it is used

        rooms.append(DrainDeadlines(window, timers, endings, config.drain_timeout_ms))
    if config.redrive:
        from keyshared._dispatch.redrive import Redriven  # noqa: PLC0415  # as above

        rooms.append(Redriven(window, timers, endings, told=config.tell_settled or config.measure))
    if config.measure:
        from keyshared._dispatch.measure import HealthRoom, MeasuringLedger  # noqa: PLC0415  # as above

        rooms.append(HealthRoom(window, cast("MeasuringLedger", ledger), tells=config.tell_settled))
    if config.sessions is not None:
        from keyshared._dispatch.sessions import Sessions  # noqa: PLC0415  # as above

        sessions = Sessions(window, timers, config.sessions)
        cast("Gates", window.gate).gates.append(sessions)
        rooms.append(sessions)
    if config.token_bytes is not None:
        from keyshared._dispatch.budget import TokenRoom  # noqa: PLC0415  # as above

        rooms.append(TokenRoom(window))
    if window.has_scopes:
        from keyshared._dispatch.groups import Groups  # noqa: PLC0415  # as above

        rooms.append(Groups(cast("ScopedWindow", window), timers))  # last: sessions that end take lanes out of lists
    return tuple(rooms)


def groups_of(rooms: Iterable[Room]) -> "Groups | None":
    """Return the room of groups and of the limit of the subscription, if it is in use."""
    return cast("Groups | None", next((room for room in rooms if room.name == "scopes"), None))


def health_of(rooms: Iterable[Room]) -> "HealthRoom | None":
    """Return the room that measures, if it is in use."""
    return cast("HealthRoom | None", _named("health", rooms))


def redriven_of(rooms: Iterable[Room]) -> "Redriven | None":
    """Return the room of dead letters that come back, if it is in use."""
    return cast("Redriven | None", _named("redriven", rooms))


def sessions_of(rooms: Iterable[Room]) -> "Sessions | None":
    """Return the room of sessions, if it is in use."""
    return cast("Sessions | None", _named("sessions", rooms))


def _named(name: str, rooms: Iterable[Room]) -> Room | None:
    return next((room for room in rooms if room.name == name), None)


def dump_rooms(rooms: Iterable[Room], now: int) -> dict[str, object]:
    """Return what the rooms have to keep, by name."""
    kept = {room.name: room.dump(now) for room in rooms}
    return {name: data for name, data in kept.items() if data is not None}


def load_rooms(data: Reader, rooms: Iterable[Room], now: int) -> None:
    """Fill new rooms, and refuse what none of them has kept."""
    by_name = {room.name: room for room in rooms}
    for name, kept in data.fields().items():
        if name not in by_name:
            raise kept.refuse("be absent: the configuration does not ask for it")
        by_name[name].load(kept, now)


def refresh_rooms(rooms: Iterable[Room], now: int) -> None:
    """Look at what a restore has changed, room by room; one of which nothing was kept begins anew."""
    for room in rooms:
        room.refresh(now, [])  # the host asks for what is so
