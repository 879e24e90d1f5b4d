"""Files of Neuron's tools: NEFF files, compiler caches, work folders, profiles."""

from __future__ import annotations

from graphgen.lowering.neuron.folders import NeuronProgram, ProgramFolder, describe
from graphgen.lowering.neuron.neff import Member, Neff, read_neff

__all__ = ["Member", "Neff", "NeuronProgram", "ProgramFolder", "describe", "read_neff"]
