"""Redis Streams, one process at a time on a stream, the others stand by: ``redis_streams.py REDIS_URL STREAM``."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import redis

from keyshared.run import Letter, Reject, RunnerConfig, ThreadRunner

Entry = tuple[str, dict[str, str]]
GROUP, OWNER, CONFIG = "billing", "owner", RunnerConfig(workers=32, window=1_000)
LEASE_S = 15  # so long after a death another process takes over; longer than handlers may go on at a stop


def charge(order: dict[str, str]) -> None:
    if not order["amount"].isdecimal():
        raise Reject("the amount is no number")
    print("charged", order["amount"], flush=True)


def row_of(entry: Entry) -> tuple[int, str | None, Entry]:
    """An id is milliseconds and a number within them: 20 bits for that leave 43, enough up to the year 2248."""
    time_ms, number = map(int, entry[0].split("-"))
    return (time_ms << 20) + number, entry[1].get("key"), entry


def consume(url: str, stream: str, handle: Callable[[dict[str, str]], object] = charge) -> None:
    client, begin = redis.from_url(url, decode_responses=True), ""

    def give_up(letter: Letter[Entry]) -> None:
        with client.pipeline() as both:  # a transaction: written and acked, or neither
            both.xadd(f"{stream}.dead", {**letter.message[1], "id": letter.message[0], "error": repr(letter.error)})
            both.xack(stream, GROUP, letter.message[0]).execute()

    def ack(_: str, offsets: Sequence[int]) -> None:  # many at once when there is much to do
        client.xack(stream, GROUP, *(f"{offset >> 20}-{offset % 2**20}" for offset in offsets))

    with suppress(redis.ResponseError):  # the group is there already
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    lock = client.lock(f"{stream}.lock", timeout=LEASE_S)
    runner = ThreadRunner[Entry](lambda entry: handle(entry[1]), settled=ack, dead_letter=give_up, config=CONFIG)
    with lock, runner.stopping_on_signals():  # SIGTERM: what has begun ends and is acked; another one gets the rest
        runner.add_log(stream)
        while begin != "0-0":  # what others have left comes first: it is older than all that nobody has read
            begin, entries, *_ = client.xautoclaim(stream, GROUP, OWNER, 0, begin or "0-0", count=CONFIG.window)
            runner.submit_many(stream, map(row_of, entries))
        while lock.reacquire():  # or raises: it is lost
            if room := runner.wait_for_room(stream, 1_000):
                read = client.xreadgroup(GROUP, OWNER, {stream: ">"}, count=room, block=1_000)
                runner.submit_many(stream, (row_of(entry) for _, entries in read for entry in entries))


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2])
