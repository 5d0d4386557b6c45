"""Try a driver stage by stage, from plain use to crashes, and say the result as a table of verdicts."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from keyshared.testing.claims import USUAL, Claims, Promise
from keyshared.testing.driver import AnyDriver, abilities
from keyshared.testing.files import BREAKS, HOLDS, NOT_JUDGED, Verdict, not_judged, table
from keyshared.testing.find import BUDGET, Finding, search
from keyshared.testing.steps import LATE_ANSWERS, Disconnect, Flap, KillAt, Restart, Step, Wait
from keyshared.testing.subject import Subject, subject_of

__all__ = ["Survey", "survey"]

_GOING: Final[frozenset[type[Step]]] = frozenset({Disconnect, Flap})
_CRASHES: Final[frozenset[type[Step]]] = frozenset({Restart, KillAt})
_NO_TIME: Final = "time does not pass: give the driver advance, and claim ack_timeout_ms"
_NO_CLAIMS: Final = "time does not pass: write a KeySharedMachine whose claims say ack_timeout_ms"


class _Stage(NamedTuple):
    """A part of what is tried."""

    name: str
    untried: frozenset[type[Step]]
    adds: frozenset[Promise] = frozenset()  # promises that only this stage shows
    needs: str | None = None  # an ability


_STAGES: Final = (
    _Stage("plain use", LATE_ANSWERS | _GOING | _CRASHES),
    _Stage("consumers leave and come back", LATE_ANSWERS | _CRASHES),
    _Stage("late answers", _CRASHES, frozenset({Promise.FENCE})),
    _Stage("crashes", LATE_ANSWERS, needs="restart"),
)


class Survey(NamedTuple):
    """The outcome of all stages; as a text, what is printed of it.

    Attributes:
        name: What was tried.
        verdicts: One for each claimed promise, for exceptions, and for each stage that could not be tried.
        findings: What was found, each with the shortest way to it.
        unjudged_messages: How many messages were not judged, by what to add so that they are.
    """

    name: str
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    unjudged_messages: Counter[str]

    def __str__(self) -> str:
        messages = [not_judged(self.unjudged_messages)] * bool(self.unjudged_messages)
        return "\n\n".join([*messages, f"{self.name}:\n{table(self.verdicts)}", *map(str, self.findings)])


def survey(
    subject: type[Subject] | type[AnyDriver],
    seconds: float = 60,
    say: Callable[[str], object] = lambda _: None,
) -> Survey:
    """Try a system in stages: plain use, consumers that leave and come back, late answers, crashes.

    Each stage searches again and again, without the promises that were found broken, until it finds nothing more.

    Args:
        subject: A machine; or a driver, which then claims the usual promises (`keyshared.testing.USUAL`).
        seconds: For how long schedules are drawn in all.
        say: Is called with a line for each search.
    """
    machine = subject_of(subject)
    is_bare = not issubclass(subject, Subject)
    claims = Claims(promises=USUAL) if is_bare else machine.claims
    return _Survey(machine, claims, time.monotonic() + seconds, say, is_bare=is_bare).run()


class _Survey:
    """A survey while it goes on."""

    def __init__(
        self,
        machine: type[Subject],
        claims: Claims,
        end: float,
        say: Callable[[str], object],
        *,
        is_bare: bool,
    ) -> None:
        self.machine, self.claims, self.end, self.say = machine, claims, end, say
        self.is_bare = is_bare
        self.can = abilities(machine.driver_class)
        self.findings: list[tuple[str, Finding]] = []
        self.tries: Counter[Promise] = Counter()
        self.missing: dict[Promise, str] = {}
        self.judged: set[Promise] = set()
        self.messages: Counter[str] = Counter()
        self.untried: list[Verdict] = []

    def run(self) -> Survey:
        """Go through all stages."""
        for place, stage in enumerate(_STAGES):
            if stage.needs is not None and stage.needs not in self.can:
                self.untried.append(Verdict(stage.name, NOT_JUDGED, f"give the driver {stage.needs}"))
            else:
                self._stage(stage, len(_STAGES) - place)
        if "advance" not in self.can:
            self.untried.append(Verdict("timeouts", NOT_JUDGED, _NO_TIME))
        elif self.is_bare:
            self.untried.append(Verdict("timeouts", NOT_JUDGED, _NO_CLAIMS))
        verdicts = (*self._verdicts(), *self.untried)
        findings = tuple(finding for _, finding in self.findings)
        return Survey(self.machine.driver_class.__name__, verdicts, findings, self.messages)

    def _stage(self, stage: _Stage, left: int) -> None:
        seconds = max(0.0, self.end - time.monotonic()) / left
        stop = time.monotonic() + seconds
        untried = stage.untried | (frozenset({Wait}) if self.is_bare else frozenset())
        while True:
            broken = {each.violation.promise for _, each in self.findings if each.violation is not None}
            known = frozenset(each.raised.kind for _, each in self.findings if each.raised is not None)
            adds = stage.adds | ({Promise.SAFE_CURSOR} if "cursor" in self.can else set())
            claimed = {*map(Promise, self.claims.promises), *(adds if self.is_bare else ())}
            promises = frozenset(claimed - broken)
            budget = BUDGET._replace(seconds=max(0.1, stop - time.monotonic()))
            claims = replace(self.claims, promises=promises)
            found = search(self.machine, budget, claims=claims, untried=untried, known=known)
            unjudged = {each.promise: each.reason for each in found.unjudged}
            self.messages.update(found.unjudged_messages)
            self.missing |= unjudged
            self.judged |= promises - unjudged.keys() if found.tries else set()
            for promise in promises:
                self.tries[promise] += found.tries
            result = "nothing" if found.finding is None else f"{found.finding.what} ({found.finding.steps} steps)"
            self.say(f"{stage.name}: {found.tries} schedules: {result}")
            if found.finding is None:
                return
            self.findings.append((stage.name, found.finding))

    def _verdicts(self) -> list[Verdict]:
        broken = {finding.what: (stage, finding) for stage, finding in self.findings}
        verdicts = [
            Verdict(what, BREAKS, f"in {finding.steps} steps ({stage}), see below")
            for what, (stage, finding) in broken.items()
        ]
        for promise in Promise:
            if promise in self.tries and str(promise) not in broken:
                if promise in self.judged:
                    verdicts.append(Verdict(str(promise), HOLDS, f"in {self.tries[promise]:,} schedules"))
                else:
                    verdicts.append(Verdict(str(promise), NOT_JUDGED, self.missing.get(promise, "no time was left")))
        return verdicts
