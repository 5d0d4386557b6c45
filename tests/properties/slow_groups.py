"""Groups of a slow lease queue: what is set of one, and its tokens, looked at whenever somebody asks."""

from dataclasses import dataclass

from keyshared.config import GroupLimits, Rules

__all__ = ["GROUP_RULES", "SlowGroup", "name_of_group"]


def name_of_group(key: str | None) -> str | None:
    """Keys that begin with b are one group, those with o another, the rest a third; what has no key is in none."""
    if key is None:
        return None
    return key[:1] if key[:1] in {"b", "o"} else ""


GROUP_RULES = Rules(mark="slow", group_of=lambda key: name_of_group(key.decode()) or None)


@dataclass
class SlowGroup:
    """One group."""

    limits: GroupLimits
    paused: bool = False
    level: int | None = None  # thousandths of a token at that instant; None for a bucket that is full
    as_of: int = 0

    def tokens(self, now: int) -> int:
        """Thousandths of a token that it has now."""
        full = 1_000 * self.limits.burst
        if self.level is None or self.limits.per_second is None:
            return full
        return min(full, self.level + self.limits.per_second * (now - self.as_of))

    def set(self, limits: GroupLimits, now: int) -> None:
        """Change the limits; tokens stay as far as they fit, and a rate that is new begins with all of them."""
        has_rate = self.limits.per_second is not None
        self.level = min(self.tokens(now), 1_000 * limits.burst) if has_rate else None
        self.limits, self.as_of = limits, now

    def spend(self, now: int) -> None:
        """Hand out one message."""
        self.level, self.as_of = self.tokens(now) - 1_000, now

    def is_open(self, opened: int, now: int) -> bool:
        """Whether another message of it may go out beside those that are."""
        most, rate = self.limits.max_in_flight, self.limits.per_second
        return not self.paused and (most is None or opened < most) and (rate is None or self.tokens(now) >= 1_000)
