"""An operator's door to a runner or a Kafka consumer: an ASGI app, for a port that only operators reach.

``GET /stuck`` and ``GET /metrics`` show what goes on; the paths under `door` hold, skip, retry and redrive.
"""

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from keyshared.errors import KeySharedError
from keyshared.run import DeadLetter, PrometheusCollector, UnknownLogError, Verbs

Metrics = Callable[[], Iterable[Any]]
Read = Callable[[str, str], Iterable[DeadLetter[Any]]]


def door(runner: Verbs, metrics: Metrics, read_dead_letters: Read = lambda _log, _key: ()) -> Starlette:
    """Operate an AsyncRunner, a ThreadRunner or a ParallelConsumer, whose verbs may be called by any thread."""
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(metrics))

    def redrive(log: str, key: str) -> int:
        return int(runner.redrive(log, key, read_dead_letters(log, key)))

    def stuck(_: Request) -> Response:  # no coroutine: Starlette calls it in a thread
        return PlainTextResponse("".join(f"{line}\n" for line in runner.stuck()))

    def figures(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def endpoint(call: Callable[..., object]) -> Callable[[Request], Response]:
        return lambda request: JSONResponse(call(*request.path_params.values()))  # true, false or how many

    def refused(_: Request, error: Exception) -> Response:
        return PlainTextResponse(str(error), 404 if isinstance(error, UnknownLogError) else 409)

    calls: dict[str, Callable[..., object]] = {
        "/keys/{key:path}/pause": runner.pause_key,
        "/keys/{key:path}/resume": runner.resume_key,
        "/keys/{key:path}/skip": runner.skip_key,
        "/groups/{group:path}/pause": runner.pause_group,
        "/groups/{group:path}/resume": runner.resume_group,
        "/groups/{group:path}/skip": runner.skip_group,
        "/logs/{log}/messages/{offset:int}/skip": runner.park,
        "/logs/{log}/keys/{key:path}/retry": runner.unblock,
        "/logs/{log}/keys/{key:path}/redrive": redrive,
    }
    routes = [Route("/stuck", stuck), Route("/metrics", figures)]
    routes += [Route(path, endpoint(call), methods=["POST"]) for path, call in calls.items()]
    return Starlette(routes=routes, exception_handlers={KeySharedError: refused})
