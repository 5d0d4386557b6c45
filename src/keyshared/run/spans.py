"""OpenTelemetry spans: one for each run of a handler, with the time that its message has waited."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from keyshared._checks import check_extra
from keyshared.run.assignment import Run
from keyshared.run.errors import PartlyDone, Reject, RetryLater
from keyshared.run.functions import check_function
from keyshared.run.reports import cause

if TYPE_CHECKING:  # of the extra
    from opentelemetry.trace import Link, Span, Tracer

__all__ = ["Spans"]


class Spans:
    """Makes a span for each run of a handler: ``ThreadRunner(handle, spans=Spans())``.

    The span is current while the handler runs, so spans of the handler are its children. It has log, offset, key,
    attempt, failures, outcome and waiting times as attributes, and a link to the context that the producer has sent in
    the headers of the message.

    Args:
        headers: Returns the headers of a message as texts, such as its ``traceparent``; None for no links.
        tracer: Makes the spans; by default that of the global provider.

    Raises:
        ArgumentError: ``headers`` cannot be called with a message.
        MissingExtraError: ``opentelemetry-api`` is not installed.

    Example:
        >>> from keyshared.run import ThreadRunner
        >>> with ThreadRunner(print, spans=Spans()) as runner:
        ...     runner.add_log("orders", start=0)
        ...     runner.submit("orders", 0, "order-7", "paid")
        0
        paid
    """

    def __init__(
        self, headers: Callable[[Any], Mapping[str, str]] | None = None, tracer: "Tracer | None" = None
    ) -> None:
        check_extra("metrics", "opentelemetry.trace")
        from opentelemetry.trace import get_tracer  # noqa: PLC0415 - of the extra

        if headers is not None:
            check_function("headers", headers, "a message", is_awaited=False, arguments=1)
        self._headers = headers
        self._tracer = get_tracer("keyshared") if tracer is None else tracer

    @contextmanager
    def around(self, run: Run[Any], clock: Callable[[], int]) -> "Iterator[None]":
        """Make the span of a run current.

        Args:
            run: The run.
            clock: The clock of the runner.
        """
        from opentelemetry.trace import SpanKind  # noqa: PLC0415 - of the extra

        delivery, timeline = run.delivery, run.log.timeline
        attributes: dict[str, Any] = {
            "keyshared.log": run.log.name,
            "keyshared.offset": delivery.offset,
            "keyshared.attempt": delivery.attempt,
            "keyshared.failures": delivery.failures,
            "keyshared.messages": len(run.deliveries),
        }
        if delivery.key is not None:
            attributes["keyshared.key"] = delivery.key.decode(errors="backslashreplace")
        if timeline is not None:
            attributes |= timeline.waits(delivery.offset, delivery.key, now_ms=clock())
        links = [link for each in run.deliveries for link in self._links(each.item)]
        with self._tracer.start_as_current_span(
            f"process {run.log.name}",
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield
            except BaseException as error:
                _note(span, error)
                raise
            else:
                span.set_attribute("keyshared.outcome", "done")

    def _links(self, message: object) -> "list[Link]":
        if self._headers is None:
            return []
        from opentelemetry.propagate import extract  # noqa: PLC0415 - of the extra
        from opentelemetry.trace import Link, get_current_span  # noqa: PLC0415 - of the extra

        context = get_current_span(extract(self._headers(message))).get_span_context()
        return [Link(context)] if context.is_valid else []


def _note(span: "Span", error: BaseException) -> None:
    """Note how a handler has ended on its span; to postpone a message is no error."""
    from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - of the extra

    if isinstance(error, PartlyDone):
        error = error.error
    if isinstance(error, RetryLater) or not isinstance(error, Exception | SystemExit):
        span.set_attribute("keyshared.outcome", "postponed" if isinstance(error, RetryLater) else "cancelled")
        return
    span.set_attribute("keyshared.outcome", "rejected" if isinstance(error, Reject) else "failed")
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, cause(error)))
