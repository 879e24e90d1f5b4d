"""Emits a program as an HloModuleProto in the form that AWS's tools write for ``neuronx-cc``.

By that contract: ids count up from 1 over the whole module and fit in 32 bits; computations come
before those that call them; every shape has its layout; parameters carry their names as
``neff_input_names``, the root ``neff_output_names``; a state is a parameter that must alias its
output; an output that is a parameter goes through a copy; replica groups are listed, in the field
the oldest readers know, without channels; no instruction is without metadata that could have some.
"""

from __future__ import annotations

from graphgen.gc_pause import paused_collector
from graphgen.ir import Function, Module, Value
from graphgen.lowering.abi import donated
from graphgen.lowering.hlo.computation_emitter import ModuleEmitter
from graphgen.lowering.hlo.module_annotations import (
    MAY_ALIAS,
    SCHEDULED,
    encode_module_annotations,
    encode_schedule,
    entry_layout,
)
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import AliasField, ModuleField
from graphgen.lowering.hlo_proto.instruction import Chunk, result_shape, shapes_of_computation
from graphgen.lowering.hlo_proto.shape import HloShape, shape_of


def emit_hlo(module: Module, function: Function) -> bytes:
    """Emit one program as an HloModuleProto; :func:`hlo_chunks` gives it in pieces.

    Args:
        module: at level ``target``, with the shapes of one rank.
        function: one of its functions, which becomes the entry computation.

    Raises:
        GraphgenError: GG0401 for an op HLO has no form of, GG0106 for unbound symbols.
    """
    return b"".join(hlo_chunks(module, function))


@paused_collector()
def hlo_chunks(module: Module, function: Function, *, metadata: bool = True) -> list[Chunk]:
    """Emit one program as an HloModuleProto in pieces, without a copy of its constants.

    Args:
        module: at level ``target``.
        function: the program.
        metadata: write op types, op names and source lines of instructions.
    """
    emitter = ModuleEmitter(module, metadata=metadata)
    entry = emitter.entry(function)
    program = _program_shape(module, function)
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
        encode_module_annotations(module),
    ]
    if SCHEDULED in module.meta:
        out.append(encode_schedule(emitter.scheduled()))
    return out


def _program_shape(module: Module, function: Function) -> bytes:
    """The shapes of the program: with layouts only where the file it was read from had any."""
    stated = entry_layout(module)
    types = [shape_of(value.type) for value in function.args]
    result = result_shape([value.type for _, value in function.outputs])
    names = [value.name or "" for value in function.args]
    if stated is None:
        return shapes_of_computation(types, result, names)
    shapes, whole = stated
    flat = [leaf for shape in shapes for leaf in shape.leaves]
    kinds = [[(leaf.element, leaf.dims) for leaf in leaves] for leaves in (flat, types)]
    ends = [[(leaf.element, leaf.dims) for leaf in item.leaves] for item in (whole, result)]
    if kinds[0] != kinds[1] or ends[0] != ends[1]:
        # Passes changed the interface: the layouts are of another one.
        return shapes_of_computation(types, result, names)
    given = HloShape("tuple", members=whole.leaves) if result.is_tuple else whole.leaves[0]
    return shapes_of_computation(flat, given, names, layout=True)


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
    loose = module.meta.get(MAY_ALIAS, "").split(", ")

    def kind(value: Value) -> int:
        return AliasField.MAY_ALIAS if value.name in loose else AliasField.MUST_ALIAS

    entries = [
        wire.delimited(
            AliasField.ENTRIES,
            wire.integers(AliasField.OUTPUT_INDEX, () if single else (output,))
            + wire.integer(AliasField.PARAMETER, parameter)
            + wire.integer(AliasField.KIND, kind(function.args[parameter])),
        )
        for parameter, output in donated(module, function).items()
    ]
    return wire.delimited(ModuleField.ALIAS, b"".join(entries)) if entries else b""
