"""What a function of the user returns: some answers show that nothing has been done yet."""

from collections.abc import Callable
from concurrent.futures import Future
from inspect import (
    isasyncgen,
    isasyncgenfunction,
    isawaitable,
    iscoroutine,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
)
from typing import Any, NoReturn

from keyshared._checks import check_callable
from keyshared.errors import ArgumentError, MisuseError

__all__ = ["NotAwaitedError", "check_answer", "check_function", "check_hook_answer", "is_coroutine_function"]


class NotAwaitedError(MisuseError):
    """A function of the user returned something that nobody awaits or runs, so its work is not done.

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
            f"{self.function} returned a {self.answer}, which nobody awaits or runs; "
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
        keyshared.run.answers.NotAwaitedError: handle returned a generator, which nobody awaits or runs; return when \
the work is done, or give an AsyncRunner an `async def` function
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
        keyshared.run.answers.NotAwaitedError: a hook returned a generator, which nobody awaits or runs; return when \
the work is done
    """
    if iscoroutine(answer) or isgenerator(answer) or isasyncgen(answer):
        _refuse(answer, "a hook")


def _refuse(answer: object, function: str) -> NoReturn:
    if iscoroutine(answer):
        answer.close()  # or Python warns that it was never awaited
    raise NotAwaitedError(type(answer).__name__, function)


def check_function(name: str, function: object, what: str, *, is_awaited: bool) -> None:
    """Check a function of the user whose work has to be done when it returns.

    Args:
        name: What it is called in the error.
        function: The function.
        what: What it is called with.
        is_awaited: Whether it may be a coroutine function.

    Raises:
        ArgumentError: It cannot be called, or is known to do nothing when it is.

    Example:
        >>> check_function("commit", print, "a log, a position and a token", is_awaited=False)
    """
    check_callable(name, function, what)
    if _is_known_as(isgeneratorfunction, function) or _is_known_as(isasyncgenfunction, function):
        raise ArgumentError(name, function, "be a function that does its work when it is called; nobody runs a `yield`")
    if not is_awaited and is_coroutine_function(function):
        raise ArgumentError(name, function, "be no coroutine function; nobody awaits it here")


def is_coroutine_function(function: object) -> bool:
    """Return whether something that can be called is known to return coroutines.

    Example:
        >>> is_coroutine_function(print)
        False
    """
    return _is_known_as(iscoroutinefunction, function)


def _is_known_as(kind: Callable[[Any], bool], function: object) -> bool:
    return kind(function) or kind(getattr(function, "__call__", None))  # noqa: B004 - an object that can be called
