"""Reader of a StableHLO function: its ops into a function of the IR, calls inlined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphgen.errors import GraphgenError
from graphgen.ir import Function, Loc, Op, TensorType, Value, attrs_of
from graphgen.limits import OPS
from graphgen.lowering.abi import clean_name
from graphgen.lowering.mlir.mlir_types import (
    ANY_SIZE,
    fits_type,
    is_open,
    read_bounded_type,
    read_tensor_type,
    type_text,
)
from graphgen.lowering.mlir.syntax_tree import MlirOp, MlirRegion, SymbolRef
from graphgen.lowering.mlir.value_names import author_name
from graphgen.lowering.stablehlo.attribute_notes import annotations_of
from graphgen.lowering.stablehlo.bounded_sizes import dynamic_sizes
from graphgen.lowering.stablehlo.collective_rows import COLLECTIVE_ROWS
from graphgen.lowering.stablehlo.composite_notes import composite_notes
from graphgen.lowering.stablehlo.control_rows import CONTROL
from graphgen.lowering.stablehlo.dialect import read_op
from graphgen.lowering.stablehlo.module_notes import channel_notes, is_noted, notes_of
from graphgen.lowering.stablehlo.op_row import UnmodelledForm
from graphgen.lowering.stablehlo.opaque_ops import keep_op, why_kept
from graphgen.lowering.stablehlo.quantized_arithmetic import plain_type, read_plain
from graphgen.lowering.stablehlo.read_context import StableHloReadContext
from graphgen.numbers import BAD_NUMBER

# Ops that put names together, and take them apart.
_TUPLES = ("stablehlo.tuple", "stablehlo.get_tuple_element")
# Ops on tokens that the IR has.
_ON_TOKENS = ("stablehlo.after_all", "stablehlo.create_token")
_COLLECTIVES = frozenset([f"stablehlo.{row.op}" for row in COLLECTIVE_ROWS])


# Ops that state the sizes of their result, which a text of StableHLO can only do in numbers.
_STATING = frozenset(
    ("broadcast_in_dim", "reshape", "iota", "slice", "pad", "gather", "dynamic_slice")
)


def _leaves_open(node: MlirOp, operands: Sequence[Value]) -> bool:
    return any("?" in text and "bounds<" not in text for text in node.types) or any(
        is_open(value.type) for value in operands
    )


def _is_written(op: Op) -> bool:
    """The op can be written with the types that it has."""
    if any(size is ANY_SIZE for value in op.results for size in value.type.shape):
        return False
    return op.name not in _STATING or not any(is_open(value.type) for value in op.results)


def _agree(found: Sequence[Value], node: MlirOp) -> bool:
    types = [read_bounded_type(text)[0] for text in node.types if text]
    return len(types) != len(found) or all(
        fits_type(value.type, type_) for value, type_ in zip(found, types, strict=True)
    )


def _from(first: Op | None) -> Iterator[Op]:
    while first is not None:
        yield first
        first = first.next


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
            if node.name in ("func.return", "stablehlo.return", "sdy.return"):
                return [
                    self.value(leaf, node) for name in node.operands for leaf in self._leaves(name)
                ]
            self.op(node)
        return []

    def op(self, node: MlirOp) -> None:
        """Read one op, and bind the names of its results."""
        if self._call_site is not None:
            self._count_inlined(node)
        if node.name in _TUPLES:
            self._tuple(node)
            return
        self._refuse_tuples(node)
        self.builder.loc = self.source.loc(node, self._call_site)
        operands = [self.value(name, node) for name in node.operands]
        before, outer, self.notes = self.builder.function.block.last, self.notes, {}
        if node.name == "func.call":
            results = self._call(node, operands)
        elif node.name == "stablehlo.composite":
            results = self._composite(node, operands)
        elif node.name in CONTROL:
            results = self._control(node, operands)
        else:
            results = self._convert(node, operands)
        if not len(node.results) == len(results) == len(node.types):
            what = f"{node.name} has {len(results)} results, {len(node.results)} are named"
            raise self.source.fail(node, GraphgenError("GG0105", what))
        for name, value, text in zip(node.results, results, node.types, strict=True):
            self._bind(node, name, value, text)
        self._annotate(node, results, before)
        self.notes = outer

    def _leaves(self, name: str) -> list[str]:
        """The names of the arrays in a value, which may be a tuple."""
        parts = self.tuples.get(name)
        return [name] if parts is None else [leaf for part in parts for leaf in self._leaves(part)]

    def _tuple(self, node: MlirOp) -> None:
        """Read a tuple, or an element of one: other names for the same arrays."""
        (name,) = node.results
        if node.name == "stablehlo.tuple":
            self.tuples[name] = tuple(node.operands)
            return
        parts, index = self.tuples.get(node.operands[0]), node.attrs.get("index")
        index = index[0] if isinstance(index, tuple) and len(index) == 1 else index
        if parts is None or not isinstance(index, int) or not 0 <= index < len(parts):
            raise self.source.fail(
                node, GraphgenError("GG0103", f"{node.name}: of what is not known")
            )
        if parts[index] in self.tuples:
            self.tuples[name] = self.tuples[parts[index]]
        else:
            self.values[name] = self.value(parts[index], node)

    def _refuse_tuples(self, node: MlirOp) -> None:
        given = any(name in self.tuples for name in node.operands)
        if given or any(text.startswith("tuple<") for text in node.types):
            error = GraphgenError("GG0103", f"{node.name} takes or gives a tuple")
            raise self.source.fail(node, error)

    def _count_inlined(self, node: MlirOp) -> None:
        """Refuse calls that multiply the ops of a text (GG1102)."""
        self.source.inlined += 1
        # Of a text with a line for each op, all its ops twenty times.
        if self.source.inlined > max(OPS.most, len(self.source.tokens.source) // 2):
            what = f"inlining calls makes more than {self.source.inlined - 1} ops"
            help = f"--limits {OPS.name}=N raises this"
            raise self.source.fail(node, GraphgenError("GG1102", what, help=help))

    def _annotate(self, node: MlirOp, results: Sequence[Value], before: Op | None) -> None:
        """Annotate the op that gives the results with the unread attributes of the text."""
        inlined = node.name == "func.call"
        channel = channel_notes(node.attrs) if node.name in _COLLECTIVES else {}
        found = {**self.notes, **channel, **annotations_of(node.attrs, self.source.meshes)}
        if not found:
            return
        last = self.builder.function.block.last
        made = [value.op for value in results] or [last]
        fresh = last is not before and not inlined
        for op in dict.fromkeys(made):
            if op is not None and fresh and op.block is self.builder.function.block:
                op.annotations = attrs_of({**op.annotations, **found})
            else:
                for key in found:
                    self.dropped(f"{key} of {node.name}")

    def _convert(self, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
        reason = ""
        found: list[Value] | None = None
        try:
            if self.source.plain and self._on_quantized(node, operands):
                return read_plain(self, node, operands, read_op)
            why = why_kept(node, operands)
            if why and node.name not in _ON_TOKENS:
                self.source.keep(f"{node.name}: {why}")
                return keep_op(self, node, operands)
            if _leaves_open(node, operands):
                return self._open(node, operands)
            found = read_op(self, node, operands)
        except UnmodelledForm as form:
            reason = f"{node.name}: {form} is not modelled"
        except GraphgenError as error:
            raise self.source.fail(node, error) from error
        except BAD_NUMBER as error:
            unfit = GraphgenError("GG0104", f"{node.name}: its parts do not fit: {error}")
            raise self.source.fail(node, unfit) from error
        if found is None:
            error = GraphgenError("GG0103", reason or f"{node.name} is not modelled")
            raise self.source.fail(node, error)
        return found

    def _on_quantized(self, node: MlirOp, operands: Sequence[Value]) -> bool:
        if any(value in self.source.quantized for value in operands):
            return True
        return any("!quant." in text for text in node.types)

    def _open(self, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
        """Read an op of open sizes by its row where that infers them, else keep it as its text."""
        block, functions = self.builder.function.block, len(self.source.functions)
        before, noted = block.last, dict(self.notes)
        try:
            found = read_op(self, node, operands)
            made = [*_from(block.first if before is None else before.next)]
            if found is not None and all(map(_is_written, made)) and _agree(found, node):
                return found
            reason = GraphgenError(
                "GG0103", f"{node.name}: its sizes do not follow from its operands"
            )
        except UnmodelledForm as form:
            reason = GraphgenError("GG0103", f"{node.name}: {form} is not modelled")
        except GraphgenError as error:
            reason = error
        if self.source.bound is not None:
            raise reason
        while block.last is not None and block.last is not before:
            block.erase(block.last)
        del self.source.functions[functions:]
        self.notes = noted
        self.source.keep(f"{node.name}: it has open sizes")
        return keep_op(self, node, operands)

    def _control(self, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
        if any(map(dynamic_sizes, operands)) or any("bounds<" in text for text in node.types):
            what = f"{node.name}: bounded sizes in loops and branches are not modelled"
            raise self.source.fail(node, GraphgenError("GG0103", what))
        self.source.tokens.deeper()
        try:
            found = read_op(self, node, operands) or []
        except GraphgenError as error:
            raise error if error.where else self.source.fail(node, error) from error
        except BAD_NUMBER as error:
            unfit = GraphgenError("GG0104", f"{node.name}: its parts do not fit: {error}")
            raise self.source.fail(node, unfit) from error
        self.source.tokens.shallower()
        return found

    def fill(
        self,
        function: Function,
        region: MlirRegion,
        values: dict[str, Value],
        more: list[Value],
        types: Sequence[TensorType] = (),
    ) -> None:
        """Read a region into ``function``; its outputs are those of the region, then ``more``."""
        reader = StableHloFunctionReader(self.source, function, values)
        reader._call_site = self._call_site
        returned = [*reader.body(region.body), *more]
        for index, (value, type_) in enumerate(zip(returned, types, strict=False)):
            returned[index] = reader._of_type(value, type_)
        function.outputs = [(str(index), value) for index, value in enumerate(returned)]
        reader.sweep()
        self.source.functions.append(function)

    def _of_type(self, value: Value, type_: TensorType) -> Value:
        """A value with the open sizes of another type, which are the same ones."""
        open_ = is_open(value.type) or is_open(type_)
        alike = value.type.rank == type_.rank and value.type.dtype is type_.dtype
        if value.type is type_ or not (open_ and alike):
            return value
        text = f"stablehlo.convert %0 : ({type_text(value.type)}) -> {type_text(type_)}"
        opcode = "stablehlo.convert"
        return self.emit("hlo.opaque", [value], opcode=opcode, text=text, results=(type_,))

    def _callee(self, node: MlirOp, key: str, operands: Sequence[Value]) -> MlirOp:
        """The function that an op names, which must take its operands."""
        symbol = node.attrs.get(key)
        callee = self.source.callees.get(symbol.name) if isinstance(symbol, SymbolRef) else None
        if callee is None or not callee.regions:
            what = f"no function @{symbol.name if isinstance(symbol, SymbolRef) else '?'}"
            raise self.source.fail(node, GraphgenError("GG0202", what))
        taken = len(callee.regions[0].args)
        if taken != len(operands):
            what = f"@{callee.attrs['sym_name']} takes {taken} operands, got {len(operands)}"
            raise self.source.fail(node, GraphgenError("GG0105", what))
        return callee

    def _composite(self, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
        """Read a composite as a call of its decomposition, annotated with its attributes."""
        callee = self._callee(node, "decomposition", operands)
        self.note(composite_notes(node))
        return self._called(node, callee, operands)

    def _called(self, node: MlirOp, callee: MlirOp, operands: Sequence[Value]) -> list[Value]:
        """Read a call of a function that stays one."""
        symbol = str(callee.attrs["sym_name"])
        name = self.source.composites.get(symbol)
        if name is None:
            function = self.function(clean_name(symbol, "composite"))
            name = self.source.composites[symbol] = function.name
            region = callee.regions[0]
            values = {
                argument.name: function.block.add_arg(
                    read_tensor_type(argument.type), author_name(argument.name) or f"arg{index}"
                )
                for index, argument in enumerate(region.args)
            }
            notes = self._notes(symbol, callee)
            function.annotations = notes.annotations
            for value, noted in zip(function.args, notes.args, strict=False):
                value.annotations = noted.annotations
            self.source.tokens.deeper()
            self.fill(function, region, values, [])
            self.source.tokens.shallower()
        results = tuple([read_tensor_type(text) for text in node.types])
        return list(self.emit_all("call", operands, to_apply=name, results=results))

    def _notes(self, symbol: str, callee: MlirOp) -> Function:
        """The attributes of a function that is called, as annotations."""
        found = self.source.noted.get(symbol)
        if found is None:
            found = self.source.noted[symbol] = notes_of(callee, self.source.meshes)
        return found

    def _call(self, node: MlirOp, operands: Sequence[Value]) -> list[Value]:
        """Inline the callee, unless its arguments or results have attributes: then it stays."""
        callee = self._callee(node, "callee", operands)
        symbol = str(callee.attrs["sym_name"])
        open_ = any("?" in argument.type for argument in callee.regions[0].args)
        # With given sizes all that is called is needed to compute others.
        inline = open_ or self.source.bound is not None
        if is_noted(self._notes(symbol, callee)) and not inline:
            return self._called(node, callee, operands)
        region = callee.regions[0]
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
        stated, dynamic = read_bounded_type(text) if text else (value.type, dynamic_sizes(value))
        if self.source.plain:
            stated = plain_type(stated)
        if not fits_type(value.type, stated) or dynamic_sizes(value) != dynamic:
            what = f"{node.name} states {text}, but the op gives {value.type.text}"
            raise self.source.fail(node, GraphgenError("GG0203", what))
        if name in self.values:
            what = f"{name} is defined twice"
            raise self.source.fail(node, GraphgenError("GG0107", what))
        self.values[name] = value
        if value.name is None and value.op is not None:
            value.name = author_name(name)
