"""Who takes part: consumers that join, fall silent, come back, drain, are evicted and leave.

A name is one session. Every method validates first, then changes the books of routing, window and timers; what became
of the messages that a consumer held is decided by `Endings`, and the window's ``wake`` acts on it.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import TYPE_CHECKING

from keyshared._checks import check_int, check_kind, check_number
from keyshared._dispatch.endings import Endings
from keyshared._dispatch.members import Member, MemberState
from keyshared._dispatch.routing import Routing
from keyshared._dispatch.timers import Timers
from keyshared._window.lanes import Entry
from keyshared.config import DispatcherConfig, DrainUnit, Unmatched
from keyshared.effects import Effect, Evicted, ReleaseReason
from keyshared.errors import ArgumentError, ConsumerExistsError, InvariantError, UnknownConsumerError
from keyshared.glob import KeyFilter
from keyshared.placement.protocol import Placement, check_name
from keyshared.placement.ranges import Weight
from keyshared.window import InFlightWindow

if TYPE_CHECKING:  # a dispatcher without sessions does not load it
    from keyshared._dispatch.sessions import Sessions

__all__ = ["Membership"]


class Membership:
    """The consumers of one subscription.

    Attributes:
        members: Everyone who is connected or draining, by name, in join order.
        picky: Whether a message could match nobody: there are consumers but none that accepts every key, or connected
            ones while the policy asks about slots that nobody owns.
        on_picky: Called when that may have changed.
        sessions: The sessions of keys, if there are any.
    """

    __slots__ = (
        "_config",
        "_endings",
        "_joined",
        "_routing",
        "_takers",
        "_timers",
        "_window",
        "members",
        "on_picky",
        "picky",
        "sessions",
    )

    def __init__(
        self,
        config: DispatcherConfig,
        routing: Routing,
        window: InFlightWindow,
        timers: Timers,
        endings: Endings,
        *,
        sessions: "Sessions | None" = None,
    ) -> None:
        self.sessions = sessions
        self._config = config
        self._routing = routing
        self._window = window
        self._timers = timers
        self._endings = endings
        self._joined = 0
        self._takers = 0  # how many accept every key
        self.members: dict[str, Member] = {}
        self.picky = False
        self.on_picky: Callable[[], None]

    # queries

    def connected(self, name: str) -> Member:
        """The member of that name that is active or inactive."""
        check_kind("name", name, str)
        member = self.members.get(name)
        if member is None or member.state is MemberState.DRAINING:
            raise UnknownConsumerError(name)
        return member

    def accepts(self, key: bytes | None) -> bool:
        """Whether any consumer, draining ones included, would take the key."""
        if key is None:
            return any(member.accepts.takes_keyless for member in self.members.values())
        return bool(self._routing.acceptance.of(key))

    def owns_none_of(self, key: bytes | None) -> bool:
        """Whether consumers are connected and the key belongs to nobody: a hole, or who accepts it owns nothing.

        Without a key there is no slot to own.
        """
        return key is not None and self._anyone_connected() and self._routing.is_unowned(key)

    def is_only_unowned(self, key: bytes) -> bool:
        """Whether somebody connected accepts the key, and it belongs to nobody all the same."""
        return self._routing.anyone_accepts(key) and self._routing.is_unowned(key)

    @property
    def refuses_keys(self) -> bool:
        """Whether there may be keys without a slot: those that the hash of the placement refuses."""
        return self._routing.refuses_keys

    def check_slot(self, key: bytes) -> None:
        """Raise `ArgumentError` if the hash of the placement refuses a key."""
        self._routing.check_slots(self._routing.ranges, [key])

    # changes

    def join(
        self,
        name: str,
        filters: Iterable[str],
        weight: Weight | None,
        limit: int | None,
        notices: list[Effect],
        *,
        now: int,
    ) -> None:
        """Start a session; one that was still draining under the name ends first."""
        check_kind("name", name, str)
        before = self.members.get(name)
        if before is not None and before.state is not MemberState.DRAINING:
            raise ConsumerExistsError(name)
        _check_newcomer(name, weight)
        accepts = self._checked_filter(filters)
        quota = self._config.max_in_flight_per_consumer if limit is None else _checked_limit(limit)
        self._routing.join(name, accepts, weight)
        if before is not None:
            self._end_all(before, ReleaseReason.REMOVED, notices, now)
            self._forget(before)
        member = Member(name, self._joined, quota, accepts, weight)
        self._joined += 1
        self._enter(member)
        self._placement_changed()

    def leave(self, name: str, drain_ms: int | None, notices: list[Effect], *, now: int) -> None:
        """End a session, at once or when what it holds is finished."""
        if drain_ms is not None:
            check_int("drain_ms", drain_ms, 0, ", or None for no limit")
        check_kind("name", name, str)
        member = self.members.get(name)
        if member is None:
            return
        if member.state is not MemberState.DRAINING:
            self._routing.leave(name)
            self._placement_changed()
        if drain_ms == 0:
            self._end_all(member, ReleaseReason.REMOVED, notices, now)
        if not self._has_to_drain(member):
            self._forget(member)
            return
        member.state = MemberState.DRAINING
        member.deadline = None
        self._window.cancel_reservations(member)
        self._window.set_limit(member, 0)
        self._window.set_keyless(member, keyless=False)
        if drain_ms is not None:
            self._timers.start(member, now + drain_ms)

    def deactivate(self, name: str, now: int) -> None:
        """Its connection is gone: it keeps its keys for the grace period."""
        check_kind("name", name, str)
        member = self.members.get(name)
        if member is None or member.state is not MemberState.ACTIVE:
            return
        member.state = MemberState.INACTIVE
        self._window.set_limit(member, 0)
        self.time_away(member, now)

    def time_away(self, member: Member, now: int) -> None:
        """Start the whole grace period of a consumer that is away and has none: just now, or in another life."""
        grace_ms = self._config.inactive_grace_ms
        if member.state is MemberState.INACTIVE and member.deadline is None and grace_ms is not None:
            self._timers.start(member, now + grace_ms)

    def activate(self, name: str, notices: list[Effect], *, now: int, resumed: bool) -> None:
        """It is back; unless it resumed its session, what it held is sent again."""
        member = self.connected(name)
        if not resumed:
            self._end_all(member, ReleaseReason.SESSION_LOST, notices, now)
        member.state = MemberState.ACTIVE
        member.deadline = None
        self._window.set_limit(member, member.quota)

    def deadline_reached(self, member: Member, notices: list[Effect], now: int) -> None:
        """A grace period or a drain is over."""
        if member.state is MemberState.DRAINING:
            if self._has_to_drain(member):  # else it has just finished
                self._end_all(member, ReleaseReason.DRAIN_TIMEOUT, notices, now)
        else:
            notices.append(Evicted(member.name))
            self._end_all(member, ReleaseReason.EVICTED, notices, now)
            self._routing.leave(member.name)
            self._placement_changed()
        self._forget(member)

    def set_limit(self, name: str, limit: int) -> None:
        """Change how much a consumer may hold."""
        quota = _checked_limit(limit)
        member = self.connected(name)
        member.quota = quota
        if member.state is MemberState.ACTIVE:
            self._window.set_limit(member, limit)

    def set_filters(self, name: str, filters: Iterable[str]) -> None:
        """Change what a consumer accepts."""
        accepts = self._checked_filter(filters)
        member = self.connected(name)
        self._routing.set_filter(name, accepts)
        self._takers += accepts.accepts_all - member.accepts.accepts_all
        member.accepts = accepts
        self._window.set_keyless(member, keyless=accepts.takes_keyless)
        self._placement_changed()

    def set_weight(self, name: str, weight: Weight) -> None:
        """Change a consumer's share of the keys."""
        check_number("weight", weight, above=True)
        member = self.connected(name)
        self._routing.set_weight(name, weight)
        member.weight = weight
        self._placement_changed()

    def set_placement(self, placement: Placement) -> None:
        """Place keys in another way, if that has a slot for every key of which something is known."""
        connected = [m for m in self.members.values() if m.state is not MemberState.DRAINING]
        kept = () if self.sessions is None else self.sessions.keys()
        known = chain(self._window.lanes, self._window.quarantined, kept)
        self._routing.replace(placement, [(member.name, member.weight) for member in connected], known)
        self._placement_changed()

    def readmit(self, member: Member) -> None:
        """Take a consumer of a snapshot back, in the order of joining."""
        if member.name in self.members:
            raise ConsumerExistsError(member.name)
        self._check_filter(member.accepts)
        _check_newcomer(member.name, member.weight)
        if member.state is not MemberState.DRAINING:
            self._routing.join(member.name, member.accepts, member.weight)
        else:
            self._routing.acceptance.add(member.name, member.accepts)
        self._joined = member.order + 1
        self._enter(member)
        self._count_picky()

    def check_invariants(self) -> None:
        """Raise `InvariantError` if members and window disagree. For tests; O(consumers)."""
        for name, member in self.members.items():
            if self._window.consumers.get(name) is not member:
                raise InvariantError(f"{name!r} is connected to the window")
            if member.limit != (member.quota if member.state is MemberState.ACTIVE else 0):
                raise InvariantError(f"{name!r} has its limit while it is active, else none")
            is_timed = self._config.inactive_grace_ms is not None and member.state is MemberState.INACTIVE
            if is_timed and member.deadline is None:
                raise InvariantError(f"{name!r} is away until some time")
            if member.state is MemberState.DRAINING and not self._has_to_drain(member):
                raise InvariantError(f"{name!r} drains something")
            if (name in self._routing.filters) != (member.state is not MemberState.DRAINING):
                raise InvariantError(f"{name!r} takes part in routing unless it drains")
        if list(self.members) != list(self._window.consumers):
            raise InvariantError("members are in the order of joining")
        known = self._routing.acceptance.filters
        if known != {name: member.accepts for name, member in self.members.items()}:
            raise InvariantError("keys are compared with what the members accept")
        self._routing.check_invariants()
        if self._takers != sum(member.accepts.accepts_all for member in self.members.values()):
            raise InvariantError("who accepts every key is counted")

    def reap(self) -> None:
        """Forget draining members who have finished."""
        emptied = self._window.emptied
        for consumer in emptied:
            member = self.members.get(consumer.name)
            if member is consumer and member.state is MemberState.DRAINING and not self._has_to_drain(member):
                self._forget(member)
        emptied.clear()

    def _checked_filter(self, filters: Iterable[str]) -> KeyFilter:
        accepts = KeyFilter(filters)
        self._check_filter(accepts)
        return accepts

    def _check_filter(self, accepts: KeyFilter) -> None:
        if self._config.ordering_required and accepts.patterns:
            raise ArgumentError("filters", accepts.patterns, "be empty with ordering_required: one lane has one owner")
        if self._config.unit is not DrainUnit.KEY and accepts.patterns:
            requirement = f"be empty with the drain unit {self._config.unit.name}: all keys of a unit have one owner"
            raise ArgumentError("filters", accepts.patterns, requirement)

    def _end_all(self, member: Member, reason: ReleaseReason, notices: list[Effect], now: int) -> None:
        for entry in held_by(member):
            self._endings.end(entry, reason, notices, now)
        if self.sessions is not None:
            self.sessions.lose(member)

    def _has_to_drain(self, member: Member) -> bool:
        """Whether a consumer that leaves still holds a delivery, or a session of a key that it has to flush."""
        return bool(member.open) or (self.sessions is not None and self.sessions.holds(member))

    def _enter(self, member: Member) -> None:
        self._takers += member.accepts.accepts_all
        self.members[member.name] = member
        self._window.add(member)

    def _forget(self, member: Member) -> None:
        member.deadline = None
        self._takers -= member.accepts.accepts_all
        del self.members[member.name]
        self._routing.forget(member.name)
        self._window.discard(member.name)
        self._count_picky()

    def _placement_changed(self) -> None:
        self._count_picky()
        self._window.reassign()

    def _count_picky(self) -> None:
        asks_about_slots = self._config.unmatched is Unmatched.ERROR and self._anyone_connected()
        nobody_takes_all = bool(self.members) and not self._takers
        self.picky = asks_about_slots or nobody_takes_all
        self.on_picky()

    def _anyone_connected(self) -> bool:
        return bool(self._routing.filters)  # who drains has left the routing


def held_by(member: Member) -> list[Entry]:
    """What a consumer holds, in offset order."""
    return [member.open[offset] for offset in sorted(member.open)]


def _check_newcomer(name: str, weight: Weight | None) -> None:
    """Check what not every placement checks; None is the weight that the placement gives."""
    check_name(name)
    if weight is not None:
        check_number("weight", weight, above=True)


def _checked_limit(limit: int) -> int:
    check_int("limit", limit, 0)
    return limit
