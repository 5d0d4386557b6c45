"""The deliveries that a bench keeps, and the answers for them that stand still half-way."""

from typing import NamedTuple, TypeVar

from keyshared.testing.driver import Delivery
from keyshared.testing.ledger import UnderWay

__all__ = ["Begun", "Receipt", "pick"]

_Option = TypeVar("_Option")


class Receipt(NamedTuple):
    """Who got what, and when."""

    consumer: str
    delivery: Delivery
    at_ms: int


class Begun(NamedTuple):
    """An ack that stands still half-way.

    Attributes:
        receipt: What it answers for.
        handle: What the driver needs to finish it.
        answer: What the ledger waits for.
        at_ms: When it began.
    """

    receipt: Receipt
    handle: object
    answer: UnderWay
    at_ms: int


def pick(options: list[_Option], which: int) -> _Option:
    """One of several, whatever number was drawn: a schedule stays valid while it shrinks."""
    return options[which % len(options)]
