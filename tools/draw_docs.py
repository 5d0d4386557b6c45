"""Write the tables and diagrams of the docs that repeat the code, or check with --check that they still do.

The states of messages come from the table that the window obeys. Those of consumers have no table: every input is tried
in every state on a real dispatcher. The way of a message is what the interpreter sees during a few calls.
"""

import argparse
import ast
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Final

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher
from keyshared._core.records import Transition
from keyshared.effects import Deliver, Effect
from keyshared.errors import KeySharedError
from keyshared.window import NEXT_STATE, State

ROOT: Final = Path(__file__).resolve().parents[1]
LIBRARY: Final = ROOT / "src" / "keyshared"
BEGIN: Final = "<!-- drawn by tools/draw_docs.py: {} -->"
END: Final = "<!-- end -->"
NAME: Final = "c1"
GRACE_MS: Final = 10
DRAIN_MS: Final = 20
LATER_MS: Final = 3_600_000  # beyond any delay of a retry

CAUSES: Final = {
    (State.QUEUED, Transition.SPILL): "`offer`, when enough payloads of its key, or of all that waits, are in memory",
    (State.QUEUED, Transition.DELAY): "`offer` with a `not_before_ms` that lies ahead",
    (State.QUEUED, Transition.DELIVER): "its turn has come: `Deliver`",
    (State.QUEUED, Transition.ARCHIVE): "its turn has come and its key is in quarantine: `DeadLetter`",
    (State.QUEUED, Transition.SETTLE): "late `ack`; `gone`",
    (State.SPILLED, Transition.LOAD): "there is a slot for it: `Load`",
    (State.SPILLED, Transition.SETTLE): "`gone`",
    (State.LOADING, Transition.LOADED): "`loaded`",
    (State.LOADING, Transition.DELAY): "`loaded` before its `not_before_ms`",
    (State.LOADING, Transition.SETTLE): "`gone`",
    (
        State.IN_FLIGHT,
        Transition.PUT_BACK,
    ): "`release`; `nack` or ack timeout without delay; its consumer leaves or is lost; "
    "a drain timeout; poison that puts its key into quarantine",
    (State.IN_FLIGHT, Transition.DELAY): "`nack`, `release` or ack timeout with a delay",
    (State.IN_FLIGHT, Transition.ARCHIVE): "poison, with a policy that archives: `DeadLetter`",
    (State.IN_FLIGHT, Transition.BLOCK): "poison, with `Poison.BLOCK`: `Blocked`",
    (State.IN_FLIGHT, Transition.SETTLE): "`ack`; any end of it after a late ack or `gone`; poison with `Poison.DROP`; "
    "eviction with `OnEvict.DROP`",
    (State.DELAYED, Transition.PUT_BACK): "its time has come",
    (State.DELAYED, Transition.SETTLE): "late `ack`; `gone`",
    (State.DEAD_LETTERING, Transition.BLOCK): "`dead_lettered`, with `archive_blocked`: `Blocked`",
    (State.DEAD_LETTERING, Transition.SETTLE): "`dead_lettered`; `gone`",
    (State.BLOCKED, Transition.PUT_BACK): "`unblock`, `unblock_offset`",
    (State.BLOCKED, Transition.SETTLE): "`park`; `gone`",
}
"""The cause of each step; a test asks for exactly the steps of the table."""

Dispatcher = KeySharedDispatcher


def _absent(_: Dispatcher) -> None:
    """Leave the consumer out."""


def _active(dispatcher: Dispatcher) -> None:
    dispatcher.add_consumer(NAME)
    dispatcher.offer(0, "key")


def _inactive(dispatcher: Dispatcher) -> None:
    _active(dispatcher)
    dispatcher.set_inactive(NAME)


def _draining(dispatcher: Dispatcher) -> None:
    _active(dispatcher)
    dispatcher.remove_consumer(NAME, drain_ms=DRAIN_MS)


STATES: Final[dict[str, Callable[[Dispatcher], None]]] = {
    "absent": _absent,
    "active": _active,
    "inactive": _inactive,
    "draining": _draining,
}
INPUTS: Final[dict[str, Callable[[Dispatcher], object]]] = {
    "add_consumer": lambda d: d.add_consumer(NAME),
    "set_inactive": lambda d: d.set_inactive(NAME),
    "set_active": lambda d: d.set_active(NAME, resumed=True),
    "remove_consumer(drain_ms=0)": lambda d: d.remove_consumer(NAME),
    "remove_consumer(drain_ms=20)": lambda d: d.remove_consumer(NAME, drain_ms=DRAIN_MS),
    "grace period over": lambda d: d.handle_timeout(now_ms=GRACE_MS),
    "drain time over": lambda d: d.handle_timeout(now_ms=DRAIN_MS),
    "last delivery ends": lambda d: d.ack(0, NAME, 1),
    "set_limit": lambda d: d.set_limit(NAME, 1),
}
_OFFERS_NOTHING: Final = {"last delivery ends": {"absent"}}  # there is no such thing in that state
_TIMERS: Final = {"grace period over": "inactive", "drain time over": "draining"}


