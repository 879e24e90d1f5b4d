"""What Neuron's tools leave on disk: NEFF files, compiler caches, work folders."""

from __future__ import annotations

from graphgen.lowering.neuron.folders import Found, Program, describe
from graphgen.lowering.neuron.neff import Member, Neff, read_neff

__all__ = ["Found", "Member", "Neff", "Program", "describe", "read_neff"]
