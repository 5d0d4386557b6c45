"""Which of a Pulsar message's fields is its key."""

from typing import Any

import pytest

from keyshared.errors import ArgumentError
from keyshared.hashing.pulsar import NONE_KEY, range_slot, ring_slot, sticky_key

EVERYTHING: dict[str, Any] = {
    "ordering_key": b"\x00order",
    "key": "AQI=",
    "key_is_base64": True,
    "producer": "p",
    "sequence_id": 7,
}


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        ((), b"\x00order"),
        (("ordering_key",), b"\x01\x02"),
        (("ordering_key", "key_is_base64"), "AQI="),
        (("ordering_key", "key"), "p-7"),
        (("ordering_key", "key", "producer"), NONE_KEY),
        (("ordering_key", "key", "sequence_id"), NONE_KEY),
    ],
    ids=["ordering key", "base64", "key", "producer", "no producer", "no number"],
)
def test_the_first_of_these_that_is_there_is_hashed(missing: tuple[str, ...], expected: str | bytes) -> None:
    assert expected == sticky_key(**{name: value for name, value in EVERYTHING.items() if name not in missing})


@pytest.mark.parametrize("range_size", [-65_536, -1, 0, 0.5, True, None])
def test_a_space_without_slots_is_refused(range_size: Any) -> None:
    for slot in (ring_slot, range_slot):
        with pytest.raises(ArgumentError, match="range_size is"):
            slot(range_size, b"a")


def test_an_empty_key_is_a_key() -> None:
    assert b"" == sticky_key(ordering_key=b"", key="k")
    assert "" == sticky_key(key="", producer="p", sequence_id=1)
    assert b"" == sticky_key(key="", key_is_base64=True)


def test_a_sequence_may_begin_at_zero() -> None:
    assert "p-0" == sticky_key(producer="p", sequence_id=0)


def test_base64_may_lack_its_padding() -> None:
    assert b"\x01" == sticky_key(key="AQ", key_is_base64=True) == sticky_key(key="AQ==", key_is_base64=True)


@pytest.mark.parametrize("garbage", ["A", "A*==", "AQI=AQI=", "é"])
def test_base64_that_is_none_is_as_good_as_no_key(garbage: str) -> None:
    assert NONE_KEY == sticky_key(key=garbage, key_is_base64=True, producer="p", sequence_id=1)
