"""Random schedules that attack a dispatcher through its public face, in pairs of features.

Each schedule has the settings of two features for certain and some others by chance, and calls that a clumsy host
makes: stale answers, answers twice, restarts in the middle, time that leaps. `contract_judge.Judge` makes the calls.
"""

import itertools
import json
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.properties.contract_judge import Broken, Judge

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher, Poison, RetryPolicy
from keyshared.config import DrainUnit, GroupLimits, KeySessions, LookAhead, OnEvict, Rules, Unmatched
from keyshared.dispatcher import StoredLetter
from keyshared.effects import KeyEnding, Load
from keyshared.errors import ConfigError, KeySharedError, WindowFullError
from keyshared.placement import HashRange
from keyshared.placement.assigned import AssignedRanges

POISONS: dict[str, dict[str, Any]] = {
    "drop": {"poison": Poison.DROP},
    "dead_letter": {"poison": Poison.DEAD_LETTER},
    "block": {"poison": Poison.BLOCK},
    "block_and_dead_letter": {"poison": Poison.BLOCK, "archive_blocked": True},
    "quarantine": {"poison": Poison.DEAD_LETTER, "quarantine": True},
}

Settings = dict[str, Any]
Draw = random.Random


def _rule(name: str, function: Callable[[bytes], Any]) -> Callable[[Settings, Draw], None]:
    def set_rule(settings: Settings, _: Draw) -> None:
        settings.setdefault("rules", {})[name] = function

    return set_rule


def _set(**values: Any) -> Callable[[Settings, Draw], None]:
    """Set each value; a list is what to choose from."""

    def set_values(settings: Settings, draw: Draw) -> None:
        for name, value in values.items():
            settings[name] = draw.choice(value) if isinstance(value, list) else value

    return set_values


def _groups(settings: Settings, draw: Draw) -> None:
    _rule("group_of", lambda key: key.decode()[:1])(settings, draw)
    settings["group"] = GroupLimits(max_in_flight=draw.choice([None, 1, 2]), weight=draw.choice([1, 2]))


def _rates(settings: Settings, draw: Draw) -> None:
    _rule("group_of", lambda key: key.decode()[:1])(settings, draw)
    settings["group"] = GroupLimits(per_second=draw.choice([10, 50]), burst=draw.choice([1, 3]))


FEATURES: dict[str, Callable[[Settings, Draw], None]] = {
    "pipelines": _set(max_in_flight_per_key=[2, 3]),
    "batches": _set(batch_per_key=[2, 3]),
    "limit_of": _rule("limit_of", lambda key: 1 + key[-1] % 3),
    "max_in_flight": _set(max_in_flight=[1, 3]),
    "groups": _groups,
    "rates": _rates,
    "latest": _set(latest_only=True),
    "latest_of": _rule("latest_only", lambda key: key[0] % 2 == 0),
    "sessions": lambda settings, draw: settings.update(
        sessions=KeySessions(linger_ms=draw.choice([0, 60]), flush_ms=draw.choice([0, 40, None]))
    ),
    "hash_unit": _set(unit=DrainUnit.HASH, slot_bits=2),
    "runs": _set(unit=DrainUnit.RANGE, slot_bits=3),
    "range_unit": _set(unit=DrainUnit.RANGE, one_range=True),
    "drain_timeout": _set(drain_timeout_ms=70),
    "redrive": _set(redrive=True, poison_name=["dead_letter", "quarantine"]),
    "holes": _set(max_ack_holes=[1, 3]),
    "no_spill": _set(spill=False, max_waiting_per_key=[None, 2]),
    "look_ahead": lambda settings, draw: settings.update(
        look_ahead=LookAhead(per_consumer=draw.choice([2, 5]), per_subscription=draw.choice([0, 12]))
    ),
    "settled": _set(tell_settled=True),
    "measure": _set(measure=True),
    "keyless": _set(keyless=True),
    "filters": _set(filters=True),
    "ordering": _set(ordering_required=True, poison_name="block", on_evict=OnEvict.REDELIVER, unmatched=Unmatched.HOLD),
    "quarantine": _set(poison_name="quarantine"),
    "block": _set(poison_name=["block", "block_and_dead_letter"]),
    "small": _set(window=4, max_loaded_per_key=[1, 3], max_tracked=12),
    "on_evict": _set(on_evict=OnEvict.DROP),
    "not_before": _set(not_before=True),
    "pull": _set(pull=True, max_in_flight_per_consumer=0),
    "restarts": _set(restarts=True),
    "tokens": _set(tokens=True),
    "wider": _set(wider=True),
}
PAIRS = list(itertools.combinations(FEATURES, 2))
HOSTS_OWN = (
    "rules",
    "keyless",
    "filters",
    "not_before",
    "pull",
    "restarts",
    "tokens",
    "wider",
    "one_range",
    "slot_bits",
    "poison_name",
)
"""Settings of the schedule that are none of the configuration."""


