"""Builder methods, one for each op that is written by hand, except elementwise ops."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

from graphgen.build.argument_checks import as_tuple, located
from graphgen.errors import GraphgenError
from graphgen.ir import AttrValue, Dim, DType, Literal, Op, TensorType, Value, tensor
from graphgen.ir.dims import product
from graphgen.ops.window import or_default


class ElementwiseMethods(ABC):
    """Operands broadcast by NumPy's rule; a Python number takes the element type beside it."""

    @abstractmethod
    def emit(
        self, name: str, operands: Sequence[Value], attrs: dict[str, AttrValue] | None = None
    ) -> Op:
        """Append the op ``name`` with inferred result types."""

    @abstractmethod
    def binary(self, name: str, lhs: Value | float, rhs: Value | float) -> Value:
        """An elementwise op of two operands."""

    @abstractmethod
    def full(self, value: float, type: TensorType) -> Value:
        """A tensor of this type filled with ``value``."""

    @abstractmethod
    def alike(
        self, name: str, *operands: Value | float, dtype: DType | None = None
    ) -> Sequence[Value]:
        """The operands of an elementwise op in one shape."""

    def _one(self, name: str, *operands: Value, **attrs: AttrValue) -> Value:
        return self.emit(name, operands, attrs).result

    def exponential(self, x: Value) -> Value:
        """exp(x) for each element."""
        return self._one("exponential", x)

    def exponential_minus_one(self, x: Value) -> Value:
        """exp(x) - 1 for each element, accurate for small x."""
        return self._one("exponential_minus_one", x)

    def log(self, x: Value) -> Value:
        """The natural logarithm of each element."""
        return self._one("log", x)

    def log_plus_one(self, x: Value) -> Value:
        """log(1 + x) for each element, accurate for small x."""
        return self._one("log_plus_one", x)

    def sqrt(self, x: Value) -> Value:
        """The square root of each element; NaN below 0."""
        return self._one("sqrt", x)

    def rsqrt(self, x: Value) -> Value:
        """1 / sqrt(x) for each element."""
        return self._one("rsqrt", x)

    def cbrt(self, x: Value) -> Value:
        """The cube root of each element, which has the element's sign."""
        return self._one("cbrt", x)

    def logistic(self, x: Value) -> Value:
        """1 / (1 + exp(-x)) for each element."""
        return self._one("logistic", x)

    def tanh(self, x: Value) -> Value:
        """The hyperbolic tangent of each element."""
        return self._one("tanh", x)

    def cosine(self, x: Value) -> Value:
        """The cosine of each element, in radians."""
        return self._one("cosine", x)

    def sine(self, x: Value) -> Value:
        """The sine of each element, in radians."""
        return self._one("sine", x)

    def tan(self, x: Value) -> Value:
        """The tangent of each element, in radians."""
        return self._one("tan", x)

    def erf(self, x: Value) -> Value:
        """The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x."""
        return self._one("erf", x)

    def ceil(self, x: Value) -> Value:
        """The least integer >= x for each element."""
        return self._one("ceil", x)

    def floor(self, x: Value) -> Value:
        """The greatest integer <= x for each element."""
        return self._one("floor", x)

    def round_nearest_even(self, x: Value) -> Value:
        """Round each element to the nearest integer, ties to even."""
        return self._one("round_nearest_even", x)

    def round_nearest_afz(self, x: Value) -> Value:
        """Round each element to the nearest integer, ties away from zero."""
        return self._one("round_nearest_afz", x)

    def abs(self, x: Value) -> Value:
        """The absolute value; the lowest integer wraps around to itself."""
        return self._one("abs", x)

    def sign(self, x: Value) -> Value:
        """-1, 0 or 1 as each element is negative, zero or positive; NaN and -0 stay."""
        return self._one("sign", x)

    def negate(self, x: Value) -> Value:
        """-x for each element."""
        return self._one("negate", x)

    def is_finite(self, x: Value) -> Value:
        """True for each element that is neither infinite nor NaN."""
        return self._one("is_finite", x)

    def add(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The sum; integers wrap around."""
        return self.binary("add", lhs, rhs)

    def subtract(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The difference; integers wrap around."""
        return self.binary("subtract", lhs, rhs)

    def multiply(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The product; integers wrap around."""
        return self.binary("multiply", lhs, rhs)

    def divide(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The quotient; integers truncate toward zero, and x/0 is -1 (all ones) as in XLA."""
        return self.binary("divide", lhs, rhs)

    def remainder(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The remainder of the division, with the sign of ``lhs``; integer x%0 is x."""
        return self.binary("remainder", lhs, rhs)

    def power(self, lhs: Value | float, rhs: Value | float) -> Value:
        """``lhs`` to the power of ``rhs``; integers to negative powers are 0, except 1 and -1."""
        return self.binary("power", lhs, rhs)

    def maximum(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The greater one; NaN if either is NaN."""
        return self.binary("maximum", lhs, rhs)

    def minimum(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The lesser one; NaN if either is NaN."""
        return self.binary("minimum", lhs, rhs)

    def atan2(self, lhs: Value | float, rhs: Value | float) -> Value:
        """The angle of the point (x = ``rhs``, y = ``lhs``), in radians."""
        return self.binary("atan2", lhs, rhs)

    def clamp(self, low: Value | float, x: Value, high: Value | float) -> Value:
        """``min(max(x, low), high)``; the bounds are numbers, or broadcast to x."""
        bounds = [
            item if isinstance(item, Value) else self.full(item, tensor(x.dtype))
            for item in (low, high)
        ]
        if any(item.shape and item.shape != x.shape for item in bounds):
            return self._one("clamp", *self.alike("clamp", bounds[0], x, bounds[1]))
        return self._one("clamp", bounds[0], x, bounds[1])

    def compare(self, lhs: Value | float, rhs: Value | float, direction: str) -> Value:
        """``direction`` is one of EQ NE LT LE GT GE."""
        return self._one("compare", *self.alike("compare", lhs, rhs), direction=direction)

    def select(self, pred: Value, on_true: Value | float, on_false: Value | float) -> Value:
        """``on_true`` where ``pred`` holds, else ``on_false``; one of both may be a number."""
        values = [item for item in (on_true, on_false) if isinstance(item, Value)]
        if not values or not isinstance(cast(object, pred), Value):
            return self._one("select", pred, *self.alike("select", on_true, on_false))
        sides = self.alike("select", pred, on_true, on_false, dtype=values[0].dtype)
        return self._one("select", *sides)

    def and_(self, lhs: Value | float, rhs: Value | float) -> Value:
        """Logical and of pred, bitwise and of integers."""
        return self.binary("and", lhs, rhs)

    def or_(self, lhs: Value | float, rhs: Value | float) -> Value:
        """Logical or of pred, bitwise or of integers."""
        return self.binary("or", lhs, rhs)

    def xor(self, lhs: Value | float, rhs: Value | float) -> Value:
        """Logical exclusive or of pred, bitwise exclusive or of integers."""
        return self.binary("xor", lhs, rhs)

    def not_(self, x: Value) -> Value:
        """Logical not of pred, bitwise complement of integers."""
        return self._one("not", x)

    def shift_left(self, lhs: Value | float, rhs: Value | float) -> Value:
        """``lhs`` shifted left by ``rhs`` bits."""
        return self.binary("shift_left", lhs, rhs)

    def shift_right_logical(self, lhs: Value | float, rhs: Value | float) -> Value:
        """``lhs`` shifted right by ``rhs`` bits, filled with 0."""
        return self.binary("shift_right_logical", lhs, rhs)

    def shift_right_arithmetic(self, lhs: Value | float, rhs: Value | float) -> Value:
        """``lhs`` shifted right by ``rhs`` bits, filled with its sign bit."""
        return self.binary("shift_right_arithmetic", lhs, rhs)

    def popcnt(self, x: Value) -> Value:
        """The number of set bits of each integer."""
        return self._one("popcnt", x)

    def count_leading_zeros(self, x: Value) -> Value:
        """The number of zero bits above the highest set bit of each integer."""
        return self._one("count_leading_zeros", x)

    def reduce_precision(self, x: Value, exponent_bits: int, mantissa_bits: int) -> Value:
        """Round each element to these numbers of bits, keeping its type."""
        return self._one(
            "reduce_precision", x, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits
        )


# Elements before and after each dimension.
Padding = Sequence[tuple[int, int]]


def edges(padding: Padding) -> dict[str, AttrValue]:
    """The attributes ``low`` and ``high`` of a list of pairs."""
    low, high = ([pair[side] for pair in padding] for side in (0, 1))
    return {"low": or_default(low, 0), "high": or_default(high, 0)}


class WindowMethods(ElementwiseMethods):
    """Methods that append convolutions and reductions of windows."""

    def reduce_window(
        self,
        x: Value,
        init: Value,
        kind: str,
        sizes: Sequence[int],
        strides: Sequence[int] = (),
        padding: Padding = (),
    ) -> Value:
        """Combine the elements of each window, and ``init``, by add, maximum, ...

        Args:
            x: the operand.
            init: a scalar that enters each window once.
            kind: as for ``reduce``.
            sizes: of the window, one number a dimension, as for the others.
            strides: from one place of the window to the next; 1 by default.
            padding: elements before and after each dimension; 0 by default.
        """
        attrs: dict[str, AttrValue] = {
            "window_dimensions": tuple(sizes),
            "window_strides": or_default(strides, 1),
            "kind": kind,
        }
        return self._one("reduce_window", x, init, **attrs, **edges(padding))

    def convolution(
        self,
        lhs: Value,
        rhs: Value,
        dim_labels: str,
        *,
        strides: Sequence[int] = (),
        padding: Padding = (),
        lhs_dilation: Sequence[int] = (),
        rhs_dilation: Sequence[int] = (),
        reversal: Sequence[int] = (),
        feature_groups: int = 1,
        batch_groups: int = 1,
        dtype: DType | None = None,
    ) -> Value:
        """Sum of products of the kernel ``rhs`` with each window of ``lhs``.

        Args:
            lhs: the input.
            rhs: the kernel.
            dim_labels: dimensions of both and of the result, as in ``bf0_oi0->bf0`` (PyTorch's)
                or ``b01f_01io->b01f`` (JAX's, of images).
            strides: one number a spatial dimension, as for the others; 1 by default.
            padding: zeros before and after each spatial dimension; 0 by default.
            lhs_dilation: from one element of the input to the next; 1 by default.
            rhs_dilation: from one element of the kernel to the next; 1 by default.
            reversal: 1 where the kernel is read backward.
            feature_groups: parts of the features that have kernels of their own.
            batch_groups: parts of the batch that have kernels of their own.
            dtype: of the result, by default that of ``lhs``.
        """
        return self._one(
            "convolution",
            lhs,
            rhs,
            dim_labels=dim_labels,
            window_strides=or_default(strides, 1),
            **edges(padding),
            lhs_dilation=or_default(lhs_dilation, 1),
            rhs_dilation=or_default(rhs_dilation, 1),
            window_reversal=or_default([int(item) for item in reversal], 0),
            feature_group_count=feature_groups,
            batch_group_count=batch_groups,
            dtype=dtype or lhs.dtype,
        )


# Ranks of each group.
Groups = Sequence[Sequence[int]]


def _groups(groups: Groups) -> tuple[tuple[int, ...], ...]:
    return tuple(as_tuple(group) for group in groups)


def _completed(x: Value, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape with the size that -1 stands for (GG0105 if there is none)."""
    place = shape.index(-1)
    whole, known = x.type.size, product((*shape[:place], *shape[place + 1 :]))
    if known == 1:
        return (*shape[:place], whole, *shape[place + 1 :])
    if isinstance(whole, int) and isinstance(known, int) and known > 0 and whole % known == 0:
        return (*shape[:place], whole // known, *shape[place + 1 :])
    for size in x.shape:
        if whole == known * size:
            return (*shape[:place], size, *shape[place + 1 :])
    what = f"no size for -1 in {list(shape)} makes it of {x.type.text}"
    raise located(GraphgenError("GG0105", what, help="-1 may stand once, for a whole size"))


class OpMethods(WindowMethods):
    """Methods that append ops; :class:`~graphgen.build.Builder` defines the insertion point."""

    def convert(self, x: Value, dtype: DType) -> Value:
        """``x`` as another element type; ``x`` itself if it has that type already."""
        return x if x.dtype is dtype else self._one("convert", x, dtype=dtype)

    def bitcast_convert(self, x: Value, dtype: DType) -> Value:
        """The same bits read as another element type of the same width."""
        return self._one("bitcast_convert", x, dtype=dtype)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        """The same elements in another shape; one size may be -1 and is inferred.

        The result is ``x`` itself if the shape is the same.
        """
        if -1 in (shape := as_tuple(shape)):
            shape = _completed(x, shape)
        return x if x.shape == as_tuple(shape) else self._one("reshape", x, shape=as_tuple(shape))

    def reverse(self, x: Value, dimensions: Sequence[int]) -> Value:
        """Reverse the order of the elements along these dimensions."""
        return self._one("reverse", x, dimensions=as_tuple(dimensions))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        """Result dimension i is operand dimension ``permutation[i]``."""
        return self._one("transpose", x, permutation=as_tuple(permutation))

    def broadcast_in_dim(self, x: Value, shape: Sequence[Dim], dimensions: Sequence[int]) -> Value:
        """Operand dimension i becomes result dimension ``dimensions[i]``."""
        return self._one(
            "broadcast_in_dim", x, shape=as_tuple(shape), dimensions=as_tuple(dimensions)
        )

    def slice(self, x: Value, starts: Sequence[Dim], limits: Sequence[Dim]) -> Value:
        """Elements ``start <= i < limit`` of each dimension."""
        return self._one("slice", x, start_indices=as_tuple(starts), limit_indices=as_tuple(limits))

    def slice_dim(self, x: Value, dimension: int, start: Dim, limit: Dim) -> Value:
        """Elements ``start <= i < limit`` of one dimension, all of the others."""
        starts: list[Dim] = [0] * len(x.shape)
        limits = list(x.shape)
        starts[dimension], limits[dimension] = start, limit
        return self.slice(x, starts, limits)

    def concatenate(self, values: Sequence[Value], dimension: int) -> Value:
        """Concatenate the values along ``dimension``."""
        return self._one("concatenate", *as_tuple(values), dimension=dimension)

    def pad(
        self,
        x: Value,
        value: Value,
        low: Sequence[int],
        high: Sequence[int],
        interior: Sequence[int] = (),
    ) -> Value:
        """Pad each dimension with the scalar ``value`` before, after, and between elements.

        Negative numbers before and after cut elements off.
        """
        between = or_default(as_tuple(interior), 0)
        return self._one("pad", x, value, low=as_tuple(low), high=as_tuple(high), interior=between)

    def iota(self, dtype: DType, shape: Sequence[Dim], dimension: int) -> Value:
        """Counts 0, 1, 2, ... along ``dimension``."""
        return self._one("iota", dtype=dtype, shape=as_tuple(shape), dimension=dimension)

    def modulo(self, x: Value, n: int) -> Value:
        """``x`` modulo ``n``, 0 to n-1, of integers from ``-n`` on."""
        if n & (n - 1) == 0:
            # The low bits of two's complement.
            return self.binary("and", x, n - 1)
        return self.binary("remainder", self.binary("add", x, n), n)

    def quantize(
        self,
        x: Value,
        dtype: DType,
        dimensions: Sequence[int],
        limit: float,
        block: Sequence[int] = (),
    ) -> tuple[Value, Value]:
        """Narrow values and f32 scales = max(abs(x)) over ``dimensions``, or ``block``, / limit."""
        shared = {"dimensions": as_tuple(dimensions), "block": as_tuple(block)}
        made = self.emit("quantize", (x,), {"dtype": dtype, "limit": limit, **shared})
        return made.results[0], made.results[1]

    def dequantize(
        self,
        values: Value,
        scale: Value,
        zero_point: Value | None = None,
        *,
        block: Sequence[int],
        dtype: DType,
    ) -> Value:
        """``(values - zero_point) * scale``, with a scale and a zero point a block."""
        facts = (scale,) if zero_point is None else (scale, zero_point)
        return self._one("dequantize", values, *facts, block=as_tuple(block), dtype=dtype)

    def take(self, x: Value, indices: Value, dimension: int, block: int = 1) -> Value:
        """Gather blocks ``indices`` of ``dimension``; zeros for an index out of range."""
        return self._one("take", x, indices, dimension=dimension, block=block)

    def custom_call(
        self, target: str, x: Sequence[Value], results: Sequence[TensorType], config: str = ""
    ) -> tuple[Value, ...]:
        """Call the function ``target`` of the device compiler, with results of these types."""
        attrs: dict[str, AttrValue] = {"target": target, "config": config}
        return self.emit("custom_call", x, {**attrs, "results": as_tuple(results)}).results

    def sort(
        self, values: Sequence[Value], dimension: int, *, descending: bool = False
    ) -> tuple[Value, ...]:
        """Sort along ``dimension`` by the first value; the others are permuted alike."""
        attrs: dict[str, AttrValue] = {"dimension": dimension, "descending": descending}
        return self.emit("sort", values, attrs).results

    def top_k(self, x: Value, k: int) -> tuple[Value, Value]:
        """The ``k`` largest elements of the last dimension, and their indices (s32)."""
        made = self.emit("top_k", (x,), {"k": k})
        return made.results[0], made.results[1]

    def reduce(self, x: Value, dimensions: Sequence[int], kind: str) -> Value:
        """Reduce along ``dimensions`` by add, multiply, maximum, minimum, and, or, xor."""
        return self._one("reduce", x, dimensions=as_tuple(dimensions), kind=kind)

    def dot_general(
        self,
        lhs: Value,
        rhs: Value,
        contracting: tuple[Sequence[int], Sequence[int]],
        batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
        dtype: DType | None = None,
    ) -> Value:
        """Sum of products; ``dtype`` is the result's element type, by default that of ``lhs``."""
        return self._one(
            "dot_general",
            lhs,
            rhs,
            lhs_contracting_dims=tuple(contracting[0]),
            rhs_contracting_dims=tuple(contracting[1]),
            lhs_batch_dims=tuple(batch[0]),
            rhs_batch_dims=tuple(batch[1]),
            dtype=dtype or lhs.dtype,
        )

    def dot(self, x: Value, weight: Value, dtype: DType | None = None) -> Value:
        """``x`` [..., K] times ``weight`` [N, K], the checkpoint's own layout: [..., N]."""
        return self.dot_general(x, weight, ([len(x.shape) - 1], [1]), dtype=dtype)

    def dynamic_slice(self, x: Value, starts: Sequence[Value], sizes: Sequence[Dim]) -> Value:
        """The slice of these sizes at scalar starts."""
        return self._one("dynamic_slice", x, *starts, slice_sizes=as_tuple(sizes))

    def dynamic_update_slice(self, x: Value, update: Value, starts: Sequence[Value]) -> Value:
        """``x`` with ``update`` written at scalar starts."""
        return self._one("dynamic_update_slice", x, update, *starts)

    def all_reduce(self, x: Value, groups: Groups, kind: str = "add") -> Value:
        """Reduce over the ranks of each group."""
        return self._one("all_reduce", x, kind=kind, replica_groups=_groups(groups))

    def all_gather(self, x: Value, groups: Groups, dimension: int) -> Value:
        """Concatenate the values of each group's ranks along ``dimension``."""
        return self._one("all_gather", x, dimension=dimension, replica_groups=_groups(groups))

    def reduce_scatter(self, x: Value, groups: Groups, dimension: int, kind: str = "add") -> Value:
        """Reduce over the ranks of each group; each rank keeps its part of ``dimension``."""
        replica_groups = _groups(groups)
        return self._one(
            "reduce_scatter", x, kind=kind, dimension=dimension, replica_groups=replica_groups
        )

    def all_to_all(self, x: Value, groups: Groups, split: int, concat: int) -> Value:
        """Exchange parts along ``split`` within each group, concatenated along ``concat``."""
        return self._one(
            "all_to_all",
            x,
            split_dimension=split,
            concat_dimension=concat,
            replica_groups=_groups(groups),
        )

    def collective_permute(self, x: Value, pairs: Groups) -> Value:
        """Send the value of each pair's source rank to its target rank."""
        return self._one("collective_permute", x, source_target_pairs=_groups(pairs))

    def embedding(self, table: Value, ids: Value) -> Value:
        """Rows ``ids`` of ``table`` [V,E]."""
        return self._one("embedding", table, ids)

    def rms_norm(self, x: Value, weight: Value, epsilon: float) -> Value:
        """Root-mean-square norm over the last dimension."""
        return self._one("rms_norm", x, weight, epsilon=epsilon)

    def layer_norm(self, x: Value, weight: Value, bias: Value, epsilon: float) -> Value:
        """Layer norm of the last dimension."""
        return self._one("layer_norm", x, weight, bias, epsilon=epsilon)

    def silu(self, x: Value) -> Value:
        """``x * logistic(x)``."""
        return self._one("silu", x)

    def gelu(self, x: Value, approximate: str) -> Value:
        """``x * Phi(x)``, exact (``none``) or approximated by ``tanh`` or ``sigmoid``."""
        return self._one("gelu", x, approximate=approximate)

    def rope_table(
        self, positions: Value, inv_freq: Literal, scale: float = 1.0
    ) -> tuple[Value, Value]:
        """Cosine and sine of ``positions * inv_freq``."""
        attrs: dict[str, AttrValue] = {"inv_freq": inv_freq, "scale": scale}
        cos, sin = list(self.emit("rope_table", (positions,), attrs).results)
        return cos, sin

    def rope(self, x: Value, cos: Value, sin: Value, pairs: str = "halves") -> Value:
        """Rotate x [B,S,H,D] by the table; pairs are ``halves`` or ``neighbors``."""
        return self._one("rope", x, cos, sin, pairs=pairs)

    def key_positions(self, lengths: Value, attended: Dim) -> Value:
        """Position in each of the first ``attended`` slots of plain rows, -1 for none."""
        return self._one("key_positions", lengths, attended=attended)

    def attention_mask(
        self, positions: Value, key_positions: Value, window: int = 0, chunk: int = 0
    ) -> Value:
        """Causal mask pred [B,S,C] over slots, of the last ``window`` positions if not 0.

        ``key_positions`` s32 [B,C] is the position in each slot, negative for none. With a
        ``chunk`` a token reads positions of its own chunk only.
        """
        return self._one("attention_mask", positions, key_positions, window=window, chunk=chunk)

    def key_distance(self, positions: Value, attended: Dim) -> Value:
        """Slot minus token position for the first ``attended`` cache slots: f32 [B,S,C]."""
        return self._one("key_distance", positions, attended=attended)

    def kv_update(self, cache: Value, new: Value, seq_ids: Value, slots: Value) -> Value:
        """``cache`` [R,M,K,D] with ``new`` [B,S,K,D] written at ``slots`` s32 [B,S] of its rows."""
        return self._one("kv_update", cache, new, seq_ids, slots)

    def cache_read(self, cache: Value, seq_ids: Value, attended: Dim) -> Value:
        """The first ``attended`` slots of the rows ``seq_ids``."""
        return self._one("cache_read", cache, seq_ids, attended=attended)

    def attention(
        self,
        q: Value,
        k: Value,
        v: Value,
        mask: Value,
        scale: float,
        *terms: Value,
        softcap: float = 0.0,
    ) -> Value:
        """Softmax attention of q [B,S,H,D] over k [B,C,K,D] and v [B,C,K,W].

        ``terms`` are any of these, in order: slopes f32 [H] and distances f32 [B,S,C], a bias f32
        [B,H,S,C], sinks f32 [H].
        """
        return self._one("attention", q, k, v, mask, *terms, scale=scale, softcap=softcap)

    def last_token(self, x: Value, positions: Value, lengths: Value) -> Value:
        """Each row's token at position ``lengths - 1``."""
        return self._one("last_token", x, positions, lengths)
