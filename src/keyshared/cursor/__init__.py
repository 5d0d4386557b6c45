"""The safe cursor: how far everything is settled, in any order, and the token from which a restart goes on.

>>> cursor = ContiguousCursor()
>>> _ = [cursor.offer(offset) for offset in range(4)]
>>> cursor.settle_many([0, 2, 3]), cursor.safe_cursor
(3, 0)
>>> cursor.settle(1), cursor.safe_cursor
(True, 3)
"""

from keyshared.cursor.contiguous import ContiguousCursor, OfferAnswer
from keyshared.cursor.core import SETTLED, Cell, Cursor
from keyshared.cursor.token import DEFAULT_TOKEN_BYTES, CursorToken

__all__ = ["DEFAULT_TOKEN_BYTES", "SETTLED", "Cell", "ContiguousCursor", "Cursor", "CursorToken", "OfferAnswer"]
