"""Settings of single keys: functions, which no configuration in JSON can hold."""

from collections.abc import Callable
from dataclasses import dataclass

from keyshared._checks import check_callable, check_kind, check_text, configuration
from keyshared.config.dispatcher import DispatcherConfig
from keyshared.errors import ArgumentError

__all__ = ["Rules", "check_rules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Functions of a key, and a name for this version of them.

    The dispatcher calls a function when the first message of a key is offered, and not again until the key comes back
    after all of its messages were settled. A function has to return the same value for the same key as long as the mark
    is the same. If a function raises, or returns a value of another type, the offer raises `ConfigError` and has
    changed nothing.

    Args:
        mark: The name of this version of the functions. A snapshot of another mark is refused.
        group_of: The group that a key is in; None is the group ``""``.
        limit_of: How many deliveries of the key may be open, at least 1. Replaces ``max_in_flight_per_key``; a batch of
            the key has at most as many messages. Never more than ``max_loaded_per_key`` are open.
        latest_only: Whether a newer message of the key takes the place of an older one that was never delivered.

    Raises:
        ConfigError: The mark is no text, or empty, or a function cannot be called.

    Example:
        >>> rules = Rules(mark="tenants-1", group_of=lambda key: key.partition(b"/")[0].decode())
        >>> rules.group_of(b"acme/order-7")
        'acme'
    """

    mark: str
    group_of: Callable[[bytes], str | None] | None = None
    limit_of: Callable[[bytes], int] | None = None
    latest_only: Callable[[bytes], bool] | None = None

    @configuration()
    def __post_init__(self) -> None:
        check_text("mark", self.mark)
        for name in ("group_of", "limit_of", "latest_only"):
            function = getattr(self, name)
            if function is not None:
                check_callable(name, function, "the bytes of a key, or be None")


def check_rules(rules: object, config: DispatcherConfig) -> Rules:
    """Return rules that fit a configuration.

    Raises:
        ArgumentError: They are no `Rules`.
        ConfigError: They contradict the configuration.
    """
    given = check_kind("rules", rules, Rules, ", or None")
    for function, setting, is_set, why in (
        ("group_of", "ordering_required", config.ordering_required, "its one lane is in one group"),
        ("limit_of", "ordering_required", config.ordering_required, "its one lane has one limit"),
        ("latest_only", "ordering_required", config.ordering_required, "its one lane has messages of many keys"),
        ("group_of", "max_ack_holes", config.max_ack_holes is not None, "the lowest message could wait for its group"),
        (
            "latest_only",
            "max_ack_holes",
            config.max_ack_holes is not None,
            "replaced messages are settled all the same",
        ),
        ("latest_only", "latest_only", config.latest_only, "that is set for every key already"),
    ):
        if is_set and getattr(given, function) is not None:
            with configuration():
                raise ArgumentError("rules", given, f"have no {function} with {setting}: {why}")
    return given
