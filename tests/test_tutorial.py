"""The program that the tutorial ends with survives what the tutorial does to it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[1] / "examples" / "tutorial" / "consumer.py"
ORDERS = 1_200
CUSTOMERS = 7
WAITS_S = 60.0


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    orders = [{"number": n, "customer": f"customer-{n % CUSTOMERS}", "amount": n % 20} for n in range(ORDERS)]
    (tmp_path / "orders.jsonl").write_text("\n".join(map(json.dumps, orders)) + "\n")
    return tmp_path


def begin(shop: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-W", "error", PROGRAM, shop])


def charges(shop: Path) -> list[tuple[str, int]]:
    file = shop / "charges.log"
    lines = file.read_text().splitlines() if file.exists() else []
    return [(customer, int(number)) for customer, number in (line.split() for line in lines)]


def rejected(shop: Path) -> set[int]:
    return {int(line.split()[0]) for line in (shop / "rejected.log").read_text().splitlines()}


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + WAITS_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def stop_after(shop: Path, count: int, by: signal.Signals) -> int:
    """Begin, and send a signal when so many charges are made; return how it ended."""
    process = begin(shop)
    wait_until(lambda: len(charges(shop)) >= count)
    os.kill(process.pid, by)
    return process.wait(WAITS_S)


def assert_in_order(life: list[tuple[str, int]]) -> None:
    for customer in {customer for customer, _ in life}:
        numbers = [number for other, number in life if other == customer]
        assert numbers == sorted(set(numbers))


def test_it_survives_kill_9_twice_and_loses_nothing(shop: Path) -> None:
    ends = [0]
    for count in (150, 400):
        assert -signal.SIGKILL == stop_after(shop, count, signal.SIGKILL)
        ends.append(len(charges(shop)))
    assert 0 == begin(shop).wait(WAITS_S)

    made = charges(shop)
    for start, end in zip(ends, [*ends[1:], len(made)], strict=True):
        assert_in_order(made[start:end])
    assert {number for _, number in made} == {n for n in range(ORDERS) if n % 20}
    assert rejected(shop) == {n for n in range(ORDERS) if not n % 20}
    assert ORDERS == json.loads((shop / "position.json").read_text())[0]


def test_after_a_stop_in_order_nothing_is_done_twice(shop: Path) -> None:
    assert 0 == stop_after(shop, 150, signal.SIGTERM)
    assert len(charges(shop)) < ORDERS
    assert 0 == begin(shop).wait(WAITS_S)

    made = charges(shop)
    assert_in_order(made)
    assert {number for _, number in made} == {n for n in range(ORDERS) if n % 20}
