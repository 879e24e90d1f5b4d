"""Predicates of rules: functions of an op, the predicate's argument and the request."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

from graphgen.ir import Op, Value
from graphgen.lowering.check.compiler_rules import custom_call_targets
from graphgen.lowering.check.op_attributes import attributes_of
from graphgen.ops import Trait, has_trait
from graphgen.ops.control import kernel_of
from graphgen.targets import find_target


@dataclass(frozen=True, slots=True)
class Request:
    """The compiler settings that a module is checked for.

    Attributes:
        target: an accelerator.
        lnc: physical cores a logical core is made of.
        flags: neuronx-cc's flags, as one text.
        sdk_next: as the SDK after 2.32 announces itself: integers are no longer narrowed silently.
    """

    target: str
    lnc: int
    flags: str = ""
    sdk_next: bool = False

    @property
    def legality(self) -> str:
        """The name under which ``legality.json`` lists the target."""
        return find_target(self.target).legality_name


Predicate = Callable[[Op, object, Request], bool]


def _types(names: object) -> frozenset[str]:
    return frozenset(name.lower() for name in cast(Sequence[str], names))


def _operand_in(op: Op, argument: object, _: Request) -> bool:
    index, names = cast(tuple[int, Sequence[str]], argument)
    return index < len(op.operands) and op.operands[index].dtype.name in _types(names)


def _operand_not_in(op: Op, argument: object, request: Request) -> bool:
    return bool(op.operands) and not _operand_in(op, argument, request)


def _operand_not_constant(op: Op, argument: object, _: Request) -> bool:
    """``1`` is one operand, ``2..`` all from it on."""
    text = str(argument)
    first = int(text.removesuffix(".."))
    looked = op.operands[first:] if text.endswith("..") else op.operands[first : first + 1]
    return any(value.producer("constant") is None for value in looked)


def _any_type(op: Op, argument: object, _: Request) -> bool:
    values = (*op.operands, *op.results)
    return any(value.dtype.name in _types(argument) for value in values)


def _result_type(op: Op, argument: object, _: Request) -> bool:
    return op.results[0].dtype.name in _types(argument)


def _bodies(op: Op) -> str:
    return str(attributes_of(op).get("kind", ""))


def _contracted(op: Op) -> int:
    dims = cast(Sequence[int], attributes_of(op).get("lhs_contracting_dims", ()))
    return prod(op.operands[0].type.dims[dim] for dim in dims)


def _iota_beyond(op: Op, _: object, __: Request) -> bool:
    """The indices are provably an iota that runs past the dimension they look up."""
    dims = op.operands[0].type.dims
    source = _iota_behind(op.operands[1])
    return source is not None and bool(dims) and max(source.type.dims, default=0) > max(dims)


def _iota_behind(value: Value) -> Value | None:
    for _ in range(16):
        if value.op is None:
            return None
        if value.op.name == "iota":
            return value
        if not (has_trait(value.op, Trait.RELAYOUT) or value.op.name == "concatenate"):
            return None
        value = value.op.operands[0]
    return None


def _not_a_ring(op: Op, _: object, __: Request) -> bool:
    """Pairs that are not full cycles of one length."""
    pairs = _groups(op, "source_target_pairs")
    following = {pair[0]: pair[1] for pair in pairs}
    lengths: set[int] = set()
    left = set(following)
    while left:
        start = at = next(iter(left))
        length = 0
        while at in left:
            left.discard(at)
            at, length = following[at], length + 1
        if at != start:
            return True
        lengths.add(length)
    return len(lengths) > 1


def _groups(op: Op, key: str = "replica_groups") -> Sequence[Sequence[int]]:
    return cast(Sequence[Sequence[int]], attributes_of(op).get(key, ()))


def _uneven(op: Op, _: object, __: Request) -> bool:
    groups = _groups(op)
    ranks = [rank for group in groups for rank in group]
    return len(set(ranks)) != len(ranks) or len({len(group) for group in groups}) > 1


def _group_size(op: Op, argument: object, _: Request) -> bool:
    return any(len(group) == argument for group in _groups(op))


def _not_row_gather(op: Op, _: object, __: Request) -> bool:
    """Anything but whole rows of a table: one index, one collapsed dimension."""
    collapsed, mapped = _gathered(op)
    return collapsed != (0,) or mapped != (0,)


def _gathered(op: Op) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions a gather collapses, and those it looks up."""
    keys = ("collapsed_slice_dims", "start_index_map")
    collapsed, mapped = (cast(tuple[int, ...], attributes_of(op).get(key, ())) for key in keys)
    return collapsed, mapped


