"""A dispatcher that is driven by a log of commands, and kept as bytes between one piece of the log and the next.

For hosts that live in pieces: a stream job that is called with a few rows and must put its state away, a function that
runs for a second. Cut the log anywhere, store the state at the cuts, let a piece come twice or in disorder: the
outcomes are those of the uncut log (promises resume and determinism).

Time is that of the commands. Whatever falls due between two commands acts at its own instant, so extra calls of
`Journal.advance` change nothing.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Final, Self, cast

from keyshared._checks import OFFSET_STOP, check_kind, check_offset, checked_kinds
from keyshared._core.reader import Reader, binary_text
from keyshared._core.records import ConsumerState
from keyshared._core.snapshot import open_offsets
from keyshared.config import DispatcherConfig, Rules
from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import Deliver, Load
from keyshared.errors import ArgumentError, SnapshotError
from keyshared.journal.commands import Command, OutcomeRow
from keyshared.journal.outcomes import OutcomeHost
from keyshared.journal.sequences import Sequences
from keyshared.ring import HashRing

__all__ = ["Journal"]

JOURNAL_VERSION: Final = 1
_FASTEST: Final = 1  # a fifth to a ninth of the text; higher levels save a sixth of that and cost three times as much
_SHOWN_BYTES: Final = 16
_sequence_of: Final = attrgetter("sequence")


class Journal:
    """One dispatcher and what it needs to go on: the instant, the last command, the messages that do not fit yet.

    A journal is its dispatcher's host, and keeps offsets and keys only. So a `Load` is answered at once, and a message
    for which there is no room waits here, in the order of the log, until there is. Neither is an outcome. Only where
    the configuration bounds what waits for one key (``max_waiting_per_key`` and the like), a message beyond that is
    refused and not kept.

    A command that the dispatcher refuses changes nothing and is an outcome, "refused": one wrong row must not stop all
    that follow it. A command that comes after one with a higher sequence is not carried out either, and is an outcome,
    "late". A command that comes a second time has no outcome. To tell them apart, the journal remembers the sequences
    as stretches without a gap: the newest 256. A command from before them counts as late each time.

    Args:
        placement: Where keys go, without consumers: they come as commands. Placements other than a ring are their own
            history, which the state does not hold.
        config: The dispatcher's limits, times and policies.
        rules: Its functions of a key.

    Complexity:
        That of the dispatcher, and O(log n) for each deadline that passes.

    Example:
        >>> journal = Journal(HashRing())
        >>> log = [
        ...     Command(0, 0, "add_consumer", consumer="c1"),
        ...     Command(1, 5, "offer", offset=0, key="order-1"),
        ...     Command(2, 9, "offer", offset=1, key="order-1"),
        ...     Command(3, 9, "ack", offset=0, consumer="c1", attempt=1),
        ... ]
        >>> [(told.at_ms, told.effect, told.offset) for told in journal.apply_all(log)]
        [(5, 'deliver', 0), (9, 'deliver', 1), (9, 'cursor_advanced', 0)]
        >>> again = Journal.from_bytes(journal.to_bytes(), HashRing())
        >>> [(told.at_ms, told.effect, told.reason) for told in again.advance(40_000)][:1]
        [(30009, 'released', 'ack_timeout')]
    """

    __slots__ = ("_host", "_seen")

    def __init__(
        self, placement: HashRing, config: DispatcherConfig | None = None, *, rules: Rules | None = None
    ) -> None:
        _check(placement, config)
        self._host = OutcomeHost(KeySharedDispatcher(placement, config, rules=rules))
        self._seen = Sequences()

    @classmethod
    def from_bytes(
        cls,
        state: bytes,
        placement: HashRing,
        config: DispatcherConfig | None = None,
        *,
        joined: HashRing | None = None,
        rules: Rules | None = None,
    ) -> Self:
        """Go on where `to_bytes` was called, with the same future.

        Args:
            state: What it returned.
            placement: As the original's.
            config: To go on with. Another one than the original's is legal if all that is outstanding fits into it. If
                it is wider, the next call has the outcomes of what it lets out, at the instant that has been reached.
            joined: The `ring` of another journal made from ``placement``. If the same consumers joined this one, in the
                same order and with the same weights, it is copied, and they need not join one by one.
            rules: Of the same mark as the original's.

        Raises:
            SnapshotError: The state is truncated, damaged, of another version, or of another kind of ring.

        Complexity:
            O(n log n), n messages outstanding; and O(c p) for c consumers with p points together, O(p) if ``joined`` is
            of use.
        """
        _check(placement, config)
        data = Reader(_parsed(state), "state")
        if data.field("version").integer() != JOURNAL_VERSION:
            raise data.field("version").refuse(f"be {JOURNAL_VERSION}, the version that this release writes")
        now, dispatcher = data.field("now_ms").count(), data.field("dispatcher")
        new = cls(placement, config, rules=rules)
        new._host = host = OutcomeHost(
            KeySharedDispatcher.restore(
                dispatcher.raw, _ring_for(dispatcher, placement, joined), config, now_ms=now, rules=rules
            )
        )
        host.now = now
        host.sequence = data.field("sequence").maybe(Reader.integer)
        host.position = data.field("position").count()
        host.last = dispatcher.field("last").maybe(Reader.integer)
        for message in data.field("unread").items():
            offset, key, not_before_ms = message.items(3)
            host.unread[offset.integer()] = key.maybe(Reader.binary), not_before_ms.maybe(Reader.integer)
        known = {offset.integer() for offset in data.field("woken").items()}
        open_before = open_offsets(dispatcher)
        woken = [effect for effect in host.dispatcher.outstanding_effects() if isinstance(effect, Deliver | Load)]
        host.woken = [each for each in woken if each.offset in known or each.offset not in open_before]
        stretches = [[end.integer() for end in stretch.items(2)] for stretch in data.field("seen").items()]
        new._seen = Sequences(stretches, forgotten=data.field("seen_forgotten").flag())
        return new

    def to_bytes(self) -> bytes:
        """Return the whole state. O(n), n messages outstanding."""
        host = self._host
        state = {
            "version": JOURNAL_VERSION,
            "now_ms": host.now,
            "sequence": host.sequence,
            "seen": self._seen.stretches,
            "seen_forgotten": self._seen.forgotten,
            "position": host.position,
            "unread": [
                [offset, None if key is None else binary_text(key), not_before_ms]
                for offset, (key, not_before_ms) in host.unread.items()
            ],
            "woken": [effect.offset for effect in host.woken],
            "dispatcher": host.dispatcher.snapshot(),
        }
        return zlib.compress(json.dumps(state, separators=(",", ":")).encode(), _FASTEST)

    # inputs

    def apply(self, command: Command) -> list[OutcomeRow]:
        """Move time to a command, carry the command out, and return the outcomes, in order.

        A command that has been here before is ignored. A new one whose sequence is not above the last one's has only
        the outcome "late".
        """
        check_kind("command", command, Command)
        for name, value in (("sequence", command.sequence), ("at_ms", command.at_ms)):
            check_offset(name, value)
        host, is_late = self._host, not self._seen.is_next(command.sequence)
        problem = self._seen.note(command.sequence)
        if not is_late:
            host.apply(command)
        elif problem is not None:
            host.write_late(command, problem)
        return host.take_outcomes()

    def apply_all(self, commands: Iterable[Command]) -> Iterator[OutcomeRow]:
        """Yield the outcomes of commands that are given in any order, perhaps with some of before, lazily.

        Two with one sequence are one command. O(n log n) for sorting n commands, O(n) memory, and that of `apply`.
        """
        given = list(checked_kinds("command", commands, Command))
        for command in given:
            check_offset("sequence", command.sequence)
        for command in sorted(given, key=_sequence_of):
            yield from self.apply(command)

    def advance(self, until_ms: int) -> list[OutcomeRow]:
        """Move time on without a command: each deadline up to an instant acts at its own. Return the outcomes.

        The journal's own instant moves to the last deadline that was due, and no further: a command that comes later
        acts at its own time if that is not before. ``until_ms`` is included; one that has passed does nothing. O(log n)
        for each deadline, each time that it comes again.
        """
        check_offset("until_ms", until_ms)
        self._host.pass_to(until_ms)
        return self._host.take_outcomes()

    # queries

    @property
    def dispatcher(self) -> KeySharedDispatcher:
        """The dispatcher, for its queries: call nothing that changes it."""
        return self._host.dispatcher

    @property
    def ring(self) -> HashRing:
        """A copy of the ring with the consumers that are on it now. O(points)."""
        return cast("HashRing", self.dispatcher.placement)  # what `_check` has let in

    @property
    def sequence(self) -> int | None:
        """The last command that was carried out or refused."""
        return self._host.sequence

    @property
    def unread(self) -> int:
        """How many messages wait for room in the dispatcher."""
        return len(self._host.unread)

    def next_deadline_ms(self) -> int | None:
        """Return when `advance` has something to do next, or None: also for an instant that it does not reach.

        O(log n) amortised.
        """
        if self._host.has_room:
            return self._host.now
        deadline = self.dispatcher.next_deadline_ms()
        return None if deadline is None or deadline >= OFFSET_STOP else deadline


def _ring_for(dispatcher: Reader, placement: HashRing, joined: HashRing | None) -> HashRing:
    """Return the ring that has the consumers of a state already, else the empty one."""
    if joined is None:
        return placement
    if not isinstance(joined, HashRing):
        raise ArgumentError("joined", joined, "be the ring of a journal, or None")
    members = [
        (consumer.field("name").text(), consumer.field("weight").maybe(Reader.weight))
        for consumer in dispatcher.field("consumers").items()
        if consumer.field("state").text() != ConsumerState.DRAINING
    ]
    there = [(name, joined.weight_of(name)) for name in joined.consumers]
    return joined if there == [(name, 1 if weight is None else weight) for name, weight in members] else placement


def _check(placement: object, config: object) -> None:
    if not isinstance(placement, HashRing) or placement.separator is not None:
        raise ArgumentError(
            "placement", placement, "be a HashRing without a separator: any other placement is its own history"
        )
    if placement.consumers:
        raise ArgumentError("placement", placement.consumers, "be empty: consumers come as commands")
    if config is not None:
        check_kind("config", config, DispatcherConfig, ", or None")


def _parsed(state: object) -> object:
    if not isinstance(state, bytes):
        raise SnapshotError("state", state, "be bytes")
    inflate = zlib.decompressobj()
    try:
        data = json.loads(inflate.decompress(state))
    except (zlib.error, ValueError, RecursionError):
        data = None
    if data is None or not inflate.eof or inflate.unused_data:
        raise SnapshotError("state", state[:_SHOWN_BYTES], "be what Journal.to_bytes wrote, all of it")
    return data
