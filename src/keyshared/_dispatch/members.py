"""Consumers as a dispatcher knows them: sessions that join, fall silent, drain and leave."""

from enum import StrEnum

from keyshared._window.lanes import Consumer
from keyshared.glob import KeyFilter
from keyshared.placement.ranges import Weight

__all__ = ["Member", "MemberState"]


class MemberState(StrEnum):
    """What a consumer may do now."""

    ACTIVE = "active"  # owns keys, gets messages
    INACTIVE = "inactive"  # owns keys, gets nothing until it is back or its grace period is over
    DRAINING = "draining"  # owns nothing, finishes what it holds


class Member(Consumer):
    """One session of a consumer.

    Attributes:
        state: What it may do now.
        quota: Its configured limit; ``limit`` is that while it is active, else 0.
        accepts: Its key filter.
        weight: The weight it asked for, or None if the placement decides.
        deadline: When its grace period or its drain is over.
    """

    __slots__ = ("accepts", "deadline", "quota", "state", "weight")

    def __init__(self, name: str, order: int, quota: int, accepts: KeyFilter, weight: Weight | None) -> None:
        super().__init__(name, order, quota, keyless=accepts.takes_keyless)
        self.state = MemberState.ACTIVE
        self.quota = quota
        self.accepts = accepts
        self.weight = weight
        self.deadline: int | None = None
