"""The non-reliable variant: which consumer a message goes to, and nothing else.

No message is tracked: `KeyRouter` returns the consumer of one key at once. The host reports what only the host can
know: whether a consumer is connected, and whether its channel is full.
"""

from collections import OrderedDict
from collections.abc import Iterable

from keyshared._checks import check_kind, check_members
from keyshared._core.routing import Routing
from keyshared.errors import InvariantError, UnknownConsumerError
from keyshared.glob import KeyFilter
from keyshared.hashing import Key, key_bytes
from keyshared.placement.protocol import Placement
from keyshared.placement.range_map import Weight

__all__ = ["KeyRouter"]


class KeyRouter:
    """Routes messages to consumers by key, without acks, retries or a cursor.

    All messages of a key go to one consumer, the key's owner: the first one of the placement's clockwise walk that is
    active and whose filters accept the key. While the owner's channel is full its messages have nowhere to go, because
    sending them elsewhere would let one consumer overtake another within a key.

    Not thread-safe.

    Args:
        placement: Where keys go; copied. Names that it brings along own their keys, which go nowhere until those
            consumers are added.

    Complexity:
        A message with a key costs O(log vnodes), plus O(vnodes passed) where filters or inactive consumers are passed
        over, plus one pass over the key where there are filters; one without a key O(1).

    Source:
        Danube "Key-Shared Dispatch Architecture", Non-Reliable Key-Shared; differs: a consumer that is away loses its
        keys to the next one on the ring until it is back, where Danube drops them as long as it is away; messages
        without a key take turns.

    Example:
        >>> from keyshared.ring import HashRing
        >>> router = KeyRouter(HashRing())
        >>> router.add_consumer("c1")
        >>> router.add_consumer("c2", filters=["ship*"])
        >>> router.route("payment")
        'c1'
        >>> router.set_full("c1")
        >>> print(router.route("payment"))          # drop it, or keep it: that is the host's choice
        None
    """

    __slots__ = ("_away", "_full", "_routing", "_turns")

    def __init__(self, placement: Placement) -> None:
        check_members("placement", placement, Placement)
        self._routing = Routing(placement)
        self._away: set[str] = set()
        self._full: set[str] = set()
        # The consumers that may get the next message without a key, longest waiting first.
        self._turns: OrderedDict[str, None] = OrderedDict()

    def add_consumer(self, name: str, *, filters: Iterable[str] = (), weight: Weight | None = None) -> None:
        """Add a consumer: active, and with capacity in its channel.

        Args:
            name: Its name.
            filters: Patterns of the keys that it accepts; none at all accept every key.
            weight: Its share relative to the others'; by default 1, or what a placement that already names it gives it.

        Raises:
            ConsumerExistsError: The name is there already. Nothing was changed, as with the other errors.
            ArgumentError: The name, a pattern or the weight can never work.

        Example:
            >>> from keyshared.ring import HashRing
            >>> router = KeyRouter(HashRing())
            >>> router.add_consumer("c1", filters=["eu-*"])
            >>> router.owner("eu-1"), router.owner("us-1")
            ('c1', None)
        """
        check_kind("name", name, str)
        self._routing.join(name, KeyFilter(filters), weight)
        self._update_turn(name)

    def remove_consumer(self, name: str) -> None:
        """Remove a consumer; its keys go to the others. An unknown name is ignored."""
        check_kind("name", name, str)
        if name in self._routing.filters:
            self._routing.leave(name)
            self._routing.forget(name)
            self._away.discard(name)
            self._full.discard(name)
            self._turns.pop(name, None)

    def set_filters(self, name: str, filters: Iterable[str]) -> None:
        """Replace the filters of a consumer; raises `UnknownConsumerError`, or `ArgumentError` for a pattern."""
        accepts = KeyFilter(filters)
        self._check_known(name)
        self._routing.set_filter(name, accepts)
        self._update_turn(name)

    def set_weight(self, name: str, weight: Weight) -> None:
        """Change a consumer's share of the keys; raises `UnknownConsumerError`, or `ArgumentError` for the weight."""
        self._check_known(name)
        self._routing.set_weight(name, weight)

    def set_inactive(self, name: str) -> None:
        """Report that a consumer's connection is gone: its keys go to the next consumer of the walk at once.

        An unknown name is ignored.

        Example:
            >>> from keyshared.ring import HashRing
            >>> router = KeyRouter(HashRing())
            >>> for name in ("c1", "c2"):
            ...     router.add_consumer(name)
            >>> router.route("payment")
            'c2'
            >>> router.set_inactive("c2")
            >>> router.route("payment")
            'c1'
            >>> router.set_active("c2")
            >>> router.route("payment")
            'c2'
        """
        check_kind("name", name, str)
        if name in self._routing.filters:
            self._away.add(name)
            self._routing.set_away(name, away=True)
            self._update_turn(name)

    def set_active(self, name: str) -> None:
        """Report that a consumer is connected again: it has its keys back; raises `UnknownConsumerError`.

        Its channel stays full or ready, as it was reported last.
        """
        self._check_known(name)
        self._away.discard(name)
        self._routing.set_away(name, away=False)
        self._update_turn(name)

    def set_full(self, name: str) -> None:
        """Report that a consumer's channel is full: `route` returns None for its keys.

        Raises `UnknownConsumerError`.
        """
        self._check_known(name)
        self._full.add(name)
        self._update_turn(name)

    def set_ready(self, name: str) -> None:
        """Report that a consumer's channel has capacity again; raises `UnknownConsumerError`."""
        self._check_known(name)
        self._full.discard(name)
        self._update_turn(name)

    def route(self, key: Key) -> str | None:
        """Return the consumer that a message goes to now.

        A message without a key goes to the consumer that has waited longest for one, of those that are active, have
        capacity, and have no filters or the pattern ``"*"``.

        Returns:
            Its consumer; None if no consumer accepts the key, or if its owner's channel is full: drop the message.

        Raises:
            KeyTypeError: See `key_bytes`.

        Example:
            >>> from keyshared.ring import HashRing
            >>> router = KeyRouter(HashRing())
            >>> for name in ("c1", "c2"):
            ...     router.add_consumer(name)
            >>> [router.route(None) for _ in range(3)]
            ['c1', 'c2', 'c1']
        """
        data = key_bytes(key)
        if data is None:
            return self._next_turn()
        name = self._routing.owner(data)
        return None if name in self._full else name

    def owner(self, key: Key) -> str | None:
        """Return the active consumer that owns a key, its channel full or not; None if there is none, or no key."""
        data = key_bytes(key)
        return None if data is None else self._routing.owner(data)

    def check_invariants(self) -> None:
        """Raise `InvariantError` if turns and routing contradict the consumers; for tests. O(consumers)."""
        self._routing.check_invariants()
        filters = self._routing.filters
        if not filters.keys() >= self._away | self._full or filters != self._routing.acceptance.filters:
            raise InvariantError("routing knows every consumer and its filter")
        if set(self._turns) != {name for name in filters if self._takes_keyless(name)}:
            raise InvariantError("every consumer that may get messages without a key takes turns")

    def _check_known(self, name: str) -> None:
        if check_kind("name", name, str) not in self._routing.filters:
            raise UnknownConsumerError(name)

    def _takes_keyless(self, name: str) -> bool:
        return name not in self._away and name not in self._full and self._routing.filters[name].takes_keyless

    def _update_turn(self, name: str) -> None:
        if self._takes_keyless(name):
            self._turns.setdefault(name)  # keeps the turn that it has: the same report twice must not push it back
        else:
            self._turns.pop(name, None)

    def _next_turn(self) -> str | None:
        if not self._turns:
            return None
        name, _ = self._turns.popitem(last=False)
        self._turns[name] = None
        return name
