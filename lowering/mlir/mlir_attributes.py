"""Parser of MLIR attributes and types."""

from __future__ import annotations

from graphgen.lowering.mlir.syntax_tree import (
    DenseAttr,
    DialectAttr,
    MlirAttr,
    MlirAttrs,
    SymbolRef,
    TypeAttr,
)
from graphgen.lowering.mlir.tokens import MlirTokens, unquoted
from graphgen.numbers import MOST_SIZE, signed_number


def number(text: str) -> int | float:
    """Parse an integer, a float, or the bits of a float in hexadecimal (as an integer)."""
    if text.startswith("0x"):
        return int(text, 16)
    if any(c in text for c in ".eE"):
        return float(text)
    return signed_number(text, 2 * MOST_SIZE + 1)


def read_operands(t: MlirTokens) -> list[str]:
    """Parse ``(%a, %b)``, possibly empty."""
    t.expect("(")
    return [t.need("value", "an operand") for _ in t.items(")")]


def read_type(t: MlirTokens) -> str:
    """Parse a type into text with normal spaces: ``tensor<2xf32>``, ``(a, b) -> c``."""
    if t.kind == "tensor":
        return t.advance()
    if t.text == "(":
        t.deeper()
        inputs = f"({', '.join(read_types(t))})"
        whole = f"{inputs} -> ({', '.join(read_one_or_more(t))})" if t.take("->") else inputs
        t.shallower()
        return whole
    if t.kind not in ("word", "alias"):
        raise t.error("expected a type")
    head = t.advance()
    return head + _balanced(t) if t.text == "<" else head


def read_types(t: MlirTokens) -> list[str]:
    """Parse ``(type, type)``, possibly empty."""
    t.expect("(")
    return [read_type(t) for _ in t.items(")")]


def read_result_types(t: MlirTokens) -> list[str]:
    """Parse ``(types) -> types`` and return the types of the results."""
    read_types(t)
    t.expect("->")
    return read_one_or_more(t)


def read_one_or_more(t: MlirTokens) -> list[str]:
    """Parse ``type`` or ``(type, type)``."""
    return read_types(t) if t.text == "(" else [read_type(t)]


def _balanced(t: MlirTokens) -> str:
    """Parse ``<...>`` into its text."""
    start, depth = t.at, 0
    while t.kind != "end":
        depth += {"<": 1, ">": -1}.get(t.text, 0)
        end = t.at + len(t.text)
        t.advance()
        if depth == 0:
            return t.source[start:end]
    raise t.error("expected '>'")


def bracketed(t: MlirTokens) -> str:
    """Step over a bracket of any kind and what is inside; the text of it all (GG0201)."""
    start, depth = t.at, 0
    if t.text not in ("<", "[", "{", "("):
        raise t.error("expected a bracket")
    while t.kind != "end":
        depth += {"<": 1, "[": 1, "{": 1, "(": 1, ">": -1, "]": -1, "}": -1, ")": -1}.get(t.text, 0)
        t.advance()
        if depth == 0:
            return t.source[start : t.passed]
    raise t.error("a bracket is not closed")


def symbol(t: MlirTokens, what: str) -> str:
    """Parse ``@name`` or ``@"any name"`` (GG0201)."""
    name = t.need("symbol", what)[1:]
    return unquoted(name) if name.startswith('"') else name


def read_attr(t: MlirTokens) -> MlirAttr:
    """Parse one attribute; a type after a number or a string is dropped.

    Raises:
        GraphgenError: GG0201.
    """
    t.deeper()
    found = _attr(t)
    t.shallower()
    return found


def _attr(t: MlirTokens) -> MlirAttr:
    if t.kind in ("number", "string"):
        value = number(t.advance()) if t.kind == "number" else unquoted(t.advance())
        if t.take(":"):
            read_type(t)
        return value
    if t.kind == "symbol":
        return _symbol(t)
    if t.text == "[":
        return read_list(t)
    if t.text == "{":
        return read_dict(t)
    if t.kind == "alias" and t.text.startswith("#"):
        return _dialect_attr(t)
    return _word(t)


