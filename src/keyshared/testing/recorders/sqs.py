"""Write down what a process does with SQS FIFO queues through boto3, or through what speaks its API."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from keyshared.testing.history import Acked, Delivered, Event, Nacked, Published, Unclear
from keyshared.testing.recorders.log import Clock, Write, check_given, wall_clock_ms

__all__ = ["SqsRecorder"]

_NEEDED: Final = ("SequenceNumber", "MessageGroupId", "ApproximateReceiveCount")
_ASKED_FOR: Final = "MessageSystemAttributeNames"
_TELLS: Final = {
    "SendMessage": "_sent",
    "SendMessageBatch": "_sent_many",
    "ReceiveMessage": "_received",
    "DeleteMessage": "_deleted",
    "DeleteMessageBatch": "_deleted_many",
    "ChangeMessageVisibility": "_hidden",
    "ChangeMessageVisibilityBatch": "_hidden_many",
}
_LOW_BITS: Final = (1 << 63) - 1
_REMEMBERED: Final = 100_000
_NO_REPLY: Final = "find out whether its answer was carried out: the call got no reply"
_SERVER_FAILED: Final = 500
_ANSWERS: Final = frozenset(
    {"DeleteMessage", "DeleteMessageBatch", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch"}
)


class _Outcome(Enum):
    """What became of a call that answers a delivery."""

    DONE = auto()
    REFUSED = auto()  # the delivery had ended
    NOT_DONE = auto()  # as if nobody had called: it was throttled, or not allowed
    UNKNOWN = auto()  # the server failed, or nobody heard its answer


class _Receipt(NamedTuple):
    offset: int
    attempt: int


class SqsRecorder:
    """Listens to a boto3 client of SQS; what it does with queues that are not FIFO is passed over.

    The log is the URL of the queue, the key the message group, the offset the low 63 bits of the sequence number, and
    the attempt the receive count. A message that is deleted is acked, one whose visibility is set to 0 is nacked. A
    call that was throttled is not written down. A message is not judged any more after a call that answered a delivery
    of it and got no reply. What is sent again with the same deduplication id is written down once by a process.

    No call tells that a visibility timeout is over: claim as ``ack_timeout_ms`` the shortest one, of the queue, of a
    ReceiveMessage, or that a ChangeMessageVisibility sets if it is not 0.

    Args:
        write: Where to.
        consumer: The name of this process among the consumers.
        clock: What time it is.

    Example:
        >>> history = []
        >>> recorder = SqsRecorder(lambda log, event: history.append(event), "billing-1", lambda: None)
        >>> # recorder.listen(boto3.client("sqs"))
    """

    def __init__(self, write: Write, consumer: str, clock: Clock = wall_clock_ms) -> None:
        check_given(write, consumer, clock=clock)
        self._write = write
        self._consumer = consumer
        self._clock = clock
        self._receipts: dict[str, _Receipt] = {}
        self._sequences: OrderedDict[tuple[str, int], None] = OrderedDict()  # what was written down as published

    def listen(self, client: Any) -> None:  # noqa: ANN401  # no client is imported
        """Be told of all calls of a client from now on. It also asks for the attributes that a history needs."""
        events = client.meta.events
        for operation in _TELLS:
            events.register(f"provide-client-params.sqs.{operation}", self.asked)
            events.register(f"after-call.sqs.{operation}", self.answered)
            if operation in _ANSWERS:
                events.register(f"after-call-error.sqs.{operation}", self.unanswered)

    def asked(self, params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> dict[str, Any]:  # noqa: ANN401
        """Take a call that is about to be made; return it with the attributes that a history needs."""
        asked = dict(params)
        if "ReceiptHandle" not in asked and "Entries" not in asked and "MessageBody" not in asked:
            wanted = list(asked.get(_ASKED_FOR, ()))
            if "All" not in wanted:
                asked[_ASKED_FOR] = [*wanted, *(name for name in _NEEDED if name not in wanted)]
        context["keyshared_asked"] = asked
        return asked

    def answered(self, parsed: Mapping[str, Any], model: Any, context: Mapping[str, Any], **_: Any) -> None:  # noqa: ANN401
        """Take the answer of a call."""
        self._tell(model.name, parsed, context)

    def unanswered(self, context: Mapping[str, Any], event_name: str, **_: Any) -> None:  # noqa: ANN401
        """Take a call of which no answer was heard: it may have been carried out."""
        self._tell(event_name.rpartition(".")[2], {"Error": {}}, context)

    def _tell(self, operation: str, parsed: Mapping[str, Any], context: Mapping[str, Any]) -> None:
        asked = context.get("keyshared_asked")
        if asked is not None:
            for event in getattr(self, _TELLS[operation])(asked, parsed):
                self._write(asked["QueueUrl"], event)

    def _sent(self, asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> Iterator[Event]:
        if "SequenceNumber" in parsed:
            yield from self._published(asked["QueueUrl"], asked, parsed)

    def _sent_many(self, asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> Iterator[Event]:
        entries = {entry["Id"]: entry for entry in asked["Entries"]}
        answers = [answer for answer in parsed.get("Successful", ()) if "SequenceNumber" in answer]
        for answer in sorted(answers, key=_offset_of):  # the order of an answer says nothing
            yield from self._published(asked["QueueUrl"], entries[answer["Id"]], answer)

    def _published(self, queue: str, entry: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[Event]:
        offset = _offset_of(answer)
        if (queue, offset) in self._sequences:
            return  # SQS has answered as it did before, and has published nothing
        self._sequences[queue, offset] = None
        if len(self._sequences) > _REMEMBERED:
            self._sequences.popitem(last=False)
        yield Published(offset=offset, key=entry["MessageGroupId"].encode(), at_ms=self._clock())

    def _received(self, asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> Iterator[Event]:  # noqa: ARG002
        for message in parsed.get("Messages", ()):
            attributes = message.get("Attributes", {})
            if "SequenceNumber" not in attributes:
                continue  # only queues that are FIFO have an order
            receipt = _Receipt(_offset_of(attributes), int(attributes["ApproximateReceiveCount"]))
            self._receipts[message["ReceiptHandle"]] = receipt
            yield Delivered(
                offset=receipt.offset,
                key=attributes["MessageGroupId"].encode(),
                consumer=self._consumer,
                attempt=receipt.attempt,
                at_ms=self._clock(),
            )

    def _deleted(self, asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> Iterator[Event]:
        receipt, outcome = self._receipts.get(asked["ReceiptHandle"]), _outcome(parsed)
        if receipt is None or outcome is _Outcome.NOT_DONE:
            return
        if outcome is _Outcome.UNKNOWN:
            yield Unclear(offset=receipt.offset, reason=_NO_REPLY, at_ms=self._clock())
            return
        del self._receipts[asked["ReceiptHandle"]]
        yield Acked(**self._named(receipt), counted=outcome is _Outcome.DONE)

    def _deleted_many(self, asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> Iterator[Event]:
        for entry, error in _each(asked["Entries"], parsed):
            yield from self._deleted(entry, error)

    def _hidden(self, asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> Iterator[Event]:
        receipt, outcome = self._receipts.get(asked["ReceiptHandle"]), _outcome(parsed)
        if receipt is None or asked["VisibilityTimeout"] != 0 or outcome is _Outcome.NOT_DONE:
            return
        if outcome is _Outcome.UNKNOWN:
            yield Unclear(offset=receipt.offset, reason=_NO_REPLY, at_ms=self._clock())
        else:
            yield Nacked(**self._named(receipt), counted=outcome is _Outcome.DONE)

    def _hidden_many(self, asked: Mapping[str, Any], parsed: Mapping[str, Any]) -> Iterator[Event]:
        for entry, error in _each(asked["Entries"], parsed):
            yield from self._hidden(entry, error)

    def _named(self, receipt: _Receipt) -> dict[str, Any]:
        named = {"offset": receipt.offset, "attempt": receipt.attempt}
        return {**named, "consumer": self._consumer, "at_ms": self._clock()}


def _each(
    entries: Sequence[Mapping[str, Any]], parsed: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The entries of a batch, each as a call of its own with its answer."""
    failed = {each["Id"]: {"Error": each} for each in parsed.get("Failed", ())}
    for entry in entries:
        yield entry, parsed if "Error" in parsed else failed.get(entry["Id"], {})


def _outcome(parsed: Mapping[str, Any]) -> _Outcome:
    if "Error" not in parsed:
        return _Outcome.DONE
    error, status = parsed["Error"], parsed.get("ResponseMetadata", {}).get("HTTPStatusCode")
    code, said = str(error.get("Code", "")), str(error.get("Message", ""))
    if "ReceiptHandle" in code or "NotInflight" in code or "receipt handle" in said.lower():
        return _Outcome.REFUSED
    is_servers = error.get("SenderFault") is False or (status is not None and status >= _SERVER_FAILED)
    return _Outcome.UNKNOWN if is_servers or not code else _Outcome.NOT_DONE


def _offset_of(answer: Mapping[str, Any]) -> int:
    return int(answer["SequenceNumber"]) & _LOW_BITS
