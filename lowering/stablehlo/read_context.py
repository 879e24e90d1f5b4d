"""State of reading a StableHLO text, and the function under construction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Dim, DType, Function, Loc, TensorType, Value, symbol, tensor
from graphgen.ir.names import claim_name
from graphgen.lowering.mlir.mlir_locations import MlirLocations
from graphgen.lowering.mlir.mlir_types import ANY_SIZE, fits_type, is_open
from graphgen.lowering.mlir.syntax_tree import MlirOp, MlirRegion
from graphgen.lowering.mlir.tokens import MlirTokens
from graphgen.lowering.stablehlo.shardy import ShardyMesh


@dataclass(frozen=True, slots=True)
class BoundArguments:
    """Sizes and values of the arguments of a program whose text leaves sizes open.

    Attributes:
        sizes: of an argument, by its name.
        values: of scalar integers that sizes depend on, by name.
        plain: quantized elements are read as the integers that are stored.
    """

    sizes: Mapping[str, Sequence[int]]
    values: Mapping[str, int]
    plain: bool = False


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
        meshes: Shardy's meshes by name.
        composites: the function of each decomposition that has been read, by its symbol; also of
            functions that stay for the attributes of their arguments.
        noted: by symbol, a function's attributes as annotations of one without ops.
        aliases: texts of attributes and types by the names that stand for them.
        kept: counts of the ops kept as their text, with the reason.
        bound: sizes of its arguments, for a text that leaves some open.
        opened: count of the symbols for sizes that it leaves open.
        quantized: the types of values that are read as the integers which they store.
        inlined: count of the ops of functions that are called.
    """

    tokens: MlirTokens
    locations: MlirLocations
    callees: Mapping[str, MlirOp]
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    functions: list[Function] = field(default_factory=list[Function])
    names: set[str] = field(default_factory=set[str])
    meshes: Mapping[str, ShardyMesh] = field(default_factory=dict[str, ShardyMesh])
    composites: dict[str, str] = field(default_factory=dict[str, str])
    noted: dict[str, Function] = field(default_factory=dict[str, Function])
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    kept: dict[str, int] = field(default_factory=dict[str, int])
    bound: BoundArguments | None = None
    opened: int = 0
    quantized: dict[Value, DType] = field(default_factory=dict[Value, DType])
    inlined: int = 0

    @property
    def plain(self) -> bool:
        """Quantized elements are read as the integers that are stored."""
        return self.bound is not None and self.bound.plain

    def loc(self, node: MlirOp, call: Loc | None) -> Loc:
        """Read the location of an op; ``call`` is that of the call it is inlined from."""
        return self.locations.read(node.loc, self.tokens.line_of(node.at), call)

    def closed(self, type_: TensorType, like: Sequence[Value] = ()) -> TensorType:
        """A type with symbols for the sizes that the text leaves open.

        They are those of a value in ``like``, or each its own.
        """
        if not is_open(type_):
            return type_
        for value in like:
            made = tensor(type_.dtype, value.type.shape)
            if fits_type(made, type_):
                return made
        sizes: list[Dim] = []
        for size in type_.shape:
            if size is ANY_SIZE:
                size = symbol(f"size{self.opened}")
                self.opened += 1
            sizes.append(size)
        return tensor(type_.dtype, sizes)

    def keep(self, what: str) -> None:
        """Count an op that is kept as its text."""
        self.kept[what] = self.kept.get(what, 0) + 1

    def fail(self, node: MlirOp, error: GraphgenError) -> GraphgenError:
        """Add the position of ``node`` to an error."""
        where = self.tokens.error("", node.at)
        error.where, error.note = where.where, error.note or where.note
        return error


class StableHloReadContext(ABC):
    """Function under construction, to which readers of ops append.

    Args:
        source: the text.
        function: where ops are appended; it has its arguments.
        values: the values by name.
    """

    def __init__(self, source: StableHloText, function: Function, values: dict[str, Value]) -> None:
        self.source = source
        self.builder = Builder(function)
        self.values = values
        self._idle: dict[Value, None] = {}
        self.notes: dict[str, str] = {}
        # The names of the parts of each tuple.
        self.tuples: dict[str, tuple[str, ...]] = {}

    def emit(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Value:
        """Append an op of one result, with the location of the op being read."""
        return self.builder.emit(name, operands, attrs).result

    def emit_all(self, name: str, operands: Sequence[Value], **attrs: AttrValue) -> Sequence[Value]:
        """Append an op of several results."""
        return self.builder.emit(name, operands, attrs).results

    def note(self, annotations: Mapping[str, str]) -> None:
        """Annotate the op being read."""
        self.notes |= annotations

    def dropped(self, what: str) -> None:
        """Count an attribute without a meaning in the IR, such as a precision."""
        self.source.dropped[what] = self.source.dropped.get(what, 0) + 1

    def idle(self, value: Value) -> None:
        """Mark a constant that :meth:`sweep` erases if no op reads it."""
        self._idle[value] = None

    def sweep(self) -> None:
        """Erase the constants that were only initial values of reductions."""
        function = self.builder.function
        for value in self._idle:
            op = value.op
            if op is not None and op.block and not value.users and not function.returns(value):
                function.block.erase(op)

    def value(self, name: str, node: MlirOp) -> Value:
        """Find the value called ``name`` where ``node`` reads it (GG0202)."""
        # "%0#0" also names the only result of %0.
        found = self.values.get(name) or self.values.get(name.removesuffix("#0"))
        if found is None:
            what = f"{name} is not defined before this op"
            raise self.source.fail(node, GraphgenError("GG0202", what))
        return found

    def function(self, name: str) -> Function:
        """Make a function with a free name like ``name``; :meth:`fill` adds it to the module."""
        return Function(claim_name(name, self.source.names))

    @abstractmethod
    def fill(
        self,
        function: Function,
        region: MlirRegion,
        values: dict[str, Value],
        more: list[Value],
        types: Sequence[TensorType] = (),
    ) -> None:
        """Read a region into ``function``; its outputs are those of the region, then ``more``.

        ``types`` are those of the outputs, for a region whose text leaves their sizes open.
        """