def settings_of(draw: Draw, pair: tuple[str, str]) -> Settings:
    """Draw the settings of a schedule; the configuration may refuse them."""
    settings: Settings = {
        "window": draw.choice([8, 20]),
        "max_in_flight_per_consumer": draw.choice([1, 2, 5]),
        "retry": RetryPolicy(
            max_redeliveries=draw.choice([1, 3]),
            base_delay_ms=draw.choice([0, 50]),
            max_delay_ms=draw.choice([20, 60_000]),
        ),
        "ack_timeout_ms": draw.choice([None, 100]),
        "poison_name": draw.choice(list(POISONS)),
        "inactive_grace_ms": draw.choice([None, 80]),
        "unmatched": draw.choice([Unmatched.HOLD, Unmatched.SKIP]),
    }
    others = [name for name in FEATURES if draw.random() < 0.06]
    for name in (*others, *pair):
        FEATURES[name](settings, draw)
    if "one_range" in settings:
        settings["unit"] = DrainUnit.RANGE
        settings.pop("slot_bits", None)
    if settings.get("unit") is not None or settings.get("ordering_required"):
        settings.pop("filters", None)
    return settings


def make(settings: Settings) -> tuple[DispatcherConfig, Rules | None] | None:
    values = {name: value for name, value in settings.items() if name not in HOSTS_OWN}
    try:
        config = DispatcherConfig(**values, **POISONS[settings["poison_name"]])
        rules = Rules(mark="attack", **settings["rules"]) if "rules" in settings else None
        KeySharedDispatcher[str](HashRing(), config, rules=rules)
        if "one_range" in settings and (settings.get("slot_bits") or config.ordering_required):
            return None
    except ConfigError:
        return None  # two features that cannot be had together
    return config, rules


