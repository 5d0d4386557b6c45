"""What a consumer is told: the options of its clients, and by what it orders."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from keyshared.errors import ConfigError

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = ["KeyOf", "consumer_options", "key_of", "letter_options", "reader_options"]

KeyOf: TypeAlias = "Callable[[Message[Any, Any]], bytes | str | None]"

MAX_POLL_MS: Final = 300_000  # librdkafka's default of max.poll.interval.ms
LEAVE_MS: Final = 2_000  # what a runner takes at most beyond the drain: an end of handlers, then a last commit

_OURS: Final = {"enable.auto.commit": False, "enable.auto.offset.store": False, "enable.partition.eof": True}
# Of the options of a consumer, those that a producer does not know.
_NOT_FOR_PRODUCERS: Final = (
    "auto.",
    "check.crcs",
    "consume.",
    "enable.auto.",
    "enable.partition.eof",
    "fetch.",
    "group.",
    "heartbeat.",
    "isolation.",
    "max.partition.fetch.",
    "max.poll.",
    "on_commit",
    "partition.assignment.",
    "queued.",
    "session.timeout.ms",
)


def consumer_options(options: Mapping[str, Any], window: int, drain_ms: int) -> dict[str, Any]:
    """Return the options of the client that is a member of the group.

    Args:
        options: The user's.
        window: Messages in memory.
        drain_ms: How long a partition may take to leave.

    Raises:
        ConfigError: An option is missing, or contradicts what this consumer does.
    """
    if not options.get("group.id"):
        raise ConfigError("group.id", options.get("group.id"), "name the consumer group")
    for name, value in _OURS.items():
        if name in options and options[name] is not value:
            raise ConfigError(
                name, options[name], f"be left out: it is {value} here, as the consumer commits by itself"
            )
    longest = int(options.get("max.poll.interval.ms", MAX_POLL_MS))
    if drain_ms + LEAVE_MS >= longest:
        raise ConfigError("drain_s", drain_ms / 1_000, f"be below max.poll.interval.ms, {longest}, by more than 2 s")
    # What was fetched beyond the window is thrown away at a pause: librdkafka's 100,000 would be fetched many times. A
    # queue that is so much shorter is empty long before the second is over that librdkafka waits when it is full.
    return {"queued.min.messages": window, "fetch.queue.backoff.ms": 10, **options, **_OURS}


def reader_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the client that reads messages again; it never joins the group."""
    kept = {name: value for name, value in options.items() if name not in {"group.instance.id", "on_commit"}}
    # A fetch that waits at the end of the log would hold up the next load.
    return {"queued.min.messages": 1_000, **kept, **_OURS, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}


def letter_options(options: Mapping[str, Any], producer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of the client that writes dead letters: the connection's, and the user's for it."""
    shared = {name: value for name, value in options.items() if not name.startswith(_NOT_FOR_PRODUCERS)}
    return {**shared, "enable.idempotence": True, "linger.ms": 0, "message.timeout.ms": 30_000, **producer}


def key_of(order: "str | KeyOf") -> KeyOf:
    """Return the function that says what a message is ordered by.

    Raises:
        ConfigError: There is no such order.
    """
    if callable(order):
        return order
    if order == "key":
        return _its_key
    if order == "partition":
        return _always_the_same
    if order == "none":
        return _nothing
    raise ConfigError("order", order, 'be "key", "partition", "none", or a function of a message')


def _its_key(message: "Message[Any, Any]") -> bytes | None:
    return message.key()


def _always_the_same(_message: "Message[Any, Any]") -> bytes:
    return b""


def _nothing(_message: "Message[Any, Any]") -> None:
    return None
