"""Errors of calls that come too early, or name a partition that this member does not own."""

from keyshared.errors import MisuseError, shown
from keyshared.run import UnknownLogError

__all__ = ["NotBegunError", "UnknownPartitionError"]


class NotBegunError(MisuseError):
    """The consumer has not begun to run."""

    def _text(self) -> str:
        return "the consumer has not begun to run; call run() or run_async() first"


class UnknownPartitionError(UnknownLogError):
    """This member of the group does not own the partition at the moment.

    Attributes:
        log: Its topic and number.

    Example:
        >>> print(UnknownPartitionError("orders-7"))
        this member does not own partition 'orders-7' (topic-number); ask the member that owns it, while that runs
    """

    def _text(self) -> str:
        where = f"partition {shown(self.log)} (topic-number)"
        return f"this member does not own {where}; ask the member that owns it, while that runs"
