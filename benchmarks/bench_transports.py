"""Kafka with many workers: keyshared, what is written by hand, and pyrallel-consumer, in one run on one mock cluster.

Each contestant gets a process of its own and a consumer group of its own; the cluster (librdkafka's, in this process)
and the messages are the same. Needs confluent-kafka: ``make bench-transports``. pyrallel-consumer takes part where it
is installed, in a Python from 3.12 on. Times of a busy machine say little; compare ratios.
"""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from benchmarks._harness import Report, Scale

try:
    from confluent_kafka import Consumer, Producer, TopicPartition
except ImportError:
    sys.exit("bench_transports needs confluent-kafka: run `make bench-transports`, or pip install confluent-kafka")

ROOT: Final = Path(__file__).resolve().parents[1]
PARTITIONS: Final = 4  # what the mock gives a topic that it makes
WORKERS: Final = 64
KEYS: Final = 1_000
LIMIT_S: Final = 300

SEQUENTIAL, LANES = "sequential loop", "crc32 % n lanes"
THREADS, BATCHES, TASKS = "keyshared, threads", "keyshared, batches of 50", "keyshared, asyncio"
PROCESSES = "keyshared, processes"
RIVAL, RIVAL_LIMITED = "pyrallel, default", "pyrallel, its best limit"
RIVALS: Final = (RIVAL, RIVAL_LIMITED) if find_spec("pyrallel_consumer") else ()


class Log(NamedTuple):
    """A topic, and whose each of its messages is."""

    topic: str
    keys: dict[tuple[int, int], bytes]

    def partition_of(self, key: bytes) -> int:
        return next(partition for (partition, _), other in self.keys.items() if other == key)


class Race(NamedTuple):
    """How a contestant came through: seconds of the processor, and for each end its time, its key and its partition."""

    processor_s: float
    ends: list[tuple[float, bytes, int]]
    rss_kb: list[int]

    @property
    def wall_s(self) -> float:
        return self.ends[-1][0] - self.ends[0][0]

    def us_each(self) -> float:
        return self.processor_s / len(self.ends) * 1e6

    def seconds_to(self, share: float, times: Sequence[float]) -> float:
        """When a share of some ends had come."""
        return sorted(times)[math.ceil(share * len(times)) - 1] - self.ends[0][0]


class Course:
    """The cluster, and contestants one after another."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 5})
        brokers = self._producer.list_topics(timeout=10).brokers.values()
        self.bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        self._numbers = count()

    def log(self, rows: Sequence[tuple[bytes, bytes]]) -> Log:
        topic = f"race-{next(self._numbers)}"
        self._producer.list_topics(topic, timeout=10)
        keys: dict[tuple[int, int], bytes] = {}

        def written(error: object, message: Any) -> None:
            assert error is None, error
            keys[message.partition(), message.offset()] = message.key()

        for key, value in rows:
            self._producer.produce(topic, value, key, on_delivery=written)
            self._producer.poll(0)
        self._producer.flush(60)
        return Log(topic, keys)

    def run(self, contestant: str, log: Log, messages: int, workers: int = WORKERS, **more: bool) -> Race:
        with self.started(contestant, log, messages, workers=workers, **more) as process:
            out, _ = process.communicate(timeout=LIMIT_S)
        answer = json.loads(out.splitlines()[-1])
        ends = [(at, log.keys[partition, offset], partition) for at, partition, offset in answer["ends"]]
        return Race(answer["processor_s"], ends, answer["rss_kb"])

    @contextmanager
    def started(self, contestant: str, log: Log, messages: int, **more: Any) -> Iterator["subprocess.Popen[str]"]:
        task = {
            "contestant": contestant,
            "bootstrap": self.bootstrap,
            "group": f"group-{next(self._numbers)}",
            "topic": log.topic,
            "messages": messages,
            "workers": WORKERS,
            **more,
        }
        paths = [str(ROOT), str(ROOT / "src"), str(ROOT / "integrations" / "kafka" / "src")]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._transports", json.dumps(task)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def inherit(self, log: Log, group: str, heir: str) -> None:
        """Commit for another group what a group has committed: the mock never assigns to one that was left empty."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, "log_level": 0})
        places = consumer.committed([TopicPartition(log.topic, at) for at in range(PARTITIONS)], 10)
        consumer.close()
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": heir, "log_level": 0})
        kept = [
            TopicPartition(log.topic, place.partition, place.offset, place.metadata or "")
            for place in places
            if place.offset >= 0
        ]
        if kept:
            consumer.commit(offsets=kept, asynchronous=False)
        consumer.close()


