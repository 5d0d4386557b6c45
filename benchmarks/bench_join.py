"""What rare events cost: joins with ever more consumers; timeouts and snapshots with many messages."""

from collections.abc import Callable
from time import process_time_ns

from benchmarks._harness import Report, Scale, Timed, turns
from benchmarks._subjects import NAMES
from benchmarks.bench_life import unique_keys

from keyshared.config import DispatcherConfig
from keyshared.dispatcher import KeySharedDispatcher
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
REPEATS = 3


def loaded(count: int) -> KeySharedDispatcher[object]:
    """A dispatcher with so many messages of unique keys in flight."""
    dispatcher = KeySharedDispatcher[object](HashRing(), config_for(count))
    for name in NAMES:
        dispatcher.add_consumer(name, limit=count)
    for offset, key in enumerate(unique_keys(count)):
        dispatcher.offer(offset, key)
    return dispatcher


def config_for(count: int) -> DispatcherConfig:
    return DispatcherConfig(window=4 * count, max_tracked=4 * count)  # nothing is spilled


def timed_once(act: Callable[[], object], count: int) -> tuple[int, int]:
    started = process_time_ns()
    act()
    return process_time_ns() - started, count


def rare_events(count: int) -> dict[str, Timed]:
    """Per message: a consumer leaves that holds its share, every ack timeout is due, and the trip of a snapshot."""
    kept = loaded(count)
    state = kept.snapshot()
    due = kept.config.ack_timeout_ms or 0

    def leave() -> tuple[int, int]:
        dispatcher = loaded(count)
        held = len(dispatcher.in_flight(NAMES[0]))
        return timed_once(lambda: dispatcher.remove_consumer(NAMES[0]), held)

    def time_out() -> tuple[int, int]:
        dispatcher = loaded(count)
        return timed_once(lambda: dispatcher.handle_timeout(now_ms=due), count)

    def restore() -> tuple[int, int]:
        return timed_once(lambda: KeySharedDispatcher.restore(state, HashRing(), config_for(count), now_ms=0), count)

    return {
        "leave of a holder": leave,
        "ack timeout, retried": time_out,
        "snapshot": lambda: timed_once(kept.snapshot, count),
        "restore": restore,
    }


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
        self.placement = make(self.names)
        self.offset = 0
        self.dispatcher = self.started()
        each_of(self.dispatcher.add_consumer, self.names)

    def started(self) -> KeySharedDispatcher[object]:
        return KeySharedDispatcher(self.placement, DispatcherConfig())

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

    def cases(self) -> dict[str, Timed]:
        """The cases in the order in which they take turns: who joins in one leaves in the next."""
        dispatcher, newcomers = self.dispatcher, self.newcomers
        return {
            "join": lambda: each_of(dispatcher.add_consumer, newcomers),
            "leave": lambda: each_of(dispatcher.remove_consumer, newcomers),
            "join, then a message": self.join_and_offer,
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


def measure_events(scale: Scale) -> Report:
    counts = [scale.size(count) for count in OUTSTANDING]
    cases = {(name, count): case for count in counts for name, case in rare_events(count).items()}
    found = turns(cases, scale.repeats(REPEATS))
    columns = tuple(f"N = {count:,}" for count in counts)
    report = Report("rare events, us per message", columns, [f"{len(NAMES)} consumers, unique keys"])
    for name in dict.fromkeys(name for name, _ in found):
        report.add(name, *(found[name, count] / 1e3 for count in counts))
    return report


def run(scale: Scale) -> list[Report]:
    return [measure_events(scale), measure_slopes(scale)]
