"""A whole subscription on a virtual clock: the real dispatcher, simulated consumers, and a history of their events.

Consumers come and go, crash, are slow and fail as a `Group` says; time is a number that jumps from event to event. The
same group and messages give the same rows, always and everywhere. What comes first at one instant:
`keyshared.simulate.engine`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from keyshared._checks import check_kind
from keyshared.effects import BlockReason
from keyshared.simulate.engine import Engine, Stop
from keyshared.simulate.group import Arrival, Group
from keyshared.simulate.history import History, Row
from keyshared.simulate.summary import DEFAULT_HOTTEST, DEFAULT_POINTS, Summary, Tally

__all__ = ["Simulation", "SimulationState", "summarize"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationState:
    """The state of a simulation at the end, or after the row that was read last.

    Attributes:
        stop: Why it ended; None while it has not.
        at_ms: The virtual time.
        all_offered: Whether no message waits to be offered.
        outstanding: Messages that were offered and are not settled.
        open_deliveries: Outstanding messages that are at a consumer.
        why_blocked: What the other outstanding messages wait for, and how many of them.
        safe_cursor: The safe cursor.
    """

    stop: Stop | None
    at_ms: int
    all_offered: bool
    outstanding: int
    open_deliveries: int
    why_blocked: dict[BlockReason, int]
    safe_cursor: int | None

    @property
    def at_rest(self) -> bool:
        """Whether every message arrived and was settled."""
        return self.stop is Stop.AT_REST


class Simulation:
    """Runs a group over messages while its rows are read.

    Iterate over it once: the rows are made as they are asked for, and what was read is not kept.

    Args:
        group: The subscription.
        arrivals: Its messages, in offset order; read one ahead of the clock.

    Raises:
        ArgumentError: The group is no `Group`. While iterating: an arrival whose times can never work, a placement that
            cannot take a weight or a name of the group, or a message without the service time that `PerMessage` needs.
        MisuseError: While iterating: offsets that do not grow, a key that is none, or a message that no filter accepts
            with ``Unmatched.ERROR``.

    Complexity:
        O(log n) for each row, n things under way at once. Memory O(outstanding messages), and O(keys) with
        ``count_moved_keys``.

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> group = Group(consumers=[SimulatedConsumer("a", Fixed(10))])
        >>> simulation = Simulation(group, [Arrival(0, "k", at_ms=100), Arrival(1, "k", at_ms=104)])
        >>> for row in simulation:
        ...     print(row.at_ms, row.event, row.offset, row.consumer)
        100 joined None a
        100 offered 0 None
        100 delivered 0 a
        104 offered 1 None
        110 acked 0 a
        110 delivered 1 a
        110 cursor 0 None
        120 acked 1 a
        120 cursor 1 None
        >>> simulation.state.at_rest
        True
    """

    def __init__(self, group: Group, arrivals: Iterable[Arrival]) -> None:
        check_kind("group", group, Group)
        self._history = History(counts_moved_keys=group.count_moved_keys)
        self._engine = Engine(group, arrivals, self._history)
        self._stream = self._run()

    def __iter__(self) -> Iterator[Row]:
        return self._stream

    def _run(self) -> Iterator[Row]:
        engine, rows = self._engine, self._history.rows
        engine.begin()
        while engine.stop is None:
            yield from rows
            rows.clear()
            engine.run(1)
        yield from rows
        rows.clear()

    @property
    def state(self) -> SimulationState:
        """Return the state of the simulation now. O(outstanding messages)."""
        engine, dispatcher = self._engine, self._engine.host.dispatcher
        messages = list(dispatcher.outstanding())
        waits = [message.blocking for message in messages if message.blocking is not None]
        return SimulationState(
            stop=engine.stop,
            at_ms=engine.host.now,
            all_offered=engine.stop is not None and engine.arrival is None,
            outstanding=len(messages),
            open_deliveries=len(messages) - len(waits),
            why_blocked=dict(Counter(blocking.reason for blocking in waits)),
            safe_cursor=dispatcher.safe_cursor,
        )


def summarize(
    group: Group, arrivals: Iterable[Arrival], *, points: int = DEFAULT_POINTS, hottest: int = DEFAULT_HOTTEST
) -> tuple[Summary, SimulationState]:
    """Simulate, and keep only the figures.

    Args:
        group: The subscription; see `Simulation`, also for errors.
        arrivals: Its messages.
        points: The most points of the backlog over time.
        hottest: How many of the keys with most messages are wanted.

    Returns:
        The figures, and how it ended.

    Example:
        >>> from keyshared.simulate import Fixed, SimulatedConsumer
        >>> group = Group(consumers=[SimulatedConsumer("a", Fixed(10))])
        >>> summary, state = summarize(group, [Arrival(offset, "k", at_ms=0) for offset in range(10)])
        >>> summary.consumers["a"].wait.p50_ms, summary.duration_ms, state.at_rest
        (40, 100, True)
    """
    tally = Tally(points=points, hottest=hottest)
    simulation = Simulation(group, arrivals)
    tally.add_all(simulation)
    return tally.summary(), simulation.state
