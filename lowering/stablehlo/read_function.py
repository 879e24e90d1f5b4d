"""Reader of a StableHLO function: its ops into a function of the IR, calls inlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Function, Loc, Value
from graphgen.ir.names import claim_name
from graphgen.lowering.stablehlo.control_rows import CONTROL
from graphgen.lowering.stablehlo.dialect import read_op
from graphgen.lowering.stablehlo.op_row import UnmodelledForm
from graphgen.lowering.stablehlo.text.mlir_locations import MlirLocations
from graphgen.lowering.stablehlo.text.mlir_types import read_tensor_type
from graphgen.lowering.stablehlo.text.syntax_tree import MlirOp, MlirRegion, SymbolRef
from graphgen.lowering.stablehlo.text.tokens import MlirTokens
from graphgen.lowering.stablehlo.text.value_names import author_name


@dataclass(slots=True)
class StableHloText:
    """The text being read, and its functions and locations by name.

    Attributes:
        tokens: its tokens, for positions.
        locations: the reader of its locations.
        callees: its functions by name.
        dropped: counts of attributes without a meaning in the IR, such as a precision.
        functions: bodies of loops and branches, callees first.
        names: names of functions that are taken.
    """

    tokens: MlirTokens
    locations: MlirLocations
    callees: Mapping[str, MlirOp]
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    functions: list[Function] = field(default_factory=list[Function])
    names: set[str] = field(default_factory=set[str])

    def loc(self, node: MlirOp, call: Loc | None) -> Loc:
        """Read the location of an op; ``call`` is that of the call it is inlined from."""
        return self.locations.read(node.loc, self.tokens.line_of(node.at), call)

    def fail(self, node: MlirOp, error: GraphgenError) -> GraphgenError:
        """Add the position of ``node`` to an error."""
        where = self.tokens.error("", node.at)
        error.where, error.note = where.where, error.note or where.note
        return error


class StableHloFunctionReader:
    """Reader of ops into one function; implements
    :class:`~graphgen.lowering.stablehlo.op_row.StableHloReadContext`.

    Args:
        source: the text.
        function: where ops are appended; it has its arguments.
        values: the values by name.
    """

    def __init__(self, source: StableHloText, function: Function, values: dict[str, Value]) -> None:
        self.source = source
        self.builder = Builder(function)
        self.values = values
        self._call_site: Loc | None = None
        self._idle: dict[Value, None] = {}

    def body(self, nodes: Sequence[MlirOp]) -> list[Value]:
        """Append the ops, and return the operands of the last one.

        Raises:
            GraphgenError: GG0103 an op that is not modelled, GG0202 an undefined value, and the
                errors of the op table, each with its position in the text.
        """
        for node in nodes:
            if node.name in ("func.return", "stablehlo.return"):
                return [self._value(name, node) for name in node.operands]
            self.op(node)
        return []

    def emit(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """Append an op of one result."""
        return self.builder.emit(name, operands, attrs).result

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op of several results."""
        return self.builder.emit(name, operands, attrs).results

    def dropped(self, what: str) -> None:
        """Count an attribute without a meaning in the IR."""
        self.source.dropped[what] = self.source.dropped.get(what, 0) + 1

    def idle(self, value: Value) -> None:
        """Mark a constant that :meth:`sweep` erases if no op reads it."""
        self._idle[value] = None

    def op(self, node: MlirOp) -> None:
        """Read one op, and bind the names of its results."""
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
        """Erase the constants that were only initial values of reductions."""
        function = self.builder.function
        for value in self._idle:
            op = value.op
            if op is not None and op.block and not value.users and not function.returns(value):
                function.block.erase(op)

    def _convert(self, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
        reason = ""
        found: list[Value] | None = None
        try:
            found = read_op(self, node, operands)
        except UnmodelledForm as form:
            reason = f"{node.name}: {form} is not modelled"
        except GraphgenError as error:
            raise self.source.fail(node, error) from error
        if found is None:
            error = GraphgenError("GG0103", reason or f"{node.name} is not modelled")
            raise self.source.fail(node, error)
        return found

    def _control(self, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
        self.source.tokens.deeper()
        try:
            found = read_op(self, node, operands) or []
        except GraphgenError as error:
            raise error if error.where else self.source.fail(node, error) from error
        self.source.tokens.shallower()
        return found

    def outer(self, name: str, node: MlirOp) -> Value:
        """Find the value called ``name`` around ``node`` (GG0202)."""
        return self._value(name, node)

    def function(self, name: str) -> Function:
        """Make a function with a free name."""
        return Function(claim_name(name, self.source.names))

    def fill(
        self,
        function: Function,
        region: MlirRegion,
        values: Mapping[str, Value],
        more: Sequence[Value],
    ) -> None:
        """Read a region into ``function``; its outputs are those of the region, then ``more``."""
        reader = StableHloFunctionReader(self.source, function, dict(values))
        reader._call_site = self._call_site
        returned = [*reader.body(region.body), *more]
        function.outputs = [(str(index), value) for index, value in enumerate(returned)]
        reader.sweep()
        self.source.functions.append(function)

    def _call(self, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
        """Inline the callee."""
        key = "callee" if node.name == "func.call" else "decomposition"
        symbol = node.attrs.get(key)
        callee = self.source.callees.get(symbol.name) if isinstance(symbol, SymbolRef) else None
        if callee is None or not callee.regions:
            what = f"no function @{symbol.name if isinstance(symbol, SymbolRef) else '?'}"
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

    def _value(self, name: str, node: MlirOp) -> Value:
        # "%0#0" also names the only result of %0.
        found = self.values.get(name) or self.values.get(name.removesuffix("#0"))
        if found is None:
            what = f"{name} is not defined before this op"
            raise self.source.fail(node, GraphgenError("GG0202", what))
        return found

    def _bind(self, node: MlirOp, name: str, value: Value, text: str) -> None:
        # The op of "applies" does not state a type.
        if text and value.type is not read_tensor_type(text):
            what = f"{node.name} states {text}, but the op gives {value.type.text}"
            raise self.source.fail(node, GraphgenError("GG0203", what))
        if name in self.values:
            what = f"{name} is defined twice"
            raise self.source.fail(node, GraphgenError("GG0107", what))
        self.values[name] = value
        if value.name is None and value.op is not None:
            value.name = author_name(name)
