"""How far everything is settled, whatever the order of the acks, and the token from which a restart goes on."""

from keyshared.cursor.contiguous import DEFAULT_TOKEN_BYTES, SETTLED, Cell, ContiguousCursor
from keyshared.cursor.values import CursorToken, OfferAnswer

__all__ = [
    "DEFAULT_TOKEN_BYTES",
    "SETTLED",
    "Cell",
    "ContiguousCursor",
    "CursorToken",
    "OfferAnswer",
]
