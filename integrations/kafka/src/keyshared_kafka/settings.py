"""The settings of a consumer: options of its clients, its topics, and its order."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from warnings import catch_warnings, simplefilter

from keyshared._checks import check_bool, check_kind, check_mapping, configuration
from keyshared.errors import ConfigError, shown
from keyshared.run import Spans

if TYPE_CHECKING:
    from confluent_kafka import Message

__all__ = [
    "KeyOf",
    "NotBefore",
    "check_dead_letters",
    "consumer_options",
    "key_of",
    "letter_options",
    "make_spans",
    "options_of",
    "reader_options",
    "topics_of",
]

KeyOf: TypeAlias = "Callable[[Message[Any, Any]], bytes | str | None]"
NotBefore: TypeAlias = "Callable[[Message[Any, Any]], int | None]"

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
    "topic.blacklist",
)


def options_of(parameter: str, options: object) -> Mapping[str, Any]:
    """Return options that can be looked at.

    Raises:
        ConfigError: They are no mapping, or one of their names is no text.
    """
    with configuration():
        known = check_mapping(parameter, options)
        for name in known:
            check_kind(f"a name in {parameter}", name, str)
    return known


def topics_of(topics: object) -> list[str]:
    """Return the names and patterns to subscribe to.

    Raises:
        ConfigError: They are a single text, none, or no texts.
    """
    names = [] if isinstance(topics, str | bytes) or not isinstance(topics, Iterable) else list(topics)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigError("topics", topics, "be a list of at least one topic, each a non-empty str")
    return names


def check_dead_letters(
    dead_letters: object, needed_by: str | None, topics: Sequence[str], options: Mapping[str, Any]
) -> None:
    """Check the topic of dead letters: if it were consumed, each letter would become another one, without end.

    Args:
        dead_letters: Its name; None for no such topic.
        needed_by: The setting that cannot do without it; None if there is none.
        topics: What is consumed.
        options: The user's.

    Raises:
        ConfigError: It is no name, or it is consumed, or there is none and a setting needs it.
    """
    if dead_letters is None:
        if needed_by is not None:
            raise ConfigError("dead_letters", None, f"name a topic with {needed_by}")
        return
    if not isinstance(dead_letters, str) or not dead_letters:
        raise ConfigError("dead_letters", dead_letters, "be the name of a topic, or None for none")
    if dead_letters in topics:
        wanted = "be none of topics, or each dead letter would be consumed again; take another name"
        raise ConfigError("dead_letters", dead_letters, wanted)
    excluded = str(options.get("topic.blacklist") or "").split(",")
    if any(pattern and _finds(pattern, dead_letters) for pattern in excluded):
        return
    for topic in topics:
        if topic.startswith("^") and _finds(topic, dead_letters):
            instead = "take another name, or exclude this one by the option topic.blacklist"
            raise ConfigError("dead_letters", dead_letters, f"not match {shown(topic)}, which is consumed; {instead}")


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
    if not (options.get("bootstrap.servers") or options.get("metadata.broker.list")):
        value = options.get("bootstrap.servers")
        raise ConfigError("bootstrap.servers", value, "name at least one broker, for example 'localhost:9092'")
    for name, value in _OURS.items():
        if name in options and options[name] is not value:
            raise ConfigError(
                name, options[name], f"be left out: it is {value} here, as the consumer commits by itself"
            )
    longest = _max_poll_ms(options)
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


def make_spans(spans: object) -> Spans | None:
    """Return what makes spans that are linked to the context in the headers of messages, or None.

    Raises:
        ConfigError: The switch is no bool.
        MissingExtraError: ``opentelemetry-api`` is not installed.
    """
    with configuration():
        return Spans(headers=_texts_of) if check_bool("spans", spans) else None


def _texts_of(message: "Message[Any, Any]") -> dict[str, str]:
    """Return the headers of a message as texts, the last one of each name."""
    headers: Any = message.headers() or []
    return {name: (value or b"").decode("utf-8", "replace") for name, value in headers}


def _max_poll_ms(options: Mapping[str, Any]) -> int:
    value = options.get("max.poll.interval.ms", MAX_POLL_MS)
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError("max.poll.interval.ms", value, "be a whole number of milliseconds") from None


def _finds(pattern: str, topic: str) -> bool:
    """Return whether librdkafka finds a regular expression in a name; False for one that Python reads otherwise.

    Such as ``[[:alpha:]]``, of which Python warns.
    """
    with catch_warnings():
        simplefilter("error")
        try:
            return re.search(pattern, topic) is not None
        except (re.error, OverflowError, RecursionError, Warning):
            return False


def _its_key(message: "Message[Any, Any]") -> bytes | None:
    return message.key()


def _always_the_same(_message: "Message[Any, Any]") -> bytes:
    return b""


def _nothing(_message: "Message[Any, Any]") -> None:
    return None
