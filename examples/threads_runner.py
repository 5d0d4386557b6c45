"""Handlers that block, in threads: order by key, retries, dead letters, commits, and a stop that loses nothing."""

import logging
import sys
import time

from keyshared.run import DeadLetter, Reject, RetryLater, RunnerConfig, ThreadRunner

LOG = [(f"order-{n % 5}", {"number": n, "amount": n - 1}) for n in range(50)]
THROTTLED = 7


class Shop:
    def __init__(self) -> None:
        self.charged: list[int] = []
        self.rejected: list[str] = []
        self.is_throttled = True
        self.position = 0

    def handle(self, order: dict[str, int]) -> None:
        if order["amount"] < 0:
            raise Reject("a negative amount")
        if order["number"] == THROTTLED and self.is_throttled:
            self.is_throttled = False
            raise RetryLater(20)  # its key waits, all others go on
        time.sleep(0.001)
        self.charged.append(order["number"])

    def keep(self, letter: DeadLetter[dict[str, int]]) -> None:
        self.rejected.append(f"order {letter.message['number']}: {letter.error}")

    def commit(self, log: str, position: int, token: str) -> None:
        print(f"{log}: a restart would read from {position}, token of {len(token)} bytes")
        self.position = position


def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
    shop = Shop()
    config = RunnerConfig(workers=8)
    with ThreadRunner(shop.handle, commit=shop.commit, dead_letter=shop.keep, config=config) as runner:
        runner.add_log("orders")
        for offset, (key, order) in enumerate(LOG):
            runner.submit("orders", offset, key, order)  # waits while there is no room
    print(f"{len(shop.charged)} orders charged, {shop.rejected}, committed up to {shop.position}")


if __name__ == "__main__":
    main()
