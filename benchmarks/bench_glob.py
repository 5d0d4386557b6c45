"""What an offer of a new key costs where consumers have many patterns."""

from collections.abc import Sequence
from itertools import count
from time import process_time_ns

from benchmarks._harness import Report, Scale, Timed, turns

from keyshared.config import DispatcherConfig, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.glob import MAX_TRIED
from keyshared.ring import HashRing

REPEATS = 3
CONSUMERS = 8
BOUND_US = 10
NEW_KEYS = 200
MANY = 1_000  # patterns on each consumer
LOOKED_UP = {"exact": ["eu-west-{0}-{1}-order"], "prefix": ["eu-west-{0}-*"]}
TRIED = {
    "suffix": ["*-{0}-order"],
    "inner star": ["eu-west-{0}-*-order"],
    "two stars": ["*-{0}-*"],
    "question mark": ["eu-west-?-{0}-order"],
    "star and question mark": ["*?{0}-?*"],
}


def new_keys(dispatcher: KeySharedDispatcher[None], patterns: int, size: int) -> Timed:
    """Offer keys that were never there before; about half of them are accepted. What is delivered is acked unseen."""
    offsets = count()

    def once() -> tuple[int, int]:
        spent = 0
        for _ in range(size):
            offset = next(offsets)
            key = b"eu-west-%d-%d-order" % (offset * 7_919 % (2 * CONSUMERS * patterns), offset)
            started = process_time_ns()
            effects = dispatcher.offer(offset, key)
            spent += process_time_ns() - started
            for effect in effects:
                if isinstance(effect, Deliver):
                    dispatcher.ack(*effect.receipt)
        return spent, size

    return once


def filtered(forms: Sequence[str], patterns: int) -> KeySharedDispatcher[None]:
    """A dispatcher whose consumers have that many patterns each, their forms in turn."""
    dispatcher: KeySharedDispatcher[None] = KeySharedDispatcher(HashRing(), DispatcherConfig(unmatched=Unmatched.SKIP))
    for number in range(CONSUMERS):
        own = range(number, CONSUMERS * patterns, CONSUMERS)
        dispatcher.add_consumer(
            f"c{number}", filters=[forms[each // CONSUMERS % len(forms)].format(each, each % 10) for each in own]
        )
    return dispatcher


def report_of(title: str, kinds: dict[str, list[str]], sizes: tuple[int, ...], scale: Scale) -> Report:
    columns = tuple(f"{size:,}, us" for size in sizes)
    report = Report(title, columns, [f"an offer of a new key; patterns on each of {CONSUMERS} consumers"])
    for kind, forms in kinds.items():
        cases = {size: new_keys(filtered(forms, size), size, scale.size(NEW_KEYS)) for size in sizes}
        found = turns(cases, scale.repeats(REPEATS))
        report.add(kind, *(found[size] / 1_000 for size in sizes))
    return report


def run(scale: Scale) -> list[Report]:
    quick = report_of("filters", LOOKED_UP, (10, 100, MANY), scale)
    for row in quick.rows:
        target = f"us for a new key, {CONSUMERS} x {MANY:,} patterns: {row.case}"
        quick.judge(target, row.values[-1], BOUND_US)
    return [quick, report_of("filters, tried in turn", TRIED, (10, MAX_TRIED), scale)]
