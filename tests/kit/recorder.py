"""Write the history of a dispatcher while it is used: the calls that go in and the effects that come out.

This is the one module of the kit that knows the dispatcher's effects; the checker sees only what it has written.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, assert_never

from keyshared.config import DrainUnit
from keyshared.effects import (
    Blocked,
    BlockReason,
    CursorAdvanced,
    DeadLetter,
    Deliver,
    Done,
    Dropped,
    Effect,
    Ending,
    Evicted,
    Ignored,
    KeyBegun,
    KeyEnded,
    KeyEnding,
    Load,
    Released,
    ReleaseReason,
    Resumed,
    Settled,
    SettleReason,
    Skipped,
    SkipReason,
    Spilled,
)
from keyshared.testing import history as past
from keyshared.testing.history import Event, HoldReason, SessionEnds, SettledBy

__all__ = ["INPUTS", "Recorder"]

_Receipt: TypeAlias = tuple[int, str, int]

INPUTS: Final = frozenset(
    {
        *("offer", "offer_many", "loaded", "flushed", "gone", "truncate", "dead_lettered", "unblock", "unblock_offset"),
        *("ack", "ack_many", "ack_through", "nack", "reject", "release", "extend", "handle_timeout", "park", "pull"),
        "redrive",
        *("add_consumer", "remove_consumer", "set_active", "set_inactive"),
        *("set_filters", "set_limit", "set_placement", "set_weight"),
        *("pause_group", "resume_group", "set_group"),
    }
)
"""The calls of a dispatcher that are written down."""

_HOLDS: Final[Mapping[str, HoldReason]] = {
    BlockReason.NOT_BEFORE: HoldReason.NOT_BEFORE,
    BlockReason.POSTPONED: HoldReason.POSTPONED,
    BlockReason.RETRY_WAIT: HoldReason.RETRY,
    BlockReason.DEAD_LETTERING: HoldReason.DEAD_LETTERING,
    BlockReason.BLOCKED: HoldReason.BLOCKED,
    BlockReason.FLUSHING: HoldReason.FLUSHING,
    BlockReason.LOADING: HoldReason.LOADING,
    BlockReason.QUARANTINED: HoldReason.OTHER,
    BlockReason.GROUP_FULL: HoldReason.LIMITED,
    BlockReason.GROUP_PAUSED: HoldReason.LIMITED,
    BlockReason.GROUP_RATE: HoldReason.LIMITED,
    BlockReason.SUBSCRIPTION_FULL: HoldReason.LIMITED,
    BlockReason.ACK_HOLES: HoldReason.ACK_HOLES,
}
_TIMED: Final = frozenset({HoldReason.NOT_BEFORE, HoldReason.POSTPONED, HoldReason.RETRY})
_ELSEWHERE: Final = frozenset(
    {HoldReason.FLUSHING, HoldReason.LIMITED, HoldReason.NOT_BEFORE, HoldReason.OTHER, HoldReason.ACK_HOLES}
)
_GIVEN_BACK: Final = frozenset({ReleaseReason.NACKED, ReleaseReason.REJECTED})
_SEVERAL: Final = frozenset({"ack_many", "ack_through"})
_BY_HAND: Final = frozenset({"set_filters", "set_placement", "set_weight"})
_WHOLE_LOG: Final = b""


class Recordable(Protocol):
    """What is asked of a dispatcher besides its inputs, which are taken by their names."""

    @property
    def config(self) -> Any: ...  # any object with the limits
    @property
    def resume_offset(self) -> int | None: ...
    def acked_ranges(self) -> Sequence[tuple[int, int]]: ...
    def owner(self, key: bytes, /) -> str | None: ...
    def why_blocked(self, offset: int, /) -> Any: ...  # any object with a reason
    def describe(self, offset: int, /) -> object | None: ...
    def outstanding_effects(self) -> Sequence[Effect]: ...
    def next_deadline_ms(self) -> int | None: ...
    def health(self) -> Any: ...  # any object with what has ended, if the configuration says measure


class Recorder:
    """Stands before a dispatcher: takes the same calls, gives the same effects, and writes down what happened.

    What the effects do not say is asked of the dispatcher after each call: who owns a key, why a message waits, and
    whether one is still known. Whether the answers can be true is for the checker.

    Args:
        dispatcher: Any object with the surface of `KeySharedDispatcher`, correct or not. What it calls settled before
            its first call, because it began from a token, is taken on trust: offers below the start are no news, the
            rest was settled by an earlier life.

    Attributes:
        history: What happened so far. Yours to take and to clear.

    Complexity:
        O(outstanding messages + keys seen) for each call: for tests.

    Example:
        >>> from keyshared import HashRing, KeySharedDispatcher
        >>> from keyshared.testing import check_history
        >>> recorder = Recorder(KeySharedDispatcher(HashRing()))
        >>> effects = recorder.add_consumer("c1") + recorder.offer(0, "order-1") + recorder.ack(0, "c1", 1)
        >>> [type(event).__name__ for event in recorder.history if not isinstance(event, past.Quiet)]
        ['Connected', 'Published', 'Owned', 'Delivered', 'Acked', 'Committed']
        >>> check_history(recorder.history)
        []
    """

    def __init__(self, dispatcher: Recordable) -> None:
        self._dispatcher = dispatcher
        self._go_by(dispatcher.config)
        self.history: list[Event] = []
        self._now = 0  # by the dispatcher's clock
        self._ahead = 0  # of it the history's clock is, which never goes back
        self._start = dispatcher.resume_offset
        self._settled_before = dispatcher.acked_ranges()
        self._last_offset: int | None = None
        self._keys: dict[int, bytes | None] = {}  # of what is outstanding
        self._attempts: dict[int, int] = {}  # the last delivery of each that was written down
        self._holds: dict[int, HoldReason] = {}
        self._retries: dict[int, int | None] = {}  # from when on messages may go out again, by the last call
        self._owners: dict[bytes, str | None] = {}
        self._members: dict[str, int] = {}  # who is connected, with the limit
        self._answered: set[int] = set()
        self._recalled: set[int] = set()  # what this call offers, and an earlier life had settled
        self._letters: dict[int, str | None] = {}  # what the dead letters say that are being written
        self._befores: dict[int, int] = {}  # before when messages shall not be delivered first, by this clock
        self._until: int | None = None  # before when the message that the call gives back shall not come again
        self._open_before: list[_Receipt] = []  # for acks of several, of which the effects do not tell all
        self._early: list[Effect] = []  # what was told before its turn
        self._gone: list[str] = []  # who has left at once: what it had open is released one by one before that is told
        self._inputs: dict[str, Callable[..., None]] = {
            "offer": self._offer,
            "offer_many": self._offer_many,
            "ack": self._ack,
            "ack_many": self._ack_many,
            "ack_through": self._ack_through,
            "nack": self._give_back,
            "reject": self._give_back,
            "release": self._release,
            "dead_lettered": self._dead_lettered,
            "loaded": self._loaded,
            "add_consumer": self._add_consumer,
            "remove_consumer": self._remove_consumer,
            "set_inactive": self._set_inactive,
            "set_active": self._set_active,
            "set_limit": self._set_limit,
            "pull": self._pull,
            "redrive": self._redrive,
        }

    def __getattr__(self, name: str) -> Any:  # whatever the dispatcher has
        """Return a method of the dispatcher; an input writes the history."""
        value = getattr(self._dispatcher, name)
        return partial(self._call, name, value) if name in INPUTS else value

    def restarted(self, dispatcher: Recordable, *, now_ms: int) -> None:
        """Go on with another dispatcher that was restored from a snapshot of this one: the history is one.

        Args:
            dispatcher: What goes on. Offsets that are offered to it again are not published twice.
            now_ms: What its clock said when it was restored; it may have started anew.
        """
        self._now, self._ahead = now_ms, max(0, self._now + self._ahead - now_ms)
        self._dispatcher = dispatcher
        self._go_by(dispatcher.config)
        self._befores.clear()
        for offset, reason in self._holds.items():
            if reason in _TIMED:  # its clock may have started anew
                self._tell(past.Held, offset=offset, reason=reason)
        made = [effect for effect in self._open_now() if effect.attempt > self._attempts.get(effect.offset, 0)]
        if made:  # what the settings of this life let go out
            self._tell_owners()
            for effect in made:
                self._see(effect)

    def _go_by(self, config: Any) -> None:  # any object with the limits
        """Take the configuration of a life: the next one may have another."""
        self._config = config
        self._reasons = {**_HOLDS, **_unit_holds(config)}
        if config.max_in_flight is None:  # then it is no reason to wait, whatever the dispatcher says
            del self._reasons[BlockReason.SUBSCRIPTION_FULL]

    def at_rest(self) -> None:
        """Write down that nothing will happen any more: no work is under way, and no deadline is left."""
        self._tell(past.AtRest)

    # --- a call -----------------------------------------------------------------------------------------------------

    def _call(
        self, name: str, call: Callable[..., list[Effect]], *args: Any, **kwargs: Any
    ) -> list[Effect]:  # as the dispatcher's; one step after the other
        self._open_before = [effect.receipt for effect in self._open_now() if name in _SEVERAL]
        effects = call(*args, **kwargs)
        now_ms = kwargs.pop("now_ms", None)
        self._now = self._now if now_ms is None else now_ms
        self._answered.clear()
        self._retries.clear()
        self._recalled.clear()
        self._early.clear()
        self._until = None
        if name in _BY_HAND:
            self._tell(past.PlacementChanged)
        if name in self._inputs:
            self._inputs[name](effects, *args, **kwargs)
        obligations = [effect for effect in effects if isinstance(effect, DeadLetter | Load | Deliver)]
        for effect in effects:
            if (
                not isinstance(effect, CursorAdvanced | Done | DeadLetter | Load | Deliver)
                and effect not in self._early
            ):
                self._see(effect)
        self._tell_who_is_gone()
        self._tell_owners()
        for obligation in obligations:
            self._see(obligation)
        if name == "pull":
            self._tell(past.LimitChanged, consumer=args[0], limit=self._members[args[0]])
        self._compare()
        for effect in effects:
            if isinstance(effect, CursorAdvanced | Done):
                self._see(effect)
        self._tell_end(name)
        return effects

    def _tell_end(self, name: str) -> None:
        """Write down what can be said between two calls."""
        deadline = self._dispatcher.next_deadline_ms()
        if name == "handle_timeout" or deadline is None or deadline > self._now:
            self._tell(past.Quiet)  # otherwise the host has still to say that time has passed

    def _tell(self, kind: type[Event], *, until_ms: int | None = None, **fields: object) -> None:
        if until_ms is not None:
            fields["until_ms"] = until_ms + self._ahead
        self.history.append(kind(at_ms=self._now + self._ahead, **fields))  # type: ignore[arg-type]  # each call names its own

    # --- what the calls say -----------------------------------------------------------------------------------------

    def _offer(
        self,
        effects: Sequence[Effect],  # noqa: ARG002  # one shape for all
        offset: int,
        key: str | bytes | None,
        item: object = None,  # noqa: ARG002  # the dispatcher's signature
        *,
        not_before_ms: int | None = None,
    ) -> None:
        known = self._last_offset is not None and offset <= self._last_offset
        if known or (self._start is not None and offset < self._start):
            return  # told once more after a restart, or over since an earlier life
        self._last_offset = offset
        if any(start <= offset < stop for start, stop in self._settled_before):  # by the token that it began from
            self._recalled.add(offset)
            self._tell(past.Settled, offset=offset, reason=SettledBy.OPERATOR)
            self._tell(past.Published, offset=offset, key=self._data(key))
            return
        self._keys[offset] = data = self._data(key)
        until_ms = not_before_ms if not_before_ms is not None and not_before_ms > self._now else None
        if until_ms is not None:
            self._befores[offset] = until_ms
        self._tell(past.Published, offset=offset, key=data, until_ms=until_ms)

    def _offer_many(self, effects: Sequence[Effect], messages: Iterable[tuple[Any, ...]]) -> None:
        skipped = [effect for effect in effects if isinstance(effect, Skipped)]
        unmatched = {effect.offset: effect for effect in skipped if effect.reason is SkipReason.UNMATCHED}
        for offset, key, item, *until in messages:
            self._offer(effects, offset, key, item, not_before_ms=until[0] if until else None)
            if offset in unmatched:  # it was over before the next one came, and took no room
                self._early.append(unmatched[offset])
                self._see(unmatched[offset])

    def _ack(self, effects: Sequence[Effect], *receipt: Any) -> None:  # as the dispatcher's
        self._tell_ack(receipt, counted=not _ignored(effects, receipt))

    def _ack_many(self, effects: Sequence[Effect], receipts: Sequence[_Receipt]) -> None:
        for receipt in dict.fromkeys(receipts):
            counted = _ignored(effects, receipt) < receipts.count(receipt)
            if counted:
                self._tell_if_named_in_advance(effects, *receipt)
            self._tell_ack(receipt, counted=counted)
            if counted and receipt in self._open_before:
                self._open_before.remove(receipt)

    def _ack_through(self, effects: Sequence[Effect], *receipt: Any) -> None:  # as the dispatcher's
        """Whatever was open of its key, and is not newer, is acked with it."""
        if receipt not in self._open_before:
            self._ack(effects, *receipt)
            return
        for each in sorted(self._open_before):
            if each[0] == receipt[0] or (each[0] < receipt[0] and self._are_in_one_lane(each[0], receipt[0])):
                self._tell_ack(each, counted=True)

    def _are_in_one_lane(self, offset: int, other: int) -> bool:
        key = self._keys[offset]
        return key is not None and key == self._keys[other]

    def _data(self, key: str | bytes | None) -> bytes | None:
        """Return the key that a message has: of a log whose whole order counts, one for all."""
        if self._config.ordering_required:
            return _WHOLE_LOG
        return key.encode() if isinstance(key, str) else key

    def _open_now(self) -> list[Deliver]:
        return [effect for effect in self._dispatcher.outstanding_effects() if isinstance(effect, Deliver)]

    def _tell_if_named_in_advance(self, effects: Sequence[Effect], offset: int, consumer: str, attempt: int) -> None:
        """Write down a delivery that the batch both made and acked: no effect of the call speaks of it."""
        if offset in self._keys and attempt > self._attempts.get(offset, 0):
            if not any(self._are_in_one_lane(each[0], offset) for each in self._open_before):
                self._tell_session_in_advance(effects, offset, consumer)
            self._tell_owners()
            self._see(Deliver(offset, self._keys[offset], consumer, attempt, 0, None))

    def _tell_session_in_advance(self, effects: Sequence[Effect], offset: int, consumer: str) -> None:
        """Write down the session in which such a delivery was made, if it began in this call."""
        key = self._keys[offset]
        told = [effect for effect in effects if isinstance(effect, KeyBegun | KeyEnding | KeyEnded)]
        of_key = [effect for effect in told if effect.key == key and effect not in self._early]
        begun = next((at for at, each in enumerate(of_key) if type(each) is KeyBegun and each[1] == consumer), -1)
        for effect in of_key[: begun + 1]:
            self._see(effect)
            self._early.append(effect)

    def _tell_ack(self, receipt: tuple[Any, ...], *, counted: bool) -> None:
        offset, consumer, attempt = receipt
        if counted:
            self._answered.add(offset)
        self._tell(past.Acked, offset=offset, consumer=consumer, attempt=attempt, counted=counted)

    def _give_back(self, effects: Sequence[Effect], *receipt: Any, reason: str | None = None, **others: object) -> None:  # noqa: ARG002  # as the dispatcher's
        offset, consumer, attempt = receipt
        counted = not _ignored(effects, receipt)
        self._tell(past.Nacked, offset=offset, consumer=consumer, attempt=attempt, counted=counted, reason=reason)

    def _release(self, effects: Sequence[Effect], *receipt: Any, delay_ms: int = 0) -> None:  # as the dispatcher's
        if _ignored(effects, receipt):  # else an effect tells it
            self._give_back(effects, *receipt)
        self._until = self._now + delay_ms if delay_ms else None

    def _dead_lettered(self, effects: Sequence[Effect], offset: int) -> None:
        if not _mentions(effects, Ignored, offset) and not _mentions(effects, Blocked, offset):
            self._answered.add(offset)
            self._tell(past.DeadLettered, offset=offset, reason=self._letters.get(offset))

    def _loaded(self, effects: Sequence[Effect], offset: int, item: object = None) -> None:  # noqa: ARG002  # the dispatcher's signature
        if not _mentions(effects, Ignored, offset):
            self._free(offset)

    def _add_consumer(
        self,
        effects: Sequence[Effect],  # noqa: ARG002  # one shape for all
        name: str,
        *,
        limit: int | None = None,
        **others: object,  # noqa: ARG002  # the dispatcher's signature
    ) -> None:
        limit = self._config.max_in_flight_per_consumer if limit is None else limit
        self._members[name] = limit
        self._tell(past.Connected, consumer=name, limit=limit)

    def _remove_consumer(self, effects: Sequence[Effect], name: str, drain_ms: int | None = 0) -> None:  # noqa: ARG002  # as above
        if drain_ms == 0:
            self._gone.append(name)
        else:
            self._leave(name, drains=True)

    def _set_inactive(self, effects: Sequence[Effect], name: str) -> None:  # noqa: ARG002  # as above
        if name in self._members:
            self._tell(past.Suspended, consumer=name)

    def _set_active(self, effects: Sequence[Effect], name: str, **others: object) -> None:  # noqa: ARG002  # as above
        self._tell(past.Resumed, consumer=name)

    def _set_limit(self, effects: Sequence[Effect], name: str, limit: int) -> None:  # noqa: ARG002  # as above
        self._members[name] = limit
        self._tell(past.LimitChanged, consumer=name, limit=limit)

    def _pull(self, effects: Sequence[Effect], name: str, most: int, **others: object) -> None:  # noqa: ARG002  # as above
        """For the length of this call the consumer may have so many more than it has."""
        now_open = self._open_now()
        pulled = [effect for effect in effects if isinstance(effect, Deliver)]
        before = sum(effect.consumer == name for effect in now_open) - sum(effect.consumer == name for effect in pulled)
        self._tell(past.LimitChanged, consumer=name, limit=before + most)

    def _redrive(
        self,
        effects: Sequence[Effect],
        key: str | bytes | None,
        letters: Sequence[tuple[int, int, object]],
    ) -> None:
        """Write down what came back: what was ignored is as it was."""
        ignored = Counter(effect.offset for effect in effects if isinstance(effect, Ignored))
        given = Counter(offset for offset, _, _ in letters)
        for offset, attempt, _ in letters:
            if given.pop(offset, 0) > ignored[offset]:
                self._keys[offset] = data = self._data(key)
                self._tell(past.Redriven, offset=offset, key=data, attempt=attempt)

    def _leave(self, name: str, *, drains: bool) -> None:
        if name in self._members:
            del self._members[name]
            self._tell(past.Gone, consumer=name, drains=drains)

    def _tell_who_is_gone(self) -> None:
        for name in self._gone:
            self._leave(name, drains=False)
        self._gone.clear()

    # --- what the effects say ---------------------------------------------------------------------------------------

    def _see(self, effect: Effect) -> None:  # noqa: C901, PLR0912  # one case for each effect
        match effect:
            case Deliver(offset, key, consumer, attempt):
                self._befores.pop(offset, None)
                self._holds.pop(offset, None)
                self._attempts[offset] = attempt
                self._tell(past.Delivered, offset=offset, key=key, consumer=consumer, attempt=attempt)
            case Released():
                self._see_released(effect)
            case Settled(offset, _, reason):
                self._answered.add(offset)
                how = SettledBy.LATE_ACK if reason is SettleReason.LATE_ACK else SettledBy.OPERATOR
                self._tell(past.Settled, offset=offset, reason=how)
            case Dropped(offset, _, reason):
                self._answered.add(offset)
                self._tell(past.Dropped, offset=offset, reason=str(reason))
            case Skipped(offset, reason=SkipReason.SUPERSEDED):
                self._answered.add(offset)
                self._tell(past.Settled, offset=offset, reason=SettledBy.SUPERSEDED)
            case Skipped(offset, _, reason):
                self._answered.add(offset)
                self._tell(past.Skipped, offset=offset, reason=str(reason))
            case Done(offset, _, how):
                if how is not Ending.EARLIER or offset in self._recalled:  # else it is no news
                    self._tell(past.Done, offset=offset, reason=str(how))
            case Spilled(offset):
                self._hold(offset, HoldReason.SPILLED)
            case Load(offset):
                self._hold(offset, HoldReason.LOADING)
            case DeadLetter(offset):
                self._letters[offset] = effect.reason
                self._hold(offset, HoldReason.DEAD_LETTERING)
            case Blocked(offset):
                self._hold(offset, HoldReason.BLOCKED)
            case Evicted(consumer):
                self._gone.append(consumer)
            case KeyBegun() | KeyEnding() | KeyEnded():
                self._see_session(effect)
            case CursorAdvanced(safe_cursor):
                self._tell(past.Committed, resume_offset=safe_cursor + 1)
            case Ignored() | Resumed():
                pass
            case _:
                assert_never(effect)

    def _see_session(self, effect: KeyBegun | KeyEnding | KeyEnded) -> None:
        told: dict[str, Any] = {"key": effect.key, "consumer": effect.consumer, "session": effect.session}
        if isinstance(effect, KeyEnded):
            self._tell(past.SessionEnded, **told, reason=SessionEnds(effect.reason.value))
        else:
            self._tell(past.SessionBegun if isinstance(effect, KeyBegun) else past.SessionEnding, **told)

    def _see_released(self, effect: Released) -> None:
        offset, consumer, attempt, reason, _, self._retries[offset] = effect
        if reason in _GIVEN_BACK:
            return  # as the call has told
        if reason is ReleaseReason.ACK_TIMEOUT:
            self._tell(past.Expired, offset=offset, consumer=consumer, attempt=attempt)
        else:
            until_ms = self._until if reason is ReleaseReason.RELEASED else None
            told = {"offset": offset, "consumer": consumer, "attempt": attempt, "reason": str(reason)}
            self._tell(past.Released, **told, until_ms=until_ms)

    def _hold(self, offset: int, reason: HoldReason) -> None:
        self._holds[offset] = reason
        until_ms = self._retries.get(offset, self._befores.get(offset)) if reason in _TIMED else None
        self._tell(past.Held, offset=offset, reason=reason, until_ms=until_ms)

    def _free(self, offset: int) -> None:
        if self._holds.pop(offset, None) is not None:
            self._tell(past.Freed, offset=offset)

    # --- what the dispatcher says when it is asked ------------------------------------------------------------------

    def _tell_owners(self) -> None:
        """Who owns what is outstanding now, or was."""
        for key in dict.fromkeys([*self._owners, *(key for key in self._keys.values() if key is not None)]):
            owner = self._dispatcher.owner(key)
            if key not in self._owners or self._owners[key] != owner:
                self._owners[key] = owner
                self._tell(past.Owned, key=key, consumer=owner)

    def _compare(self) -> None:
        """Hear why messages wait, and which ones the dispatcher no longer knows although nothing answered for them."""
        open_now = {effect.offset for effect in self._open_now()}
        for offset in list(self._keys):
            why = self._dispatcher.why_blocked(offset)
            if offset in open_now:
                continue
            if why is None and self._dispatcher.describe(offset) is None:
                self._finish(offset)
                continue
            # Known, and nothing that it waits for: after a restart with wider limits it goes out in a call that is due.
            reason = None if why is None else self._reasons.get(why.reason)
            if reason is not None:
                # What is spilled stays so while it waits for anything else that a history does not tell.
                known = self._holds.get(offset)
                if reason is not known and not (known is HoldReason.SPILLED and reason in _ELSEWHERE):
                    self._hold(offset, reason)
            elif self._holds.get(offset) is not HoldReason.SPILLED:
                if why is not None and why.reason is BlockReason.WINDOW_FULL:  # spilled while it waited for its retry
                    self._hold(offset, HoldReason.SPILLED)
                else:
                    self._free(offset)

    def _finish(self, offset: int) -> None:
        del self._keys[offset]
        self._attempts.pop(offset, None)
        self._holds.pop(offset, None)
        self._letters.pop(offset, None)
        self._befores.pop(offset, None)
        if offset not in self._answered:
            self._tell(past.Settled, offset=offset, reason=SettledBy.NOBODY)


def _unit_holds(config: Any) -> dict[str, HoldReason]:  # as the dispatcher's
    """A history tells of keys: that another key of the same unit still drains is taken on trust."""
    return {} if config.unit is DrainUnit.KEY else {BlockReason.DRAINING: HoldReason.OTHER}


def _ignored(effects: Sequence[Effect], receipt: tuple[Any, ...]) -> int:
    """How many times a receipt had no effect."""
    return sum(isinstance(effect, Ignored) and effect[:3] == receipt for effect in effects)


def _mentions(effects: Sequence[Effect], kind: type[Effect], offset: int) -> bool:
    return any(isinstance(effect, kind) and effect[0] == offset for effect in effects)
