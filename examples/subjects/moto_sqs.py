"""A FIFO queue of SQS, as moto plays it for tests: a message group is a key."""

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any, ClassVar
from unittest.mock import patch

import boto3
from moto import mock_aws
from moto.sqs import models

from keyshared.testing import Claims, Delivery, Driver, Promise
from keyshared.testing.machine import KeySharedMachine
from keyshared.testing.steps import LATE_ANSWERS

HIDDEN_S = 30
ACCOUNT = {"aws_access_key_id": "subject", "aws_secret_access_key": "subject", "region_name": "eu-central-1"}


class FifoDriver(Driver):
    """Each worker receives up to ten messages, deletes what is done, and shows again what has failed."""

    batch: ClassVar[int] = 10

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.mocks: list[Any] = [
            patch.object(models, "unix_time_millis", lambda *_: float(self.now_ms)),
            patch.object(models, "unix_time", lambda *_: self.now_ms / 1_000),
            mock_aws(),
        ]
        for mock in self.mocks:
            mock.__enter__()
        self.sqs: Any = boto3.client("sqs", **ACCOUNT)
        attributes = {"FifoQueue": "true", "VisibilityTimeout": str(HIDDEN_S)}
        self.queue = self.sqs.create_queue(QueueName="orders.fifo", Attributes=attributes)["QueueUrl"]
        self.attempts: Counter[int] = Counter()
        self.offsets = count()
        self.left = 0

    def connect(self, consumer: str, filters: Sequence[str] = ()) -> None: ...

    def disconnect(self, consumer: str) -> None:
        """The process dies: what it had stays hidden until its time is over."""

    def publish(self, key: bytes | None) -> int:
        offset = next(self.offsets)
        group = f"g{(key or b'').hex()}"[:128]
        self.sqs.send_message(
            QueueUrl=self.queue,
            MessageBody=f"{offset} {(key or b'').hex()}",
            MessageGroupId=group,
            MessageDeduplicationId=str(offset),
        )
        self.left += 1
        return offset

    def receive(self, consumer: str) -> Sequence[Delivery]:  # SQS does not know who asks
        answer = self.sqs.receive_message(QueueUrl=self.queue, MaxNumberOfMessages=self.batch, WaitTimeSeconds=0)
        return [self._delivery(message) for message in answer.get("Messages", [])]

    def ack(self, consumer: str, delivery: Delivery) -> bool | None:  # the handle is all that counts
        """Delete it. SQS answers the same whether that was the end of it or not, so ask how many are left."""
        self.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=delivery.token)
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        numbers = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)["Attributes"]
        before, self.left = self.left, sum(int(number) for number in numbers.values())
        return self.left < before

    def nack(self, consumer: str, delivery: Delivery) -> bool | None:  # likewise
        try:
            self.sqs.change_message_visibility(QueueUrl=self.queue, ReceiptHandle=delivery.token, VisibilityTimeout=0)
        except self.sqs.exceptions.ClientError:
            return False
        return True

    def advance(self, ms: int) -> None:
        self.now_ms += ms

    def close(self) -> None:
        for mock in reversed(self.mocks):
            mock.__exit__(None, None, None)

    def _delivery(self, message: dict[str, Any]) -> Delivery:
        offset, key = message["Body"].split(" ")
        self.attempts[int(offset)] += 1
        return Delivery(int(offset), bytes.fromhex(key), self.attempts[int(offset)], message["ReceiptHandle"])


class FifoMachine(KeySharedMachine):
    """Ten messages at once: several of a group may come together."""

    driver_class = FifoDriver
    untried = LATE_ANSWERS
    claims = Claims(
        promises={Promise.ONE_HOLDER, Promise.KEY_ORDER, Promise.NO_LOSS},
        per_key=None,
        ack_timeout_ms=HIDDEN_S * 1_000,
    )
    rest_ms = HIDDEN_S * 1_000


class OneByOneDriver(FifoDriver):
    """Each worker receives one message at a time, so a group has one at most in hand."""

    batch = 1


class OneByOneMachine(FifoMachine):
    """The same claims with one message at a time."""

    driver_class = OneByOneDriver


class OldHandleMachine(KeySharedMachine):
    """Asked whether an old receipt handle still counts."""

    driver_class = OneByOneDriver
    claims = Claims(promises={Promise.ONE_HOLDER, Promise.FENCE}, ack_timeout_ms=HIDDEN_S * 1_000)
    rest_ms = HIDDEN_S * 1_000
