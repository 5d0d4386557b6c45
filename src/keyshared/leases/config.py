"""Every knob of a lease queue, checked once, and what the dispatcher below is told of it."""

from dataclasses import dataclass, field
from typing import Final

from keyshared._checks import check_int, configuration
from keyshared.config import (
    DEFAULT_ACK_TIMEOUT_MS,
    DEFAULT_MAX_IN_FLIGHT_PER_CONSUMER,
    DEFAULT_MAX_IN_FLIGHT_PER_KEY,
    DEFAULT_MAX_LOADED_PER_KEY,
    DEFAULT_MAX_TRACKED,
    DEFAULT_WINDOW,
    Backoff,
    DispatcherConfig,
    DrainUnit,
    GroupLimits,
    Poison,
    RetryPolicy,
    Unmatched,
)
from keyshared.errors import ArgumentError, shown

__all__ = ["DEFAULT_MAX_DELIVERY_ATTEMPTS", "DEFAULT_RESERVATION_TIMEOUT_MS", "LeaseConfig"]

DEFAULT_RESERVATION_TIMEOUT_MS: Final = 5_000  # a write of one record to a replicated log, with a retry or two
DEFAULT_MAX_DELIVERY_ATTEMPTS: Final = 5  # Pulsar's docs 3, SQS consoles 10, NATS unlimited; Danube 5 redeliveries

_NO_LIMIT: Final = (1 << 63) - 1  # a consumer's own delay counts as it was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """Limits, times and policies of a `LeaseQueue`.

    Args:
        visibility_timeout_ms: How long a lease keeps its messages from others, unless it is extended.
        reservation_timeout_ms: How long a reservation waits for its commit; never longer than the visibility timeout.
        max_delivery_attempts: Deliveries after which a message is poison if none was acked; None for no limit.
        poison: What becomes of a poison message.
        archive_blocked: With ``BLOCK``: whether a dead letter of the message is written first.
        quarantine: With ``DEAD_LETTER``: whether a dead letter takes along the newer messages of its key.
        ordering_required: At most one consumer holds anything, and gets it in the order of the queue.
        max_ack_holes: With more settled stretches than these above the lowest outstanding message, only that one is
            handed out, until there are half as many; None for no limit, and where ``redrive`` or ``latest_only`` is
            set or there are groups.
        max_in_flight: Messages that are leased or reserved at once; None for no limit.
        max_in_flight_per_consumer: The same of one consumer.
        max_in_flight_per_key: The same of one key, always at one consumer; with ordering_required, of the whole queue.
        batch_per_key: Messages of one key that one lease takes together; above 1 they are a batch, and nothing more of
            the key is handed out until all of it has ended. ``max_in_flight_per_key`` stays 1 then.
        max_depth: Messages that are outstanding at once; without spilling ``window`` bounds them.
        window: Messages whose item is kept at once; with max_ack_holes one more, the lowest outstanding one.
        max_loaded_per_key: The same of one key.
        spill: Whether the item of what has to wait may be dropped and loaded again; see `DispatcherConfig`.
        max_waiting_per_key: Messages of a key that may wait for a lease before producers of it are refused; only with
            ``spill=False``. None for no limit.
        unit: What a consumer has to finish before anything of it goes to the next owner; ``RANGE`` is Celeriant's.
        start: The first offset that is not settled yet, if the queue does not begin with the first offer.
        tell_settled: Whether each offered offset gets exactly one `Done`, in the call that settles it.
        latest_only: Whether a message that was neither leased nor reserved yet is given up when a newer one of its key
            comes.
        measure: Whether ages and counts are kept for `health`.
        group: The limits of each group of keys for which none are set; groups need `Rules`.
        redrive: Whether dead letters may come back with ``redrive``.

    Raises:
        ConfigError: A field is out of range, or two of them contradict each other.

    Source:
        Celeriant's QueueConfig; differs: ``dlq_strategy`` is a `Poison` (Skip, Block and BlockAndDlq are its
        ``DEAD_LETTER``, ``BLOCK``, and ``BLOCK`` with
        ``archive_blocked``), and exactly ``max_delivery_attempts`` deliveries are
        made, not one more.

    Example:
        >>> LeaseConfig(visibility_timeout_ms=60_000, poison=Poison.BLOCK).max_delivery_attempts
        5
    """

    visibility_timeout_ms: int = DEFAULT_ACK_TIMEOUT_MS
    reservation_timeout_ms: int = DEFAULT_RESERVATION_TIMEOUT_MS
    max_delivery_attempts: int | None = DEFAULT_MAX_DELIVERY_ATTEMPTS
    poison: Poison = Poison.DEAD_LETTER
    archive_blocked: bool = False
    quarantine: bool = False
    ordering_required: bool = False
    max_ack_holes: int | None = None
    max_in_flight: int | None = None
    max_in_flight_per_consumer: int = DEFAULT_MAX_IN_FLIGHT_PER_CONSUMER
    max_in_flight_per_key: int = DEFAULT_MAX_IN_FLIGHT_PER_KEY
    batch_per_key: int = 1
    max_depth: int = DEFAULT_MAX_TRACKED
    window: int = DEFAULT_WINDOW
    max_loaded_per_key: int = DEFAULT_MAX_LOADED_PER_KEY
    unit: DrainUnit = DrainUnit.KEY
    start: int | None = None
    spill: bool = True
    max_waiting_per_key: int | None = None
    tell_settled: bool = False
    latest_only: bool = False
    measure: bool = False
    group: GroupLimits = field(default_factory=GroupLimits)
    redrive: bool = False

    @configuration()
    def __post_init__(self) -> None:
        check_int("visibility_timeout_ms", self.visibility_timeout_ms, 1)
        check_int("reservation_timeout_ms", self.reservation_timeout_ms, 1)
        for name, least in (("max_delivery_attempts", 1), ("max_in_flight", 1)):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), least, ", or None for no limit")
        check_int("window", self.window, 1)
        check_int("max_depth", self.max_depth, 1)
        if self.spill is True and self.max_depth < self.window:
            raise ArgumentError("max_depth", self.max_depth, f"be at least window, {shown(self.window)}")
        self.for_dispatcher()

    def for_dispatcher(self) -> DispatcherConfig:
        """Return what the dispatcher below a lease queue is configured with.

        Returns:
            A configuration in which a failed delivery is one that counted as an attempt, and no failure has a delay of
            its own.

        Raises:
            ConfigError: A field is out of range there.
        """
        retries = None if self.max_delivery_attempts is None else self.max_delivery_attempts - 1
        return DispatcherConfig(
            window=self.window,
            max_tracked=self.max_depth,
            max_in_flight_per_consumer=self.max_in_flight_per_consumer,
            max_in_flight_per_key=self.max_in_flight_per_key,
            batch_per_key=self.batch_per_key,
            max_loaded_per_key=self.max_loaded_per_key,
            ack_timeout_ms=self.visibility_timeout_ms,
            retry=RetryPolicy(max_redeliveries=retries, base_delay_ms=0, max_delay_ms=_NO_LIMIT, backoff=Backoff.FIXED),
            poison=self.poison,
            archive_blocked=self.archive_blocked,
            quarantine=self.quarantine,
            max_ack_holes=self.max_ack_holes,
            unmatched=Unmatched.HOLD,
            inactive_grace_ms=None,
            ordering_required=self.ordering_required,
            unit=self.unit,
            start=self.start,
            spill=self.spill,
            max_waiting_per_key=self.max_waiting_per_key,
            tell_settled=self.tell_settled,
            latest_only=self.latest_only,
            measure=self.measure,
            group=self.group,
            redrive=self.redrive,
        )
