"""An application of Celery on a queue of files, whose process writes down what it tells a recorder."""

import os
from pathlib import Path
from typing import Any

from celery import Celery, signals
from celery.worker import state
from tests.testing.recorders.record import celery_tap

from keyshared.testing.recorders.celery import CeleryRecorder

FOLDER, PROCESS = os.environ["SAMPLE_FOLDER"], os.environ["SAMPLE_PROCESS"]
HANDLED = int(os.environ["SAMPLE_HANDLED"])  # by this worker
LINES: list[str] = []
app = Celery(
    "shop",
    broker="filesystem://",
    broker_transport_options={
        "data_folder_in": f"{FOLDER}/queue",
        "data_folder_out": f"{FOLDER}/queue",
        "control_folder": f"{FOLDER}/control",
    },
    worker_prefetch_multiplier=1,
)
CeleryRecorder.listen(celery_tap(PROCESS, LINES), signals)


@app.task(name="charge", bind=True, acks_late=True)
def charge(self: Any, key: str, number: int) -> None:  # noqa: ARG001
    if number == 1 and not self.request.retries:
        raise self.retry(countdown=0)
    if number == 2:
        raise KeyError(number)


@signals.task_postrun.connect(weak=False)
def keep(**_: Any) -> None:
    Path(FOLDER, PROCESS).write_text("\n".join(LINES))
    if sum('"call": "ended"' in line for line in LINES) >= HANDLED:
        state.should_stop = 0  # the exit code


if __name__ == "__main__":
    for number in range(5):  # one of them comes twice
        charge.apply_async(args=(f"k{number % 2}", number))
    Path(FOLDER, PROCESS).write_text("\n".join(LINES))