def _map_meets_offsets(op: Op, _: object, __: Request) -> bool:
    collapsed, mapped = _gathered(op)
    kept = [dim for dim in range(op.operands[0].type.rank) if dim not in collapsed]
    return bool(set(mapped) & set(kept))


def _window(name: str) -> Predicate:
    """Some number of a window is greater than the argument."""

    def over(op: Op, argument: object, _: Request) -> bool:
        values = cast(Sequence[int], attributes_of(op).get(name, ()))
        return any(value > cast(int, argument) for value in values)

    return over


def _out_of_32_bits(op: Op, _: object, __: Request) -> bool:
    literal = op.attrs.literal("value")
    width = literal.dtype.bytes
    signed = literal.dtype.name.startswith("s")
    data = bytes(literal.data)
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
    numbers = (
        int.from_bytes(data[at : at + width], "little", signed=signed)
        for at in range(0, len(data), width)
    )
    return any(not low <= number <= high for number in numbers)


def _always(_: Op, __: object, ___: Request) -> bool:
    return True


def _last_dim(op: Op) -> int:
    dims = op.operands[0].type.dims
    return dims[-1] if dims else 1


PREDICATES: Mapping[str, Predicate] = {
    "operand_dtype_in": _operand_in,
    "operand_dtype_not_in": _operand_not_in,
    "operand_not_constant": _operand_not_constant,
    "any_dtype_in": _any_type,
    "dtype_in": _result_type,
    "result_dtype_in": _result_type,
    "body_in": lambda op, names, _: _bodies(op) in cast(Sequence[str], names),
    "body_not_in": lambda op, names, _: (
        bool(_bodies(op)) and _bodies(op) not in cast(Sequence[str], names)
    ),
    # Which flag turns an error into a warning is not a condition; see `check`.
    "unless_flag": _always,
    "lnc": lambda _, argument, request: request.lnc == argument,
    "group_size_eq": _group_size,
    "replica_groups_overlap_or_uneven": _uneven,
    "pairs_not_ring": _not_a_ring,
    "split_dim_ne": lambda op, argument, _: (
        attributes_of(op).get("split_dimension", argument) != argument
    ),
    "contract_dim_not_multiple_of": lambda op, n, _: bool(_contracted(op) % cast(int, n)),
    "minor_dim_lt": lambda op, n, _: (op.result.type.dims or (1 << 30,))[-1] < cast(int, n),
    "rank_ge": lambda op, n, _: op.results[0].type.rank >= cast(int, n),
    "bytes_gt": lambda op, n, _: op.results[0].type.nbytes > cast(int, n),
    "value_out_of": _out_of_32_bits,
    "iota_index_extent_gt_operand_dim": _iota_beyond,
    "start_index_map_intersects_offset_dims": _map_meets_offsets,
    "not_row_gather": _not_row_gather,
    "num_operands_gt": lambda op, n, _: len(op.operands) > cast(int, n),
    "num_operands_ne": lambda op, n, _: len(op.operands) != cast(int, n),
    "lhs_dilation_gt": _window("lhs_dilation"),
    "rhs_dilation_gt": _window("rhs_dilation"),
    "stride_gt": _window("window_strides"),
    "base_dilation_gt": _window("base_dilations"),
    "window_dilation_gt": _window("window_dilations"),
    "window_eq_dim": lambda op, _, __: (
        attributes_of(op).get("window_dimensions") == tuple(op.operands[0].type.dims)
    ),
    "algorithm_ne": lambda op, name, _: op.attrs.get("algorithm", name) != name,
    "target_not_in": lambda op, _, __: (
        (kernel_of(op) or op.attrs.get("target")) not in custom_call_targets()
    ),
    "dim_ne_last": lambda op, _, __: (
        attributes_of(op).get("dimension", -1) not in (-1, op.operands[0].type.rank - 1)
    ),
    "dim_size_gt": lambda op, n, _: _last_dim(op) > cast(int, n),
    "dim_size_not_multiple_of": lambda op, n, _: bool(_last_dim(op) % cast(int, n)),
    "k_ge": lambda op, n, _: cast(int, attributes_of(op).get("k", 0)) >= cast(int, n),
}
