"""Reader of StableHLO: text in any form, bytecode, portable artifacts.

The text of this package's emitter, and most text of other compilers, is parsed here, without JAX.
Bytecode, and assembly forms that the parser does not know, go through jaxlib's MLIR, which prints
them in the generic form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from graphgen.errors import GraphgenError
from graphgen.ir import (
    MAIN,
    RANK,
    Function,
    Literal,
    Module,
    Role,
    TensorType,
    Value,
    attrs_of,
    entry,
    symbol,
    tensor,
)
from graphgen.ir.dtype import s32
from graphgen.ir.names import claim_name
from graphgen.lowering.abi import clean_name
from graphgen.lowering.mlir.mlir_locations import MlirLocations
from graphgen.lowering.mlir.mlir_parser import MlirText, parse_mlir
from graphgen.lowering.mlir.mlir_types import (
    ANY_SIZE,
    fits_type,
    is_open,
    read_bounded_type,
    read_tensor_type,
    type_text,
)
from graphgen.lowering.mlir.syntax_tree import BlockArgument, MlirAttr, MlirAttrs, MlirOp, SymbolRef
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
from graphgen.lowering.stablehlo.quantized_arithmetic import plain_type
from graphgen.lowering.stablehlo.read_context import BoundArguments, StableHloText
from graphgen.lowering.stablehlo.read_function import StableHloFunctionReader
from graphgen.ops import OPS, verify


def read_module(
    parsed: MlirText,
    tokens: MlirTokens,
    *,
    own_lines: bool = True,
    bound: BoundArguments | None = None,
) -> Module:
    """Read the module of a syntax tree.

    The program is ``@main``; without one, each public function that no other calls is one.
    Arguments keep their names: those of the text unless a printer generated them, else those of
    their locations. An argument whose buffer is donated to an output (``tf.aliasing_output``,
    ``jax.buffer_donor``) is a state, and the output takes its name. The level is ``logical``, or
    ``sharded`` with several replicas.

    Raises:
        GraphgenError: GG0201 no function, and the errors of reading its ops.
    """
    top, body = _top(parsed, tokens)
    callees = {str(node.attrs.get("sym_name")): node for node in body if node.name == "func.func"}
    mains = _programs(callees, tokens)
    source = StableHloText(tokens, MlirLocations(parsed.locs, tokens.filename, own_lines), callees)
    source.meshes, source.aliases = meshes_of(body), parsed.aliases
    source.bound = bound
    attrs = top.attrs if top is not None else MlirAttrs()
    ranks = attrs.get("mhlo.num_replicas", 1)
    module = Module(clean_name(str(attrs.get("sym_name", "")), "module"))
    if isinstance(ranks, int) and ranks > 1:
        module.mesh["replica"] = ranks
    names = [claim_name(clean_name(str(n.attrs["sym_name"]), "main"), source.names) for n in mains]
    # Each of several programs is a phase of its own, which runs alone.
    programs = [Function(name, MAIN if len(names) == 1 else name) for name in names]
    for function, main in zip(programs, mains, strict=True):
        _fill(source, module, function, main, attrs)
    for item in (*source.functions, *programs):
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
    modules = sum(node.name == "builtin.module" for node in nodes)
    if modules > 1:
        help_ = "write one module a file: mlir-opt splits such texts at '// -----'"
        raise tokens.error(f"the text holds {modules} modules", 0, help_)
    return None, nodes


def _programs(callees: Mapping[str, MlirOp], tokens: MlirTokens) -> list[MlirOp]:
    if "main" in callees:
        return [callees["main"]]
    public = [n for n in callees.values() if n.attrs.get("sym_visibility") != "private"]
    called = {name for node in callees.values() for name in _called(node)}
    found = [n for n in public if str(n.attrs.get("sym_name")) not in called] or public
    if found:
        return found
    names = ", ".join(f"@{name}" for name in callees) or "none"
    what = "the module has no function @main, and no other public one"
    raise tokens.error(what, 0, f"its functions: {names}")


def _called(node: MlirOp) -> Iterator[str]:
    """The functions that the ops inside of a function call."""
    for region in node.regions:
        for inner in region.body:
            for key in ("callee", "decomposition"):
                symbol = inner.attrs.get(key)
                if isinstance(symbol, SymbolRef):
                    yield symbol.name
            yield from _called(inner)


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
    try:
        types = [read_bounded_type(argument.type) for argument in region.args]
    except GraphgenError as error:
        raise source.fail(main, error) from error
    names = _argument_names(source, region.args)
    stated = [type_ for type_, _ in types]
    types = [(_argument_type(source, n, t), d) for n, (t, d) in zip(names, types, strict=True)]
    # Programs of one module share its table of names.
    donors = _aliased(attrs).keys() | _donors(main)
    names = [
        _shared_name(module, function, name, type_, Role.STATE if index in donors else Role.INPUT)
        for index, (name, (type_, _)) in enumerate(zip(names, types, strict=True))
    ]
    values: dict[str, Value] = {}
    for argument, name, (type_, dynamic) in zip(region.args, names, types, strict=True):
        value = values[argument.name] = function.block.add_arg(type_, name)
        value.annotations = attrs_of(bounds_annotation(type_, dynamic))
    for argument, type_ in zip(region.args, stated, strict=True):
        if source.plain and type_.dtype.is_quantized:
            source.quantized[values[argument.name]] = type_.dtype
    reader = StableHloFunctionReader(source, function, values)
    for argument, name in zip(region.args, names, strict=True):
        known = source.bound.values.get(name) if source.bound else None
        if known is not None:
            literal = Literal.of(values[argument.name].dtype, known)
            values[argument.name] = reader.emit("constant", (), value=literal)
    returned = reader.body(region.body)
    annotate_program(function, main, source.meshes)
    given = {**_donated(main, function.args, returned), **_aliased(attrs)}
    outputs = _output_names(main, names, returned, given)
    outputs = [
        name if name in names else _shared_name(module, function, name, value.type, Role.OUTPUT)
        for name, value in zip(outputs, returned, strict=True)
    ]
    function.outputs = list(zip(outputs, returned, strict=True))
    reader.sweep()
    _interface(module, function, {names[index] for index in given})


def _argument_type(source: StableHloText, name: str, type_: TensorType) -> TensorType:
    """The type of an argument: with the sizes that are given, else a symbol for each open one."""
    if source.plain:
        type_ = plain_type(type_)
    if not is_open(type_):
        return type_
    given = source.bound.sizes.get(name) if source.bound else None
    if given is None:
        stem = re.sub(r"\W", "_", name)
        sizes = [
            symbol(f"{stem}_{place}") if size is ANY_SIZE else size
            for place, size in enumerate(type_.shape)
        ]
        return tensor(type_.dtype, sizes)
    made = tensor(type_.dtype, given)
    if not fits_type(made, type_):
        what = f"argument {name} is {type_text(type_)}, and is given as {made.text}"
        raise GraphgenError("GG0105", what)
    return made


def _shared_name(
    module: Module, function: Function, name: str, type_: TensorType, role: Role
) -> str:
    """A name in the module's table; the function's before it where another program has it."""
    row = module.interface.get(name)
    same = row is None or (row.logical is type_ and row.role is role)
    return name if same else f"{function.name}.{name}"


def _donors(main: MlirOp) -> set[int]:
    """The arguments that the text gives away."""
    keys = ("tf.aliasing_output", "jax.buffer_donor")
    given = enumerate(attribute_dicts(main, "arg_attrs"))
    return {index for index, attrs in given if any(key in attrs for key in keys)}


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


def read_stablehlo(
    data: str | bytes, filename: str = "<stablehlo>", bound: BoundArguments | None = None
) -> Module:
    """Read the module in StableHLO text, bytecode or a portable artifact.

    Args:
        data: the contents of a file.
        filename: for error messages, and for the locations of ops that have none.
        bound: sizes and values of arguments, where the text leaves sizes open.

    Raises:
        GraphgenError: GG0201 syntax, GG0103 an op that is not modelled, GG0101 and GG0102 types
            that are not, GG0705 where only jaxlib could read it and it is not installed.
    """
    if isinstance(data, bytes):
        if data.startswith(BYTECODE):
            return _read_text(_generic(data, filename), filename, own_lines=False, bound=bound)
        data = _decoded(data, filename)
    try:
        return _read_text(data, filename, bound=bound)
    except UnknownForm as unread:
        if "!quant." in data:
            # jaxlib does not have MLIR's dialect of quantized types.
            unread.error.help = "print the generic form: stablehlo-opt --mlir-print-op-generic"
            raise unread.error from unread
        text = _generic(data, filename, unread.error)
        return _read_text(text, filename, own_lines=False, bound=bound)


# Element types may have parameters: ``tensor<2xcomplex<f32>>``.
_TENSORS = re.compile(r"tensor<(?:[^<>]|<[^<>]*>)*>")


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
        [read_tensor_type(text) for text in _TENSORS.findall(results)],
    )


def _signature(text: str, filename: str) -> tuple[list[str], list[BlockArgument], str]:
    """Names and arguments of the program, and its results where the form is generic."""
    parsed, tokens = parse_mlir(text, filename, parse_assembly), MlirTokens(text, filename)
    _, body = _top(parsed, tokens)
    callees = {str(node.attrs.get("sym_name")): node for node in body if node.name == "func.func"}
    main, *_ = _programs(callees, tokens)
    source = StableHloText(tokens, MlirLocations(parsed.locs, filename, False), callees)
    args = main.regions[0].args if main.regions else []
    _, _, results = main.attrs.text("function_type").rpartition(" -> ")
    return _argument_names(source, args), args, results


def _read_text(
    text: str, filename: str, *, own_lines: bool = True, bound: BoundArguments | None = None
) -> Module:
    parsed = parse_mlir(text, filename, parse_assembly)
    tokens = MlirTokens(text, filename)
    return read_module(parsed, tokens, own_lines=own_lines, bound=bound)


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
