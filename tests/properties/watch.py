"""Stands before a dispatcher, and has the kit judge everything that happens to it."""

from typing import Any

from tests.kit.recorder import Recorder
from tests.properties.calls import Step
from tests.properties.own_effects import OwnEffects
from tests.properties.schedules import claims_of

from keyshared.config import DispatcherConfig
from keyshared.testing import Checker, Promise, Violation

__all__ = ["Watch"]


class Watch:
    """Make the calls of ``recorder`` and show each step that did not raise.

    Attributes:
        recorder: The dispatcher, as its host sees it.
        dispatcher: Itself; its queries may be asked.
    """

    def __init__(self, dispatcher: Any, config: DispatcherConfig) -> None:
        self.dispatcher = dispatcher
        self.recorder: Any = Recorder(dispatcher)
        rules = getattr(dispatcher, "rules", None)
        self.claims = claims_of(config, dispatcher.placement.ranges.slot_of, rules)
        self.checker = Checker(self.claims)
        self.own = OwnEffects(config, rules)

    def see(self, step: Step) -> list[Violation]:
        """What the latest step breaks."""
        history = self.recorder.history
        found = [violation for event in history for violation in self.checker.feed(event)]
        history.clear()
        if step.call.is_out_of_turn:
            found = [violation for violation in found if violation.promise is not Promise.FAIRNESS]
        return found + self.own.see(step, self.dispatcher)

    def restarted(self, dispatcher: Any, now_ms: int) -> None:
        """Go on with what was restored from a snapshot."""
        self.dispatcher = dispatcher
        self.recorder.restarted(dispatcher, now_ms=now_ms)
        self.own.restarted()
