"""Wherever the log of commands is cut, and whatever comes twice or in disorder: the outcomes are those of the whole."""

import json
import zlib
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.command_logs import Log, pieces_of, ring, written_log

from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Effect, Load
from keyshared.errors import KeySharedError
from keyshared.journal import COMMANDS, LATE, Command, Journal, OutcomeRow, journal
from keyshared.journal.commands import FIELDS, REFUSED, call, fields_of
from keyshared.journal.outcomes import OutcomeHost
from keyshared.journal.sequences import Sequences

LENGTH = 60
SEEDS = range(300)


def whole(log: Log) -> list[OutcomeRow]:
    return list(Journal(ring(), log.config).apply_all(log.commands))


def cut(log: Log, rng: Random, kind: type[Journal] = Journal) -> tuple[list[OutcomeRow], Journal]:
    """Piece by piece, stored and read again in between; time may pass there as far as what comes next allows it."""
    journal = kind(ring(), log.config)
    told: list[OutcomeRow] = []
    left = set(log.commands)
    for piece in pieces_of(rng, log.commands):
        told += journal.apply_all(piece)
        left -= set(piece)
        earliest = min((command.at_ms for command in left), default=0)
        told += journal.advance(rng.choice([earliest, earliest - 5, 0]))
        joined = rng.choice([None, journal.ring])
        journal = kind.from_bytes(journal.to_bytes(), ring(), log.config, joined=joined)
        journal.dispatcher.check_invariants()
    return told, journal


@given(st.integers(0, 1 << 32))  # a seed: to draw every choice would cost many times what is tested
def test_wherever_the_log_is_cut_the_outcomes_and_the_state_are_those_of_the_whole(seed: int) -> None:
    rng = Random(seed)
    log = written_log(rng, LENGTH)
    told, journal = cut(log, rng)
    uncut = Journal(ring(), log.config)

    assert list(uncut.apply_all(log.commands)) == told
    assert uncut.to_bytes() == journal.to_bytes()
    assert uncut.advance(10_000) == journal.advance(10_000)


