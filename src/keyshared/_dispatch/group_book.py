"""The groups of a dispatcher by name, and how fast each may go.

A *bucket* holds the tokens of a group: each delivery takes one, and time brings them back. It counts in thousandths of
a token, so that a millisecond brings a whole number of them.
"""

from collections.abc import Callable
from typing import Final

from keyshared._dispatch.answers import group_answer
from keyshared._window.served import Scope
from keyshared.config import GroupLimits

__all__ = ["Bucket", "Group", "GroupBook"]

_TOKEN: Final = 1_000


class Bucket:
    """The tokens of a group.

    Attributes:
        per_second: How many tokens a second brings.
        level: Thousandths of a token that it had at ``as_of``.
        as_of: An instant.
        told: How many tokens the group was told of and had not used by then.
    """

    __slots__ = ("_full", "as_of", "level", "per_second", "told")

    def __init__(self, per_second: int, burst: int, *, level: int | None = None, as_of: int = 0) -> None:
        self.per_second = per_second
        self._full = burst * _TOKEN
        self.level = self._full if level is None else min(level, self._full)
        self.as_of = as_of
        self.told = self.level // _TOKEN

    def advance(self, now: int, used: int = 0) -> None:
        """Add what time has brought, and take away the tokens that were used at this instant."""
        self.level = min(self._full, self.level + self.per_second * (now - self.as_of)) - used * _TOKEN
        self.as_of = now

    def tell(self) -> int:
        """Return how many whole tokens there are."""
        self.told = self.level // _TOKEN
        return self.told

    def restore(self, level: int, as_of: int) -> None:
        """Take what it had in another life, as far as it fits."""
        self.level = min(level, self._full)
        self.as_of = as_of

    @property
    def next_token_at(self) -> int:
        """When it has a whole token."""
        return self._reaches(_TOKEN)

    @property
    def age_counts(self) -> bool:
        """Whether it matters when it was looked at last: time brings a full bucket nothing."""
        return self.level < self._full

    @property
    def was_full(self) -> bool:
        """Whether it was full when it was looked at last, and all of its tokens were told of."""
        return self.told * _TOKEN == self._full

    @property
    def full_at(self) -> int:
        """When it is full."""
        return self._reaches(self._full)

    def _reaches(self, level: int) -> int:
        return self.as_of + max(0, -((self.level - level) // self.per_second))


class Group(Scope):
    """A group of keys that share limits.

    Attributes:
        limits: What was set for this group; None if it has the limits of all groups that are not set.
        bucket: Its tokens, if it has a rate.
        deadline: When it has a token again, while somebody waits for that.
    """

    __slots__ = ("bucket", "deadline", "limits")

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.limits: GroupLimits | None = None
        self.bucket: Bucket | None = None
        self.deadline: int | None = None

    def take(self, limits: GroupLimits, now: int) -> None:
        """Apply limits. Tokens that are there stay, as far as they fit; a new bucket is full."""
        self.weight = limits.weight
        self.limit = limits.max_in_flight
        old, self.bucket, self.tokens = self.bucket, None, None
        if limits.per_second is None:
            return
        if old is not None:
            old.advance(now)
        level = None if old is None else old.level
        self.bucket = Bucket(limits.per_second, limits.burst, level=level, as_of=0 if old is None else now)
        self.tokens = self.bucket.tell()

    def refill(self, now: int) -> None:
        """Hand out the tokens that time has brought."""
        bucket: Bucket = self.bucket  # type: ignore[assignment]  # whatever waits for a token has one
        bucket.advance(now)
        self.tokens = bucket.tell()

    def account(self, now: int) -> None:
        """Take the tokens that were used in the call that ends now out of the bucket."""
        bucket = self.bucket
        if bucket is not None and self.tokens is not None and self.tokens != bucket.told:
            bucket.advance(now, bucket.told - self.tokens)
            bucket.told = self.tokens

    @property
    def is_idle(self) -> bool:
        """Whether nothing but its bucket tells it from a new group of this name."""
        return self.limits is None and not self.paused and not self.lanes

    @property
    def is_as_new(self) -> bool:
        """Whether a new group of this name would be the same."""
        return self.is_idle and (self.bucket is None or self.bucket.was_full)


class GroupBook:
    """All groups that are more than a name.

    Args:
        group_of: The function that answers with the group of a key; None if all keys are in the group ``""``.
        limits: Those of every group for which none are set.

    Attributes:
        has_names: Whether groups have names; without there is only ``""``, of which nobody hears.
        groups: The groups by name.
    """

    def __init__(self, group_of: Callable[[bytes], str | None] | None, limits: GroupLimits) -> None:
        self._group_of = group_of
        self.has_names = group_of is not None
        self._limits = limits
        self.groups: dict[str, Group] = {}

    def of(self, key: bytes) -> Group:
        """Return the group of a key.

        Raises:
            ConfigError: The function has raised or answered with something else than a group.
        """
        return self.named("" if self._group_of is None else group_answer(self._group_of, key))

    def check(self, key: bytes) -> None:
        """Raise what `of` would raise."""
        if self._group_of is not None:
            group_answer(self._group_of, key)

    def named(self, name: str) -> Group:
        """Return the group of that name, perhaps a new one."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(name)
            group.take(self._limits, 0)
        return group