class Attack:
    """One schedule: draws the calls that fit what is outstanding, and some that do not.

    Attributes:
        start: Makes a placement; None for a ring, or for the one range that the settings ask for.
    """

    def __init__(
        self,
        seed: int,
        pair: tuple[str, str],
        steps: int,
        factory: type[KeySharedDispatcher[Any]] = KeySharedDispatcher,
        *,
        judged: str | None = None,
        start: Callable[[], Any] | None = None,
    ) -> None:
        self.factory = factory
        self.start = getattr(factory, "starts_with", start)
        self.told: list[Any] = []
        self.draw = draw = random.Random(f"{seed} {pair}")
        self.steps = steps
        self.assigned = "w"
        self.settings = settings_of(draw, pair)
        self.made = make(self.settings)
        if self.made is None:
            return
        config, rules = self.made
        self.keys = [
            *(["a1", "a2", "b1", "b2", "c1", "d1"][: draw.choice([2, 6])]),
            *([None] if "keyless" in self.settings else []),
        ]
        self.next = 0
        self.log: dict[int, tuple[Any, str]] = {}
        self.unread: list[int] = []
        self.flushes: list[tuple[bytes, int]] = []
        dispatcher = factory(self.placement("w"), config, rules=rules)
        self.judge = Judge(dispatcher, config, rules, judged=judged)
        self.judge.slot_bits = None if "one_range" in self.settings else self.settings.get("slot_bits", 16)
        if self.start is not None:
            self.judge.slot_bits = None
        self.twin: KeySharedDispatcher[Any] | None = None

    def placement(self, owner: str | None = None) -> Any:
        self.assigned = owner or self.assigned
        if self.start is not None:
            return self.start()
        if "one_range" in self.settings:
            return AssignedRanges([(HashRange(0, 65_536), self.assigned)])
        return HashRing(slot_bits=self.settings.get("slot_bits", 16))

    def placement_now(self) -> Any:
        """Return what a restart is given: some placements follow from what has happened."""
        return self.placement() if self.start is None else self.judge.dispatcher.placement

    def is_unassigned(self) -> bool:
        """Return whether the owner of the one range has left, so that the range is nobody's."""
        owner = self.judge.members.get(self.assigned)
        left = owner is None or owner.state == "draining"
        return "one_range" in self.settings and (left or self.judge.dispatcher.owner(b"a1") != self.assigned)

    def run(self) -> bool:
        """Run the schedule and return whether there was one."""
        if self.made is None:
            return False
        for name in "wx":
            self.call("add_consumer", name)
        for _ in range(self.steps):
            self.judge.now += self.draw.choice([0, 0, 0, 5, 30, 90])
            self.step()
        return True

    def call(self, name: str, *args: Any, **options: Any) -> list[Any]:
        effects = self.judge.call(name, *args, **options)
        self.told.append(effects)
        if self.twin is not None:
            again = getattr(self.twin, name)(*args, now_ms=self.judge.now, **options)
            if again != effects:
                raise Broken("resume: the restored one answers", again, "the other one", effects)
        for effect in effects:
            if isinstance(effect, KeyEnding):
                self.flushes.append((effect.key, effect.session))
        return effects

    def step(self) -> None:
        weights = {
            self.offer: 34, self.settle: 28, self.fail: 10, self.stale: 3, self.tick: 8, self.member: 10,
            self.load: 6, self.archive: 4, self.release_key: 4, self.gone: 1, self.flush: 3,
            self.group: 3 if self.judge.rules is not None and self.judge.rules.group_of is not None else 0,
            self.pull: 12 if "pull" in self.settings else 1,
            self.redrive: 5 if self.settings.get("redrive") else 0,
            self.restart: 3 if "restarts" in self.settings else 0,
            self.restart_from_token: 2 if "tokens" in self.settings else 0,
            self.restart_wider: 3 if "wider" in self.settings else 0,
        }  # fmt: skip
        self.draw.choices(list(weights), list(weights.values()))[0]()

    # The calls

    def messages(self, count: int) -> list[tuple[Any, ...]]:
        """Return what is next of the log; it grows as it is read."""
        while len(self.unread) < count:
            self.log[self.next] = (self.draw.choice(self.keys), f"m{self.next}")
            self.unread.append(self.next)
            self.next += self.draw.choice([1, 1, 2])
        late = self.draw.random() < (0.3 if "not_before" in self.settings else 0.02)
        until = self.judge.now + self.draw.choice([-5, 0, 40]) if late else None
        return [(offset, *self.log[offset], until) for offset in self.unread[:count]]

    def offer(self) -> None:
        dispatcher = self.judge.dispatcher
        messages = self.messages(self.draw.choice([1, 1, 1, 3]))
        room = dispatcher.free_slots
        keyed = min(dispatcher.room_for(key) for _, key, _, _ in messages)
        if room >= len(messages) and keyed >= len(messages):
            del self.unread[: len(messages)]
            if len(messages) == 1:
                offset, key, item, not_before = messages[0]
                self.call("offer", offset, key, item, not_before_ms=not_before)
            else:
                self.call("offer_many", messages)
            return
        offset, key, item, _ = messages[0]
        if (room and dispatcher.room_for(key)) or offset in self.judge.known:
            return
        state = dispatcher.snapshot()
        try:
            dispatcher.offer(offset, key, item)
        except WindowFullError:
            if dispatcher.snapshot() != state:
                raise Broken("an offer that raises has changed something") from None
        else:
            raise Broken("bounds: an offer without a free slot was taken", offset, key)

    def receipts(self) -> list[tuple[int, str, int]]:
        return [(book.offset, book.open, book.attempt) for book in self.judge.books.values() if book.open is not None]

    def settle(self) -> None:
        if not (held := self.receipts()):
            return
        chance = self.draw.random()
        if chance < 0.7:
            self.call("ack", *self.draw.choice(held))
        elif chance < 0.85:
            self.call("ack_many", self.draw.sample(held, min(len(held), 3)))
        else:
            self.call("ack_through", *self.draw.choice(held))

    def fail(self) -> None:
        if not (held := self.receipts()):
            return
        receipt = self.draw.choice(held)
        match self.draw.choice(["nack", "nack", "reject", "release", "extend"]):
            case "nack":
                options: dict[str, Any] = {"delay_ms": self.draw.choice([None, 0, 30])}
                self.call("nack", *receipt, reason=self.draw.choice([None, "why", "who"]), **options)
            case "reject":
                self.call("reject", *receipt, reason=self.draw.choice([None, "no"]))
            case "release":
                self.call("release", *receipt, delay_ms=self.draw.choice([0, 40]))
            case _:
                self.call("extend", *receipt)

    def stale(self) -> None:
        if not self.judge.old:
            return
        receipt = self.draw.choice(self.judge.old[-12:])
        self.call(self.draw.choice(["ack", "ack", "ack", "nack", "reject", "release", "extend"]), *receipt)

    def tick(self) -> None:
        due = self.judge.dispatcher.next_deadline_ms()
        if due is not None and self.draw.random() < 0.5:
            self.judge.now = max(self.judge.now, due + self.draw.choice([-1, 0, 0, 7]))
        self.call("handle_timeout")

    def filters(self) -> list[str]:
        return (
            self.draw.choice([[], ["a*"], ["b*", "a1"], ["*"], ["c1", "d*"], ["?1"], ["*2", "c1"]])
            if "filters" in self.settings
            else []
        )

    def member(self) -> None:
        judge, draw = self.judge, self.draw
        connected = [name for name, one in judge.members.items() if one.state != "draining"]
        absent = [name for name in "wxyz" if name not in connected]
        kind = draw.choice(["add", "add", "remove", "inactive", "active", "limit", "filters"])
        if kind == "add" and absent:
            options = {"filters": found} if (found := self.filters()) else {}
            self.call("add_consumer", draw.choice(absent), **options)
        elif not connected:
            return
        elif kind == "remove":
            self.call("remove_consumer", draw.choice(list(judge.members)), drain_ms=draw.choice([0, 50, None]))
        elif kind == "inactive" and draw.random() < 0.6:
            self.call("set_inactive", draw.choice(connected))
        elif kind == "active" and draw.random() < 0.6:
            self.call("set_active", draw.choice(connected), resumed=draw.random() < 0.5)
        elif kind == "active" and "one_range" in self.settings:
            self.call("set_placement", self.placement(draw.choice("wxy")))
        elif kind == "inactive" and "one_range" not in self.settings and self.start is None:
            self.call("set_weight", draw.choice(connected), draw.choice([1, 2]))
        elif kind == "limit":
            self.call("set_limit", draw.choice(connected), draw.choice([0, 1, 3]))
        elif "filters" in self.settings:
            self.call("set_filters", draw.choice(connected), self.filters())

    def load(self) -> None:
        wanted = [effect for effect in self.judge.dispatcher.outstanding_effects() if isinstance(effect, Load)]
        if wanted:
            offset = self.draw.choice(wanted).offset
            self.call("loaded", offset, f"m{offset}")

    def archive(self) -> None:
        if self.judge.letters:
            self.call("dead_lettered", self.draw.choice(list(self.judge.letters)))

    def release_key(self) -> None:
        blocked = [book for book in self.judge.books.values() if book.blocked]
        keys = [book.key for book in blocked] + sorted(self.judge.quarantined)
        if not keys:
            return
        offset = self.draw.choice(blocked).offset if blocked else 0
        match self.draw.choice(["unblock", "unblock_offset", "park"]):
            case "unblock":
                self.call("unblock", self.draw.choice(keys))
            case "unblock_offset" if blocked:
                self.call("unblock_offset", offset, reset_failures=self.draw.random() < 0.5)
            case "park" if blocked:
                self.call("park", offset)

    def gone(self) -> None:
        if self.judge.books:
            offset = self.draw.choice(list(self.judge.books))
            if self.draw.random() < 0.7:
                self.call("gone", offset)
            else:
                self.call("truncate", self.draw.choice(sorted(self.judge.books)[:6]) + 1)

    def flush(self) -> None:
        if self.flushes:
            self.call("flushed", *self.draw.choice(self.flushes[-4:]))

    def group(self) -> None:
        name = self.draw.choice("abcd")
        match self.draw.choice(["pause_group", "resume_group", "resume_group", "set_group"]):
            case "set_group":
                limits = {"max_in_flight": self.draw.choice([None, 1, 3]), "weight": self.draw.choice([1, 2])}
                self.call("set_group", name, **limits)
            case verb:
                self.call(verb, name)

    def pull(self) -> None:
        active = [name for name, one in self.judge.members.items() if one.state == "active"]
        if not active:
            return
        name, options = self.draw.choice(active), {}
        if self.draw.random() < 0.2 and self.judge.books:
            options["only"] = self.draw.choice(list(self.judge.books))
        self.call("pull", name, self.draw.choice([1, 2, 5]), **options)

    def redrive(self) -> None:
        """Bring letters of a key back, several at once, and some again that are back already."""
        judge = self.judge
        stored = judge.stored | {
            book.offset: (book.key, book.base, book.item) for book in judge.books.values() if book.back
        }
        if not stored:
            return
        key = stored[self.draw.choice(list(stored))][0]
        last = max(judge.offered, default=-1)
        letters = [
            StoredLetter(offset, of[1], of[2]) for offset, of in stored.items() if of[0] == key and offset <= last
        ]
        letters = self.draw.sample(letters, min(len(letters), self.draw.choice([1, 1, 3])))
        if letters and judge.dispatcher.free_slots >= len(letters):
            self.call("redrive", key, letters)

    def restart(self) -> None:
        """Go on with a dispatcher that was restored; the old one goes on as its twin."""
        judge = self.judge
        judge.now = judge.called
        self.call("handle_timeout")  # a restore hands out what time has made possible
        if self.is_unassigned():
            return
        state = json.loads(json.dumps(judge.dispatcher.snapshot()))
        items = {book.offset: book.item for book in judge.books.values() if book.memory == "loaded"}
        again = self.factory.restore(
            state, self.placement_now(), judge.config, now_ms=judge.called, items=items, rules=judge.rules
        )
        if again.snapshot() != judge.dispatcher.snapshot():
            raise Broken("resume: another snapshot", again.snapshot(), judge.dispatcher.snapshot())
        self.twin, judge.dispatcher = judge.dispatcher, again

    def restart_wider(self) -> None:
        """Restore with wider limits: what they allow goes out."""
        judge, config = self.judge, self.judge.config
        if self.is_unassigned():
            return
        changes: dict[str, Any] = {
            "window": config.window * 2,
            "max_tracked": config.max_tracked * 2,
            "max_loaded_per_key": config.max_loaded_per_key + 1,
        }
        if config.batch_per_key == 1 and not config.ordering_required:
            changes["max_in_flight_per_key"] = config.max_in_flight_per_key + 1
        if config.max_in_flight is not None:
            changes["max_in_flight"] = config.max_in_flight + 1
        config = replace(config, **self.draw.choice([changes, {name: changes[name] for name in list(changes)[2:]}]))
        items = {book.offset: book.item for book in judge.books.values() if book.memory == "loaded"}
        again = self.factory.restore(
            json.loads(json.dumps(judge.dispatcher.snapshot())),
            self.placement_now(), config, now_ms=judge.called, items=items, rules=judge.rules,
        )  # fmt: skip
        self.twin = None
        judge.now = judge.called
        judge.adopted(again, config)
        self.call("handle_timeout")

    def restart_from_token(self) -> None:
        """Begin again from the text of the token: everybody joins again, and the log is read again."""
        judge = self.judge
        token = judge.dispatcher.cursor_token(100_000).text
        position = judge.dispatcher.resume_offset
        again = self.factory(self.placement(), judge.config, rules=judge.rules, resume_from=token)
        self.unread = sorted(offset for offset in self.log if position is None or offset >= position)
        self.twin, self.flushes = None, []
        judge.resumed_from_token(again)
        for name in "wx":
            self.call("add_consumer", name)


def main() -> None:
    """Run schedules of every pair, and print what was found: `attacking.py FROM TO`."""
    first, last = int(sys.argv[1]), int(sys.argv[2])
    only = set(sys.argv[3].split(",")) if len(sys.argv) > 3 else None
    ran, found, began = 0, Counter[str](), time.time()
    for number in range(first, last):
        pair = PAIRS[number % len(PAIRS)]
        if only is not None and not only & set(pair):
            continue
        if number % 500 == 0:
            print(number, ran, dict(found), flush=True)
        one = Attack(number, pair, 100)
        try:
            ran += one.run()
        except (Broken, KeySharedError, AssertionError) as error:
            ran += 1
            name = str(error.args[0]) if error.args else type(error).__name__
            found[name] += 1
            if found[name] <= 2:
                print(f"--- {number} {pair} {one.settings}\n   calls {len(one.judge.log)}, last {one.judge.log[-1]}")
                print("   ", type(error).__name__, *[str(part)[:600] for part in error.args])
                if not isinstance(error, Broken):
                    traceback.print_exc(limit=-3)
    print(ran, "schedules", round(time.time() - began, 1), "s", dict(found))


if __name__ == "__main__":
    main()
