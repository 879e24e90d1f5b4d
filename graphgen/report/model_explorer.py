"""Convert programs to graphs for Google's Model Explorer.

The format is its ``GraphCollection``: nodes with a namespace, incoming edges by node and output,
and free attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.analysis.overview import Overview
from graphgen.ir import Op, Value
from graphgen.ir.loc import UNKNOWN
from graphgen.json_value import Json
from graphgen.ops.external import shown_name
from graphgen.text.grammar import format_attr
from graphgen.text.printer import value_names

_LONGEST = 400


def model_explorer(title: str, items: Sequence[Overview]) -> Json:
    """The ``GraphCollection`` of these programs, one graph each."""
    return [{"label": title, "graphs": [_graph(item) for item in items]}]


def _graph(item: Overview) -> Json:
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
    for number, op in enumerate(function.block):
        source.update((result, (str(number), i)) for i, result in enumerate(op.results))
        nodes.append(_node(op, str(number), source, names, item.layer_of))
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


def _node(
    op: Op,
    number: str,
    source: Mapping[Value, tuple[str, int]],
    names: Mapping[Value, str],
    layer_of: Mapping[Op, str],
) -> Json:
    attrs = [_pair(key, _text(op, key)) for key in op.attrs]
    if op.loc is not UNKNOWN:
        attrs.append(_pair("line", f"{op.loc.file}:{op.loc.line}"))
        if op.loc.via:
            attrs.append(_pair("passes", ", ".join(op.loc.via)))
    scope = op.loc.scope or layer_of.get(op, "")
    return {
        "id": number,
        "label": shown_name(op),
        "namespace": scope.replace(".", "/"),
        "attrs": attrs,
        "incomingEdges": [_edge(source[value], place) for place, value in enumerate(op.operands)],
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
