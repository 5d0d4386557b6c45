from collections.abc import Callable

import pytest

from keyshared import DispatcherConfig, HashRing, KeySharedDispatcher, Poison, RetryPolicy
from keyshared._core.records import Transition
from keyshared.dispatcher import ConsumerState
from keyshared.effects import DeadLetter, Deliver, Effect, Load
from keyshared.window import NEXT_STATE, State
from tools import draw_docs

Dispatcher = KeySharedDispatcher
AT_ONCE = RetryPolicy(max_redeliveries=0)
LATER = RetryPolicy(base_delay_ms=10)


@pytest.mark.no_cover
@pytest.mark.interpreted("draws what the interpreter sees")
def test_the_page_shows_what_the_code_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert draw_docs.main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.no_cover
@pytest.mark.interpreted("draws what the interpreter sees")
def test_a_page_that_is_out_of_date_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fewer = dict(list(NEXT_STATE.items())[1:])
    monkeypatch.setattr(draw_docs, "NEXT_STATE", fewer)
    assert draw_docs.main(["--check"]) == 1
    assert "run: python tools/draw_docs.py" in capsys.readouterr().out


def test_a_page_that_lost_a_section_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"states\.md lacks"):
        draw_docs.drawn("states.md", "nothing to draw into")


def test_every_step_of_the_table_has_its_cause_and_no_other_has() -> None:
    assert set(NEXT_STATE) == set(draw_docs.CAUSES)


def test_every_state_of_a_consumer_is_drawn() -> None:
    assert {"absent", *map(str, ConsumerState)} == set(draw_docs.STATES)


@pytest.mark.parametrize("state", draw_docs.STATES)
def test_a_consumer_that_is_brought_into_a_state_is_in_it(state: str) -> None:
    dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(inactive_grace_ms=draw_docs.GRACE_MS))
    draw_docs.STATES[state](dispatcher)
    consumers = dispatcher.stats().consumers
    assert state == (consumers[draw_docs.NAME].state if consumers else "absent")


def _state(dispatcher: Dispatcher, offset: int) -> State:
    """The state of a message as a snapshot names it."""
    messages = dispatcher.snapshot()["messages"]
    assert isinstance(messages, list)
    names = {message[0]: message[3] for message in messages}
    return State[names[offset].upper()] if offset in names else State.SETTLED


def _start(keys: str, **config: object) -> tuple[Dispatcher, list[Effect]]:
    dispatcher = KeySharedDispatcher(HashRing(), DispatcherConfig(**config))  # type: ignore[arg-type]  # any field
    dispatcher.add_consumer("c1")
    return dispatcher, [effect for offset, key in enumerate(keys) for effect in dispatcher.offer(offset, key)]


