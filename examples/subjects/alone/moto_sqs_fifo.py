"""What the kit finds in moto's SQS, with boto3 alone."""

import time
from typing import Any

import boto3
from moto import mock_aws

ACCOUNT = {"aws_access_key_id": "alone", "aws_secret_access_key": "alone", "region_name": "eu-central-1"}


def a_group_comes_back_without_its_first_message() -> None:
    """A batch of a group becomes visible again, and is received in the wrong order."""
    with mock_aws():
        sqs, queue = _queue(hidden_s=1, messages=3)
        assert _bodies(sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=2)) == ["0", "1"]
        time.sleep(1.1)  # nobody has answered: both are visible again
        again = _bodies(sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10))
    assert again
    assert "0" not in again


def an_old_receipt_handle_shows_what_another_worker_has() -> None:
    """A worker that is late sets the visibility of a message that another one holds: a third one receives it."""
    with mock_aws():
        sqs, queue = _queue(hidden_s=30, messages=1)
        (old,) = sqs.receive_message(QueueUrl=queue)["Messages"]
        show = {"QueueUrl": queue, "ReceiptHandle": old["ReceiptHandle"], "VisibilityTimeout": 0}
        sqs.change_message_visibility(**show)
        assert _bodies(sqs.receive_message(QueueUrl=queue)) == ["0"]  # it is with the second worker for 30 seconds
        sqs.change_message_visibility(**show)
        assert _bodies(sqs.receive_message(QueueUrl=queue)) == ["0"]  # and with a third one


def _queue(hidden_s: int, messages: int) -> tuple[Any, str]:
    sqs = boto3.client("sqs", **ACCOUNT)
    attributes = {"FifoQueue": "true", "VisibilityTimeout": str(hidden_s)}
    queue = sqs.create_queue(QueueName="alone.fifo", Attributes=attributes)["QueueUrl"]
    for number in range(messages):
        body = str(number)
        sqs.send_message(QueueUrl=queue, MessageBody=body, MessageGroupId="customer-7", MessageDeduplicationId=body)
    return sqs, queue


def _bodies(answer: dict[str, Any]) -> list[str]:
    return [message["Body"] for message in answer.get("Messages", [])]
