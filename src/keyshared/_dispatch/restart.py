"""What a restart with wider limits has made possible: a restore hands out nothing, so it is due at once.

It is due until the window has been woken, by `handle_timeout` or by any other call that does that.
"""

from typing import Final

from keyshared._dispatch.timers import Duties, Duty, Stage
from keyshared.effects import Effect
from keyshared.window import InFlightWindow

__all__ = ["Restart"]


class Restart:
    """Falls due while the window wants to be woken, once it was started.

    Args:
        window: What was restored.

    Attributes:
        duties: Nothing but the end of the call, which wakes the window.
    """

    __slots__ = ("_at", "_window", "duties")

    def __init__(self, window: InFlightWindow) -> None:
        self._window = window
        self._at: int | None = None
        self.duties: Final[Duties] = {Restart: Duty(Stage.DELIVERIES, _place, self.act)}

    @property
    def deadline(self) -> int | None:
        """The instant of the restart; None once there is nothing to do."""
        return self._at if self._window.wants_wake else None

    @deadline.setter
    def deadline(self, at: int | None) -> None:
        self._at = at

    def act(self, _restart: "Restart", _notices: list[Effect], _now: int) -> None:
        """Leave it to the end of the call."""


def _place(_restart: Restart) -> int:
    return 0  # it does nothing that others could come before
