"""Parser of MLIR text into a syntax tree: modules, functions, and the generic form of ops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from graphgen.lowering.mlir.mlir_attributes import (
    read_attr,
    read_dict,
    read_operands,
    read_result_types,
    read_type,
    symbol,
)
from graphgen.lowering.mlir.syntax_tree import (
    BlockArgument,
    MlirAttr,
    MlirAttrs,
    MlirOp,
    MlirRegion,
    SymbolRef,
    TypeAttr,
)
from graphgen.lowering.mlir.tokens import MlirTokens, unquoted
from graphgen.numbers import BAD_NUMBER, whole_number

ReadRegion = Callable[[], MlirRegion]
# (tokens, op with its name and results, parser of regions): parses the rest of an op into it.
ReadAssembly = Callable[[MlirTokens, MlirOp, ReadRegion], None]

_FULL_NAMES = {
    "module": "builtin.module",
    "call": "func.call",
    "return": "func.return",
    "constant": "arith.constant",
}


@dataclass(slots=True)
class MlirText:
    """Syntax tree of a text.

    Attributes:
        ops: the top-level ops in order; usually one ``builtin.module``.
        locs: location aliases, as text.
        aliases: other aliases, as text.
    """

    ops: list[MlirOp] = field(default_factory=list[MlirOp])
    locs: dict[str, str] = field(default_factory=dict[str, str])
    aliases: dict[str, str] = field(default_factory=dict[str, str])


def parse_mlir(text: str, filename: str, assembly: ReadAssembly) -> MlirText:
    """Parse a text.

    Args:
        text: of a module, or of functions.
        filename: for error messages.
        assembly: parses an op that is in a form of its own.

    Raises:
        GraphgenError: GG0201 with file, line and column.
        UnknownForm: ``assembly`` does not know the form of an op.
    """
    parser = _MlirParser(MlirTokens(text, filename), assembly)
    try:
        return _parsed(parser, text)
    except BAD_NUMBER as error:
        raise parser.t.error(str(error)) from error


def _parsed(parser: _MlirParser, text: str) -> MlirText:
    t, out = parser.t, MlirText()
    while t.kind != "end":
        if t.kind == "alias":
            name = t.advance()
            t.expect("=")
            if t.text == "loc":
                out.locs[name] = read_loc(t)
            else:
                start = t.at
                read_attr(t)
                out.aliases[name] = text[start : t.passed]
        else:
            out.ops.append(parser.op())
    return out


def read_loc(t: MlirTokens) -> str:
    """Parse ``loc(...)`` into the text inside; empty where there is none."""
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


class _MlirParser:
    def __init__(self, t: MlirTokens, assembly: ReadAssembly) -> None:
        self.t = t
        self.assembly = assembly
        self._structures: dict[str, Callable[[MlirOp], None]] = {
            "builtin.module": self._module,
            "func.func": self._func,
            "func.call": self._call,
        }

    def op(self) -> MlirOp:
        """Parse one op, its location included."""
        t = self.t
        t.deeper()
        at = t.at
        results = _results(t)
        begin = t.at
        if t.kind == "string":
            node = MlirOp(unquoted(t.advance()), at, results)
            self._generic(node)
        else:
            name = t.need("word", "an op")
            node = MlirOp(_FULL_NAMES.get(name, name), at, results)
            structure = self._structures.get(node.name)
            if structure is not None:
                structure(node)
            else:
                self.assembly(t, node, self.region)
        node.begin, node.end = begin, t.passed
        node.loc = read_loc(t) or node.loc
        _check_results(t, node)
        t.shallower()
        return node

    def region(self) -> MlirRegion:
        """Parse ``{ ^bb0(%a: type): ops }`` of one block."""
        t = self.t
        t.expect("{")
        region = MlirRegion()
        if t.kind == "block":
            t.advance()
            if t.take("("):
                region.args = [read_argument(t) for _ in t.items(")")]
            t.expect(":")
        while not t.take("}"):
            if t.kind == "block":
                raise t.error("a region of several blocks is not supported")
            region.body.append(self.op())
        return region

    def _generic(self, node: MlirOp) -> None:
        """Parse ``(%a) <{properties}> ({region}) {attributes} : (types) -> types``."""
        t = self.t
        node.operands = read_operands(t)
        if t.take("["):
            raise t.error("ops with successors are not supported", node.at)
        if t.take("<"):
            node.attrs.add(read_dict(t))
            t.expect(">")
        if t.take("("):
            node.regions = [self.region() for _ in t.items(")")]
        _typed(t, node)

    def _module(self, node: MlirOp) -> None:
        """Parse ``@name attributes {...} { ops }``."""
        t = self.t
        if t.kind == "symbol":
            node.attrs["sym_name"] = t.advance()[1:]
        if t.take("attributes"):
            node.attrs.add(read_dict(t))
        node.regions = [self.region()]

    def _func(self, node: MlirOp) -> None:
        """Parse ``public @name(%a: type {..}) -> (type {..}) attributes {..} { ops }``."""
        t = self.t
        if t.text in ("public", "private", "nested"):
            node.attrs["sym_visibility"] = t.advance()
        node.attrs["sym_name"] = symbol(t, "a function's name")
        arguments, node.attrs["arg_attrs"] = _parameters(t)
        if t.take("->"):
            types, node.attrs["res_attrs"] = _outputs(t)
            node.attrs["results"] = tuple(map(TypeAttr, types))
        if t.take("attributes"):
            node.attrs.add(read_dict(t))
        if t.text == "{":
            region = self.region()
            region.args = arguments
            node.regions = [region]

    def _call(self, node: MlirOp) -> None:
        """Parse ``@name(%a) : (types) -> types``."""
        t = self.t
        node.attrs["callee"] = SymbolRef(symbol(t, "a function's name"))
        node.operands = read_operands(t)
        _typed(t, node)


def _typed(t: MlirTokens, node: MlirOp) -> None:
    """Parse ``{attributes} : (types) -> types``."""
    if t.text == "{":
        node.attrs.add(read_dict(t))
    t.expect(":")
    node.types = read_result_types(t)


def _results(t: MlirTokens) -> list[str]:
    """Parse ``%a, %b =`` or ``%a:2 =``, if there is any."""
    out: list[str] = []
    while t.kind == "value":
        name, _, count = t.advance().partition(":")
        out += [f"{name}#{i}" for i in range(_count(t, count))] if count else [name]
        if not t.take(","):
            t.expect("=")
            break
    return out


def _count(t: MlirTokens, text: str) -> int:
    """The number of results in ``%a:2``; the types after the op are as many characters at least."""
    try:
        return whole_number(text, len(t.source) - t.at)
    except ValueError as error:
        raise t.error(f"the number of results: {error}") from error


def _check_results(t: MlirTokens, node: MlirOp) -> None:
    # "%0:1" names one result.
    if len(node.results) == 1:
        node.results[0] = node.results[0].removesuffix("#0")
    if node.results and len(node.results) != len(node.types):
        what = f"{node.name} has {len(node.types)} results, {len(node.results)} are named"
        raise t.error(what, node.at)


def read_argument(t: MlirTokens) -> BlockArgument:
    """Parse ``%a: type loc(..)``."""
    name = t.need("value", "an argument")
    t.expect(":")
    return BlockArgument(name, read_type(t), read_loc(t))


def _parameters(t: MlirTokens) -> tuple[list[BlockArgument], tuple[MlirAttr, ...]]:
    """Parse ``(%a: type {..} loc(..))``; a declaration without a body has types only."""
    t.expect("(")
    out: list[BlockArgument] = []
    attrs: list[MlirAttr] = []
    for _ in t.items(")"):
        name = t.advance() if t.kind == "value" else ""
        if name:
            t.expect(":")
        type_ = read_type(t)
        attrs.append(read_dict(t) if t.text == "{" else MlirAttrs())
        out.append(BlockArgument(name, type_, read_loc(t)))
    return out, tuple(attrs)


def _outputs(t: MlirTokens) -> tuple[list[str], tuple[MlirAttr, ...]]:
    """Parse ``type`` or ``(type {..}, type)``."""
    if not t.take("("):
        return [read_type(t)], (MlirAttrs(),)
    types: list[str] = []
    attrs: list[MlirAttr] = []
    for _ in t.items(")"):
        types.append(read_type(t))
        attrs.append(read_dict(t) if t.text == "{" else MlirAttrs())
    return types, tuple(attrs)
