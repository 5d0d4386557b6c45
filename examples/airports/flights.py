"""A log with hot keys: three million flights within the United States in the first half of 2001, keyed by airport.

The flights are those of the Bureau of Transportation Statistics, a federal agency, as the npm package ``vega-datasets``
carries them. They are no part of keyshared: they are fetched when they are asked for, and nothing but the very bytes
that were looked at is taken.
"""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from examples.airports.npm import NpmPackage, extracted, fetched

from keyshared.hashing import XXH64_SEED_42

AIRPORT_FLIGHTS: Final = 3_000_000

PACKAGE: Final = NpmPackage(
    "vega-datasets",
    "3.2.1",
    "9534b0640eb2abaa925366199bee9ba882e222f4cf3f19f88ad8abee33c61661"
    "c874fbd47d0f690b3cdcae4958cb030980b51b68879291941d88977ac01c4fba",
)
"""What the flights come in."""

KEYS: Final = ("airport", "route")
"""What may be the key: where a flight leaves, or from where to where it goes."""

_MEMBER: Final = "data/flights-3m.parquet"
_COLUMNS: Final = ["date", "delay", "distance", "origin", "destination"]
_PARTITIONS: Final = 8


def write_airport_log(folder: Path, *, key: str) -> Path:
    """Write the 3,000,000 flights of January to June 2001 as a log, and fetch them first if they are not there.

    Args:
        folder: Where the package, the file in it and the log are kept: some 60 MB. It must exist.
        key: One of `KEYS`.

    Returns:
        The log, a file of Parquet.

    Raises:
        ArgumentError: The package cannot be had, see `examples.airports.npm.fetched`.
    """
    file = extracted(fetched(PACKAGE, folder), _MEMBER, folder)
    log = folder / f"flights-by-{key}.parquet"
    pq.write_table(airport_log(pq.read_table(file, columns=_COLUMNS), key=key), log)
    return log


def airport_log(flights: pa.Table, *, key: str) -> pa.Table:
    """Make a log of flights, as a producer would write it: to one of 8 topic-partitions, by the hash of the key.

    Args:
        flights: Columns ``date`` (when it left), ``delay`` (minutes), ``distance`` (miles), ``origin`` and
            ``destination`` (codes of airports).
        key: One of `KEYS`.

    Returns:
        These columns, the key under the name that was asked for, and ``partition``.
    """
    origin = flights["origin"]
    route = pc.binary_join_element_wise(
        origin, flights["destination"], pa.scalar("-", origin.type)
    )  # of large strings too
    keys = (origin if key == "airport" else route).combine_chunks().dictionary_encode()
    homes = pa.array(
        [f"{key}-{XXH64_SEED_42.function(each.as_py().encode()) % _PARTITIONS}" for each in keys.dictionary]
    )
    keyed = flights.append_column(key, keys.dictionary_decode())
    return keyed.append_column("partition", homes.take(keys.indices))
