"""Keys become bytes in one place, and bytes a slot under a named hash; the keys of Pulsar and Celeriant."""

import json
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from keyshared import hashing
from keyshared.errors import ArgumentError, KeyTypeError, MissingExtraError
from keyshared.hashing import (
    CELERIANT_BE,
    CELERIANT_LE,
    DANUBE_32,
    KEY_HASHES,
    MURMUR3_32,
    NONE_KEY,
    PULSAR_RANGES,
    PULSAR_RING,
    XXH64_SEED_42,
    KeyHash,
    fnv64,
    key_bytes,
    key_hash_named,
    partition_key_bytes,
    pulsar_range_hash,
    pulsar_ring_hash,
    sticky_key,
)

_SPARK = Path(__file__).parent / "conformance" / "data" / "spark_xxhash64.json"
SPARK_ROWS: list[list[Any]] = json.loads(_SPARK.read_text("utf-8"))["rows"]


def _first_byte(data: bytes) -> int:
    return data[0]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("a", b"a"), (b"a", b"a"), ("", b""), ("é", b"\xc3\xa9"), (b"\xff", b"\xff"), (None, None)],
    ids=repr,
)
def test_a_key_is_its_bytes_and_text_its_utf8(key: str | bytes | None, expected: bytes | None) -> None:
    assert expected == key_bytes(key)


def test_two_spellings_of_one_glyph_are_two_keys() -> None:
    assert key_bytes("\u00e9") != key_bytes("e\u0301")


@pytest.mark.parametrize("key", [1, 1.0, bytearray(b"a"), memoryview(b"a"), ("a",), True])
def test_a_key_of_another_type_is_refused_by_name(key: Any) -> None:
    with pytest.raises(KeyTypeError, match=type(key).__name__):
        key_bytes(key)


def test_text_that_utf8_cannot_express_is_refused() -> None:
    with pytest.raises(KeyTypeError, match="lone surrogate"):
        key_bytes("a\ud800")


@pytest.mark.parametrize("row", SPARK_ROWS, ids=lambda row: str(row[1]))
def test_the_default_hash_is_sparks_xxhash64_read_as_unsigned(row: list[Any]) -> None:
    text, signed = row

    value = XXH64_SEED_42.function(text.encode())
    assert signed % 2**64 == value
    assert value >> 48 == XXH64_SEED_42.slot(text.encode(), 16)


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_fnv64_gives_the_published_values(data: bytes, expected: int) -> None:
    assert expected == fnv64(data)


def test_a_slot_is_the_top_bits() -> None:
    wide = KeyHash("wide", 8, _first_byte)

    assert [0b1, 0b101, 0b10110011] == [wide.slot(b"\xb3", bits) for bits in (1, 3, 8)]


def test_hashes_are_found_by_name() -> None:
    single = {"xxh64:42": XXH64_SEED_42, "danube32": DANUBE_32, "murmur3:0": MURMUR3_32}
    celeriant = {"celeriant:le": CELERIANT_LE, "celeriant:be": CELERIANT_BE}
    sizes = [1 << bits for bits in range(1, 17)]
    rings = {f"pulsar-ring:{size}": pulsar_ring_hash(size) for size in sizes}
    ranges = {f"pulsar-range:{size}": pulsar_range_hash(size) for size in sizes}
    assert {**single, **celeriant, **rings, **ranges} == dict(KEY_HASHES)
    assert all(known is key_hash_named(name) for name, known in KEY_HASHES.items())
    assert all(name == known.name for name, known in KEY_HASHES.items())


@pytest.mark.parametrize("sized", [pulsar_ring_hash, pulsar_range_hash])
@pytest.mark.parametrize("size", [0, 1, 3, 65535, 131072, 4.0, "4", None, True])
def test_pulsar_has_no_space_of_another_size(sized: Any, size: Any) -> None:
    with pytest.raises(ArgumentError, match="be a power of two from 2 to 65536"):
        sized(size)


@pytest.mark.parametrize("name", ["xxh64", "", None, ["xxh64:42"]])
def test_an_unknown_hash_is_refused_and_the_known_ones_are_named(name: Any) -> None:
    with pytest.raises(ArgumentError, match=r"be one of xxh64:42, danube32, .*or pulsar-ring:N"):
        key_hash_named(name)


def test_the_registry_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        KEY_HASHES["mine"] = DANUBE_32  # type: ignore[index]  # that is the point


def test_a_hash_is_a_value() -> None:
    assert KeyHash("mine", 8, _first_byte) == KeyHash("mine", 8, len)
    assert KeyHash("mine", 8, _first_byte) != KeyHash("mine", 9, _first_byte)
    with pytest.raises(FrozenInstanceError):
        DANUBE_32.bits = 64  # type: ignore[misc]  # that is the point


