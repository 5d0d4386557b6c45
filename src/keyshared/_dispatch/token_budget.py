"""The part of the token budget that a snapshot has to keep: whether the token is full. Loaded only where it is used."""

from typing import Final, cast, TYPE_CHECKING

from keyshared._dispatch.snapshot import Reader
from keyshared.window import InFlightWindow

if TYPE_CHECKING:
    from keyshared._window.holes import MeasuringCursor
    from keyshared._dispatch.timers import Duties

__all__ = ["TokenBudget"]


class TokenBudget:
    """Remembers that the token was full: between one half and three quarters its length does not say so.

    Args:
        window: Its cursor measures the token.
    """

    __slots__ = ("_cursor", "duties")

    name: Final = "token"

    def __init__(self, window: InFlightWindow) -> None:
        self._cursor = cast("MeasuringCursor", window.cursor)
        self.duties: Duties = {}

    def refresh(self, now: int) -> None:
        """Do nothing: the cursor knows at any time."""

    def dump(self, now: int) -> object:  # noqa: ARG002  # one shape for all rooms
        """Return True while the token is full."""
        return self._cursor.is_full or None

    def load(self, data: Reader, now: int) -> None:  # noqa: ARG002  # as above
        """Go on with a full token, if there was one."""
        self._cursor.is_full = data.flag() or self._cursor.is_full

    def check_invariants(self) -> None:
        """Do nothing: the cursor checks itself."""
