"""Copy flags: which levels of a distribution tree a record has crossed, as one int, and how it travels in a header.

A record is distributed from cluster to cluster by one distributor for each level above its cluster. Each copy carries a
bit for every level that it has crossed. A distributor looks at its own bit and all lower ones: if one of them is set,
its work has been done already. A program that produces a record from another one must not hand on its flags:
`strip_distribution_headers`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self, TypeAlias

from keyshared._checks import check_int, check_several, check_text, checked_rows, configuration
from keyshared.errors import ArgumentError, SnapshotError

__all__ = [
    "COPY_FLAGS_HEADER",
    "DISTRIBUTION_PREFIXES",
    "MAX_LEVEL",
    "BigEndian",
    "CopyFlags",
    "FlagsCodec",
    "FlagsHeader",
    "Headers",
    "strip_distribution_headers",
]

MAX_LEVEL: Final = 2_048  # bounds what a forged header makes us compute: 256 bytes
COPY_FLAGS_HEADER: Final = "Axual-Copy-Flags"
DISTRIBUTION_PREFIXES: Final = ("Axual-",)

Headers: TypeAlias = Iterable[tuple[str, bytes | None]]
"""Headers of a record as Kafka has them: in order, names may repeat, values may be null."""


class CopyFlags(int):
    """A set of levels, as the int whose bit ``level - 1`` is set for each of them.

    Two things are such sets: the levels that a record has crossed, and the levels at which a cluster has distributors.
    It is an int in every respect; operators of int return plain ints. A level is an int from 1 to `MAX_LEVEL`, any
    other an `ArgumentError`.

    Args:
        flags: The int; 0 for a record that was produced just now.

    Source:
        Axual "Distribution model", Copy flags and algorithm.

    Example:
        >>> flags = CopyFlags(0b100)
        >>> flags.is_due(3), flags.is_due(1), flags.crossing(1)
        (False, True, CopyFlags(0b101))
        >>> flags.due(CopyFlags.of(3, 1)).levels
        (1,)
    """

    __slots__ = ()

    def __new__(cls, flags: int = 0) -> Self:
        """Check the int; see the class."""
        if type(flags) not in _INTS or not 0 <= flags < 1 << MAX_LEVEL:
            raise ArgumentError("flags", flags, f"be an int of at least 0 and at most {MAX_LEVEL} bits")
        return super().__new__(cls, flags)

    @classmethod
    def of(cls, *levels: int) -> Self:
        """Build the set of these levels, in any order.

        Example:
            >>> CopyFlags.of(1, 3)
            CopyFlags(0b101)
        """
        flags = 0
        for level in levels:
            flags |= cls.bit(level)
        return cls(flags)

    @staticmethod
    def bit(level: int) -> int:
        """Return the bit that a copy across a level sets: ``1 << (level - 1)``."""
        _check_level(level)
        return 1 << (level - 1)

    @staticmethod
    def mask(level: int) -> int:
        """Return the bits that a distributor looks at, its own and all lower ones: ``(1 << level) - 1``.

        A lower bit says that the record came from the distributor's own side of the tree, whose other clusters do not
        distribute it any further up; looking at the own bit only makes duplicates.
        """
        _check_level(level)
        return (1 << level) - 1

    def is_due(self, level: int) -> bool:
        """Return whether the distributor of a level has work to do: no flag of its level or of a lower one is set."""
        return not self & self.mask(level)

    def due(self, levels: int) -> "CopyFlags":
        """Return which of a cluster's distributors, given as a set of levels, have work to do. Unchecked; O(1).

        They are those below the lowest flag that is set; without any flag, all of them.

        Example:
            >>> cluster_2 = CopyFlags.of(3, 2, 1)
            >>> [CopyFlags(flags).due(cluster_2).levels for flags in (0b000, 0b100, 0b010, 0b101)]
            [(3, 2, 1), (2, 1), (1,), ()]
        """
        # of no flag the lowest is 0, and 0 - 1 has all bits set
        return int.__new__(CopyFlags, levels & ((self & -self) - 1))

    def crossing(self, level: int) -> "CopyFlags":
        """Return the flags of the copy that the distributor of a level makes: these and that of the level."""
        return CopyFlags(self | self.bit(level))

    @property
    def levels(self) -> tuple[int, ...]:
        """The members of the set, the highest first: the order in which a record crosses them."""
        found = []
        rest = int(self)
        while rest:
            level = rest.bit_length()
            found.append(level)
            rest ^= 1 << (level - 1)
        return tuple(found)

    def __repr__(self) -> str:
        return f"CopyFlags({bin(self)})"


class FlagsCodec(Protocol):
    """A way to write flags into a header. A value."""

    def encode(self, flags: CopyFlags) -> bytes:
        """Return flags as bytes that `decode` reads."""
        ...

    def decode(self, data: bytes) -> CopyFlags:
        """Return the flags of a header's bytes; SnapshotError if these are none."""
        ...


