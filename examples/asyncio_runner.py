"""Coroutines as handlers, over two partitions of which one leaves meanwhile; SIGTERM stops it in order."""

import asyncio

from keyshared.run import AsyncRunner, RunnerConfig

PARTITIONS = {name: [(f"{name}-order-{n % 5}", n) for n in range(50)] for name in ("orders-0", "orders-1")}


async def read(runner: AsyncRunner[int], partition: str) -> None:
    runner.add_log(partition, start=0)
    for offset, (key, message) in enumerate(PARTITIONS[partition]):
        await runner.submit(partition, offset, key, message)  # waits while there is no room


async def main() -> None:
    committed = {}

    async def handle(_: int) -> None:
        await asyncio.sleep(0.001)

    async def commit(partition: str, position: int, _: str) -> None:
        committed[partition] = position

    config = RunnerConfig(workers=8, timeout_ms=5_000)
    async with AsyncRunner(handle, commit=commit, config=config).stopping_on_signals() as runner:
        await asyncio.gather(*(read(runner, partition) for partition in PARTITIONS))
        await runner.remove_log("orders-1")  # its handlers finish; what waits is left to the next reader
    print(f"{runner.stats().done} messages done, committed up to {committed}")


if __name__ == "__main__":
    asyncio.run(main())
