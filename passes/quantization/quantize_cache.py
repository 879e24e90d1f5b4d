"""Quantize KV caches to 8 bits: a half or a quarter of the memory and of the bytes read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from graphgen.build import Builder
from graphgen.config.fields import option, words
from graphgen.config.option_words import CACHE_SCALES
from graphgen.errors import GraphgenError
from graphgen.ir import DType, Entry, Function, Module, Op, Role, Value
from graphgen.passes.core import NoMatch, Pass, Rewriter, no_match, register
from graphgen.passes.quantization.cache_form import (
    CACHE_ELEMENTS,
    FIXED_SCALES,
    NO_SCALE,
    PER_TOKEN,
    CacheForm,
    Cast,
    PerRow,
    Scaled,
    scales_of,
)
from graphgen.passes.quantization.cache_ranges import read_ranges
from graphgen.passes.quantization.narrow_budgets import NARROW_BUDGETS
from graphgen.passes.weights.layout_change import repack

_RULE = "quantize-state"


@register
@dataclass(frozen=True)
class QuantizeCache(Pass):
    """Quantize keys and values to 8 bits at cache writes, and dequantize them at reads.

    With ``scale=none`` they are converted as they are, and what is beyond the type becomes its
    largest number: 240 for ``f8e4m3``, as Neuron's ends there, 448 for OCP's ``f8e4m3fn``, which
    trn3 has and earlier chips have not, 57344 for ``f8e5m2``.

    With ``scale=per_token`` each row that is written, the channels of one token and head, has a
    scale of its own, its largest magnitude over that of the type (127 for ``int8``): rows are bytes
    and four longer, for the scale at their end. With ``per_tensor``, ``per_key`` (one for
    each key-value head) and ``per_channel`` scales are constants of the programs, from the file
    ``ranges``, which ``graphgen calibrate`` writes; what is beyond them becomes the largest number.

    A state that a program reads or writes otherwise than by rows and slots stays as it is.

    Options:
        dtype: of the numbers.
        scale: what has a scale of its own.
        ranges: the file that fixed scales come from.

    Given:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %slots : s32[2,1]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4]
          output %r : f32[2,8,1,4]
        }

        func @f phase=decode {
          arg %k : f32[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %slots : s32[2,1]
          arg %seq_ids : s32[2]
          %0 = kv_update(%k, %new, %seq_ids, %slots) : f32[2,8,1,4]
          %r = cache_read(%0, %seq_ids) attended=8 : f32[2,8,1,4]
          return k = %0
          return r = %r
        }

    Result:
        module @m level=canonical {
          input %new : f32[2,1,1,4]
          input %slots : s32[2,1]
          input %seq_ids : s32[2]
          state %k : f32[2,8,1,4] as f8e4m3[2,8,1,4] pack=@pack.f32.2x8x1x4.f8e4m3 \
unpack=@unpack.f32.2x8x1x4.f8e4m3
          output %r : f32[2,8,1,4]
        }

        func @f phase=decode {
          arg %k : f8e4m3[2,8,1,4]
          arg %new : f32[2,1,1,4]
          arg %slots : s32[2,1]
          arg %seq_ids : s32[2]
          %0 = constant() value=f32[](-240.0) : f32[]
          %1 = constant() value=f32[](240.0) : f32[]
          %2 = clamp(%0, %new, %1) : f32[2,1,1,4]
          %3 = convert(%2) dtype=f8e4m3 : f8e4m3[2,1,1,4]
          %4 = kv_update(%k, %3, %seq_ids, %slots) : f8e4m3[2,8,1,4]
          %5 = cache_read(%4, %seq_ids) attended=8 : f8e4m3[2,8,1,4]
          %r = convert(%5) dtype=f32 : f32[2,8,1,4]
          return k = %4
          return r = %r
        }

        func @pack.f32.2x8x1x4.f8e4m3 {
          arg %whole : f32[2,8,1,4]
          arg %rank : s32[1]
          %0 = constant() value=f32[](-240.0) : f32[]
          %1 = constant() value=f32[](240.0) : f32[]
          %2 = clamp(%0, %whole, %1) : f32[2,8,1,4]
          %3 = convert(%2) dtype=f8e4m3 : f8e4m3[2,8,1,4]
          return part = %3
        }

        func @unpack.f32.2x8x1x4.f8e4m3 {
          arg %parts : f8e4m3[1,2,8,1,4]
          %0 = convert(%parts) dtype=f32 : f32[1,2,8,1,4]
          %1 = reshape(%0) shape=[2,8,1,4] : f32[2,8,1,4]
          return whole = %1
        }
    """

    name: ClassVar[str] = "quantize-cache"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical")
    requires: ClassVar[tuple[str, ...]] = ("raw-weights",)
    dtype: str = option(words(*CACHE_ELEMENTS), "f8e4m3")
    scale: str = option(words(*CACHE_SCALES), NO_SCALE)
    ranges: str = ""

    @property
    def budget(self) -> float:
        """The budget of the element type.

        A fixed scale spans the largest numbers of all tokens: most rows of int8 have half of the
        steps that a scale of their own would give them. Floats are as fine at every size.
        """
        steps = 2 if self.dtype == "int8" and self.scale in FIXED_SCALES else 1
        return steps * NARROW_BUDGETS[CACHE_ELEMENTS[self.dtype]]

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """State by state, in all programs at once: they share one representation."""
        forms = self._forms()
        count = 0
        for row in module.entries(Role.STATE):
            if rewriter.exhausted:
                return
            uses = _uses(module, row, rewriter)
            if uses is None:
                continue
            form = forms(row)
            with rewriter.joined():
                for use in uses:
                    _rewrite(use, form, rewriter)
                _keep(module, row, form)
            if uses:
                rewriter.note(uses[0].function, f"{row.name} in {self.dtype}", uses[0].first)
            count += 1
        rewriter.remark(f"{count} caches are {self.dtype}")

    def _forms(self) -> Callable[[Entry], CacheForm]:
        """The form of each state (GG0302 for options that contradict each other)."""
        element = CACHE_ELEMENTS[self.dtype]
        if self.scale in FIXED_SCALES:
            return self._fixed(element)
        if self.ranges:
            raise GraphgenError(
                "GG0302",
                f"quantize-cache: scale={self.scale} reads no ranges",
                help=f"leave them out, or give scale={' or '.join(FIXED_SCALES)}",
            )
        if element.is_integer and self.scale == NO_SCALE:
            raise GraphgenError(
                "GG0302",
                "quantize-cache: dtype=int8 without a scale would keep whole numbers alone",
                help="give a scale, such as per_token, or dtype=f8e4m3",
            )
        form = PerRow(element) if self.scale == PER_TOKEN else Cast(element)
        return lambda row: form

    def _fixed(self, element: DType) -> Callable[[Entry], CacheForm]:
        """Forms with the scales of the file, which every state must have."""
        if not self.ranges:
            raise GraphgenError(
                "GG0302",
                f"quantize-cache: scale={self.scale} needs the ranges that scales come from",
                help="graphgen calibrate MODEL --text TEXT -o FILE writes them; or scale=per_token",
            )
        known = read_ranges(Path(self.ranges))

        def form(row: Entry) -> CacheForm:
            found = known.get(row.name)
            sizes = None if found is None else (len(found), len(found[0]))
            if found is None or sizes != row.physical.shape[2:]:
                has = "no state of that name" if sizes is None else f"{list(sizes)}"
                raise GraphgenError(
                    "GG0302",
                    f"quantize-cache: {row.name} has {row.physical.text}, and {self.ranges} {has}",
                    help="calibrate the same model",
                )
            return Scaled(element, row.name, scales_of(found, self.scale, element))

        return form


@dataclass(frozen=True, slots=True)
class _Use:
    """The writes and reads of a cache in one program.

    Attributes:
        function: the program.
        cache: the state, as the program takes it.
        updates: the ``kv_update`` ops, each of the one before it.
        reads: the ``cache_read`` ops.
    """

    function: Function
    cache: Value
    updates: Sequence[Op]
    reads: Sequence[Op]

    @property
    def first(self) -> Op | None:
        """The first op that has the cache."""
        return next(iter((*self.updates, *self.reads)), None)


def _uses(module: Module, row: Entry, rewriter: Rewriter) -> Sequence[_Use] | None:
    """The uses of a state in all programs that take it; ``None``, declined, for other ones."""
    found: list[_Use] = []
    for function in module.programs():
        cache = function.arg(row.name)
        if cache is None:
            continue
        use = _use(function, cache)
        if isinstance(use, NoMatch):
            at = function.block.first_user(cache) or function.block.first
            if at is not None:
                rewriter.decline(function, _RULE, at, use)
            return None
        found.append(use)
    return found


def _use(function: Function, cache: Value) -> _Use | NoMatch:
    """The use of a cache in one program, or the reason that it cannot be narrow."""
    if not cache.dtype.is_float or cache.dtype.bits <= 8:
        return no_match(f"it is {cache.dtype.name} already", cache)
    if cache.type.rank != 4:
        return no_match("it has no rows, slots, heads and features", cache)
    updates, reads, versions = list[Op](), list[Op](), [cache]
    for value in versions:
        for op in list(value.users):
            if op.name not in ("kv_update", "cache_read") or value in op.operands[1:]:
                return no_match(f"{op.name} reads it otherwise", value, depth=2)
            (updates if op.name == "kv_update" else reads).append(op)
            if op.name == "kv_update":
                versions.append(op.result)
    handed_out = [name for name, value in function.outputs if value in versions]
    if handed_out != [cache.name]:
        return no_match("it is another output too", cache, depth=3)
    return _Use(function, cache, updates, reads)


def _rewrite(use: _Use, form: CacheForm, rewriter: Rewriter) -> None:
    """Narrow before each write, widen after each read."""
    dtype = use.cache.dtype
    use.cache.type = form.stored(use.cache.type)
    for op in use.updates:
        cache, new, *where = op.operands
        b = rewriter.before(use.function, op)
        op.set_operands((cache, form.narrow(b, new), *where))
        op.result.type = form.stored(op.result.type)
    for op in use.reads:
        b = rewriter.before(use.function, op)
        read = b.emit("cache_read", op.operands, dict(op.attrs)).result
        rewriter.replace(use.function, op, [form.widen(b, read, dtype)])


def _keep(module: Module, row: Entry, form: CacheForm) -> None:
    """Say in the interface that a state is narrow."""
    dtype = row.physical.dtype

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return form.narrow(b, part)

    def unpack(b: Builder, parts: Value) -> Value:
        return form.widen(b, parts, dtype)

    repack(module, row, form.stored(row.physical), form.label, (pack, unpack))
