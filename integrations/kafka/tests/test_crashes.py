"""Members that are killed, join and leave: nothing lost, nothing out of order, nothing of a key at once."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from keyshared import ContiguousCursor
from keyshared.run.commit_token import read_token
from keyshared_kafka import ParallelConsumer
from tests.cluster import Cluster
from tests.diary import DONE, Verdict, judge
from tests.running import Running
from tests.worker import SESSION_MS

MESSAGES, KEYS = 8_000, 200
HERE = Path(__file__).parent.parent


def environment() -> dict[str, str]:
    paths = [str(HERE / "src"), str(HERE.parent.parent / "src"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class Members:
    def __init__(self, cluster: Cluster, topic: str, diary: Path, *how: str) -> None:
        self._arguments = [cluster.bootstrap, "crashes-" + topic, topic, str(diary), *how]
        self._diary = diary
        self._running: list[subprocess.Popen[bytes]] = []
        self._leaving: list[subprocess.Popen[bytes]] = []
        self._environment = environment()

    def join(self) -> None:
        self._running.append(
            subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-m", "tests.worker", *self._arguments],
                cwd=HERE,
                env=self._environment,
            )
        )

    def kill(self) -> None:
        """Kill the oldest; what it has left open ends there."""
        member = self._running.pop(0)
        member.send_signal(signal.SIGKILL)
        member.wait()
        with self._diary.open("a") as file:
            file.write(f"killed {member.pid} -\n")

    def leave(self) -> None:
        """Ask the oldest to leave, and do not wait for it."""
        self._running[0].send_signal(signal.SIGTERM)
        self._leaving.append(self._running.pop(0))

    def end(self, *, but: int = 0) -> list[int]:
        """Stop one after the other: while a group rebalances, the mock takes no commit (a broker does)."""
        codes = [member.wait(30) for member in self._leaving]
        self._leaving.clear()
        while len(self._running) > but:
            member = self._running.pop(0)
            member.send_signal(signal.SIGTERM)
            codes.append(member.wait(30))
        return codes

    def kill_all(self) -> None:
        for member in self._running + self._leaving:
            member.send_signal(signal.SIGABRT)  # one that hangs says where
            member.wait()

    def wait_for_members(self, many: int) -> None:
        """Wait until handlers run in so many members."""
        until = time.monotonic() + 60
        while len({line.split()[1] for line in self.lines() if line.startswith("start")}) < many:
            assert time.monotonic() < until
            time.sleep(0.05)

    def done(self) -> int:
        return len({line.split()[2] for line in self.lines() if line.startswith(DONE)})

    def lines(self) -> list[str]:
        return self._diary.read_text().splitlines() if self._diary.exists() else []

    def wait_for(self, many: int, within_s: float = 60) -> None:
        until = time.monotonic() + within_s
        while self.done() < many:
            assert time.monotonic() < until, f"{self.done()} of {many} are done"
            time.sleep(0.1)


def fill(cluster: Cluster, messages: int, keys: int) -> tuple[str, dict[str, int]]:
    """Make a topic of so many messages, and return how many each key has."""
    topic, sent = cluster.topic(), Counter[str]()
    rows = []
    for number in range(messages):
        key = f"k{number * 7919 % keys}"
        rows.append((key.encode(), f"{key}/{number}/{sent[key]}".encode()))
        sent[key] += 1
    cluster.produce(topic, rows)
    return topic, dict(sent)


def crash_run(cluster: Cluster, folder: Path, strategy: str, kind: str) -> tuple[Verdict, str]:
    topic, sent = fill(cluster, MESSAGES, KEYS)
    diary = folder / "diary"
    members = Members(cluster, topic, diary, strategy, kind, "0")
    try:
        members.join()
        members.join()
        members.wait_for(1_000)
        members.kill()
        members.join()
        members.wait_for(3_000)
        members.kill()
        members.join()
        members.wait_for(5_000)
        members.join()
        members.wait_for(6_500)
        members.leave()
        members.wait_for(MESSAGES)
        assert set(members.end(but=1)) == {0}
        until = time.monotonic() + 60  # what was done and not committed before a rebalance is done again
        while committed(cluster, topic) != cluster.ends(topic):
            assert time.monotonic() < until, committed(cluster, topic)
            time.sleep(0.2)
        assert members.end() == [0]
    finally:
        members.kill_all()
    assert committed(cluster, topic) == cluster.ends(topic)
    return judge(members.lines(), sent), topic


def committed(cluster: Cluster, topic: str) -> dict[int, int]:
    return {at: offset for at, (offset, _) in cluster.committed(topic, "crashes-" + topic).items()}


@pytest.mark.parametrize(
    ("strategy", "kind"),
    [
        ("range", "threads"),
        pytest.param("range", "asyncio", marks=pytest.mark.slow),
        pytest.param("range", "batches", marks=pytest.mark.slow),
        pytest.param("range", "processes", marks=pytest.mark.slow),
        pytest.param("cooperative-sticky", "threads", marks=pytest.mark.slow),
    ],
)
def test_two_kills_a_join_and_a_leave_lose_nothing_and_keep_the_order(
    broker: Cluster, tmp_path: Path, strategy: str, kind: str
) -> None:
    verdict, topic = crash_run(broker, tmp_path, strategy, kind)
    print(type(broker).__name__, strategy, kind, verdict)
    assert verdict._replace(again=0) == Verdict(lost=0, out_of_order=0, at_once=0, done=MESSAGES, again=0)
    rejected = sum(number % 97 == 11 for number in range(MESSAGES))
    assert len(broker.values(f"{topic}.dead", rejected)) == rejected


@pytest.mark.parametrize(
    "change",
    ["joins", pytest.param("leaves", marks=pytest.mark.slow), pytest.param("is killed", marks=pytest.mark.slow)],
)
def test_a_member_comes_or_goes_while_handlers_outlast_the_session_timeout(
    broker: Cluster, tmp_path: Path, change: str
) -> None:
    """The mock waits for no member that still works, so handlers are short on it."""
    topic, sent = fill(broker, 24, 12)
    slow_s = SESSION_MS / 1_000 + 1 if broker.waits_for_members else 1
    members = Members(broker, topic, tmp_path / "diary", "range", "threads", str(slow_s))
    try:
        members.join()
        if change != "joins":
            members.join()  # at once: there is something left for it
        members.wait_for_members(1 if change == "joins" else 2)
        if change == "leaves":
            members.leave()
        elif change == "is killed":
            members.kill()
        else:
            members.join()
        members.wait_for(24)
        assert set(members.end()) == {0}
    finally:
        members.kill_all()
    verdict = judge(members.lines(), sent)
    assert verdict._replace(again=0) == Verdict(lost=0, out_of_order=0, at_once=0, done=24, again=0)
    assert verdict.again == 0 or change == "is killed" or not broker.waits_for_members


def test_a_kill_behind_a_head_that_runs_redoes_the_head_alone_when_the_rest_is_committed(cluster: Cluster) -> None:
    topic, group = cluster.topic(), "hangs"
    cluster.produce(topic, [(b"head", b"head"), *((b"k%d" % (n % 20), b"%d" % n) for n in range(400))])
    member = subprocess.Popen(
        [sys.executable, "-m", "tests.hanging", cluster.bootstrap, group, topic], cwd=HERE, env=environment()
    )
    try:
        until = time.monotonic() + 60
        while left := 401 - len(known(cluster, topic, group)):
            assert time.monotonic() < until, f"{left} are not committed"
            if left == 1:
                break
            time.sleep(0.05)
    finally:
        member.kill()
        member.wait()
    cluster.inherit(topic, group, group + "-again")
    redone: list[bytes] = []
    handle: Any = lambda message: redone.append(message.value())  # noqa: E731
    with Running(ParallelConsumer(cluster.options(group + "-again"), [topic], handle)):
        until = time.monotonic() + 60
        while len(known(cluster, topic, group + "-again")) < 401:
            assert time.monotonic() < until
            time.sleep(0.05)
    assert redone == [b"head"]


def known(cluster: Cluster, topic: str, group: str) -> set[tuple[int, int]]:
    """What a restart would not do again."""
    ends, places = cluster.ends(topic), set()
    for at, (offset, token) in cluster.committed(topic, group).items():
        cursor = ContiguousCursor.from_token(read_token(token)[0]) if token else ContiguousCursor(max(0, offset))
        places |= {(at, each) for each in range(ends[at]) if each < offset or not cursor.offer(each)}
    return places


def test_the_judge_of_a_diary_sees_each_fault() -> None:
    sent = {"a": 2, "b": 1}
    fine = ["start 1 a/0/0", "end 1 a/0/0", "start 2 b/1/0", "start 1 a/2/1", "reject 2 b/1/0", "end 1 a/2/1"]
    assert judge(fine, sent) == Verdict(0, 0, 0, 3, 0)
    assert judge(fine[:-1], sent).lost == 1
    assert judge([fine[3], fine[5], *fine[:2]], sent).out_of_order == 1
    assert judge([fine[0], "start 2 a/0/0"], sent).at_once == 1
    assert judge([fine[0], "killed 1 -", "start 2 a/0/0"], sent).at_once == 0
    assert judge([*fine[:2], *fine], sent).again == 1
