"""What rare events cost while many messages are outstanding: joins, leaves, timeouts, snapshots."""

from time import process_time_ns

from benchmarks import _subjects as subjects
from benchmarks._harness import Report, Scale, Timed, turns
from benchmarks._subjects import NAMES
from benchmarks.bench_life import unique_keys

from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import DeadLetter, Deliver, Released
from keyshared.ring import HashRing

OUTSTANDING = (10_000, 100_000)
FULL = 100  # limit of each consumer where messages wait
REPEATS = 3


class Loaded:
    """A dispatcher with so many messages of unique keys outstanding, all in flight, or nearly all waiting."""

    def __init__(self, count: int, *, waiting: bool = False, retry: RetryPolicy | None = None) -> None:
        self.count = count
        self.limit = FULL if waiting else count
        self.config = DispatcherConfig(  # nothing is spilled
            window=4 * count, max_tracked=4 * count, retry=RetryPolicy() if retry is None else retry
        )
        self.dispatcher = KeySharedDispatcher(HashRing(), self.config)
        for name in NAMES:
            self.dispatcher.add_consumer(name, limit=self.limit)
        for offset, key in enumerate(unique_keys(count)):
            self.dispatcher.offer(offset, key)

    def join_and_leave(self) -> tuple[Timed, Timed]:
        """A newcomer joins; it leaves again, which puts back what it got."""
        dispatcher = self.dispatcher

        def join() -> tuple[int, int]:
            started = process_time_ns()
            dispatcher.add_consumer("newcomer", limit=self.limit)
            return process_time_ns() - started, 1

        def leave() -> tuple[int, int]:
            started = process_time_ns()
            dispatcher.remove_consumer("newcomer")
            return process_time_ns() - started, 1

        return join, leave


def leave_of_a_holder(count: int) -> Timed:
    """Per message: a consumer leaves that holds its share, and others get all of that."""

    def once() -> tuple[int, int]:
        dispatcher = Loaded(count).dispatcher
        started = process_time_ns()
        effects = dispatcher.remove_consumer(NAMES[0])
        spent = process_time_ns() - started
        released = sum(type(effect) is Released for effect in effects)
        check(0 < released == sum(type(effect) is Deliver for effect in effects), "what it held goes to others")
        return spent, released

    return once


def timeouts(count: int, retry: RetryPolicy) -> Timed:
    """Per message: every ack timeout is due at once; without retries each of them makes a dead letter."""
    kind = Released if retry.max_redeliveries else DeadLetter

    def once() -> tuple[int, int]:
        loaded = Loaded(count, retry=retry)
        now = loaded.config.ack_timeout_ms or 0
        started = process_time_ns()
        effects = loaded.dispatcher.handle_timeout(now_ms=now)
        spent = process_time_ns() - started
        check(sum(type(effect) is kind for effect in effects) == count, "all of them are due")
        return spent, count

    return once


def snapshots(count: int) -> tuple[Timed, Timed]:
    """Per message: write a snapshot of everything outstanding, and restore it."""
    loaded = Loaded(count)
    state = loaded.dispatcher.snapshot()

    def write() -> tuple[int, int]:
        started = process_time_ns()
        loaded.dispatcher.snapshot()
        return process_time_ns() - started, count

    def restore() -> tuple[int, int]:
        started = process_time_ns()
        again = KeySharedDispatcher.restore(state, HashRing(), loaded.config, now_ms=0)
        spent = process_time_ns() - started
        check(len(again.in_flight()) == count, "everything is in flight again")
        return spent, count

    return write, restore


def check(fact: bool, text: str) -> None:
    if not fact:
        raise AssertionError(f"not so: {text}")


def run(scale: Scale) -> list[Report]:
    counts = [scale.size(count) for count in OUTSTANDING]
    calls: dict[tuple[str, int], Timed] = {}
    messages: dict[tuple[str, int], Timed] = {}
    for count in counts:
        calls["join, none waiting", count], calls["leave, none waiting", count] = Loaded(count).join_and_leave()
        calls["join, nearly all waiting", count], calls["leave, nearly all waiting", count] = Loaded(
            count, waiting=True
        ).join_and_leave()
        messages["leave of a holder", count] = leave_of_a_holder(count)
        messages["ack timeout, retried", count] = timeouts(count, RetryPolicy())
        messages["ack timeout, dead-lettered", count] = timeouts(count, RetryPolicy(max_redeliveries=0))
        messages["snapshot", count], messages["restore", count] = snapshots(count)
    notes = [f"{subjects.CONSUMERS} consumers, unique keys; a join builds the ring, whatever is outstanding"]
    columns = tuple(f"N = {count:,}" for count in counts)
    whole = Report("joins, ms per call", columns, notes)
    tell(whole, turns(calls, scale.repeats(REPEATS)), counts, 1e6)
    each = Report("rare events, us per message", columns)
    tell(each, turns(messages, scale.repeats(REPEATS)), counts, 1e3)
    return [whole, each]


def tell(report: Report, found: dict[tuple[str, int], float], counts: list[int], unit: float) -> None:
    for name in dict.fromkeys(name for name, _ in found):
        report.add(name, *(found[name, count] / unit for count in counts))
