"""SQS, any number of processes on a FIFO queue: ``sqs_fifo.py QUEUE_URL DEAD_LETTER_QUEUE_URL``."""

import signal
import sys
from collections.abc import Callable
from itertools import count
from threading import Event
from time import monotonic
from typing import Any

import boto3

from keyshared.run import Letter, RunnerConfig, ThreadRunner

HIDDEN_S, CONFIG = 60, RunnerConfig(workers=32, window=200)
ASK = {"MaxNumberOfMessages": 10, "WaitTimeSeconds": 2, "MessageSystemAttributeNames": ["MessageGroupId"]}


def charge(body: str) -> None:
    print("charged", int(body), flush=True)  # no number: tried again, and at last a dead letter


def consume(queue: str, dead: str, handle: Callable[[str], object] = charge) -> None:
    sqs, hand, offsets, stop, due_s = boto3.client("sqs"), dict[str, str](), count(), Event(), 0.0
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def work(message: dict[str, Any]) -> None:
        handle(message["Body"])
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=hand[message["MessageId"]])
        del hand[message["MessageId"]]  # the next message of its group begins after this

    def give_up(bad: Letter[dict[str, Any]]) -> None:
        message, error = bad.message, {"DataType": "String", "StringValue": repr(bad.error)}
        ids = {"MessageGroupId": (bad.key or b"").decode(), "MessageDeduplicationId": message["MessageId"]}
        sqs.send_message(QueueUrl=dead, MessageBody=message["Body"], MessageAttributes={"error": error}, **ids)
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=hand[message["MessageId"]])  # the letter is confirmed
        del hand[message["MessageId"]]

    def hide(seconds: int) -> None:  # what was deleted meanwhile fails alone
        rows = [{"Id": key, "ReceiptHandle": at, "VisibilityTimeout": seconds} for key, at in list(hand.items())]
        for row in range(0, len(rows), 10):
            sqs.change_message_visibility_batch(QueueUrl=queue, Entries=rows[row : row + 10])

    with ThreadRunner(work, dead_letter=give_up, config=CONFIG) as runner:
        runner.add_log(queue)
        while not stop.wait(0 if (room := runner.room(queue)) else 0.05):
            if monotonic() > due_s:
                due_s = monotonic() + HIDDEN_S / 3
                hide(HIDDEN_S)
            got = sqs.receive_message(QueueUrl=queue, VisibilityTimeout=HIDDEN_S, **ASK) if room else {}
            new = [each for each in got.get("Messages", ()) if each["MessageId"] not in hand]
            hand.update({each["MessageId"]: each["ReceiptHandle"] for each in got.get("Messages", ())})
            runner.submit_many(queue, [(next(offsets), each["Attributes"]["MessageGroupId"], each) for each in new])
        runner.stop()  # what has begun ends, and is deleted
    hide(0)  # the rest is there for others at once


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2])
