"""How far everything is settled, whatever the order of the acks, and the token that a restart goes on from."""

from keyshared.cursor.contiguous import DEFAULT_TOKEN_BYTES, SETTLED, Cell, ContiguousCursor, CursorToken, OfferAnswer

__all__ = ["DEFAULT_TOKEN_BYTES", "SETTLED", "Cell", "ContiguousCursor", "CursorToken", "OfferAnswer"]
