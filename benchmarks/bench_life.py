"""The life of a message, from offer to ack: dispatcher and window against a hand-written per-key FIFO in one run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from random import Random

from benchmarks import _subjects as subjects
from benchmarks._harness import Report, Scale, Timed, bound_of, turns
from benchmarks._subjects import NULL_KEY, Driver, Subject

from keyshared.config import DrainUnit

WINDOW = 10_000
NO_SPILL = 4_900  # waiting messages may load half the window
HOT_KEYS = 100
ZIPF_KEYS = 10_000
COUNTS = (10_000, 200_000)
UNIT_COUNT = 50_000
REPEATS = 3

DISPATCHER_BOUND = bound_of(pure=4.0, compiled=2.5)
SPILLED_BOUND = bound_of(pure=8.0, compiled=4.0)
WINDOW_BOUND = 2.0
FLAT_BOUND = 1.3
UNIT_BOUND = 3.0  # the short ways of the window of keys are not for units

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

    def unit_cases(self) -> dict[str, Timed]:
        """Lives of the dispatcher by drain unit, for the first number of messages."""
        keys, window = self.keys[: self.counts[0]], self.window
        limit = self.load.limit * window // WINDOW
        cases = {"driver": self._lives(_null_maker(len(keys)), [NULL_KEY] * len(keys), 1)}
        for unit in DrainUnit:
            make = partial(subjects.dispatcher, window, limit, loaded_per_key=self.load.loaded_per_key, unit=unit)
            cases[unit] = self._lives(make, keys, 1)
        return cases

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
        if not load.spills:  # of few messages a smaller share is spilled: another load, not a smaller one
            first, *_, last = (found[count, "dispatcher"] - found[count, "driver"] for count in counts)
            report.judge(f"dispatcher, N = {counts[-1]:,} / {counts[0]:,}, {load.name}", last / first, FLAT_BOUND)
    return report


def measure_units(scale: Scale) -> Report:
    """What a drain unit larger than a key costs: its way through the window is the long one."""
    columns = ("driver ns", *(f"{unit} ns" for unit in DrainUnit), "hash / key", "range / key")
    report = Report("life by drain unit", columns, ["one message from offer to ack; ratios are net of the driver"])
    for load in LOADS:
        if load.spills or load.random_acks or load.limit < WINDOW:
            continue
        life = Life(load, scale, [scale.size(UNIT_COUNT)])
        found = turns(life.unit_cases(), scale.repeats(REPEATS))
        driver = found.pop("driver")
        key, *others = (found[unit] - driver for unit in DrainUnit)
        report.add(load.name, driver, *(found[unit] for unit in DrainUnit), *(other / key for other in others))
        report.judge(f"the dearer unit / key, {load.name}", max(others) / key, UNIT_BOUND)
    return report


def run(scale: Scale) -> list[Report]:
    return [measure_lives(scale), measure_units(scale)]
