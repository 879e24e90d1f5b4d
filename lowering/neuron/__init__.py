"""What Neuron's tools leave on disk: NEFF files, compiler caches, work folders."""

from __future__ import annotations

from lowering.neuron.folders import Found, Program, describe
from lowering.neuron.neff import Member, Neff, read_neff

__all__ = ["Found", "Member", "Neff", "Program", "describe", "read_neff"]
