"""What a history in a file costs for each event: read and judged."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks._harness import Report, Scale, timed, turns

from keyshared.testing import Checker, Claims, check_file
from keyshared.testing.history import Acked, Committed, Connected, Delivered, Event, Owned, Published, Quiet
from keyshared.testing.rows import write_jsonl

EVENTS: Final = 100_000
REPEATS: Final = 5
TARGET: Final = 150_000
CONSUMERS: Final = 8
CLAIMS: Final = Claims(per_consumer=10_000, max_tracked=10_000, cursor_keeps_up=True)


def history(events: int, outstanding: int, *, quiet: bool) -> Iterator[Event]:
    """Messages of as many keys as are outstanding twice over; each goes out at once and is acked in order."""
    for number in range(CONSUMERS):
        yield Connected(consumer=f"c{number}")
    keys = [b"key-%d" % number for number in range(2 * outstanding)]
    for number, key in enumerate(keys):
        yield Owned(key=key, consumer=f"c{number % CONSUMERS}")
    told = CONSUMERS + len(keys)
    offset = 0
    while told < events:
        key, consumer = keys[offset % len(keys)], f"c{offset % len(keys) % CONSUMERS}"
        yield Published(offset=offset, key=key, at_ms=offset)
        yield Delivered(offset=offset, key=key, consumer=consumer, attempt=1, at_ms=offset)
        done = offset - outstanding
        if done >= 0:
            yield Acked(offset=done, consumer=f"c{done % len(keys) % CONSUMERS}", attempt=1, at_ms=offset)
            yield Committed(resume_offset=done + 1, at_ms=offset)
        if quiet:
            yield Quiet(at_ms=offset)
        told += 2 + quiet + 2 * (done >= 0)
        offset += 1


def read_and_judged(path: Path, claims: Claims) -> Callable[[], int]:
    def run() -> int:
        report = check_file(path, claims)
        if report.found:
            raise AssertionError(str(report))
        return report.events

    return run


def judged(told: list[Event], claims: Claims) -> Callable[[], int]:
    def run() -> int:
        feed = Checker(claims).feed
        for event in told:
            if found := feed(event):
                raise AssertionError(str(found[0]))
        return len(told)

    return run


def speed(scale: Scale) -> Report:
    report = Report(
        "checker",
        ("file us", "judge us", "events/s"),
        ["a file of JSON lines, read and judged; only judged"],
    )
    with TemporaryDirectory() as folder:
        for outstanding in (100, scale.size(10_000)):
            _measure(report, scale, outstanding, Path(folder) / f"{outstanding}.jsonl")
    return report


def _measure(report: Report, scale: Scale, outstanding: int, path: Path) -> None:
    claims = replace(CLAIMS, max_tracked=2 * outstanding + 2)
    told = list(history(scale.size(EVENTS), outstanding, quiet=True))
    lines = list(write_jsonl(told))
    path.write_text("".join(lines))
    cases = {"file": read_and_judged(path, claims), "judge": judged(told, claims)}
    found = turns({name: timed(case) for name, case in cases.items()}, scale.repeats(REPEATS))
    speed = 1e9 / found["file"]
    times = (found[name] / 1_000 for name in cases)
    report.add(f"{len(lines):,} events, {outstanding:,} outstanding", *times, speed)
    report.judge(f"events a second from a file, {outstanding:,} outstanding", speed, TARGET, at_most=False)


def run(scale: Scale) -> list[Report]:
    return [speed(scale)]
