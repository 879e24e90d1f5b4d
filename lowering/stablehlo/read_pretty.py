"""StableHLO's short forms, turned into the names of the generic form.

Nearly all of them are one shape, ``op %a, %b, key = value, WORD : types``; the table says under
which name the generic form has each key. Reductions and loops have a form of their own. What is not
here is left to jaxlib.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from graphgen.lowering.stablehlo.read_attrs import (
    read_attr,
    read_dense,
    read_dict,
    read_type,
    read_types,
)
from graphgen.lowering.stablehlo.read_tokens import Tokens, Unread
from graphgen.lowering.stablehlo.read_tree import Argument, Attribute, Node, Region, Symbol

ReadRegion = Callable[[Tokens], Region]

# Per op: the generic name of each key.
_KEYS: Final[Mapping[str, Mapping[str, str]]] = {
    "stablehlo.iota": {"dim": "iota_dimension"},
    "stablehlo.concatenate": {"dim": "dimension"},
    "stablehlo.transpose": {"dims": "permutation"},
    "stablehlo.broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.broadcast": {"sizes": "broadcast_sizes"},
    "stablehlo.reverse": {"dims": "dimensions"},
    "stablehlo.dynamic_slice": {"sizes": "slice_sizes"},
    "stablehlo.pad": {
        "low": "edge_padding_low",
        "high": "edge_padding_high",
        "interior": "interior_padding",
    },
    "stablehlo.dot_general": {
        "contracting_dims": "contracting_dims",
        "batching_dims": "batching_dims",
        "precision": "precision_config",
        "algorithm": "algorithm",
    },
    "stablehlo.reduce_precision": {"format": "format"},
    "stablehlo.rng_bit_generator": {"algorithm": "rng_algorithm"},
}
# Words without a key, by op, in order.
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "stablehlo.compare": ("comparison_direction", "compare_type"),
}
# Ops of the one shape that have neither keys nor words.
_PLAIN: Final = frozenset(
    re.findall(
        r"\w+",
        """
        abs add after_all and atan2 bitcast_convert cbrt ceil clamp compare complex convert cosine
        count_leading_zeros create_token divide dynamic_update_slice exponential
        exponential_minus_one floor get_tuple_element imag is_finite log log_plus_one logistic
        maximum minimum multiply negate not optimization_barrier or partition_id popcnt power real
        remainder replica_id reshape return round_nearest_afz round_nearest_even rsqrt select
        shift_left shift_right_arithmetic shift_right_logical sign sine slice sqrt subtract tan
        tanh tuple xor
        """,
    )
)


def read_pretty(t: Tokens, node: Node, region: ReadRegion) -> None:
    """The rest of an op in its short form, its name already read.

    Raises:
        GraphgenError: GG0201.
        Unread: its form is not known here.
    """
    special = _SPECIAL.get(node.name)
    dialect, _, op = node.name.partition(".")
    if special is not None:
        special(t, node, region)
    elif node.name in _KEYS or (dialect == "stablehlo" and op in _PLAIN) or op == "return":
        _items(t, node)
    else:
        what = f"the short form of {node.name} is not known"
        help = "with jaxlib installed it can be read; or print the generic form"
        raise Unread(t.error(what, node.at, help))


def _items(t: Tokens, node: Node) -> None:
    """``%a, %b, key = value, WORD {attributes} : types``."""
    keys, words = _KEYS.get(node.name, {}), list[str](_WORDS.get(node.name, ()))
    while t.kind in ("value", "word") and t.text != "loc":
        if t.kind == "value":
            node.operands.append(t.advance())
            if t.text == "[":
                _ranges(t, node)
        else:
            _keyed(t, node, keys, words)
        # MLIR prints a list of no operands as nothing between two commas.
        if not t.take(","):
            break
        t.take(",")
    if t.text == "{":
        node.attrs |= read_dict(t)
    if t.take(":"):
        node.types = _result_types(t, node)


def _keyed(t: Tokens, node: Node, keys: Mapping[str, str], words: list[str]) -> None:
    key = t.advance()
    if t.take("="):
        if key not in keys:
            raise Unread(t.error(f"{node.name} has no '{key}' that is known here", node.at))
        node.attrs[keys[key]] = _value(t, node)
    elif words:
        node.attrs[words.pop(0)] = key
    else:
        raise Unread(t.error(f"'{key}' has no meaning in {node.name}", node.at))


def _value(t: Tokens, node: Node) -> Attribute:
    """``0``, ``[0]``, ``[0] x [1]``, ``[DEFAULT, DEFAULT]`` or a word."""
    if t.kind == "word":
        return t.advance()
    if t.kind == "number":
        # What stands behind it is the type of the op.
        return _integer(t)
    if t.text == "<":
        raise Unread(t.error(f"this attribute of {node.name} is not known here"))
    if t.text == "[" and node.attrs.get("contracting_dims") is not None:
        return _precisions(t)
    first = read_attr(t)
    return (first, read_attr(t)) if t.take("x") else first


def _precisions(t: Tokens) -> Attribute:
    t.expect("[")
    out: list[Attribute] = []
    while not t.take("]"):
        out.append(t.need("word", "a precision"))
        if t.text != "]":
            t.expect(",")
    return tuple(out)


def _ranges(t: Tokens, node: Node) -> None:
    """``[0:1, 0:16:2]`` of a slice; one index of a tuple."""
    if node.name != "stablehlo.slice":
        node.attrs["index"] = read_attr(t)
        return
    t.expect("[")
    bounds: list[tuple[int, int, int]] = []
    while not t.take("]"):
        row = [_integer(t)]
        while t.take(":"):
            row.append(_integer(t))
        bounds.append((row[0], row[1] if len(row) > 1 else row[0], row[2] if len(row) > 2 else 1))
        if t.text != "]":
            t.expect(",")
    names = ("start_indices", "limit_indices", "strides")
    node.attrs |= {name: tuple(row[i] for row in bounds) for i, name in enumerate(names)}


def _integer(t: Tokens) -> int:
    text = t.need("number", "an integer")
    if not text.lstrip("-").isdigit():
        raise t.error(f"'{text}' is not an integer")
    return int(text)


def _result_types(t: Tokens, node: Node) -> list[str]:
    """The types of the results, from ``(types) -> types`` or from a list that ends with them."""
    if t.text == "(":
        read_types(t)
        t.expect("->")
        return read_types(t) if t.text == "(" else [read_type(t)]
    types = [read_type(t)]
    while t.take(","):
        types.append(read_type(t))
    if t.take("->"):
        return read_types(t) if t.text == "(" else [read_type(t)]
    if node.name.endswith(".return"):
        return []
    return types if len(node.results) > 1 else types[-1:]


def _constant(t: Tokens, node: Node, region: ReadRegion) -> None:
    """``constant dense<...> : type``."""
    if t.text == "{":
        node.attrs |= read_dict(t)
    if t.text != "dense":
        raise Unread(t.error("this form of a constant is not known here", node.at))
    value = read_dense(t)
    node.attrs["value"] = value
    node.types = [value.type]


def _reduce(t: Tokens, node: Node, region: ReadRegion) -> None:
    """``reduce(%a init: %b) applies stablehlo.add across dimensions = [1] : types``.

    Instead of ``applies`` there may be ``reducer(%a: type, %b: type) { ops }`` behind the types.
    """
    inputs: list[str] = []
    initial: list[str] = []
    while True:
        t.expect("(")
        inputs.append(t.need("value", "an operand"))
        t.expect("init")
        t.expect(":")
        initial.append(t.need("value", "an initial value"))
        t.expect(")")
        if not t.take(","):
            break
    node.operands = [*inputs, *initial]
    applied = t.need("word", "an op") if t.take("applies") else ""
    t.expect("across")
    t.expect("dimensions")
    t.expect("=")
    node.attrs["dimensions"] = read_attr(t)
    if t.text == "{":
        node.attrs |= read_dict(t)
    t.expect(":")
    node.types = _result_types(t, node)
    node.regions = [applied_region(applied, node.at)] if applied else [_reducer(t, region)]


def applied_region(name: str, at: int) -> Region:
    """The region of ``applies name``: one op of the two arguments."""
    args = [Argument("%lhs", ""), Argument("%rhs", "")]
    applied = Node(name, at, ["%applied"], ["%lhs", "%rhs"], types=[""])
    return Region(args, [applied, Node("stablehlo.return", at, [], ["%applied"])])


def _reducer(t: Tokens, region: ReadRegion) -> Region:
    """``reducer(%a: type, %b: type) (%c: type, %d: type) { ops }``: all left ones, then the right.

    With several inputs the arguments come in pairs, one pair an input.
    """
    t.expect("reducer")
    left: list[Argument] = []
    right: list[Argument] = []
    while t.take("("):
        for side in (left, right):
            name = t.need("value", "an argument")
            t.expect(":")
            side.append(Argument(name, read_type(t)))
            _skip_loc(t)
            if side is left:
                t.expect(",")
        t.expect(")")
    made = region(t)
    made.args = [*left, *right]
    return made


def _skip_loc(t: Tokens) -> None:
    if t.take("loc"):
        depth = 0
        while t.kind != "end":
            depth += {"(": 1, ")": -1}.get(t.advance(), 0)
            if depth == 0:
                return


def _while(t: Tokens, node: Node, region: ReadRegion) -> None:
    """``while(%i = %a, %j = %b) : types cond { ops } do { ops }``."""
    t.expect("(")
    names: list[str] = []
    while not t.take(")"):
        names.append(t.need("value", "an argument"))
        t.expect("=")
        node.operands.append(t.need("value", "an operand"))
        if t.text != ")":
            t.expect(",")
    if t.take(":"):
        node.types = [read_type(t)]
        while t.take(","):
            node.types.append(read_type(t))
    if t.take("attributes"):
        node.attrs |= read_dict(t)
    if node.results == [] or len(node.results) == len(node.types):
        for word in ("cond", "do"):
            t.expect(word)
            made = region(t)
            made.args = [Argument(n, type_) for n, type_ in zip(names, node.types, strict=True)]
            node.regions.append(made)


def _custom_call(t: Tokens, node: Node, region: ReadRegion) -> None:
    """``custom_call @target(%a, %b) {attributes} : (types) -> types``."""
    node.attrs["call_target_name"] = Symbol(t.need("symbol", "a target")[1:])
    t.expect("(")
    while not t.take(")"):
        node.operands.append(t.need("value", "an operand"))
        if t.text != ")":
            t.expect(",")
    if t.text == "{":
        node.attrs |= read_dict(t)
    t.expect(":")
    node.types = _result_types(t, node)


def _top_k(t: Tokens, node: Node, region: ReadRegion) -> None:
    """``top_k(%a, k = 2) : type -> (types)``."""
    t.expect("(")
    node.operands = [t.need("value", "an operand")]
    t.expect(",")
    t.expect("k")
    t.expect("=")
    node.attrs["k"] = _integer(t)
    t.expect(")")
    t.expect(":")
    node.types = _result_types(t, node)


_SPECIAL: Final[Mapping[str, Callable[[Tokens, Node, ReadRegion], None]]] = {
    "stablehlo.constant": _constant,
    "stablehlo.reduce": _reduce,
    "stablehlo.while": _while,
    "stablehlo.custom_call": _custom_call,
    "chlo.top_k": _top_k,
}
