"""What a drain unit larger than a key costs: the life of a message, and a join while many deliveries are open."""

from collections.abc import Sequence
from time import process_time_ns

from benchmarks import _subjects as subjects
from benchmarks._harness import Report, Scale, Timed, turns
from benchmarks._subjects import NAMES, NULL_KEY, Driver
from benchmarks.bench_life import NO_SPILL, WINDOW, Load, hot_keys, unique_keys, zipf_keys

from keyshared.config import DispatcherConfig, DrainUnit
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.ring import HashRing

MESSAGES = 100_000
OPEN = (10_000, 100_000)
REPEATS = 5

LIFE_BOUND = 3.0  # the short ways of the window of keys are not for units
JOIN_BOUND = 1.5  # slots stay what they are; only what lies in runs that change is counted anew

LOADS = (
    Load("unique keys", unique_keys),
    Load("100 hot keys", hot_keys, outstanding=NO_SPILL),
    Load("Zipf keys", zipf_keys, outstanding=NO_SPILL, loaded_per_key=WINDOW),
)


def life(load: Load, scale: Scale, keys: Sequence[bytes], unit: DrainUnit | None) -> Timed:
    """Whole lives of these messages; without a unit those of the driver alone."""
    window, outstanding = scale.size(WINDOW), scale.size(load.outstanding)

    def once() -> tuple[int, int]:
        if unit is None:
            driver = Driver(subjects.null(len(keys)), [NULL_KEY] * len(keys))
        else:
            limit = load.limit * window // WINDOW
            subject = subjects.dispatcher(window, limit, loaded_per_key=load.loaded_per_key, unit=unit)
            driver = Driver(subject, keys)
        spent, lived = driver.live(outstanding)
        driver.check_done()
        return spent, lived

    return once


def measure_lives(scale: Scale) -> Report:
    columns = ("driver ns", *(f"{unit} ns" for unit in DrainUnit), "hash / key", "range / key")
    note = "one message from offer to ack by the dispatcher; ratios are net of the driver"
    report = Report("life by drain unit", columns, [note])
    for load in LOADS:
        keys = load.keys(scale.size(MESSAGES))
        cases: dict[DrainUnit | None, Timed] = {None: life(load, scale, keys, None)}
        cases |= {unit: life(load, scale, keys, unit) for unit in DrainUnit}
        found = turns(cases, scale.repeats(REPEATS))
        nets = {unit: found[unit] - found[None] for unit in DrainUnit}
        ratios = [nets[unit] / nets[DrainUnit.KEY] for unit in (DrainUnit.HASH, DrainUnit.RANGE)]
        report.add(load.name, found[None], *(found[unit] for unit in DrainUnit), *ratios)
        report.judge(f"the dearer unit / key, {load.name}", max(ratios), LIFE_BOUND)
    return report


class Busy:
    """A dispatcher all of whose messages are in flight, and a newcomer that joins and leaves."""

    def __init__(self, count: int, unit: DrainUnit) -> None:
        self.dispatcher = KeySharedDispatcher(
            HashRing(), DispatcherConfig(window=count + 1, max_tracked=count + 1, unit=unit)
        )
        for name in NAMES:
            self.dispatcher.add_consumer(name, limit=count)
        opened = [self.dispatcher.offer(offset, key) for offset, key in enumerate(unique_keys(count))]
        if not all(type(effect) is Deliver for effects in opened for effect in effects):
            raise AssertionError("everything is in flight")

    def join(self) -> tuple[int, int]:
        started = process_time_ns()
        self.dispatcher.add_consumer("newcomer")
        spent = process_time_ns() - started
        self.dispatcher.remove_consumer("newcomer")
        return spent, 1


def measure_joins(scale: Scale) -> Report:
    report = Report(
        "joins by drain unit, ms per call",
        (*map(str, DrainUnit), "hash / key", "range / key"),
        [f"{subjects.CONSUMERS} consumers on a ring of 100 points each; N deliveries of unique keys are open"],
    )
    for count in map(scale.size, OPEN):
        found = turns({unit: Busy(count, unit).join for unit in DrainUnit}, scale.repeats(REPEATS))
        times = [found[unit] / 1e6 for unit in DrainUnit]
        report.add(f"N = {count:,}", *times, *(time / times[0] for time in times[1:]))
        report.judge(f"hash / key, N = {count:,}", times[1] / times[0], JOIN_BOUND)
    return report


def run(scale: Scale) -> list[Report]:
    return [measure_lives(scale), measure_joins(scale)]
