import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.transports import servers
from tests.transports.crash_run import ROOT, Size, all_done, crash_run, messages, rejects

pytestmark = pytest.mark.slow

# moto looks at every message of the queue for each call: 8,000 would take it a quarter of an hour.
QUICK, LONG = Size(400, 20), Size(3_000, 150, 2)
WINDOW = 100


def shorten(program: Any) -> None:
    program.HIDDEN_S = 20  # longer than a call of a busy moto takes, or what is done comes to light again
    program.CONFIG = program.RunnerConfig(workers=16, window=WINDOW, stop_ms=2_000)


def text_of(body: str) -> str:
    return body


@pytest.fixture
def sqs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("moto.server")
    port = servers.free_port()
    for name, value in {
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "tests.transports.sqs_server", str(port)]
    with servers.serving(command, port, tmp_path, in_folder=ROOT):
        yield boto3.client("sqs")


def drained(sqs: Any, queue: str) -> list[Any]:
    found: list[Any] = []
    while True:
        answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, MessageAttributeNames=["error"])
        if "Messages" not in answer:
            return found
        found += answer["Messages"]
        for each in answer["Messages"]:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=each["ReceiptHandle"])


@pytest.mark.parametrize("size", [QUICK, LONG], ids=["quick", "long"])
def test_a_fifo_queue_loses_nothing_and_keeps_the_order_of_groups_when_a_process_is_killed(
    sqs: Any, tmp_path: Path, size: Size
) -> None:
    queue, dead = (
        sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        for name in ("orders", "dead")
    )
    for batch in range(0, size.many, 10):
        rows = [
            {"Id": each.number, "MessageBody": each, "MessageGroupId": each.key, "MessageDeduplicationId": each.number}
            for each in messages(size)[batch : batch + 10]
        ]
        sqs.send_message_batch(QueueUrl=queue, Entries=rows)
    verdict = crash_run(tmp_path / "diary", "sqs_fifo", queue, dead, size=size)
    assert verdict._replace(again=0) == all_done(size)
    # A busy moto deletes late: what is done and not deleted may fill the window of who is killed, or leaves in time.
    assert verdict.again <= (size.kills + 1) * WINDOW, "more was redone than a process may hold"
    counts = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == counts["ApproximateNumberOfMessagesNotVisible"] == "0"
    letters = drained(sqs, dead)
    assert sorted(rejects(size)) == sorted(letter["Body"] for letter in letters)
    assert all(letter["MessageAttributes"]["error"]["StringValue"].startswith("Reject(") for letter in letters)
