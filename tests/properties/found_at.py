"""Where the long searches for a fault begin: with the seed that showed it last time.

What is searched, and how far, stays the same. When schedules are drawn in another way, these seeds are as good as any
other, and searches take as long as they did before somebody wrote them down.
"""

from collections.abc import Iterator, Mapping, Sequence

__all__ = ["FOUND_AT", "remembered_first"]

FOUND_AT: Mapping[str, int] = {
    "bounds LimitForgottenOnRetry": 102,
    "bounds SubscriptionLimitOffByOne": 74,
    "fence ForgetsTooEarly": 58,
    "group-fairness GroupLimitForgottenOnRetry": 197,
    "group-fairness WeightIsIgnored": 85,
    "history of EvictionAcks": 4293,
    "history of LostSessionStaysOpen": 4355,
    "history of OldestGroupWins": 4439,
    "history of RaisedLimitWakesNobody": 4114,
    "history of ReasonIsLost": 5112,
    "history of ReasonOfAnotherMessage": 4293,
    "history of RedriveAtTheTail": 4080,
    "history of SupersedesADelivered": 4133,
    "one-holder UnitFreedByItsFirstEnd": 285,
    "progress PostponedNeverWakes": 148,
    "resume SnapshotForgetsEndedDeliveries": 42,
    "token-budget BudgetNeverOpens": 444,
}


def remembered_first(seeds: Sequence[int], name: str) -> Iterator[int]:
    """All the seeds, and before the others the one that is remembered for this search."""
    first = [FOUND_AT[name]] if FOUND_AT.get(name) in seeds else []
    yield from first
    yield from (seed for seed in seeds if seed not in first)
