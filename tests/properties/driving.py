"""Make the calls of a random schedule."""

from collections.abc import Sequence
from typing import Any

from tests.properties.calls import Call, Step
from tests.properties.schedules import World, observe

from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, Effect, Resumed
from keyshared.errors import KeySharedError

__all__ = ["INPUTS", "Fast", "drive", "outcome", "questions"]

INPUTS = frozenset(
    {
        *("offer", "offer_many", "ack", "ack_many", "ack_through", "nack", "reject", "release", "extend"),
        *("dead_lettered", "flushed", "loaded", "park", "unblock", "unblock_offset", "gone", "truncate"),
        *("add_consumer", "remove_consumer", "set_inactive", "set_active", "set_limit", "pull"),
        *("set_filters", "set_weight", "set_placement", "handle_timeout"),
        *("pause_group", "resume_group", "set_group"),
        "redrive",
    }
)
"""What changes a dispatcher; everything else that can be called is a query."""

Fast: Any = KeySharedDispatcher  # its placement here is one by shape, not by type


def outcome(dispatcher: object, call: Call) -> list[Effect] | type[KeySharedError]:
    """What a call returns, or the type of the error it raises."""
    try:
        effects: list[Effect] = getattr(dispatcher, call.name)(*call.args, **call.kwargs)
    except KeySharedError as error:
        return type(error)
    return effects


def drive(dispatcher: Any, world: World, call: Call) -> Step | None:  # any dispatcher, also a broken one
    """Make one call; None if it raised."""
    effects = outcome(dispatcher, call)
    if isinstance(effects, type):
        return None
    now = call.kwargs.get("now_ms", world.now)
    offered = [*world.offered, *offered_by(call)]
    step = Step(call, tuple(effects), observe(dispatcher, offered), now)
    world.learn(step)
    return step


def questions(world: World) -> dict[str, Sequence[Any]]:
    """What to ask a dispatcher's queries about."""
    return {
        "offset": [*world.offered[-6:], -3],
        "key": ["a", None],
        "consumer": [None, "x", "nobody"],
        "effect": [*world.delivered[-2:], *world.obligations[:2], CursorAdvanced(1), Resumed(1)],
    }


def offered_by(call: Call) -> Sequence[int]:
    """The offsets that a call offers."""
    if call.name == "offer":
        return [call.args[0]]
    return [message[0] for message in call.args[0]] if call.name == "offer_many" else []
