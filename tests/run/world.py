"""A runner in simulated time whose every choice is made from outside, and that checks what its engine does."""

from asyncio import CancelledError
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, assert_never

from keyshared import ContiguousCursor, RetryPolicy
from keyshared.run import PartlyDone, Reject, RetryLater, RunnerConfig
from keyshared.run.actions import (
    Action,
    Cancel,
    Commit,
    Full,
    Left,
    LoadMany,
    Noticed,
    Overdue,
    Replace,
    Roomy,
    Settle,
    Stopped,
    Stopping,
    Withdraw,
    WriteDeadLetter,
)
from keyshared.run.assignment import Assignment, Run, Why
from keyshared.run.commit_token import read_token
from keyshared.run.engine import Engine

Choose: TypeAlias = Callable[[int], int]
TIMEOUT_MS = 50
LOG = "log"
ENDS: dict[str, Callable[[], BaseException | None]] = {
    "ok": lambda: None,
    "fail": lambda: ValueError("broken"),
    "reject": lambda: Reject("bad"),
    "later": lambda: RetryLater(5),
    "cancel": CancelledError,
}
AFTER_THE_FIRST = "first done, "  # how a batch may end besides


def every_path(limit: int) -> Iterator[Choose]:
    """Yield one chooser for each way to choose, depth first; fail if there are more than was thought."""
    path = Path([])
    for _ in range(limit):
        yield path.choose
        following = path.following()
        if following is None:
            return
        path = following
    raise AssertionError(f"more than {limit} paths")


class Path:
    """Takes the choices that it is given, and the first one from there on."""

    def __init__(self, given: list[int]) -> None:
        self.given = given
        self.taken: list[tuple[int, int]] = []

    def choose(self, among: int) -> int:
        step = len(self.taken)
        choice = self.given[step] if step < len(self.given) else 0
        self.taken.append((choice, among))
        return choice

    def following(self) -> "Path | None":
        """The next path: the last choice that can be another one is the next one."""
        while self.taken and self.taken[-1][0] + 1 == self.taken[-1][1]:
            self.taken.pop()
        if not self.taken:
            return None
        choices = [choice for choice, _ in self.taken]
        return Path([*choices[:-1], choices[-1] + 1])