def _symbol(t: MlirTokens) -> SymbolRef:
    name = t.advance()[1:]
    while t.text == ":" and t.source.startswith("::@", t.at):
        t.advance()
        t.advance()
        name += "::" + t.advance()[1:]
    return SymbolRef(unquoted(name) if name.startswith('"') else name)


def _word(t: MlirTokens) -> MlirAttr:
    words: dict[str, MlirAttr] = {"true": True, "false": False, "unit": True}
    if t.text in words:
        return words[t.advance()]
    if t.text in ("dense", "dense_resource"):
        return read_dense(t)
    if t.text == "array":
        return _array(t)
    return TypeAttr(read_type(t))


def read_list(t: MlirTokens) -> tuple[MlirAttr, ...]:
    """Parse ``[a, b]``."""
    t.expect("[")
    return tuple([read_attr(t) for _ in t.items("]")])


def read_dict(t: MlirTokens) -> MlirAttrs:
    """Parse ``{key = value, unit}``."""
    t.expect("{")
    out = MlirAttrs(t.source)
    for _ in t.items("}"):
        key = unquoted(t.advance()) if t.kind == "string" else t.need("word", "a name")
        if t.take("="):
            start, value = t.at, read_attr(t)
            out.place(key, value, start, t.passed)
        else:
            out.place(key, True, 0, 0)
    return out


def _array(t: MlirTokens) -> tuple[MlirAttr, ...]:
    """Parse ``array<i64: 1, 2>``."""
    t.expect("array")
    t.expect("<")
    read_type(t)
    if t.take(":"):
        return tuple([_element(t) for _ in t.items(">")])
    t.expect(">")
    return ()


def _element(t: MlirTokens) -> bool | int | float | str:
    if t.kind == "number":
        text = t.advance()
        # Bits of a float; their number depends on its type.
        return text if text.startswith("0x") else number(text)
    if t.text in ("true", "false"):
        return t.advance() == "true"
    raise t.error("expected a number")


def read_dense(t: MlirTokens) -> DenseAttr:
    """Parse ``dense<[1, 2]> : type``; the parts of complex numbers one after the other.

    ``dense_resource<name> : type`` has its elements after the module, or nowhere.
    """
    if t.take("dense_resource"):
        name = bracketed(t)[1:-1].strip().strip('"')
        t.expect(":")
        data = t.resources.get(name, "")
        return DenseAttr((), data, read_type(t), "" if data else name)
    t.expect("dense")
    t.expect("<")
    items: list[bool | int | float | str] = []
    hexadecimal = ""
    if t.kind == "string":
        hexadecimal = t.advance()[1:-1].removeprefix("0x")
    elif t.text != ">":
        _nested(t, items)
    t.expect(">")
    t.expect(":")
    return DenseAttr(tuple(items), hexadecimal, read_type(t))


def _nested(t: MlirTokens, items: list[bool | int | float | str]) -> None:
    if not t.take("["):
        if t.take("("):
            items += [_element(t) for _ in t.items(")")]
        else:
            items.append(_element(t))
        return
    t.deeper()
    for _ in t.items("]"):
        _nested(t, items)
    t.shallower()


def _dialect_attr(t: MlirTokens) -> DialectAttr:
    """Parse ``#dialect.name<key = value, word, [..]>``; an alias is a name alone."""
    name = t.advance()[1:]
    fields: dict[str, MlirAttr] = {}
    words: list[str] = []
    if not t.take("<"):
        return DialectAttr(name, fields, ())
    while not t.take(">"):
        if t.kind == "end":
            raise t.error("expected '>'")
        if t.kind == "word" and not t.text.startswith(("dense", "array")):
            word = t.advance()
            if t.take("="):
                fields[word] = read_attr(t)
            else:
                words.append(word)
        else:
            words.append(_balanced(t) if t.text == "<" else t.advance())
    return DialectAttr(name, fields, tuple(words))
