"""Programs of single ops: every op for every element type that it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array, numpy_dtype
from graphgen.ir import dtype as element_type
from graphgen.ir.dtype import DType, pred
from graphgen.lowering.check.compiler_rules import legality, opcode_of
from graphgen.ops import verify
from graphgen.ops.opdef import OPS, Trait, ops_with
from graphgen.runtime.device_kit.kit_program import KitProgram, kit_program, some_array
from graphgen.runtime.kit_runner.numbers import element_bytes
from graphgen.text import parse
from graphgen.text.grammar import parse_type

# Tables of uses read best with one use a line.
# ruff: noqa: E501


# The exclusive bound of each index in `s32<5`.
_INDEX = re.compile(r"<(\d+)")
_TABLE = """
is_finite: is_finite {t}[4,8] -> pred[4,8]
real: real {t}[4,8] -> f32[4,8]
imag: imag {t}[4,8] -> f32[4,8]
complex: complex {t}[4,8] {t}[4,8] -> c64[4,8]
compare: compare {t}[4,8] {t}[4,8] direction=GE -> pred[4,8]
select: select pred[4,8] {t}[4,8] {t}[4,8] -> {t}[4,8]
clamp: clamp {t}[] {t}[4,8] {t}[] -> {t}[4,8]
convert-to: convert f32[4,8] dtype={t} -> {t}[4,8]
convert-from: convert {t}[4,8] dtype=f32 -> f32[4,8]
bitcast_convert-8: bitcast_convert {t}[4,8] dtype=u8 -> u8[4,8]
bitcast_convert-16: bitcast_convert {t}[4,8] dtype=u16 -> u16[4,8]
bitcast_convert-32: bitcast_convert {t}[4,8] dtype=u32 -> u32[4,8]
bitcast_convert-64: bitcast_convert {t}[4,8] dtype=u64 -> u64[4,8]
reduce_precision: reduce_precision {t}[4,8] exponent_bits=5 mantissa_bits=2 -> {t}[4,8]
iota: iota dtype={t} shape=[4,8] dimension=1 -> {t}[4,8]
broadcast: broadcast_in_dim {t}[8] shape=[4,8] dimensions=[1] -> {t}[4,8]
reshape: reshape {t}[4,8] shape=[8,4] -> {t}[8,4]
transpose: transpose {t}[16,32] permutation=[1,0] -> {t}[32,16]
reverse: reverse {t}[4,8] dimensions=[1] -> {t}[4,8]
slice: slice {t}[4,8] start_indices=[1,2] limit_indices=[4,8] strides=[1,2] -> {t}[3,3]
concatenate: concatenate {t}[4,8] {t}[4,3] dimension=1 -> {t}[4,11]
pad: pad {t}[4,8] {t}[] low=[1,0] high=[0,2] interior=[0,1] -> {t}[5,17]
reduce-add: reduce {t}[4,8] dimensions=[1] kind=add -> {t}[4]
reduce-multiply: reduce {t}[4,8] dimensions=[1] kind=multiply -> {t}[4]
reduce-maximum: reduce {t}[4,8] dimensions=[1] kind=maximum -> {t}[4]
reduce-minimum: reduce {t}[4,8] dimensions=[1] kind=minimum -> {t}[4]
reduce-and: reduce {t}[4,8] dimensions=[1] kind=and -> {t}[4]
reduce-or: reduce {t}[4,8] dimensions=[1] kind=or -> {t}[4]
reduce-xor: reduce {t}[4,8] dimensions=[1] kind=xor -> {t}[4]
dot: dot_general {t}[8,128] {t}[16,128] lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype={t} -> {t}[8,16]
dot-wide: dot_general {t}[8,128] {t}[16,128] lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=f32 -> f32[8,16]
dot-s32: dot_general {t}[8,128] {t}[16,128] lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=s32 -> s32[8,16]
dot-batch: dot_general {t}[2,8,128] {t}[2,128,16] lhs_contracting_dims=[2] rhs_contracting_dims=[1] lhs_batch_dims=[0] rhs_batch_dims=[0] dtype={t} -> {t}[2,8,16]
convolution: convolution {t}[1,8,16] {t}[3,16,8] dim_labels="b0f_0io->b0f" low=[2] dtype={t} -> {t}[1,8,8]
reduce_window: reduce_window {t}[2,8] {t}[] window_dimensions=[1,2] window_strides=[1,2] kind=maximum -> {t}[2,4]
select_and_scatter: select_and_scatter {t}[6] {t}[3] {t}[] window_dimensions=[2] window_strides=[2] direction=GE kind=add -> {t}[6]
sort: sort {t}[4,16] dimension=1 -> {t}[4,16]
gather: gather {t}[16,32] s32<16[4] offset_dims=[1] collapsed_slice_dims=[0] start_index_map=[0] index_vector_dim=1 slice_sizes=[1,32] -> {t}[4,32]
scatter-assign: scatter {t}[16,32] s32<16[1] {t}[1,32] update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] index_vector_dim=1 kind=assign -> {t}[16,32]
scatter-add: scatter {t}[16,32] s32<16[4] {t}[4,32] update_window_dims=[1] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] index_vector_dim=1 kind=add -> {t}[16,32]
dynamic_slice: dynamic_slice {t}[16,32] s32<9[] s32<1[] slice_sizes=[8,32] -> {t}[8,32]
dynamic_update_slice: dynamic_update_slice {t}[16,32] {t}[8,32] s32<9[] s32<1[] -> {t}[16,32]
fft: fft {t}[2,8] fft_type=FFT fft_length=[8] -> {t}[2,8]
cholesky: cholesky {t}[4,4] lower=true -> {t}[4,4]
triangular_solve: triangular_solve {t}[4,4] {t}[4,2] left_side=true lower=true unit_diagonal=true transpose_a=NO_TRANSPOSE -> {t}[4,2]
rng: rng {t}[] {t}[] distribution=rng_uniform dtype={t} shape=[8] -> {t}[8]
all_gather: all_gather {t}[4,8] dimension=0 replica_groups=[[0,1]] -> {t}[8,8]
all_reduce-add: all_reduce {t}[4,8] kind=add replica_groups=[[0,1]] -> {t}[4,8]
all_reduce-maximum: all_reduce {t}[4,8] kind=maximum replica_groups=[[0,1]] -> {t}[4,8]
reduce_scatter: reduce_scatter {t}[4,8] kind=add dimension=0 replica_groups=[[0,1]] -> {t}[2,8]
all_to_all: all_to_all {t}[4,8] split_dimension=0 concat_dimension=0 replica_groups=[[0,1,2,3]] -> {t}[4,8]
collective_permute: collective_permute {t}[4,8] source_target_pairs=[[0,1],[1,0]] -> {t}[4,8]
"""
# Uses of types that the table refuses, or knows of storage alone: there the rule is about the type.
_OF_RARE = ("convert-to", "convert-from", "add", "dot", "transpose", "select", "reduce-add")
# Uses that a rule is about, for the types that it needs: `type type| line`.
_SPECIAL = """
f32 s32| constant: constant value={t}[4](1,2,3,4) -> {t}[4]
s64 u64| constant-beyond-32-bits: constant value={t}[2](4294967301,7) -> {t}[2]
f32| all_reduce-minimum: all_reduce {t}[4,8] kind=minimum replica_groups=[[0,1]] -> {t}[4,8]
f32 bf16| all_to_all-of-two: all_to_all {t}[4,8] split_dimension=0 concat_dimension=0 replica_groups=[[0,1]] -> {t}[4,8]
f32 bf16| all_to_all-last: all_to_all {t}[4,8] split_dimension=1 concat_dimension=1 replica_groups=[[0,1,2,3]] -> {t}[4,8]
f32 bf16| collective_permute-open: collective_permute {t}[4,8] source_target_pairs=[[0,1],[1,2]] -> {t}[4,8]
f32| convolution-both-dilations: convolution {t}[1,8,4] {t}[3,4,4] dim_labels="b0f_0io->b0f" lhs_dilation=[2] rhs_dilation=[2] dtype={t} -> {t}[1,11,4]
f32| convolution-stride-and-dilation: convolution {t}[1,8,4] {t}[3,4,4] dim_labels="b0f_0io->b0f" window_strides=[2] lhs_dilation=[2] dtype={t} -> {t}[1,7,4]
f32| reduce_window-base-dilation: reduce_window {t}[8] {t}[] window_dimensions=[2] base_dilations=[2] kind=add -> {t}[14]
f32| reduce_window-dilation: reduce_window {t}[8] {t}[] window_dimensions=[2] window_dilations=[2] kind=add -> {t}[6]
f32| reduce_window-running-sum: reduce_window {t}[8] {t}[] window_dimensions=[8] low=[7] kind=add -> {t}[8]
f32 bf16| gather-elements: gather {t}[4,8] s32<4[3,1] offset_dims=[1,2] collapsed_slice_dims=[] start_index_map=[0] index_vector_dim=1 slice_sizes=[1,8] -> {t}[3,1,8]
f32 bf16| gather-columns: gather {t}[4,8] s32<8[3] offset_dims=[0] collapsed_slice_dims=[1] start_index_map=[1] index_vector_dim=1 slice_sizes=[4,1] -> {t}[4,3]
f32 bf16| scatter-cache: scatter {t}[8,2,4,16] s32<8[1] {t}[1,2,4,16] update_window_dims=[1,2,3] inserted_window_dims=[0] scatter_dims_to_operand_dims=[0] index_vector_dim=1 kind=assign -> {t}[8,2,4,16]
f32 bf16| dot-odd: dot_general {t}[8,100] {t}[16,100] lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype={t} -> {t}[8,16]
f32 bf16| transpose-narrow: transpose {t}[64,4] permutation=[1,0] -> {t}[4,64]
f32 bf16| sort-descending: sort {t}[4,64] dimension=1 descending=true -> {t}[4,64]
f32 bf16| AwsNeuronSilu: custom_call {t}[4,8] target="AwsNeuronSilu" results=[{t}[4,8]] -> {t}[4,8]
f32 bf16| AwsNeuronGelu: custom_call {t}[4,8] target="AwsNeuronGelu" results=[{t}[4,8]] -> {t}[4,8]
f32 bf16| AwsNeuronGeluApprxTanh: custom_call {t}[4,8] target="AwsNeuronGeluApprxTanh" results=[{t}[4,8]] -> {t}[4,8]
f32 bf16| AwsNeuronErf: custom_call {t}[4,8] target="AwsNeuronErf" results=[{t}[4,8]] -> {t}[4,8]
f32 bf16| AwsNeuronSoftmax: custom_call {t}[4,8] target="AwsNeuronSoftmax" config="1" results=[{t}[4,8]] -> {t}[4,8]
f32| AwsNeuronRmsNorm: custom_call {t}[4,8] {t}[8] {t}[] target="AwsNeuronRmsNorm" config="1" results=[{t}[4,8]] -> {t}[4,8]
f32 bf16| AwsNeuronArgMax: custom_call {t}[4,8] target="AwsNeuronArgMax" config="1" results=[u32[4]] -> u32[4]
f32 bf16| AwsNeuronTransferWithStaticRing: custom_call {t}[4,8] target="AwsNeuronTransferWithStaticRing" results=[{t}[4,8]] -> {t}[4,8]
f32| unknown-custom-call: custom_call {t}[4,8] target="GraphgenKnowsOfNone" results=[{t}[4,8]] -> {t}[4,8]
"""


@dataclass(frozen=True, slots=True)
class OpUse:
    """A use of one op for one element type.

    Attributes:
        name: of the use.
        op: as the op table calls it.
        dtype: the element type that it is about.
        operands: their types; ``x0``, ``x1``, ... are their names.
        below: what the integers of an operand are below, where they are indices.
        attrs: as IR text.
        result: its type.
    """

    name: str
    op: str
    dtype: str
    operands: tuple[str, ...]
    below: tuple[int, ...]
    attrs: str
    result: str

    @property
    def text(self) -> str:
        """A module of this use alone, as IR text."""
        names = [f"%x{at}" for at in range(len(self.operands))]
        args = [f"  arg {name} : {kind}" for name, kind in zip(names, self.operands, strict=True)]
        use = f"  %y = {self.op}({', '.join(names)}){self.attrs} : {self.result}"
        lines = ["module @kit level=target {", "}", "", "func @f {", *args, use, "  return y = %y"]
        return "\n".join([*lines, "}", ""])


def op_uses(kinds: Sequence[str], rare: Sequence[str] = ()) -> list[OpUse]:
    """All uses for some element types, those that an op does not take among them.

    Args:
        kinds: the types.
        rare: types with a few uses only.
    """
    table = [line for line in _TABLE.splitlines() if line]
    table += _elementwise(table)
    found = [_use(line, kind) for line in table for kind in kinds]
    found += [
        _use(line, kind) for line in table for kind in rare if line.partition(":")[0] in _OF_RARE
    ]
    for line in filter(None, _SPECIAL.splitlines()):
        wanted, _, rest = line.partition("| ")
        found += [_use(rest, kind) for kind in wanted.split()]
    return found


def _elementwise(table: Sequence[str]) -> list[str]:
    """Uses of elementwise ops with one element type, except ops with a line of their own."""
    written = {line.partition(":")[0] for line in table}
    found: list[str] = []
    for name in ops_with(Trait.ELEMENTWISE):
        op, most = OPS[name], 2
        if name in written or op.attrs or op.composite or len(op.operands) > most:
            continue
        found.append(f"{name}: {name} {' '.join(['{t}[4,8]'] * len(op.operands))} -> {{t}}[4,8]")
    return found


def _use(line: str, kind: str) -> OpUse:
    name, _, rest = line.replace("{t}", kind).partition(": ")
    use, _, result = rest.partition(" -> ")
    op, *words = use.split()
    types = [word for word in words if "=" not in word]
    below = [int(found[1]) if (found := _INDEX.search(word)) else 0 for word in types]
    operands = [_INDEX.sub("", word) for word in types]
    attrs = "".join(f" {word}" for word in words if "=" in word)
    return OpUse(name, op, kind, tuple(operands), tuple(below), attrs, result)


_SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")
# The types of a use that is not made for all: in which type others are summed up, and how many
# bits a truth value has, is defined nowhere.
_ONLY: Mapping[str, Callable[[DType], bool]] = {
    "dot-wide": lambda kind: kind.is_float or kind.is_integer,
    "dot-s32": lambda kind: kind.is_integer,
    "convert-from": lambda kind: not kind.is_complex,
    "bitcast_convert-8": lambda kind: kind is not pred,
}


def kinds() -> tuple[list[str], list[str]]:
    """The element types of the legality table that the IR has: those in use, and rare ones."""
    used: list[str] = []
    rare: list[str] = []
    for name in cast(Mapping[str, object], legality()["dtypes"]):
        try:
            element_type(name)
        except GraphgenError:
            continue
        (used if element_bytes(name) and name != "c128" else rare).append(name)
    return used, rare


def op_programs() -> Iterator[tuple[str, OpUse]]:
    """The name of each case and its use, by op and type; :func:`op_program` makes the program."""
    for use in op_uses(*kinds()):
        takes = _ONLY.get(use.name)
        if takes is None or takes(element_type(use.dtype)):
            yield f"op/{use.name}/{use.dtype}", use


def op_program(name: str, use: OpUse) -> KitProgram | None:
    """The program of a use; ``None`` if the op does not take the type."""
    try:
        module = parse(use.text)
        verify(module)
        function = module.function("f")
        inputs = {f"x{at}": _argument(use, at) for at in range(len(use.operands))}
        opcode = opcode_of(use.op, {})
        return kit_program(name, module, function, inputs, op=opcode, dtype=use.dtype)
    except GraphgenError:
        return None


def _argument(use: OpUse, at: int) -> Array:
    type_ = parse_type(use.operands[at])
    if use.op == "cholesky":
        return (8 * np.eye(4) + np.ones((4, 4))).astype(numpy_dtype(type_.dtype))
    name = f"{use.name} {at}"
    if use.op in _SHIFTS and at == 1:
        return some_array(name, type_, 4)
    if use.op == "clamp":
        bound = np.full(type_.dims, (1, 0, 2)[at]).astype(numpy_dtype(type_.dtype))
        return some_array(name, type_) if at == 1 else bound
    return some_array(
        name, type_, use.below[at], positive=use.op in ops_with(Trait.POSITIVE_DOMAIN)
    )
