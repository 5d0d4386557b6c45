r"""Glob patterns over keys, and a consumer's filter made of them.

In a pattern ``*`` stands for any run of characters, also none, and ``?`` for exactly one character; a backslash takes
the special meaning from the next character (``\*``, ``\?``, ``\\``). All else stands for itself: there are no classes
and no braces, and ``/`` and leading dots are ordinary. The whole key must match, case counts.

Keys are bytes. Characters are those of the key read as UTF-8; every byte that is not valid UTF-8 is one character,
which only ``*`` and ``?`` match.

A pattern is a row of parts between stars. Each part is looked for once, at the leftmost place after the part before: if
any match exists, one with leftmost parts does. So no star is ever tried again. The cost is O(len(key) * len(pattern)),
whatever the pattern, and patterns that are neither one key nor a prefix have at most `MAX_PATTERN` characters.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from keyshared._checks import check_kind, check_several
from keyshared.errors import ArgumentError
from keyshared.hashing import Key, key_bytes, required_key_bytes

__all__ = ["MAX_PATTERN", "MAX_TRIED", "Glob", "KeyFilter"]

MAX_PATTERN: Final = 256
"""Characters of a pattern with ``?`` or stars, unless there are only stars, at the end."""

MAX_TRIED: Final = 100
"""Patterns of a filter that are neither one key nor a prefix: each of them is tried for a new key."""

_ESCAPE: Final = "\\"
_STAR: Final = "*"
_ANY_ONE: Final = "?"

_Token: TypeAlias = tuple[bool, str]  # (has a special meaning, character)


class Glob:
    r"""One pattern, compiled; an immutable value.

    Args:
        pattern: The pattern.
        danube_compat: Match as Danube v0.15.1 means to: ``?`` is one *byte* of UTF-8, and there is no escape. Its fault
            with keys that hold a star (key ``a*x`` does not match its ``a*``) is not copied.

    Raises:
        ArgumentError: The pattern is no text, cannot be written in UTF-8, ends in a lone backslash, or is longer than
            `MAX_PATTERN` and neither one key nor a prefix.

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
        only_at_end = bool(special) and all(token == (True, _STAR) for token in tokens[special[0] :])
        self._prefix = literal if only_at_end else None
        if special and self._prefix is None and len(pattern) > MAX_PATTERN:
            needs = f"have at most {MAX_PATTERN} characters, or no ? and no other stars than at the end"
            raise ArgumentError("pattern", pattern, needs)
        self._match: Callable[[bytes], bool]
        if not special:
            self._match = literal.__eq__
        elif only_at_end:  # no regular expression: a filter may have thousands of prefixes
            self._match = lambda data: data.startswith(literal)
        else:
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
        """Return whether the whole key matches. O(len(key) * len(pattern)).

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
        ArgumentError: A pattern is not one, a single text was given instead of several, or more than `MAX_TRIED`
            patterns are neither one key nor a prefix.

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
        if len(self._general) > MAX_TRIED:
            needs = f"have at most {MAX_TRIED} patterns that are neither one key nor a prefix"
            raise ArgumentError("patterns", self._patterns, needs)
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


def _compiled(tokens: list[_Token], *, in_bytes: bool) -> Callable[[bytes], bool]:
    pattern = _expression(tokens)
    if in_bytes or (True, _ANY_ONE) not in tokens:
        # characters and bytes are the same question without a ?: no character's UTF-8 starts inside another's
        match_bytes = re.compile(pattern.encode(), re.DOTALL).fullmatch
        return lambda data: match_bytes(data) is not None
    match_text = re.compile(pattern, re.DOTALL).fullmatch
    return lambda data: match_text(data.decode(errors="surrogateescape")) is not None


def _expression(tokens: list[_Token]) -> str:
    """Return the regular expression; a part between two stars is atomic, so that it stays at its leftmost place."""
    parts = [""]
    for is_special, char in tokens:
        if is_special and char == _STAR:
            parts.append("")
        else:
            parts[-1] += "." if is_special else re.escape(char)
    if len(parts) == 1:
        return parts[0]
    head, *middle, tail = parts
    return f"{head}{''.join(f'(?>.*?{part})' for part in middle if part)}.*{tail}"
