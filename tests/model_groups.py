"""Groups of keys and the limit of the subscription, written for reading: the part of the model that takes turns.

A *scope* is a group, by its name, or `ALL`, the subscription. What is kept: what was set, the tokens, and three orders,
those of the groups that take turns at a consumer, and of the consumers that a scope remembers. All else is counted.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from keyshared.config import GroupLimits, Rules
from keyshared.errors import ArgumentError, ConfigError

__all__ = ["ALL", "GroupRow", "ModelScopes"]

ALL = None
Scope: TypeAlias = str | None
GroupRow: TypeAlias = tuple[str, int, int | None, int, int, int | None, bool, int | None]


@dataclass
class ModelGroup:
    """What is kept of a group besides the orders."""

    limits: GroupLimits
    is_set: bool = False
    paused: bool = False
    thousandths: int = 0  # of a token, at `since`
    since: int = 0

    def fill(self) -> None:
        self.thousandths = 1000 * self.limits.burst

    def pass_time(self, now: int) -> None:
        full, rate = 1000 * self.limits.burst, self.limits.per_second or 0
        self.thousandths = min(full, self.thousandths + rate * (now - self.since))
        self.since = now

    def when(self, thousandths: int) -> int:
        at, rate = self.since, self.limits.per_second or 1
        missing = thousandths - self.thousandths
        return at if missing <= 0 else at + missing // rate + (missing % rate > 0)


@dataclass
class ModelScopes:
    """Whose turn it is, and which scopes are open."""

    rules: Rules | None
    limits: GroupLimits
    most_open: int | None
    groups: dict[str, ModelGroup] = field(default_factory=dict)
    rotation: dict[str, list[str]] = field(default_factory=dict)  # by consumer: the groups that are awake
    left: dict[str, int] = field(default_factory=dict)  # turns that the first of these still has
    remembered: dict[Scope, list[str]] = field(default_factory=dict)  # consumers
    granted: dict[Scope, str] = field(default_factory=dict)  # whose turn it is among those
    turn: tuple[str, str] | None = None  # the consumer and the group whose turn is being taken
    paused: bool = False  # of the subscription: there are too many holes
    opened: list[Scope] = field(default_factory=list)  # in this call
    now: int = 0

    def copy(self) -> "ModelScopes":
        """A copy that changes on its own; limits never change."""
        return replace(
            self,
            groups={name: replace(group) for name, group in self.groups.items()},
            rotation={consumer: [*names] for consumer, names in self.rotation.items()},
            left={**self.left},
            remembered={scope: [*names] for scope, names in self.remembered.items()},
            granted={**self.granted},
            opened=[*self.opened],
        )

    # --- groups -----------------------------------------------------------------------------------------------------

    def name_of(self, key: bytes | None) -> str:
        """The group of the lane of a key; None is the lane of everything."""
        if key is None or self.rules is None or self.rules.group_of is None:
            return ""
        try:
            name = self.rules.group_of(key)
        except Exception as error:
            raise ConfigError("group_of", error, "answer") from error
        if name is not None and not isinstance(name, str):
            raise ConfigError("group_of", name, "be a str or None")
        return name or ""

    def group(self, name: str) -> ModelGroup:
        if name not in self.groups:
            self.groups[name] = ModelGroup(self.limits, since=self.now)
            self.groups[name].fill()
        return self.groups[name]

    def set_group(self, name: object, limits: dict[str, Any]) -> None:
        self.check_name(name)
        try:
            new = GroupLimits(**limits)
        except ConfigError as error:
            raise ArgumentError(error.parameter, error.value, error.requirement) from error
        group = self.group(str(name))
        had_a_rate = group.limits.per_second is not None
        group.pass_time(self.now)
        group.limits, group.is_set = new, True
        if had_a_rate:
            group.pass_time(self.now)
        else:
            group.fill()

    def pause(self, name: object) -> None:
        self.check_name(name)
        self.group(str(name)).paused = True

    def resume(self, name: object) -> None:
        self.check_name(name)
        if name in self.groups:
            self.groups[str(name)].paused = False

    def check_name(self, name: object) -> None:
        if self.rules is None or self.rules.group_of is None:
            raise ArgumentError("name", name, "be left alone: there are no groups")
        if not isinstance(name, str):
            raise ArgumentError("name", name, "be a str")

    def deadlines(self, opened: Sequence[str | None]) -> list[int]:
        """When groups have a token again that wait for one, and not for anything else."""
        names = [name for name, consumers in self.remembered.items() if name is not None and consumers]
        waiting = {name: self.groups[name] for name in names if self.groups[name].limits.per_second}
        return [
            group.when(1000)
            for name, group in waiting.items()
            if self.is_open(name, opened) or group.thousandths < 1000
        ]

    # --- who may go -------------------------------------------------------------------------------------------------

    def is_open(self, scope: Scope, opened: Sequence[str | None]) -> bool:
        """Whether another delivery may begin; the groups of all open deliveries are given, None for keyless ones."""
        if scope is ALL:
            return not self.paused and (self.most_open is None or len(opened) < self.most_open)
        group = self.group(scope)
        group.pass_time(self.now)
        most = group.limits.max_in_flight
        has_room = most is None or opened.count(scope) < most
        return has_room and not group.paused and (group.limits.per_second is None or group.thousandths >= 1000)

    def note_room(self, scope: Scope) -> None:
        """Whoever a scope remembers is to be served in this call, as far as it is open."""
        if self.remembered.get(scope):
            self.opened.append(scope)

    def admits(self, scope: Scope, consumer: str, opened: Sequence[str | None]) -> bool:
        before = self.remembered.get(scope, [])
        return self.is_open(scope, opened) and (not before or self.granted.get(scope) == consumer)

    def use(self, name: str) -> None:
        group = self.group(name)
        if group.limits.per_second:
            group.pass_time(self.now)
            group.thousandths -= 1000

    # --- orders -----------------------------------------------------------------------------------------------------

    def tidy(self, ready: dict[str, list[str]]) -> None:
        """Take in what is listed: by consumer, the groups of its ready lanes, oldest first."""
        for consumer in {*ready, *self.rotation}:
            groups = ready.get(consumer, [])
            awake = self.rotation.setdefault(consumer, [])
            for name in list(awake):
                if name not in groups and self.turn != (consumer, name):
                    self._leave(consumer, name)
            for name in groups:
                if name not in awake and consumer not in self.remembered.get(name, []):
                    awake.append(name)
        for scope, names in self.remembered.items():
            kept = [name for name in names if scope is ALL or scope in ready.get(name, [])]
            self.remembered[scope] = kept

    def forget(self, consumer: str) -> None:
        """The consumer has left."""
        self.rotation.pop(consumer, None)
        self.left.pop(consumer, None)
        for names in self.remembered.values():
            if consumer in names:
                names.remove(consumer)

    def remember(self, scope: Scope, consumer: str) -> None:
        names = self.remembered.setdefault(scope, [])
        if consumer not in names:
            names.append(consumer)

    def sleep(self, name: str, consumer: str) -> None:
        if name in self.rotation.get(consumer, []):
            self._leave(consumer, name)
            self.remember(name, consumer)

    def begin_turn(self, consumer: str, name: str) -> None:
        self.turn = consumer, name
        weight = self.group(name).limits.weight
        self.left[consumer] = min(self.left.get(consumer) or weight, weight)

    def end_turn(self, groups: Sequence[str]) -> None:
        """Pass on; the groups are those of which something waits for this consumer."""
        assert self.turn is not None
        (consumer, name), self.turn = self.turn, None
        awake = self.rotation.get(consumer, [])
        if name not in awake:
            return
        self.left[consumer] -= 1
        if name not in groups:
            self._leave(consumer, name)
        elif self.left[consumer] == 0:
            awake.append(awake.pop(0))

    def _leave(self, consumer: str, name: str) -> None:
        awake = self.rotation[consumer]
        if awake[0] == name:
            self.left[consumer] = 0
        awake.remove(name)

    # --- another life -----------------------------------------------------------------------------------------------

    def snapshot(self, now: int) -> dict[str, Any]:
        return {
            "groups": {
                name: asdict(group) | {"limits": asdict(group.limits), "since": group.since - now}
                for name, group in self.groups.items()
            },
            "rotation": {name: list(awake) for name, awake in self.rotation.items()},
            "left": dict(self.left),
            "paused": self.paused,
            "remembered": [[scope, list(names)] for scope, names in self.remembered.items()],
        }

    def load(self, state: dict[str, Any], now: int) -> None:
        for name, stored in state["groups"].items():
            limits = GroupLimits(**stored["limits"])
            self.groups[name] = ModelGroup(**stored | {"limits": limits, "since": stored["since"] + now})
        self.rotation = {name: list(awake) for name, awake in state["rotation"].items()}
        self.left, self.paused = dict(state["left"]), state["paused"]
        self.remembered = {scope: list(names) for scope, names in state["remembered"]}
