"""Recorders write histories of what real systems told them; samples of that stand beside the tests."""

import threading
from asyncio import CancelledError
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.testing.recorders.sample import SAMPLES, histories, note

from keyshared import RetryPolicy, effects
from keyshared.run import Hooks, NotAwaitedError, PartlyDone, RetryLater, RunnerConfig, ThreadRunner
from keyshared.testing import (
    Checker,
    Claims,
    ClaimsError,
    check_history,
    merge_histories,
    read_jsonl,
)
from keyshared.testing.history import (
    Acked,
    Committed,
    Delivered,
    Dropped,
    Event,
    Expired,
    Nacked,
    Published,
    Released,
    Rewound,
    Skipped,
    Unclear,
)
from keyshared.testing.recorders import sqs
from keyshared.testing.recorders.kafka import KafkaRecorder
from keyshared.testing.recorders.log import LogFiles, wall_clock_ms
from keyshared.testing.recorders.redis_streams import RedisStreamsRecorder
from keyshared.testing.recorders.sqs import SqsRecorder

MOST_BYTES = 100_000


RECORDERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "sqs": (SqsRecorder, (), "https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo"),
    "redis_streams": (RedisStreamsRecorder, (), "orders"),
    "kafka": (KafkaRecorder, (), "orders-0"),
}
every_system = pytest.mark.parametrize("system", RECORDERS)


def told(system: str) -> dict[str, list[Event]]:
    """What the producer and the consumers of a sample wrote of its one log."""
    kind, more, log = RECORDERS[system]
    found = histories(system, kind, *more)
    assert [log] == list(found)
    return found[log]


def words(system: str, process: str) -> list[str]:
    """What a process wrote, in short, with messages counted from 0."""
    logs = told(system)
    offsets = [each.offset for each in logs["p"] if isinstance(each, Published)]
    found = []
    for each in logs[process]:
        counted = {True: " for sure", False: " in vain", None: ""}[getattr(each, "counted", None)]
        if isinstance(each, Committed):
            found.append(f"committed {each.resume_offset}")
        elif isinstance(each, Rewound):
            found.append("rewound")
        else:
            offset = offsets.index(getattr(each, "offset", -1))
            found.append(f"{type(each).__name__.lower()} {offset}{counted}")
    return found


@every_system
def test_a_sample_is_of_the_real_thing_and_says_of_which(system: str) -> None:
    said = note(system)
    assert set(said) == {"system", "python", "recorded", "how"}
    assert said["how"].endswith(f"record {system}")
    assert sum(path.stat().st_size for path in SAMPLES.iterdir()) < MOST_BYTES


@every_system
def test_each_message_is_published_once_and_delivered_with_the_same_key(system: str) -> None:
    logs = told(system)
    keys = {each.offset: each.key for each in logs["p"] if isinstance(each, Published)}
    assert len(keys) == len(logs["p"]) >= 5
    assert {key for key in keys.values() if key is not None} >= {b"k0", b"k1"}
    offsets = [each.offset for each in logs["p"] if isinstance(each, Published)]
    assert offsets == sorted(offsets)
    delivered = [each for process in logs for each in logs[process] if isinstance(each, Delivered)]
    assert delivered
    assert all(keys[each.offset] == each.key for each in delivered)
    assert all(each.at_ms is not None for process in logs for each in logs[process])


WRITTEN: dict[tuple[str, str], str] = {
    ("sqs", "a"): "delivered 0, acked 0 for sure, delivered 1, nacked 1 for sure, delivered 1, delivered 2, "
    "delivered 3, delivered 4, delivered 5",
    ("sqs", "b"): "delivered 4, acked 4 for sure, delivered 2, acked 2 for sure, delivered 5, acked 5 for sure, "
    "delivered 1, acked 1 for sure, delivered 3, acked 3 for sure",
    ("redis_streams", "a"): "delivered 0, delivered 1, acked 0 for sure, acked 1 in vain, delivered 5",
    ("redis_streams", "b"): "delivered 2, delivered 3, delivered 4, delivered 1, delivered 2, delivered 3, "
    "delivered 4, acked 1 for sure, acked 2 for sure, acked 3 for sure, acked 4 for sure",
    ("kafka", "a"): "rewound, delivered 0, delivered 1, delivered 2, acked 0 for sure, nacked 1 for sure, "
    "committed 3, released 2",
}