class World:
    """One log, read and handled in the order of the choices.

    Args:
        choose: Chooses among so many events.
        keys: The messages of the log, by their keys; offsets are 0, 2, 4, ...
        engine_class: The engine, or a broken one.
        trouble: What may happen once, at any point: "remove", "lose", "stop" or nothing.
        bad_ends: How many handlers may end in another way than by returning.
        cancels: Whether handlers can be cancelled.
        timeout: Whether handlers may run for too long.
        at_once: How many messages are submitted together.
        settles: Whether the log is told what is settled.
        together: Whether all handlers may end in one report.
        records: Whether the first commit of an assignment is one of the events; otherwise it is made at once.
    """

    def __init__(
        self,
        choose: Choose,
        keys: Sequence[str | None],
        *,
        engine_class: type[Engine[int]] = Engine,
        trouble: str | None = None,
        bad_ends: int = 0,
        cancels: bool = True,
        timeout: bool = False,
        ahead: int = 1,
        workers: int = 1,
        ticks: int = 4,
        batch: int | None = None,
        at_once: int = 1,
        settles: bool = False,
        together: bool = False,
        records: bool = False,
    ) -> None:
        config = RunnerConfig(
            workers=workers,
            batch=batch,
            timeout_ms=TIMEOUT_MS if timeout else None,
            retry=RetryPolicy(max_redeliveries=1, base_delay_ms=10),
            call_attempts=2,
            stop_ms=20,
            commit_every_ms=10,
        )
        self.choose = choose
        self.keys = keys
        self.engine = engine_class(config, ahead=ahead, cancels=cancels, commits=True, writes=True, settles=settles)
        self.settles, self.together, self.records = settles, together, records
        self.workers, self.ahead, self.cancels = workers, ahead, cancels
        self.trouble, self.bad_ends, self.ticks, self.at_once = trouble, bad_ends, ticks, at_once
        self.comes_again = trouble in {"remove", "lose"}
        self.now = 0
        self.next = 0
        self.queue: list[Run[int]] = []
        self.running: list[Run[int]] = []
        self.cancelled: set[Run[int]] = set()
        self.asked: list[Any] = []
        self.committed: tuple[int, str] | None = None
        self.failures: Counter[int] = Counter()  # that name the message, in this stay
        self.rejected: set[int] = set()  # likewise
        self.suspects: set[int] = set()  # of batches that failed, and nobody said which of them it was
        self.done: set[int] = set()  # in this stay, or told by the token that it began with
        self.settled: list[int] = []  # in this stay
        self.story: list[str] = []
        self.is_stopped = self.is_lost = False
        self.stay = self.begin()

    def begin(self) -> Assignment[int]:
        token = None if self.committed is None else self.committed[1]
        self.engine.add_log(LOG, resume_from=token, now_ms=self.now)
        self.done = self.known(token)
        self.failures.clear()
        self.rejected.clear()
        self.suspects.clear()
        self.settled.clear()
        self.next = 0
        return self.engine.log(LOG)

    def known(self, token: str | None) -> set[int]:
        """What a restart from a token would not do again."""
        if token is None:
            return set()
        cursor = ContiguousCursor.from_token(read_token(token)[0])
        offsets = [2 * place for place in range(len(self.keys))]
        return {offset for offset in offsets if not cursor.offer(offset)}

    # what may happen

    def events(self) -> list[Callable[[], None]]:
        events: list[Callable[[], None]] = []
        if self.next < len(self.keys) and not self.stay.is_leaving:
            events.append(self.submit)
        events += self.endings()
        for asked in self.asked:
            events.append(partial(self.answer, asked, None))
            if isinstance(asked, WriteDeadLetter) and asked.attempts == 1:
                events.append(partial(self.answer, asked, OSError("away")))
        if self.ticks and self.engine.next_deadline_ms() is not None:
            events.append(self.tick)
        if self.trouble is not None:
            events.append(self.begin_trouble)
        if self.comes_again and self.stay.is_gone:
            events.append(self.come_again)
        return events

    def endings(self) -> Iterator[Callable[[], None]]:
        for run in self.running:
            yield partial(self.end, run, "ok")
            if run in self.cancelled:
                yield partial(self.end, run, "cancel")
            elif self.bad_ends:
                yield from (partial(self.end, run, how, 1) for how in bad_ends_of(run))
        if self.together and len(self.running) > 1 and self.cancelled.isdisjoint(self.running):
            yield partial(self.end_all, "ok")
            if self.bad_ends:
                yield partial(self.end_all, "fail")

    def play(self) -> None:
        """Let events happen until none is left, then bring everything to its end."""
        while events := self.events():
            events[self.choose(len(events))]()
            self.carry_out()
        self.finish()

    def finish(self) -> None:
        """Answer everything well and let time pass until the engine has stopped; all that it has taken is done then."""
        for _ in range(1_000):
            if self.engine.is_stopping or (self.next == len(self.keys) and self.engine.is_idle()):
                break
            self.go_on()
            self.carry_out()
        whole = not self.engine.is_stopping and not self.stay.is_gone
        if whole:
            assert self.done == {2 * place for place in range(len(self.keys))}, f"not all is done: {self.story}"
        self.engine.stop(until_ms=self.now + 20, now_ms=self.now)
        for _ in range(1_000):
            self.carry_out()
            if self.is_stopped:
                break
            if self.asked:
                self.answer(self.asked[0], None)
            else:
                self.tick()
        assert self.is_stopped, f"it does not stop: {self.story}"
        if whole:
            assert self.committed is not None
            assert self.known(self.committed[1]) == self.done, f"the last commit lacks something: {self.story}"

    def go_on(self) -> None:
        if self.comes_again and self.stay.is_gone:
            self.come_again()
        if self.running:
            self.end(self.running[0], "ok")
        elif self.asked:
            self.answer(self.asked[0], None)
        elif self.next < len(self.keys) and not self.stay.is_leaving:
            self.submit()
        elif self.engine.next_deadline_ms() is not None:
            self.tick()

    def submit(self) -> None:
        for key in self.keys[self.next : self.next + self.at_once]:
            offset = 2 * self.next
            self.story.append(f"submit {offset}")
            self.engine.submit(LOG, offset, key, offset, now_ms=self.now)
            self.next += 1

    def end(self, run: Run[int], how: str, cost: int = 0) -> None:
        self.bad_ends -= cost
        self.engine.ended(run, self.ends(run, how), now_ms=self.now)

    def end_all(self, how: str) -> None:
        """All end in one report: the last but one in this way, and all others well."""
        self.bad_ends -= how != "ok"
        hows = ["ok"] * len(self.running)
        hows[-2] = how
        ends = [(run, self.ends(run, each)) for run, each in zip(list(self.running), hows, strict=True)]
        self.engine.ended_many(ends, now_ms=self.now)

    def ends(self, run: Run[int], how: str) -> BaseException | None:
        """What a handler raises that ends."""
        self.story.append(f"{how} {run.message}")
        self.running.remove(run)
        of_first = how.removeprefix(AFTER_THE_FIRST)
        raised = ENDS[of_first]()
        if run.log is self.stay and not run.log.is_gone and not run.is_abandoned:
            self.note(messages_of(run), as_it_counts(run, of_first), is_partly=of_first != how)
        return raised if raised is None or of_first == how else PartlyDone(1, raised)

    def note(self, messages: list[int], how: str, *, is_partly: bool) -> None:
        """What the end of a handler means for its messages."""
        if how == "ok":
            self.done.update(messages)
        if is_partly:
            self.done.add(messages.pop(0))
        elif len(messages) > 1 and how in {"fail", "reject"}:
            self.suspects.update(messages)
            return
        if how == "fail":
            self.failures[messages[0]] += 1
        elif how == "reject":
            self.rejected.add(messages[0])

    def answer(self, asked: Any, error: BaseException | None) -> None:
        if asked.log.is_gone and error is None:
            error = OSError("it is somebody else's")
        self.story.append(f"answer {type(asked).__name__} {error}")
        self.asked.remove(asked)
        if isinstance(asked, Commit):
            if error is None and asked.log is self.stay:
                self.committed = asked.position, asked.token
            self.engine.committed(asked, error, now_ms=self.now)
        elif isinstance(asked, Settle):
            self.engine.settled(asked, error, now_ms=self.now)
        else:
            if error is None and asked.log is self.stay and not asked.log.is_gone:
                self.done.add(asked.dead_letter.offset)
            self.engine.written(asked, error, now_ms=self.now)
        assert self.engine.error is None, f"what was asked for a log that has gone counts: {self.story}"

    def tick(self) -> None:
        self.ticks -= 1
        due = self.engine.next_deadline_ms()
        self.now = max(self.now, self.now if due is None else due)
        self.story.append(f"it is {self.now}")

    def begin_trouble(self) -> None:
        self.story.append(f"{self.trouble}")
        if self.trouble == "remove":
            self.engine.remove_log(LOG, until_ms=self.now + 20, now_ms=self.now)
        elif self.trouble == "lose":
            self.is_lost = True
            self.engine.lose_log(LOG, now_ms=self.now)
        else:
            self.engine.stop(until_ms=self.now + 20, now_ms=self.now)
        self.trouble = None

    def come_again(self) -> None:
        self.story.append("again")
        self.is_lost = False
        self.comes_again = False
        self.asked = [asked for asked in self.asked if asked.log is not self.stay]
        self.stay = self.begin()

    # what the engine wants

    def carry_out(self) -> None:
        while actions := self.engine.advance(now_ms=self.now):
            for action in actions:
                self.do(action)
        while self.queue and len(self.running) < self.workers:
            run = self.queue.pop(0)
            assert not run.log.is_leaving, f"begins although its log leaves: {self.story}"
            run.started_ms = self.now
            self.running.append(run)
            self.check_running()

    def do(self, action: Action[int]) -> None:  # noqa: C901, PLR0912  # one branch for each kind
        match action:
            case Run():
                self.check_run(action)
                self.queue.append(action)
                assert len(self.queue) + len(self.running) <= self.workers + self.ahead, self.story
            case Cancel(run):
                assert run not in self.cancelled, f"cancelled while it cleans up: {self.story}"
                self.cancelled.add(run)
            case Overdue(run, ran_ms):
                assert run in self.running, f"overdue in the queue: {self.story}"
                assert ran_ms == self.now - (run.started_ms or 0) >= TIMEOUT_MS, f"overdue too early: {self.story}"
            case Withdraw(runs):
                for run in [run for run in self.queue if run in runs]:
                    self.queue.remove(run)
                    self.engine.withdrawn(run, now_ms=self.now)
            case Commit(log, position, token):
                self.check_commit(position, token)
                self.asked.append(action)
                if not (self.records or log.is_recorded):
                    self.answer(action, None)
            case WriteDeadLetter(_, dead):
                guilty = self.failures[dead.offset] == 2 or dead.offset in self.rejected
                assert guilty, f"{dead.offset} is given up for the failure of another: {self.story}"
                self.asked.append(action)
            case Settle(_, offsets):
                self.check_settled(offsets)
                self.asked.append(action)
            case Stopped():
                self.is_stopped = True
            case Left():
                self.check_left(action)
            case Replace(run):
                assert run in self.running, f"replaced and not running: {self.story}"
                self.workers += 1
            case Noticed() | Full() | Roomy() | Stopping():
                pass  # nobody listens
            case LoadMany():
                raise AssertionError(action)
            case _:
                assert_never(action)

    def check_run(self, run: Run[int]) -> None:
        messages = messages_of(run)
        assert not self.done & {*messages}, f"done, and started again: {self.story}"
        assert len(messages) == 1 or not self.suspects & {*messages}, f"not alone after a failure: {self.story}"
        blamed = [each.failures for each in run.deliveries]
        assert blamed == [self.failures[offset] for offset in messages], f"failures of others count: {self.story}"
        key = self.keys[messages[0] // 2]
        same = [offset for offset in self.of_key(key) if messages[0] <= offset <= messages[-1]]
        assert key is None or same == messages, f"{messages} is no batch of {key}: {self.story}"

    def check_running(self) -> None:
        firsts = [messages_of(run)[0] for run in self.running]
        places = [self.keys[first // 2] or first for first in firsts]
        assert len(set(places)) == len(places), f"two of a key at once: {self.story}"
        for run, first in zip(self.running, firsts, strict=True):
            key = self.keys[first // 2]
            older = {offset for offset in self.of_key(key) if offset < first}
            assert key is None or run.log.is_gone or older <= self.done, f"{first} passes {older}: {self.story}"

    def of_key(self, key: str | None) -> list[int]:
        return [2 * place for place, other in enumerate(self.keys) if other == key]

    def check_commit(self, position: int, token: str) -> None:
        assert not [asked for asked in self.asked if isinstance(asked, Commit)], f"two commits at once: {self.story}"
        assert self.committed is None or self.committed[0] <= position, f"backwards: {self.story}"
        assert self.known(token) <= self.done, f"{self.known(token) - self.done} committed too early: {self.story}"

    def check_settled(self, offsets: tuple[int, ...]) -> None:
        assert not [asked for asked in self.asked if isinstance(asked, Settle)], f"two are told at once: {self.story}"
        self.settled += offsets
        assert len({*self.settled}) == len(self.settled), f"told twice: {self.story}"
        assert {*self.settled} <= self.done, f"told too early: {self.story}"

    def check_left(self, left: Left[int]) -> None:
        assert left.log is self.stay
        if left.is_finished and not self.is_lost and self.settles:
            submitted = {2 * place for place in range(self.next)}
            assert {*self.settled} == self.done & submitted, f"not all is told: {self.story}"
        if left.is_finished and not self.is_lost and self.next:
            assert self.committed is not None, f"never committed: {self.story}"
            assert self.known(self.committed[1]) == self.done, f"the last commit lacks something: {self.story}"


def messages_of(run: Run[int]) -> list[int]:
    return [each.item for each in run.deliveries]


def as_it_counts(run: Run[int], how: str) -> str:
    """What an end means of a handler that may have been cancelled."""
    if run.cancelled is Why.TIMEOUT:
        return "reject" if how == "reject" else "fail"
    if how == "cancel" and run.cancelled is None:
        return "fail"  # only the runner's own cancellation is none
    return "cancel" if run.cancelled is Why.LEAVES and how == "ok" else how


def bad_ends_of(run: Run[int]) -> list[str]:
    of_a_part = ("fail", "reject", "later") if len(run.deliveries) > 1 else ()
    return [*(how for how in ENDS if how != "ok"), *(AFTER_THE_FIRST + how for how in of_a_part)]
