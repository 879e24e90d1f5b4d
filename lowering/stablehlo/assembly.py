"""Parser of StableHLO's common assembly form: ``op %a, %b, key = value, WORD : types``.

A row of the dialect gives each key's name in the generic form.
"""

from __future__ import annotations

from graphgen.lowering.mlir.mlir_attributes import (
    read_attr,
    read_dict,
    read_one_or_more,
    read_result_types,
    read_type,
)
from graphgen.lowering.mlir.syntax_tree import MlirAttr, MlirOp
from graphgen.lowering.mlir.tokens import MlirTokens, UnknownForm
from graphgen.lowering.stablehlo.op_row import BARE, StableHloRow
from graphgen.numbers import signed_number


def parse_common_form(t: MlirTokens, node: MlirOp, row: StableHloRow) -> None:
    """Parse ``%a, %b, key = value, WORD {attributes} : types``.

    Raises:
        GraphgenError: GG0201.
        UnknownForm: the row does not have a key or a word.
    """
    words = [field.key for field in row.fields if field.short == BARE]
    while t.kind in ("value", "word") and t.text != "loc":
        if t.kind == "value":
            node.operands.append(t.advance())
            if t.text == "[":
                _subscript(t, node)
        else:
            _keyed(t, node, row, words)
        # MLIR prints an empty list of operands as nothing between two commas.
        if not t.take(","):
            break
        t.take(",")
    if t.text == "{":
        node.attrs.add(read_dict(t))
    if t.take(":"):
        node.types = parse_types(t, node)


def _keyed(t: MlirTokens, node: MlirOp, row: StableHloRow, words: list[str]) -> None:
    key = t.advance()
    if t.take("="):
        name = next((field.key for field in row.fields if field.short == key), "")
        if not name:
            raise UnknownForm(t.error(f"{node.name} has no '{key}' that is known here", node.at))
        node.attrs[name] = _value(t, node)
    elif words:
        node.attrs[words.pop(0)] = key
    else:
        raise UnknownForm(t.error(f"'{key}' has no meaning in {node.name}", node.at))


def _value(t: MlirTokens, node: MlirOp) -> MlirAttr:
    """Parse ``0``, ``[0]``, ``[0] x [1]``, ``[DEFAULT, DEFAULT]`` or a word."""
    if t.kind == "word":
        return t.advance()
    if t.kind == "number":
        # A colon after it begins the types of the op.
        return parse_integer(t)
    if t.text == "<":
        raise UnknownForm(t.error(f"this attribute of {node.name} is not known here"))
    if t.text == "[" and node.attrs.get("contracting_dims") is not None:
        t.expect("[")
        return tuple([t.need("word", "a precision") for _ in t.items("]")])
    first = read_attr(t)
    return (first, read_attr(t)) if t.take("x") else first


def _subscript(t: MlirTokens, node: MlirOp) -> None:
    """Parse ``[0:1, 0:16:2]`` of a slice, or the index of an element of a tuple."""
    if node.name != "stablehlo.slice":
        node.attrs["index"] = read_attr(t)
        return
    t.expect("[")
    bounds: list[tuple[int, int, int]] = []
    for _ in t.items("]"):
        row = [parse_integer(t)]
        while t.take(":"):
            row.append(parse_integer(t))
        bounds.append((row[0], row[1] if len(row) > 1 else row[0], row[2] if len(row) > 2 else 1))
    names = ("start_indices", "limit_indices", "strides")
    for index, name in enumerate(names):
        node.attrs[name] = tuple(row[index] for row in bounds)


def parse_integer(t: MlirTokens) -> int:
    """Parse an integer (GG0201)."""
    text = t.need("number", "an integer")
    try:
        return signed_number(text)
    except ValueError as error:
        raise t.error(f"'{text[:40]}' is not an integer") from error


def parse_types(t: MlirTokens, node: MlirOp) -> list[str]:
    """Parse ``(types) -> types``, or a list that ends with the types of the results.

    Returns:
        The types of the results.
    """
    if t.text == "(":
        return read_result_types(t)
    types = [read_type(t)]
    while t.take(","):
        types.append(read_type(t))
    if t.take("->"):
        return read_one_or_more(t)
    if node.name.endswith(".return"):
        return []
    return types if len(node.results) > 1 else types[-1:]
