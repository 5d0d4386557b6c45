"""Why effects are tuples: what building one costs, against the frozen dataclass that would say the same."""

from dataclasses import dataclass

from pytest_benchmark.fixture import BenchmarkFixture

from keyshared.effects import Deliver


@dataclass(frozen=True, kw_only=True, slots=True)
class DeliverDataclass:
    offset: int
    key: bytes | None
    consumer: str
    attempt: int
    failures: int
    item: object


def test_build_tuple(benchmark: BenchmarkFixture) -> None:
    built = benchmark(Deliver, 7, b"k", "c1", 1, 0, None)
    assert built.receipt == (7, "c1", 1)


def test_build_dataclass(benchmark: BenchmarkFixture) -> None:
    built = benchmark(DeliverDataclass, offset=7, key=b"k", consumer="c1", attempt=1, failures=0, item=None)
    assert built.offset == 7