def messages_table() -> list[str]:
    """Return one row for each legal step."""
    rows = [
        f"| `{before.name}` | {change.name.lower().replace('_', ' ')} | `{after.name}` | {CAUSES[before, change]} |"
        for (before, change), after in NEXT_STATE.items()
    ]
    return ["| from | change | to | what causes it |", "|---|---|---|---|", *rows]


def consumer_step(state: str, step: str) -> str:
    """Return what an input makes of a consumer in that state: another state, or the error that it raises."""
    config = DispatcherConfig(inactive_grace_ms=GRACE_MS, ack_timeout_ms=None)
    dispatcher = KeySharedDispatcher(HashRing(), config)
    STATES[state](dispatcher)
    try:
        INPUTS[step](dispatcher)
    except KeySharedError as error:
        return f"`{type(error).__name__}`"
    consumers = dispatcher.stats().consumers
    return str(consumers[NAME].state) if NAME in consumers else "absent"


def _consumer_steps() -> dict[str, dict[str, str]]:
    """Return what each input makes of each state; where a timer does not run there is no such input."""
    return {
        step: {
            state: consumer_step(state, step)
            for state in STATES
            if state == _TIMERS.get(step, state) and state not in _OFFERS_NOTHING.get(step, set())
        }
        for step in INPUTS
    }


def consumers_table() -> list[str]:
    """Return one row for each input, one column for each state; a dot where nothing changes."""
    head = ["| input | " + " | ".join(STATES) + " |", "|---" * (len(STATES) + 1) + "|"]
    rows = []
    for step, results in _consumer_steps().items():
        cells = [_cell(state, results.get(state)) for state in STATES]
        rows.append(f"| {step} | {' | '.join(cells)} |")
    return head + rows


def consumers_diagram() -> list[str]:
    """Return a diagram of every input that changes the state."""
    edges: dict[tuple[str, str], list[str]] = {}
    for step, results in _consumer_steps().items():
        for before, after in results.items():
            if after != before and not after.startswith("`"):
                edges.setdefault((before, after), []).append(step)
    return _diagram(
        f"{_ends(before)} --> {_ends(after)}: {', '.join(steps)}" for (before, after), steps in edges.items()
    )


def _uses() -> dict[str, set[str]]:
    """Return which others each module and package of the library imports."""
    found: dict[str, set[str]] = {}
    for path in sorted(LIBRARY.rglob("*.py")):
        place = path.relative_to(LIBRARY).with_suffix("").parts[0]
        if place == "__init__":
            continue
        names = [
            node.module.split(".")[1]
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("keyshared.")
        ]
        found.setdefault(place, set()).update(set(names) - {place})
    return found


