r"""Glob patterns over keys, and a consumer's filter made of them.

In a pattern ``*`` stands for any run of characters, also none, and ``?`` for exactly one character; a backslash takes
the special meaning from the next character (``\*``, ``\?``, ``\\``). All else stands for itself: there are no classes
and no braces, and ``/`` and leading dots are ordinary. The whole key must match, case counts.

Keys are bytes. Characters are those of the key read as UTF-8; every byte that is not valid UTF-8 is one character,
which only ``*`` and ``?`` match.

A pattern is a row of chunks between stars. Each chunk is looked for once, at the leftmost place after the chunk before:
if any match exists, one with leftmost chunks does. So nothing is ever tried again. A chunk with ``?`` is looked for by
its first literal; where that stands at too many wrong places, all places are followed at once, one bit for each. The
cost is O(len(key) + len(pattern)), whatever the pattern: a chunk between two stars that holds ``?`` has at most
`MAX_GAP_CHUNK` characters, and longer ones are refused.
"""

from collections.abc import Callable, Iterable
from typing import AnyStr, Final, Generic, TypeAlias

from keyshared._checks import check_kind, check_several
from keyshared.errors import ArgumentError
from keyshared.hashing import Key, key_bytes, required_key_bytes

__all__ = ["MAX_GAP_CHUNK", "Glob", "KeyFilter"]

MAX_GAP_CHUNK: Final = 1_024
"""Characters (bytes with ``danube_compat``) between two stars, if there is a ``?`` among them."""

_ESCAPE: Final = "\\"
_STAR: Final = "*"
_ANY_ONE: Final = "?"

_TRIES: Final = 8  # wrong places of a chunk's first literal before all places are followed at once

_Token: TypeAlias = tuple[bool, str]  # (has a special meaning, character)


class _Chunk(Generic[AnyStr]):
    """The part of a pattern between two stars: literal pieces at fixed places, and one-character gaps between them."""

    __slots__ = ("_anywhere", "_first", "_first_at", "_masks", "_pieces", "length")

    _first: AnyStr
    _pieces: list[tuple[int, AnyStr]]

    def __init__(self, pieces: list[tuple[int, AnyStr]], length: int, nothing: AnyStr) -> None:
        self._first_at, self._first = pieces[0] if pieces else (0, nothing)
        self._pieces = pieces[1:]
        self.length = length
        # bit i: what may stand at place i of the chunk, by character, and whatever the character; only `_follow` asks
        self._masks: dict[str | int, int] = {}
        self._anywhere = (1 << length) - 1
        for at, piece in pieces if self._pieces and length <= MAX_GAP_CHUNK else ():
            for place, char in enumerate(piece, start=at):
                self._masks[char] = self._masks.get(char, 0) | 1 << place
                self._anywhere &= ~(1 << place)

    def is_at(self, text: AnyStr, place: int) -> bool:
        """Return whether the chunk matches at a place from which the text is long enough."""
        return text.startswith(self._first, place + self._first_at) and self._rest_is_at(text, place)

    def find(self, text: AnyStr, start: int, stop: int) -> int:
        """Return the leftmost place of the chunk within ``text[start:stop]``, or -1."""
        first, first_at = self._first, self._first_at
        last = stop - self.length
        place = start
        for _ in range(_TRIES):
            # the search for the first piece is the interpreter's own: only its hits are looked at here
            place = text.find(first, place + first_at, stop) - first_at
            if place < 0 or place > last:
                return -1
            if self._rest_is_at(text, place):
                return place
            place += 1
        return self._follow(text, place, stop)

    def _follow(self, text: AnyStr, start: int, stop: int) -> int:
        """Find as `find` does, one character at a time: bit i says that the chunk fits up to its place i so far."""
        masks, anywhere, whole = self._masks.get, self._anywhere, 1 << self.length - 1
        fits = 0
        for at in range(start, stop):
            fits = (fits << 1 | 1) & (masks(text[at], 0) | anywhere)
            if fits & whole:
                return at + 1 - self.length
        return -1

    def _rest_is_at(self, text: AnyStr, place: int) -> bool:
        for at, piece in self._pieces:  # noqa: SIM110 - all() would cost more than the rest
            if not text.startswith(piece, place + at):
                return False
        return True


