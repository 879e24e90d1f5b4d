"""Emits a program as an HloModuleProto in the form that AWS's tools write for ``neuronx-cc``.

By that contract: ids count up from 1 over the whole module and fit in 32 bits; computations come
before those that call them; every shape has its layout; parameters carry their names as
``neff_input_names``, the root ``neff_output_names``; a state is a parameter that must alias its
output; an output that is a parameter goes through a copy; replica groups are listed, in the field
the oldest readers know, without channels; no instruction is without metadata that could have some.
"""

from __future__ import annotations

from graphgen.ir import Function, Module
from graphgen.lowering.abi import donated
from graphgen.lowering.hlo.computation_emitter import ModuleEmitter
from graphgen.lowering.hlo.proto import wire
from graphgen.lowering.hlo.proto.fields import AliasField, ModuleField
from graphgen.lowering.hlo.proto.instruction import Chunk, program_shape


def emit_hlo(module: Module, function: Function) -> bytes:
    """Emit one program as an HloModuleProto; :func:`hlo_chunks` gives it in pieces.

    Args:
        module: at level ``target``, with the shapes of one rank.
        function: one of its functions, which becomes the entry computation.

    Raises:
        GraphgenError: GG0401 for an op HLO has no form of, GG0106 for unbound symbols.
    """
    return b"".join(hlo_chunks(module, function))


def hlo_chunks(module: Module, function: Function, *, metadata: bool = True) -> list[Chunk]:
    """Emit one program as an HloModuleProto in pieces, without a copy of its constants.

    Args:
        module: at level ``target``.
        function: the program.
        metadata: write op types, op names and source lines of instructions.
    """
    emitter = ModuleEmitter(module, metadata=metadata)
    entry = emitter.entry(function)
    program = program_shape(
        [value.type for value in function.args], [value.type for _, value in function.outputs],
        [value.name or "" for value in function.args],
    )  # fmt: skip
    out: list[Chunk] = [
        wire.text(ModuleField.NAME, module.name),
        wire.text(ModuleField.ENTRY_NAME, function.name),
    ]
    for computation in emitter.writer.computations:
        out.append(wire.head(ModuleField.COMPUTATIONS, sum(map(len, computation))))
        out += computation
    out += [
        wire.delimited(ModuleField.PROGRAM_SHAPE, program),
        wire.integer(ModuleField.ENTRY_ID, entry),
        _aliases(module, function),
        _donors(module, function),
    ]
    return out


def _donors(module: Module, function: Function) -> bytes:
    """HloBufferDonorProto: arguments whose buffers any output may reuse, from ``meta``."""
    given = module.meta.get("donated", "").split(", ")
    entries = [
        wire.delimited(AliasField.ENTRIES, wire.integer(AliasField.DONOR_PARAMETER, index))
        for index, value in enumerate(function.args)
        if value.name in given
    ]
    return wire.delimited(ModuleField.DONORS, b"".join(entries)) if entries else b""


def _aliases(module: Module, function: Function) -> bytes:
    """HloInputOutputAliasProto: each state's output shares the buffer of its parameter."""
    single = len(function.outputs) == 1
    entries = [
        wire.delimited(
            AliasField.ENTRIES,
            wire.integers(AliasField.OUTPUT_INDEX, () if single else (output,))
            + wire.integer(AliasField.PARAMETER, parameter)
            + wire.integer(AliasField.KIND, AliasField.MUST_ALIAS),
        )
        for parameter, output in donated(module, function).items()
    ]
    return wire.delimited(ModuleField.ALIAS, b"".join(entries)) if entries else b""
