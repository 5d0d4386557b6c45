"""A subscription on a virtual clock: the real dispatcher, simulated consumers, and a history of their events.

A bad argument raises `ArgumentError` (a setting `ConfigError`) and changes nothing; docstrings name other errors.

>>> group = Group(consumers=[SimulatedConsumer("a", Fixed(10))])
>>> rows = simulated_deliveries(group, [Arrival(0, "k", at_ms=0), Arrival(1, "k", at_ms=4)])
>>> [(each.offset, each.wait_ms, each.ended_ms) for each in rows]
[(0, 0, 10), (1, 6, 20)]
"""

from keyshared.simulate.deliveries import SimulatedDelivery, simulated_deliveries
from keyshared.simulate.engine import Stop
from keyshared.simulate.group import (
    Arrival,
    Change,
    Crash,
    Group,
    Join,
    Leave,
    Pace,
    Redrive,
    Return,
    SetLimit,
    SetService,
    SetWeight,
    SimulatedConsumer,
    Unblock,
)
from keyshared.simulate.history import Event, Row
from keyshared.simulate.service import (
    Answer,
    AnswerModel,
    FailFirst,
    Fixed,
    PerMessage,
    Poisoned,
    Sampled,
    SampledAnswers,
    Scaled,
    ServiceTime,
)
from keyshared.simulate.simulation import Simulation, SimulationState, summarize
from keyshared.simulate.summary import BacklogPoint, ConsumerSummary, MovedKeys, Summary, Tally, Waits

__all__ = [
    "Answer",
    "AnswerModel",
    "Arrival",
    "BacklogPoint",
    "Change",
    "ConsumerSummary",
    "Crash",
    "Event",
    "FailFirst",
    "Fixed",
    "Group",
    "Join",
    "Leave",
    "MovedKeys",
    "Pace",
    "PerMessage",
    "Poisoned",
    "Redrive",
    "Return",
    "Row",
    "Sampled",
    "SampledAnswers",
    "Scaled",
    "ServiceTime",
    "SetLimit",
    "SetService",
    "SetWeight",
    "SimulatedConsumer",
    "SimulatedDelivery",
    "Simulation",
    "SimulationState",
    "Stop",
    "Summary",
    "Tally",
    "Unblock",
    "Waits",
    "simulated_deliveries",
    "summarize",
]
