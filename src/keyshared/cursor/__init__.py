"""How far everything is settled, whatever the order of the acks, and the token that a restart goes on from."""

from keyshared.cursor.contiguous import DEFAULT_TOKEN_BYTES, SETTLED, Cell, ContiguousCursor
from keyshared.cursor.token import LEAST_TOKEN_BUDGET
from keyshared.cursor.values import CursorToken, OfferAnswer

__all__ = [
    "DEFAULT_TOKEN_BYTES",
    "LEAST_TOKEN_BUDGET",
    "SETTLED",
    "Cell",
    "ContiguousCursor",
    "CursorToken",
    "OfferAnswer",
]
