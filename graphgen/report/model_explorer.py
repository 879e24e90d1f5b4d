"""Convert programs to graphs for Google's Model Explorer.

The format is its ``GraphCollection``: nodes with a namespace, incoming edges by node and output,
and free attributes. Bodies, conditions and branches are in the same graph: in a namespace of the op
that runs them, with edges from its operands to their arguments and from their outputs to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.analysis.calls import inlined
from graphgen.analysis.overview import Overview
from graphgen.ir import Function, Module, Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.ops.control import SCALAR, branch_operands, callees
from graphgen.ops.external import shown_name
from graphgen.text.grammar import format_attr
from graphgen.text.printer import value_names

_LONGEST = 400


def model_explorer(module: Module, items: Sequence[Overview]) -> Json:
    """The ``GraphCollection`` of programs of a module, one graph each."""
    return [{"label": module.name, "graphs": [_graph(module, item) for item in items]}]


def _graph(module: Module, item: Overview) -> Json:
    function = item.function
    names = {value: name[1:] for value, name in value_names(function).items()}
    nodes: list[Json] = [
        {
            "id": f"argument {index}",
            "label": names[value],
            "namespace": kind,
            "attrs": [_pair("position", str(index))],
            "incomingEdges": [],
            "outputsMetadata": [_tensor(0, value, names)],
        }
        for kind, index, value in _arguments(item)
    ]
    source: dict[Value, tuple[str, int]] = {
        value: (f"argument {index}", 0) for index, value in enumerate(function.args)
    }
    nodes += _ops(module, function, "", "", source, item.layer_of)
    nodes += [
        {
            "id": f"output {index}",
            "label": name,
            "namespace": "outputs",
            "attrs": [_pair("position", str(index))],
            "incomingEdges": [_edge(source[value], 0)],
            "outputsMetadata": [],
        }
        for index, (name, value) in enumerate(function.outputs)
    ]
    return {"id": function.name, "nodes": nodes}


def _arguments(item: Overview) -> list[tuple[str, int, Value]]:
    kinds = {value: part.kind for part in item.parts for value in part.values}
    return [(kinds[value], index, value) for index, value in enumerate(item.function.args)]


_Source = dict[Value, tuple[str, int]]


def _ops(
    module: Module,
    function: Function,
    prefix: str,
    space: str,
    source: _Source,
    layer_of: Mapping[Op, str],
) -> list[Json]:
    """The nodes of a function's ops, and of what they run.

    Args:
        module: has the functions that are run.
        function: without calls.
        prefix: of the ids of its nodes.
        space: namespace around it; empty for a program.
        source: node and output of each value; those of the function are added.
        layer_of: layer of ops without a scope.
    """
    names = {value: name[1:] for value, name in value_names(function).items()}
    nodes: list[Json] = []
    for number, op in enumerate(function.block):
        id, scope = f"{prefix}{number}", (op.loc.scope or layer_of.get(op, "")).replace(".", "/")
        home = "/".join(filter(None, (space, scope)))
        inner: list[Json] = []
        run = () if op.name in SCALAR else callees(op)
        for role, name, given in zip(_roles(op), run, _given(op), strict=bool(run)):
            body = inlined(module, module.function(name))
            inside = "/".join(filter(None, (home, f"{op.name} {names[op.results[0]]}", role)))
            nodes += _entry(body, f"{id}.{role}.", inside, given, source)
            nodes += _ops(module, body, f"{id}.{role}.", inside, source, layer_of)
            base = len(op.operands) + len(inner)
            inner += [_edge(source[v], base + at) for at, (_, v) in enumerate(body.outputs)]
        nodes.append(_node(op, id, home, source, names, inner))
        source.update((result, (id, i)) for i, result in enumerate(op.results))
    return nodes


def _roles(op: Op) -> list[str]:
    if op.name == "while":
        return ["condition", "body"]
    return [f"branch {at}" for at in range(len(callees(op)))]


def _given(op: Op) -> list[tuple[Value, ...]]:
    """The operands that each function of a loop or a choice begins with."""
    return branch_operands(op) if op.name == "conditional" else [op.operands] * len(callees(op))


def _entry(
    body: Function, prefix: str, space: str, given: Sequence[Value], source: _Source
) -> list[Json]:
    """The arguments of a function, with edges from what it begins with."""
    names = {value: name[1:] for value, name in value_names(body).items()}
    nodes: list[Json] = []
    for at, (value, operand) in enumerate(zip(body.args, given, strict=True)):
        id = f"{prefix}argument {at}"
        nodes.append(
            {
                "id": id,
                "label": names[value],
                "namespace": space,
                "attrs": [_pair("position", str(at))],
                "incomingEdges": [_edge(source[operand], 0)],
                "outputsMetadata": [_tensor(0, value, names)],
            }
        )
        source[value] = (id, 0)
    return nodes


def _node(
    op: Op,
    id: str,
    space: str,
    source: Mapping[Value, tuple[str, int]],
    names: Mapping[Value, str],
    inner: Sequence[Json],
) -> Json:
    attrs = [_pair(key, _text(op, key)) for key in op.attrs]
    if op.loc is not UNKNOWN:
        attrs.append(_pair("line", f"{op.loc.file}:{op.loc.line}"))
        if op.loc.via:
            attrs.append(_pair("passes", ", ".join(op.loc.via)))
    edges: list[Json] = [_edge(source[value], at) for at, value in enumerate(op.operands)]
    return {
        "id": id,
        "label": shown_name(op),
        "namespace": space,
        "attrs": attrs,
        "incomingEdges": [*edges, *inner],
        "outputsMetadata": [_tensor(i, value, names) for i, value in enumerate(op.results)],
    }


def _text(op: Op, key: str) -> str:
    value = op.attrs[key]
    text = value if isinstance(value, str) else format_attr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _edge(source: tuple[str, int], place: int) -> Json:
    node, output = source
    return {
        "sourceNodeId": node,
        "sourceNodeOutputId": str(output),
        "targetNodeInputId": str(place),
    }


def _tensor(index: int, value: Value, names: Mapping[Value, str]) -> Json:
    pairs = [_pair("__tensor_tag", names[value]), _pair("tensor_shape", value.type.text)]
    if value.type.static:
        pairs.append(_pair("bytes", str(value.type.nbytes)))
    return {"id": str(index), "attrs": pairs}


def _pair(key: str, value: str) -> Json:
    return {"key": key, "value": value}
