"""A Kafka consumer that works on many messages at once and keeps each key in order."""

from keyshared.config import Poison, RetryPolicy
from keyshared.run import Hooks, PartlyDone, Reject, RetryLater
from keyshared_kafka.consumer import ParallelConsumer
from keyshared_kafka.errors import NotBegunError, UnknownPartitionError
from keyshared_kafka.stats import ConsumerStats, PartitionStats

__all__ = [
    "ConsumerStats",
    "Hooks",
    "NotBegunError",
    "ParallelConsumer",
    "PartitionStats",
    "PartlyDone",
    "Poison",
    "Reject",
    "RetryLater",
    "RetryPolicy",
    "UnknownPartitionError",
]
