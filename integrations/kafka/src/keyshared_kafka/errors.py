"""Errors of calls that come too early, or name a partition that this member does not own."""

from keyshared.errors import MisuseError, shown
from keyshared.run import UnknownLogError
from keyshared_kafka.assignments import name_of

__all__ = ["NotBegunError", "UnknownPartitionError"]


class NotBegunError(MisuseError):
    """The consumer has not begun to run."""

    def _text(self) -> str:
        return "the consumer has not begun to run; call run() or run_async() first"


class UnknownPartitionError(UnknownLogError):
    """This member of the group does not own the partition at the moment.

    Attributes:
        topic: Its topic.
        partition: Its number.
        log: What the runner calls it.

    Example:
        >>> print(UnknownPartitionError("orders", 7))
        this member does not own partition 7 of 'orders'; ask the member that owns it, while that runs
    """

    def __init__(self, topic: str, partition: int) -> None:
        MisuseError.__init__(self, topic, partition)
        self.topic = topic
        self.partition = partition
        self.log = name_of(topic, partition)

    def _text(self) -> str:
        where = f"partition {shown(self.partition)} of {shown(self.topic)}"
        return f"this member does not own {where}; ask the member that owns it, while that runs"
