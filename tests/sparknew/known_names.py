"""Ask the JVM once what a name stands for: py4j asks each time, and Java looks through all the archives of Spark."""

from typing import Any

from py4j.java_gateway import JVMView

__all__ = ["remember_names"]


def remember_names(view: JVMView) -> None:
    """Let a view of a JVM know its packages and classes once they were found; there they stay what they are."""
    view.__class__ = _Knowing


class _Knowing(JVMView):  # type: ignore[misc]  # py4j has no types
    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        self.__dict__[name] = found
        return found
