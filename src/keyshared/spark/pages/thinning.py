"""Which points of a long line are shown. Plain Python; needs no Spark."""

from collections.abc import Sequence
from typing import Final

__all__ = ["thinned"]

_POINTS: Final = 720  # of a line: more cannot be told apart


def thinned(points: Sequence[tuple[float, float]], *, limit: int = _POINTS) -> tuple[tuple[float, float], ...]:
    """Leave out points that cannot be seen, but never a peak.

    Args:
        points: (time, value) in order of time.
        limit: About how many to keep.

    Returns:
        All points if there are few; else the first, the last, and the highest and the lowest of each of ``limit / 2``
        slices of time.

    Example:
        >>> thinned([(t, 9 if t == 501 else 0) for t in range(1000)], limit=4)
        ((0, 0), (500, 0), (501, 9), (999, 0))
    """
    if len(points) <= limit:
        return tuple(points)
    first, last = points[0][0], points[-1][0]
    width = (last - first) / (limit // 2) or 1
    slices: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        slices.setdefault(int((point[0] - first) / width), []).append(point)
    kept = {points[0], points[-1]}
    for inside in slices.values():
        kept |= {max(inside, key=_value), min(inside, key=_value)}
    return tuple(sorted(kept))


def _value(point: tuple[float, float]) -> float:
    return point[1]
