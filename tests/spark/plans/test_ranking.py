"""Which plan is best: by what was lost, then by the criterion, then by the number of consumers."""

import itertools

import pytest

pytest.importorskip("pyspark")

from keyshared.errors import ArgumentError
from keyshared.spark.plans.ranking import CRITERIA, PlanOutcome, best

NOTHING = PlanOutcome(
    plan="a",
    consumers=4,
    lost=0,
    outstanding=0,
    deliveries=100,
    redeliveries=5,
    dead_lettered=0,
    moved_keys=None,
    wait_p50_ms=5,
    wait_p99_ms=5,
    wait_max_ms=5,
    largest_backlog=5,
)


def outcome(plan: str, **figures: int) -> PlanOutcome:
    fields = {name: getattr(NOTHING, name) for name in PlanOutcome.__dataclass_fields__}
    return PlanOutcome(**{**fields, "plan": plan, **figures})


def names(*outcomes: PlanOutcome, by: str = "wait-p99") -> list[str]:
    found = {tuple(each.plan for each in best(order, by)) for order in itertools.permutations(outcomes)}
    assert 1 == len({frozenset(each) for each in found})  # whatever the order
    return sorted(found.pop())


@pytest.mark.parametrize(("by", "field"), [(by, criterion.field) for by, criterion in CRITERIA.items()])
def test_fewer_lost_messages_come_first_then_the_criterion_then_fewer_consumers(by: str, field: str) -> None:
    mean, short = outcome("mean", **{field: 9}), outcome("short", **{field: 1})
    lossy = outcome("lossy", **{field: 0, "lost": 1, "outstanding": 1})
    dead = outcome("dead", **{field: 0, "lost": 1, "dead_lettered": 1})
    dear = outcome("dear", **{field: 1, "consumers": 9})
    same = outcome("same", **{field: 1})
    assert ["short"] == names(mean, short, lossy, dead, dear, by=by)
    assert ["same", "short"] == names(mean, short, same, by=by)
    assert ["dead", "lossy"] == names(lossy, dead, by=by)


def test_what_is_no_criterion_is_refused() -> None:
    with pytest.raises(ArgumentError, match="by is 'cost'; it must be one of wait-p99, "):
        best([NOTHING], "cost")
    with pytest.raises(ArgumentError, match="hold at least one plan"):
        best([], "backlog")
