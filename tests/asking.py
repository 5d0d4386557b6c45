"""Ask an object every question that it answers, and spoil what it hands out: a query may write nothing.

What is a query is found by reflection: every public property and method of the class that is not declared as an input.
So a new query is asked by itself, and a new input fails until it is declared.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from inspect import Parameter, getattr_static, signature
from itertools import islice, product
from typing import Any

from tests.members import is_property, needs_no_object

from keyshared.errors import InvariantError, KeySharedError

__all__ = ["ask_everything", "questions_of"]

_MOST = 200  # of an answer that comes piece by piece


@cache
def questions_of(kind: Hashable, inputs: frozenset[str]) -> Mapping[str, Sequence[tuple[str, bool]] | None]:
    """All public properties (None) and methods (parameters, each with whether it needs a value) that are no inputs."""
    assert isinstance(kind, type)
    unknown = inputs - set(dir(kind))
    assert not unknown, f"{kind.__name__} has no inputs {sorted(unknown)}"
    found: dict[str, Sequence[tuple[str, bool]] | None] = {}
    for name in dir(kind):
        member = getattr_static(kind, name)
        if name.startswith("_") or name in inputs or needs_no_object(member):
            continue
        if is_property(member):
            found[name] = None
        elif callable(member) and not isinstance(member, type):
            parameters = list(signature(member).parameters.values())[1:]
            found[name] = [(each.name, each.default is Parameter.empty) for each in parameters]
    return found


def ask_everything(subject: object, arguments: Mapping[str, Sequence[Any]], inputs: frozenset[str]) -> int:
    """Ask every question with all arguments there are for it, and empty every container that is handed out.

    Args:
        subject: Whom to ask.
        arguments: Values by name of parameter; a parameter that is not there keeps its default.
        inputs: The methods that change something.

    Returns:
        How many questions were asked.
    """
    asked = 0
    kind: Any = type(subject)
    for name, parameters in questions_of(kind, inputs).items():
        if parameters is None:
            _spoil(getattr(subject, name))
            asked += 1
            continue
        for given in _all_given(f"{type(subject).__name__}.{name}", parameters, arguments):
            asked += 1
            try:
                _spoil(getattr(subject, name)(**given))
            except InvariantError:
                raise
            except KeySharedError:  # a question may be refused
                continue
    return asked


def _all_given(
    name: str, parameters: Sequence[tuple[str, bool]], arguments: Mapping[str, Sequence[Any]]
) -> Iterator[dict[str, Any]]:
    missing = [parameter for parameter, needed in parameters if needed and parameter not in arguments]
    assert not missing, f"{name} is new: is it an input, or with which {missing} is it asked?"
    names = [parameter for parameter, _ in parameters if parameter in arguments]
    for values in product(*(arguments[each] for each in names)):
        yield dict(zip(names, values, strict=True))


def _spoil(answer: Any) -> None:
    """Empty a container: whoever handed out its own will miss what was in it."""
    if isinstance(answer, Iterator):
        answer = list(islice(answer, _MOST))
    if isinstance(answer, list | dict | set):
        for inside in list(answer.values()) if isinstance(answer, dict) else list(answer):
            _spoil(inside)
        answer.clear()
