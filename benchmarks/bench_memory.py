"""Bytes per outstanding message, as tracemalloc sees them: all that an offer leaves behind.

The offsets' own ints (32 bytes each above 256) are counted, because the window keeps them alive; keys and payloads are
the host's and are not.

Where the bytes are, in CPython 3.11: a message is 104 (nine fields, and 32 that each object has, 16 of them for the
collector), its offset 28, its place in the log's order 8. On a key of its own it also has an entry in the dict of lanes
(30 to 52, by how full that is). In flight it stands in the dict of its consumer (30 to 52) and in the queue of timeouts
(8). Waiting it stands in an ordered dict of its consumer (75 to 105). A lane (184) is shared by all of its key.
"""

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import _subjects as subjects
from benchmarks._harness import Report, Scale
from benchmarks._subjects import Subject
from benchmarks.bench_life import HOT_KEYS, Keys, hot_keys, unique_keys

COUNTS = (10_000, 100_000)  # tracing makes an offer ten times slower
SMALL_WINDOW = 4 * HOT_KEYS  # room for one message of each hot key in flight; nearly everything else is spilled
IN_FLIGHT_BOUND = 250.0
WAITING_BOUND = 300.0
BEHIND_OTHERS_BOUND = 150.0


@dataclass(frozen=True)
class Load:
    name: str
    keys: Callable[[int], Keys]
    bound: float
    limited: bool = False
    spills: bool = False


LOADS = (
    Load("unique keys, in flight", unique_keys, IN_FLIGHT_BOUND),
    Load("unique keys, waiting", unique_keys, WAITING_BOUND, limited=True),
    Load("unique keys, spilled", unique_keys, WAITING_BOUND, limited=True, spills=True),
    Load(f"{HOT_KEYS} hot keys, waiting", hot_keys, BEHIND_OTHERS_BOUND),
    Load(f"{HOT_KEYS} hot keys, spilled", hot_keys, BEHIND_OTHERS_BOUND, spills=True),
)


def kept_bytes(subject: Subject, keys: Keys) -> int:
    """Return what the subject has allocated and kept after an offer of one message for each key."""
    offer = subject.offer
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for offset, key in enumerate(keys, start=1_000):  # small ints are shared, not allocated
            offer(offset, key)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before


def makers(load: Load, count: int) -> dict[str, Callable[[], Subject]]:
    room = 4 * count  # waiting messages may load half the window
    limit = 1 if load.limited else room
    capacity = SMALL_WINDOW if load.spills else room
    return {
        "floor": lambda: subjects.floor(limit),
        "window": lambda: subjects.window(capacity, limit, max_tracked=room, loaded_per_key=room),
        "dispatcher": lambda: subjects.dispatcher(capacity, limit, max_tracked=room, loaded_per_key=room),
    }


def warm_up() -> None:
    """Run the code once, so that what it keeps for ever is allocated before anything is measured."""
    for load in LOADS:
        for make in makers(load, HOT_KEYS).values():
            kept_bytes(make(), load.keys(HOT_KEYS))


def run(scale: Scale) -> list[Report]:
    warm_up()
    report = Report(
        "memory",
        ("floor", "window", "dispatcher"),
        ["bytes per outstanding message by tracemalloc; offsets counted, keys and payloads not"],
    )
    for load in LOADS:
        worst = 0.0
        for count in map(scale.size, COUNTS):
            keys = load.keys(count)
            kept = {name: kept_bytes(make(), keys) / count for name, make in makers(load, count).items()}
            report.add(f"{load.name}, N = {count:,}", *kept.values())
            worst = max(worst, kept["dispatcher"])
        report.judge(f"bytes, dispatcher, {load.name}", worst, load.bound)
    return [report]