@pytest.mark.parametrize(("system", "process"), WRITTEN)
def test_what_a_real_system_tells_becomes_a_history(system: str, process: str) -> None:
    assert WRITTEN[system, process] == ", ".join(words(system, process))


def judged(
    system: str, promises: set[str], more: Callable[[list[Event]], list[Event]] = list, **claims: Any
) -> tuple[set[str], int]:
    """What the merged logs of a sample break, and how many messages are not judged; with more of what a knows."""
    logs = told(system)
    logs["a"] = more(logs["a"])
    consumers = [log for process, log in logs.items() if process != "p"]
    merged = merge_histories([logs["p"]], consumers, Claims(promises=promises, **claims), clock_error_ms=0)
    checker = Checker(merged.claims)
    broken = {str(violation.promise) for violation in checker.violations(merged.history)}
    return broken, checker.unjudged_messages.total()


def test_the_sample_of_sqs_shows_that_moto_hands_a_group_out_of_order() -> None:
    """No call tells that a visibility timeout is over: a recorder that knows how long it was adds that."""

    def expired(log: list[Event]) -> list[Event]:
        left = [each for each in log[4:] if isinstance(each, Delivered) and each.at_ms is not None]
        ends = [(each.offset, each.attempt, (each.at_ms or 0) + 1_000) for each in left]
        return [*log, *(Expired(offset=at, consumer="a", attempt=number, at_ms=end) for at, number, end in ends)]

    promises = {"key-order", "fence"}
    assert judged("sqs", promises, per_key=None, ack_timeout_ms=1_000) == (set(), 0)
    assert judged("sqs", promises, expired, per_key=None) == ({"key-order"}, 0)


def test_the_sample_of_redis_shows_that_a_group_gives_a_key_to_two_consumers() -> None:
    assert judged("redis_streams", {"one-holder"})[0] == {"one-holder"}


def test_the_sample_of_kafka_shows_a_commit_beyond_what_is_done() -> None:
    assert judged("kafka", {"safe-cursor", "one-holder", "key-order", "fence"}) == ({"safe-cursor"}, 0)


# --- what the samples do not show -------------------------------------------------------------------------------------


class Heard:
    """What a recorder wrote, as a list."""

    def __init__(self) -> None:
        self.history: list[Event] = []

    def write(self, log: str, event: Event) -> None:
        assert log == "q"
        self.history.append(event)


def call(recorder: SqsRecorder, operation: str, answer: dict[str, Any], **asked: Any) -> dict[str, Any]:
    context: dict[str, Any] = {}
    given = recorder.asked({"QueueUrl": "q", **asked}, context)
    recorder.answered(answer, SimpleNamespace(name=operation), context)
    return given


def received(receipt: str, sequence: int = 2**63 + 7) -> dict[str, Any]:
    attributes = {"SequenceNumber": str(sequence), "MessageGroupId": "k", "ApproximateReceiveCount": "2"}
    return {"ReceiptHandle": receipt, "Attributes": attributes}


@pytest.mark.parametrize("failed", ["answer", "batch", "nothing", "hidden"])
def test_a_message_is_not_judged_after_a_call_that_got_no_reply(failed: str) -> None:
    heard = Heard()
    recorder = SqsRecorder(heard.write, "a", lambda: None)
    call(recorder, "ReceiveMessage", {"Messages": [received("r1")]})
    broken = {"Error": {"Code": "InternalError"}, "ResponseMetadata": {"HTTPStatusCode": 500}}
    if failed == "answer":
        call(recorder, "DeleteMessage", broken, ReceiptHandle="r1")
    elif failed == "hidden":
        call(recorder, "ChangeMessageVisibility", broken, ReceiptHandle="r1", VisibilityTimeout=0)
    elif failed == "batch":
        answer = {"Failed": [{"Id": "0", "Code": "Oh", "SenderFault": False}]}
        call(recorder, "DeleteMessageBatch", answer, Entries=[{"Id": "0", "ReceiptHandle": "r1"}])
    else:
        context: dict[str, Any] = {}
        recorder.asked({"QueueUrl": "q", "ReceiptHandle": "r1"}, context)
        recorder.unanswered(context, "after-call-error.sqs.DeleteMessage", exception=OSError())
    assert [type(each) for each in heard.history] == [Delivered, Unclear]
    for later in (Delivered(offset=7, key=b"k", consumer="b", attempt=3), Delivered(offset=8, key=b"k", consumer="b")):
        history = [Published(offset=7, key=b"k"), Published(offset=8, key=b"k"), *heard.history, later]
        assert check_history(history, Claims(promises={"one-holder", "key-order", "no-loss", "fence"})) == []


