"""Logical axes: classes of dimensions that ops shard together, named by their use.

Union-find over the factors of all ops: the rows of q's weight and the heads of the cache are one
axis because attention reads both. Names such as ``heads`` come from the ops that use the axis, not
from tensor names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from graphgen.ir import HELD_ROLES, Function, Module, Op, Role, Value
from graphgen.ops.convolution import dims_of
from graphgen.ops.factors import Factors
from graphgen.passes.sharding.op_factors import factors_of

HEADS, KV_HEADS, INTERMEDIATE = "heads", "kv_heads", "intermediate"
VOCAB, HIDDEN, POSITIONS = "vocab", "hidden", "positions"
BATCH, SEQUENCE, ROWS, SLOTS = "batch", "sequence", "rows", "slots"
# Inner features of experts are ``intermediate`` too; a rule for them alone comes after.
EXPERTS, MOE_INTERMEDIATE = "experts", "moe_intermediate"
# Query heads apart from key-value heads, which ranks otherwise divide together.
QUERY_HEADS = "query_heads"
# The names that sharding rules may use.
LOGICAL = (
    *(HEADS, KV_HEADS, INTERMEDIATE, VOCAB, HIDDEN, POSITIONS),
    *(BATCH, SEQUENCE, ROWS, SLOTS),
    *(EXPERTS, MOE_INTERMEDIATE),
    QUERY_HEADS,
)

# A dimension of a value; arguments by name, because programs share weights.
Place = tuple[object, int]


@dataclass(slots=True)
class ModelAxes:
    """The logical axes of a module.

    Attributes:
        names: per representative of an axis, its names.
    """

    names: dict[Place, set[str]] = field(default_factory=dict[Place, set[str]])
    _above: dict[Place, Place] = field(default_factory=dict[Place, Place])

    def of(self, value: Value, dim: int) -> set[str]:
        """The names of the axis of a dimension; possibly several, or none."""
        return self.names.get(self.find(_place(value, dim)), set())

    def find(self, place: Place) -> Place:
        """The representative of the axis of ``place``."""
        root = place
        while (above := self._above.get(root, root)) != root:
            root = above
        while (above := self._above.get(place, place)) != root:
            self._above[place] = root
            place = above
        return root

    def join(self, one: Place, other: Place) -> None:
        """Merge the axes of two dimensions."""
        left, right = self.find(one), self.find(other)
        if left != right:
            self._above[right] = left

    def call(self, place: Place, name: str) -> None:
        """Add a name to the axis of ``place``."""
        self.names.setdefault(self.find(place), set()).add(name)


def _place(value: Value, dim: int) -> Place:
    return (value.name if value.op is None else value), dim


def query_axes(module: Module) -> ModelAxes:
    """The axis of query heads, where these are not joined with their key-value heads."""
    axes = ModelAxes()
    for function in module.programs():
        for op in function.block:
            factors = factors_of(op)
            if factors is not None:
                _join(axes, op, factors, whole=op.name == "attention")
    for function in module.programs():
        for op in function.block:
            if op.name == "attention":
                axes.call(_place(op.operands[0], 2), QUERY_HEADS)
    return axes


def model_axes(module: Module) -> ModelAxes:
    """Compute the logical axes of all programs of a module."""
    axes = ModelAxes()
    mixed: list[Place] = []
    weights = {f: _made_of_weights(module, f) for f in module.programs()}
    for function in weights:
        # Of adapters too; but an axis between two of their products has no name.
        made = _made_of_weights(module, function, HELD_ROLES)
        for op in function.block:
            factors = factors_of(op)
            if factors is not None:
                _join(axes, op, factors)
                # Weight preparation runs on whole tensors.
                mixed += [] if op.results[0] in made else _mixed(op, factors)
    for function in module.programs():
        _name_by_ops(axes, function)
    weighted = {f: _Weighted(axes, f, made) for f, made in weights.items()}
    for function, products in weighted.items():
        _name_vocabulary(axes, module, function, products, weights[function])
    # Inputs and outputs are not between two products.
    mixed += _outside(module)
    apart = {axes.find(place) for place in mixed}
    for products in weighted.values():
        for axis in products.taken & products.given - apart:
            if not axes.names.get(axis):
                # One weight product defines it, another contracts it, and no op mixes it.
                axes.call(axis, INTERMEDIATE)
    return axes


def _outside(module: Module) -> Iterator[Place]:
    """Dimensions of inputs and outputs."""
    for function in module.programs():
        values = [*function.args, *[value for _, value in function.outputs]]
        names = [*[value.name or "" for value in function.args], *[n for n, _ in function.outputs]]
        for name, value in zip(names, values, strict=True):
            row = module.interface.get(name)
            if row is not None and row.role in (Role.INPUT, Role.OUTPUT):
                yield from (_place(value, dim) for dim in range(value.type.rank))


def _made_of_weights(
    module: Module, function: Function, roles: Sequence[Role] = (Role.WEIGHT,)
) -> set[Value]:
    """Weights, or arguments of other roles too, and values that derive from such alone."""
    found = {
        value
        for value in function.args
        if (row := module.interface.get(value.name or "")) and row.role in roles
    }
    fixed = set(found)
    for op in function.block:
        if all(value in fixed for value in op.operands):
            fixed.update(op.results)
            if any(value in found for value in op.operands):
                found.update(op.results)
    return found


def _join(axes: ModelAxes, op: Op, factors: Factors, *, whole: bool = False) -> None:
    """Merge dimensions that share their outermost factor, or, where ``whole``, all factors."""
    first: dict[tuple[int, ...], Place] = {}
    for value, dims in _dims(op, factors):
        for dim, parts in enumerate(dims):
            known = tuple([part for part in parts if factors.sizes[part] != 1])[:1]
            key = parts if whole else known
            if key:
                axes.join(first.setdefault(key, _place(value, dim)), _place(value, dim))


def _dims(op: Op, factors: Factors) -> Iterator[tuple[Value, tuple[tuple[int, ...], ...]]]:
    yield from zip(op.operands, factors.operands, strict=True)
    yield from zip(op.results, factors.results, strict=True)


def _mixed(op: Op, factors: Factors) -> Iterator[Place]:
    """Dimensions that need replication, or that a ``reduce`` sums over."""
    summed = frozenset(factors.reduction) if op.name == "reduce" else frozenset[int]()
    for value, dims in _dims(op, factors):
        for dim, parts in enumerate(dims):
            if parts and parts[0] in factors.need_replication | summed:
                yield _place(value, dim)


# Op -> (operand, dimension, name).
_NAMES: Mapping[str, tuple[tuple[int, int, str], ...]] = {
    "attention": ((0, 2, HEADS), (1, 2, KV_HEADS)),
    "embedding": ((0, 1, HIDDEN),),
    "experts": ((3, 0, EXPERTS), (3, 1, INTERMEDIATE), (3, 1, MOE_INTERMEDIATE)),
    "kv_update": ((0, 0, ROWS), (0, 1, SLOTS), (3, 0, BATCH), (3, 1, SEQUENCE)),
}


def _name_by_ops(axes: ModelAxes, function: Function) -> None:
    written = [_sources(op.operands[3]) for op in function.block if op.name == "kv_update"]
    positions = {value for sources in written for value in sources}
    for op in function.block:
        for index, dim, name in _NAMES.get(op.name, ()):
            axes.call(_place(op.operands[index], dim), name)
        if op.name == "embedding":
            # A table that is indexed by cache positions is a position table.
            of_places = not positions.isdisjoint(_sources(op.operands[1]))
            axes.call(_place(op.operands[0], 0), POSITIONS if of_places else VOCAB)


def _sources(value: Value) -> set[Value]:
    """The arguments that a value depends on."""
    found: set[Value] = set()
    seen, work = {value}, [value]
    while work:
        current = work.pop()
        if current.op is None:
            found.add(current)
            continue
        fresh = [operand for operand in current.op.operands if operand not in seen]
        seen.update(fresh)
        work += fresh
    return found


# Ops that read rows of a tensor by number, and those that only lay them out otherwise.
_LOOKUPS = ("gather", "take", "embedding")
_VIEWS = ("reshape", "transpose", "convert", "dequantize")


class _Weighted:
    """The free and the contracted axes of a program's products with weights."""

    def __init__(self, axes: ModelAxes, function: Function, weights: Set[Value]) -> None:
        self.given: set[Place] = set()
        self.taken: set[Place] = set()
        looked_up = _looked_up(function, weights)
        for op in function.block:
            weight, taken, given = _weight_of_product(op, weights | looked_up)
            if weight is not None:
                self.taken.update(axes.find(_place(weight, dim)) for dim in taken)
                self.given.update(axes.find(_place(weight, dim)) for dim in given)


