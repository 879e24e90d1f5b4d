"""A simulated step as a trace that Chrome (``chrome://tracing``) and Perfetto show."""

from __future__ import annotations

import json

from graphgen.lowering.simulate.step_simulation import SimulatedStep, TaskSpan


def chrome_trace(step: SimulatedStep) -> str:
    """JSON of the Trace Event Format: a process for each core, a thread for each rank."""
    events: list[dict[str, object]] = [
        {"ph": "M", "name": "process_name", "pid": core, "args": {"name": f"core {core}"}}
        for core in range(len(step.busy))
    ]
    events += [_event(span) for span in step.spans]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _event(span: TaskSpan) -> dict[str, object]:
    return {
        "ph": "X",
        "name": span.name,
        "pid": span.core,
        "tid": span.rank,
        "ts": round(1e6 * span.start, 3),
        "dur": round(1e6 * (span.end - span.start), 3),
    }
