"""Random lives of larger lease queues: whatever happened, each answer holds, and a fair host empties the queue."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.leasing import count_held, lease_config, letters
from tests.properties.lease_host import Call, Host, bring_to_an_end, fulfil
from tests.properties.slow_groups import GROUP_RULES

from keyshared.config import DrainUnit, GroupLimits, Poison
from keyshared.leases import LeaseConfig

KEYS = ("a", "b", "c", "d", "o", "p", "q", None)
GROUPS = ("", "b", "o")
LENGTH = 250


def any_config(choose: Random, *, redrive: bool, grouped: bool, latest: bool) -> LeaseConfig:
    """Every limit is so low that it is reached within a few calls."""
    ordering = not grouped and not latest and choose.random() < 0.1
    window = choose.choice([1, 2, 2, 3, 4, 8])
    per_key, batch = choose.choice([(1, 1), (1, 1), (2, 1)] if latest else [(1, 1), (1, 1), (2, 1), (1, 2), (1, 3)])
    return lease_config(
        ack_timeout_ms=choose.choice([20, 7]),
        reservation_timeout_ms=5,
        max_delivery_attempts=choose.choice([1, 2, 3, None]),
        **choose.choice(POISONS[-2:] if ordering else POISONS),
        ordering_required=ordering,
        max_ack_holes=None if redrive or grouped or latest else choose.choice([None, 0, 0, 1, 2]),
        max_in_flight=choose.choice([None, None, 1, 3]),
        max_in_flight_per_consumer=choose.choice([1, 2, 9]),
        max_in_flight_per_key=per_key,
        batch_per_key=batch,
        max_tracked=window + choose.choice([0, 2, 8]),
        window=window,
        max_loaded_per_key=max(per_key, batch) + choose.choice([0, 1, 4]),
        unit=DrainUnit.KEY if ordering else choose.choice([DrainUnit.KEY, *DrainUnit]),
        tell_settled=choose.choice([False, True]),
        latest_only=latest,
        measure=choose.choice([False, True]),
        redrive=redrive,
        group=GroupLimits(max_in_flight=choose.choice([None, 1])),
    )


POISONS: tuple[dict[str, Any], ...] = (
    {"poison": Poison.DROP},
    {"poison": Poison.DEAD_LETTER},
    {"poison": Poison.DEAD_LETTER, "quarantine": True},
    {"poison": Poison.BLOCK},
    {"poison": Poison.BLOCK, "archive_blocked": True},
)


class Schedule:
    """Calls of one life. How likely each kind is, is drawn once for each schedule: most are rare, some are common."""

    def __init__(self, host: Host, choose: Random, often: Collection[str] = ()) -> None:
        self.host, self.choose = host, choose
        self.kinds: list[Callable[[], Call | None]] = [
            *(
                self.offer,
                self.ask,
                self.reserve,
                self.commit,
                self.abort,
                self.ack,
                self.ack_through,
                self.nack,
                self.reject,
                self.release,
                self.extend,
                self.fulfil,
            ),
            *(self.free, self.gone, self.truncate, self.wait, self.leave, self.join, self.move, self.crash),
            *(self.redrive, self.pause, self.set_group),
        ]
        self.weights = [choose.choice([0, 0, 0.1, 1, 4]) for _ in self.kinds]
        often = {"offer", "ask", *often}
        for place, kind in enumerate(self.kinds):
            if kind.__name__ in often:
                self.weights[place] = choose.choice([1, 4])
        self.keys = choose.sample(KEYS, choose.choice([1, 3, 5, 8]))

    def one(self) -> None:
        """Make one more call, if there is one of the kind that is drawn."""
        call = self.choose.choices(self.kinds, self.weights)[0]()
        if call is not None:
            passed = self.choose.choice([0, 0, 0, 1, 7]) if call.name != "crash" else 0
            self.host.make(replace(call, passed_ms=call.passed_ms or passed))

    def some(self, options: Sequence[Any]) -> Any:
        return self.choose.choice(options) if options else None

    def offer(self) -> Call | None:
        free = self.host.queue.free_slots
        later = self.choose.choice([None, None, self.host.now + 9])
        options = () if later is None else (("not_before_ms", later),)
        return Call("offer", (self.host.offered, self.choose.choice(self.keys)), options=options) if free else None

    def ask(self) -> Call | None:
        name = self.some(self.host.consumers)
        return Call("consume", (name, self.choose.choice([1, 1, 3]))) if name else None

    def reserve(self) -> Call | None:
        name = self.some(self.host.consumers)
        return Call("reserve", (name, self.choose.choice([1, 1, 3]))) if name else None

    def commit(self) -> Call | None:
        reserved = self.some(self.host.queue.reservations())
        return Call("commit", (reserved.id,)) if reserved else None

    def abort(self) -> Call | None:
        reserved = self.some(self.host.queue.reservations())
        return Call("abort", (reserved.id,)) if reserved else None

    def handle(self) -> Any:
        return self.some([handle for lease in self.host.leases for handle in lease.handles])

    def ack(self) -> Call | None:
        handle = self.handle()
        return Call("ack", handle) if handle else None

    def ack_through(self) -> Call | None:
        handle = self.handle()
        return Call("ack_through", handle) if handle else None

    def nack(self) -> Call | None:
        handle = self.handle()
        return Call("nack", handle) if handle else None

    def reject(self) -> Call | None:
        handle = self.handle()
        return Call("reject", handle, options=(("reason", "refused"),)) if handle else None

    def release(self) -> Call | None:
        handle = self.handle()
        return Call("release", handle, options=(("delay_ms", self.choose.choice([0, 9])),)) if handle else None

    def extend(self) -> Call | None:
        handle = self.handle()
        return Call("extend", handle, options=(("extend_ms", self.choose.choice([9, None])),)) if handle else None

    def fulfil(self) -> Call | None:
        effect = self.some(self.host.obligations)
        return fulfil(effect) if effect else None

    def free(self) -> Call | None:
        offset = self.some(self.host.blocked())
        return None if offset is None else Call(self.choose.choice(["park", "unblock_offset"]), (offset,))

    def gone(self) -> Call | None:
        message = self.some(self.host.messages())
        return Call("gone", message[:1]) if message else None

    def truncate(self) -> Call | None:
        message = self.some(self.host.messages()[:3])
        return Call("truncate", message[:1]) if message else None

    def wait(self) -> Call | None:
        due = self.host.queue.next_deadline_ms()
        return None if due is None else Call("handle_timeout", (), max(due - self.host.now, 0))

    def leave(self) -> Call | None:
        name = self.some(self.host.consumers)
        drain_ms = self.choose.choice([0, 0, 3, None])
        return Call("remove_consumer", (name,), options=(("drain_ms", drain_ms),)) if name else None

    def join(self) -> Call | None:
        name = self.some([name for name in ("x", "y") if name not in count_held(self.host.queue)])
        return Call("add_consumer", (name,)) if name else None

    def move(self) -> Call | None:
        if self.host.config.dispatcher.ordering_required or not self.host.consumers:
            return None
        one, other = (self.choose.choice(self.host.consumers) for _ in "12")
        return Call(
            "set_placement", (self.choose.choice([letters({"a-c": one, "d-z": other}), letters({"a-z": one})]),)
        )

    def redrive(self) -> Call | None:
        letter = self.some(self.host.settled_with_a_key())
        if letter is None or not (self.host.config.dispatcher.redrive and self.host.queue.free_slots):
            return None
        return Call("redrive", (letter[1], [(letter[0], 0, None)]))

    def pause(self) -> Call | None:
        call = self.choose.choice(["pause_group", "resume_group"])
        return Call(call, (self.choose.choice(GROUPS),)) if self.host.rules else None

    def set_group(self) -> Call | None:
        limits = {
            "weight": self.choose.choice([1, 3]),
            "max_in_flight": self.choose.choice([None, 1, 2]),
            "per_second": self.choose.choice([None, 100, 1_000]),
            "burst": self.choose.choice([1, 2]),
        }
        return (
            Call("set_group", (self.choose.choice(GROUPS),), options=tuple(limits.items())) if self.host.rules else None
        )

    def crash(self) -> Call:
        return Call("crash")


def a_host(choose: Random, often: Collection[str] = ()) -> Host:
    redrive, grouped = (verb in often or choose.random() < 0.2 for verb in ("redrive", "pause"))
    config = any_config(choose, redrive=redrive, grouped=grouped, latest="latest" in often or choose.random() < 0.2)
    host = Host(config, letters({"a-m": "x", "n-z": "y"}), GROUP_RULES if grouped else None)
    host.make(Call("add_consumer", ("x",)))
    host.make(Call("add_consumer", ("y",)))
    return host


def live_and_end(choose: Random, often: Collection[str] = ()) -> None:
    """One life; from several places in it a fair host empties the queue."""
    host = a_host(choose, often)
    schedule = Schedule(host, choose, often)
    for _ in range(LENGTH):
        schedule.one()
        if choose.random() < 0.05:
            bring_to_an_end(host.forks()())
    bring_to_an_end(host)


MIXES: dict[str, tuple[str, ...]] = {
    "anything": (),
    "letters and leases that expire": ("redrive", "wait", "reject", "fulfil", "crash"),
    "pauses and reservations": ("pause", "set_group", "reserve", "commit", "abort", "wait"),
    "the latest and leases that end": ("latest", "nack", "release", "wait", "reserve", "abort"),
}
"""What is likely in a life, besides offers and those who ask."""


@given(st.sampled_from(list(MIXES)), st.integers(0, 1 << 32))  # a seed: too many choices for Hypothesis to shrink
def test_whatever_happened_a_fair_host_empties_the_queue(mix: str, seed: int) -> None:
    live_and_end(Random(seed), MIXES[mix])  # reproducible, not secret
