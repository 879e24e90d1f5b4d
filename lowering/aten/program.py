"""An exported program as a module of ours: its interface, its ops and its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.ir import MAIN, Function, Literal, Module, Role, Value, entry, loc
from graphgen.ir.names import claim_name
from graphgen.lowering.aten.arrays import array_of
from graphgen.lowering.aten.call import Call
from graphgen.lowering.aten.dtypes import dtype_of
from graphgen.lowering.aten.known import check_known, is_known, rule_of
from graphgen.lowering.aten.nodes import (
    arguments_of,
    input_shapes,
    is_item,
    is_op,
    op_name,
    type_of,
    types_of,
)
from graphgen.lowering.aten.outputs import output_names
from graphgen.lowering.aten.provenance import place_of
from graphgen.lowering.aten.sizes import named_sizes
from graphgen.lowering.names import clean_name
from graphgen.ops import verify

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec
    from torch.fx import Node

    from graphgen.eval import Array

# A tensor that no checkpoint holds is written into the program up to this size, in elements.
LITERAL = 4096


@dataclass(frozen=True, slots=True)
class Exported:
    """What an exported program holds.

    Attributes:
        module: one program, ``main``; parameters and buffers are weights named as in the
            state_dict, buffers the program changes are states.
        weights: the values of the weights, by name.
        states: what the states hold before the first call, by name.
    """

    module: Module
    weights: Mapping[str, Array]
    states: Mapping[str, Array]


def read_exported(program: ExportedProgram, name: str = "exported") -> Exported:
    """The module of a ``torch.export.ExportedProgram``.

    It is decomposed to core ATen first, but for ops that have a rule of their own. What is computed
    keeps torch's element types and sizes, which the graph has for each op.

    Args:
        program: of a model that was exported for inference (``model.eval()``).
        name: what error messages call it.

    Raises:
        GraphgenError: GG0103 naming every op that has no rule, GG0101 an element type that has no
            like, GG0102 a size that is no polynomial, GG0502 what depends on chance or on data.
    """
    reader = _Reader(decomposed(program, name), name)
    reader.check()
    reader.interface()
    reader.ops()
    reader.results()
    verify(reader.module)
    return Exported(reader.module, reader.weights, reader.states)


def decomposed(program: ExportedProgram, name: str = "") -> ExportedProgram:
    """The program in core ATen, ops that have a rule left whole.

    Raises:
        GraphgenError: GG0502 where torch fails at it.
    """
    import warnings

    import torch

    table = torch.export.default_decompositions()
    for op in list(table.keys()):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType, reportUnknownArgumentType]
        if is_known(op):
            # What has a rule says more whole than taken apart.
            table.pop(op)  # pyright: ignore[reportUnknownMemberType]
    with warnings.catch_warnings(), torch.no_grad():
        # torch warns about its own use of itself.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return program.run_decompositions(table)  # pyright: ignore[reportUnknownMemberType]
        except (AssertionError, RuntimeError, ValueError) as error:
            # What torch raises for a program it has exported and cannot take apart.
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise GraphgenError(
                "GG0502",
                f"torch cannot take its own program apart: {reason[0]}",
                where=name,
                help="torch.export.export(..., strict=True) finds buffers that strict=False loses",
            ) from error


class _Reader:
    """Reads one program."""

    def __init__(self, program: ExportedProgram, name: str) -> None:
        self.program = program
        self.name = name
        self.module = Module(clean_name(name.rpartition("/")[2], "exported"))
        self.module.meta["format"] = "torch.export"
        self.function = self.module.add(Function("main", MAIN))
        self.b = Builder(self.function, self.module)
        self.made: dict[Node, Sequence[Value]] = {}
        self.weights: dict[str, Array] = {}
        self.states: dict[str, Array] = {}
        # The value of a parameter that another name stands for, by where its elements lie.
        self.placed: dict[object, Value] = {}
        self.names: dict[str, str] = {}
        self.taken: set[str] = set()
        self.sizes = named_sizes(input_shapes(program))

    def check(self) -> None:
        """Refuse ops without a rule before anything is read."""
        nodes = [node for node in self.program.graph.nodes if is_op(node)]
        check_known([(op_name(node), place_of(node.meta)) for node in nodes], self.name)

    def interface(self) -> None:
        """Declare inputs, weights and states, and write down small constants."""
        nodes = {n.name: n for n in self.program.graph.nodes if n.op == "placeholder"}
        for spec in self.program.graph_signature.input_specs:
            node = nodes.get(getattr(spec.arg, "name", ""))
            fake: object = node.meta.get("val") if node is not None else None
            if node is None or not hasattr(fake, "shape"):
                # A number or a flag the program was exported for.
                continue
            value = self._given(spec, node)
            self.made[node] = (value,)

    def _given(self, spec: InputSpec, node: Node) -> Value:
        """The value of one argument of the program."""
        signature = self.program.graph_signature
        target = spec.target or node.name
        mutated = {*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()}
        if spec.kind.name == "USER_INPUT":
            return self._declare(
                Role.STATE if node.name in mutated else Role.INPUT, node.name, node
            )
        held = self._held(target)
        if held is None:
            raise GraphgenError("GG0705", f"the program has no value of {target}", where=self.name)
        if target in mutated:
            value = self._declare(Role.STATE, target, node)
            self.states[self.names[target]] = array_of(held)
            return value
        listed = spec.kind.name == "PARAMETER" or spec.persistent
        if not listed and held.numel() <= LITERAL:
            self.b.loc = loc("?", scope=target.rpartition(".")[0].replace(" ", "_"))
            return self._constant(held)
        return self._weight(target, node, held)

    def _held(self, target: str) -> Tensor | None:
        found: object = self.program.state_dict.get(target)
        found = self.program.constants.get(target) if found is None else found
        return cast("Tensor", found) if hasattr(found, "numel") else None

    def _declare(self, role: Role, target: str, node: Node) -> Value:
        name = self.names[target] = claim_name(
            clean_name(target, f"arg{len(self.made)}"), self.taken
        )
        type_ = type_of(node.meta["val"], self.sizes)
        self.module.interface[name] = entry(role, name, type_)
        return self.function.block.add_arg(type_, name)

    def _constant(self, held: Tensor) -> Value:
        array = array_of(held)
        dtype = dtype_of(held.dtype)
        return self.b.op("constant", value=Literal(dtype, array.shape, array.tobytes()))

    def _weight(self, target: str, node: Node, held: Tensor) -> Value:
        """A weight; of those that are one tensor under several names, the first."""
        place = (held.data_ptr(), tuple(held.shape), held.stride(), str(held.dtype))
        known = self.placed.get(place) if held.numel() else None
        if known is not None:
            return known
        value = self.placed[place] = self._declare(Role.WEIGHT, target, node)
        self.weights[self.names[target]] = array_of(held)
        return value

    def ops(self) -> None:
        """Read every node in order."""
        with self.b:
            for node in self.program.graph.nodes:
                if is_item(node):
                    source, index = node.args[0], node.args[1]
                    self.made[node] = (self.made[cast("Node", source)][cast("int", index)],)
                elif is_op(node):
                    self._read(node)

    def _read(self, node: Node) -> None:
        place = self.b.loc = place_of(node.meta)
        op = op_name(node)
        try:
            given = arguments_of(node, self._value, self.sizes)
            call = Call(self.b, op, given, types_of(node, self.sizes))
            made = rule_of(op)(call)
        except GraphgenError as error:
            error.where = error.where or repr(place)
            error.note = error.note or f"{op}, {node.format_node()}"
            raise
        results = (made,) if isinstance(made, Value) else tuple(made)
        for result, wanted in zip(results, call.types, strict=False):
            assert result.type is wanted, f"{op}: {result.type} is not {wanted}, at {place}"
        self.made[node] = results

    def _value(self, node: Node) -> Value:
        return self.made[node][0]

    def results(self) -> None:
        """Hand back what the program returns, and what its states are then."""
        signature = self.program.graph_signature
        (last,) = [node for node in self.program.graph.nodes if node.op == "output"]
        returned = cast("Sequence[object]", last.args[0])
        names = iter(output_names(self.program))
        for spec, node in zip(signature.output_specs, returned, strict=True):
            if spec.kind.name == "USER_OUTPUT":
                self._output(next(names), node)
            elif spec.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION"):
                state = self.names[spec.target or ""]
                self.function.outputs.append((state, self.made[cast("Node", node)][0]))
        self._sweep()

    def _output(self, name: str, node: object) -> None:
        made = self.made.get(cast("Node", node)) if hasattr(node, "meta") else None
        if made is None:
            # None, or a number that was known when the program was exported.
            return
        name = claim_name(name, self.taken)
        self.b.output(name, made[0])

    def _sweep(self) -> None:
        """Drop ops of which nothing is read."""
        for op in reversed(list(self.function.block)):
            if not any(value.users or self.function.returns(value) for value in op.results):
                self.function.block.erase(op)
