"""Run a dispatcher through a schedule under the judge's eyes."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from tests.placements import RankedPlacement
from tests.properties.calls import Call, Step
from tests.properties.schedules import World, observe, random_world
from tests.properties.watch import Watch

from keyshared.dispatcher import KeySharedDispatcher
from keyshared.effects import CursorAdvanced, Effect, Resumed
from keyshared.errors import KeySharedError
from keyshared.testing import Violation

__all__ = ["INPUTS", "Factory", "Fast", "drive", "offered_by", "outcome", "questions", "run_schedule"]

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
Factory: TypeAlias = Callable[..., Any]  # of a placement and a configuration, perhaps rules


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


def run_schedule(
    factory: Factory, seed: int, length: int, start: Callable[[], RankedPlacement] = RankedPlacement
) -> tuple[list[Step], list[Violation]]:
    """Make random calls until the first broken promise; the history and what its last step breaks."""
    world = random_world(seed, with_rules=True)
    watch = Watch(factory(start(), world.config, **world.settings), world.config)
    history: list[Step] = []
    for _ in range(length):
        step = drive(watch.recorder, world, world.next_call())
        if step is None:
            continue
        history.append(step)
        if found := watch.see(step):
            return history, found
    return history, []


def offered_by(call: Call) -> Sequence[int]:
    """The offsets that a call offers."""
    if call.name == "offer":
        return [call.args[0]]
    return [message[0] for message in call.args[0]] if call.name == "offer_many" else []