class _GapMatcher(Generic[AnyStr]):
    """A compiled pattern with ``?``, over text or over bytes."""

    __slots__ = ("_head", "_least", "_middle", "_tail")

    _head: _Chunk[AnyStr]
    _middle: list[_Chunk[AnyStr]]
    _tail: _Chunk[AnyStr] | None

    def __init__(self, chunks: list[_Chunk[AnyStr]]) -> None:
        self._head = chunks[0]
        self._tail = chunks[-1] if len(chunks) > 1 else None  # None: no star at all
        self._middle = [chunk for chunk in chunks[1:-1] if chunk.length]
        self._least = sum(chunk.length for chunk in chunks)

    def matches(self, text: AnyStr) -> bool:
        size = len(text)
        if self._tail is None:
            return size == self._least and self._head.is_at(text, 0)
        stop = size - self._tail.length
        if size < self._least or not self._head.is_at(text, 0) or not self._tail.is_at(text, stop):
            return False
        place = self._head.length
        for chunk in self._middle:
            place = chunk.find(text, place, stop)
            if place < 0:
                return False
            place += chunk.length
        return True


class _TextMatcher(_GapMatcher[str]):
    """A compiled pattern whose ``?`` is a character, over bytes that are read as UTF-8."""

    __slots__ = ()

    def matches_bytes(self, data: bytes) -> bool:
        return self.matches(data.decode(errors="surrogateescape"))


class _LiteralMatcher:
    """A compiled pattern of literals and stars only: the usual one, and several times quicker."""

    __slots__ = ("_head", "_least", "_middle", "_tail")

    def __init__(self, literals: list[bytes]) -> None:
        self._head, *middle, self._tail = literals
        self._middle = [literal for literal in middle if literal]
        self._least = sum(map(len, literals))

    def matches(self, data: bytes) -> bool:
        if len(data) < self._least or not data.startswith(self._head) or not data.endswith(self._tail):
            return False
        place, stop = len(self._head), len(data) - len(self._tail)
        for literal in self._middle:
            place = data.find(literal, place, stop)
            if place < 0:
                return False
            place += len(literal)
        return True


class Glob:
    r"""One pattern, compiled; an immutable value.

    Args:
        pattern: The pattern.
        danube_compat: Match as Danube v0.15.1 means to: ``?`` is one *byte* of UTF-8, and there is no escape. Its fault
            with keys that hold a star (key ``a*x`` does not match its ``a*``) is not copied.

    Raises:
        ArgumentError: The pattern is no text, cannot be written in UTF-8, ends in a lone backslash, or has more than
            `MAX_GAP_CHUNK` characters between two stars with a ``?`` among them.

    Source:
        Danube "Key-Shared Dispatch Architecture", Key Filtering; differs: characters instead of bytes, and an escape.

    Example:
        >>> Glob("eu-west-?").matches("eu-west-1"), Glob("eu-west-?").matches("eu-west-12")
        (True, False)
        >>> Glob(r"a\*").matches("a*"), Glob(r"a\*").matches("ab")
        (True, False)
    """

    __slots__ = ("_danube_compat", "_exact", "_match", "_pattern", "_prefix")

    def __init__(self, pattern: str, *, danube_compat: bool = False) -> None:
        tokens = _tokens(_checked_pattern(pattern), escape=not danube_compat)
        self._pattern = pattern
        self._danube_compat = danube_compat
        special = [index for index, token in enumerate(tokens) if token[0]]
        literal = "".join(char for is_special, char in tokens if not is_special).encode()
        self._exact = literal if not special else None
        only_last = special == [len(tokens) - 1] and tokens[-1][1] == _STAR
        only_stars = bool(tokens) and all(token == (True, _STAR) for token in tokens)
        self._prefix = literal if only_last or only_stars else None
        _check_gaps(pattern, tokens, in_bytes=danube_compat)
        self._match = _compiled(tokens, in_bytes=danube_compat)

    @property
    def pattern(self) -> str:
        """The pattern as it was given."""
        return self._pattern

    @property
    def danube_compat(self) -> bool:
        """Whether ``?`` is a byte and a backslash ordinary."""
        return self._danube_compat

    @property
    def exact(self) -> bytes | None:
        """The only key that matches; None if the pattern holds ``*`` or ``?``."""
        return self._exact

    @property
    def prefix(self) -> bytes | None:
        """The prefix that a key must have to match, if that is all; None for other patterns."""
        return self._prefix

    def matches(self, key: str | bytes) -> bool:
        """Return whether the whole key matches. O(len(key) + len(pattern)).

        Raises `KeyTypeError`, and `ArgumentError` for None.
        """
        return self._match(required_key_bytes(key))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Glob):
            return NotImplemented
        return self._pattern == other._pattern and self._danube_compat == other._danube_compat

    def __hash__(self) -> int:
        return hash((self._pattern, self._danube_compat))

    def __repr__(self) -> str:
        return f"Glob({self._pattern!r}{', danube_compat=True' if self._danube_compat else ''})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle_glob, (self._pattern, self._danube_compat)


