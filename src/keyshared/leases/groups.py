"""Groups of a lease queue: tenants that take turns, each with limits of its own, and can be paused."""

from keyshared.dispatcher import GroupStats
from keyshared.effects import Effect, Item
from keyshared.leases.obligations import LeaseObligations
from keyshared.leases.values import LeaseAnswer

__all__ = ["LeaseGroups"]


class LeaseGroups(LeaseObligations[Item]):
    """The calls of `LeaseQueue` about groups of keys."""

    def set_group(
        self,
        name: str,
        *,
        weight: int = 1,
        max_in_flight: int | None = None,
        per_second: int | None = None,
        burst: int = 1,
        now_ms: int | None = None,
    ) -> LeaseAnswer[None, Item]:
        """Set all limits of a group of keys; what is leased or reserved stays so.

        Args:
            name: The group, which need not have a message yet; ``""`` has the keys that are in no other.
            weight: How many turns in a row its keys get when a consumer asks.
            max_in_flight: Its messages that are leased or reserved at once; None for no limit.
            per_second: How many of them may be reserved in a second, in the long run; None for no limit.
            burst: How many of them may be reserved at once.

        Raises:
            ArgumentError: There are no groups, or a limit is out of range.

        Example:
            >>> from keyshared import HashRing, LeaseQueue
            >>> from keyshared.config import Rules
            >>> rules = Rules(mark="tenants-1", group_of=lambda key: key.partition(b"/")[0].decode())
            >>> queue = LeaseQueue(HashRing(), rules=rules)
            >>> _ = queue.add_consumer("c1"), queue.set_group("acme", max_in_flight=1)
            >>> for offset, key in enumerate(["acme/1", "acme/2", "bo/1"]):
            ...     _ = queue.offer(offset, key)
            >>> [message.key for message in queue.consume("c1", 10).result]
            [b'acme/1', b'bo/1']
        """
        now = self._ledger.checked_now(now_ms)
        effects = self._dispatcher.set_group(
            name, weight=weight, max_in_flight=max_in_flight, per_second=per_second, burst=burst, now_ms=now
        )
        return self._grouped(effects, now)

    def pause_group(self, name: str, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """Hand out nothing of a group until `resume_group`; what is leased goes on, what is reserved may be committed.

        Raises:
            ArgumentError: There are no groups, or that is no name.
        """
        now = self._ledger.checked_now(now_ms)
        return self._grouped(self._dispatcher.pause_group(name, now_ms=now), now)

    def resume_group(self, name: str, *, now_ms: int | None = None) -> LeaseAnswer[None, Item]:
        """End the pause of a group; nothing if it has none. Raises as `pause_group`."""
        now = self._ledger.checked_now(now_ms)
        return self._grouped(self._dispatcher.resume_group(name, now_ms=now), now)

    def groups(self) -> list[GroupStats]:
        """Return what every group is like that has a message or a limit of its own, by name. O(ready keys).

        What is leased or reserved of it is ``open``.
        """
        return self._dispatcher.groups()

    def _grouped(self, effects: list[Effect[Item]], now: int) -> LeaseAnswer[None, Item]:
        return LeaseAnswer(None, self._ledger.merged(self._at(now), effects))
