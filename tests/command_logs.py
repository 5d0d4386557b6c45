"""Logs of commands that reach into every corner of a small dispatcher, and pieces that a stream may cut them into."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, NamedTuple

from tests.properties.schedules import any_config

from keyshared.config import DispatcherConfig
from keyshared.effects import BlockReason
from keyshared.journal import Command, Journal
from keyshared.ring import HashRing

__all__ = ["Log", "from_zero", "lag_of", "pieces_of", "ring", "written_log"]

NAMES = ("x", "y", "z")
KEYS = ("a", b"a", b"b", "c", None, "d")


class Log(NamedTuple):
    """Commands in their order, and the configuration that they are for."""

    config: DispatcherConfig
    commands: list[Command]


def ring() -> HashRing:
    """A ring so coarse that several keys share a slot."""
    return HashRing(vnodes=3, slot_bits=4)


def written_log(rng: Random, length: int, config: DispatcherConfig | None = None) -> Log:
    """Commands of somebody who sees what comes of them, mostly: some are late, forged or nonsense."""
    writer = _Writer(rng, any_config(rng.choice) if config is None else config)
    return Log(writer.config, [writer.write() for _ in range(length)])


def pieces_of(rng: Random, commands: Sequence[Command]) -> list[list[Command]]:
    """Cut anywhere, each piece in any order and with commands that were there before, once or several times."""
    pieces, start = [], 0
    while start < len(commands):
        stop = start + rng.choice([1, 1, 2, 3, 5, 8])
        piece = [*commands[start:stop], *(rng.choice(commands[:stop]) for _ in range(rng.choice([0, 0, 1, 3])))]
        rng.shuffle(piece)
        pieces.append(piece)
        start = stop
    return pieces


def from_zero(commands: Sequence[Command]) -> list[Command]:
    """The same commands, none of them before 0: streams take no such instant."""
    first = min(0, *(command.at_ms for command in commands))
    return [command._replace(at_ms=command.at_ms - first) for command in commands]


def lag_of(files: Sequence[Sequence[tuple[Any, ...]]]) -> int:
    """How far any row lies behind one of an earlier file; a row is its topic-partition and a command's fields."""
    latest, lag = 0, 0
    for rows in files:
        lag = max(lag, latest - min(row[2] for row in rows))
        latest = max(latest, *(row[2] for row in rows))
    return lag


