"""Keys of every kind, for tests that compare Spark's answers with Python's."""

from random import Random
from typing import Final

SOME_TEXTS: Final = ["", " ", "a", "order-1", "é", "日本語", "🙂", "\x00", "a\x00b", "x" * 10_000, "e\u0301", "'\"\\,"]
SOME_BYTES: Final = [b"", b"\x00", b"\xff\xfe", bytes(range(256)), b"x" * 100_000]

_BLOCKS: Final = [range(32, 127), range(0xA0, 0xD800), range(0x1F600, 0x1F640)]


def random_texts(count: int, *, seed: int = 1) -> list[str]:
    rng = Random(seed)
    return ["".join(chr(rng.choice(rng.choice(_BLOCKS))) for _ in range(rng.randrange(40))) for _ in range(count)]


def random_bytes(count: int, *, seed: int = 2) -> list[bytes]:
    rng = Random(seed)
    return [rng.randbytes(rng.randrange(60)) for _ in range(count)]