def test_sqs_is_asked_for_what_a_history_needs() -> None:
    recorder = SqsRecorder(Heard().write, "a", lambda: None)
    given = call(recorder, "ReceiveMessage", {}, MessageSystemAttributeNames=["SenderId", "MessageGroupId"])
    assert given["MessageSystemAttributeNames"] == [
        *("SenderId", "MessageGroupId", "SequenceNumber", "ApproximateReceiveCount")
    ]
    given = call(recorder, "ReceiveMessage", {}, MessageSystemAttributeNames=["All"])
    assert given["MessageSystemAttributeNames"] == ["All"]


EXPIRED = {"Code": "InvalidParameterValue", "Message": "Reason: The receipt handle has expired."}
REFUSED = {"Code": "ReceiptHandleIsInvalid", "SenderFault": True}


def test_answers_of_sqs_that_were_refused_did_not_count() -> None:
    heard = Heard()
    recorder = SqsRecorder(heard.write, "a", lambda: None)
    call(recorder, "ReceiveMessage", {"Messages": [received("r1"), received("r2", 2**63 + 8), received("r3", 9)]})
    call(recorder, "DeleteMessage", {"Error": EXPIRED}, ReceiptHandle="r1")
    entries = [{"Id": "0", "ReceiptHandle": "r2", "VisibilityTimeout": 0}]
    call(recorder, "ChangeMessageVisibilityBatch", {"Failed": [{"Id": "0", **REFUSED}]}, Entries=entries)
    call(recorder, "ChangeMessageVisibility", {}, ReceiptHandle="r2", VisibilityTimeout=0)
    call(recorder, "DeleteMessageBatch", {"Error": REFUSED}, Entries=entries)
    assert heard.history[3:] == [
        Acked(offset=7, consumer="a", attempt=2, counted=False),
        Nacked(offset=8, consumer="a", attempt=2, counted=False),
        Nacked(offset=8, consumer="a", attempt=2, counted=True),
        Acked(offset=8, consumer="a", attempt=2, counted=False),
    ]


def test_a_call_of_sqs_that_was_throttled_is_none() -> None:
    heard = Heard()
    recorder = SqsRecorder(heard.write, "a", lambda: None)
    call(recorder, "ReceiveMessage", {"Messages": [received("r1")]})
    throttled = {"Error": {"Code": "RequestThrottled"}, "ResponseMetadata": {"HTTPStatusCode": 403}}
    call(recorder, "ChangeMessageVisibility", throttled, ReceiptHandle="r1", VisibilityTimeout=0)
    call(recorder, "DeleteMessage", throttled, ReceiptHandle="r1")
    call(recorder, "DeleteMessage", {}, ReceiptHandle="r1")
    assert heard.history[1:] == [Acked(offset=7, consumer="a", attempt=2, counted=True)]


