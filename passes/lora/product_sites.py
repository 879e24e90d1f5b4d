"""The products and lookups of a program that may have an adapter beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from graphgen.build import Builder
from graphgen.ir import AttrValue, Dim, Function, Module, Op, Value
from graphgen.json_value import parse_json
from graphgen.passes.core import NoMatch, no_match
from graphgen.passes.weights.derived import PreparedValues

# Ops that only move the numbers of a matrix, or convert them.
_MOVES = ("reshape", "transpose", "slice", "convert")


@dataclass(frozen=True, slots=True)
class WeightChain:
    """The matrix of a product, and the ops that lead from it to the product's right operand.

    Attributes:
        module: the checkpoint's name of the projection: that of its weight without the last part.
        matrix: the two-dimensional value that the ops start from.
        depth: the dimension of ``matrix`` that the product sums over.
        steps: each op, with the dimension of its operand and that of its result that the product
            sums over.
    """

    module: str
    matrix: Value
    depth: int
    steps: tuple[tuple[Op, int, int], ...]

    @property
    def sizes(self) -> tuple[int, int]:
        """Inputs and outputs of the whole projection."""
        first, second = self.matrix.type.dims
        return (second, first) if self.depth else (first, second)

    def expand(self, b: Builder, lora_b: Value) -> tuple[Value, int]:
        """Apply the ops to the ``lora_B`` [slots, out, r] of the whole projection.

        The low rank r is in the place of the inputs, a dimension further right for the slots.

        Returns:
            The value, and the dimension of r.
        """
        value = lora_b if self.depth else b.transpose(lora_b, (0, 2, 1))
        for op, before, after in self.steps:
            value = _again(b, op, value, before, after)
        return value, (self.steps[-1][2] if self.steps else self.depth) + 1


def weight_chain(value: Value, depth: int, prepared: PreparedValues) -> WeightChain | None:
    """The chain of the right operand of a product; ``None`` where it is made otherwise.

    Args:
        value: the right operand.
        depth: the dimension that the product sums over.
        prepared: the values of the program that are made of weights alone.
    """
    steps: list[tuple[Op, int, int]] = []
    found: tuple[Value, int, int] | None = None
    while prepared.of_weights(value):
        if value.type.rank == 2 and value.type.static:
            found = value, depth, len(steps)
        op, after = value.op, depth
        before = _operand_dim(op, after) if op is not None and op.name in _MOVES else None
        if op is None or before is None:
            break
        value, depth = op.operands[0], before
        if op.name != "convert":
            steps.append((op, before, after))
    if found is None:
        return None
    # The last one: what is before it is how numbers of a few bits are stored.
    value, depth, count = found
    del steps[count:]
    names = {name.rpartition(".")[0] for name in prepared.sources(value)}
    if len(names) != 1 or "" in names:
        return None
    return WeightChain(names.pop(), value, depth, tuple(reversed(steps)))


def _operand_dim(op: Op, dim: int) -> int | None:
    """The dimension of an op's operand that is ``dim`` of its result; ``None`` if none is."""
    operand, result = op.operands[0], op.result
    if op.name == "transpose":
        return op.attrs.integers("permutation")[dim]
    if op.name == "reshape":
        ahead = prod(_sizes(result.shape[:dim]))
        found = [
            place
            for place, size in enumerate(operand.shape)
            if size == result.shape[dim] and prod(_sizes(operand.shape[:place])) == ahead
        ]
        return found[0] if found else None
    return dim if operand.shape[dim] == result.shape[dim] else None


def _sizes(shape: Sequence[Dim]) -> list[int]:
    """Sizes of a weight, which no symbol stands for."""
    return [size for size in shape if isinstance(size, int)]


def _again(b: Builder, op: Op, value: Value, before: int, after: int) -> Value:
    """The same op with slots in front, and r in the place of the inputs."""
    slots, low = value.shape[0], value.shape[before + 1]
    shape = [low if dim == after else size for dim, size in enumerate(op.result.shape)]
    if op.name == "transpose":
        order = [dim + 1 for dim in op.attrs.integers("permutation")]
        return b.transpose(value, (0, *order))
    if op.name == "reshape":
        return b.reshape(value, (slots, *shape))
    starts, limits = op.attrs.dims("start_indices"), list(op.attrs.dims("limit_indices"))
    limits[before] = low
    attrs: dict[str, AttrValue] = {"start_indices": (0, *starts), "limit_indices": (slots, *limits)}
    if strides := op.attrs.integers("strides"):
        attrs["strides"] = (1, *strides)
    return b.emit("slice", (value,), attrs).result


# The name of a head that shares the weight of the embedding.
TIED_HEAD = "lm_head"
# Ops that end what is computed of one product alone.
_ENDS = ("dot_general", "attention", "kv_update", "experts")


@dataclass(frozen=True, slots=True)
class AdapterSite:
    """A product with a weight, or an embedding.

    Attributes:
        op: the product or the embedding.
        module: the checkpoint's name of the projection.
        inputs, outputs: sizes of the projection; an embedding has the vocabulary as its inputs.
        last: the op whose result the term is added to: ``op``, or the multiplication of its result
            by the scales of the weight.
        chain: of the weight of a product; ``None`` for an embedding.
        own: whether only targets that name it include it: embeddings, heads and routers.
    """

    op: Op
    last: Op
    module: str
    inputs: int
    outputs: int
    chain: WeightChain | None
    own: bool

    def wanted(self, targets: Sequence[str]) -> bool:
        """True if one of ``targets`` names it, or they are empty and it is an ordinary one."""
        if not targets:
            return not self.own
        return any(self.module == name or self.module.endswith(f".{name}") for name in targets)


