"""The life of a message, from offer to ack: dispatcher and window against a hand-written per-key FIFO in one run."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from benchmarks import _subjects as subjects
from benchmarks._harness import Report, Scale, Timed, bound_of, timed, turns
from benchmarks._subjects import NULL_KEY, Driver, Subject

WINDOW = 10_000
NO_SPILL = 4_900  # waiting messages may load half the window
HOT_KEYS = 100
ZIPF_KEYS = 10_000
COUNTS = (10_000, 100_000, 1_000_000)
WAITING = (10_000, 100_000, 1_000_000)
STEPS = 20_000
REPEATS = 3

DISPATCHER_BOUND = bound_of(pure=4.0, compiled=2.5)
SPILLED_BOUND = bound_of(pure=8.0, compiled=4.0)
WINDOW_BOUND = 2.0
FLAT_BOUND = 1.3

Keys = list[bytes]
Makers = dict[str, Callable[[], Subject]]


def unique_keys(count: int) -> Keys:
    return [b"customer-%d" % number for number in range(count)]


def hot_keys(count: int) -> Keys:
    names = unique_keys(HOT_KEYS)
    return [names[number % HOT_KEYS] for number in range(count)]


def zipf_keys(count: int) -> Keys:
    """Return keys of which the n-th is n times as rare as the first, which has a tenth of the traffic."""
    names = unique_keys(ZIPF_KEYS)
    heights = list(accumulate(1 / rank for rank in range(1, ZIPF_KEYS + 1)))
    return Random(1).choices(names, cum_weights=heights, k=count)


def random_picks(count: int) -> list[int]:
    """Which of the held deliveries is acked next."""
    draw = Random(2).randrange
    return [draw(1 << 30) for _ in range(count)]


@dataclass(frozen=True)
class Load:
    """What is sent, and how much of it is outstanding; ``spills`` if payloads are dropped and read again on the way."""

    name: str
    keys: Callable[[int], Keys]
    outstanding: int = WINDOW
    random_acks: bool = False
    limit: int = WINDOW
    loaded_per_key: int = 1_000
    spills: bool = False


LOADS = (
    Load("unique keys", unique_keys),
    Load("unique keys, random acks", unique_keys, random_acks=True),
    Load("unique keys, consumers full", unique_keys, limit=1_000),
    Load("100 hot keys", hot_keys, outstanding=NO_SPILL),
    Load("100 hot keys, spilled", hot_keys, spills=True),
    Load("Zipf keys", zipf_keys, outstanding=NO_SPILL, loaded_per_key=WINDOW),
    Load("Zipf keys, spilled", zipf_keys, spills=True),
)


class Life:
    """Times whole lives of one load, for several numbers of messages, with everything prepared beforehand."""

    def __init__(self, load: Load, scale: Scale, counts: Sequence[int]) -> None:
        self.load = load
        self.counts = counts
        self.window = scale.size(WINDOW)
        self.outstanding = scale.size(load.outstanding)
        self.repeats = scale.repeats(REPEATS)
        self.least = scale.repeats(5) * counts[0]  # messages that are measured together: few take no time that counts
        self.keys = load.keys(counts[-1])
        for key in self.keys:
            hash(key)  # kept by the object: else the first subject would pay for all
        self.picks = random_picks(counts[-1]) if load.random_acks else None

    def makers(self) -> Makers:
        window, per_key, spills = self.window, self.load.loaded_per_key, self.load.spills
        limit = self.load.limit * window // WINDOW
        return {
            "floor": lambda: subjects.floor(limit),
            "window": lambda: subjects.window(window, limit, loaded_per_key=per_key, spills=spills),
            "dispatcher": lambda: subjects.dispatcher(window, limit, loaded_per_key=per_key),
        }

    def measure(self) -> dict[tuple[int, str], float]:
        """Nanoseconds per message, by number of messages and subject."""
        cases: dict[tuple[int, str], Timed] = {}
        for count in self.counts:
            times = max(1, self.least // count)
            cases[count, "driver"] = self._lives(_null_maker(count), [NULL_KEY] * count, times)
            for name, make in self.makers().items():
                cases[count, name] = self._lives(make, self.keys[:count], times)
        return turns(cases, self.repeats)

    def _lives(self, make: Callable[[], Subject], keys: Keys, times: int) -> Timed:
        def once() -> tuple[int, int]:
            nanoseconds = messages = 0
            for _ in range(times):
                driver = Driver(make(), keys, self.picks)
                spent, lived = driver.live(self.outstanding)
                driver.check_done()
                nanoseconds += spent
                messages += lived
            return nanoseconds, messages

        return once


def _null_maker(count: int) -> Callable[[], Subject]:
    return lambda: subjects.null(count)


def measure_lives(scale: Scale, loads: Sequence[Load] = LOADS, counts: Sequence[int] = COUNTS) -> Report:
    report = Report(
        "life",
        ("driver ns", "floor ns", "window ns", "dispatcher ns", "window/floor", "dispatcher/floor", "both with driver"),
        [
            "offer, delivery, ack and cursor of one message; what is outstanding is 10,000, without spill 4,900",
            f"{subjects.CONSUMERS} consumers, window {scale.size(WINDOW):,}; ns include the driver's, ratios do not",
        ],
    )
    counts = [scale.size(count) for count in counts]
    for load in loads:
        found = Life(load, scale, counts).measure()
        nets: dict[str, list[float]] = {"window": [], "dispatcher": []}
        for count in counts:
            driver, floor, window, dispatcher = (
                found[count, name] for name in ("driver", "floor", "window", "dispatcher")
            )
            nets["window"].append((window - driver) / (floor - driver))
            nets["dispatcher"].append((dispatcher - driver) / (floor - driver))
            report.add(
                f"{load.name}, N = {count:,}",
                *(driver, floor, window, dispatcher, nets["window"][-1], nets["dispatcher"][-1], dispatcher / floor),
            )
        bound = SPILLED_BOUND if load.spills else DISPATCHER_BOUND
        report.judge(f"dispatcher / floor, {load.name}", max(nets["dispatcher"]), bound)
        report.judge(f"window / floor, {load.name}", max(nets["window"]), WINDOW_BOUND)
        # A run of one window spills only the second half of it: another load, not a smaller one.
        least, most = counts[1 if load.spills and len(counts) > 2 else 0], counts[-1]
        first, last = (found[count, "dispatcher"] - found[count, "driver"] for count in (least, most))
        report.judge(f"dispatcher, N = {most:,} / {least:,}, {load.name}", last / first, FLAT_BOUND)
    return report


def measure_waiting(scale: Scale) -> Report:
    """What a life costs while so many others wait in the lanes of 100 keys."""
    window, steps, repeats = scale.size(WINDOW), scale.size(STEPS), scale.repeats(REPEATS)
    levels = [scale.size(waiting) for waiting in WAITING]
    keys = hot_keys(levels[-1] + repeats * steps)
    room = 4 * len(keys)
    makers: Makers = {
        "floor": lambda: subjects.floor(window),
        "window, loaded": lambda: subjects.window(room, window, max_tracked=room, loaded_per_key=room),
        "dispatcher, spilled": lambda: subjects.dispatcher(window, window, max_tracked=room),
    }
    report = Report(
        "waiting",
        ("driver ns", *(f"{name} ns" for name in makers), *(f"{name} ratio" for name in makers)),
        [
            f"one life while N messages of {HOT_KEYS} keys wait; ratios to the smallest N, net of the driver",
            "gc.freeze() once they wait: a full collection looks at every one of them, also at those of the floor",
        ],
    )
    cases: dict[tuple[int, str], Timed] = {}
    for level in levels:
        cases[level, "driver"] = _steps(_filled(subjects.null(0), [NULL_KEY] * len(keys), level), steps)
        for name, make in makers.items():
            cases[level, name] = _steps(_filled(make(), keys, level), steps)
    gc.collect()
    gc.freeze()
    found = turns(cases, repeats)
    gc.unfreeze()
    nets = {case: nanoseconds - found[case[0], "driver"] for case, nanoseconds in found.items()}
    for level in levels:
        ratios = (nets[level, name] / nets[levels[0], name] for name in makers)
        report.add(f"N = {level:,} waiting", found[level, "driver"], *(found[level, name] for name in makers), *ratios)
    for name in ("window, loaded", "dispatcher, spilled"):
        target = f"{name}, N = {levels[-1]:,} / {levels[0]:,}"
        report.judge(target, nets[levels[-1], name] / nets[levels[0], name], FLAT_BOUND)
    return report


def _filled(subject: Subject, keys: Keys, count: int) -> Driver:
    driver = Driver(subject, keys)
    driver.fill(count)
    return driver


def _steps(driver: Driver, count: int) -> Timed:
    def run() -> int:
        driver.steps(count)
        return count

    return timed(run)


def run(scale: Scale) -> list[Report]:
    return [measure_lives(scale), measure_waiting(scale)]
