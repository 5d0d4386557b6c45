"""All primitives and their configurations travel as pickles: to the workers of Spark, to a pool of processes."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from tests.public_calls import BUILD

__all__ = ["TRAVELLING", "check_travels"]

# A simulation is a generator that runs.
TRAVELLING = sorted(BUILD.keys() - {"simulate.simulation.Simulation"})


def check_travels(made: Any, dumps: Callable[[Any], bytes]) -> None:
    """Pickle an object, and compare the copy in every way that its class allows."""
    again = pickle.loads(dumps(made))  # noqa: S301 - our own bytes
    kind = type(made)
    assert kind is type(again)
    if any("__eq__" in vars(each) for each in kind.__mro__[:-1]):
        assert made == again
    if " object at 0x" not in repr(made):
        assert repr(made) == repr(again)
    for name in ("snapshot", "to_bytes", "stats"):
        if callable(method := getattr(made, name, None)):
            assert method() == getattr(again, name)()
    if hasattr(made, "check_invariants"):
        again.check_invariants()


@pytest.mark.parametrize("name", TRAVELLING)
def test_every_primitive_pickles(name: str) -> None:
    check_travels(BUILD[name](), pickle.dumps)
