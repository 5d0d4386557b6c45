"""What rare events cost: joins and leaves with ever more consumers; with many messages, timeouts and snapshots too."""

from collections.abc import Callable
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
CONSUMERS = (10, 100, 1_000, 10_000)
QUICK_CONSUMERS = (3, 5, 10, 40)
CHANGES = 100
SLOPE_BOUND = 3.0  # a join with 1,000 consumers to one with 10
NAMED_BOUND = 2.0  # of names that are on the ring already, 10,000 to 10: linear time for all
RINGS: dict[str, Callable[..., HashRing]] = {
    "default": HashRing,
    "pulsar": HashRing.pulsar,
    "danube": HashRing.danube,
}
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


def each_of(call: Callable[[str], object], names: list[str]) -> tuple[int, int]:
    started = process_time_ns()
    for name in names:
        call(name)
    return process_time_ns() - started, len(names)


class Growing:
    """A ring of so many consumers, and a dispatcher in which all of them take part; newcomers come and go."""

    def __init__(self, make: Callable[..., HashRing], count: int, changes: int) -> None:
        self.names = [str(number) for number in range(count)]
        self.newcomers = [str(count + number) for number in range(changes)]
        self.ring = make(self.names)
        self.placement = self.ring.copy()
        self.offset = 0
        self.dispatcher = self.started()
        each_of(self.dispatcher.add_consumer, self.names)

    def started(self) -> KeySharedDispatcher[object]:
        return KeySharedDispatcher(self.placement, DispatcherConfig(inactive_grace_ms=1))

    def named(self) -> tuple[int, int]:
        return each_of(self.started().add_consumer, self.names)

    def join_and_offer(self) -> tuple[int, int]:
        """Join with a message after each, so that an owner is looked for; then all is undone."""
        dispatcher = self.dispatcher
        started = process_time_ns()
        for name in self.newcomers:
            self.offset += 1
            dispatcher.add_consumer(name)
            dispatcher.offer(self.offset, b"%d" % self.offset)
        spent = process_time_ns() - started
        dispatcher.ack_many([effect.receipt for effect in dispatcher.in_flight()])
        each_of(dispatcher.remove_consumer, self.newcomers)
        return spent, len(self.newcomers)

    def evict(self) -> tuple[int, int]:
        """Let all newcomers, who have fallen silent, be evicted at one instant."""
        dispatcher = self.dispatcher
        each_of(dispatcher.add_consumer, self.newcomers)
        each_of(dispatcher.set_inactive, self.newcomers)
        due = dispatcher.next_deadline_ms() or 0
        started = process_time_ns()
        dispatcher.handle_timeout(now_ms=due)
        return process_time_ns() - started, len(self.newcomers)

    def cases(self) -> dict[str, Timed]:
        """The cases in the order in which they take turns: who joins in one leaves in the next."""
        ring, dispatcher, newcomers = self.ring, self.dispatcher, self.newcomers
        return {
            "ring: join": lambda: each_of(ring.add, newcomers),
            "ring: leave": lambda: each_of(ring.remove, newcomers),
            "join": lambda: each_of(dispatcher.add_consumer, newcomers),
            "silent": lambda: each_of(dispatcher.set_inactive, newcomers),
            "back": lambda: each_of(dispatcher.set_active, newcomers),
            "leave": lambda: each_of(dispatcher.remove_consumer, newcomers),
            "join, then a message": self.join_and_offer,
            "evicted": self.evict,
            "join of a name on the ring": self.named,
        }


def measure_slopes(scale: Scale) -> Report:
    counts = QUICK_CONSUMERS if scale.quick else CONSUMERS
    columns = (*(f"N = {count:,}" for count in counts), "third / first")
    note = "100 points each; one more joins or leaves while N take part and nothing is outstanding"
    report = Report("joins by consumers, us per call", columns, [note])
    for kind, make in RINGS.items():
        growing = {count: Growing(make, count, scale.size(CHANGES)) for count in counts}
        cases = {(name, count): case for count in counts for name, case in growing[count].cases().items()}
        found = turns(cases, scale.repeats(REPEATS))
        for name in growing[counts[0]].cases():
            times = [found[name, count] / 1e3 for count in counts]
            report.add(f"{kind}, {name}", *times, times[2] / times[0])
            if "join" in name or "leave" in name:
                report.judge(f"{counts[2]:,} / {counts[0]} consumers, {kind}, {name}", times[2] / times[0], SLOPE_BOUND)
        named = [found["join of a name on the ring", count] for count in (counts[0], counts[-1])]
        report.judge(f"{counts[-1]:,} / {counts[0]} names on the ring, {kind}", named[1] / named[0], NAMED_BOUND)
    return report


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
    notes = [f"{subjects.CONSUMERS} consumers, unique keys"]
    columns = tuple(f"N = {count:,}" for count in counts)
    whole = Report("joins, ms per call", columns, notes)
    tell(whole, turns(calls, scale.repeats(REPEATS)), counts, 1e6)
    each = Report("rare events, us per message", columns)
    tell(each, turns(messages, scale.repeats(REPEATS)), counts, 1e3)
    return [whole, each, measure_slopes(scale)]


def tell(report: Report, found: dict[tuple[str, int], float], counts: list[int], unit: float) -> None:
    for name in dict.fromkeys(name for name, _ in found):
        report.add(name, *(found[name, count] / unit for count in counts))
