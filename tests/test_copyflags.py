"""Copy flags: the value, its header, and who must not hand it on."""

import copy
import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyshared.copyflags import (
    COPY_FLAGS_HEADER,
    MAX_LEVEL,
    BigEndian,
    CopyFlags,
    FlagsHeader,
    strip_distribution_headers,
)
from keyshared.errors import ArgumentError, SnapshotError

levels = st.integers(1, MAX_LEVEL)
level_sets = st.sets(st.one_of(st.integers(1, 20), levels), max_size=8)


def test_a_level_has_a_bit_and_a_mask_of_it_and_all_below() -> None:
    assert [0b1, 0b10, 0b100] == [CopyFlags.bit(level) for level in (1, 2, 3)]
    assert [0b1, 0b11, 0b111] == [CopyFlags.mask(level) for level in (1, 2, 3)]
    assert MAX_LEVEL == CopyFlags.mask(MAX_LEVEL).bit_length()


@pytest.mark.parametrize("level", [0, -1, MAX_LEVEL + 1, 1.0, "1", None, True])
def test_what_is_no_level_is_refused(level: Any) -> None:
    for call in (CopyFlags.bit, CopyFlags.mask, CopyFlags.of, CopyFlags().is_due, CopyFlags().crossing):
        with pytest.raises(ArgumentError, match=f"level is {level!r}; it must be an int from 1 to {MAX_LEVEL}"):
            call(level)