@given(st.integers(0, 1 << 32))
def test_nothing_waits_where_a_wider_configuration_has_room(seed: int) -> None:
    log = written_log(Random(seed), LENGTH)
    before, after = log.commands[: LENGTH // 2], log.commands[LENGTH // 2 :]
    tight = Journal(ring(), log.config)
    list(tight.apply_all(before))
    wide = log.config.__class__.from_json({**log.config.to_json(), "max_tracked": 500})
    journal, other = (Journal.from_bytes(tight.to_bytes(), ring(), wide) for _ in range(2))
    told = journal.advance(tight._host.now)

    assert (journal.unread == 0) or (journal.dispatcher.free_slots == 0)
    assert list(other.apply_all(after)) == told + list(journal.apply_all(after))
    assert other.to_bytes() == journal.to_bytes()


def by_hand(log: Log) -> Iterator[tuple[Any, ...]]:
    """A host that shares nothing with the journal but the names of commands, and has room for everything."""
    dispatcher, now = KeySharedDispatcher(ring(), log.config), 0

    def done(effects: list[Effect]) -> Iterator[tuple[Any, ...]]:
        yield from ((now, *fields_of(effect)) for effect in effects if type(effect) in FIELDS)
        for load in [effect for effect in effects if isinstance(effect, Load)]:
            yield from done(dispatcher.loaded(load.offset))

    for command in log.commands:
        reached = max(now, command.at_ms)
        for at in range(now, reached + 1):
            now = at
            yield from done(dispatcher.handle_timeout(now_ms=now))
        try:
            if command.command == "offer":
                later = None if command.duration_ms is None else now + command.duration_ms
                effects = dispatcher.offer(command.offset, command.key, not_before_ms=later, now_ms=now)  # type: ignore[arg-type]  # None too
            else:
                effects = call(dispatcher, command, now_ms=now)
        except KeySharedError:
            yield now, REFUSED
        else:
            yield from done(effects)
        yield from done(dispatcher.handle_timeout(now_ms=now))


def roomy(seed: int) -> Log:
    rng = Random(seed)
    log = written_log(rng, 0)
    roomy = {"max_tracked": 500, "window": 500, "look_ahead": None}
    return written_log(rng, LENGTH, log.config.__class__.from_json({**log.config.to_json(), **roomy}))


def shown(outcome: OutcomeRow) -> tuple[Any, ...]:
    return (outcome.at_ms, REFUSED) if outcome.effect == REFUSED else outcome[2:]


def test_the_outcomes_are_what_the_dispatcher_says_to_a_host_that_ticks_every_millisecond() -> None:
    for seed in range(60):
        log = roomy(seed)
        assert list(by_hand(log)) == [shown(outcome) for outcome in whole(log)]


def test_the_logs_reach_every_command_and_every_effect() -> None:
    commands: Counter[str] = Counter()
    told: Counter[str] = Counter()
    waited = 0
    for seed in range(150):
        log = written_log(Random(seed), LENGTH)
        commands.update(command.command for command in log.commands)
        journal = Journal(ring(), log.config)
        for command in log.commands:
            told.update(outcome.effect for outcome in journal.apply(command))
            waited += journal.unread

    assert set(COMMANDS) <= set(commands)
    assert 15 == len(told)
    assert waited > 1_000


class Forgetful(Journal):
    """Stores nothing."""

    @classmethod
    def from_bytes(cls, *state_and_rest: Any, **_: Any) -> Any:
        return cls(*state_and_rest[1:])


class Credulous(Journal):
    """Carries out whatever comes, also again."""

    def apply(self, command: Command) -> list[OutcomeRow]:
        self._seen = Sequences()
        return super().apply(command)


class Hasty(Journal):
    """Takes a piece as it comes."""

    def apply_all(self, commands: Any) -> Iterator[OutcomeRow]:
        for command in commands:
            yield from self.apply(command)


class Coarse(OutcomeHost):
    """Lets what is due act when somebody looks."""

    def pass_to(self, until: int) -> None:
        if (deadline := self.dispatcher.next_deadline_ms()) is not None and deadline <= until:
            self.now = max(self.now, until)
            self.time_out()


class Rereading(OutcomeHost):
    """Leaves the order of offsets to the dispatcher, which forgives old ones after a restore."""

    @property
    def _newest(self) -> int | None:
        return next(reversed(self.unread), None)


def forgetting(field: str, value: object) -> type[Journal]:
    class Partial(Journal):
        def to_bytes(self) -> bytes:
            state = json.loads(zlib.decompress(super().to_bytes()))
            return zlib.compress(json.dumps({**state, field: value}).encode())

    Partial.__name__ = f"without_{field}"
    return Partial


class Timeless(Journal):
    """Stores the messages that have no room yet without the instant before which they shall not go out."""

    def to_bytes(self) -> bytes:
        state = json.loads(zlib.decompress(super().to_bytes()))
        state["unread"] = [[offset, key, None] for offset, key, _ in state["unread"]]
        return zlib.compress(json.dumps(state).encode())


BROKEN: list[type[Journal]] = [
    *(Forgetful, Credulous, Hasty, Timeless),
    *(forgetting("unread", []), forgetting("sequence", None), forgetting("position", 0), forgetting("now_ms", 0)),
]


def strayed(rng: Random, commands: list[Command]) -> list[list[Command]]:
    """Pieces in which some commands come later than they should, some never, and some more than once."""
    pieces = [piece[:1] if rng.random() < 0.1 else piece for piece in pieces_of(rng, commands)]
    weight = rng.choice([0.05, 0.3, 0.8])
    for number, piece in enumerate(pieces):
        for command in [command for command in piece if rng.random() < weight]:
            piece.remove(command)
            pieces[rng.randrange(number, len(pieces))].append(command)
    return pieces


class Expected(NamedTuple):
    """Which commands are carried out, in their order, and which are late."""

    done: list[Command]
    late: list[int]


def by_sets(pieces: list[list[Command]]) -> Expected:
    """A journal's memory without bounds: what was carried out, and what was late."""
    done: list[Command] = []
    late: list[int] = []
    for piece in pieces:
        for command in sorted(piece, key=lambda command: command.sequence):
            if command in done or command.sequence in late:
                continue
            if done and command.sequence < done[-1].sequence:
                late.append(command.sequence)
            else:
                done.append(command)
    return Expected(done, late)


def put_in(log: Log, pieces: list[list[Command]], kind: type[Journal]) -> list[OutcomeRow]:
    journal = kind(ring(), log.config)
    told: list[OutcomeRow] = []
    for piece in pieces:
        told += journal.apply_all(piece)
        journal = kind.from_bytes(journal.to_bytes(), ring(), log.config)
    return told


def keeps_track(seed: int, kind: type[Journal]) -> bool:
    """Whether each command is carried out, late or there for the second time, and exactly one of these."""
    rng = Random(seed)
    log = written_log(rng, LENGTH)
    pieces = strayed(rng, log.commands)
    expected, told = by_sets(pieces), put_in(log, pieces, kind)
    carried_out = [outcome[2:] for outcome in Journal(ring(), log.config).apply_all(expected.done)]
    return (
        expected.late == [outcome.sequence for outcome in told if outcome.effect == LATE]
        and carried_out == [outcome[2:] for outcome in told if outcome.effect != LATE]
        and list(range(len(told))) == [outcome.position for outcome in told]
    )


@given(st.integers(0, 1 << 32))
def test_a_command_is_carried_out_or_late_and_nothing_that_comes_disappears(seed: int) -> None:
    assert keeps_track(seed, Journal)


class Silent(Sequences):
    """Takes a sequence that is not above the last one for a repetition."""

    def note(self, sequence: int) -> str | None:
        return super().note(sequence) if self.is_next(sequence) else None


class Suspicious(Sequences):
    """Takes a sequence that is not above the last one for late."""

    def note(self, sequence: int) -> str | None:
        return super().note(sequence) or "late"


@pytest.mark.parametrize("broken", [Silent, Suspicious], ids=lambda kind: kind.__name__)
def test_a_journal_that_confuses_sequences_is_caught(broken: type[Sequences], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "Sequences", broken)
    assert not all(keeps_track(seed, Journal) for seed in SEEDS[:50])


def test_a_journal_that_forgets_what_it_has_seen_is_caught() -> None:
    assert not all(keeps_track(seed, forgetting("seen_forgotten", True)) for seed in SEEDS[:50])


@pytest.mark.parametrize("broken", [Coarse, Rereading], ids=lambda kind: kind.__name__)
def test_a_host_that_is_broken_is_caught(broken: type[OutcomeHost], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {seed: whole(written_log(Random(seed), LENGTH)) for seed in SEEDS[:100]}
    monkeypatch.setattr(journal, "OutcomeHost", broken)
    assert any(differs(seed, Journal, told) for seed, told in expected.items())


@pytest.mark.parametrize("broken", BROKEN, ids=lambda kind: kind.__name__)
def test_a_journal_that_is_broken_is_caught(broken: type[Journal]) -> None:
    assert any(differs(seed, broken) for seed in SEEDS)


def differs(seed: int, kind: type[Journal], expected: list[OutcomeRow] | None = None) -> bool:
    rng = Random(seed)
    log = written_log(rng, LENGTH)
    try:
        return cut(log, rng, kind)[0] != (expected or whole(log))
    except (KeySharedError, TypeError):
        return True


def test_none_is_found_in_the_one_that_is_not_broken() -> None:
    assert not any(differs(seed, Journal) for seed in SEEDS[:20])
