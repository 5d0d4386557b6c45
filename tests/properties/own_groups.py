"""What groups may have, by the calls that set it: beyond what any history tells."""

from collections.abc import Iterator
from typing import Any

from tests.properties.calls import Step

from keyshared.config import GroupLimits
from keyshared.effects import Deliver
from keyshared.testing import Promise

__all__ = ["OwnGroups"]


class OwnGroups:
    """Follows the pauses, the limits and the tokens of groups."""

    def __init__(self, limits: GroupLimits, rules: Any) -> None:
        self.default = limits
        self.group_of = None if rules is None else rules.group_of
        self.limits: dict[str, GroupLimits] = {}
        self.paused: set[str] = set()
        self.tokens: dict[str, tuple[int, int]] = {}  # thousandths, and when

    def begin_anew(self) -> None:
        """The clock may have gone back: full buckets can blame nobody."""
        self.tokens.clear()

    def see(self, step: Step, open_now: set[Deliver]) -> Iterator[tuple[Promise, str]]:
        if self.group_of is None:
            return
        self._apply(step)
        for effect in step.effects:
            if not isinstance(effect, Deliver) or effect.key is None:
                continue
            group = self.group_of(effect.key) or ""
            limits = self.limits.get(group, self.default)
            if group in self.paused:
                yield Promise.GROUP_FAIRNESS, f"{effect}, though group {group!r} is paused"
            of_group = [each for each in open_now if each.key is not None and (self.group_of(each.key) or "") == group]
            if limits.max_in_flight is not None and len(of_group) > limits.max_in_flight:
                yield Promise.GROUP_FAIRNESS, f"{effect} is one too many of group {group!r}"
            if limits.per_second is not None:
                left = self._level(group, limits, step.now) - 1000
                self.tokens[group] = left, step.now
                if left < 0:
                    yield Promise.GROUP_FAIRNESS, f"{effect}, though group {group!r} has no token"

    def _apply(self, step: Step) -> None:
        name, args, kwargs = step.call
        if name == "pause_group":
            self.paused.add(args[0])
        elif name == "resume_group":
            self.paused.discard(args[0])
        elif name == "set_group":
            before = self.limits.get(args[0], self.default)
            limits = GroupLimits(**{key: value for key, value in kwargs.items() if key != "now_ms"})
            self.limits[args[0]] = limits
            if before.per_second is None or limits.per_second is None:
                self.tokens.pop(args[0], None)
            else:
                level = self._level(args[0], before, step.now)
                self.tokens[args[0]] = min(level, 1000 * limits.burst), step.now

    def _level(self, group: str, limits: GroupLimits, now: int) -> int:
        full, rate = 1000 * limits.burst, limits.per_second or 0
        if group not in self.tokens:
            return full
        level, since = self.tokens[group]
        return min(full, level + rate * (now - since))