def without_implied(uses: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the arrows that do not follow from others."""

    def below(place: str) -> set[str]:
        return uses[place].union(*(below(other) for other in uses[place]))

    return {place: others - set().union(*(below(other) for other in others)) for place, others in uses.items()}


def packages_picture() -> list[str]:
    """Return who imports whom, from the top; an arrow that follows from others is left out."""
    uses = _uses()

    def depth(place: str) -> int:
        return 1 + max((depth(other) for other in uses[place]), default=0)

    from_top = sorted(uses, key=lambda place: (-depth(place), place))
    arrows = without_implied(uses)
    nodes = [f"    {place}" for place in from_top]
    lines = [f"    {place} --> {other}" for place in from_top for other in sorted(arrows[place])]
    return ["```mermaid", "flowchart TD", *nodes, *lines, "```"]


def packages_table() -> list[str]:
    """Return one row for each package: the first line of its docstring."""
    rows = []
    for path in sorted(LIBRARY.rglob("__init__.py")):
        name = ".".join(path.parent.relative_to(LIBRARY).parts)
        if name:
            concept = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
            rows.append(f"| `{name}` | {concept} |")
    return ["| package | what it is about |", "|---|---|", *rows]


# What is called, what a reader should see in it, and the call.
MESSAGE: Final[list[tuple[str, str, Callable[[Dispatcher], list[Effect]]]]] = [
    ('offer(0, "a")', "the key is free: its owner gets the message", lambda d: d.offer(0, "a")),
    ('offer(1, "a")', "message 0 holds the key: message 1 waits in the lane", lambda d: d.offer(1, "a")),
    ('ack(0, "c1", 1)', "the cursor passes 0, and the next of the key goes out", lambda d: d.ack(0, NAME, 1)),
    ('nack(1, "c1", 1)', "the message keeps its place until its retry is due", lambda d: d.nack(1, NAME, 1)),
    ("handle_timeout()", "the retry is due", lambda d: d.handle_timeout(now_ms=LATER_MS)),
    ('ack(1, "c1", 2)', "nothing is outstanding", lambda d: d.ack(1, NAME, 2)),
]
_EVERYWHERE: Final = {"_checks", "errors", "effects"}


def message_table() -> list[str]:
    """Return one row for each call: the places where it enters a module for the first time, and its effects."""
    dispatcher = KeySharedDispatcher(HashRing())
    dispatcher.add_consumer(NAME)
    rows = ["| call | goes through | returns | because |", "|---|---|---|---|"]
    for text, why, call in MESSAGE:
        steps, effects = _followed(call, dispatcher)
        returned = ", ".join(f"`{_effect(effect)}`" for effect in effects) or "nothing"
        rows.append(f"| `{text}` | {' → '.join(f'`{step}`' for step in steps)} | {returned} | {why} |")
    return rows


def _followed(call: Callable[[Dispatcher], list[Effect]], dispatcher: Dispatcher) -> tuple[list[str], list[Effect]]:
    """Run a call; return where it first enters each module of the library, and what it returns."""
    found: dict[str, str] = {}

    def look(frame: FrameType, event: str, _: object) -> None:
        package, _, module = str(frame.f_globals.get("__name__")).partition(".")
        if event == "call" and package == "keyshared" and module not in _EVERYWHERE:
            found.setdefault(module, _place(module, frame.f_code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        effects = call(dispatcher)
    finally:
        sys.setprofile(before)
    del found["dispatcher"]
    return list(found.values()), effects


def _place(module: str, qualified: str) -> str:
    """Return a called name with its module; only the module if the name is private."""
    owner, _, name = qualified.rpartition(".")
    name = owner if name == "__init__" else name
    return module if name.startswith(("_", "<")) else f"{module}.{name}"


def _effect(effect: Effect) -> str:
    match effect:
        case Deliver(offset=offset, attempt=attempt):
            return f"Deliver(offset={offset}, attempt={attempt})"
        case _:
            return repr(effect)


def program(path: str, language: str) -> list[str]:
    """Return a whole program, for those who have no clone; blocks of ``python`` are run by the tests."""
    return [f"```{language}", *(ROOT / "examples" / path).read_text("utf-8").splitlines(), "```"]


SECTIONS: Final[dict[str, dict[str, Callable[[], list[str]]]]] = {
    "states.md": {
        "messages, table": messages_table,
        "consumers, diagram": consumers_diagram,
        "consumers, table": consumers_table,
    },
    "design.md": {"one message": message_table, "packages, picture": packages_picture},
    "index.md": {"packages, table": packages_table},
    "tutorial.md": {"consumer": lambda: program("tutorial/consumer.py", "python")},
    "howto-kafka.md": {
        "kafka_mock": lambda: program("transports/kafka_mock.py", "py"),
        "kafka_consumer": lambda: program("transports/kafka_consumer.py", "py"),
    },
}


def drawn(name: str, page: str) -> str:
    """Return the text of a page with each of its sections drawn anew."""
    for section, draw in SECTIONS[name].items():
        begin = BEGIN.format(section)
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(END)
        if not found or not closed:
            raise SystemExit(f"{name} lacks {begin} or the {END} behind it")
        page = "\n".join([before + begin, "", *draw(), "", END + after])
    return page


def _cell(state: str, result: str | None) -> str:
    return "" if result is None else "·" if result == state else result


def _ends(state: str) -> str:
    return "[*]" if state == "absent" else state


def _diagram(arrows: Iterable[str]) -> list[str]:
    return ["```mermaid", "stateDiagram-v2", *(f"    {arrow}" for arrow in arrows), "```"]


def main(arguments: list[str]) -> int:
    """Write the pages; with --check only compare, and return 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if a page is out of date")
    check = parser.parse_args(arguments).check
    stale = 0
    for name in SECTIONS:
        path = ROOT / "docs" / name
        before = path.read_text("utf-8")
        after = drawn(name, before)
        if check and before != after:
            stale = 1
            print(f"docs/{name} is not what the code says; run: python tools/draw_docs.py")
        elif before != after:
            path.write_text(after, "utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
