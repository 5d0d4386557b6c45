"""What a host does with each effect: one pump, one branch per kind, and mypy proves that none is forgotten.

The dispatcher returns effects in the order in which they are to be applied: notices, obligations, state.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from keyshared.effects import (
    Blocked,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    Effect,
    Evicted,
    Ignored,
    KeyBegun,
    KeyEnded,
    KeyEnding,
    Load,
    Released,
    Resumed,
    Settled,
    Skipped,
    Spilled,
)


@dataclass
class Host:
    """The part of a broker that applies the dispatcher's effects, in memory."""

    sent: list[tuple[str, object]] = field(default_factory=list)
    dead_letters: list[int] = field(default_factory=list)
    to_read_again: list[int] = field(default_factory=list)
    payloads: dict[int, object] = field(default_factory=dict)
    to_flush: list[tuple[bytes, int]] = field(default_factory=list)
    notices: list[Effect] = field(default_factory=list)
    committed: int | None = None
    paused: bool = False

    def apply(self, effects: Iterable[Effect]) -> None:  # noqa: C901  # one case for each effect
        for effect in effects:
            match effect:
                case Deliver(consumer=consumer, item=item):
                    self.sent.append((consumer, item))
                case DeadLetter(offset=offset):
                    self.dead_letters.append(offset)  # then: dispatcher.dead_lettered(offset)
                case Load(offset=offset):
                    self.to_read_again.append(offset)  # then: dispatcher.loaded(offset, item)
                case Spilled(offset=offset):
                    self.payloads.pop(offset, None)
                case CursorAdvanced(safe_cursor=offset):
                    self.committed = offset
                case Resumed():
                    self.paused = False
                case KeyEnding(key=key, session=session):
                    self.to_flush.append((key, session))  # then: dispatcher.flushed(key, session)
                case KeyBegun() | KeyEnded():
                    self.notices.append(effect)  # for the consumer: load what it keeps for the key, or forget it
                case Ignored() | Evicted() | Released() | Blocked() | Dropped() | Skipped() | Settled() | Done():
                    self.notices.append(effect)  # for logs and metrics; correctness never needs them
                case _:
                    assert_never(effect)


def main() -> None:
    host = Host(payloads={7: "pay", 8: "ship"}, paused=True)
    host.apply([Spilled(8), Deliver(7, b"order-1", "c1", 1, 0, "pay"), CursorAdvanced(6), Resumed(1)])
    print(f"sent {host.sent}, committed {host.committed}, still loaded {sorted(host.payloads)}")


if __name__ == "__main__":
    main()