def spread(many: int, value: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (number * 7919 % KEYS), value) for number in range(many)]


def nothing_to_do(course: Course, scale: Scale) -> Report:
    """(a)."""
    many = scale.size(100_000)
    report = Report("a: handlers that do nothing", ("msg/s", "CPU us", "above loop"), [f"{many:,} messages"])
    log, rivals_log = course.log(spread(many, b"0")), course.log(spread(many // 10, b"0"))
    races = {}
    for name in (SEQUENTIAL, "a thread for each partition", LANES, *RIVALS, THREADS, BATCHES, TASKS):
        own, size = (rivals_log, many // 10) if name in RIVALS else (log, many)  # they would take minutes
        races[name] = race = course.run(name, own, size, is_empty=True)
        report.add(name, size / race.wall_s, race.us_each(), race.us_each() - races[SEQUENTIAL].us_each())
    per_s = {name: len(race.ends) / race.wall_s for name, race in races.items()}
    for rival, bound in zip(RIVALS, (30, 10), strict=False):
        report.judge(f"times {rival}", per_s[THREADS] / per_s[rival], bound, at_most=False)
    above = races[THREADS].us_each() - races[SEQUENTIAL].us_each()
    report.judge("us of processor time above the sequential loop", above, 35)
    return report


def five_ms(course: Course, scale: Scale) -> Report:
    """(b)."""
    many = scale.size(20_000)
    ideal_s = many * 0.005 / WORKERS
    report = Report("b: handlers that wait 5 ms", ("msg/s", "of the ideal", "CPU us"), [f"{many:,}, {WORKERS} workers"])
    log, rivals_log = course.log(spread(many, b"5")), course.log(spread(many // 5, b"5"))
    walls = {}
    for name in ("a thread for each partition", LANES, *RIVALS, THREADS, TASKS):
        own, size = (rivals_log, many // 5) if name not in {LANES, THREADS, TASKS} else (log, many)
        race = course.run(name, own, size)
        walls[name] = race.wall_s / size * many
        report.add(name, size / race.wall_s, ideal_s / walls[name], race.us_each())
    for name in (THREADS, TASKS):
        report.judge(f"{name}, times the lanes", walls[LANES] / walls[name], 1, at_most=False)
        report.judge(f"{name}, of the ideal", ideal_s / walls[name], 0.75, at_most=False)
    return report


def slow_keys(course: Course, scale: Scale) -> Report:
    """(c)."""
    report = Report("c: 3 of 1,000 keys take 200 ms", ("99 % of others", "of the lanes"))
    slow = {b"k%d" % number for number in range(3)}
    for workers, names in ((WORKERS, (LANES, *RIVALS, THREADS, TASKS)), (8, (LANES, PROCESSES))):
        many = scale.size(10_000 if workers == WORKERS else 4_000)
        quick = 5 if workers == WORKERS else 1
        rows = [(key, b"200" if key in slow else b"%d" % quick) for key, _ in spread(many, b"")]
        log = course.log(rows)
        times = {}
        for name in names:
            race = course.run(name, log, many, workers)
            times[name] = race.seconds_to(0.99, [at for at, key, _ in race.ends if key not in slow])
            report.add(f"{name}, {workers} workers", times[name], times[name] / times[LANES])
            if name not in {LANES, *RIVALS}:
                report.judge(f"{name}, of the lanes' time", times[name] / times[LANES], 0.5)
    return report


def zipf(course: Course, scale: Scale) -> Report:
    """(d)."""
    many = scale.size(10_000)
    columns = "99 % beside", "99 % elsewhere", "all"
    report = Report("d: Zipf keys, 5 ms", columns, ["s; others than the hottest key, in its partition and elsewhere"])
    weights = [1 / (rank + 1) for rank in range(KEYS)]
    drawn = random.Random(1).choices(range(KEYS), weights, k=many)
    log = course.log([(b"k%d" % rank, b"5") for rank in drawn])
    home = log.partition_of(b"k0")
    for name in (LANES, THREADS, TASKS):
        race = course.run(name, log, many)
        others = [(at, partition) for at, key, partition in race.ends if key != b"k0"]
        beside = race.seconds_to(0.99, [at for at, partition in others if partition == home])
        elsewhere = race.seconds_to(0.99, [at for at, partition in others if partition != home])
        report.add(name, beside, elsewhere, race.wall_s)
        if name != LANES:
            report.judge(f"{name}, beside a hot key as elsewhere", beside / elsewhere, 1.25)
    return report


def after_a_crash(course: Course, scale: Scale, folder: Path) -> Report:
    """(e): what is done again after a kill behind a head that does not end."""
    many = scale.size(8_000)
    report = Report(
        "e: SIGKILL behind a running head",
        ("done before", "done again", "allowed"),
        [f"allowed: what {WORKERS} workers have in flight, and what had ended in the last 0.1 s"],
    )
    log = course.log([(b"head", b"-1"), *spread(many, b"2")])
    for name in (*RIVALS[:1], THREADS, TASKS):
        diary = folder / name.replace(" ", "-").replace(",", "")
        group, heir = f"before-{log.topic}-{diary.name}", f"after-{log.topic}-{diary.name}"
        with course.started(name, log, many + 1, group=group, diary=str(diary)) as process:
            wait_for(diary, many // 2)
            process.send_signal(signal.SIGKILL)
            process.wait()
        before = times_in(diary)
        course.inherit(log, group, heir)
        with course.started(name, log, many + 1, group=heir, diary=str(diary)):
            wait_for(diary, many)
            time.sleep(0.5)  # what is done again may come late
        again = len(ends_in(diary)) - len(set(ends_in(diary)))
        allowed = WORKERS + sum(at > max(before) - 0.1 for at in before)
        report.add(name, len(before), again, allowed)
        if name not in RIVALS:
            report.judge(f"{name}, done again", again, allowed)
    return report


def wait_for(diary: Path, many: int) -> None:
    until = time.monotonic() + LIMIT_S
    while len(set(ends_in(diary))) < many and time.monotonic() < until:
        time.sleep(0.05)


def ends_in(diary: Path) -> list[str]:
    return diary.read_text().split()[1::2] if diary.exists() else []


def times_in(diary: Path) -> list[float]:
    return [float(at) for at in diary.read_text().split()[::2]]


def memory(course: Course, scale: Scale) -> Report:
    """Whether a million messages leave anything behind."""
    many = scale.size(1_000_000)
    report = Report("memory", ("MB after a fifth", "MB after all"), [f"{many:,} messages"])
    log = course.log(spread(many, b"0"))
    for name in (THREADS, TASKS):
        race = course.run(name, log, many, is_empty=True, keeps=False)
        first, last = race.rss_kb[0] / 1024, race.rss_kb[-1] / 1024
        report.add(name, first, last)
        report.judge(f"{name}, MB after all as after a fifth", last / first, 1.1)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m benchmarks.bench_transports", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="a, b, c, d, e or memory; default all")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the messages")
    parser.add_argument("--check", action="store_true", help="exit 1 if a target is missed")
    options = parser.parse_args(arguments)
    scale, course = Scale(quick=options.quick), Course()
    reports = []
    with TemporaryDirectory() as folder:
        crash = partial(after_a_crash, folder=Path(folder))
        cases: dict[str, Callable[[Course, Scale], Report]] = {
            "a": nothing_to_do,
            "b": five_ms,
            "c": slow_keys,
            "d": zipf,
            "e": crash,
            "memory": memory,
        }
        unknown = set(options.cases) - cases.keys()
        if unknown:
            parser.error(f"there is no case {unknown.pop()!r}: choose from {', '.join(cases)}")
        for name in options.cases or cases:
            reports.append(cases[name](course, scale))
            print(reports[-1], end="\n\n", flush=True)
    for report in reports:
        for verdict in report.verdicts:
            print(verdict)
    return int(options.check and not all(verdict.met for report in reports for verdict in report.verdicts))


if __name__ == "__main__":
    sys.exit(main())
