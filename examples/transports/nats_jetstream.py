"""NATS JetStream, read as a log; a key-value bucket says how far: ``nats_jetstream.py NATS_URL STREAM``."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

import nats
from nats.aio.msg import Msg
from nats.js import api, errors

from keyshared.run import AsyncRunner, DeadLetter, Reject, RunnerConfig

NAME, CONFIG = "billing", RunnerConfig(workers=100, window=1_000, timeout_ms=60_000)


async def charge(msg: Msg) -> None:
    if not msg.data.isdigit():
        raise Reject("the amount is no number")
    print("charged", int(msg.data), "for", msg.subject, flush=True)


async def serve(url: str, stream: str, handle: Callable[[Msg], Awaitable[object]]) -> None:
    async with await nats.connect(url) as client:
        js, stored, revision = client.jetstream(), b"", 0

        async def commit(_: str, __: int, token: str) -> None:  # the token names the position, too
            nonlocal revision  # raises if another process has begun meanwhile: then this one ends
            revision = await places.update(stream, f"{created} {token}".encode(), revision)

        async def give_up(bad: DeadLetter[Msg]) -> None:  # returns when the server has confirmed it
            await js.publish(f"dead.{bad.message.subject}", bad.message.data, headers={"error": repr(bad.error)})

        created = f"{(await js.stream_info(stream)).created:%Y-%m-%dT%H:%M:%S.%f}"  # tells it from one of the same name
        places = await js.create_key_value(bucket=NAME)
        with suppress(errors.NotFoundError):  # nothing was committed yet
            stored = (await places.get(stream)).value or b""
        of_stream, _, token = stored.decode().partition(" ")
        if of_stream not in {"", created}:
            wrong = (
                f"{stream} was created at {created}, but its position was stored for a stream created at {of_stream}"
            )
            raise SystemExit(f"{wrong}; to begin with its first message: nats kv del {NAME} {stream}")
        revision = await places.put(stream, f"{created} {token}".encode())
        with suppress(errors.NotFoundError):  # nobody has read yet
            await js.delete_consumer(stream, NAME)
        config = api.ConsumerConfig(ack_policy=api.AckPolicy.NONE, deliver_policy=api.DeliverPolicy.BY_START_SEQUENCE)
        runner = AsyncRunner(handle, commit=commit, dead_letter=give_up, config=CONFIG)
        async with runner.stopping_on_signals():  # at SIGTERM what has begun ends and is committed
            config.opt_start_seq = runner.add_log(stream, start=1, resume_from=token or None)
            source = await js.pull_subscribe(f"{stream}.>", NAME, stream, config)
            while True:
                with suppress(TimeoutError):  # there is nothing new
                    for msg in await source.fetch(await runner.wait_for_room(stream), 1):
                        await runner.submit(stream, msg.metadata.sequence.stream, msg.subject, msg)


def consume(url: str, stream: str, handle: Callable[[Msg], Awaitable[object]] = charge) -> None:
    asyncio.run(serve(url, stream, handle))


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2])
