"""The envelope in a commit's metadata: it travels with whatever else is written there, and nothing forged passes."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from typing import Any
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyshared.copyflags import MAX_LEVEL, CopyFlags
from keyshared.errors import ArgumentError
from keyshared.offsets import (
    MAX_METADATA_BYTES,
    CommitMetadata,
    MetadataProblem,
    OffsetEnvelope,
    compose_metadata,
    parse_metadata,
)

NOTE = OffsetEnvelope(CopyFlags(0b101), 1_700_000_000_000, 35)
# What other programs keep there: Kafka Streams, parallel-consumer, a person, and one that looks nearly like ours.
FOREIGN = ("", "AgAAAYvPxWAA", "bAUAAQIDBA==", "moved by hand: see ~ops", "~ks", "kso1.4.1.2.00000000", "zażółć\n\0")

envelopes = st.builds(
    OffsetEnvelope,
    flags=st.integers(0, (1 << 64) - 1).map(CopyFlags) | st.just(CopyFlags.of(MAX_LEVEL)),
    timestamp_epoch_ms=st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    offset=st.integers(0, 1 << 63),
)


def sealed(body: str) -> str:
    """A valid checksum behind any body, written without the code under test."""
    return f"{body}.{crc32(body.encode()):08x}"


def composed(foreign: str, envelope: OffsetEnvelope = NOTE) -> str:
    text = compose_metadata(foreign, envelope)
    assert not isinstance(text, MetadataProblem)
    return text


@pytest.mark.parametrize("foreign", FOREIGN)
def test_without_an_envelope_everything_is_foreign(foreign: str) -> None:
    assert CommitMetadata(foreign, None) == parse_metadata(foreign)


@pytest.mark.parametrize("foreign", FOREIGN)
def test_foreign_metadata_is_kept_byte_for_byte(foreign: str) -> None:
    text = composed(foreign)
    assert text.startswith(foreign)
    assert CommitMetadata(foreign, NOTE) == parse_metadata(text)


@given(st.text(st.characters(codec="utf-8"), max_size=50), envelopes)
@example(sealed("~kso1.4.1.2"), NOTE)
def test_what_was_composed_is_parsed_again(foreign: str, envelope: OffsetEnvelope) -> None:
    assert CommitMetadata(foreign, envelope) == parse_metadata(composed(foreign, envelope))


def test_the_beginning_of_a_log_has_a_form_of_its_own() -> None:
    text = composed("", OffsetEnvelope(CopyFlags(1), None, 0))
    assert sealed("~kso1.1.b.0") == text


def test_an_envelope_of_another_version_is_reported_as_such() -> None:
    assert MetadataProblem.OTHER_FORMAT is parse_metadata(sealed("~kso2.4.1.2"))


@given(st.text(max_size=20), envelopes, st.data())
def test_no_truncated_or_altered_envelope_is_believed(
    foreign: str, envelope: OffsetEnvelope, data: st.DataObject
) -> None:
    whole = composed("", envelope)
    at = data.draw(st.integers(len("~kso"), len(whole) - 1))
    assert isinstance(parse_metadata(foreign + whole[:at]), MetadataProblem)
    other = data.draw(st.characters(codec="ascii").filter(lambda character: character != whole[at]))
    assert isinstance(parse_metadata(foreign + whole[:at] + other + whole[at + 1 :]), MetadataProblem)
    assert isinstance(parse_metadata(foreign + whole + other), MetadataProblem)


@pytest.mark.parametrize(
    "body",
    [
        "~kso1",
        "~kso",
        "~kso1.",
        "~kso1.4.1",
        "~kso1.-4.1.2",
        "~kso1.4.1.-2",
        "~kso1.04.1.2",
        "~kso1.4.01.2",
        "~kso1.4.1.02",
        "~kso1.4.-0.2",
        "~kso1.A.1.2",
        "~kso1.4.B.2",
        "~kso1.4.1.2.3",
        "~kso1.4. 1.2",
        "~kso1.4.\u0661.2",
        f"~kso1.4.{1 << 63}.2",
        f"~kso1.4.1.{(1 << 63) + 1}",
        f"~kso1.{1 << MAX_LEVEL:x}.1.2",
        f"~kso1.4.1.{'9' * 5_000}",
    ],
)
def test_an_envelope_in_any_other_form_is_damaged_even_with_a_valid_checksum(body: str) -> None:
    assert MetadataProblem.DAMAGED is parse_metadata(sealed(body))


def test_everything_fits_or_nothing_is_written() -> None:
    envelope = composed("")
    room = MAX_METADATA_BYTES - len(envelope)
    assert "x" * room + envelope == compose_metadata("x" * room, NOTE)
    assert MetadataProblem.TOO_LONG is compose_metadata("x" * (room + 1), NOTE)


def test_no_room_at_all_is_no_mistake() -> None:
    assert MetadataProblem.TOO_LONG is compose_metadata("", NOTE, 1)


@pytest.mark.parametrize("value", [NOTE, CommitMetadata("Ag", NOTE)], ids=lambda value: type(value).__name__)
def test_envelope_and_metadata_are_values(value: Any) -> None:
    assert not hasattr(value, "__dict__")
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, None)


def test_bytes_count_and_not_characters() -> None:
    envelope = composed("")
    assert "é" + envelope == compose_metadata("é", NOTE, len(envelope) + 2)
    assert MetadataProblem.TOO_LONG is compose_metadata("é", NOTE, len(envelope) + 1)


def test_the_greatest_envelope_fits_with_room_to_spare() -> None:
    text = composed("", OffsetEnvelope(CopyFlags((1 << MAX_LEVEL) - 1), -(1 << 63), 1 << 63))
    assert len(text) < MAX_METADATA_BYTES // 7


def test_what_is_no_utf8_is_not_sent() -> None:
    assert MetadataProblem.NOT_UTF8 is compose_metadata("\ud800", NOTE)


OFFSET = "be an int from 0 up to 63 bits"
TIMESTAMP = "be an int of at most 63 bits and a sign, or None"


@pytest.mark.parametrize(
    ("call", "arguments", "error"),
    [
        (parse_metadata, (b"",), ArgumentError("text", b"", "be a str")),
        (compose_metadata, (None, NOTE), ArgumentError("foreign", None, "be a str")),
        (compose_metadata, ("", None), ArgumentError("envelope", None, "be an OffsetEnvelope")),
        (compose_metadata, ("", NOTE, 0), ArgumentError("max_bytes", 0, "be an int of at least 1")),
        (OffsetEnvelope, (4, 1, 2), ArgumentError("flags", 4, "be a CopyFlags")),
        (OffsetEnvelope, (NOTE.flags, 1 << 63, 2), ArgumentError("timestamp_epoch_ms", 1 << 63, TIMESTAMP)),
        (
            OffsetEnvelope,
            (NOTE.flags, -(1 << 63) - 1, 2),
            ArgumentError("timestamp_epoch_ms", -(1 << 63) - 1, TIMESTAMP),
        ),
        (OffsetEnvelope, (NOTE.flags, 1.0, 2), ArgumentError("timestamp_epoch_ms", 1.0, TIMESTAMP)),
        (OffsetEnvelope, (NOTE.flags, 1, (1 << 63) + 1), ArgumentError("offset", (1 << 63) + 1, OFFSET)),
        (OffsetEnvelope, (NOTE.flags, 1, -2), ArgumentError("offset", -2, OFFSET)),
        (OffsetEnvelope, (NOTE.flags, 1, True), ArgumentError("offset", True, OFFSET)),
    ],
)
def test_a_bad_argument_is_named(
    call: Callable[..., object], arguments: tuple[object, ...], error: ArgumentError
) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(*arguments)
    assert error.args == caught.value.args
