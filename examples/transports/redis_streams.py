"""Redis Streams, one process at a time on a stream, the others stand by: ``redis_streams.py REDIS_URL STREAM``."""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

import redis

from keyshared.run import DeadLetter, Reject, RunnerConfig, ThreadRunner

Entry = tuple[str, dict[str, str]]
GROUP, OWNER, CONFIG = "billing", "owner", RunnerConfig(workers=32, window=1_000, max_loaded_per_key=100)
LEASE_S = 15  # so long after a death another process takes over; longer than handlers may go on at a stop


def charge(order: dict[str, str]) -> None:
    if not order["amount"].isdecimal():
        raise Reject("the amount is no number")
    print(f"charged {order['amount']}\n", end="", flush=True)  # 32 threads: each a whole line


def row_of(entry: Entry) -> tuple[int, str | None, Entry]:
    """An id is milliseconds and a number within them: 20 bits for that leave 43, enough up to the year 2248."""
    time_ms, number = map(int, entry[0].split("-"))
    return (time_ms << 20) + number, entry[1].get("key"), entry


def id_of(offset: int) -> str:
    return f"{offset >> 20}-{offset % 2**20}"


def consume(url: str, stream: str, handle: Callable[[dict[str, str]], object] = charge) -> None:
    client, begin = redis.from_url(url, decode_responses=True), ""

    def give_up(letter: DeadLetter[Entry]) -> None:
        with client.pipeline() as both:  # a transaction: written and acked, or neither
            both.xadd(f"{stream}.dead", {**letter.message[1], "id": letter.message[0], "error": repr(letter.error)})
            both.xack(stream, GROUP, letter.message[0]).execute()

    def ack(_: str, offsets: Sequence[int]) -> None:  # many at once when there is much to do
        client.xack(stream, GROUP, *map(id_of, offsets))

    def load(_: str, offsets: Sequence[int]) -> dict[int, Entry | None]:  # entries of a hot key, left in the stream
        with client.pipeline(transaction=False) as reads:
            for offset in offsets:
                reads.xrange(stream, id_of(offset), id_of(offset))
            return {offset: found[0] if found else None for offset, found in zip(offsets, reads.execute(), strict=True)}

    def read(room: int) -> list[Entry]:
        nonlocal begin
        if begin == "0-0":  # nothing is left of earlier processes
            return [each for _, new in client.xreadgroup(GROUP, OWNER, {stream: ">"}, room, 1_000) for each in new]
        begin, claimed, *deleted = client.xautoclaim(stream, GROUP, OWNER, 0, begin or "0-0", count=room)
        entries = [entry for entry in claimed if entry[0] is not None]
        if trimmed := len(claimed) - len(entries) + sum(map(len, deleted)):  # Redis 6.2 counts them among the claimed
            print(f"{stream}: {trimmed} pending entries were trimmed before they were handled", file=sys.stderr)
        return entries

    with suppress(redis.ResponseError):  # the group is there already
        client.xgroup_create(stream, GROUP, id="0", mkstream=True)
    lock = client.lock(f"{stream}.lock", timeout=LEASE_S)
    handle_entry: Callable[[Entry], object] = lambda entry: handle(entry[1])  # noqa: E731
    runner = ThreadRunner(handle_entry, settled=ack, dead_letter=give_up, load=load, config=CONFIG)
    with lock, runner.stopping_on_signals():  # SIGTERM: what has begun ends and is acked; another one gets the rest
        runner.add_log(stream)
        while lock.reacquire():  # or raises: it is lost
            if room := runner.wait_for_room(stream, 1_000):
                runner.submit_many(stream, map(row_of, read(room)))


if __name__ == "__main__":
    consume(sys.argv[1], sys.argv[2])
