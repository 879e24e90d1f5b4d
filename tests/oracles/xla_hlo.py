"""XLA itself as the second opinion on HLO: what it reads in our bytes, and what it computes."""

# jaxlib carries no types here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportPrivateImportUsage=false
# pyright: reportAttributeAccessIssue=false, reportOptionalIterable=false, reportGeneralTypeIssues=false

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib import _jax
from jax._src.lib.mlir import ir
from jaxlib import _hlo

from graphgen.eval import Array
from graphgen.lowering.cpu import pjrt


def parsed(proto: bytes) -> str:
    """HLO text of a module, checked by XLA's parser of protobufs."""
    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return _hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string(options)


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


def _with_plain_layouts(stablehlo: bytes) -> bytes:
    """The module with row-major results: on its way here XLA was left to choose any layout.

    Bytecode in and out: as text, StableHLO of some programs does not parse.
    """
    with mlir.make_ir_context():
        module = ir.Module.parse(stablehlo)
        plain = ir.ArrayAttr.get([])
        for function in module.body.operations:
            for key in ("arg_attrs", "res_attrs"):
                kept = [_without_layout(item) for item in function.attributes.get(key, plain)]
                if kept:
                    function.attributes[key] = ir.ArrayAttr.get(kept)
        out = io.BytesIO()
        module.operation.write_bytecode(out)
    return out.getvalue()


def _without_layout(attributes: ir.DictAttr) -> ir.DictAttr:
    kept = {item.name: item.attr for item in attributes if item.name != "mhlo.layout_mode"}
    return ir.DictAttr.get(kept)


def run(proto: bytes, inputs: Sequence[Sequence[Array]], ranks: int = 1) -> list[list[Array]]:
    """Run a module through XLA's own route: per rank the outputs for that rank's arguments."""
    executable = pjrt.compile_text(_with_plain_layouts(_jax.mlir.hlo_to_stablehlo(proto)), ranks)
    buffers = [pjrt.put([given[index] for given in inputs]) for index in range(len(inputs[0]))]
    results = pjrt.launch(executable, buffers)
    return [[np.asarray(result[rank]) for result in results] for rank in range(ranks)]
