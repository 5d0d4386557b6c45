"""The program of docs/tutorial.md: charges customers from a file of orders, in eight threads; survives ``kill -9``.

``python consumer.py FOLDER`` reads ``orders.jsonl`` there, and appends to ``charges.log`` and
``rejected.log``. The position is stored in ``position.json``.
"""

import json
import sys
import time
from pathlib import Path

from keyshared.run import DeadLetter, Reject, RunnerConfig, ThreadRunner


class Shop:
    def __init__(self, folder: Path) -> None:
        self.orders = folder / "orders.jsonl"
        self.stored = folder / "position.json"
        self.charges = (folder / "charges.log").open("a", buffering=1)
        self.rejected = (folder / "rejected.log").open("a", buffering=1)

    def charge(self, order: dict[str, object]) -> None:
        time.sleep(0.002)  # a slow service
        if order["amount"] == 0:
            raise Reject("nothing to charge")
        self.charges.write(f"{order['customer']} {order['number']}\n")

    def reject(self, letter: DeadLetter[dict[str, object]]) -> None:
        self.rejected.write(f"{letter.message['number']} {letter.error}\n")

    def commit(self, _: str, position: int, token: str) -> None:
        new = self.stored.with_suffix(".new")
        new.write_text(json.dumps([position, token]))
        new.replace(self.stored)  # the old one or the new one, whenever the process is killed

    def run(self) -> None:
        position, token = json.loads(self.stored.read_text()) if self.stored.exists() else (0, None)
        print(f"going on at order {position}")
        config = RunnerConfig(workers=8)
        runner = ThreadRunner(self.charge, commit=self.commit, dead_letter=self.reject, config=config)
        with runner.stopping_on_signals():  # SIGTERM: handlers finish, the last commit is made
            runner.add_log("orders", start=0, resume_from=token)
            for offset, line in enumerate(self.orders.read_text().splitlines()):
                if offset >= position:
                    order = json.loads(line)
                    runner.submit("orders", offset, order["customer"], order)


if __name__ == "__main__":
    Shop(Path(sys.argv[1])).run()
