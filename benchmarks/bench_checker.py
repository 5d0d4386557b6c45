"""What a history in a file costs for each event: read, decoded and judged; and what the checker keeps in memory."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks._harness import Report, Scale, timed, turns

from keyshared.testing import Checker, Claims, check_file
from keyshared.testing.history import Acked, Committed, Connected, Delivered, Event, Owned, Published, Quiet
from keyshared.testing.rows import from_rows, read_jsonl, to_rows, write_jsonl

HAPPENINGS: Final = 100_000
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


def decoded(lines: list[str]) -> Callable[[], int]:
    def run() -> int:
        for _ in read_jsonl(lines):
            pass
        return len(lines)

    return run


def speed(scale: Scale) -> Report:
    report = Report(
        "checker",
        ("file us", "judge us", "decode us", "ratio", "events/s"),
        ["a file of JSON lines, read and judged; only judged; only decoded; the first by the last"],
    )
    with TemporaryDirectory() as folder:
        for outstanding in (100, scale.size(10_000)):
            _measure(report, scale, outstanding, Path(folder) / f"{outstanding}.jsonl")
    return report


def _measure(report: Report, scale: Scale, outstanding: int, path: Path) -> None:
    claims = replace(CLAIMS, max_tracked=2 * outstanding + 2)
    told = list(history(scale.size(HAPPENINGS), outstanding, quiet=True))
    lines = list(write_jsonl(told))
    path.write_text("".join(lines))
    cases = {"file": read_and_judged(path, claims), "judge": judged(told, claims), "decode": decoded(lines)}
    found = turns({name: timed(case) for name, case in cases.items()}, scale.repeats(REPEATS))
    ratio, speed = found["file"] / found["decode"], 1e9 / found["file"]
    times = (found[name] / 1_000 for name in cases)
    report.add(f"{len(lines):,} events, {outstanding:,} outstanding", *times, ratio, speed)
    report.judge(f"read and judged beside decoded, {outstanding:,} outstanding", ratio, 5)
    report.judge(f"events a second from a file, {outstanding:,} outstanding", speed, TARGET, at_most=False)


def formats(scale: Scale) -> Report:
    told = list(history(scale.size(HAPPENINGS), 100, quiet=True))
    lines, rows = list(write_jsonl(told)), list(to_rows(told))
    cases = {
        "read JSON lines": timed(lambda: sum(1 for _ in read_jsonl(lines))),
        "write JSON lines": timed(lambda: sum(1 for _ in write_jsonl(told))),
        "read rows": timed(lambda: sum(1 for _ in from_rows(rows))),
        "write rows": timed(lambda: sum(1 for _ in to_rows(told))),
    }
    report = Report("history formats", ("us",), ["one event"])
    for name, nanoseconds in turns(cases, scale.repeats(REPEATS)).items():
        report.add(name, nanoseconds / 1_000)
    return report


def memory(scale: Scale) -> Report:
    report = Report("checker memory", ("bytes", "per message"), ["the most that was ever kept, in bytes as pickled"])
    for events in (scale.size(HAPPENINGS) // 4, scale.size(HAPPENINGS)):
        checker, most = Checker(CLAIMS), 0
        for number, event in enumerate(history(events, 100, quiet=True)):
            checker.feed(event)
            if number % 97 == 0:
                most = max(most, len(pickle.dumps(checker)))
        report.add(f"{events:,} events, 100 outstanding", most, most / 100)
    first, second = (row.values[0] for row in report.rows)
    report.judge("four times the history, beside the history", second / first, 1.1)
    return report


def run(scale: Scale) -> list[Report]:
    return [speed(scale), formats(scale), memory(scale)]
