"""A StableHLO module as a module of ours: one program, its interface and its states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import MAIN, RANK, Function, Module, Role, TensorType, Value, entry, tensor
from graphgen.ir.dtype import s32
from graphgen.ir.names import claim_name
from graphgen.lowering.names import clean_name
from graphgen.lowering.stablehlo.read_function import FunctionReader, Source
from graphgen.lowering.stablehlo.read_grammar import Parsed
from graphgen.lowering.stablehlo.read_locs import Locations
from graphgen.lowering.stablehlo.read_names import given_name
from graphgen.lowering.stablehlo.read_tokens import Tokens
from graphgen.lowering.stablehlo.read_tree import Argument, Attribute, Node
from graphgen.lowering.stablehlo.read_types import read_tensor_type
from graphgen.ops import OPS, verify


def read_module(parsed: Parsed, tokens: Tokens, *, own_lines: bool = True) -> Module:
    """The module of a tree.

    The program is ``@main``, else the only public function. Arguments keep their names: those of
    the text unless a printer made them up, else those of their locations. An argument whose buffer
    is given to an output (``tf.aliasing_output``, ``jax.buffer_donor``) is a state, and the output
    takes its name. The level is ``logical``, or ``sharded`` where there are several replicas.

    Raises:
        GraphgenError: GG0201 no function, and what reading its ops raises.
    """
    top, body = _top(parsed, tokens)
    callees = {str(node.attrs.get("sym_name")): node for node in body if node.name == "func.func"}
    main = _main(callees, tokens)
    source = Source(tokens, Locations(parsed.locs, tokens.filename, own_lines), callees)
    attrs = top.attrs if top is not None else {}
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
    if source.dropped:
        counts = (f"{what} ({count} ops)" for what, count in source.dropped.items())
        module.meta["dropped"] = ", ".join(counts)
    verify(module)
    return module


def _top(parsed: Parsed, tokens: Tokens) -> tuple[Node | None, Sequence[Node]]:
    """The module op, if it is written, and what is inside."""
    nodes = parsed.nodes
    if len(nodes) == 1 and nodes[0].name == "builtin.module" and nodes[0].regions:
        return nodes[0], nodes[0].regions[0].body
    if not nodes:
        raise tokens.error("the text holds no module", 0)
    return None, nodes


def _main(callees: Mapping[str, Node], tokens: Tokens) -> Node:
    if "main" in callees:
        return callees["main"]
    public = [n for n in callees.values() if n.attrs.get("sym_visibility") != "private"]
    if len(public) == 1:
        return public[0]
    names = ", ".join(f"@{name}" for name in callees) or "none"
    raise tokens.error("the module has no function @main", 0, f"its functions: {names}")


def _fill(
    source: Source,
    module: Module,
    function: Function,
    main: Node,
    attrs: Mapping[str, Attribute],
) -> None:
    """Arguments, ops, outputs and the interface table."""
    if not main.regions:
        raise source.fail(main, GraphgenError("GG0201", f"@{function.name} has no body"))
    region = main.regions[0]
    names = _argument_names(source, region.args)
    values: dict[str, Value] = {}
    for argument, name in zip(region.args, names, strict=True):
        try:
            type_ = read_tensor_type(argument.type)
        except GraphgenError as error:
            raise source.fail(main, error) from error
        values[argument.name] = function.block.add_arg(type_, name)
    reader = FunctionReader(source, function, values)
    returned = reader.body(region.body)
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


def _argument_names(source: Source, args: Sequence[Argument]) -> list[str]:
    taken: set[str] = set()
    names: list[str] = []
    for index, argument in enumerate(args):
        chosen = given_name(argument.name) or source.locations.name(argument.loc)
        names.append(claim_name(clean_name(chosen, f"arg{index}"), taken))
    return names


def _attr_dicts(node: Node, key: str) -> list[dict[str, Attribute]]:
    """The attributes of each argument or result."""
    value = node.attrs.get(key, ())
    items = value if isinstance(value, tuple) else ()
    return [item if isinstance(item, dict) else {} for item in items]


def _donated(main: Node, args: Sequence[Value], returned: Sequence[Value]) -> dict[int, int]:
    """Argument to the output that takes over its buffer.

    A donor names no output: as in XLA it is the first of its type that nobody has taken.
    """
    found: dict[int, int] = {}
    attrs = _attr_dicts(main, "arg_attrs")
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
    """Whether output ``target`` may take over the buffer of argument ``index``."""
    types: list[TensorType] = [value.type for value in returned]
    return target < len(types) and index < len(args) and types[target] is args[index].type


def _aliased(attrs: Mapping[str, Attribute]) -> dict[int, int]:
    """The same of ``mhlo.input_output_alias``, which modules that were HLO have."""
    found: dict[int, int] = {}
    rows = attrs.get("mhlo.input_output_alias", ())
    for row in rows if isinstance(rows, tuple) else ():
        alias = row.get("alias") if isinstance(row, dict) else None
        target = row.get("output_index") if isinstance(row, dict) else None
        number = alias.get("parameter_number") if isinstance(alias, dict) else None
        if isinstance(number, int) and isinstance(target, tuple):
            output = target[0] if target else 0
            if isinstance(output, int):
                found[number] = output
    return found


def _output_names(
    main: Node, names: Sequence[str], returned: Sequence[Value], given: Mapping[int, int]
) -> list[str]:
    infos = _attr_dicts(main, "res_attrs")
    states = {target: names[index] for index, target in given.items()}
    taken = set(names)
    out: list[str] = []
    for index in range(len(returned)):
        info = infos[index].get("jax.result_info", "") if index < len(infos) else ""
        name = clean_name(str(info), "result" if len(returned) == 1 else f"result.{index}")
        out.append(states[index] if index in states else claim_name(name, taken))
    return out
