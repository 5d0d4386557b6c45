"""Members and window describe the same consumers; damage to either is found. What members do: `tests/dispatcher`."""

from collections.abc import Callable

import pytest

from keyshared._dispatch.endings import Endings
from keyshared._dispatch.members import Member
from keyshared._dispatch.membership import Membership
from keyshared._dispatch.routing import Routing
from keyshared._dispatch.timers import Timers
from keyshared.config import DispatcherConfig
from keyshared.dispatcher import MemberState
from keyshared.errors import ConsumerExistsError, InvariantError
from keyshared.glob import KeyFilter
from keyshared.ring import HashRing
from keyshared.window import InFlightWindow


def people() -> tuple[Membership, InFlightWindow]:
    """Ann and bob, each with room for what a consumer may hold, and cat, who drains a message."""
    config = DispatcherConfig()
    routing = Routing(HashRing())
    window = InFlightWindow(routing, capacity=10)
    timers = Timers()
    membership = Membership(config, routing, window, timers, Endings(config, window, timers))
    membership.on_picky = lambda: None
    membership.join("cat", (), None, None, [], now=0)
    window.offer(0, b"k")
    membership.leave("cat", None, [], now=0)
    membership.join("ann", (), None, None, [], now=0)
    membership.join("bob", (), None, None, [], now=0)
    return membership, window


def _forgets(membership: Membership, window: InFlightWindow) -> None:
    del membership.members["ann"]
    del window


def _swaps_the_object(membership: Membership, window: InFlightWindow) -> None:
    window.consumers["ann"] = Member("ann", 1, membership.members["ann"].quota, KeyFilter(()), None)


def _lowers_the_quota(membership: Membership, window: InFlightWindow) -> None:
    del window
    membership.members["ann"].quota -= 1


def _lets_an_inactive_one_have_more(membership: Membership, window: InFlightWindow) -> None:
    del window
    membership.members["ann"].state = MemberState.INACTIVE


def _drains_nothing(membership: Membership, window: InFlightWindow) -> None:
    del window
    membership.members["cat"].open.clear()


def _drains_somebody_who_owns_keys(membership: Membership, window: InFlightWindow) -> None:
    bob = membership.members["bob"]
    window.set_limit(bob, 0)
    bob.open[7] = membership.members["cat"].open[0]
    bob.state = MemberState.DRAINING


def _forgets_what_it_accepts(membership: Membership, window: InFlightWindow) -> None:
    del window
    membership._routing.acceptance.drop("cat")


def _reorders(membership: Membership, window: InFlightWindow) -> None:
    del window
    membership.members["ann"] = membership.members.pop("ann")


def _is_away_for_ever(membership: Membership, window: InFlightWindow) -> None:
    del window
    membership.deactivate("ann", 0)
    membership.members["ann"].deadline = None


def _miscounts(membership: Membership, window: InFlightWindow) -> None:
    del window
    membership._takers -= 1


def test_members_and_window_agree() -> None:
    membership, _ = people()

    membership.check_invariants()
    assert ["cat", "ann", "bob"] == list(membership.members)


@pytest.mark.parametrize(
    ("damage", "fact"),
    [
        (_forgets, "members are in the order of joining"),
        (_swaps_the_object, "'ann' is connected to the window"),
        (_lowers_the_quota, "'ann' has its limit while it is active, else none"),
        (_lets_an_inactive_one_have_more, "'ann' has its limit while it is active, else none"),
        (_drains_nothing, "'cat' drains something"),
        (_drains_somebody_who_owns_keys, "'bob' takes part in routing unless it drains"),
        (_forgets_what_it_accepts, "keys are compared with what the members accept"),
        (_is_away_for_ever, "'ann' is away until some time"),
        (_reorders, "members are in the order of joining"),
        (_miscounts, "who accepts every key is counted"),
    ],
)
def test_damage_is_found(damage: Callable[[Membership, InFlightWindow], None], fact: str) -> None:
    membership, window = people()
    damage(membership, window)

    with pytest.raises(InvariantError) as caught:
        membership.check_invariants()
    assert fact == caught.value.fact


def test_a_member_is_readmitted_once() -> None:
    membership, _ = people()

    with pytest.raises(ConsumerExistsError):
        membership.readmit(Member("ann", 9, 1, KeyFilter(()), None))
    membership.check_invariants()
