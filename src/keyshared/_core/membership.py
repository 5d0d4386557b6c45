"""Consumers join, fall silent, drain, are evicted and leave. A name is one session."""

from collections.abc import Callable, Iterable
from itertools import chain

from keyshared._checks import require
from keyshared._core.endings import Endings
from keyshared._core.feature import Feature
from keyshared._core.lanes import overrides
from keyshared._core.records import Consumer, ConsumerState, Place
from keyshared._core.rotation import Rotation
from keyshared._core.routing import Routing
from keyshared._core.timers import Timers
from keyshared._core.window import Window
from keyshared.config import DispatcherConfig, Unmatched
from keyshared.effects import BlockReason, Effect, Evicted, ReleaseReason
from keyshared.errors import ConsumerExistsError, UnknownConsumerError
from keyshared.glob import KeyFilter
from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import Weight

__all__ = ["Membership"]


class Membership:
    """The consumers of one subscription.

    Args:
        new_ready: Makes the ready list of a consumer.
        features: Those in use: told of consumers that are lost, and asked whether one has more to finish.

    Attributes:
        members: Every consumer that is connected or drains, by name, in the order of joining.
        may_match_none: Whether a message could match no consumer, under a policy that acts on that.
        on_change: Called when consumers have changed.
    """

    def __init__(
        self,
        config: DispatcherConfig,
        routing: Routing,
        window: Window,
        timers: Timers,
        endings: Endings,
        notices: list[Effect],
        new_ready: Callable[[], Place],
        features: Iterable[Feature],
    ) -> None:
        self._config = config
        self.routing = routing
        self._window = window
        self._timers = timers
        self._endings = endings
        self._notices = notices
        self._new_ready = new_ready
        chosen = list(features)
        self._on_lost = tuple(each.lost for each in chosen if overrides(each, "lost"))
        self._must_finish = tuple(each.must_finish for each in chosen if overrides(each, "must_finish"))
        self._keys = tuple(each.keys for each in chosen if overrides(each, "keys"))
        self._joined = 0
        self._takers = 0  # consumers that accept every key
        self.members: dict[str, Consumer] = window.consumers
        self.may_match_none = False
        self.on_change: Callable[[], None] = _nothing

    # questions

    def connected(self, name: str) -> Consumer:
        """Return the consumer of that name that is active or inactive."""
        member = self.members.get(name)
        if member is None or member.state is ConsumerState.DRAINING:
            raise UnknownConsumerError(name)
        return member

    def accepts(self, key: bytes | None) -> bool:
        """Return whether any consumer, draining ones included, would take the key."""
        if key is None:
            return any(member.accepts.takes_keyless for member in self.members.values())
        return bool(self.routing.acceptance.of(key))

    def is_only_unowned(self, key: bytes) -> bool:
        """Return whether a connected consumer accepts the key, and it belongs to none all the same."""
        return self.routing.anyone_accepts(key) and self.routing.is_unowned(key)

    def has_to_finish(self, member: Consumer) -> bool:
        """Return whether a consumer that leaves still has a delivery, or something of a feature to finish."""
        return bool(member.open) or any(must(member) for must in self._must_finish)

    # changes

    def join(self, name: str, accepts: KeyFilter, weight: Weight | None, limit: int | None, now: int) -> None:
        """Start a session; one that still drains under the name ends first."""
        before = self.members.get(name)
        if before is not None and before.state is not ConsumerState.DRAINING:
            raise ConsumerExistsError(name)
        self.routing.join(name, accepts, weight)
        if before is not None:
            self._end_all(before, ReleaseReason.REMOVED, now)
            self._forget(before)
        quota = self._config.max_in_flight_per_consumer if limit is None else limit
        self.enter(self.new_member(name, quota, accepts, weight))
        self._placement_changed()

    def new_member(self, name: str, quota: int, accepts: KeyFilter, weight: Weight | None) -> Consumer:
        """Make a consumer, the next one in the order of joining."""
        ready = self._new_ready()
        member = Consumer(name, self._joined, quota, ready, accepts, weight)
        if isinstance(ready, Rotation):
            ready.consumer = member
        self._joined += 1
        return member

    def enter(self, member: Consumer) -> None:
        """Add a consumer that routing knows."""
        self._takers += member.accepts.accepts_all
        self._window.add(member)
        self._count()

    def readmit(
        self, name: str, accepts: KeyFilter, weight: Weight | None, quota: int, state: ConsumerState
    ) -> Consumer:
        """Take a consumer of a snapshot back, in the order of joining."""
        if name in self.members:
            raise ConsumerExistsError(name)
        member = self.new_member(name, quota, accepts, weight)
        member.state = state
        if state is ConsumerState.DRAINING:
            self.routing.acceptance.add(name, accepts)
            member.keyless = False
        else:
            self.routing.join(name, accepts, weight)
        if state is not ConsumerState.ACTIVE:
            member.limit = member.free = 0
        self.enter(member)
        return member

    def leave(self, name: str, drain_ms: int | None, now: int) -> None:
        """End a session, at once or when it has finished what it holds."""
        member = self.members.get(name)
        if member is None:
            return
        if member.state is not ConsumerState.DRAINING:
            self.routing.leave(name)
            self._placement_changed()
        if drain_ms == 0:
            self._end_all(member, ReleaseReason.REMOVED, now)
        if not self.has_to_finish(member):
            self._forget(member)
            return
        member.state = ConsumerState.DRAINING
        member.deadline = None
        self._window.cancel_reservations(member)
        self._window.set_limit(member, 0)
        self._window.set_keyless(member, keyless=False)
        if drain_ms is not None:
            self._timers.start(member, now + drain_ms)

    def deactivate(self, name: str, now: int) -> None:
        """Note that the connection of a consumer is gone: it keeps its keys for the grace period."""
        member = self.members.get(name)
        if member is None or member.state is not ConsumerState.ACTIVE:
            return
        member.state = ConsumerState.INACTIVE
        self._window.set_limit(member, 0)
        self.time_away(member, now)

    def time_away(self, member: Consumer, now: int) -> None:
        """Start the grace period of an inactive consumer that has none."""
        grace_ms = self._config.inactive_grace_ms
        if member.state is ConsumerState.INACTIVE and member.deadline is None and grace_ms is not None:
            self._timers.start(member, now + grace_ms)

    def activate(self, name: str, now: int, *, resumed: bool) -> None:
        """Note that a consumer is back; unless it resumed its session, what it held is sent again."""
        member = self.connected(name)
        if not resumed:
            self._end_all(member, ReleaseReason.SESSION_LOST, now)
        member.state = ConsumerState.ACTIVE
        member.deadline = None
        self._window.set_limit(member, member.quota)

    def due(self, member: Consumer, now: int) -> None:
        """Act on the end of a grace period or of a drain."""
        if member.state is ConsumerState.DRAINING:
            if self.has_to_finish(member):  # else it has just finished
                self._end_all(member, ReleaseReason.DRAIN_TIMEOUT, now)
        else:
            self._notices.append(Evicted(member.name))
            self._end_all(member, ReleaseReason.EVICTED, now)
            self.routing.leave(member.name)
            self._placement_changed()
        self._forget(member)

    def set_limit(self, name: str, limit: int) -> None:
        """Change how many deliveries a consumer may have open."""
        member = self.connected(name)
        member.quota = limit
        if member.state is ConsumerState.ACTIVE:
            self._window.set_limit(member, limit)

    def set_filters(self, name: str, accepts: KeyFilter) -> None:
        """Change which keys a consumer accepts."""
        member = self.connected(name)
        self.routing.set_filter(name, accepts)
        self._takers += accepts.accepts_all - member.accepts.accepts_all
        member.accepts = accepts
        self._window.set_keyless(member, keyless=accepts.takes_keyless)
        self._placement_changed()

    def set_weight(self, name: str, weight: Weight) -> None:
        """Change a consumer's share of the keys."""
        member = self.connected(name)
        self.routing.set_weight(name, weight)
        member.weight = weight
        self._placement_changed()

    def set_placement(self, placement: Placement) -> None:
        """Place keys in another way, if that has a slot for every key of which something is known."""
        connected = [member for member in self.members.values() if member.state is not ConsumerState.DRAINING]
        known = chain(self._window.lanes, self._window.quarantined, *(keys() for keys in self._keys))
        self.routing.replace(placement, [(member.name, member.weight) for member in connected], known)
        self._placement_changed()

    def reap(self) -> None:
        """Forget draining consumers that have finished."""
        emptied, self._window.emptied = self._window.emptied, []
        for member in emptied:
            is_here = self.members.get(member.name) is member and member.state is ConsumerState.DRAINING
            if is_here and not self.has_to_finish(member):
                self._forget(member)

    def _end_all(self, member: Consumer, reason: ReleaseReason, now: int) -> None:
        self._endings.end_all(member, reason, now)
        for lost in self._on_lost:
            lost(member)

    def _forget(self, member: Consumer) -> None:
        member.deadline = None
        self._takers -= member.accepts.accepts_all
        self.routing.forget(member.name)
        self._window.discard(member)
        self._count()

    def _placement_changed(self) -> None:
        self._count()
        self._window.reassign()

    def _count(self) -> None:
        policy = self._config.unmatched
        nobody_takes_all = bool(self.members) and not self._takers
        asks_about_slots = policy is Unmatched.ERROR and bool(self.routing.connected)
        self.may_match_none = policy is not Unmatched.HOLD and (nobody_takes_all or asks_about_slots)
        self.on_change()

    def check_invariants(self) -> None:
        """Raise `InvariantError` if consumers and window disagree. For tests; O(consumers)."""
        for name, member in self.members.items():
            is_active, drains = member.state is ConsumerState.ACTIVE, member.state is ConsumerState.DRAINING
            require(member.limit == (member.quota if is_active else 0), f"{name!r} has its limit while it is active")
            is_timed = self._config.inactive_grace_ms is not None and member.state is ConsumerState.INACTIVE
            require(member.deadline is not None or not is_timed, f"{name!r} is away until some time")
            require(not drains or self.has_to_finish(member), f"{name!r} drains something")
            require((name in self.routing.filters) != drains, f"{name!r} takes part in routing unless it drains")
        known = self.routing.acceptance.filters
        accepted = {name: member.accepts for name, member in self.members.items()}
        require(known == accepted, "keys are compared with what the consumers accept")
        self.routing.check_invariants()
        takers = sum(member.accepts.accepts_all for member in self.members.values())
        require(self._takers == takers, "consumers that accept every key are counted")


def ready_list() -> Place:
    """Return the ready list of a consumer where there are no groups."""
    return Place(BlockReason.CONSUMER_FULL)


def _nothing() -> None:
    """Do nothing."""
