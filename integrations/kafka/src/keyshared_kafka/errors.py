"""What a consumer is asked at the wrong time, or about a partition that it does not have."""

from keyshared.errors import MisuseError, shown
from keyshared.run import UnknownLogError
from keyshared_kafka.stays import name_of

__all__ = ["NotBegunError", "UnknownPartitionError"]


class NotBegunError(MisuseError):
    """A consumer was asked for what it can answer only once it has begun to run."""

    def _text(self) -> str:
        return "the consumer has not begun to run; call run() or run_async() first"


class UnknownPartitionError(UnknownLogError):
    """A partition was named that this member of the group does not have at the moment.

    Attributes:
        topic: Its topic.
        partition: Its number.
        log: What the runner calls it.

    Example:
        >>> print(UnknownPartitionError("orders", 7))
        this member does not have partition 7 of 'orders'; ask the member that has it, while that runs
    """

    def __init__(self, topic: str, partition: int) -> None:
        MisuseError.__init__(self, topic, partition)
        self.topic = topic
        self.partition = partition
        self.log = name_of(topic, partition)

    def _text(self) -> str:
        where = f"partition {shown(self.partition)} of {shown(self.topic)}"
        return f"this member does not have {where}; ask the member that has it, while that runs"
