"""Where our own ring puts keys: a change here moves keys in running systems and is a major version."""

import json
from pathlib import Path
from typing import Any

import pytest

from keyshared.hashing import fnv64
from keyshared.ring import HashRing

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "placement.json").read_text("utf-8"))


@pytest.mark.parametrize(
    "row", GOLDEN["rings"], ids=lambda row: f"{len(row['consumers'])} {next(iter(row['consumers']))!a}"
)
def test_keys_land_where_they_always_did(row: dict[str, Any]) -> None:
    options = {name: row[name] for name in ("vnodes", "slot_bits") if name in row}
    ring = HashRing(row["consumers"], **options)

    text = json.dumps(ring.ranges.to_json(), sort_keys=True, separators=(",", ":"))
    assert row["slots"] == [ring.ranges.slot_of(key) for key in GOLDEN["keys"]]
    assert row["owners"] == [ring.owner(key) for key in GOLDEN["keys"]]
    assert row["second_choice"] == [ring.owners(key, 2)[-1] for key in GOLDEN["keys"]]
    assert int(row["map_fnv64"], 16) == fnv64(text.encode())
