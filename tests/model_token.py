"""How long the text of a token is, for the model: written down each time, from integers that are settled."""

from collections.abc import Iterable

from keyshared.cursor.token import Position, write_token

__all__ = ["token_length"]


def token_length(resume: int | None, safe: int | None, settled: Iterable[tuple[int, int]]) -> int:
    """The length of the text that names a position and all stretches above it, of which some may overlap or touch."""
    above = sorted((start, stop) for start, stop in settled if start < stop and resume is not None and start > resume)
    joined: list[tuple[int, int]] = []
    for start, stop in above:
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    return len(write_token(Position(resume, safe, joined), 1 << 20)[0])
