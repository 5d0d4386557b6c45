"""One word for one thing: what a machine can hold of it, over everything that a user can import.

Each rule is a function that yields complaints about names that it is given: nothing comes of those of the library, and
something of each planted violation.
"""

import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from tests.public_calls import public_modules

# A name with two meanings, and why it may have them.
TWO_MEANINGS = {
    **dict.fromkeys(
        ("Done", "Dropped", "Released", "Resumed", "Settled", "Skipped"),
        "an effect says it to the host, an event of the kit says the same in a history that any system can write",
    ),
    "DeadLetter": "the effect asks the host to store a message, and the runner gives the same to the user's store",
    "Event": "what happens in a simulated service, and in a history: each module has its own union of them",
}
KIT_BY_PATH = [
    "keyshared.testing.find",
    "keyshared.testing.history",
    "keyshared.testing.machine",
    "keyshared.testing.steps",
]
PAIRS = {
    "snapshot": "restore",
    "to_json": "from_json",
    "to_token": "from_token",
    "to_bytes": "from_bytes",
}
SYNONYMS = frozenset(
    [
        *("as_json", "as_token", "as_bytes", "as_dict", "to_dict", "from_dict", "to_state", "from_state"),
        *("checkpoint", "from_checkpoint", "to_checkpoint", "from_snapshot", "to_snapshot", "get_state", "set_state"),
        *("dump", "dumps", "load", "loads", "save", "serialize", "deserialize", "from_text", "to_text"),
    ]
)


LIBRARY = Path(__file__).resolve().parents[1] / "src" / "keyshared"
VERBS_OF_NO_WORLD = re.compile(r"(Give|Let|Tell|Say)s?\b")


class Name(NamedTuple):
    """What stands under a public name of a module."""

    module: str
    name: str
    thing: Any


class Member(NamedTuple):
    """What stands under a public name of a public class, as the class has it: a property is a property."""

    name: str
    last: str
    static: Any


def public_names() -> list[Name]:
    """All of `__all__`, packages as well as their modules: the same thing under the same name in both is one thing."""
    more = ["keyshared", "keyshared.errors", "keyshared.testing", *KIT_BY_PATH]
    if find_spec("pyspark"):
        more.append("keyshared.spark")
    modules = [*public_modules(), *((name, importlib.import_module(name)) for name in more)]
    return [Name(short, name, getattr(module, name)) for short, module in modules for name in module.__all__]


def spark_names() -> list[Name]:
    """What the modules of the Spark adapter make public, beyond what their package does: importing takes no JVM."""
    if not find_spec("pyspark"):
        return []
    package = importlib.import_module("keyshared.spark")
    walked = pkgutil.walk_packages(package.__path__, "keyshared.spark.")
    found = [importlib.import_module(each.name) for each in walked]
    return [Name(module.__name__, name, getattr(module, name)) for module in found for name in module.__all__]


def classes(names: Iterable[Name]) -> Iterator[tuple[str, type]]:
    """Public classes, each once, by where they are made."""
    found = {each.thing: None for each in names if inspect.isclass(each.thing)}
    for one in found:
        yield f"{one.__module__.removeprefix('keyshared.')}.{one.__name__}", one


def members(names: Iterable[Name]) -> Iterator[Member]:
    """Public members that a class, or one above it outside the standard library, defines."""
    for name, one in classes(names):
        ours = [each for each in one.__mro__ if each.__module__.partition(".")[0] in {"keyshared", "tests"}]
        for member in sorted({member for each in ours for member in vars(each) if not member.startswith("_")}):
            yield Member(f"{name}.{member}", member, inspect.getattr_static(one, member))


