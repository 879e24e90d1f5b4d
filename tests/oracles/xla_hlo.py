"""XLA itself as the second opinion on HLO: what it reads in our bytes, and what it computes."""

# jaxlib carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jax._src.lib import _jax
from jaxlib import _hlo

from graphgen.eval import Array
from lowering.cpu import pjrt


def parsed(proto: bytes) -> str:
    """HLO text of a module, checked by XLA's parser of protobufs."""
    return _hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string()


def from_text(text: str) -> bytes:
    """The protobuf of HLO text, by XLA's parser of text."""
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def instructions(proto: bytes) -> dict[str, list[tuple[str, str]]]:
    """Name and opcode of each instruction, by computation, as XLA has them."""
    module = _hlo.HloModule.from_serialized_hlo_module_proto(proto)
    return {
        computation.name: [(i.name, i.opcode.name) for i in computation.instructions()]
        for computation in module.computations()
    }


def run(proto: bytes, inputs: Sequence[Sequence[Array]], ranks: int = 1) -> list[list[Array]]:
    """Run a module through XLA's own route: per rank the outputs for that rank's arguments."""
    # Bytecode: as text, StableHLO of some programs does not parse.
    stablehlo = _jax.mlir.hlo_to_stablehlo(proto)
    executable = pjrt.compile_text(stablehlo, ranks)
    buffers = [pjrt.put([given[index] for given in inputs]) for index in range(len(inputs[0]))]
    results = pjrt.launch(executable, buffers)
    return [[np.asarray(result[rank]) for result in results] for rank in range(ranks)]
