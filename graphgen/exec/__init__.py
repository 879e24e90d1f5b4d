"""Execution: binds symbols and arrays, prepares weights and states, runs programs on a backend.

``program_run.py`` makes one call of one program, ``session.py`` a workload of calls that threads
states. ``bind.py`` binds symbols and coerces arrays, ``weights.py`` prepares what ranks read,
``backend.py`` is the protocol of whatever computes, ``inputs.py`` makes and reads arrays.
"""

from __future__ import annotations

from graphgen.exec.backend import Backend, NumpyBackend
from graphgen.exec.program_run import ProgramOutput, run_program
from graphgen.exec.session import ProgramCall, Runner, Workload

__all__ = [
    "Backend",
    "NumpyBackend",
    "ProgramCall",
    "ProgramOutput",
    "Runner",
    "Workload",
    "run_program",
]