def _weight_of_product(
    op: Op, weights: Set[Value]
) -> tuple[Value | None, Sequence[int], Sequence[int]]:
    """The weight of a product, its contracted dimensions, and the dimensions kept in the result.

    ``None`` for other ops, and for products of two weights. A weight may be on either side of
    ``dot_general``; of ``convolution`` it is the kernel.
    """
    found = [side for side, value in enumerate(op.operands) if value in weights]
    if len(found) != 1:
        return None, (), ()
    weight = op.operands[found[0]]
    if op.name == "dot_general":
        side = ("lhs", "rhs")[found[0]]
        summed = op.attrs.integers(f"{side}_contracting_dims")
        paired = {*summed, *op.attrs.integers(f"{side}_batch_dims")}
        return weight, summed, [dim for dim in range(weight.type.rank) if dim not in paired]
    whole = op.name == "convolution" and op.attrs.integer("feature_group_count") == 1
    if whole and found[0] == 1:
        kernel = dims_of(op.attrs.text("dim_labels"))[1]
        return weight, (kernel.first,), (kernel.second,)
    return None, (), ()


def _looked_up(function: Function, weights: Set[Value]) -> set[Value]:
    """Rows of weights that the program chooses as it runs, such as those of experts."""
    found: set[Value] = set()
    for op in function.block:
        if op.operands and (op.name in _LOOKUPS or op.name in _VIEWS):
            chosen = op.operands[0] in weights and op.name in _LOOKUPS
            if (chosen and op.operands[0].type.rank > 2) or op.operands[0] in found:
                found.update(op.results)
    return found


def _name_vocabulary(
    axes: ModelAxes, module: Module, function: Function, products: _Weighted, weights: Set[Value]
) -> None:
    """Name the logits: weight products that are returned or are operands of ``top_k``."""
    if not any(op.name == "embedding" for op in function.block):
        # A program without embedding has no vocabulary.
        return
    outputs = [v for name, v in function.outputs if module.interface[name].role is Role.OUTPUT]
    outputs += [op.operands[0] for op in _choices_of_tokens(function, weights)]
    for value in outputs:
        if value.type.rank:
            axis = axes.find(_place(value, value.type.rank - 1))
            passed_on = axis in products.taken or axis not in products.given
            if not passed_on and not axes.names.get(axis):
                axes.call(axis, VOCAB)


def _choices_of_tokens(function: Function, weights: Set[Value]) -> list[Op]:
    """The ``top_k`` ops after which no weight is read: routers choose experts before one."""
    leads: set[Value] = set()
    found: list[Op] = []
    for op in reversed(function.block):
        reads = any(value in weights for value in op.operands)
        if reads or any(value in leads for value in op.results):
            leads.update(op.operands)
        elif op.name == "top_k":
            found.append(op)
    return found
