"""SQS, any number of processes on a FIFO queue: ``sqs_fifo.py QUEUE_URL DEAD_LETTER_QUEUE_URL``."""

import sys
from collections.abc import Callable, Sequence
from itertools import count
from time import monotonic
from typing import Any

import boto3

from keyshared.run import DeadLetter, RunnerConfig, ThreadRunner

HIDDEN_S, CONFIG = 60, RunnerConfig(workers=32, window=200)
ASK = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 2, "MessageSystemAttributeNames": ["MessageGroupId"]}


def charge(body: str) -> None:
    print("charged", int(body), flush=True)  # no number: tried again, and at last a dead letter


def consume(queue: str, dead: str, handle: Callable[[str], object] = charge) -> None:  # noqa: C901
    sqs, hand, offsets, due_s = boto3.client("sqs"), dict[int, dict[str, str]](), count(1), 0.0

    def delete(_: str, done: Sequence[int]) -> None:  # or given up; many at once when there is much to do
        for some in (done[at : at + 10] for at in range(0, len(done), 10)):
            if failed := sqs.delete_message_batch(QueueUrl=queue, Entries=[hand[at] for at in some]).get("Failed"):
                raise RuntimeError(failed)
            for at in some:
                del hand[at]

    def give_up(bad: DeadLetter[dict[str, Any]]) -> None:
        message, error = bad.message, {"DataType": "String", "StringValue": repr(bad.error)}
        ids = {"MessageGroupId": (bad.key or b"").decode(), "MessageDeduplicationId": message["MessageId"]}
        sqs.send_message(QueueUrl=dead, MessageBody=message["Body"], MessageAttributes={"error": error}, **ids)

    def hide(seconds: int) -> None:  # what was deleted meanwhile fails alone
        rows = [{**row, "VisibilityTimeout": seconds} for row in list(hand.values())]
        for at in range(0, len(rows), 10):
            sqs.change_message_visibility_batch(QueueUrl=queue, Entries=rows[at : at + 10])

    runner = ThreadRunner(lambda message: handle(message["Body"]), settled=delete, dead_letter=give_up, config=CONFIG)
    with runner.stopping_on_signals():  # at SIGTERM what has begun ends, and is deleted
        runner.add_log(queue)
        while True:
            if monotonic() > due_s:
                due_s = monotonic() + HIDDEN_S / 3
                hide(HIDDEN_S)
            if runner.wait_for_room(queue, 1_000):
                got = sqs.receive_message(QueueUrl=queue, VisibilityTimeout=HIDDEN_S, **ASK).get("Messages", ())
                known = {row["Id"]: at for at, row in list(hand.items())}
                new = [(known.get(m["MessageId"]) or next(offsets), m) for m in got]
                hand.update({at: {"Id": m["MessageId"], "ReceiptHandle": m["ReceiptHandle"]} for at, m in new})
                rows = [(at, m["Attributes"]["MessageGroupId"], m) for at, m in new if m["MessageId"] not in known]
                runner.submit_many(queue, rows)
    hide(0)  # the rest is there for others at once


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2])