def test_what_is_sent_again_with_the_same_deduplication_id_is_published_once(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Heard()
    recorder = SqsRecorder(heard.write, "a", lambda: None)
    for sequence in ("7", "7", "8", "7", "9"):
        call(recorder, "SendMessage", {"SequenceNumber": sequence}, MessageBody="x", MessageGroupId="k")
    assert heard.history == [Published(offset=offset, key=b"k") for offset in (7, 8, 9)]
    monkeypatch.setattr(sqs, "_REMEMBERED", 2)
    call(recorder, "SendMessage", {"SequenceNumber": "10"}, MessageBody="x", MessageGroupId="k")
    assert len(recorder._sequences) == 3


def test_what_has_no_sequence_number_or_was_received_elsewhere_is_passed_over() -> None:
    heard = Heard()
    recorder = SqsRecorder(heard.write, "a", lambda: None)
    call(recorder, "SendMessage", {"MessageId": "1"}, MessageBody="x")
    call(recorder, "SendMessageBatch", {"Successful": [{"Id": "0"}]}, Entries=[{"Id": "0"}])
    call(recorder, "ReceiveMessage", {"Messages": [{"ReceiptHandle": "r", "Attributes": {}}]})
    call(recorder, "DeleteMessage", {}, ReceiptHandle="r")
    call(recorder, "ChangeMessageVisibility", {}, ReceiptHandle="r", VisibilityTimeout=0)
    recorder.answered({}, SimpleNamespace(name="ReceiveMessage"), {})
    assert heard.history == []


def test_a_batch_is_published_in_the_order_of_its_numbers() -> None:
    heard = Heard()
    recorder = SqsRecorder(heard.write, "p", lambda: 5)
    answers = [{"Id": "b", "SequenceNumber": "8"}, {"Id": "a", "SequenceNumber": "7"}]
    entries = [{"Id": name, "MessageBody": "x", "MessageGroupId": name} for name in "ab"]
    call(recorder, "SendMessageBatch", {"Successful": answers}, Entries=entries)
    assert heard.history == [Published(offset=7, key=b"a", at_ms=5), Published(offset=8, key=b"b", at_ms=5)]


def test_what_an_application_gives_up_is_done() -> None:
    heard = Heard()
    KafkaRecorder(heard.write, "a", lambda: None).given_up("q", 3, "a dead letter is written")
    assert heard.history == [Dropped(offset=3, reason="a dead letter is written")]


def test_a_recorder_needs_a_function_that_writes() -> None:
    with pytest.raises(TypeError, match="write is 5; it must be a function"):
        KafkaRecorder(5, "a", lambda: None)  # type: ignore[arg-type]  # on purpose


def test_what_kafka_did_not_take_is_not_told() -> None:
    heard = Heard()
    recorder = KafkaRecorder(heard.write, "a", lambda: None)
    recorder.published("an error", None)
    partition = SimpleNamespace(topic="orders", partition=0, offset=-1001, error=None)
    recorder.on_commit("an error", [partition])
    recorder.on_commit(None, [partition])
    recorder.ended("orders-0", 5)
    assert heard.history == []


def test_the_hooks_of_a_runner_of_this_library_fit() -> None:
    heard = Heard()
    recorder = KafkaRecorder(lambda _, event: heard.write("q", event), "a", lambda: None)
    hooks = Hooks(ended=recorder.ended, committed=recorder.committed, noticed=recorder.noticed)
    for offset in range(3):
        recorder.begun(kafka_message(offset))
    with ThreadRunner(lambda _: None, commit=lambda *_: None, hooks=hooks) as runner:
        runner.add_log("q-0")
        for offset in range(2):
            runner.submit("q-0", offset, "k", offset)
    assert hooks.noticed is not None
    hooks.noticed("q-0", effects.Resumed(0))
    hooks.noticed("q-0", effects.Skipped(2, b"k", effects.SkipReason.GONE))
    hooks.noticed("q-0", effects.Dropped(2, b"k", effects.DropReason.POISON))
    acked = [each for each in heard.history if isinstance(each, Acked)]
    assert acked == [Acked(offset=offset, consumer="a", attempt=1, counted=True) for offset in range(2)]
    ends = [Skipped(offset=2, reason="gone"), Dropped(offset=2, reason="poison")]
    assert heard.history[-3:] == [Committed(resume_offset=2), *ends]


def kafka_message(offset: int) -> Any:
    return SimpleNamespace(topic=lambda: "q", partition=lambda: 0, offset=lambda: offset, key=lambda: b"k")


def test_keys_of_texts_are_their_bytes() -> None:
    heard = Heard()
    message = SimpleNamespace(topic=lambda: "q", partition=lambda: 0, offset=lambda: 1, key=lambda: "k")
    KafkaRecorder(lambda _, event: heard.write("q", event), "a", lambda: None).published(None, message)
    redis = RedisStreamsRecorder(heard.write, "a", lambda fields: fields.get("k"), lambda: None)
    redis.claimed("q", [("0-1", {"k": b"k"}), ("0-2", None)])
    redis.added("q", {}, "0-3")
    redis.acked("q", ["0-1", "0-3"], 1)
    redis.acked("q", ["0-1"], 1)
    redis.acked("q", ["0-3"], 0)
    redis.read(None)
    some = "ack its entry in a call of its own: XACK of several says how many it acked, not which"
    assert heard.history == [
        Published(offset=1, key=b"k"),
        Delivered(offset=1, key=b"k", consumer="a", attempt=1),
        Published(offset=3),
        Unclear(offset=1, reason=some),
        Unclear(offset=3, reason=some),
        Acked(offset=1, consumer="a", attempt=1, counted=True),
        Acked(offset=3, consumer="a", counted=False),
    ]


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        (7, b"7"),
        (1.5, b"1.5"),
        ("é", b"\xc3\xa9"),
        (b"k", b"k"),
        (bytearray(b"k"), b"k"),
        (memoryview(b"k"), b"k"),
        (None, None),
    ],
)
def test_a_key_is_written_down_as_redis_has_it(key: Any, sent: bytes | None) -> None:
    heard = Heard()
    RedisStreamsRecorder(heard.write, "a", clock=lambda: None).added("q", {"key": key}, "0-1")
    assert heard.history == [Published(offset=1, key=sent)]


