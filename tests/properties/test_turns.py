"""Keys take turns at a consumer, whatever ends what they wait with: failures, waits and late acks, again and again."""

from random import Random
from typing import Any

import pytest
from tests.kit.recorder import Recorder

from keyshared.config import DispatcherConfig, RetryPolicy
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.ring import HashRing
from keyshared.testing import Claims, check_history

CONFIG = DispatcherConfig(max_in_flight_per_consumer=1, retry=RetryPolicy(base_delay_ms=10, max_delay_ms=10))
IN_TURN = Claims(promises={"fairness"}, fairness=0, per_consumer=1)


@pytest.mark.parametrize("seed", range(100))
def test_keys_take_turns_whatever_ends_what_they_wait_with(seed: int) -> None:
    random = Random(seed)
    recorder: Any = Recorder(KeySharedDispatcher(HashRing(), CONFIG))
    recorder.add_consumer("c")
    over: list[tuple[int, str, int]] = []
    offset = now = 0
    for _ in range(100):
        roll = random.random()
        running = [delivery.receipt for delivery in recorder.in_flight()]
        if roll < 0.3:
            recorder.offer(offset, random.choice([*"abcdef", None]))
            offset += 1
        elif roll < 0.55:
            now += 10
            recorder.handle_timeout(now_ms=now)
        elif roll < 0.7 and over:
            recorder.ack(*over.pop(random.randrange(len(over))))
        elif roll < 0.85 and running:
            recorder.ack(*running[0])
        elif running:
            over += running
            recorder.nack(*running[0])
    assert [] == check_history(recorder.history, IN_TURN)
