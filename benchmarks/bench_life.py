"""The life of a message, from offer to ack: the dispatcher and its window against a hand-written per-key FIFO in the same run."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from benchmarks import _subjects as subjects
from benchmarks._harness import Report, Row, Scale, Timed, Verdict, timed, turns
from benchmarks._subjects import Driver, Subject

WINDOW = 10_000
HOT_KEYS = 100
ZIPF_KEYS = 10_000
COUNTS = (10_000, 100_000, 1_000_000)
REPEATS = 3
STEPS = 20_000
WAITING = (10_000, 100_000, 1_000_000)

DISPATCHER_BOUND = 4.0
WINDOW_BOUND = 2.0
FLAT_BOUND = 1.3

Keys = list[bytes]


def unique_keys(count: int) -> Keys:
    return [b"customer-%d" % number for number in range(count)]


def hot_keys(count: int) -> Keys:
    names = unique_keys(HOT_KEYS)
    return [names[number % HOT_KEYS] for number in range(count)]


def zipf_keys(count: int) -> Keys:
    """Keys of which the n-th is n times as rare as the first: that one has a tenth of the traffic."""
    names = unique_keys(ZIPF_KEYS)
    heights = list(accumulate(1 / rank for rank in range(1, ZIPF_KEYS + 1)))
    return Random(1).choices(names, cum_weights=heights, k=count)


def picks(count: int) -> list[int]:
    """Which of the held deliveries is acked next."""
    draw = Random(2).randrange
    return [draw(1 << 30) for _ in range(count)]


@dataclass(frozen=True)
class Load:
    """What is sent, and how much of it is outstanding; ``spills`` if the dispatcher drops and loads payloads then."""

    name: str
    keys: Callable[[int], Keys]
    outstanding: int = WINDOW
    random_acks: bool = False
    limit: int = WINDOW
    loaded_per_key: int = 1_000
    spills: bool = False


NO_SPILL = 4_900  # waiting messages may load half the window
LOADS = (
    Load("unique keys", unique_keys),
    Load("unique keys, random acks", unique_keys, random_acks=True),
    Load("unique keys, every consumer full", unique_keys, limit=1_000),
    Load("100 hot keys, 4,900 outstanding", hot_keys, outstanding=NO_SPILL),
    Load("100 hot keys, spilled", hot_keys, spills=True),
    Load("Zipf keys, 4,900 outstanding", zipf_keys, outstanding=NO_SPILL, loaded_per_key=WINDOW),
    Load("Zipf keys, spilled", zipf_keys, spills=True),
)


def contenders(load: Load, window: int) -> dict[str, Callable[[], Subject]]:
    limit = load.limit * window // WINDOW
    per_key = load.loaded_per_key
    return {
        "driver": subjects.null,
        "floor": lambda: subjects.floor(limit),
        "window": lambda: subjects.window(window, limit, loaded_per_key=per_key, spills=load.spills),
        "dispatcher": lambda: subjects.dispatcher(window, limit, loaded_per_key=per_key),
    }


def lives(make: Callable[[], Subject], keys: Keys, order: Sequence[int] | None, outstanding: int, times: int) -> Timed:
    """Time some lives of new subjects; making them is not timed."""

    def once() -> tuple[int, int]:
        nanoseconds = messages = 0
        for _ in range(times):
            driver = Driver(make(), keys, order)
            spent, lived = driver.live(outstanding)
            driver.check_done()
            nanoseconds += spent
            messages += lived
        return nanoseconds, messages

    return once


def measure(load: Load, scale: Scale, counts: Sequence[int]) -> dict[tuple[int, str], float]:
    window = scale.size(WINDOW)
    keys = load.keys(max(counts))
    for key in keys:
        hash(key)  # kept by the object: else whoever comes first would pay for all
    order = picks(max(counts)) if load.random_acks else None
    cases: dict[tuple[int, str], Timed] = {}
    for count in counts:
        some = keys[:count]
        times = max(1, counts[0] * 5 // count)  # so that a median is not one of a few milliseconds
        for name, make in contenders(load, window).items():
            cases[count, name] = lives(make, some, order, scale.size(load.outstanding), times)
    return turns(cases, scale.repeats(REPEATS))


def report_load(report: Report, load: Load, counts: Sequence[int], found: dict[tuple[int, str], float]) -> None:
    for count in counts:
        driver, base = found[count, "driver"], found[count, "floor"]
        for name in ("driver", "floor", "window", "dispatcher"):
            value = found[count, name]
            against = "" if name == "driver" else f"floor with driver {value / base:5.2f}"
            ratio = None if name == "driver" else (value - driver) / (base - driver)
            report.rows.append(Row(f"{load.name}, N = {count:,}", name, value, "ns", ratio, against))
    judged = {
        name: max((found[n, name] - found[n, "driver"]) / (found[n, "floor"] - found[n, "driver"]) for n in counts)
        for name in ("window", "dispatcher")
    }
    report.verdicts.append(Verdict(f"dispatcher / floor: {load.name}", judged["dispatcher"], DISPATCHER_BOUND))
    report.verdicts.append(Verdict(f"window / floor: {load.name}", judged["window"], WINDOW_BOUND))
    first, last = ((found[n, "dispatcher"] - found[n, "driver"]) for n in (counts[0], counts[-1]))
    target = f"dispatcher, N = {counts[-1]:,} / N = {counts[0]:,}: {load.name}"
    report.verdicts.append(Verdict(target, last / first, FLAT_BOUND))


def waiting_driver(make: Callable[[], Subject], keys: Keys, waiting: int) -> Driver:
    driver = Driver(make(), keys)
    driver.fill(waiting)
    return driver


def measure_waiting(scale: Scale) -> Report:
    """What a life costs while so many others wait: lanes of 100 keys, nearly all of them spilled."""
    window = scale.size(WINDOW)
    steps = scale.size(STEPS)
    repeats = scale.repeats(5)
    levels = [scale.size(waiting) for waiting in WAITING]
    keys = hot_keys(levels[-1] + repeats * steps)
    makers = {
        "driver": subjects.null,
        "floor": lambda: subjects.floor(window),
        "window, nothing spilled": lambda: subjects.window(
            4 * len(keys), window, max_tracked=4 * len(keys), loaded_per_key=len(keys)
        ),
        "dispatcher": lambda: subjects.dispatcher(window, window, max_tracked=2 * len(keys)),
    }
    cases = {
        (level, name): timed(_stepper(waiting_driver(make, keys, level), steps))
        for level in levels
        for name, make in makers.items()
    }
    gc.freeze()  # collections while millions of objects wait cost all of them more: see the life of the floor
    found = turns(cases, repeats)
    gc.unfreeze()
    report = Report(f"Life while N messages of {HOT_KEYS} keys wait", ["gc.freeze() after they were offered"])
    for name in ("floor", "window, nothing spilled", "dispatcher"):
        net = {level: found[level, name] - found[level, "driver"] for level in levels}
        for level in levels:
            ratio = net[level] / net[levels[0]]
            report.rows.append(Row(f"{level:,} waiting", name, net[level], "ns", ratio, f"{levels[0]:,} waiting"))
        if name != "floor":
            target = f"{name}, {levels[-1]:,} / {levels[0]:,} waiting"
            report.verdicts.append(Verdict(target, net[levels[-1]] / net[levels[0]], FLAT_BOUND))
    return report


def _stepper(driver: Driver, steps: int) -> Callable[[], int]:
    def run() -> int:
        driver.steps(steps)
        return steps

    return run


def run(scale: Scale) -> list[Report]:
    counts = [scale.size(count) for count in COUNTS]
    notes = [
        f"{subjects.CONSUMERS} consumers, window {scale.size(WINDOW):,}, outstanding as many unless said",
        "ratios are net of the driver; garbage collector on",
    ]
    report = Report("Message life: offer, delivery, ack, cursor", notes)
    for load in LOADS:
        report_load(report, load, counts, measure(load, scale, counts))
    return [report, measure_waiting(scale)]


if __name__ == "__main__":
    for finished in run(Scale()):
        print(finished)