@pytest.mark.parametrize("key", [True, object(), ["k"]])
def test_what_redis_does_not_take_is_no_key(key: Any) -> None:
    heard = Heard()
    with pytest.raises(TypeError, match=r"the key of an entry is .*; it must be a text, bytes or a number"):
        RedisStreamsRecorder(heard.write, "a").added("q", {"key": key}, "0-1")
    assert heard.history == []


def test_the_calls_of_sqs_are_listened_to() -> None:
    registered: list[str] = []
    events = SimpleNamespace(register=lambda name, _: registered.append(name))
    SqsRecorder(Heard().write, "a").listen(SimpleNamespace(meta=SimpleNamespace(events=events)))
    assert len(registered) == 18


# --- files ------------------------------------------------------------------------------------------------------------


def test_each_log_and_process_has_a_file_of_its_own_that_goes_on(tmp_path: Path) -> None:
    url = "https://sqs/1/orders.fifo"
    for offset in range(2):
        with LogFiles(tmp_path, "a-1") as write:
            write(url, Published(offset=offset, key=b"k"))
            write("other", Published(offset=offset))
            write("other", Delivered(offset=offset, consumer="a"))
            assert len((tmp_path / "other.a-1.jsonl").read_text().splitlines()) == 2 * offset + 2, "each line at once"
    names = ["https%3A%2F%2Fsqs%2F1%2Forders.fifo.a-1.jsonl", "other.a-1.jsonl"]
    assert names == sorted(path.name for path in tmp_path.iterdir())
    with (tmp_path / names[0]).open() as lines:
        assert list(read_jsonl(lines)) == [Published(offset=offset, key=b"k") for offset in range(2)]


@pytest.mark.parametrize("process", ["", "a/b", "a b"])
def test_a_process_has_a_name_that_can_stand_in_a_file(process: str, tmp_path: Path) -> None:
    with pytest.raises(ClaimsError, match="process is"):
        LogFiles(tmp_path, process)
    with pytest.raises(TypeError, match="process is 7"):
        LogFiles(tmp_path, 7)  # type: ignore[arg-type]


def test_the_clock_of_the_machine_goes_on() -> None:
    assert 1_700_000_000_000 < wall_clock_ms() <= wall_clock_ms()


Messages = list[int]


def told_of_handlers(handle: Callable[[Messages], None], size: int) -> list[Event]:
    """What a recorder writes of a runner of batches whose one key has so many messages, but for its commits."""
    heard = Heard()
    recorder = KafkaRecorder(lambda _, event: heard.write("q", event), "a", lambda: None)
    release = threading.Event()

    def begin(messages: Messages) -> None:
        assert release.wait(20)
        for offset in messages:
            recorder.begun(kafka_message(offset))
        handle(messages)

    hooks = Hooks(ended=recorder.ended, noticed=recorder.noticed)
    config = RunnerConfig(workers=1, batch=3, retry=RetryPolicy(base_delay_ms=1))
    with ThreadRunner[int](begin, hooks=hooks, config=config) as runner:
        runner.add_log("q-0", start=0)
        runner.submit_many("q-0", [(offset, "k", offset) for offset in range(size)])
        release.set()
    assert heard.history[0] == Rewound()
    return heard.history[1:]


def begun(*offsets: int, attempt: int = 1) -> list[Event]:
    return [Delivered(offset=offset, key=b"k", consumer="a", attempt=attempt) for offset in offsets]


def acked(*offsets: int, attempt: int = 1) -> list[Event]:
    return [Acked(offset=offset, consumer="a", attempt=attempt, counted=True) for offset in offsets]


def released(reason: str, *offsets: int) -> list[Event]:
    return [Released(offset=offset, consumer="a", attempt=1, reason=reason) for offset in offsets]


def failing_once(error: BaseException) -> Callable[[Messages], None]:
    """A handler whose first call ends with an error."""
    errors = [error]

    def handle(_: Messages) -> None:
        if errors:
            raise errors.pop()

    return handle


