"""The real dispatcher whose keys have rules of their own, and one fault each."""

from typing import Any

from tests.broken_parts import Broken

from keyshared._window.lanes import Entry, KeyRule, Lane
from keyshared.window import InFlightWindow

__all__ = [
    "KeyLimitForgottenOnRetry",
    "KeyLimitIsIgnored",
    "KeyLimitIsOneForAll",
    "KeyRuleForgottenInACrash",
    "LatestRuleIsIgnored",
    "RuleOfOneKeyCountsForAll",
]


class KeyLimitIsIgnored(Broken):
    """As much of a key is open as may be loaded."""

    class _Fault(InFlightWindow):
        def turn_limit(self, lane: Lane) -> int:  # noqa: ARG002  # the fault
            return self.per_key

        def most_of(self, lane: Lane) -> int:
            return max(super().most_of(lane), self.per_key)


class KeyLimitForgottenOnRetry(Broken):
    """The limit of a key is asked for first deliveries only."""

    class _Fault(InFlightWindow):
        def turn_limit(self, lane: Lane) -> int:
            return self.per_key if lane.back else super().turn_limit(lane)


class KeyLimitIsOneForAll(Broken):
    """While something of a key is open, nothing more of it goes out, whatever its rule says."""

    class _Fault(InFlightWindow):
        def turn_limit(self, lane: Lane) -> int:
            return super().turn_limit(lane) if _rule_of(lane) is None else 1


class RuleOfOneKeyCountsForAll(Broken):
    """The functions are asked for the first key, and never again."""

    class _Fault(InFlightWindow):
        def new_lane(self, key: bytes | None) -> Lane:
            lane = super().new_lane(key)
            if (rule := _rule_of(lane)) is not None:
                lane.rule = vars(self).setdefault("first", rule)
            return lane


class LatestRuleIsIgnored(Broken):
    """No key is one of which only the latest message counts."""

    class _Fault(InFlightWindow):
        def new_lane(self, key: bytes | None) -> Lane:
            lane = super().new_lane(key)
            if (rule := _rule_of(lane)) is not None:
                lane.rule = rule._replace(latest_only=False)
            return lane


class KeyRuleForgottenInACrash(Broken):
    """What comes out of a snapshot has no rule until its key comes back."""

    class _Fault(InFlightWindow):
        def readmit(self, *args: Any, **kwargs: Any) -> Entry:
            entry = super().readmit(*args, **kwargs)
            if _rule_of(entry.lane) is not None:
                entry.lane.rule = KeyRule()
            return entry


def _rule_of(lane: Lane) -> KeyRule | None:
    """The rule of a lane, where lanes have rules."""
    rule: KeyRule | None = getattr(lane, "rule", None)
    return rule
