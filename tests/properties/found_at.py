"""Where the long searches for a fault begin: with the seed that showed it last time.

What is searched, and how far, stays the same. When schedules are drawn in another way, these seeds are as good as any
other, and searches take as long as they did before somebody wrote them down.
"""

from collections.abc import Iterator, Mapping, Sequence

__all__ = ["FOUND_AT", "remembered_first"]

FOUND_AT: Mapping[str, int] = {
    "affinity FilterOfBefore": 55,
    "attempts PostponingCounts": 45,
    "bounds KeyLimitForgottenOnRetry": 44,
    "bounds LimitForgottenOnRetry": 102,
    "bounds OpenCountsAsWaiting": 29,
    "bounds SubscriptionLimitOffByOne": 74,
    "bounds WaitsBeyondTheKeyLimit": 29,
    "bounds WindowForgottenOnLoad": 159,
    "fairness NewestKeyFirst": 528,
    "fairness SameKeyTwiceInARow": 386,
    "fence ForgetsTooEarly": 58,
    "fence OldAckSettlesARedriven": 40,
    "group-fairness GroupLimitForgottenOnRetry": 197,
    "group-fairness OldestGroupWins": 149,
    "group-fairness TokensOutOfNowhere": 39,
    "group-fairness WeightIsIgnored": 85,
    "health-adds-up AgeOfTheNewest": 38,
    "history of ArchiveToldTwice": 4043,
    "history of BeginsBeforeTheEnd": 4059,
    "history of BudgetHoldsTheLowest": 4115,
    "history of BudgetNeverCloses": 4099,
    "history of BudgetNeverOpens": 4213,
    "history of DeadLetterLetsNewerOnesPass": 4032,
    "history of DeliversWhileFlushing": 4025,
    "history of EvictionAcks": 4293,
    "history of JoinRecountsNothing": 4031,
    "history of KeyLimitForgottenOnRetry": 4256,
    "history of KeyLimitIsIgnored": 4053,
    "history of LimitForgottenOnRetry": 4037,
    "history of LingerForgotten": 4045,
    "history of LoadedWakesNobody": 4032,
    "history of LookAheadForgetsTheCap": 4025,
    "history of LostSessionStaysOpen": 4355,
    "history of MiddleFailureGoesOn": 4414,
    "history of NewestKeyFirst": 4073,
    "history of OldestGroupWins": 4439,
    "history of PostponedForNoLongerThanARetry": 4091,
    "history of PostponedNeverWakes": 4034,
    "history of RaisedLimitWakesNobody": 4114,
    "history of ReasonIsLost": 5112,
    "history of ReasonOfAnotherMessage": 4293,
    "history of RedriveAtTheTail": 4080,
    "history of RedriveOutOfOrder": 4037,
    "history of RedriveTwiceMakesTwo": 4057,
    "history of SameKeyTwiceInARow": 4073,
    "history of SecondBatchBesideTheFirst": 4025,
    "history of SkipNotTold": 5859,
    "history of SpillsAllTheSame": 4048,
    "history of SubscriptionLimitOffByOne": 4080,
    "history of SupersedesADelivered": 4133,
    "history of UnitIgnored": 4449,
    "history of WeightIsIgnored": 4233,
    "key-order NewerPassesThePostponed": 103,
    "latest-only LatestRuleIsIgnored": 44,
    "no-loss EvictionAcks": 51,
    "no-loss RemovalForgets": 28,
    "no-loss RuleOfOneKeyCountsForAll": 128,
    "not-early PostponedForNoLongerThanARetry": 154,
    "not-early PostponedGoesAtOnce": 45,
    "one-holder UnitFreedByItsFirstEnd": 285,
    "one-holder UnitIgnored": 152,
    "one-session BeginsBeforeTheEnd": 339,
    "one-session LostSessionStaysOpen": 102,
    "progress PostponedNeverWakes": 148,
    "progress RaisedLimitWakesNobody": 54,
    "progress RipeNeverWakes": 73,
    "progress UnitEndWakesOnlyItsKey": 152,
    "progress UnitOfTheMapBefore": 30,
    "reason-travels ReasonIsLost": 30,
    "reason-travels ReasonOfAnotherMessage": 102,
    "redrive-order RedriveOutOfOrder": 44,
    "resume SnapshotForgetsEndedDeliveries": 42,
    "resume SnapshotForgetsReadyOrder": 54,
    "token-budget BudgetNeverOpens": 444,
    "whole-batch BrokenBatchCountsFailures": 80,
    "whole-batch MiddleFailureGoesOn": 352,
}


def remembered_first(seeds: Sequence[int], name: str) -> Iterator[int]:
    """All the seeds, and before the others the one that is remembered for this search."""
    first = [FOUND_AT[name]] if FOUND_AT.get(name) in seeds else []
    yield from first
    yield from (seed for seed in seeds if seed not in first)