def test_all_messages_of_a_batch_of_this_library_end() -> None:
    assert told_of_handlers(lambda _: None, 6) == [*begun(0, 1, 2), *acked(0, 1, 2), *begun(3, 4, 5), *acked(3, 4, 5)]


def test_a_batch_of_which_a_part_is_done_ends_as_its_handler_says() -> None:
    assert told_of_handlers(failing_once(PartlyDone(1, ValueError())), 3) == [
        *(*begun(0, 1, 2), *acked(0), Nacked(offset=1, consumer="a", attempt=1, counted=True, reason="ValueError")),
        *(*released("batch_broken", 2), *begun(1, attempt=2), *acked(1, attempt=2)),
        *(*begun(2, attempt=2), *acked(2, attempt=2)),
    ]


@pytest.mark.parametrize("error", [ValueError(), RetryLater(1), CancelledError()])
def test_an_error_that_names_no_message_of_a_batch_is_the_failure_of_none(error: BaseException) -> None:
    history = told_of_handlers(failing_once(error), 3)
    assert history[:6] == [*begun(0, 1, 2), *released(type(error).__name__, 0, 1, 2)]
    assert [each for each in history if isinstance(each, Acked)] == acked(0, 1, 2, attempt=2)


class SomeAreDone(PartlyDone):
    """As a user may have it."""


class Throttled(RetryLater):
    """Likewise."""


def test_errors_of_the_runner_are_known_in_the_classes_of_users() -> None:
    heard = Heard()
    recorder = KafkaRecorder(lambda _, event: heard.write("q", event), "a", lambda: None)
    for offset in range(4):
        recorder.begun(kafka_message(offset))
    recorder.ended("q-0", (0, 1, 2), SomeAreDone(2, Throttled(5)))
    recorder.ended("q-0", 3, Throttled(5))
    assert heard.history[5:] == [*acked(0, 1), *released("Throttled", 2, 3)]


def test_what_was_put_off_may_go_out_at_once_where_the_partition_moves_to() -> None:
    heard = Heard()
    one, other = (KafkaRecorder(lambda _, event: heard.write("q", event), name, lambda: 100) for name in "ab")
    one.begun(kafka_message(0))
    one.ended("q-0", 0, RetryLater(60_000))
    one.on_revoke(None, [SimpleNamespace(topic="q", partition=0)])
    other.begun(kafka_message(0))
    assert check_history([Published(offset=0, key=b"k", at_ms=0), *heard.history]) == []


def test_what_is_put_off_or_cancelled_has_not_failed() -> None:
    heard = Heard()
    recorder = KafkaRecorder(lambda _, event: heard.write("q", event), "a", lambda: 1_000)
    for raised in (RetryLater(5), CancelledError(), SystemExit(), NotAwaitedError("coroutine"), ValueError()):
        recorder.begun(kafka_message(0))
        recorder.ended("q-0", 0, raised)
    of_all: dict[str, Any] = {"offset": 0, "consumer": "a", "at_ms": 1_000}
    assert heard.history[2::2] == [
        Released(reason="RetryLater", attempt=1, **of_all),
        Released(reason="CancelledError", attempt=2, **of_all),
        Released(reason="SystemExit", attempt=3, **of_all),
        Released(reason="NotAwaitedError", attempt=4, **of_all),
        Nacked(counted=True, reason="ValueError", attempt=5, **of_all),
    ]


def test_messages_are_numbered_while_the_process_has_their_partition() -> None:
    heard = Heard()
    recorder = KafkaRecorder(lambda _, event: heard.write("q", event), "a", lambda: None)
    for raised in (ValueError(), None):
        recorder.begun(kafka_message(0))
        recorder.ended("q-0", 0, raised)
    recorder.on_revoke(None, [SimpleNamespace(topic="q", partition=0)])
    recorder.begun(kafka_message(0))
    kinds = [type(each) for each in heard.history]
    assert kinds == [Rewound, Delivered, Nacked, Delivered, Acked, Rewound, Delivered]
    assert [each.attempt for each in heard.history if isinstance(each, Delivered)] == [1, 2, 1]
    claims = Claims(promises={"no-loss", "fence", "one-holder"})
    history = [Published(offset=0, key=b"k"), *heard.history]
    assert ["no-loss"] == [str(each.promise) for each in check_history(history, claims)]
    assert [] == check_history(history, replace(claims, rewinds=True))
