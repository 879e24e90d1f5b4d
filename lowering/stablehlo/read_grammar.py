"""MLIR text as a tree of ops: modules, functions, the generic form; pretty forms by their table."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphgen.lowering.stablehlo.read_attrs import read_attr, read_dict, read_type, read_types
from graphgen.lowering.stablehlo.read_pretty import read_pretty
from graphgen.lowering.stablehlo.read_tokens import Tokens, unquoted
from graphgen.lowering.stablehlo.read_tree import (
    Argument,
    Attribute,
    Node,
    Region,
    Symbol,
    TypeText,
)


@dataclass(slots=True)
class Parsed:
    """What a text holds.

    Attributes:
        nodes: the ops at the top, in order; usually one ``builtin.module``.
        locs: what location aliases stand for, as text.
    """

    nodes: list[Node] = field(default_factory=list[Node])
    locs: dict[str, str] = field(default_factory=dict[str, str])


def read_tree(text: str, filename: str) -> Parsed:
    """The ops of a text.

    Raises:
        GraphgenError: GG0201 with file, line and column.
        Unread: a form that only jaxlib's parser knows.
    """
    t = Tokens(text, filename)
    out = Parsed()
    while t.kind != "end":
        if t.kind == "alias":
            name = t.advance()
            t.expect("=")
            if t.text == "loc":
                out.locs[name] = read_loc(t)
            else:
                read_attr(t)
        else:
            out.nodes.append(read_op(t))
    return out


def read_loc(t: Tokens) -> str:
    """``loc(...)`` as the text inside, empty where there is none."""
    if not t.take("loc"):
        return ""
    start, depth = t.at + 1, 0
    while t.kind != "end":
        depth += {"(": 1, ")": -1}.get(t.text, 0)
        end = t.at
        t.advance()
        if depth == 0:
            return t.source[start:end]
    raise t.error("expected ')'")


def read_op(t: Tokens) -> Node:
    """One op with everything that belongs to it, its location included."""
    t.deeper()
    at = t.at
    results = _results(t)
    if t.kind == "string":
        node = _generic(t, Node(unquoted(t.advance()), at, results))
    else:
        name = t.need("word", "an op")
        node = Node(_FULL_NAMES.get(name, name), at, results)
        structure = _STRUCTURES.get(node.name)
        if structure is not None:
            structure(t, node)
        else:
            read_pretty(t, node, read_region)
    node.loc = read_loc(t) or node.loc
    _check_results(t, node)
    t.shallower()
    return node


_FULL_NAMES = {
    "module": "builtin.module",
    "call": "func.call",
    "return": "func.return",
    "constant": "arith.constant",
}


def _results(t: Tokens) -> list[str]:
    """``%a, %b =`` or ``%a:2 =``."""
    out: list[str] = []
    while t.kind == "value":
        name, _, count = t.advance().partition(":")
        out += [f"{name}#{i}" for i in range(int(count))] if count else [name]
        if not t.take(","):
            t.expect("=")
            break
    return out


def _check_results(t: Tokens, node: Node) -> None:
    # "%0:1" is a way to write one result.
    if len(node.results) == 1:
        node.results[0] = node.results[0].removesuffix("#0")
    if node.results and len(node.results) != len(node.types):
        what = f"{node.name} has {len(node.types)} results, {len(node.results)} are named"
        raise t.error(what, node.at)


def _generic(t: Tokens, node: Node) -> Node:
    """``"op"(%a) <{properties}> ({region}) {attributes} : (types) -> types``."""
    t.expect("(")
    while not t.take(")"):
        node.operands.append(t.need("value", "an operand"))
        if t.text != ")":
            t.expect(",")
    if t.take("["):
        raise t.error("ops with successors are not supported", node.at)
    if t.take("<"):
        node.attrs |= read_dict(t)
        t.expect(">")
    if t.take("("):
        while not t.take(")"):
            node.regions.append(read_region(t))
            if t.text != ")":
                t.expect(",")
    if t.text == "{":
        node.attrs |= read_dict(t)
    t.expect(":")
    read_types(t)
    t.expect("->")
    node.types = read_types(t) if t.text == "(" else [read_type(t)]
    return node


def read_region(t: Tokens) -> Region:
    """``{ ^bb0(%a: type): ops }`` of one block."""
    t.expect("{")
    region = Region()
    if t.kind == "block":
        t.advance()
        if t.take("("):
            region.args = _arguments(t)
        t.expect(":")
    while not t.take("}"):
        if t.kind == "block":
            raise t.error("a region of several blocks is not supported")
        region.body.append(read_op(t))
    return region


def _arguments(t: Tokens) -> list[Argument]:
    """``%a: type loc(..), ...)`` behind the opening bracket."""
    out: list[Argument] = []
    while not t.take(")"):
        name = t.need("value", "an argument")
        t.expect(":")
        out.append(Argument(name, read_type(t), read_loc(t)))
        if t.text != ")":
            t.expect(",")
    return out


def _module(t: Tokens, node: Node) -> None:
    """``module @name attributes {...} { ops }``."""
    if t.kind == "symbol":
        node.attrs["sym_name"] = t.advance()[1:]
    if t.take("attributes"):
        node.attrs |= read_dict(t)
    node.regions = [read_region(t)]


def _func(t: Tokens, node: Node) -> None:
    """``func.func public @name(%a: type {..}) -> (type {..}) attributes {..} { ops }``."""
    if t.text in ("public", "private", "nested"):
        node.attrs["sym_visibility"] = t.advance()
    node.attrs["sym_name"] = t.need("symbol", "a function's name")[1:]
    arguments, given = _signature(t)
    node.attrs["arg_attrs"] = given
    if t.take("->"):
        types, attrs = _outputs(t)
        node.attrs["res_attrs"] = attrs
        node.attrs["results"] = tuple(map(TypeText, types))
    if t.take("attributes"):
        node.attrs |= read_dict(t)
    if t.text == "{":
        region = read_region(t)
        region.args = arguments
        node.regions = [region]


def _signature(t: Tokens) -> tuple[list[Argument], tuple[Attribute, ...]]:
    t.expect("(")
    out: list[Argument] = []
    attrs: list[Attribute] = []
    while not t.take(")"):
        # A declaration without a body has types only.
        name = t.advance() if t.kind == "value" else ""
        if name:
            t.expect(":")
        type_ = read_type(t)
        attrs.append(read_dict(t) if t.text == "{" else {})
        out.append(Argument(name, type_, read_loc(t)))
        if t.text != ")":
            t.expect(",")
    return out, tuple(attrs)


def _outputs(t: Tokens) -> tuple[list[str], tuple[Attribute, ...]]:
    if not t.take("("):
        return [read_type(t)], ({},)
    types: list[str] = []
    attrs: list[Attribute] = []
    while not t.take(")"):
        types.append(read_type(t))
        attrs.append(read_dict(t) if t.text == "{" else {})
        if t.text != ")":
            t.expect(",")
    return types, tuple(attrs)


def _call(t: Tokens, node: Node) -> None:
    """``call @name(%a) : (types) -> types``."""
    node.attrs["callee"] = Symbol(t.need("symbol", "a function's name")[1:])
    t.expect("(")
    while not t.take(")"):
        node.operands.append(t.need("value", "an operand"))
        if t.text != ")":
            t.expect(",")
    if t.text == "{":
        node.attrs |= read_dict(t)
    t.expect(":")
    read_types(t)
    t.expect("->")
    node.types = read_types(t) if t.text == "(" else [read_type(t)]


_STRUCTURES = {"builtin.module": _module, "func.func": _func, "func.call": _call}
