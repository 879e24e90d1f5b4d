"""Reader of a ``torch.export.ExportedProgram``: its interface, its ops and its weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from graphgen.build import Builder
from graphgen.errors import GraphgenError
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import MAIN, Function, Literal, Loc, Module, Role, Value, entry, loc
from graphgen.ir.names import claim_name
from graphgen.lowering.abi import clean_name
from graphgen.lowering.aten import complex as complex_numbers
from graphgen.lowering.aten import (
    convolutions,
    elementwise,
    experts,
    indexing,
    nn,
    pooling,
    products,
    reductions,
    shape,
)
from graphgen.lowering.aten.call import ATEN, AtenCall, Rule
from graphgen.lowering.aten.complex_value import COMPLEX, ComplexValue, complex_rule, is_complex
from graphgen.lowering.aten.dtypes import TORCH, dtype_of
from graphgen.lowering.aten.nodes import (
    arguments_of,
    input_shapes,
    is_complex_tensor,
    is_item,
    is_op,
    makes_complex,
    op_name,
    place_of,
    type_of,
    types_of,
)
from graphgen.lowering.aten.sizes import named_sizes
from graphgen.ops import verify

if TYPE_CHECKING:
    from torch import Tensor
    from torch.export import ExportedProgram
    from torch.export.graph_signature import InputSpec
    from torch.fx import Node


# Importing a module registers its rules; in the order of the table in the documentation.
FAMILIES = {
    "element by element": elementwise,
    "shape": shape,
    "places": indexing,
    "reductions": reductions,
    "products": products,
    "networks": nn,
    "convolutions": convolutions,
    "pooling": pooling,
    "experts": experts,
    "complex numbers": complex_numbers,
}


def rule_of(op: str) -> Rule:
    """Look up the rule of an op that :func:`check_known` has passed."""
    return ATEN[op]


def is_known(op: object) -> bool:
    """Test whether an op of torch (``aten.add.Tensor``) has a rule."""
    name = str(op).removeprefix("aten.")
    return name in ATEN or name in COMPLEX


def family_of(op: str) -> str:
    """Return the family of an op in :data:`FAMILIES`."""
    module = (ATEN.get(op) or COMPLEX[op]).__module__
    return next(name for name, found in FAMILIES.items() if found.__name__ == module)


def check_known(called: Sequence[tuple[str, Loc]], where: str) -> None:
    """Refuse a program with ops without a rule (GG0103): name, count and first place of each."""
    counts = Counter(op for op, _ in called if not is_known(op))
    if not counts:
        return
    first = dict(reversed(called))
    lines = [f"{op}: {count} times, first at {first[op]!r}" for op, count in counts.items()]
    names = ", ".join(counts)
    raise GraphgenError(
        "GG0103",
        f"no rule for {len(counts)} of its ops: {names}",
        where=where,
        note="\n".join(lines),
        help="docs/importing.md names those that are known; run_decompositions() makes simpler "
        "ones of some others",
    )


# Largest tensor, in elements, that becomes a literal if a checkpoint does not hold it.
LITERAL = 4096
# The unsigned type of an element's bits, by its bytes.
_BITS = {1: "uint8", 2: "uint16"}


@dataclass(frozen=True, slots=True)
class Exported:
    """An exported program that was read.

    Attributes:
        module: one program, ``main``; parameters and buffers are weights named as in the
            state_dict, buffers the program changes are states.
        weights: the values of the weights, by name.
        states: the values of the states before the first call, by name.
    """

    module: Module
    weights: Mapping[str, Array]
    states: Mapping[str, Array]


def read_exported(program: ExportedProgram, name: str = "exported") -> Exported:
    """Read a ``torch.export.ExportedProgram``.

    It is decomposed to core ATen first, except for ops with a rule of their own. Each op keeps the
    element types and sizes that torch infers.

    Args:
        program: of a model that was exported for inference (``model.eval()``).
        name: what error messages call it.

    Raises:
        GraphgenError: GG0103 naming every op without a rule, GG0101 an element type that is not
            modelled, GG0102 a size that is not a polynomial, GG0502 random or data-dependent
            ops.
    """
    reader = _ExportedReader(decomposed(program, name), name)
    reader.check()
    reader.interface()
    reader.ops()
    reader.results()
    verify(reader.module)
    return Exported(reader.module, reader.weights, reader.states)


def decomposed(program: ExportedProgram, name: str = "") -> ExportedProgram:
    """Decompose a program to core ATen, except for ops with a rule.

    Raises:
        GraphgenError: GG0502 where torch fails.
    """
    import warnings

    import torch

    # Both tables grow where users register ops and rules.
    known = frozenset(ATEN) | frozenset(COMPLEX)
    table = _decompositions(known, len(torch._C._dispatch_get_all_op_names())).copy()  # pyright: ignore[reportPrivateUsage]
    with warnings.catch_warnings(), torch.no_grad():
        # torch warns about its own calls.
        warnings.simplefilter("ignore", FutureWarning)
        try:
            return program.run_decompositions(table)  # pyright: ignore[reportUnknownMemberType]
        except (AssertionError, RuntimeError, ValueError) as error:
            # Errors of torch for a program that it exported and cannot decompose.
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise GraphgenError(
                "GG0502",
                f"torch cannot take its own program apart: {reason[0]}",
                where=name,
                help="torch.export.export(..., strict=True) finds buffers that strict=False loses",
            ) from error


@cache
def _decompositions(known: frozenset[str], ops: int) -> Any:
    """Decompositions of the ops without a rule; collecting them takes a quarter of a reading.

    Args:
        known: names of the ops with a rule.
        ops: how many torch has.
    """
    import torch

    table: Any = torch.export.default_decompositions()
    for op in list(table.keys()):
        if is_known(op):
            # An op with a rule says more than its decomposition.
            table.pop(op)
    return table


@dataclass(frozen=True, slots=True)
class Inlining:
    """The program that an exported one becomes a part of.

    Attributes:
        b: its builder, outside of any scope.
        inputs: the values of the exported program's inputs, by name.
        prefix: what names of parameters, buffers and modules lose, as that of a wrapping module.
        library: a folder with layers that are not the model's own code.
        rules: rules of further ops, whose meaning this program gives.
    """

    b: Builder
    inputs: Mapping[str, Value]
    prefix: str = ""
    library: str = ""
    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])


def inline_exported(
    program: ExportedProgram, name: str, into: Inlining
) -> tuple[list[Value], Mapping[str, Array]]:
    """Append an exported program to another one.

    Its sizes B and S are those of the other program. Parameters become weights of that, under
    their names without the prefix; a weight of this name that it has already is the same.

    Args:
        program: of :func:`decomposed`.
        name: what error messages call it.
        into: the other program.

    Returns:
        The results in order, and the values of parameters and buffers that became weights, by name.

    Raises:
        GraphgenError: as :func:`read_exported`, and GG0502 for a buffer that the program changes.
    """
    reader = _ExportedReader(program, name, into)
    reader.check()
    reader.interface()
    reader.ops()
    return reader.returned(), reader.weights


class _ExportedReader:
    """Reader of one program."""

    def __init__(self, program: ExportedProgram, name: str, into: Inlining | None = None) -> None:
        self.program = program
        self.name = name
        self.into = into
        self.own: Mapping[str, Rule] = {} if into is None else into.rules
        if into is None:
            self.module = Module(clean_name(name.rpartition("/")[2], "exported"))
            self.module.meta["format"] = "torch.export"
            self.function = self.module.add(Function("main", MAIN))
            self.b = Builder(self.function, self.module)
        else:
            assert into.b.module is not None
            self.module, self.function, self.b = into.b.module, into.b.function, into.b
        self.made: dict[Node, Sequence[Value | ComplexValue]] = {}
        self.weights: dict[str, Array] = {}
        self.states: dict[str, Array] = {}
        # Values of parameters by the address of their elements: other names of a tensor share it.
        self.placed: dict[object, Value] = {}
        self.names: dict[str, str] = {}
        self.taken: set[str] = set()
        self.sizes = named_sizes(input_shapes(program))

    def check(self) -> None:
        """Refuse ops without a rule before reading any."""
        nodes = [node for node in self.program.graph.nodes if is_op(node)]
        called = [(op_name(node), self._place(node)) for node in nodes]
        check_known([pair for pair in called if pair[0] not in self.own], self.name)

    def _place(self, node: Node) -> Loc:
        """The line of the model and the module that a node comes from."""
        if self.into is None:
            return place_of(node.meta)
        found = place_of(node.meta, self.into.library)
        return loc(found.file, found.line, f"{found.scope}.".removeprefix(self.into.prefix)[:-1])

    def interface(self) -> None:
        """Declare inputs, weights and states; build small constants as literals."""
        nodes = {n.name: n for n in self.program.graph.nodes if n.op == "placeholder"}
        for spec in self.program.graph_signature.input_specs:
            node = nodes.get(getattr(spec.arg, "name", ""))
            fake: object = node.meta.get("val") if node is not None else None
            if node is None or not hasattr(fake, "shape"):
                # A number or a flag, which is a constant of the export.
                continue
            value = self._given(spec, node)
            self.made[node] = (value,)

    def _given(self, spec: InputSpec, node: Node) -> Value:
        """The value of one argument of the program (GG0101 for a complex one)."""
        if is_complex_tensor(node.meta["val"]):
            raise GraphgenError(
                "GG0101",
                f"{spec.target or node.name} is complex, and only what is computed may be",
                where=self.name,
                help="hold torch.view_as_real of it and let forward take torch.view_as_complex",
            )
        signature = self.program.graph_signature
        target = spec.target or node.name
        mutated = {*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()}
        if self.into is not None and spec.kind.name == "USER_INPUT":
            return self.into.inputs[node.name]
        if spec.kind.name == "USER_INPUT":
            return self._declare(
                Role.STATE if node.name in mutated else Role.INPUT, node.name, node
            )
        held = self._held(target)
        if held is None:
            raise GraphgenError("GG0705", f"the program has no value of {target}", where=self.name)
        if target in mutated and self.into is not None:
            raise GraphgenError(
                "GG0502",
                f"the buffer {target.removeprefix(self.into.prefix)} is changed by the program",
                where=self.name,
                help="keep keys and values in the cache of NeuronAttentionBase",
            )
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
        if self.into is not None:
            name = clean_name(target.removeprefix(self.into.prefix), f"arg{len(self.made)}")
            type_ = type_of(node.meta["val"], self.sizes)
            self.names[target] = name
            return self.b.weight(name, type_.dtype, type_.shape)
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
        """Declare a weight; a tensor with several names is declared once, by its first name."""
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
        place = self.b.loc = self._place(node)
        op = op_name(node)
        try:
            given = arguments_of(node, self._value, self.sizes)
            call = AtenCall(self.b, op, given, types_of(node, self.sizes))
            parts = makes_complex(node) or any(map(is_complex, given.values()))
            rule = self.own.get(op) or (complex_rule(op) if parts else rule_of(op))
            made = rule(call)
        except GraphgenError as error:
            error.where = error.where or repr(place)
            error.note = error.note or f"{op}, {node.format_node()}"
            raise
        results = (made,) if isinstance(made, Value | ComplexValue) else tuple(made)
        for result, wanted in zip(results, call.types, strict=False):
            type_ = (result.real if isinstance(result, ComplexValue) else result).type
            assert type_ is wanted, f"{op}: {type_} is not {wanted}, at {place}"
        self.made[node] = results

    def _value(self, node: Node) -> Value | ComplexValue:
        return self.made[node][0]

    def _returned(self, node: Node, name: str) -> Value:
        """A result of the program (GG0502 for a complex one or another value)."""
        if not hasattr(node, "meta"):
            raise GraphgenError(
                "GG0502",
                f"{name} is {node!r}, not a tensor",
                where=self.name,
                help="return a tensor that is computed of the inputs",
            )
        made = self._value(node)
        if isinstance(made, ComplexValue):
            raise GraphgenError(
                "GG0502",
                f"{name} is complex",
                where=self.name,
                help="return torch.view_as_real of it",
            )
        return made

    def returned(self) -> list[Value]:
        """The results, where another program goes on with them."""
        self.b.loc = None
        (last,) = [node for node in self.program.graph.nodes if node.op == "output"]
        specs = self.program.graph_signature.output_specs
        pairs = zip(specs, cast("Sequence[Node]", last.args[0]), strict=True)
        return [
            self._returned(node, self.name)
            for spec, node in pairs
            if spec.kind.name == "USER_OUTPUT"
        ]

    def results(self) -> None:
        """Declare the outputs: results, and new values of the states."""
        signature = self.program.graph_signature
        (last,) = [node for node in self.program.graph.nodes if node.op == "output"]
        returned = cast("Sequence[object]", last.args[0])
        names = iter(output_names(self.program))
        for spec, node in zip(signature.output_specs, returned, strict=True):
            if spec.kind.name == "USER_OUTPUT":
                self._output(next(names), node)
            elif spec.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION"):
                state = self.names[spec.target or ""]
                value = self._returned(cast("Node", node), state)
                self.function.outputs.append((state, value))
        self._sweep()

    def _output(self, name: str, node: object) -> None:
        if not hasattr(node, "meta") or cast("Node", node) not in self.made:
            # None, or a number that was a constant of the export.
            return
        name = claim_name(name, self.taken)
        self.b.output(name, self._returned(cast("Node", node), name))

    def _sweep(self) -> None:
        """Erase ops whose results are not used."""
        for op in reversed(list(self.function.block)):
            if not self.function.uses(op):
                self.function.block.erase(op)


def output_names(program: ExportedProgram) -> list[str]:
    """Name each result by its path in the value that the model's forward returns.

    ``logits`` of a dataclass or dictionary, ``result.0`` of a tuple, ``result`` alone.
    """
    from torch.utils import _pytree as trees

    spec = program.call_spec.out_spec
    count = len(program.graph_signature.user_outputs)
    plain = ["result"] if count == 1 else [f"result.{index}" for index in range(count)]
    if spec is None or spec.num_leaves != count:
        return plain
    try:
        whole: object = trees.tree_unflatten(list(range(count)), spec)
        leaves, _ = trees.tree_flatten_with_path(whole)
    except (TypeError, ValueError, AttributeError, KeyError):
        # A class of the user that does not accept numbers in place of tensors.
        return plain
    paths = [cast("Sequence[object]", path) for path, _ in leaves]
    if len(paths) != count:
        return plain
    found = [clean_name(trees.keystr(path), "") for path in paths]  # pyright: ignore[reportArgumentType]
    return [name or default for name, default in zip(found, plain, strict=True)]


def array_of(given: Tensor) -> Array:
    """Convert a tensor to an array, which copies only elements that are not contiguous.

    Types that NumPy does not have, such as bf16, are read by their bits.
    """
    import torch

    dtype = numpy_dtype(dtype_of(given.dtype))
    # A view of bits needs contiguous elements.
    ordered = given.detach().cpu().resolve_neg().contiguous()
    known = {name for name in TORCH if hasattr(np, name)} | {"bool"}
    if str(given.dtype).removeprefix("torch.") in known:
        return np.asarray(ordered.numpy())
    bits = getattr(torch, _BITS[dtype.itemsize])
    return np.asarray(ordered.view(bits).numpy()).view(dtype)
