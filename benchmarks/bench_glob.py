"""What an offer of a new key costs where consumers have many patterns."""

from collections.abc import Sequence
from itertools import count
from time import process_time_ns

from benchmarks._harness import Report, Scale, Timed, turns

from keyshared.config import DispatcherConfig, Unmatched
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver
from keyshared.ring import HashRing

REPEATS = 3
CONSUMERS = 8
PATTERNS = (10, 100, 1_000)  # on each of them
JUDGED = 1_000
BOUND_US = 100
NEW_KEYS = 200
KINDS = {
    "exact": "eu-west-{0}-{1}-order",
    "prefix": "eu-west-{0}-*",
    "suffix": "*-{0}-order",
    "inner star": "eu-west-{0}-*-order",
    "two stars": "*-{0}-*",
    "question mark": "eu-west-?-{0}-order",
    "star and question mark": "*?{0}-?*",
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


def many_patterns(scale: Scale) -> Report:
    columns = tuple(f"{patterns:,}, us" for patterns in PATTERNS)
    report = Report("filters", columns, [f"an offer of a new key; patterns on each of {CONSUMERS} consumers"])
    kinds = {kind: [form] for kind, form in KINDS.items()} | {"all of these": list(KINDS.values())}
    for kind, forms in kinds.items():
        sizes = {patterns: scale.size(patterns) if patterns > JUDGED else patterns for patterns in PATTERNS}
        cases = {
            patterns: new_keys(filtered(forms, size), size, scale.size(NEW_KEYS)) for patterns, size in sizes.items()
        }
        found = {patterns: spent / 1_000 for patterns, spent in turns(cases, scale.repeats(REPEATS)).items()}
        report.add(kind, *found.values())
        report.judge(f"us for a new key, {CONSUMERS} x {JUDGED:,} patterns: {kind}", found[JUDGED], BOUND_US)
    return report


def run(scale: Scale) -> list[Report]:
    return [many_patterns(scale)]