@pytest.mark.parametrize("flags", [-1, 1 << MAX_LEVEL, 1.0, "1", None, True])
def test_what_is_no_set_of_levels_is_refused(flags: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        CopyFlags(flags)

    assert "flags" == caught.value.parameter


def test_flags_are_an_int() -> None:
    flags = CopyFlags(5)

    assert 5 == flags == CopyFlags(flags)
    assert hash(5) == hash(flags)
    assert "[5]" == json.dumps([flags])
    assert "CopyFlags(0b101)" == repr(flags)
    assert not CopyFlags()


def test_flags_survive_pickle_and_copy() -> None:
    for twin in (pickle.loads(pickle.dumps(CopyFlags(5))), copy.deepcopy(CopyFlags(5))):  # noqa: S301  # our own bytes
        assert (CopyFlags, 5) == (type(twin), twin)


@given(level_sets)
def test_a_set_lists_its_levels_from_the_top(chosen: set[int]) -> None:
    assert tuple(sorted(chosen, reverse=True)) == CopyFlags.of(*chosen).levels


@given(level_sets, levels)
def test_a_distributor_works_if_no_flag_of_its_level_or_below_is_set(crossed: set[int], level: int) -> None:
    flags = CopyFlags.of(*crossed)

    assert all(each > level for each in crossed) == flags.is_due(level)
    assert CopyFlags.of(*crossed, level) == flags.crossing(level)
    assert not flags.crossing(level).is_due(level)


@given(level_sets, level_sets)
def test_all_distributors_of_a_cluster_are_decided_at_once_as_one_by_one(crossed: set[int], own: set[int]) -> None:
    flags = CopyFlags.of(*crossed)
    due = flags.due(CopyFlags.of(*own))

    assert CopyFlags is type(due)
    assert {level for level in own if flags.is_due(level)} == set(due.levels)


@given(level_sets, st.none() | st.integers(MAX_LEVEL // 8 - 1, MAX_LEVEL // 8))
def test_a_header_is_read_as_it_was_written(crossed: set[int], width: int | None) -> None:
    flags = CopyFlags.of(*crossed)
    codec = BigEndian(width)
    if width is not None and flags.bit_length() > 8 * width:
        with pytest.raises(ArgumentError, match=f"fit into {width} bytes"):
            codec.encode(flags)
        return
    written = codec.encode(flags)

    assert flags == codec.decode(written)
    assert width is None or width == len(written)


def test_a_header_has_as_few_bytes_as_it_needs_or_as_many_as_it_is_told() -> None:
    assert [b"\0", b"\x05", b"\x01\0"] == [BigEndian().encode(CopyFlags(flags)) for flags in (0, 5, 256)]
    assert b"\0\0\0\0\0\0\0\x05" == BigEndian(8).encode(CopyFlags(5))
    assert 5 == BigEndian().decode(b"\0\0\x05")


@pytest.mark.parametrize("flags", [-1, 1 << MAX_LEVEL, None, "5"])
def test_what_are_no_flags_is_not_written(flags: Any) -> None:
    for codec in (BigEndian(), BigEndian(8)):
        with pytest.raises(ArgumentError, match="flags"):
            FlagsHeader(codec=codec).write([], flags)


@pytest.mark.parametrize("width", [0, -1, MAX_LEVEL // 8 + 1, 8.0, "8", True])
def test_a_width_that_can_never_work_is_refused(width: Any) -> None:
    with pytest.raises(ArgumentError, match="width"):
        BigEndian(width)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (BigEndian(), b""),
        (BigEndian(), b"\0" * (MAX_LEVEL // 8 + 1)),
        (BigEndian(), "5"),
        (BigEndian(), None),
        (BigEndian(2), b"\5"),
        (BigEndian(2), b"\0\0\5"),
        (BigEndian(2), b"\0" * 1_000_000),
    ],
)
def test_a_header_that_holds_no_flags_is_refused_with_a_short_text(codec: BigEndian, data: Any) -> None:
    for read in (codec.decode, lambda value: FlagsHeader(codec=codec).read([(COPY_FLAGS_HEADER, value)])):
        with pytest.raises(SnapshotError, match="copy flags") as caught:
            read(data)
        assert 2_000 > len(str(caught.value))


def test_an_absent_header_means_no_flags() -> None:
    assert 0 == FlagsHeader().read([])
    assert 0 == FlagsHeader().read([("axual-copy-flags", b"\5")])


def test_of_several_headers_the_last_counts_and_one_is_written() -> None:
    header = FlagsHeader()
    headers = [(COPY_FLAGS_HEADER, b"\1"), ("trace", None), (COPY_FLAGS_HEADER, b"\4"), ("trace", b"7")]

    assert 4 == header.read(headers)
    written = header.write(headers, CopyFlags(5))
    assert [("trace", None), ("trace", b"7"), (COPY_FLAGS_HEADER, b"\5")] == written
    assert 5 == header.read(written)


def test_name_and_bytes_of_the_header_are_free() -> None:
    class Text:
        def encode(self, flags: CopyFlags) -> bytes:
            return f"{flags:b}".encode()

        def decode(self, data: bytes) -> CopyFlags:
            return CopyFlags(int(data, 2))

    header = FlagsHeader("x-crossed", Text())

    assert [("x-crossed", b"101")] == header.write([], CopyFlags(5))
    assert 5 == header.read([("x-crossed", b"101"), (COPY_FLAGS_HEADER, b"\1")])


@pytest.mark.parametrize(("name", "codec"), [("", BigEndian()), (None, BigEndian()), ("x", None), ("x", "big")])
def test_a_header_that_can_never_work_is_refused(name: Any, codec: Any) -> None:
    with pytest.raises(ArgumentError):
        FlagsHeader(name, codec)


def test_a_record_made_of_another_one_loses_the_headers_of_the_distribution_only() -> None:
    headers = [("Axual-Copy-Flags", b"\5"), ("trace", b"7"), ("Axual-Serialization-Time", None), ("axual-own", b"1")]

    assert [("trace", b"7"), ("axual-own", b"1")] == strip_distribution_headers(headers)
    assert [headers[0], headers[2]] == strip_distribution_headers(headers, ["trace", "axual-"])
    assert headers == strip_distribution_headers(headers, [])


@pytest.mark.parametrize("name", [b"Axual-Copy-Flags", 5, None])
def test_a_header_whose_name_is_no_text_is_refused(name: Any) -> None:
    headers = [("trace", b"7"), (name, b"\5")]
    for call in (FlagsHeader().read, lambda rows: FlagsHeader().write(rows, CopyFlags(1)), strip_distribution_headers):
        with pytest.raises(ArgumentError) as caught:
            call(headers)
        assert ("header", headers[1]) == (caught.value.parameter, caught.value.value)


@pytest.mark.parametrize("prefixes", ["Axual-", [""], [b"Axual-"], [None]])
def test_a_prefix_that_would_strip_everything_or_nothing_is_refused(prefixes: Any) -> None:
    with pytest.raises(ArgumentError, match="prefixes"):
        strip_distribution_headers([("trace", b"7")], prefixes)
