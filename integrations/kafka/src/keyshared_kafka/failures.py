"""Which errors of the client are transient."""

from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message

from keyshared_kafka.records import logger

__all__ = ["REFUSED", "raise_unless_transient"]

REFUSED: Final = frozenset(
    {
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
        KafkaError._ALL_BROKERS_DOWN,
    }
)
"""Responses to a commit that may be others a moment later: the group rebalances, its coordinator moves, the network is
away."""

_TRANSIENT: Final = REFUSED | {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,  # it may be created later
    KafkaError._MAX_POLL_EXCEEDED,  # the partitions are lost, and the next poll joins again
    KafkaError._RESOLVE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
}


def raise_unless_transient(message: "Message[Any, Any]", error: KafkaError) -> None:
    """Log a transient error. Raise any other: a message may have been skipped, or no message will come."""
    if error.fatal() or error.code() not in _TRANSIENT:
        raise KafkaException(error)
    logger.warning(
        "%s-%s: %s", message.topic(), message.partition(), error, extra={"keyshared": {"event": error.name()}}
    )
