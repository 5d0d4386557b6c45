"""Simulated messages for each second of one core: rows alone, with their summary, with their deliveries."""

from collections.abc import Callable, Iterator
from statistics import median
from time import process_time_ns

from keyshared.simulate import (
    Arrival,
    Fixed,
    Group,
    Pace,
    SimulatedConsumer,
    Simulation,
    simulated_deliveries,
    summarize,
)

MESSAGES = 50_000
KEYS = 1_000
REPEATS = 5
CONSUMERS = [SimulatedConsumer(name, Fixed(3)) for name in ("a", "b", "c", "d")]
PACED = Group(consumers=CONSUMERS)
BACKLOG = Group(consumers=CONSUMERS, pace=Pace.BACKLOG)


def arrivals() -> Iterator[Arrival]:
    return (Arrival(offset, b"key-%d" % (offset * 7919 % KEYS), at_ms=offset) for offset in range(MESSAGES))


def rows() -> None:
    for _ in Simulation(PACED, arrivals()):
        pass


def delivery_rows() -> None:
    for _ in simulated_deliveries(PACED, arrivals()):
        pass


def main() -> None:
    cases: dict[str, Callable[[], object]] = {
        "rows": rows,
        "deliveries": delivery_rows,
        "rows and summary": lambda: summarize(PACED, arrivals()),
        "backlog (nearly all spilled) and summary": lambda: summarize(BACKLOG, arrivals()),
    }
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(REPEATS):
        for name, run in cases.items():
            started = process_time_ns()
            run()
            times[name].append((process_time_ns() - started) / MESSAGES)
    print(f"{MESSAGES} messages, {KEYS} keys, {len(CONSUMERS)} consumers, median of {REPEATS} interleaved repeats")
    for name, nanoseconds in times.items():
        print(f"{name:42}{median(nanoseconds) / 1000:8.2f} us{1e9 / median(nanoseconds):12,.0f} messages/s")


if __name__ == "__main__":
    main()
