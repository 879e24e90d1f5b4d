"""Workloads of fewer values than validation draws, for what only some values show."""

from __future__ import annotations

from dataclasses import replace

from graphgen.exec.session import Workload
from graphgen.ir import Module
from graphgen.passes.workload.make_workload import make_workload


def one_call(module: Module) -> Workload:
    """The first call alone: it has ordinary integers, and later ones the special values."""
    made = make_workload(module)
    return replace(made, calls=made.calls[:1])
