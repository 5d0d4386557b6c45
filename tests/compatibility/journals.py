"""Logs of commands with every outcome, and the states at some cuts: what a journal and its dispatcher once said."""

import json
import zlib
from base64 import b64decode, b64encode
from random import Random
from typing import Any

from tests.command_logs import ring, written_log
from tests.compatibility.plain import plain, read

from keyshared.config import DispatcherConfig, Rules
from keyshared.errors import ConfigError
from keyshared.journal import Command, Journal, OutcomeRow

__all__ = ["check_journal", "check_journal_writes", "journal"]

COMMANDS = 70
CUTS = (20, 45)


def _group_of(key: bytes) -> str | None:
    return key[:1].decode() or None


def _limit_of(key: bytes) -> int:
    return 1 + len(key)


RULES = {
    "none": None,
    "groups": Rules(mark="groups of the kept logs", group_of=_group_of),
    "limits": Rules(mark="limits of the kept logs", limit_of=_limit_of),
}


def journal(seed: int) -> dict[str, Any]:
    """A log that nobody has seen before."""
    rng = Random(seed)
    name = ("none", "groups", "limits")[seed % 3]
    while True:
        log = written_log(rng, COMMANDS)
        try:
            made = Journal(ring(), log.config, rules=RULES[name])
            break
        except ConfigError:
            continue
    outcomes, states = [], {}
    for place, command in enumerate(log.commands):
        if place in CUTS:
            states[str(place)] = b64encode(made.to_bytes()).decode()
        outcomes.append([plain(row) for row in _told(made, command)])
    return {
        "rules": name,
        "config": log.config.to_json(),
        "commands": [plain(_trimmed(command)) for command in log.commands],
        "outcomes": outcomes,
        "states": states,
    }


def check_journal(kept: dict[str, Any]) -> None:
    """The same outcomes from the beginning, and from every state on."""
    config, commands = DispatcherConfig.from_json(kept["config"]), [Command(*read(row)) for row in kept["commands"]]
    rules = RULES[kept["rules"]]
    starts = {0: Journal(ring(), config, rules=rules)}
    for place, state in kept["states"].items():
        starts[int(place)] = Journal.from_bytes(b64decode(state), ring(), config, rules=rules)
    for place, made in starts.items():
        for command, outcomes in zip(commands[place:], kept["outcomes"][place:], strict=True):
            assert [OutcomeRow(*read(row)) for row in outcomes] == _told(made, command), command


def check_journal_writes(kept: dict[str, Any]) -> None:
    """The states that are written today are the kept ones."""
    config, rules = DispatcherConfig.from_json(kept["config"]), RULES[kept["rules"]]
    made = Journal(ring(), config, rules=rules)
    assert kept["config"] == config.to_json()
    for place, row in enumerate(kept["commands"]):
        if str(place) in kept["states"]:
            assert _inflated(b64decode(kept["states"][str(place)])) == _inflated(made.to_bytes())
        made.apply(Command(*read(row)))


def _told(made: Journal, command: Command) -> list[OutcomeRow]:
    """Outcomes without the words of a refusal: a later version may find better ones."""
    return [row._replace(reason=None) if row.effect == "refused" else row for row in made.apply(command)]


def _inflated(state: bytes) -> Any:
    return json.loads(zlib.decompress(state))


def _trimmed(command: Command) -> list[Any]:
    """Its fields without those at the end that say nothing."""
    fields: list[Any] = list(command)
    while fields[-1] is None:
        fields.pop()
    return fields
