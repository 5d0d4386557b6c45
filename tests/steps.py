"""What a call costs in instructions of Python: the same on every machine, and more with every loop."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from keyshared.testing.files import collector_at_rest

__all__ = ["steps_of"]


def steps_of(call: Callable[..., object], *arguments: object, **options: object) -> int:
    """Count the instructions of Python that a call takes; what C loops over is not seen."""
    count = _by_monitoring if sys.version_info >= (3, 12) else _by_tracing
    with collector_at_rest():  # Hypothesis has a function called at each collection
        steps = count(lambda: call(*arguments, **options))
    assert steps, "nothing was counted"
    return steps


def _by_tracing(call: Callable[[], object]) -> int:
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


def _by_monitoring(call: Callable[[], object]) -> int:
    """From Python 3.12 on: there a trace function misses what runs for the first time."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]  # not in 3.11
    tool, instruction = monitoring.PROFILER_ID, monitoring.events.INSTRUCTION
    steps = 0

    def one_more(*_: object) -> None:
        nonlocal steps
        steps += 1

    monitoring.use_tool_id(tool, "steps")
    monitoring.register_callback(tool, instruction, one_more)
    monitoring.set_events(tool, instruction)
    try:
        call()
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    return steps
