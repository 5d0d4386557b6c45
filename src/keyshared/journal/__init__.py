"""A dispatcher that lives in pieces: commands in, rows out, its state as bytes in between.

Use it where state has to be stored between two batches, such as in a stream of Spark.

>>> from keyshared import HashRing
>>> journal = Journal(HashRing())
>>> log = [Command(0, 0, "add_consumer", consumer="c1"), Command(1, 5, "offer", offset=0, key="order-1")]
>>> [(row.at_ms, row.effect, row.offset) for row in journal.apply_all(log)]
[(5, 'deliver', 0)]
>>> again = Journal.from_bytes(journal.to_bytes(), HashRing())
"""

from keyshared.journal.commands import COMMANDS, LATE, Command, Fields, OutcomeRow
from keyshared.journal.journal import Journal

__all__ = [
    "COMMANDS",
    "LATE",
    "Command",
    "Fields",
    "Journal",
    "OutcomeRow",
]
