"""Workers that never answer late: without them, what a late answer breaks would hide everything else."""

from keyshared.testing.machine import KeySharedMachine


class InTimeMachine(KeySharedMachine):
    """Tries everything but answers for a delivery that is over."""

    ack_late = None  # type: ignore[assignment]  # a rule less
    nack_late = None  # type: ignore[assignment]  # likewise