@dataclass(frozen=True, slots=True)
class ExpertSite:
    """A mixture, whose experts have adapters of all three projections, or none.

    Attributes:
        op: ``experts``.
        modules: the checkpoint's names of gate, up and down, which end with ``experts.NAME``.
        sizes: (inputs, outputs) of each, of one expert.
        count: E.
    """

    op: Op
    modules: tuple[str, str, str]
    sizes: tuple[tuple[int, int], ...]
    count: int

    def wanted(self, targets: Sequence[str]) -> bool:
        """True if one of ``targets`` names a projection, with ``experts.`` in front."""
        return any(
            module == name or (module.endswith(f".{name}") and "." in name)
            for module in self.modules
            for name in targets
        )


@dataclass(frozen=True, slots=True)
class ProgramSites:
    """The sites of one program, and why its other products are none."""

    sites: Sequence[AdapterSite]
    mixtures: Sequence[ExpertSite]
    refused: Mapping[Op, NoMatch]

    @property
    def all_sites(self) -> Sequence[AdapterSite | ExpertSite]:
        """Projections and mixtures."""
        return [*self.sites, *self.mixtures]


def program_sites(module: Module, function: Function) -> ProgramSites:
    """The sites of a program, in its order."""
    prepared = PreparedValues(module, function, {}, enlarged=True)
    tables = {op.operands[0] for op in function.block if op.name == "embedding"}
    vocabulary = _vocabulary(module, tables)
    sites: list[AdapterSite] = []
    mixtures: list[ExpertSite] = []
    refused: dict[Op, NoMatch] = {}
    for op in function.block:
        if op.name == "embedding":
            if site := _of_embedding(op):
                sites.append(site)
        elif op.name == "dot_general":
            found = _of_product(op, prepared, tables, vocabulary)
            if isinstance(found, NoMatch):
                refused[op] = found
            else:
                sites.append(found)
        elif op.name == "experts":
            mixture = _of_mixture(op)
            if isinstance(mixture, NoMatch):
                refused[op] = mixture
            else:
                mixtures.append(mixture)
    return ProgramSites(sites, mixtures, refused)


def _of_mixture(op: Op) -> ExpertSite | NoMatch:
    matrices = op.operands[3:6]
    for matrix in matrices:
        if matrix.op is not None or not (matrix.name or "").endswith(".weight"):
            what = "its matrices are not those of the checkpoint, one stack for each projection"
            return no_match(what, matrix)
    gate, up, down = ((matrix.name or "").removesuffix(".weight") for matrix in matrices)
    shapes = [matrix.type.dims for matrix in matrices]
    sizes = tuple((inputs, outputs) for _, outputs, inputs in shapes)
    return ExpertSite(op, (gate, up, down), sizes, shapes[0][0])


def _of_embedding(op: Op) -> AdapterSite | None:
    table = op.operands[0]
    if table.op is not None or not table.type.static or op.operands[1].type.rank != 2:
        return None
    module = (table.name or "").rpartition(".")[0]
    words, width = table.type.dims
    return AdapterSite(op, op, module, words, width, None, own=True) if module else None


def _of_product(
    op: Op, prepared: PreparedValues, tables: set[Value], vocabulary: int
) -> AdapterSite | NoMatch:
    lhs, rhs = op.operands
    depths = op.attrs.integers("rhs_contracting_dims")
    if op.attrs.integers("lhs_batch_dims"):
        return no_match("the product has batch dimensions", lhs)
    if not prepared.of_weights(rhs) or lhs in prepared:
        return no_match("it is not a product of a value with a weight", rhs, depth=2)
    if len(depths) != 1:
        return no_match(f"it sums over {len(depths)} dimensions", rhs, depth=3)
    chain = weight_chain(rhs, depths[0], prepared)
    if chain is None:
        return no_match("its weight is not one matrix of the checkpoint", rhs, depth=4)
    tied = chain.matrix in tables
    inputs, outputs = chain.sizes
    own = tied or outputs == vocabulary or _chooses(op)
    name = TIED_HEAD if tied else chain.module
    return AdapterSite(op, _scaled(op, prepared), name, inputs, outputs, chain, own)


def _scaled(op: Op, prepared: PreparedValues) -> Op:
    """The multiplication of a product by the scales of its weight; the product where none is."""
    reader = prepared.only_reader(op.result)
    if reader is None or reader.name != "multiply":
        return op
    other = next(value for value in reader.operands if value is not op.result)
    return reader if _of_scales(other, prepared) else op


def _of_scales(value: Value, prepared: PreparedValues) -> bool:
    """True for scales that are broadcast to the shape of a call, symbols and all."""
    while value.op is not None and value.op.name in ("broadcast_in_dim", "convert"):
        value = value.op.operands[0]
    return prepared.of_weights(value)


def _vocabulary(module: Module, tables: set[Value]) -> int:
    """Number of words: what the configuration states, else the rows of the largest table."""
    try:
        config: object = parse_json(module.meta.get("config", "{}"))
    except ValueError:
        config = None
    stated = (
        cast("Mapping[str, object]", config).get("vocab_size") if isinstance(config, dict) else 0
    )
    if isinstance(stated, int) and stated > 0:
        return stated
    return max([table.type.dims[0] for table in tables if table.type.static], default=0)


def _chooses(op: Op) -> bool:
    """True if a choice is made of the product before anything is multiplied by it: a router."""
    work, seen = [op.result], {op.result}
    while work:
        for reader in work.pop().users:
            if reader.name == "top_k":
                return True
            if reader.name not in _ENDS:
                fresh = [value for value in reader.results if value not in seen]
                seen.update(fresh)
                work += fresh
    return False