@dataclass(frozen=True, slots=True)
class BigEndian:
    r"""Flags as an unsigned int, the most significant byte first.

    ``width`` is the number of bytes of every header, such as 8 for a Java ``long``; None for as few as the flags need,
    at least one. Axual names the header and calls it a bit mask, but does not publish its bytes; so they are a choice
    here.

    Example:
        >>> BigEndian().encode(CopyFlags(0b101)), BigEndian(width=4).encode(CopyFlags(0b101))
        (b'\x05', b'\x00\x00\x00\x05')
    """

    width: int | None = None

    @configuration()
    def __post_init__(self) -> None:
        if self.width is not None:
            check_int("width", self.width, 1, ", or None", most=MAX_LEVEL // 8)

    def encode(self, flags: CopyFlags) -> bytes:
        """See `FlagsCodec.encode`; ArgumentError if the flags need more bytes than ``width``."""
        flags = CopyFlags(flags)
        needed = (flags.bit_length() + 7) // 8 or 1
        width = needed if self.width is None else self.width
        if needed > width:
            raise ArgumentError("flags", flags, f"fit into {width} bytes; use lower levels or a wider codec")
        return flags.to_bytes(width, "big")

    def decode(self, data: bytes) -> CopyFlags:
        """See `FlagsCodec.decode`."""
        if not isinstance(data, bytes):
            raise SnapshotError("copy flags", data, "be bytes")
        most = MAX_LEVEL // 8
        if len(data) != self.width if self.width is not None else not 1 <= len(data) <= most:
            size = f"from 1 to {most}" if self.width is None else self.width
            raise SnapshotError("copy flags", data[: most + 1], f"be {size} bytes")
        return CopyFlags(int.from_bytes(data, "big"))


@dataclass(frozen=True, slots=True)
class FlagsHeader:
    r"""Where the flags of a record are: reads and writes them among its other headers.

    Args:
        name: Name of the header. Case counts, as in Kafka.
        codec: How its bytes are meant.

    Example:
        >>> header = FlagsHeader()
        >>> header.read([("trace", b"7")])
        CopyFlags(0b0)
        >>> header.write([("trace", b"7"), ("Axual-Copy-Flags", b"\x04")], CopyFlags(0b101))
        [('trace', b'7'), ('Axual-Copy-Flags', b'\x05')]
    """

    name: str = COPY_FLAGS_HEADER
    codec: FlagsCodec = field(default_factory=BigEndian)

    @configuration()
    def __post_init__(self) -> None:
        check_text("name", self.name)
        if not all(callable(getattr(self.codec, method, None)) for method in ("encode", "decode")):
            raise ArgumentError("codec", self.codec, "be a FlagsCodec such as BigEndian()")

    def read(self, headers: Headers) -> CopyFlags:
        """Return the flags of a record with these headers: no flag if the header is missing, as of a fresh record.

        Of several headers of the name the last one counts, as in Kafka.

        Raises:
            SnapshotError: The header is there but holds no flags. There is no safe guess: none set would send the
                record in circles, all set would lose it.
        """
        found = [value for name, value in _named(headers) if name == self.name]
        if not found:
            return CopyFlags()
        if found[-1] is None:
            raise SnapshotError("copy flags", None, "be bytes")
        return self.codec.decode(found[-1])

    def write(self, headers: Headers, flags: CopyFlags) -> list[tuple[str, bytes | None]]:
        """Return the headers of a copy: the other headers as they were, then the flags, once."""
        kept = [(name, value) for name, value in _named(headers) if name != self.name]
        return [*kept, (self.name, self.codec.encode(flags))]


def strip_distribution_headers(
    headers: Headers, prefixes: Sequence[str] = DISTRIBUTION_PREFIXES
) -> list[tuple[str, bytes | None]]:
    r"""Return the headers for a record that is produced from another one.

    Streams, connectors and mirrors copy headers through. A record that keeps the flags of the one it was made of never
    leaves its cluster, or reaches only some of them: a program that re-produces records calls this. It removes headers
    whose names begin with one of ``prefixes`` (case counts); the order of the others stays.

    Source:
        Axual strips its own headers with an interceptor, by name; differs: by prefix, so that a new one is not missed.

    Example:
        >>> strip_distribution_headers([("Axual-Copy-Flags", b"\x05"), ("trace", b"7"), ("Axual-Message-Id", b"1")])
        [('trace', b'7')]
    """
    wanted = tuple(check_text("prefixes", prefix) for prefix in check_several("prefixes", prefixes, "prefixes"))
    return [(name, value) for name, value in _named(headers) if not name.startswith(wanted)]


def _named(headers: Headers) -> Iterator[tuple[str, bytes | None]]:
    """Check that headers have names: one in bytes would be equal to no name, and its flags would pass for none."""
    for row in checked_rows("header", headers, 2, "a name and a value"):
        name, value = row
        if not isinstance(name, str):
            raise ArgumentError("header", row, "have a str for its name")
        yield name, value


_INTS: Final = frozenset({int, CopyFlags})  # a bool is no set of levels


def _check_level(level: object) -> None:
    check_int("level", level, 1, most=MAX_LEVEL)
