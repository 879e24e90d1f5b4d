"""Attributes and types of MLIR text."""

from __future__ import annotations

from graphgen.lowering.stablehlo.read_tokens import Tokens, unquoted
from graphgen.lowering.stablehlo.read_tree import Attribute, Custom, Dense, Symbol, TypeText


def number(text: str) -> int | float:
    """An integer, a float, or the bits of one in hexadecimal as an integer."""
    if text.startswith("0x"):
        return int(text, 16)
    return float(text) if any(c in text for c in ".eE") else int(text)


def read_type(t: Tokens) -> str:
    """A type, as text without spaces that do not matter: ``tensor<2xf32>``, ``(a, b) -> c``."""
    if t.kind == "tensor":
        return t.advance()
    if t.text == "(":
        inputs = f"({', '.join(read_types(t))})"
        if not t.take("->"):
            return inputs
        outputs = read_types(t) if t.text == "(" else [read_type(t)]
        return f"{inputs} -> ({', '.join(outputs)})"
    if t.kind not in ("word", "alias"):
        raise t.error("expected a type")
    head = t.advance()
    return head + _balanced(t) if t.text == "<" else head


def read_types(t: Tokens) -> list[str]:
    """``(type, type)``, possibly empty."""
    t.expect("(")
    out: list[str] = []
    while not t.take(")"):
        out.append(read_type(t))
        if t.text != ")":
            t.expect(",")
    return out


def _balanced(t: Tokens) -> str:
    """``<...>`` as it stands."""
    start, depth = t.at, 0
    while t.kind != "end":
        depth += {"<": 1, ">": -1}.get(t.text, 0)
        end = t.at + len(t.text)
        t.advance()
        if depth == 0:
            return t.source[start:end]
    raise t.error("expected '>'")


def read_attr(t: Tokens) -> Attribute:
    """One attribute; the type that may stand behind a number is dropped.

    Raises:
        GraphgenError: GG0201.
    """
    t.deeper()
    found = _attr(t)
    t.shallower()
    return found


def _attr(t: Tokens) -> Attribute:
    if t.kind == "number":
        value = number(t.advance())
        if t.take(":"):
            read_type(t)
        return value
    if t.kind == "string":
        value = unquoted(t.advance())
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
        return _custom(t)
    return _word(t)


def _symbol(t: Tokens) -> Symbol:
    name = t.advance()[1:]
    while t.text == ":" and t.source.startswith("::@", t.at):
        t.advance()
        t.advance()
        name += "::" + t.advance()[1:]
    return Symbol(unquoted(name) if name.startswith('"') else name)


def _word(t: Tokens) -> Attribute:
    words: dict[str, Attribute] = {"true": True, "false": False, "unit": True}
    if t.text in words:
        return words[t.advance()]
    if t.text == "dense":
        return read_dense(t)
    if t.text == "array":
        return _array(t)
    return TypeText(read_type(t))


def read_list(t: Tokens) -> tuple[Attribute, ...]:
    """``[a, b]``."""
    t.expect("[")
    out: list[Attribute] = []
    while not t.take("]"):
        out.append(read_attr(t))
        if t.text != "]":
            t.expect(",")
    return tuple(out)


def read_dict(t: Tokens) -> dict[str, Attribute]:
    """``{key = value, unit}``."""
    t.expect("{")
    out: dict[str, Attribute] = {}
    while not t.take("}"):
        key = unquoted(t.advance()) if t.kind == "string" else t.need("word", "a name")
        out[key] = read_attr(t) if t.take("=") else True
        if t.text != "}":
            t.expect(",")
    return out


def _array(t: Tokens) -> tuple[Attribute, ...]:
    """``array<i64: 1, 2>``."""
    t.expect("array")
    t.expect("<")
    read_type(t)
    out: list[Attribute] = []
    if t.take(":"):
        while t.text != ">":
            out.append(_element(t))
            if t.text != ">":
                t.expect(",")
    t.expect(">")
    return tuple(out)


def _element(t: Tokens) -> bool | int | float | str:
    if t.kind == "number":
        text = t.advance()
        # The bits of a float: how many there are depends on its type.
        return text if text.startswith("0x") else number(text)
    if t.text in ("true", "false"):
        return t.advance() == "true"
    raise t.error("expected a number")


def read_dense(t: Tokens) -> Dense:
    """``dense<[1, 2]> : type``."""
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
    return Dense(tuple(items), hexadecimal, read_type(t))


def _nested(t: Tokens, items: list[bool | int | float | str]) -> None:
    if not t.take("["):
        if t.text == "(":
            raise t.error("complex numbers are not supported")
        items.append(_element(t))
        return
    t.deeper()
    while not t.take("]"):
        _nested(t, items)
        if t.text != "]":
            t.expect(",")
    t.shallower()


def _custom(t: Tokens) -> Custom:
    """``#dialect.name<key = value, word, [..]>``; an alias has nothing behind its name."""
    name = t.advance()[1:]
    fields: dict[str, Attribute] = {}
    words: list[str] = []
    if not t.take("<"):
        return Custom(name, fields, ())
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
    return Custom(name, fields, tuple(words))
