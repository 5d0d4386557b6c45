"""The figures of a consumer, in the terms of Kafka."""

from typing import NamedTuple

from keyshared.dispatcher import DispatcherStats
from keyshared.run import RunnerStats
from keyshared_kafka.assignments import Assignment

__all__ = ["ConsumerStats", "PartitionStats", "stats_of"]


class PartitionStats(NamedTuple):
    """The figures of one partition that is assigned to this member.

    Attributes:
        position: Offset of the next message to read; None before the first message if nothing was committed.
        committed: The committed offset, or None. The messages of some higher offsets may be done as well.
        end: Where the log ends, seen at the last fetch, or some seconds ago if the partition is paused; None before.
        unread: Offsets from the position to the end; 0 if one of the two is not known yet.
        unfinished: Messages that were read and are not done.
        running: Those of them that are at handlers.
        blocked: Those of them that wait for an operator (`Poison.BLOCK`).
        in_log: Those of them that are not in memory and will be read again.

    Example:
        >>> partition = PartitionStats(1_000, 0, 5_000, unread=4_000, unfinished=1, running=1, blocked=0, in_log=0)
        >>> partition.lag, partition.end - partition.committed
        (4001, 5000)
    """

    position: int | None
    committed: int | None
    end: int | None
    unread: int
    unfinished: int
    running: int
    blocked: int
    in_log: int

    @property
    def lag(self) -> int:
        """The messages that are left to do, read or unread: what a scaler should look at, not the committed offset."""
        return self.unread + self.unfinished


class ConsumerStats(NamedTuple):
    """The figures of a consumer at one moment. From ``done`` on they only grow.

    Attributes:
        running: Handlers that run.
        partitions: The figures of each assigned partition, by topic and number.
        done: Handlers that returned.
        failed: Handlers that raised an error other than `Reject` and `RetryLater`, or ran into their timeout.
        rejected: Handlers that raised `Reject`.
        postponed: Handlers that raised `RetryLater`.
        late: Handlers that ended after their partition was taken away, so that their result did not count.
        overdue: How often a handler ran for longer than ``timeout_s``.
        expired: Messages that were lost: retention removed them after they were read and before they were handled.
        dead_letters: Dead letters that were written.
    """

    running: int
    partitions: dict[tuple[str, int], PartitionStats]
    done: int
    failed: int
    rejected: int
    postponed: int
    late: int
    overdue: int
    expired: int
    dead_letters: int


def stats_of(runner: RunnerStats, assignments: list[Assignment]) -> ConsumerStats:
    """Return the figures of a consumer from those of its runner and its member."""
    partitions = {
        (each.topic, each.partition): _partition(each, runner.logs[each.name])
        for each in assignments
        if each.name in runner.logs
    }
    return ConsumerStats(
        running=runner.running,
        partitions=partitions,
        done=runner.done,
        failed=runner.failed,
        rejected=runner.rejected,
        postponed=runner.postponed,
        late=runner.late,
        overdue=runner.overdue,
        expired=runner.expired,
        dead_letters=runner.dead_letters,
    )


def _partition(assignment: Assignment, log: DispatcherStats) -> PartitionStats:
    position, end = assignment.position, assignment.log_end()
    return PartitionStats(
        position=position,
        committed=None if assignment.committed < 0 else assignment.committed,
        end=end,
        unread=0 if position is None or end is None else end - position,
        unfinished=log.outstanding + len(assignment.backlog),
        running=log.in_flight,
        blocked=log.blocked,
        in_log=log.spilled,
    )