def callables(names: Iterable[Name]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions, constructors except those of errors, and methods."""
    names = list(names)
    for module, name, thing in names:
        if inspect.isroutine(thing):
            yield f"{module}.{name}", thing
    yield from ((name, one) for name, one in classes(names) if not issubclass(one, BaseException))
    for member in members(names):
        call = getattr(member.static, "__func__", member.static)
        if inspect.isroutine(call) and callable(call):  # a descriptor looks like a routine
            yield member.name, call


def parameters(call: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(call).parameters.values())
    except ValueError:  # a class that is made in C
        return []


# the rules


def two_meanings(names: Iterable[Name]) -> Iterator[str]:
    """A public name stands for one thing."""
    places: dict[str, dict[int, str]] = {}
    for module, name, thing in names:
        places.setdefault(name, {}).setdefault(id(thing), module)
    for name, found in sorted(places.items()):
        if len(found) > (2 if name in TWO_MEANINGS else 1):
            yield f"{name} is one thing in {' and another in '.join(sorted(found.values()))}"


def deadlines_that_are_no_methods(names: Iterable[Name]) -> Iterator[str]:
    """``next_deadline_ms()`` is asked, and asks for nothing."""
    for name, last, static in members(names):
        if last in {"next_deadline", "next_timeout_ms", "next_due_ms"}:
            yield f"{name} is what others call next_deadline_ms()"
        if last == "next_deadline_ms" and not (inspect.isroutine(static) and len(parameters(static)) == 1):
            yield f"{name} is no method without arguments"


def instants_without_a_name(names: Iterable[Name]) -> Iterator[str]:
    """``now_ms`` is named by whoever gives it: a bare number says nothing."""
    for name, call in callables(names):
        if any(each.name == "now_ms" and each.kind is not each.KEYWORD_ONLY for each in parameters(call)):
            yield f"{name} takes now_ms by its place"


def timeouts_that_want_more(names: Iterable[Name]) -> Iterator[str]:
    """``handle_timeout(*, now_ms=None)``, and time acts under no other name."""
    for name, last, static in members(names):
        if last in {"tick", "on_timeout", "handle_timeouts", "poll", "expire", "advance_to"}:
            yield f"{name} is what others call handle_timeout()"
        if last == "handle_timeout":
            own = parameters(static)[1:] if inspect.isroutine(static) else []
            if [("now_ms", None)] != [(each.name, each.default) for each in own]:
                yield f"{name} takes something else than now_ms=None"


def verbs_without_a_pair(names: Iterable[Name]) -> Iterator[str]:
    """What can be written can be read again, under the verb that belongs to it, and under no other."""
    owners: dict[str, set[str]] = {}
    for name, last, static in members(names):
        owners.setdefault(name.rpartition(".")[0], set()).add(last)
        if last in SYNONYMS and not _is_field(static):
            yield f"{name} is a synonym of {', '.join(PAIRS)}"
    for owner, own in owners.items():
        for write, read in PAIRS.items():
            if (write in own) != (read in own):
                yield f"{owner} has one of {write} and {read}"


def tokens_that_nothing_takes(names: Iterable[Name]) -> Iterator[str]:
    """Where a part of a machine is written as a token, the machine starts again with ``resume_from=`` its text."""
    takes = {name for name, one in classes(names) if "resume_from" in {each.name for each in parameters(one)}}
    for name, last, static in members(names):
        if _is_field(static):
            continue
        part = last.endswith("_token") and last not in {"to_token", "from_token"}
        if part and name.rpartition(".")[0] not in takes:
            yield f"{name} makes a token that resume_from does not take"
        if last == "token":
            yield f"{name} says not of what it is a token"


def _is_field(static: object) -> bool:
    """A field of a value may have any name: `load` is a number as well."""
    return not inspect.isroutine(getattr(static, "__func__", static))


def docstrings_without_a_verb_of_the_reader(library: Path) -> Iterator[str]:
    """A docstring begins with what happens for the reader: Return, Raise, Deliver, not Give, Let, Tell, Say."""
    for path in sorted(library.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node) or ""
                if VERBS_OF_NO_WORLD.match(text):
                    yield f"{path.name}: {text.partition(chr(10))[0]}"


RULES = [
    two_meanings,
    deadlines_that_are_no_methods,
    instants_without_a_name,
    timeouts_that_want_more,
    verbs_without_a_pair,
    tokens_that_nothing_takes,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_one_word_stands_for_one_thing(rule: Callable[[Iterable[Name]], Iterator[str]]) -> None:
    # modules of the adapter may call parts of it alike (each report has its ``html``): users import from the package
    inside = [] if rule is two_meanings else spark_names()
    assert [] == list(rule([*public_names(), *inside]))


@pytest.mark.no_cover
def test_a_docstring_begins_with_a_verb_of_the_readers_world() -> None:
    assert [] == list(docstrings_without_a_verb_of_the_reader(LIBRARY))


def test_a_docstring_that_gives_or_tells_is_found(tmp_path: Path) -> None:
    (tmp_path / "spark" / "logs").mkdir(parents=True)
    for name in ("planted.py", "spark/logs/read.py"):
        (tmp_path / name).write_text('def f():\n    """Tell whether."""\n\n\ndef g():\n    """Telling is fine."""\n')

    found = docstrings_without_a_verb_of_the_reader(tmp_path)

    assert ["planted.py: Tell whether.", "read.py: Tell whether."] == list(found)


def test_every_exception_is_still_needed() -> None:
    seen: dict[str, set[int]] = {}
    for _, name, thing in public_names():
        seen.setdefault(name, set()).add(id(thing))
    assert set(TWO_MEANINGS) == {name for name in TWO_MEANINGS if len(seen[name]) > 1}


def test_the_walk_sees_the_machines() -> None:
    """A rule that sees nothing finds nothing."""
    asked = {name for name, last, _ in members(public_names()) if last == "next_deadline_ms"}
    called = {name for name, last, _ in members(public_names()) if last == "handle_timeout"}
    machines = ["dispatcher.KeySharedDispatcher", "leases.queue.LeaseQueue", "draintracker.tracker.DrainTracker"]
    machines += ["buckets.batcher.BucketBatcher", "segments.producer.SegmentProducer"]
    for machine in machines:
        assert f"{machine}.next_deadline_ms" in asked
        assert f"{machine}.handle_timeout" in called


# planted


class Late:
    @property
    def next_deadline_ms(self) -> None: ...


class Picky:
    def next_deadline_ms(self, now_ms: int) -> None: ...


class Due:
    def next_deadline(self) -> None: ...


class Bare:
    def offer(self, now_ms: int) -> None: ...


class Made:
    def __init__(self, now_ms: int) -> None: ...


class Built:
    @classmethod
    def at(cls, now_ms: int) -> None: ...


def bare(now_ms: int) -> None: ...


class Strict:
    def handle_timeout(self, *, now_ms: int) -> None: ...


class Wide:
    def handle_timeout(self, *, now_ms: int | None = None, most: int = 1) -> None: ...


class Ticking:
    def tick(self) -> None: ...


class WriteOnly:
    def snapshot(self) -> None: ...


class ReadOnly:
    @classmethod
    def from_json(cls) -> None: ...


class Inheriting(WriteOnly):
    def other(self) -> None: ...


class OtherVerb:
    def checkpoint(self) -> None: ...


class Tokens:
    def cursor_token(self) -> None: ...


class Proof:
    def token(self) -> None: ...


class Measured(NamedTuple):
    load: int


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("rule", "planted", "complaint"),
    [
        (deadlines_that_are_no_methods, Late, "no method"),
        (deadlines_that_are_no_methods, Picky, "no method without arguments"),
        (deadlines_that_are_no_methods, Due, "what others call"),
        (instants_without_a_name, Bare, "Bare.offer takes now_ms by its place"),
        (instants_without_a_name, Made, "Made takes now_ms by its place"),
        (instants_without_a_name, Built, "Built.at takes now_ms by its place"),
        (instants_without_a_name, bare, "bare takes now_ms by its place"),
        (timeouts_that_want_more, Strict, "something else"),
        (timeouts_that_want_more, Wide, "something else"),
        (timeouts_that_want_more, Ticking, "what others call"),
        (verbs_without_a_pair, WriteOnly, "one of snapshot and restore"),
        (verbs_without_a_pair, ReadOnly, "one of to_json and from_json"),
        (verbs_without_a_pair, Inheriting, "one of snapshot and restore"),
        (verbs_without_a_pair, OtherVerb, "synonym"),
        (tokens_that_nothing_takes, Tokens, "resume_from does not take"),
        (tokens_that_nothing_takes, Proof, "not of what"),
    ],
    ids=lambda each: getattr(each, "__name__", None),
)
def test_a_planted_violation_is_found(
    rule: Callable[[Iterable[Name]], Iterator[str]], planted: Any, complaint: str
) -> None:
    [found] = rule([*public_names(), Name("planted", planted.__name__, planted)])

    assert complaint in found


def test_a_field_of_a_value_is_no_verb() -> None:
    assert [] == list(verbs_without_a_pair([Name("planted", "Measured", Measured)]))


def test_a_name_with_a_second_meaning_is_found() -> None:
    """Even if it is only an alias, and in a package that passes it on as well."""
    other = SimpleNamespace()
    again = [Name("planted.home", "Lease", other), Name("planted", "Lease", other)]

    [found] = two_meanings([*public_names(), *again])

    assert found.startswith("Lease is one thing in ")
    assert found.endswith("another in planted.home")


def test_a_name_that_may_have_two_meanings_has_no_third() -> None:
    [found] = two_meanings([*public_names(), Name("planted", "Settled", SimpleNamespace())])

    assert found.startswith("Settled is one thing in ")
