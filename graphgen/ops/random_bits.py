"""Random bits from a state, always the same ones."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.ir import Attrs, Dim, TensorType, tensor
from graphgen.ir.dtype import pred, u64
from graphgen.ops.attr_types import DIMS, ELEMENT, choice
from graphgen.ops.factors import Factors
from graphgen.ops.opdef import attr, define, require
from graphgen.ops.traits import Trait, Types

# Integer operations for each number: about ten rounds of four.
_WORK = 40


def _factors(operands: Types, results: Types, attrs: Attrs) -> Factors:
    """None: every rank makes all bits, since those of a part are not a part of those."""
    values = [((),) * type_.rank for type_ in (*operands, *results)]
    return Factors((), tuple(values[:1]), tuple(values[1:]))


def _cost(operands: Types, results: Types, attrs: Attrs) -> tuple[Dim, Dim]:
    return results[1].size * _WORK, 0


@define(
    "rng_bit_generator",
    "state",
    attr("algorithm", choice("rng_default", "rng_three_fry", "rng_philox")),
    attr("dtype", ELEMENT),
    attr("shape", DIMS),
    factors=_factors,
    cost=_cost,
)
def _rng_bit_generator(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """The next state, and random bits of any type and shape.

    The state is a key and a counter: two u64, and with Philox also three, whose counter has 128
    bits. ``rng_default`` is left to the compiler; XLA takes Philox on a CPU. The bits are a
    function of the state, so that equal states give equal bits.

    Example:
        %s, %y = rng_bit_generator(%state) algorithm=rng_three_fry dtype=u32 shape=[4,2] : u64[2], \
u32[4,2]
    """
    (state,) = types
    algorithm, dtype = attrs.text("algorithm"), attrs.element("dtype")
    sizes = (2,) if algorithm == "rng_three_fry" else (2, 3)
    legal = state.dtype is u64 and state.shape in [(size,) for size in sizes]
    wanted = " or ".join([f"u64[{size}]" for size in sizes])
    require(legal, f"{algorithm} needs a state {wanted}, got {state.text}", 0)
    plain = (dtype.is_integer or dtype.is_float) and dtype.bits in (8, 16, 32, 64)
    require(plain, f"makes numbers of 8, 16, 32 or 64 bits, not {dtype.name}")
    return state, tensor(dtype, attrs.dims("shape"))


@define(
    "rng",
    "a b",
    attr("distribution", choice("rng_uniform", "rng_normal")),
    attr("dtype", ELEMENT),
    attr("shape", DIMS),
    traits=(Trait.EXTERNAL,),
)
def _rng(types: Sequence[TensorType], attrs: Attrs) -> tuple[TensorType, ...]:
    """Random numbers, other ones in each run: uniform in [a, b), or normal of mean a, deviation b.

    Nothing computes them here but XLA. ``rng_bit_generator`` gives numbers that can be repeated.

    Example:
        %y = rng(%low, %high) distribution=rng_uniform dtype=f32 shape=[4,2] : f32[4,2]
    """
    dtype = attrs.element("dtype")
    for index, type_ in enumerate(types):
        require(type_ is tensor(dtype), f"needs {dtype.name}[], got {type_.text}", index)
    if attrs.text("distribution") == "rng_normal":
        require(dtype.is_float, f"no normal distribution of {dtype.name}")
    plain = dtype.is_number or dtype is pred
    require(plain, f"no uniform distribution of {dtype.name}")
    return (tensor(dtype, attrs.dims("shape")),)
