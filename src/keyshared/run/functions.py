"""Checks of the user's functions: their arguments, and whether their work is done when they return."""

from collections.abc import Callable
from concurrent.futures import Future
from inspect import (
    Parameter,
    isasyncgen,
    isasyncgenfunction,
    isawaitable,
    iscoroutine,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
    signature,
)
from typing import Any, NoReturn

from keyshared._checks import check_callable
from keyshared.errors import ArgumentError, MisuseError

__all__ = ["NotAwaitedError", "check_answer", "check_function", "check_hook_answer", "is_coroutine_function"]


class NotAwaitedError(MisuseError):
    """A function of the user returned something that is never awaited or run, so its work is not done.

    The runner stops with it: to go on would lose a message, a dead letter or a commit. Such answers are coroutines and
    other awaitables where a thread calls the function, futures of `concurrent.futures`, and generators. A hook may
    return a task or a future, which run by themselves.

    Attributes:
        answer: The name of the type of what it returned.
        function: Which function: ``handle``, ``commit``, ``a hook``, ...
    """

    def __init__(self, answer: str, function: str = "handle") -> None:
        super().__init__(answer, function)
        self.answer = answer
        self.function = function

    def _text(self) -> str:
        instead = ", or give an AsyncRunner an `async def` function" if self.function == "handle" else ""
        return (
            f"{self.function} returned a {self.answer}, which is never awaited or run; "
            f"return when the work is done{instead}"
        )


def check_answer(answer: object, function: str = "handle") -> None:
    """Raise `NotAwaitedError` if what a function returned shows that its work is not done.

    Args:
        answer: What it returned.
        function: What it is called in the error.

    Example:
        >>> check_answer("anything else")
        >>> check_answer(number for number in range(3))
        Traceback (most recent call last):
        ...
        keyshared.run.functions.NotAwaitedError: handle returned a generator, which is never awaited or run; return \
when the work is done, or give an AsyncRunner an `async def` function
    """
    if isawaitable(answer) or isgenerator(answer) or isasyncgen(answer) or isinstance(answer, Future):
        _refuse(answer, function)


def check_hook_answer(answer: object) -> None:
    """Raise `NotAwaitedError` if what a hook returned will never run. A task or a future runs by itself.

    Example:
        >>> check_hook_answer(Future())
        >>> check_hook_answer(number for number in range(3))
        Traceback (most recent call last):
        ...
        keyshared.run.functions.NotAwaitedError: a hook returned a generator, which is never awaited or run; return \
when the work is done
    """
    if iscoroutine(answer) or isgenerator(answer) or isasyncgen(answer):
        _refuse(answer, "a hook")


def _refuse(answer: object, function: str) -> NoReturn:
    if iscoroutine(answer):
        answer.close()  # or Python warns that it was never awaited
    raise NotAwaitedError(type(answer).__name__, function)


def check_function(name: str, function: object, what: str, *, is_awaited: bool, arguments: int | None = None) -> None:
    """Check a function of the user whose work has to be done when it returns.

    Args:
        name: Its name in the error.
        function: The function.
        what: Its arguments, in words.
        is_awaited: Whether it may be a coroutine function.
        arguments: How many positional arguments it is called with; None to check nothing of that.

    Raises:
        ArgumentError: It cannot be called with these arguments, or is known to do nothing when it is called.

    Example:
        >>> check_function("commit", print, "a log, a position and a token", is_awaited=False)
    """
    check_callable(name, function, what)
    if _is_known_as(isgeneratorfunction, function) or _is_known_as(isasyncgenfunction, function):
        raise ArgumentError(
            name, function, "be a function that does its work when it is called; a generator is never run"
        )
    if not is_awaited and is_coroutine_function(function):
        raise ArgumentError(name, function, "be no coroutine function; it is not awaited here")
    if arguments is not None:
        _check_arguments(name, function, what, arguments)


def _check_arguments(name: str, function: object, what: str, arguments: int) -> None:
    try:
        known = signature(function)  # type: ignore[arg-type]  # it is callable
    except (TypeError, ValueError):  # many functions written in C have none
        return
    try:
        known.bind(*[Parameter.empty] * arguments)
    except TypeError as error:
        raise ArgumentError(name, function, f"take {what} as its only argument ({error})") from None


def is_coroutine_function(function: object) -> bool:
    """Return whether something that can be called is known to return coroutines.

    Example:
        >>> is_coroutine_function(print)
        False
    """
    return _is_known_as(iscoroutinefunction, function)


def _is_known_as(kind: Callable[[Any], bool], function: object) -> bool:
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - an object that can be called
