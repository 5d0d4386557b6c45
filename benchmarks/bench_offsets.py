"""The index over offsets and timestamps: bytes for each record and time of a look-up, against a full list and bisect.

The list holds every record as two machine ints in arrays, which is the smallest that Python has; its timestamps are the
greatest so far, or bisect would not find anything. Kafka's own two index entries for every 4 KiB of log are 20 bytes.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from random import Random

from benchmarks._harness import Report, Scale, repeated, timed, turns

from keyshared.offsets import OffsetIndex

RECORDS = 200_000
LOOKUPS = 5_000
REPEATS = 5
KAFKA_BYTES = 20 / 4  # records of a kilobyte: four in 4 KiB
SLOWER = 4.0  # Python calls against one call of C


@dataclass(frozen=True)
class Load:
    name: str
    timestamps: Callable[[int], Sequence[int]]


def regular(count: int) -> Sequence[int]:
    return array("q", range(1_700_000_000_000, 1_700_000_000_000 + 10 * count, 10))


def bursts(count: int) -> Sequence[int]:
    """A batch of 500 in each millisecond it is stamped in."""
    return array("q", (1_700_000_000_000 + 5_000 * (number // 500) for number in range(count)))


def jittered(count: int) -> Sequence[int]:
    """CreateTime of many producers: up to 2 s out of order."""
    random = Random(1)
    return array("q", (1_700_000_000_000 + 10 * number - random.randint(0, 2_000) for number in range(count)))


LOADS = (Load("regular", regular), Load("bursts", bursts), Load("jittered", jittered))
INTERVALS = (64, 1)


def indexed(timestamps: Sequence[int], interval: int) -> OffsetIndex:
    index = OffsetIndex(interval)
    for offset, timestamp in enumerate(timestamps):
        index.append(offset, timestamp)
    return index


def appended(timestamps: Sequence[int], interval: int) -> int:
    return indexed(timestamps, interval).end


def named(interval: int) -> str:
    return "exact" if interval == 1 else f"a block for {interval}"


def memory(scale: Scale) -> Report:
    report = Report("offset index", ("bytes", "full/this", "Kafka/this"), ["bytes for each record; full list: 16"])
    for load in LOADS:
        timestamps = load.timestamps(scale.size(RECORDS))
        for interval in INTERVALS:
            used = indexed(timestamps, interval).nbytes / len(timestamps)
            report.add(f"{load.name}, {named(interval)}", used, 16 / used, KAFKA_BYTES / used)
            if interval > 1:
                report.judge(f"bytes for each record, {load.name}", used, 1.0)
    return report


def lookups(scale: Scale) -> Report:
    columns = ("find ns", "bisect ns", "find/bisect", "of offset ns")
    report = Report("offset look-ups", columns, ["the first offset with a timestamp, and the timestamp of an offset"])
    random = Random(2)
    for load in LOADS:
        timestamps = load.timestamps(scale.size(RECORDS))
        tops = array("q", accumulate(timestamps, max))
        wanted = [random.choice(timestamps) + 1 for _ in range(scale.size(LOOKUPS))]
        places = [random.randrange(len(timestamps)) for _ in wanted]
        for interval in INTERVALS:
            index = indexed(timestamps, interval)
            cases = {
                "find": repeated(index.find_offset, wanted),
                "bisect": repeated(partial(bisect_left, tops), wanted),
                "of offset": repeated(index.find_timestamp, places),
            }
            found = turns(cases, scale.repeats(REPEATS))
            ratio = found["find"] / found["bisect"]
            report.add(f"{load.name}, {named(interval)}", found["find"], found["bisect"], ratio, found["of offset"])
            report.judge(f"find/bisect, {load.name}, {named(interval)}", ratio, SLOWER)
    return report


def appends(scale: Scale) -> Report:
    report = Report("offset appends", ("ns",), ["one record appended"])
    for load in LOADS:
        timestamps = load.timestamps(scale.size(RECORDS))
        cases = {interval: timed(partial(appended, timestamps, interval)) for interval in INTERVALS}
        for interval, nanoseconds in turns(cases, scale.repeats(REPEATS)).items():
            report.add(f"{load.name}, {named(interval)}", nanoseconds)
    return report


def run(scale: Scale) -> list[Report]:
    return [memory(scale), lookups(scale), appends(scale)]