ONE: dict[str, object] = {"max_in_flight_per_consumer": 1}
SPILLING: dict[str, object] = {**ONE, "window": 2, "max_loaded_per_key": 1}
# Configuration, keys, the message, the state before, what is done, the state after.
Cause = tuple[dict[str, object], str, int, list[Callable[[Dispatcher], object]], State, Transition]
CAUSES: dict[str, Cause] = {
    "the turn of a quarantined key": (
        {"retry": AT_ONCE, "quarantine": True},
        "aa",
        1,
        [lambda d: d.reject(0, "c1", 1), lambda d: d.dead_lettered(0)],
        State.QUEUED,
        Transition.ARCHIVE,
    ),
    "loaded too early": (
        SPILLING, "a", 1,
        [
            lambda d: d.offer(1, "a", not_before_ms=9), lambda d: d.offer(2, "a"),
            lambda d: d.ack(0, "c1", 1), lambda d: d.loaded(1),
        ],
        State.LOADING, Transition.DELAY,
    ),
    "its turn": (ONE, "ab", 1, [lambda d: d.ack(0, "c1", 1)], State.QUEUED, Transition.DELIVER),
    "gone while queued": (ONE, "ab", 1, [lambda d: d.gone(1)], State.QUEUED, Transition.SETTLE),
    "late ack while queued": (
        ONE, "ab", 0, [lambda d: d.release(0, "c1", 1), lambda d: d.ack(0, "c1", 1)], State.QUEUED, Transition.SETTLE
    ),
    "a slot": (SPILLING, "aa", 1, [lambda d: d.ack(0, "c1", 1)], State.SPILLED, Transition.LOAD),
    "gone while spilled": (SPILLING, "aa", 1, [lambda d: d.gone(1)], State.SPILLED, Transition.SETTLE),
    "gone while loading": (
        SPILLING, "aa", 1, [lambda d: d.ack(0, "c1", 1), lambda d: d.gone(1)], State.LOADING, Transition.SETTLE
    ),
    "ack": ({}, "a", 0, [lambda d: d.ack(0, "c1", 1)], State.IN_FLIGHT, Transition.SETTLE),
    "drop": ({"poison": Poison.DROP}, "a", 0, [lambda d: d.reject(0, "c1", 1)], State.IN_FLIGHT, Transition.SETTLE),
    "archive": ({}, "a", 0, [lambda d: d.reject(0, "c1", 1)], State.IN_FLIGHT, Transition.ARCHIVE),
    "block": ({"poison": Poison.BLOCK}, "a", 0, [lambda d: d.reject(0, "c1", 1)], State.IN_FLIGHT, Transition.BLOCK),
    "nack": ({"retry": LATER}, "a", 0, [lambda d: d.nack(0, "c1", 1)], State.IN_FLIGHT, Transition.DELAY),
    "leave": ({}, "a", 0, [lambda d: d.remove_consumer("c1")], State.IN_FLIGHT, Transition.PUT_BACK),
    "timeout": (
        {"ack_timeout_ms": 5}, "a", 0, [lambda d: d.handle_timeout(now_ms=5)], State.IN_FLIGHT, Transition.DELAY
    ),
    "late ack": (
        {"retry": LATER}, "a", 0,
        [lambda d: d.nack(0, "c1", 1), lambda d: d.ack(0, "c1", 1)], State.DELAYED, Transition.SETTLE,
    ),
    "retry due": (
        {"retry": LATER, "inactive_grace_ms": None}, "a", 0,
        [lambda d: d.nack(0, "c1", 1), lambda d: d.set_inactive("c1"), lambda d: d.handle_timeout(now_ms=10)],
        State.DELAYED, Transition.PUT_BACK,
    ),
    "archived": ({}, "a", 0, [lambda d: d.reject(0, "c1", 1), lambda d: d.dead_lettered(0)],
                 State.DEAD_LETTERING, Transition.SETTLE),
    "archived, then blocked": (
        {"poison": Poison.BLOCK, "archive_blocked": True}, "a", 0,
        [lambda d: d.reject(0, "c1", 1), lambda d: d.dead_lettered(0)], State.DEAD_LETTERING, Transition.BLOCK,
    ),
    "park": (
        {"poison": Poison.BLOCK}, "a", 0,
        [lambda d: d.reject(0, "c1", 1), lambda d: d.park(0)], State.BLOCKED, Transition.SETTLE,
    ),
    "unblock": (
        {"poison": Poison.BLOCK}, "a", 0,
        [lambda d: d.reject(0, "c1", 1), lambda d: d.set_inactive("c1"), lambda d: d.unblock("a")],
        State.BLOCKED, Transition.PUT_BACK,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CAUSES)
def test_a_cause_named_on_the_page_has_its_effect(name: str) -> None:
    config, keys, offset, steps, before, change = CAUSES[name]
    dispatcher, _ = _start(keys, **config)
    for step in steps[:-1]:
        step(dispatcher)
    if "the turn of" not in name:  # a queued message of a quarantined key is archived as soon as its turn comes
        assert before == _state(dispatcher, offset)
    steps[-1](dispatcher)
    assert NEXT_STATE[before, change] == _state(dispatcher, offset)


def test_the_effects_named_on_the_page_come_with_the_state() -> None:
    dispatcher, first = _start("aa", window=2, max_loaded_per_key=1)
    assert [Deliver] == [type(effect) for effect in first if isinstance(effect, Deliver)]
    assert Load(1, b"a") in dispatcher.ack(0, "c1", 1)
    assert State.LOADING == _state(dispatcher, 1)
    dispatcher.loaded(1, "again")
    assert DeadLetter(1, b"a", 1, 1, "again") in dispatcher.reject(1, "c1", 1)


@pytest.mark.no_cover
def test_everything_in_the_library_is_in_the_picture() -> None:
    library = draw_docs.ROOT / "src" / "keyshared"
    places = {path.stem for path in library.iterdir() if (path / "__init__.py").is_file() or path.suffix == ".py"}
    picture = {line.strip() for line in draw_docs.packages_picture()}
    assert places - {"__init__"} <= picture


def test_an_arrow_that_follows_from_others_is_not_drawn() -> None:
    uses = {"top": {"middle", "bottom"}, "middle": {"bottom"}, "bottom": set[str]()}
    assert {"top": {"middle"}, "middle": {"bottom"}, "bottom": set()} == draw_docs.without_implied(uses)