class KeyFilter:
    """The keys that a consumer accepts, those that match any of its patterns: an immutable value.

    Args:
        patterns: Patterns as in `Glob`, in any order. None at all accept every key; an empty one accepts the empty key.
        danube_compat: As in `Glob`.

    Raises:
        ArgumentError: A pattern is not one, or a single text was given instead of several.

    Complexity:
        To accept: O(len(key)) for exact patterns and prefixes however many exact ones there are, and each other pattern
        tried in turn.

    Source:
        Danube "Key-Shared Dispatch Architecture", Key Filtering.

    Example:
        >>> wanted = KeyFilter(["payment", "ship*"])
        >>> [key for key in (b"payment", b"shipping", b"payments") if wanted.accepts(key)]
        [b'payment', b'shipping']
    """

    __slots__ = ("_accepts_all", "_danube_compat", "_exact", "_general", "_globs", "_patterns", "_prefixes")

    def __init__(self, patterns: Iterable[str] = (), *, danube_compat: bool = False) -> None:
        check_several("patterns", patterns, "patterns")
        globs = tuple(dict.fromkeys(Glob(pattern, danube_compat=danube_compat) for pattern in patterns))
        self._globs = globs
        self._patterns = tuple(glob.pattern for glob in globs)
        self._danube_compat = danube_compat
        self._exact = frozenset(glob.exact for glob in globs if glob.exact is not None)
        self._prefixes = tuple(dict.fromkeys(glob.prefix for glob in globs if glob.prefix is not None))
        self._general = tuple(
            glob._match  # noqa: SLF001 - compiled here and handed nothing but bytes
            for glob in globs
            if glob.exact is None and glob.prefix is None
        )
        self._accepts_all = not globs or b"" in self._prefixes

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns as they were given, each once."""
        return self._patterns

    @property
    def globs(self) -> tuple[Glob, ...]:
        """The patterns, compiled, each once."""
        return self._globs

    @property
    def accepts_all(self) -> bool:
        """Whether no key is ever refused: there are no patterns, or one is made of stars only."""
        return self._accepts_all

    @property
    def takes_keyless(self) -> bool:
        """Whether messages without a key may come here: there are no patterns, or one is ``"*"``."""
        return not self._patterns or _STAR in self._patterns

    def accepts(self, key: Key) -> bool:
        """Return whether a message with this key may come here; None asks as `takes_keyless`. Raises `KeyTypeError`."""
        data = key if key.__class__ is bytes else key_bytes(key)
        if data is None:
            return self.takes_keyless
        if self._accepts_all or data in self._exact or data.startswith(self._prefixes):
            return True
        for match in self._general:  # noqa: SIM110 - any() with a generator costs more than most patterns
            if match(data):
                return True
        return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, KeyFilter):
            return NotImplemented
        same = self._danube_compat == other._danube_compat
        return same and frozenset(self._patterns) == frozenset(other._patterns)

    def __hash__(self) -> int:
        return hash((frozenset(self._patterns), self._danube_compat))

    def __repr__(self) -> str:
        return f"KeyFilter({list(self._patterns)!r}{', danube_compat=True' if self._danube_compat else ''})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle_filter, (self._patterns, self._danube_compat)


def _unpickle_glob(pattern: str, danube_compat: bool) -> Glob:
    return Glob(pattern, danube_compat=danube_compat)


def _unpickle_filter(patterns: tuple[str, ...], danube_compat: bool) -> KeyFilter:
    return KeyFilter(patterns, danube_compat=danube_compat)


def _checked_pattern(pattern: object) -> str:
    pattern = check_kind("pattern", pattern, str)
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise ArgumentError("pattern", pattern, "be a str that UTF-8 can express") from None
    return pattern


def _tokens(pattern: str, *, escape: bool) -> list[_Token]:
    """Separate special characters from those that stand for themselves."""
    tokens: list[_Token] = []
    chars = iter(pattern)
    for char in chars:
        if escape and char == _ESCAPE:
            escaped = next(chars, None)
            if escaped is None:
                raise ArgumentError("pattern", pattern, r"not end in a lone backslash; write \\ for a backslash")
            tokens.append((False, escaped))
        else:
            tokens.append((char in {_STAR, _ANY_ONE}, char))
    return tokens


def _split(tokens: list[_Token]) -> list[list[str | None]]:
    """Cut at the stars; None is any one character."""
    chunks: list[list[str | None]] = [[]]
    for is_special, char in tokens:
        if is_special and char == _STAR:
            chunks.append([])
        else:
            chunks[-1].append(None if is_special else char)
    return chunks


def _check_gaps(pattern: str, tokens: list[_Token], *, in_bytes: bool) -> None:
    """Check what is searched for place by place: chunks at the ends have one place only."""
    for chunk in _split(tokens)[1:-1]:
        if None not in chunk:
            continue
        length = sum(len(char.encode()) if in_bytes and char is not None else 1 for char in chunk)
        if length > MAX_GAP_CHUNK:
            requirement = f"have at most {MAX_GAP_CHUNK} characters between two stars if there is a ? among them"
            raise ArgumentError("pattern", pattern, requirement)


def _compiled(tokens: list[_Token], *, in_bytes: bool) -> Callable[[bytes], bool]:
    if not any(is_special for is_special, _ in tokens):
        return "".join(char for _, char in tokens).encode().__eq__
    if (True, _ANY_ONE) not in tokens:
        # characters and bytes are the same question here, because no character's UTF-8 starts inside another's
        return _LiteralMatcher(["".join(filter(None, chars)).encode() for chars in _split(tokens)]).matches
    if in_bytes:
        return _GapMatcher(_byte_chunks(tokens)).matches
    return _TextMatcher(_text_chunks(tokens)).matches_bytes


def _text_chunks(tokens: list[_Token]) -> list[_Chunk[str]]:
    return [
        _Chunk([(at, "".join(run)) for at, run in _literal_runs(chars)], len(chars), "") for chars in _split(tokens)
    ]


def _byte_chunks(tokens: list[_Token]) -> list[_Chunk[bytes]]:
    chunks = []
    for chars in _split(tokens):
        units: list[bytes | None] = []
        for char in chars:
            units += [None] if char is None else [bytes([byte]) for byte in char.encode()]
        chunks.append(_Chunk([(at, b"".join(run)) for at, run in _literal_runs(units)], len(units), b""))
    return chunks


def _literal_runs(units: list[AnyStr | None]) -> list[tuple[int, list[AnyStr]]]:
    """Group the units between gaps, each run with its place."""
    runs: list[tuple[int, list[AnyStr]]] = []
    previous: AnyStr | None = None
    for at, unit in enumerate(units):
        if unit is not None:
            if previous is None:
                runs.append((at, []))
            runs[-1][1].append(unit)
        previous = unit
    return runs
