"""A function as a networkx graph, for everything networkx knows about graphs.

It is a copy to look at, never the program: edges are values, and it cannot be converted back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Op, Value
from graphgen.text.printer import loc_text, value_names

if TYPE_CHECKING:
    from networkx import MultiDiGraph

    Graph = MultiDiGraph[str]


def to_networkx(function: Function) -> Graph:
    """Nodes are arguments, ops and outputs; an edge for each operand slot, so ``x*x`` has two.

    A node is called after its first value (``%x``), an output ``return y``. Nodes have ``op`` (the
    op's name, ``arg`` or ``return``), ``type``, ``scope`` and ``loc``; edges have ``value``,
    ``type`` and ``slot``. Nodes come in program order.

    Raises:
        GraphgenError: GG0705 where networkx is not installed.
    """
    try:
        from networkx import MultiDiGraph
    except ImportError as error:
        raise GraphgenError(
            "GG0705", "networkx is not installed", help="pip install networkx"
        ) from error
    graph: Graph = MultiDiGraph(name=function.name)
    names = value_names(function)
    for value in function.args:
        graph.add_node(names[value], op="arg", type=value.type.text, scope="", loc="")
    for op in function.block:
        node = _node(op, names)
        types = ", ".join(result.type.text for result in op.results)
        where = loc_text(op.loc)
        graph.add_node(node, op=op.name, type=types, scope=op.loc.scope, loc=where)
        for slot, value in enumerate(op.operands):
            _edge(graph, value, node, slot, names)
    for name, value in function.outputs:
        node = f"return {name}"
        graph.add_node(node, op="return", type=value.type.text, scope="", loc="")
        _edge(graph, value, node, 0, names)
    return graph


def _node(op: Op, names: dict[Value, str]) -> str:
    return names[op.results[0]] if op.results else f"{op.name} {id(op)}"


def _edge(graph: Graph, value: Value, node: str, slot: int, names: dict[Value, str]) -> None:
    source = names[value] if value.op is None else _node(value.op, names)
    graph.add_edge(source, node, value=names[value], type=value.type.text, slot=slot)
