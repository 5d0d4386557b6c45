"""A partition key of Celeriant as bytes."""

from typing import Any

import pytest

from keyshared.errors import ArgumentError
from keyshared.hashing.celeriant import partition_key_bytes


@pytest.mark.parametrize("number", [0, 1, 258, 2**64, 2**128 - 1])
def test_a_partition_key_is_sixteen_little_endian_bytes(number: int) -> None:
    data = partition_key_bytes(number)

    assert 16 == len(data)
    assert number == sum(byte << 8 * place for place, byte in enumerate(data))


@pytest.mark.parametrize("number", [-1, 2**128, 1.0, "1", True, None])
def test_what_is_no_unsigned_128_bit_number_is_refused(number: Any) -> None:
    with pytest.raises(ArgumentError, match="partition key"):
        partition_key_bytes(number)
