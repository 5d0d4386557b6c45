"""Several plans over one log: in what they differ, what would have become of it, and which one is best, as text."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from rich.console import RenderableType
from rich.constrain import Constrain
from rich.text import Text

from keyshared.simulate.group import Group
from keyshared.spark.demo.text import columns, headed, paragraph, sections
from keyshared.spark.plans.differences import Difference, differences
from keyshared.spark.plans.load import OfferedLoad
from keyshared.spark.plans.ranking import PlanOutcome, best, figure, verdict

__all__ = ["comparison", "warned"]

_WIDEST: Final = 48
_LINE: Final = 100
_ROWS: Final = (
    ("consumers", "consumers"),
    ("never acked", "lost"),
    ("not settled", "outstanding"),
    ("dead letters", "dead_lettered"),
    ("wait p50", "wait_p50_ms"),
    ("wait p99", "wait_p99_ms"),
    ("longest wait", "wait_max_ms"),
    ("largest backlog", "largest_backlog"),
    ("redeliveries", "redeliveries"),
    ("keys moved", "moved_keys"),
)
_LOADS: Final[tuple[tuple[str, Callable[[OfferedLoad], str]], ...]] = (
    ("most work / all consumers", lambda load: f"{load.load:.2f}"),
    ("most work of a key / one consumer", lambda load: f"{load.key_load:.2f}"),
    ("keys that need more than one", lambda load: f"{load.keys_over:,}"),
)


def comparison(
    title: str,
    source: str,
    plans: Mapping[str, Group],
    outcomes: Sequence[PlanOutcome],
    by: str,
    *,
    loads: Mapping[str, OfferedLoad] = MappingProxyType({}),
) -> RenderableType:
    """Return the plans side by side, for `tell`.

    Args:
        title: Headline.
        source: Where the messages are from.
        plans: The plans by name.
        outcomes: What became of the log under each, in their order.
        by: One of `CRITERIA`.
        loads: What the log asks of each, for plans in which messages arrive at a time of their own.
    """
    winners = best(outcomes, by)
    heads = [f"{each.plan} *" if each in winners else each.plan for each in outcomes]
    found = [(name, [figure(each, field) for each in outcomes]) for name, field in _ROWS]
    found += [(name, [told(loads[plan]) if plan in loads else "" for plan in plans]) for name, told in _LOADS if loads]
    rows = [[Text(name), *_marked(values)] for name, values in found]
    return sections(
        headed(title, paragraph(source)),
        headed("where the plans differ", _differing(differences(plans), heads)),
        headed("what would have become of the log", columns(rows, heads=("", *heads), widest=_WIDEST)),
        paragraph(f"* {verdict(outcomes, by)}"),
        *warned({f"{name}: ": load for name, load in loads.items()}),
    )


def warned(loads: Mapping[str, OfferedLoad], hint: str = "") -> list[RenderableType]:
    """Return why waits are endless, where they are, for `tell`.

    Args:
        loads: What the log asks for, by what stands before a warning about it.
        hint: What stands below the warnings.
    """
    told = [f"warning: {before}{why}" for before, load in loads.items() for why in load.warnings()]
    return [Constrain(Text(text, style="yellow"), _LINE) for text in (*told, *([hint] if hint and told else []))]


def _differing(rows: Sequence[Difference], heads: Sequence[str]) -> RenderableType:
    if not rows:
        return paragraph("nowhere: they are the same")
    left = range(len(heads) + 1)
    return columns(
        [(row.setting, *row.values) for row in rows], heads=("", *heads), left=left, widest=_WIDEST, folded=True
    )


def _marked(values: Sequence[str]) -> list[Text]:
    """Return the figures of a row, bold where they are not the same."""
    style = "bold" if len(set(values)) > 1 else "dim"
    return [Text(value, style=style) for value in values]
