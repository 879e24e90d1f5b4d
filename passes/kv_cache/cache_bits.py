"""Store float caches as integers: XLA's CPU backend updates only integers in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphgen.build import Builder
from graphgen.ir import DType, Entry, Function, Module, Op, Role, Value, tensor
from graphgen.ir.dtype import u8, u16
from graphgen.passes.core import Pass, Rewriter, register
from graphgen.passes.weights.layout_change import repack

# By the bits of an element.
_INTEGERS = {8: u8, 16: u16}


@register
@dataclass(frozen=True)
class CacheAsBits(Pass):
    """Store states of 16-bit floats as u16, of 8-bit floats as u8, by ``bitcast_convert``.

    XLA turns a scatter into a bf16 buffer into one over an f32 copy of the whole buffer, on every
    call; integers are updated in place. Other ops that read a state, as those that exchange it
    between ranks, read it as floats.

    Given:
        module @m level=canonical {
          input %new : bf16[2,1,1,4]
          input %ids : s32[2]
          input %at : s32[2,1]
          state %k : bf16[2,8,1,4]
          output %r : bf16[2,4,1,4]
        }

        func @f phase=decode {
          arg %k : bf16[2,8,1,4]
          arg %new : bf16[2,1,1,4]
          arg %ids : s32[2]
          arg %at : s32[2,1]
          %c = kv_update(%k, %new, %ids, %at) : bf16[2,8,1,4]
          %r = cache_read(%c, %ids) attended=4 : bf16[2,4,1,4]
          return k = %c
          return r = %r
        }

    Result:
        module @m level=canonical {
          input %new : bf16[2,1,1,4]
          input %ids : s32[2]
          input %at : s32[2,1]
          state %k : bf16[2,8,1,4] as u16[2,8,1,4] pack=@pack.bf16.2x8x1x4.bits \
unpack=@unpack.bf16.2x8x1x4.bits
          output %r : bf16[2,4,1,4]
        }

        func @f phase=decode {
          arg %k : u16[2,8,1,4]
          arg %new : bf16[2,1,1,4]
          arg %ids : s32[2]
          arg %at : s32[2,1]
          %0 = bitcast_convert(%new) dtype=u16 : u16[2,1,1,4]
          %c = kv_update(%k, %0, %ids, %at) : u16[2,8,1,4]
          %1 = cache_read(%c, %ids) attended=4 : u16[2,4,1,4]
          %r = bitcast_convert(%1) dtype=bf16 : bf16[2,4,1,4]
          return k = %c
          return r = %r
        }

        func @pack.bf16.2x8x1x4.bits {
          arg %whole : bf16[2,8,1,4]
          arg %rank : s32[1]
          %0 = bitcast_convert(%whole) dtype=u16 : u16[2,8,1,4]
          return part = %0
        }

        func @unpack.bf16.2x8x1x4.bits {
          arg %parts : u16[1,2,8,1,4]
          %0 = bitcast_convert(%parts) dtype=bf16 : bf16[1,2,8,1,4]
          %1 = reshape(%0) shape=[2,8,1,4] : bf16[2,8,1,4]
          return whole = %1
        }
    """

    name: ClassVar[str] = "cache-as-bits"
    input_stages: ClassVar[tuple[str, ...]] = ("logical", "canonical", "sharded")
    requires: ClassVar[tuple[str, ...]] = ("partitioned",)

    def run(self, module: Module, rewriter: Rewriter) -> None:
        """State by state, in all programs at once: they share one representation."""
        for row in module.entries(Role.STATE):
            if rewriter.exhausted:
                return
            if row.physical.dtype.is_float and row.physical.dtype.bits in _INTEGERS:
                _as_bits(module, row, rewriter)


def _as_bits(module: Module, row: Entry, rewriter: Rewriter) -> None:
    """Change one state everywhere: in the programs, then in the interface."""
    roots: list[tuple[Function, Op | None]] = []
    with rewriter.joined():
        for function in module.programs():
            cache = function.arg(row.name)
            if cache is not None:
                roots.append((function, function.block.first_user(cache)))
                _retype(function, cache, row.physical.dtype, rewriter)
                _store(function, row.name, row.physical.dtype, rewriter)
    dtype = row.physical.dtype
    bits = _INTEGERS[dtype.bits]
    physical = tensor(bits, row.physical.shape)

    def pack(b: Builder, part: Value, rank: Value) -> Value:
        return b.bitcast_convert(part, bits)

    def unpack(b: Builder, parts: Value) -> Value:
        return b.bitcast_convert(parts, dtype)

    repack(module, row, physical, "bits", (pack, unpack))
    function, op = roots[0] if roots else (None, None)
    rewriter.note(function, f"{row.name} as bits", op)


def _retype(function: Function, cache: Value, dtype: DType, rewriter: Rewriter) -> None:
    """Follow the cache through updates to the reads, which give floats again."""
    integer = _INTEGERS[dtype.bits]
    cache.type = tensor(integer, cache.shape)
    work = [cache]
    while work:
        value = work.pop()
        for op in list(value.users):
            if op.name == "kv_update" and op.operands[0] is value:
                b = rewriter.before(function, op)
                bits = b.bitcast_convert(op.operands[1], integer)
                op.set_operands((value, bits, *op.operands[2:]))
                op.result.type = value.type
                work.append(op.result)
            elif op.name == "cache_read":
                _read(function, op, dtype, rewriter)
            else:
                floats = rewriter.before(function, op).bitcast_convert(value, dtype)
                op.set_operands(tuple([floats if x is value else x for x in op.operands]))


def _store(function: Function, name: str, dtype: DType, rewriter: Rewriter) -> None:
    """Give the state as integers where another op than an update makes it."""
    value = function.outputs.get(name)
    if value is not None and value.dtype is dtype and value.op is not None:
        loc = value.op.loc.through(rewriter.pass_name)
        bits = Builder(function, loc=loc).bitcast_convert(value, _INTEGERS[dtype.bits])
        function.outputs.set(name, bits)


def _read(function: Function, op: Op, dtype: DType, rewriter: Rewriter) -> None:
    b = rewriter.before(function, op)
    bits = b.emit("cache_read", op.operands, dict(op.attrs)).result
    rewriter.replace(function, op, [b.bitcast_convert(bits, dtype)])