class _Writer:
    """Writes one command after the other."""

    def __init__(self, rng: Random, config: DispatcherConfig) -> None:
        self.rng = rng
        self.config = config
        self.journal = Journal(ring(), config)
        self.sequence = -1
        self.at_ms = 0
        self.offset = -1
        self.kinds: tuple[Callable[[], Command], ...] = (
            *(self.offer,) * 8,
            *(self.answer,) * 8,
            *(self.oblige,) * 3,
            *(self.join,) * 3,
            *(self.member,) * 3,
            self.about_offset,
            self.unblock,
            self.group,
            self.pull,
            self.redrive,
            self.flush,
            self.wait,
            self.nonsense,
        )

    def write(self) -> Command:
        self.sequence += self.rng.choice([1, 1, 1, 7])
        self.at_ms += self.rng.choice([0, 0, 1, 2, 9, -1])
        command = self.rng.choice(self.kinds)()
        self.journal.apply(command)
        return command

    def make(self, command: str, **fields: Any) -> Command:
        return Command(self.sequence, self.at_ms, command)._replace(**fields)

    def offer(self) -> Command:
        self.offset += self.rng.choice([1, 1, 1, 4, 0])  # now and then one that was there before
        later = self.rng.choice([None, None, None, None, 0, 3, 40])
        return self.make("offer", offset=self.offset, key=self.rng.choice(KEYS), duration_ms=later)

    def answer(self) -> Command:
        how = self.rng.choice(["ack", "ack", "ack", "ack", "ack_through", "nack", "reject", "release", "extend"])
        duration = self.rng.choice([None, 1, 7]) if how in {"nack", "extend", "release"} else None
        reason = self.rng.choice([None, "refused"]) if how in {"nack", "reject"} else None
        offset, consumer, attempt = self.receipt()
        return self.make(how, offset=offset, consumer=consumer, attempt=attempt, duration_ms=duration, reason=reason)

    def receipt(self) -> tuple[int, str, int]:
        held = [delivery.receipt for delivery in self.journal.dispatcher.in_flight()]
        if held and self.rng.random() < 0.75:
            return self.rng.choice(held)
        return self.rng.choice(range(self.offset + 2)), self.rng.choice(NAMES), self.rng.choice([1, 2, 3])

    def oblige(self) -> Command:
        """Write dead letters; if there are none, park or try again what is blocked."""
        answers = {BlockReason.DEAD_LETTERING: ["dead_lettered"], BlockReason.BLOCKED: ["park", "unblock_offset"]}
        reasons = {each.offset: each.blocking.reason for each in self.journal.dispatcher.outstanding() if each.blocking}
        waiting = [offset for offset, reason in reasons.items() if reason in answers]
        if not waiting:
            return self.answer()
        offset = self.rng.choice(waiting)
        return self.make(self.rng.choice(answers[reasons[offset]]), offset=offset)

    def flush(self) -> Command:
        """Say of a session that its consumer has flushed, mostly of one that there is."""
        sessions = self.journal.dispatcher.sessions()
        if not sessions or self.rng.random() < 0.1:
            return self.make("flushed", key=b"a", attempt=self.rng.choice([0, 1, 2]))
        session = self.rng.choice(sessions)
        return self.make("flushed", key=session.key, attempt=session.session)

    def join(self) -> Command:
        filters = self.rng.choice([None, None, (), ("a",), ("b", "c*")])
        limit, weight = self.rng.choice([None, None, 0, 1, 2]), self.rng.choice([None, 1, 2])
        name = self.rng.choice(NAMES)
        return self.make("add_consumer", consumer=name, filters=filters, limit=limit, weight=weight)

    def member(self) -> Command:
        name = self.rng.choice(NAMES)
        return self.rng.choice(
            [
                self.make("remove_consumer", consumer=name, duration_ms=self.rng.choice([None, 0, 6])),
                self.make("set_inactive", consumer=name),
                self.make("set_active", consumer=name, resumed=self.rng.choice([None, False, True])),
                self.make("set_limit", consumer=name, limit=self.rng.choice([0, 1, 3])),
                self.make("set_weight", consumer=name, weight=self.rng.choice([1, 3])),
                self.make("set_filters", consumer=name, filters=self.rng.choice([None, ("a", "d")])),
            ]
        )

    def about_offset(self) -> Command:
        names = ["gone", "gone", "truncate", "park", "unblock_offset", "dead_lettered"]
        return self.make(self.rng.choice(names), offset=self.rng.choice(range(-1, self.offset + 2)))

    def group(self) -> Command:
        """A journal without rules refuses it."""
        return self.make(self.rng.choice(["pause_group", "resume_group", "set_group"]), group="a")

    def unblock(self) -> Command:
        return self.make("unblock", key=self.rng.choice(KEYS))

    def pull(self) -> Command:
        only = self.rng.choice([None, None, self.offset])
        limit, per_key = self.rng.choice([1, 2]), self.rng.choice([None, None, 1, 2])
        return self.make("pull", consumer=self.rng.choice(NAMES), limit=limit, offset=only, per_key=per_key)

    def redrive(self) -> Command:
        letters = tuple((self.rng.choice(range(self.offset + 2)), self.rng.choice([1, 2])) for _ in range(2))
        return self.make("redrive", key=self.rng.choice(KEYS), letters=letters)

    def wait(self) -> Command:
        self.at_ms += self.rng.choice([5, 20, 60])
        return self.make("handle_timeout")

    def nonsense(self) -> Command:
        return self.rng.choice(
            [
                self.make("offer"),
                self.make("offer", offset=self.offset, key="a"),
                self.make("ack", offset=self.offset),
                self.make("set_limit", consumer="x", limit=-1),
                self.make("set_limit", consumer="nobody", limit=1),
                self.make("add_consumer"),
                self.make("loaded", offset=self.offset),
                self.make("redrive", key="a", letters=((0,), (1, 2, 3))),
                self.make("snapshot"),
                self.make("remove_consumer", consumer="x", duration_ms=-1),
            ]
        )