@pytest.mark.parametrize("known", [*KEY_HASHES.values(), KeyHash("mine", 8, _first_byte)], ids=lambda h: h.name)
def test_a_hash_survives_pickling(known: KeyHash) -> None:
    again = pickle.loads(pickle.dumps(known))  # noqa: S301 - our own bytes

    assert known == again
    assert known.function(b"key") == again.function(b"key")


@pytest.mark.parametrize(
    ("name", "bits", "function", "parameter"),
    [
        ("", 32, fnv64, "name"),
        (None, 32, fnv64, "name"),
        ("h", 0, fnv64, "bits"),
        ("h", 65, fnv64, "bits"),
        ("h", True, fnv64, "bits"),
        ("h", 32, 5, "function"),
    ],
)
def test_a_hash_that_can_never_work_is_refused(name: Any, bits: Any, function: Any, parameter: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        KeyHash(name, bits, function)

    assert parameter == caught.value.parameter


def test_every_hash_stays_within_its_width() -> None:
    for known in KEY_HASHES.values():
        assert all(0 <= known.function(b"key-%d" % i) < 1 << known.bits for i in range(200)), known


def test_pulsars_slots_are_never_zero_and_differ_by_formula() -> None:
    keys = [b"%d" % i for i in range(500)]

    for sized in (pulsar_ring_hash, pulsar_range_hash):
        assert {1, 2, 3} == {sized(4).function(key) for key in keys}
    assert {1} == {pulsar_ring_hash(2).function(key) for key in keys}
    assert [PULSAR_RING.function(key) for key in keys] != [PULSAR_RANGES.function(key) for key in keys]


HIDDEN = """
import sys
sys.modules["mmh3"] = sys.modules["blake3"] = None
import keyshared
from keyshared.errors import MissingExtraError
from keyshared.hashing import CELERIANT_LE, MURMUR3_32, PULSAR_RANGES, PULSAR_RING
from keyshared.placement import RangeMap

assert keyshared.HashRing(["a"]).owner("key") == "a"
for known in (CELERIANT_LE, MURMUR3_32, PULSAR_RANGES, PULSAR_RING):
    for use in (lambda: known.function(b"key"), lambda: RangeMap(key_hash=known)):
        try:
            use()
        except MissingExtraError as error:
            print(error.package, error.extra)
"""


def test_without_the_extras_keyshared_works_and_their_hashes_say_what_is_missing() -> None:
    ran = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=True, timeout=60)

    assert ["blake3 celeriant"] * 2 + ["mmh3 pulsar"] * 6 == ran.stdout.splitlines()


def test_a_missing_package_is_found_out_at_import_and_told_at_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mmh3", None)
    monkeypatch.setitem(sys.modules, "blake3", None)

    for find, extra in ((hashing._find_murmur3, "pulsar"), (hashing._find_blake3, "celeriant")):
        with pytest.raises(MissingExtraError) as caught:
            find()(b"key")
        assert extra == caught.value.extra


def test_what_a_hash_function_raises_names_the_key_and_so_does_a_shift_that_is_too_far() -> None:
    def broken(data: bytes) -> int:
        raise KeyError(data)

    with pytest.raises(ArgumentError, match="key is b'k'; it must have a hash 'broken'; its function raised KeyError"):
        KeyHash("broken", 32, broken).slot(b"k", 16)
    with pytest.raises(ArgumentError, match="slot_bits is 33; it must be at most 32, the bits of length"):
        KeyHash("length", 32, len).slot(b"k", 33)


def test_an_error_of_ours_that_a_hash_raises_goes_on() -> None:
    def missing(_: bytes) -> int:
        raise MissingExtraError("blake3", "celeriant")

    with pytest.raises(MissingExtraError):
        KeyHash("missing", 8, missing).slot(b"k", 8)


@pytest.mark.parametrize("answer", [-1, -1 << 40, 1 << 32, "a", 3.5, None])
def test_what_is_no_hash_is_refused(answer: Any) -> None:
    with pytest.raises(
        ArgumentError, match="key is b'k'; it must have a hash 'wrong'; its function returned"
    ) as caught:
        KeyHash("wrong", 32, lambda _: answer).slot(b"k", 16)
    assert str(caught.value).endswith(", and no int of 32 bits")


def test_the_least_and_the_greatest_hash_have_slots() -> None:
    assert [0, 0xFFFF] == [KeyHash("edge", 32, lambda _, edge=edge: edge).slot(b"k", 16) for edge in (0, (1 << 32) - 1)]  # type: ignore[misc]


@pytest.mark.parametrize("number", [0, 1, 258, 2**64, 2**128 - 1])
def test_a_partition_key_is_sixteen_little_endian_bytes(number: int) -> None:
    data = partition_key_bytes(number)

    assert 16 == len(data)
    assert number == sum(byte << 8 * place for place, byte in enumerate(data))


@pytest.mark.parametrize("number", [-1, 2**128, 1.0, "1", True, None])
def test_what_is_no_unsigned_128_bit_number_is_refused(number: Any) -> None:
    with pytest.raises(ArgumentError, match="partition key"):
        partition_key_bytes(number)


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
