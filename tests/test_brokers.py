"""The example broker under real concurrency: every key in order, every message settled, no effect out of turn."""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from threading import Lock, Thread

from examples import pull_broker

from keyshared import DispatcherConfig, RetryPolicy
from keyshared.effects import DeadLetter, Deliver

HOT = "hot"
LOG: Sequence[tuple[str, object]] = [(HOT if n % 2 else f"key-{n % 13}", f"payload {n}") for n in range(240)]
CONFIG = DispatcherConfig(window=16, max_loaded_per_key=4, retry=RetryPolicy(max_redeliveries=1, base_delay_ms=2))
CONSUMERS = ["c1", "c2", "c3"]
POISON = range(31, len(LOG), 60)
SHAKY = range(4, len(LOG), 17)  # fails once


class Watch:
    """Sees every start and end of work, whichever thread or task does it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.busy: dict[bytes | None, int] = {}
        self.peak = 0
        self.starts: dict[bytes | None, list[int]] = defaultdict(list)
        self.done: list[int] = []
        self.wrong: list[str] = []

    def start(self, delivery: Deliver) -> None:
        with self.lock:
            if delivery.key in self.busy:
                self.wrong.append(f"{delivery} while {self.busy[delivery.key]} of its key is worked on")
            if delivery.item != LOG[delivery.offset][1]:
                self.wrong.append(f"{delivery} carries another payload")
            self.busy[delivery.key] = delivery.offset
            self.peak = max(self.peak, len(self.busy))
            self.starts[delivery.key].append(delivery.offset)

    def end(self, delivery: Deliver) -> None:
        with self.lock:
            del self.busy[delivery.key]
        if delivery.offset in POISON or (delivery.offset in SHAKY and delivery.failures == 0):
            raise ValueError(delivery.offset)
        self.done.append(delivery.offset)

    def check(self, committed: Sequence[int], dead_letters: Iterable[DeadLetter]) -> None:
        assert self.wrong == []
        assert self.peak > 1, "nothing ran at the same time, so nothing was shown"
        for key, starts in self.starts.items():
            assert sorted(starts) == starts, f"{key!r} was worked on out of order"
        assert sorted({*range(len(LOG))} - {*POISON}) == sorted(self.done)
        assert list(POISON) == [letter.offset for letter in dead_letters]
        assert sorted(set(committed)) == list(committed)
        assert len(LOG) - 1 == committed[-1]


def pause(delivery: Deliver) -> float:
    """Unequal, so that work overtakes work."""
    return 0.0005 * (delivery.offset % 5)


def test_the_pull_broker_serves_threads_that_ack_in_any_order_and_one_that_dies() -> None:
    watch = Watch()
    broker = pull_broker.PullBroker(LOG, CONFIG)
    for name in [*CONSUMERS, "dies"]:
        broker.join(name)

    def work(name: str) -> None:
        while not broker.done():
            acks, nacks = [], []
            for delivery in reversed(broker.pull(name, most=5)):
                watch.start(delivery)
                time.sleep(pause(delivery))
                try:
                    watch.end(delivery)
                except ValueError:
                    nacks.append(delivery.receipt)
                else:
                    acks.append(delivery.receipt)
            broker.settle(acks, nacks)
            if not acks and not nacks:
                time.sleep(0.001)

    taken = broker.pull("dies", most=3)
    threads = [Thread(target=work, args=(name,)) for name in CONSUMERS]
    for thread in threads:
        thread.start()
    broker.leave("dies")
    for thread in threads:
        thread.join()

    watch.check(broker.committed, broker.dead_letters)
    assert len(taken) > 1, "the one that died held nothing, so nothing was shown"
    assert {delivery.offset for delivery in taken} <= {*watch.done, *POISON}
    broker.dispatcher.check_invariants()
