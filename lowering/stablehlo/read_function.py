"""The ops of a StableHLO function as a function of ours; calls are written out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Function, Loc, Value
from graphgen.ir.names import claim_name
from graphgen.lowering.stablehlo.read_control import CONTROL, read_control
from graphgen.lowering.stablehlo.read_locs import Locations
from graphgen.lowering.stablehlo.read_names import given_name
from graphgen.lowering.stablehlo.read_ops import Unmodelled, convert
from graphgen.lowering.stablehlo.read_tokens import Tokens
from graphgen.lowering.stablehlo.read_tree import Node, Region, Symbol
from graphgen.lowering.stablehlo.read_types import read_tensor_type


@dataclass(slots=True)
class Source:
    """The text being read, and what its names stand for.

    Attributes:
        tokens: for places.
        locations: reads locations.
        callees: the functions by name.
        dropped: how often what was left out because it means nothing here, such as a precision.
        functions: what loops and choices run, callees first.
        names: of functions.
    """

    tokens: Tokens
    locations: Locations
    callees: Mapping[str, Node]
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    functions: list[Function] = field(default_factory=list[Function])
    names: set[str] = field(default_factory=set[str])

    def loc(self, node: Node, call: Loc | None) -> Loc:
        """Where an op comes from; ``call`` is the place of the call it stands in."""
        return self.locations.read(node.loc, self.tokens.line_of(node.at), call)

    def fail(self, node: Node, error: GraphgenError) -> GraphgenError:
        """``error`` with the place of ``node`` in the text."""
        where = self.tokens.error("", node.at)
        error.where, error.note = where.where, error.note or where.note
        return error


class FunctionReader:
    """Reads ops into one function.

    Args:
        source: the text.
        function: where ops are appended; its arguments are there already.
        values: the value behind each name.
    """

    def __init__(self, source: Source, function: Function, values: dict[str, Value]) -> None:
        self.source = source
        self.builder = Builder(function)
        self.values = values
        self._call_site: Loc | None = None
        self._idle: dict[Value, None] = {}

    def body(self, nodes: Sequence[Node]) -> list[Value]:
        """Append the ops; the values returned by the last one.

        Raises:
            GraphgenError: GG0103 an op that is not modelled, GG0202 an undefined value, and what
                the op table raises, each with its place in the text.
        """
        for node in nodes:
            if node.name in ("func.return", "stablehlo.return"):
                return [self._value(name, node) for name in node.operands]
            self.op(node)
        return []

    def emit(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """Append an op of one result; see :class:`~graphgen.lowering.stablehlo.read_ops.Emit`."""
        return self.builder.emit(name, operands, attrs).result

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op of several results at the op being read."""
        return self.builder.emit(name, operands, attrs).results

    def dropped(self, what: str) -> None:
        """Count something left out."""
        self.source.dropped[what] = self.source.dropped.get(what, 0) + 1

    def idle(self, value: Value) -> None:
        """Remember a value that goes if nobody reads it."""
        self._idle[value] = None

    def op(self, node: Node) -> None:
        """Append what one op stands for, and bind the names of its results."""
        self.builder.loc = self.source.loc(node, self._call_site)
        operands = [self._value(name, node) for name in node.operands]
        if node.name in ("func.call", "stablehlo.composite"):
            results = self._call(node, operands)
        elif node.name in CONTROL:
            results = self._control(node, operands)
        else:
            results = self._convert(node, operands)
        for name, value, text in zip(node.results, results, node.types, strict=True):
            self._bind(node, name, value, text)

    def sweep(self) -> None:
        """Erase the constants that only reductions had started from."""
        function = self.builder.function
        for value in self._idle:
            op = value.op
            if op is not None and op.block and not value.users and not function.returns(value):
                function.block.erase(op)

    def _convert(self, node: Node, operands: Sequence[Value]) -> list[Value]:
        reason = ""
        found: list[Value] | None = None
        try:
            found = convert(self, node, operands)
        except Unmodelled as no:
            reason = f"{node.name}: {no} is not modelled"
        except GraphgenError as error:
            raise self.source.fail(node, error) from error
        if found is None:
            error = GraphgenError("GG0103", reason or f"{node.name} is not modelled")
            raise self.source.fail(node, error)
        return found

    def _control(self, node: Node, operands: Sequence[Value]) -> list[Value]:
        self.source.tokens.deeper()
        try:
            found = read_control(self, node, operands)
        except GraphgenError as error:
            raise error if error.where else self.source.fail(node, error) from error
        self.source.tokens.shallower()
        return found

    def outer(self, name: str, node: Node) -> Value:
        """See :class:`~graphgen.lowering.stablehlo.read_control.To`."""
        return self._value(name, node)

    def function(self, name: str) -> Function:
        """See :class:`~graphgen.lowering.stablehlo.read_control.To`."""
        return Function(claim_name(name, self.source.names))

    def fill(
        self, function: Function, region: Region, values: Mapping[str, Value], more: Sequence[Value]
    ) -> None:
        """See :class:`~graphgen.lowering.stablehlo.read_control.To`."""
        reader = FunctionReader(self.source, function, dict(values))
        reader._call_site = self._call_site
        returned = [*reader.body(region.body), *more]
        function.outputs = [(str(index), value) for index, value in enumerate(returned)]
        reader.sweep()
        self.source.functions.append(function)

    def _call(self, node: Node, operands: Sequence[Value]) -> list[Value]:
        """The ops of the callee, written out here."""
        key = "callee" if node.name == "func.call" else "decomposition"
        symbol = node.attrs.get(key)
        callee = self.source.callees.get(symbol.name) if isinstance(symbol, Symbol) else None
        if callee is None or not callee.regions:
            what = f"no function @{symbol.name if isinstance(symbol, Symbol) else '?'}"
            raise self.source.fail(node, GraphgenError("GG0202", what))
        region = callee.regions[0]
        if len(region.args) != len(operands):
            what = f"@{callee.attrs['sym_name']} takes {len(region.args)} operands"
            raise self.source.fail(node, GraphgenError("GG0105", f"{what}, got {len(operands)}"))
        outer, site = self.values, self._call_site
        names = [argument.name for argument in region.args]
        self.values = dict(zip(names, operands, strict=True))
        self._call_site = self.builder.loc
        self.source.tokens.deeper()
        results = self.body(region.body)
        self.source.tokens.shallower()
        self.values, self._call_site = outer, site
        return results

    def _value(self, name: str, node: Node) -> Value:
        # "%0#0" is also a way to write the only result of %0.
        found = self.values.get(name) or self.values.get(name.removesuffix("#0"))
        if found is None:
            what = f"{name} is not defined before this op"
            raise self.source.fail(node, GraphgenError("GG0202", what))
        return found

    def _bind(self, node: Node, name: str, value: Value, text: str) -> None:
        # An op made for "applies" has no types of its own.
        if text and value.type is not read_tensor_type(text):
            what = f"{node.name} states {text}, but the op gives {value.type.text}"
            raise self.source.fail(node, GraphgenError("GG0203", what))
        if name in self.values:
            what = f"{name} is defined twice"
            raise self.source.fail(node, GraphgenError("GG0107", what))
        self.values[name] = value
        if value.name is None and value.op is not None:
            value.name = given_name(name)
