"""Reader of StableHLO: text in any form, bytecode, portable artifacts.

The text of this package's emitter, and most text of other compilers, is parsed here, without JAX.
Bytecode, and assembly forms that the parser does not know, go through jaxlib's MLIR, which prints
them in the generic form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import (
    MAIN,
    RANK,
    Function,
    Module,
    Role,
    TensorType,
    Value,
    attrs_of,
    entry,
    tensor,
)
from graphgen.ir.dtype import s32
from graphgen.ir.names import claim_name
from graphgen.lowering.abi import clean_name
from graphgen.lowering.mlir.mlir_locations import MlirLocations
from graphgen.lowering.mlir.mlir_parser import MlirText, parse_mlir
from graphgen.lowering.mlir.mlir_types import read_bounded_type, read_tensor_type
from graphgen.lowering.mlir.syntax_tree import BlockArgument, MlirAttr, MlirAttrs, MlirOp
from graphgen.lowering.mlir.tokens import MlirTokens, UnknownForm
from graphgen.lowering.mlir.value_names import author_name
from graphgen.lowering.stablehlo.bounded_sizes import bounds_annotation
from graphgen.lowering.stablehlo.dialect import parse_assembly
from graphgen.lowering.stablehlo.module_notes import (
    annotate_program,
    attribute_dicts,
    meshes_of,
    module_notes,
)
from graphgen.lowering.stablehlo.read_context import StableHloText
from graphgen.lowering.stablehlo.read_function import StableHloFunctionReader
from graphgen.ops import OPS, verify


def read_module(parsed: MlirText, tokens: MlirTokens, *, own_lines: bool = True) -> Module:
    """Read the module of a syntax tree.

    The program is ``@main``, else the only public function. Arguments keep their names: those of
    the text unless a printer generated them, else those of their locations. An argument whose
    buffer is donated to an output (``tf.aliasing_output``, ``jax.buffer_donor``) is a state, and
    the output takes its name. The level is ``logical``, or ``sharded`` with several replicas.

    Raises:
        GraphgenError: GG0201 no function, and the errors of reading its ops.
    """
    top, body = _top(parsed, tokens)
    callees = {str(node.attrs.get("sym_name")): node for node in body if node.name == "func.func"}
    main = _main(callees, tokens)
    source = StableHloText(tokens, MlirLocations(parsed.locs, tokens.filename, own_lines), callees)
    source.meshes, source.aliases = meshes_of(body), parsed.aliases
    attrs = top.attrs if top is not None else MlirAttrs()
    ranks = attrs.get("mhlo.num_replicas", 1)
    module = Module(clean_name(str(attrs.get("sym_name", "")), "module"))
    if isinstance(ranks, int) and ranks > 1:
        module.mesh["replica"] = ranks
    function = Function(clean_name(str(main.attrs["sym_name"]), "main"), MAIN)
    source.names.add(function.name)
    _fill(source, module, function, main, attrs)
    for item in (*source.functions, function):
        module.add(item)
    collective = any(OPS[op.name].collective for f in module.functions.values() for op in f.block)
    module.level = "sharded" if module.mesh or collective else "logical"
    module.meta["format"] = "stablehlo"
    module.meta |= module_notes(attrs, body)
    for node in body:
        if node.name not in ("func.func", "sdy.mesh"):
            source.dropped[node.name] = source.dropped.get(node.name, 0) + 1
    if source.kept:
        module.meta["opaque"] = "; ".join(
            [f"{what} ({count})" for what, count in source.kept.items()]
        )
    if source.dropped:
        counts = (f"{what} ({count} ops)" for what, count in source.dropped.items())
        module.meta["dropped"] = ", ".join(counts)
    verify(module)
    return module


def _top(parsed: MlirText, tokens: MlirTokens) -> tuple[MlirOp | None, Sequence[MlirOp]]:
    """Return the module op, if it is written, and the ops inside."""
    nodes = parsed.ops
    if len(nodes) == 1 and nodes[0].name == "builtin.module" and nodes[0].regions:
        return nodes[0], nodes[0].regions[0].body
    if not nodes:
        raise tokens.error("the text holds no module", 0)
    return None, nodes


def _main(callees: Mapping[str, MlirOp], tokens: MlirTokens) -> MlirOp:
    if "main" in callees:
        return callees["main"]
    public = [n for n in callees.values() if n.attrs.get("sym_visibility") != "private"]
    if len(public) == 1:
        return public[0]
    names = ", ".join(f"@{name}" for name in callees) or "none"
    raise tokens.error("the module has no function @main", 0, f"its functions: {names}")


def _fill(
    source: StableHloText,
    module: Module,
    function: Function,
    main: MlirOp,
    attrs: Mapping[str, MlirAttr],
) -> None:
    """Read arguments, ops, outputs and the interface table."""
    if not main.regions:
        raise source.fail(main, GraphgenError("GG0201", f"@{function.name} has no body"))
    region = main.regions[0]
    names = _argument_names(source, region.args)
    values: dict[str, Value] = {}
    for argument, name in zip(region.args, names, strict=True):
        try:
            type_, dynamic = read_bounded_type(argument.type)
        except GraphgenError as error:
            raise source.fail(main, error) from error
        value = values[argument.name] = function.block.add_arg(type_, name)
        value.annotations = attrs_of(bounds_annotation(type_, dynamic))
    reader = StableHloFunctionReader(source, function, values)
    returned = reader.body(region.body)
    annotate_program(function, main, source.meshes)
    given = {**_donated(main, function.args, returned), **_aliased(attrs)}
    outputs = _output_names(main, names, returned, given)
    function.outputs = list(zip(outputs, returned, strict=True))
    reader.sweep()
    _interface(module, function, {names[index] for index in given})


def _interface(module: Module, function: Function, states: set[str]) -> None:
    for value in function.args:
        name = value.name or ""
        if name == RANK and value.type is tensor(s32, (1,)) and module.ranks > 1:
            continue
        role = Role.STATE if name in states else Role.INPUT
        module.interface[name] = entry(role, name, value.type)
    for name, value in function.outputs:
        if name not in module.interface:
            module.interface[name] = entry(Role.OUTPUT, name, value.type)


def _argument_names(source: StableHloText, args: Sequence[BlockArgument]) -> list[str]:
    taken: set[str] = set()
    names: list[str] = []
    for index, argument in enumerate(args):
        chosen = author_name(argument.name) or source.locations.name(argument.loc)
        names.append(claim_name(clean_name(chosen, f"arg{index}"), taken))
    return names


def _donated(main: MlirOp, args: Sequence[Value], returned: Sequence[Value]) -> dict[int, int]:
    """Argument to the output that takes over its buffer.

    A donor does not name an output: as in XLA it gets the first free one of its type.
    """
    found: dict[int, int] = {}
    attrs = attribute_dicts(main, "arg_attrs")
    for index, given in enumerate(attrs):
        target = given.get("tf.aliasing_output")
        if isinstance(target, int) and _fits(args, returned, index, target):
            found[index] = target
    for index, given in enumerate(attrs):
        if given.get("jax.buffer_donor") and index not in found:
            free = (i for i in range(len(returned)) if i not in found.values())
            target = next((i for i in free if _fits(args, returned, index, i)), None)
            if target is not None:
                found[index] = target
    return found


def _fits(args: Sequence[Value], returned: Sequence[Value], index: int, target: int) -> bool:
    """Test whether output ``target`` may take over the buffer of argument ``index``."""
    types: list[TensorType] = [value.type for value in returned]
    return target < len(types) and index < len(args) and types[target] is args[index].type


def _aliased(attrs: Mapping[str, MlirAttr]) -> dict[int, int]:
    """The same of ``mhlo.input_output_alias``, which modules that were HLO have."""
    found: dict[int, int] = {}
    rows = attrs.get("mhlo.input_output_alias", ())
    for row in rows if isinstance(rows, tuple) else ():
        alias = row.get("alias") if isinstance(row, MlirAttrs) else None
        target = row.get("output_index") if isinstance(row, MlirAttrs) else None
        number = alias.get("parameter_number") if isinstance(alias, MlirAttrs) else None
        if isinstance(number, int) and isinstance(target, tuple):
            output = target[0] if target else 0
            if isinstance(output, int):
                found[number] = output
    return found


def _output_names(
    main: MlirOp, names: Sequence[str], returned: Sequence[Value], given: Mapping[int, int]
) -> list[str]:
    infos = attribute_dicts(main, "res_attrs")
    states = {target: names[index] for index, target in given.items()}
    taken = set(names)
    out: list[str] = []
    for index in range(len(returned)):
        info = infos[index].get("jax.result_info", "") if index < len(infos) else ""
        name = clean_name(str(info), "result" if len(returned) == 1 else f"result.{index}")
        out.append(states[index] if index in states else claim_name(name, taken))
    return out


BYTECODE = b"ML\xefR"


def looks_like_stablehlo(head: bytes) -> bool:
    """Test the first bytes of a file: MLIR bytecode, or text that begins like a module."""
    if head.startswith(BYTECODE):
        return True
    lines = (line.strip() for line in head.decode("utf-8", "replace").splitlines())
    first = next((line for line in lines if line and not line.startswith("//")), "")
    return first.startswith(("module", '"builtin.module"', "#", "!", "func.func"))


def read_stablehlo(data: str | bytes, filename: str = "<stablehlo>") -> Module:
    """Read the module in StableHLO text, bytecode or a portable artifact.

    Args:
        data: the contents of a file.
        filename: for error messages, and for the locations of ops that have none.

    Raises:
        GraphgenError: GG0201 syntax, GG0103 an op that is not modelled, GG0101 and GG0102 types
            that are not, GG0705 where only jaxlib could read it and it is not installed.
    """
    if isinstance(data, bytes):
        if data.startswith(BYTECODE):
            return _read_text(_generic(data, filename), filename, own_lines=False)
        data = _decoded(data, filename)
    try:
        return _read_text(data, filename)
    except UnknownForm as unread:
        if "!quant." in data:
            # jaxlib does not have MLIR's dialect of quantized types.
            unread.error.help = "print the generic form: stablehlo-opt --mlir-print-op-generic"
            raise unread.error from unread
        return _read_text(_generic(data, filename, unread.error), filename, own_lines=False)


@dataclass(frozen=True, slots=True)
class StatedInterface:
    """Interface that a module states of its program.

    Attributes:
        names: of the arguments.
        arguments, results: their types.
    """

    names: list[str]
    arguments: list[TensorType]
    results: list[TensorType]


def stated_interface(data: bytes, filename: str) -> StatedInterface:
    """The interface of the program in a module, whatever ops it has.

    Args:
        data: the contents of a file.
        filename: for error messages.
    """
    names, args, results = _signature(_generic(data, filename), filename)
    if not data.startswith(BYTECODE):
        # Their names are not in the generic form.
        with suppress(UnknownForm):
            names, _, _ = _signature(_decoded(data, filename), filename)
    return StatedInterface(
        names,
        [read_tensor_type(argument.type) for argument in args],
        [read_tensor_type(text) for text in re.findall(r"tensor<[^<>]*>", results)],
    )


def _signature(text: str, filename: str) -> tuple[list[str], list[BlockArgument], str]:
    """Names and arguments of the program, and its results where the form is generic."""
    parsed, tokens = parse_mlir(text, filename, parse_assembly), MlirTokens(text, filename)
    _, body = _top(parsed, tokens)
    callees = {str(node.attrs.get("sym_name")): node for node in body if node.name == "func.func"}
    main = _main(callees, tokens)
    source = StableHloText(tokens, MlirLocations(parsed.locs, filename, False), callees)
    args = main.regions[0].args if main.regions else []
    _, _, results = main.attrs.text("function_type").rpartition(" -> ")
    return _argument_names(source, args), args, results


def _read_text(text: str, filename: str, *, own_lines: bool = True) -> Module:
    parsed = parse_mlir(text, filename, parse_assembly)
    return read_module(parsed, MlirTokens(text, filename), own_lines=own_lines)


def _decoded(data: bytes, filename: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise GraphgenError(
            "GG0201",
            "this is neither text nor MLIR bytecode",
            where=f"{filename}, byte {error.start}",
        ) from error


def _generic(data: str | bytes, filename: str, unread: GraphgenError | None = None) -> str:
    """Print the module in the generic form, through jaxlib."""
    from graphgen.lowering.mlir.generic_form import generic_text

    try:
        return generic_text(data, filename)
    except ModuleNotFoundError as error:
        raise unread or GraphgenError(
            "GG0705", "MLIR bytecode needs jaxlib, which is not installed", where=filename
        ) from error
