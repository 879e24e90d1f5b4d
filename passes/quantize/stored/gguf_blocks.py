"""GGUF's blocks of 32 weights: 8-bit numbers, and 4-bit numbers two to a byte.

https://github.com/ggml-org/llama.cpp, ``ggml-quants.c``. A byte holds a number of the first half of
a run in its lower four bits and one of the second half in its upper four. A run is a block of 32 in
Q4_0 and Q4_1; in Q4_K it is 64 numbers, two blocks that have scales of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.build import Builder
from graphgen.composites.quantize import spread_blocks
from graphgen.ir import DType, TensorType, Value, tensor
from graphgen.ir.dtype import f32, s4, s8, u4, u8
from graphgen.passes.quantize.stored.scheme import Parts, StoredForm, Widen, widened

BLOCK = 32


def nibble_parts(run: int, *, minimum: bool) -> Parts:
    """Bytes [..., out, runs, bytes of a run], and a scale and perhaps a smallest number a block.

    Args:
        run: numbers of a row that share bytes, each byte one of either half.
        minimum: whether blocks have a number that is added to each of theirs.
    """

    def parts(form: StoredForm, shape: tuple[int, ...]) -> Mapping[str, TensorType]:
        *outer, columns = shape
        found = {
            "qs": tensor(u8, (*outer, columns // run, run // 2)),
            "d": tensor(form.scale, form.counts(shape)),
        }
        return {**found, "m": tensor(form.scale, form.counts(shape))} if minimum else found

    return parts


def nibble_widen(run: int) -> Widen:
    """``d * (q - 8)`` in Q4_0, ``d * q + m`` in the others, which is ``d * (q - -m / d)``.

    Args:
        run: as for :func:`nibble_parts`.
    """

    def widen(
        b: Builder,
        form: StoredForm,
        parts: Mapping[str, Value],
        shape: tuple[int, ...],
        dtype: DType,
    ) -> Value:
        *outer, columns = shape
        pairs, last = b.bitcast_convert(parts["qs"], u4), len(shape) + 1
        halves = b.transpose(pairs, (*range(last - 1), last, last - 1))
        numbers = b.reshape(halves, (*outer, columns // run * run))
        scale, least = parts["d"], parts.get("m")
        if least is None:
            wide = b.convert(numbers, s8)
            signed = b.convert(b.binary("subtract", wide, b.full(8, wide.type)), s4)
            return widened(b, form, signed, scale, None, dtype)
        # A block that is the same number m has no steps: it is (0 - -1) * m, in the type of d.
        flat = b.compare(scale, b.full(0.0, scale.type), "EQ")
        spread = spread_blocks(b, flat, form.sizes(shape), shape)
        numbers = b.select(spread, b.full(0, numbers.type), numbers)
        steps = b.select(flat, b.full(1.0, scale.type), scale)
        zero = b.binary("divide", b.negate(b.convert(least, f32)), b.convert(steps, f32))
        zero = b.select(flat, b.full(-1.0, zero.type), zero)
        return widened(b, form, numbers, b.select(flat, least, scale), zero, dtype)

    return widen
