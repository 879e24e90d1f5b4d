"""Reader of a StableHLO function: its ops into a function of the IR, calls inlined."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Loc, Value
from graphgen.lowering.stablehlo.control_rows import CONTROL
from graphgen.lowering.stablehlo.dialect import read_op
from graphgen.lowering.stablehlo.op_row import UnmodelledForm
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.lowering.stablehlo.text.mlir_types import read_tensor_type
from graphgen.lowering.stablehlo.text.syntax_tree import MlirOp, MlirRegion, SymbolRef
from graphgen.lowering.stablehlo.text.value_names import author_name


class StableHloFunctionReader(StableHloReadContext):
    """Reader of ops into one function."""

    _call_site: Loc | None = None

    def body(self, nodes: Sequence[MlirOp]) -> list[Value]:
        """Append the ops, and return the operands of the last one.

        Raises:
            GraphgenError: GG0103 an op that is not modelled, GG0202 an undefined value, and the
                errors of the op table, each with its position in the text.
        """
        for node in nodes:
            if node.name in ("func.return", "stablehlo.return"):
                return [self.value(name, node) for name in node.operands]
            self.op(node)
        return []

    def op(self, node: MlirOp) -> None:
        """Read one op, and bind the names of its results."""
        self.builder.loc = self.source.loc(node, self._call_site)
        operands = [self.value(name, node) for name in node.operands]
        if node.name in ("func.call", "stablehlo.composite"):
            results = self._call(node, operands)
        elif node.name in CONTROL:
            results = self._control(node, operands)
        else:
            results = self._convert(node, operands)
        for name, value, text in zip(node.results, results, node.types, strict=True):
            self._bind(node, name, value, text)

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

    def fill(
        self, function: Function, region: MlirRegion, values: dict[str, Value], more: list[Value]
    ) -> None:
        """Read a region into ``function``; its outputs are those of the region, then ``more``."""
        reader = StableHloFunctionReader(self.source, function, values)
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
