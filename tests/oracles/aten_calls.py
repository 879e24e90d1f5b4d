"""Calls of ATen ops on small tensors: for each op that is known, what it might be confused about.

Inputs by letter: f, g, h floats (f has NaN, infinities, both zeros), b bf16, d f64, i, j s64 with
signs, n s32, u u8, p, q booleans, z a float without dimensions, k one of s64, w wider shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.oracles.aten_calls_of_models import COMPLEX, CONVOLUTIONS, EXPERTS, POOLING

A = torch.ops.aten
Tensors = dict[str, Tensor]
Run = Callable[[Tensors], Any]


def tensors() -> Tensors:
    torch.manual_seed(0)
    special = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.5, 1.5, -2.5]
    f = torch.randn(3, 4) * 2
    f.view(-1)[: len(special)] = torch.tensor(special)
    return {
        "f": f,
        "g": torch.randn(3, 4),
        "h": torch.rand(3, 4) + 0.1,
        "b": torch.randn(3, 4).bfloat16(),
        "e": torch.randn(4).half(),
        "d": torch.randn(3, 4, dtype=torch.float64),
        "i": torch.randint(-7, 8, (3, 4)),
        "j": torch.tensor([3, -2, 5, 1]),
        "n": torch.randint(-7, 8, (3, 4), dtype=torch.int32),
        "u": torch.randint(0, 256, (3, 4), dtype=torch.uint8),
        "p": torch.rand(3, 4) > 0.5,
        "q": torch.tensor([True, False, True, False]),
        "z": torch.tensor(1.25),
        "k": torch.tensor(-2),
        "w": torch.randn(2, 3, 4),
        "x": torch.randn(2, 1, 4),
        "y": torch.randn(2, 4, 3),
        "v": torch.randn(4),
        "s": torch.randint(-3, 3, (2, 5)),
        "t": torch.randint(0, 3, (2, 4)),
        "heads": torch.randn(2, 4, 3, 8),
        "keys": torch.randn(2, 4, 5, 8),
        "few": torch.randn(2, 2, 5, 8),
        "mask": torch.rand(2, 1, 3, 5) > 0.4,
        "row": torch.tensor([[True, False], [False, False]])[:, None, :, None].expand(2, 1, 2, 5),
    }


def _unaries() -> dict[str, Run]:
    """Every function of one float: of special values, of bf16, and of integers where it has one."""
    floats = """exp expm1 log log1p log2 log10 sqrt rsqrt sigmoid tanh cos sin tan erf erfc ceil
        floor round trunc reciprocal sinh cosh atan exp2 neg abs sign relu silu gelu hardswish
        hardsigmoid leaky_relu elu softplus hardtanh isnan isinf"""
    whole = "exp sqrt sigmoid neg abs sign relu ceil round trunc reciprocal isinf isnan"
    found: dict[str, Run] = {}

    def enter(name: str, letter: str) -> None:
        op = getattr(A, name).default
        found[f"{name}.default {letter}"] = lambda t: op(t[letter])

    for name in floats.split():
        # Of infinity torch's vectors say NaN here, and its single numbers infinity.
        for letter in "gbd" if name == "gelu" else "fbd":
            enter(name, letter)
    for name in whole.split():
        enter(name, "i")
    for name in ("abs", "sign", "bitwise_not", "logical_not"):
        enter(name, "u")
    for letter in "pni":
        enter("bitwise_not", letter)
    for letter in "pif":
        enter("logical_not", letter)
    enter("sgn", "f")
    enter("sign", "p")
    enter("exp", "p")
    return found


def _binaries() -> dict[str, Run]:
    """Every op of two operands on pairs of types, shapes and numbers; the result is promoted."""
    pairs = {
        "add": "ff fb bd ig iz pi pp fk zi ue nu",
        "sub": "ff bz iz fi ui",
        "mul": "ff fb pi pp iz bk ue",
        "div": "ff ii iz bk fi up",
        "remainder": "fh gh ij iz hj nj",
        "fmod": "fh gh ij iz",
        "maximum": "ff fb pp ii iz",
        "minimum": "ff fb pp ij",
        "atan2": "ff gb ig",
        "eq ne lt le gt ge": "ff fi pp pi bz uf ij",
        "logical_and logical_or logical_xor": "fp pp ig",
        "bitwise_and bitwise_or bitwise_xor": "pp ij nu",
    }
    found: dict[str, Run] = {}
    for names, letters in pairs.items():
        for name in names.split():
            packet = getattr(A, name)
            op = packet.Tensor if "Tensor" in packet.overloads() else packet.default
            for a, b in letters.split():
                found[f"{str(op).removeprefix('aten.')} {a}{b}"] = _pair(op, a, b)
    return found


def _pair(op: Any, a: str, b: str) -> Run:
    return lambda t: op(t[a], t[b])


def _numbers() -> dict[str, Run]:
    """Python's numbers beside tensors: they do not widen within a kind."""
    found: dict[str, Run] = {}
    for name in (
        "add",
        "sub",
        "mul",
        "div",
        "remainder",
        "fmod",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
    ):
        for letter, number in (("b", 0.3), ("f", 2), ("i", 2), ("i", 2.5), ("h", -1.5)):
            op = getattr(A, name).Scalar
            found[f"{name}.Scalar {letter}{number}"] = lambda t, o=op, x=letter, y=number: o(
                t[x], y
            )
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        op = getattr(A, name)
        found[f"{name}.Scalar"] = lambda t, o=op.Scalar: o(t["i"], 6)
    return found


ELEMENTWISE: dict[str, Run] = {
    **_unaries(),
    **_binaries(),
    **_numbers(),
    "add.Tensor alpha": lambda t: A.add.Tensor(t["f"], t["v"], alpha=0.3),
    "add.Tensor alpha i": lambda t: A.add.Tensor(t["i"], t["j"], alpha=3),
    "sub.Tensor alpha": lambda t: A.sub.Tensor(t["b"], t["e"], alpha=2),
    "add.Tensor 0": lambda t: A.add.Tensor(t["i"], 0),
    "sub.Tensor 0": lambda t: A.sub.Tensor(t["j"], 0.0),
    "mul.Tensor 1": lambda t: A.mul.Tensor(t["f"], 1.0),
    "mul.Tensor i1": lambda t: A.mul.Tensor(t["i"], 1.0),
    "rsub.Scalar": lambda t: A.rsub.Scalar(t["f"], 1),
    "rsub.Scalar b": lambda t: A.rsub.Scalar(t["b"], 0.3, 2),
    "rsub.Tensor": lambda t: A.rsub.Tensor(t["i"], t["g"]),
    "div.Tensor_mode floor": lambda t: A.div.Tensor_mode(t["g"], t["h"], rounding_mode="floor"),
    "div.Tensor_mode floor f": lambda t: A.div.Tensor_mode(t["f"], t["h"], rounding_mode="floor"),
    "div.Tensor_mode floor i": lambda t: A.div.Tensor_mode(t["i"], t["j"], rounding_mode="floor"),
    "div.Tensor_mode trunc": lambda t: A.div.Tensor_mode(t["g"], t["h"], rounding_mode="trunc"),
    "div.Tensor_mode trunc i": lambda t: A.div.Tensor_mode(t["i"], t["j"], rounding_mode="trunc"),
    "div.Tensor_mode none": lambda t: A.div.Tensor_mode(t["i"], t["j"], rounding_mode=None),
    "div.Scalar_mode": lambda t: A.div.Scalar_mode(t["i"], 3, rounding_mode="floor"),
    "floor_divide.default": lambda t: A.floor_divide.default(t["i"], t["j"]),
    "floor_divide.default f": lambda t: A.floor_divide.default(t["g"], t["h"]),
    "remainder.Scalar_Tensor": lambda t: A.remainder.Scalar_Tensor(7, t["j"]),
    "pow.Tensor_Scalar 2": lambda t: A.pow.Tensor_Scalar(t["f"], 2),
    "pow.Tensor_Scalar 3": lambda t: A.pow.Tensor_Scalar(t["i"], 3),
    "pow.Tensor_Scalar 1": lambda t: A.pow.Tensor_Scalar(t["f"], 1),
    "pow.Tensor_Scalar half": lambda t: A.pow.Tensor_Scalar(t["h"], 0.5),
    "pow.Tensor_Scalar -half": lambda t: A.pow.Tensor_Scalar(t["h"], -0.5),
    "pow.Tensor_Scalar 2.5": lambda t: A.pow.Tensor_Scalar(t["b"].abs(), 2.5),
    "pow.Tensor_Scalar -1": lambda t: A.pow.Tensor_Scalar(t["h"], -1.0),
    "pow.Tensor_Scalar i2.0": lambda t: A.pow.Tensor_Scalar(t["i"], 2.0),
    "pow.Tensor_Tensor": lambda t: A.pow.Tensor_Tensor(t["h"], t["v"]),
    "pow.Tensor_Tensor i": lambda t: A.pow.Tensor_Tensor(t["i"], t["j"].abs()),
    "pow.Scalar": lambda t: A.pow.Scalar(10000.0, t["v"]),
    "where.self": lambda t: A.where.self(t["p"], t["f"], t["v"]),
    "where.self promoted": lambda t: A.where.self(t["q"], t["i"], t["z"]),
    "where.ScalarOther": lambda t: A.where.ScalarOther(t["p"], t["b"], -1e9),
    "where.ScalarSelf": lambda t: A.where.ScalarSelf(t["p"], 1, t["f"]),
    "where.Scalar": lambda t: A.where.Scalar(t["p"], 1.0, 0.0),
    "masked_fill.Scalar": lambda t: A.masked_fill.Scalar(t["w"], t["p"], -float("inf")),
    "masked_fill.Tensor": lambda t: A.masked_fill.Tensor(t["i"], t["q"], t["k"]),
    "clamp.default": lambda t: A.clamp.default(t["f"], -1, 1.5),
    "clamp.default i": lambda t: A.clamp.default(t["i"], max=3),
    "clamp.Tensor": lambda t: A.clamp.Tensor(t["f"], t["g"], t["z"]),
    "clamp_min.default": lambda t: A.clamp_min.default(t["i"], 0),
    "clamp_max.default": lambda t: A.clamp_max.default(t["f"], 1),
    "clamp_min.Tensor": lambda t: A.clamp_min.Tensor(t["f"], t["v"]),
    "clamp_max.Tensor": lambda t: A.clamp_max.Tensor(t["i"], t["j"]),
    "addcmul.default": lambda t: A.addcmul.default(t["f"], t["g"], t["v"], value=0.5),
    "addcdiv.default": lambda t: A.addcdiv.default(t["b"], t["b"], t["b"], value=2),
    "gelu.default tanh": lambda t: A.gelu.default(t["g"], approximate="tanh"),
    "gelu.default tanh d": lambda t: A.gelu.default(t["d"], approximate="tanh"),
    "leaky_relu.default 0.3": lambda t: A.leaky_relu.default(t["g"], 0.3),
    "elu.default alpha": lambda t: A.elu.default(t["g"], 1.5, 1.1, 0.7),
    "softplus.default beta": lambda t: A.softplus.default(t["g"] * 20, 2.0, 10.0),
    "hardtanh.default wide": lambda t: A.hardtanh.default(t["f"], -0.5, 2.0),
    "bitwise_left_shift.Tensor": lambda t: A.bitwise_left_shift.Tensor(t["n"], t["t"][0].int()),
    "bitwise_right_shift.Tensor": lambda t: A.bitwise_right_shift.Tensor(t["i"], t["t"][0]),
    "__lshift__.Scalar": lambda t: A.__lshift__.Scalar(t["i"], 2),
    "__rshift__.Scalar": lambda t: A.__rshift__.Scalar(t["i"], 1),
}

SHAPE: dict[str, Run] = {
    "view.default": lambda t: A.view.default(t["w"], [-1, 4]),
    "_unsafe_view.default": lambda t: A._unsafe_view.default(t["w"], [4, 6]),
    "unsqueeze.default": lambda t: A.unsqueeze.default(t["w"], -2),
    "squeeze.default": lambda t: A.squeeze.default(t["x"]),
    "squeeze.dim": lambda t: A.squeeze.dim(t["x"], -2),
    "squeeze.dim kept": lambda t: A.squeeze.dim(t["x"], 0),
    "squeeze.dims": lambda t: A.squeeze.dims(t["x"], [0, 1]),
    "clone.default": lambda t: A.clone.default(t["f"]),
    "alias.default": lambda t: A.alias.default(t["f"]) + 1,
    "permute.default": lambda t: A.permute.default(t["w"], [-1, 0, 1]),
    "transpose.int": lambda t: A.transpose.int(t["w"], -1, 0),
    "t.default": lambda t: A.t.default(t["f"]),
    "t.default vector": lambda t: A.t.default(t["v"]) + 1,
    "expand.default": lambda t: A.expand.default(t["x"], [3, -1, 3, -1]),
    "slice.Tensor": lambda t: A.slice.Tensor(t["w"], 1, 1, 2),
    "slice.Tensor negative": lambda t: A.slice.Tensor(t["w"], -1, -3, -1),
    "slice.Tensor step": lambda t: A.slice.Tensor(t["w"], 2, 1, 9223372036854775807, 2),
    "slice.Tensor empty": lambda t: A.slice.Tensor(t["w"], 0, 3, 1),
    "slice_scatter.default": lambda t: A.slice_scatter.default(t["f"], t["g"][:, 1:3], 1, 1, -1),
    "select_scatter.default": lambda t: A.select_scatter.default(t["f"], t["v"], 0, -1),
    "select.int": lambda t: A.select.int(t["w"], 1, -1),
    "cat.default": lambda t: A.cat.default([t["f"], t["i"], t["b"]], -1),
    "cat.default one": lambda t: A.cat.default([t["f"]], 0),
    "stack.default": lambda t: A.stack.default([t["f"], t["g"]], -1),
    "split_with_sizes.default": lambda t: A.split_with_sizes.default(t["f"], [1, 3], -1),
    "split.Tensor": lambda t: A.split.Tensor(t["f"], 2, 0),
    "unbind.int": lambda t: A.unbind.int(t["f"], 1),
    "flip.default": lambda t: A.flip.default(t["w"], [-1, 0]),
    "roll.default": lambda t: A.roll.default(t["w"], [1, -2], [0, 2]),
    "roll.default flat": lambda t: A.roll.default(t["w"], [5]),
    "repeat.default": lambda t: A.repeat.default(t["f"], [2, 1, 3]),
    "repeat_interleave.self_int": lambda t: A.repeat_interleave.self_int(t["w"], 2, 1),
    "repeat_interleave.self_int flat": lambda t: A.repeat_interleave.self_int(t["w"], 3),
    "constant_pad_nd.default": lambda t: A.constant_pad_nd.default(t["f"], [1, 2, 0, 1], 7),
    "constant_pad_nd.default cut": lambda t: A.constant_pad_nd.default(t["i"], [-1, 2], 3),
    "tril.default": lambda t: A.tril.default(t["w"], -1),
    "triu.default": lambda t: A.triu.default(t["p"], 1),
    "arange.default": lambda t: A.arange.default(5),
    "arange.start": lambda t: A.arange.start(-2, 3),
    "arange.start_step": lambda t: A.arange.start_step(7, 0, -2),
    "arange.start_step f": lambda t: A.arange.start_step(0.5, 2, 0.25),
    "arange.start_step b": lambda t: A.arange.start_step(0, 8, 2, dtype=torch.bfloat16),
    "full.default": lambda t: A.full.default([2, 3], True),
    "full.default f": lambda t: A.full.default([], 0.1, dtype=torch.bfloat16),
    "full_like.default": lambda t: A.full_like.default(t["i"], 3.0),
    "new_full.default": lambda t: A.new_full.default(t["b"], [2], 0.5),
    "scalar_tensor.default": lambda t: A.scalar_tensor.default(3, dtype=torch.float32),
    "zeros.default": lambda t: A.zeros.default([2]),
    "zeros_like.default": lambda t: A.zeros_like.default(t["p"]),
    "new_zeros.default": lambda t: A.new_zeros.default(t["b"], [2]),
    "ones.default": lambda t: A.ones.default([2, 2], dtype=torch.int32),
    "ones_like.default": lambda t: A.ones_like.default(t["f"]),
    "new_ones.default": lambda t: A.new_ones.default(t["i"], [3]),
    "empty.memory_format": lambda t: A.fill.Scalar(A.empty.memory_format([2]), 2),
    "empty_like.default": lambda t: A.fill.Scalar(A.empty_like.default(t["f"]), 2),
    "new_empty.default": lambda t: A.fill.Scalar(A.new_empty.default(t["i"], [2]), 2),
    "fill.Scalar": lambda t: A.fill.Scalar(t["i"], 3),
    "fill.Tensor": lambda t: A.fill.Tensor(t["b"], t["z"]),
    "eye.default": lambda t: A.eye.default(3),
    "eye.m": lambda t: A.eye.m(2, 4, dtype=torch.int64),
    "copy.default": lambda t: A.copy.default(t["f"], t["j"]),
    "_to_copy.default bool": lambda t: t["f"].to(torch.bool),
    "_to_copy.default f to i": lambda t: (t["g"] * 3).to(torch.int32),
    "_to_copy.default i to b": lambda t: t["i"].to(torch.bfloat16),
    "_to_copy.default p to f": lambda t: t["p"].to(torch.float64),
    "_to_copy.default wrap": lambda t: t["i"].to(torch.uint8),
    "native_dropout.default": lambda t: A.native_dropout.default(t["f"], 0.5, False)[0],
}

INDICES: dict[str, Run] = {
    "embedding.default": lambda t: A.embedding.default(t["f"], t["t"]),
    "embedding.default int": lambda t: A.embedding.default(t["g"], t["t"].int()),
    "index.Tensor": lambda t: A.index.Tensor(t["f"], [t["s"]]),
    "index.Tensor two": lambda t: A.index.Tensor(t["w"], [t["t"][:, :1] - 2, t["s"] // 2]),
    "index.Tensor gap": lambda t: A.index.Tensor(t["w"], [t["t"] % 2, None, t["t"]]),
    "index.Tensor inner": lambda t: A.index.Tensor(t["w"], [None, t["s"][0], t["s"][1]]),
    "index.Tensor last": lambda t: A.index.Tensor(t["w"], [None, None, t["j"] // 2]),
    "index.Tensor i32": lambda t: A.index.Tensor(t["f"], [t["n"][0] // 3]),
    "index_select.default": lambda t: A.index_select.default(t["w"], -1, t["t"][0]),
    "gather.default": lambda t: A.gather.default(t["f"], 0, t["t"]),
    "gather.default last": lambda t: A.gather.default(t["w"], -1, t["t"][:, None]),
    "index_put.default": lambda t: A.index_put.default(t["f"], [t["t"][0, :1] - 3], t["v"]),
    "index_put.default two": lambda t: A.index_put.default(
        t["w"], [t["k"].abs() - 1, None, t["t"][0, :1]], t["z"]
    ),
    "index_put.default add": lambda t: A.index_put.default(
        t["f"], [t["t"], t["t"]], t["z"], accumulate=True
    ),
    "index_copy.default": lambda t: A.index_copy.default(
        t["heads"], 2, A.arange.start(-1, 1) + 1, t["keys"][:, :, :2]
    ),
    "index_add.default": lambda t: A.index_add.default(t["f"], 1, t["t"][0], t["g"], alpha=2),
    "scatter.src": lambda t: A.scatter.src(t["f"], 1, t["t"][:, :1], t["g"]),
    "scatter.value": lambda t: A.scatter.value(t["f"], -1, t["t"], 9),
    "scatter_add.default": lambda t: A.scatter_add.default(t["g"], 0, t["t"], t["g"]),
}

REDUCTIONS: dict[str, Run] = {
    "sum.default": lambda t: A.sum.default(t["p"]),
    "sum.dim_IntList": lambda t: A.sum.dim_IntList(t["w"], [-1, 0], True),
    "sum.dim_IntList i": lambda t: A.sum.dim_IntList(t["n"], [0]),
    "sum.dim_IntList all": lambda t: A.sum.dim_IntList(t["b"], []),
    "sum.dim_IntList dtype": lambda t: A.sum.dim_IntList(t["i"], [1], dtype=torch.float32),
    "mean.default": lambda t: A.mean.default(t["g"]),
    "mean.dim": lambda t: A.mean.dim(t["w"], [-1], True),
    "mean.dim b": lambda t: A.mean.dim(t["b"], [0]),
    "mean.dim dtype": lambda t: A.mean.dim(t["i"], [0], dtype=torch.float32),
    "amax.default": lambda t: A.amax.default(t["f"], [1]),
    "amin.default": lambda t: A.amin.default(t["p"], [-1], True),
    "max.default": lambda t: A.max.default(t["i"]),
    "min.default": lambda t: A.min.default(t["g"]),
    "max.dim": lambda t: A.max.dim(t["f"], -1),
    "max.dim ties": lambda t: A.max.dim(t["s"], 0, True),
    "min.dim": lambda t: A.min.dim(t["f"], 0),
    "argmax.default": lambda t: A.argmax.default(t["f"]),
    "argmax.default last": lambda t: A.argmax.default(t["s"], -1, True),
    "argmin.default": lambda t: A.argmin.default(t["g"], 0),
    "any.default": lambda t: A.any.default(t["p"]),
    "any.dim": lambda t: A.any.dim(t["f"], -1, True),
    "any.dims": lambda t: A.any.dims(t["i"], [0, 1]),
    "all.default": lambda t: A.all.default(t["i"]),
    "all.dim": lambda t: A.all.dim(t["p"], 0),
    "all.dims": lambda t: A.all.dims(t["p"], [0, 1]),
    "var.correction": lambda t: A.var.correction(t["w"], [-1], keepdim=True),
    "var.correction 0": lambda t: A.var.correction(t["b"], [0], correction=0),
    "std.correction": lambda t: A.std.correction(t["g"], [0, 1], correction=2),
    "var_mean.correction": lambda t: A.var_mean.correction(t["w"], [0], correction=0, keepdim=True),
    "cumsum.default": lambda t: A.cumsum.default(t["i"], -1),
    "cumsum.default p": lambda t: A.cumsum.default(t["p"], 0),
    "cumsum.default f": lambda t: A.cumsum.default(t["w"], 1),
    "sort.default": lambda t: A.sort.default(t["f"], -1)[0],
    "sort.default down": lambda t: A.sort.default(t["g"], 0, True),
    "sort.default scalar": lambda t: A.sort.default(t["f"].sum()),
    "max.dim scalar": lambda t: A.max.dim(t["f"].sum(), 0),
    "sort.stable": lambda t: A.sort.stable(t["s"], stable=True, dim=1),
    "topk.default": lambda t: A.topk.default(t["g"], 2),
    "topk.default nan": lambda t: A.topk.default(t["f"], 3, 1)[0],
    "topk.default first": lambda t: A.topk.default(t["d"], 2, 0, False),
}

PRODUCTS: dict[str, Run] = {
    "mm.default": lambda t: A.mm.default(t["g"], A.permute.default(t["h"], [1, 0])),
    "mm.default rows": lambda t: A.mm.default(A.view.default(t["w"], [6, 4]), t["y"][0]),
    "mm.default b": lambda t: A.mm.default(t["b"], t["b"].t()),
    "addmm.default": lambda t: A.addmm.default(t["v"], t["g"][:, :3], t["g"]),
    "addmm.default scaled": lambda t: A.addmm.default(
        t["g"], t["g"][:, :3], t["h"], beta=0.5, alpha=2
    ),
    "bmm.default": lambda t: A.bmm.default(t["w"], t["y"]),
    "bmm.default merged": lambda t: A.bmm.default(
        A.view.default(t["heads"], [8, 3, 8]),
        A.view.default(A.clone.default(t["keys"].transpose(2, 3)).contiguous(), [8, 8, 5]),
    ),
    "baddbmm.default": lambda t: A.baddbmm.default(t["v"][:3], t["w"], t["y"], beta=2, alpha=0.5),
    "baddbmm.default 0": lambda t: A.baddbmm.default(t["y"][:, :3], t["w"], t["y"], beta=0),
    "linear.default": lambda t: A.linear.default(t["w"], t["g"], t["v"][:3]),
    "linear.default vector": lambda t: A.linear.default(t["v"], t["g"]),
    "matmul.default": lambda t: A.matmul.default(t["w"], t["y"]),
    "matmul.default spread": lambda t: A.matmul.default(t["heads"], t["keys"].mT[:, :1]),
    "matmul.default by matrix": lambda t: A.matmul.default(t["w"], t["y"][0]),
    "matmul.default matrix by": lambda t: A.matmul.default(t["g"], t["y"]),
    "matmul.default vector": lambda t: A.matmul.default(t["v"], t["y"]),
    "matmul.default by vector": lambda t: A.matmul.default(t["w"], t["v"]),
    "dot.default": lambda t: A.dot.default(t["v"], t["v"]),
    "mv.default": lambda t: A.mv.default(t["g"], t["v"]),
}


def _attended(t: Tensors, *more: Any, **options: Any) -> Tensor:
    return A.scaled_dot_product_attention.default(
        t["heads"], t["keys"], t["keys"], *more, **options
    )


NETWORKS: dict[str, Run] = {
    "_softmax.default": lambda t: A._softmax.default(t["w"], 1, False),
    "_softmax.default nan": lambda t: A._softmax.default(t["f"], -1, False),
    "softmax.int b": lambda t: A.softmax.int(t["b"], -1),
    "softmax.int dtype": lambda t: A.softmax.int(t["b"], 0, torch.float32),
    "_safe_softmax.default": lambda t: A._safe_softmax.default(t["f"].nan_to_num(nan=-9e9), -1),
    "_log_softmax.default": lambda t: A._log_softmax.default(t["w"], 1, False),
    "log_softmax.int": lambda t: A.log_softmax.int(t["b"], -1),
    "layer_norm.default": lambda t: A.layer_norm.default(t["w"], [4], t["v"], t["v"], 1e-3),
    "layer_norm.default plain": lambda t: A.layer_norm.default(t["b"], [4]),
    "layer_norm.default two": lambda t: A.layer_norm.default(t["w"], [3, 4], t["g"], t["h"]),
    "native_layer_norm.default": lambda t: A.native_layer_norm.default(
        t["w"], [4], t["v"], None, 1e-5
    ),
    "rms_norm.default": lambda t: A.rms_norm.default(t["w"], [4], t["v"], 1e-3),
    "rms_norm.default two": lambda t: A.rms_norm.default(t["w"], [3, 4], t["g"]),
    "rms_norm.default d": lambda t: A.rms_norm.default(t["d"], [4]),
    "scaled_dot_product_attention.default": lambda t: _attended(t),
    "scaled_dot_product_attention.default scale": lambda t: _attended(t, scale=0.3),
    "scaled_dot_product_attention.default causal": lambda t: _attended(t, is_causal=True),
    "scaled_dot_product_attention.default mask": lambda t: _attended(t, t["mask"]),
    "scaled_dot_product_attention.default bias": lambda t: _attended(t, t["mask"].float() * -9),
    "scaled_dot_product_attention.default nothing": lambda t: (
        A.scaled_dot_product_attention.default(
            t["heads"][:, :, :2], t["keys"], t["keys"], A.clone.default(t["row"])
        )
    ),
    "scaled_dot_product_attention.default one head": lambda t: (
        A.scaled_dot_product_attention.default(t["heads"], t["keys"][:, :1], t["keys"][:, :1])
    ),
    "scaled_dot_product_attention.default gqa": lambda t: A.scaled_dot_product_attention.default(
        t["heads"], t["few"], t["few"], t["mask"], enable_gqa=True
    ),
    "scaled_dot_product_attention.default one": lambda t: A.scaled_dot_product_attention.default(
        t["heads"], t["few"][:, :1], t["few"][:1, 1:], t["mask"]
    ),
    "scaled_dot_product_attention.default b": lambda t: A.scaled_dot_product_attention.default(
        *[t[x].bfloat16() for x in ("heads", "keys", "keys")]
    ),
}

FAMILIES: dict[str, dict[str, Run]] = {
    "element by element": ELEMENTWISE,
    "shape": SHAPE,
    "places": INDICES,
    "reductions": REDUCTIONS,
    "products": PRODUCTS,
    "networks": NETWORKS,
    "convolutions": CONVOLUTIONS,
    "pooling": POOLING,
    "experts": EXPERTS,
    "complex numbers": COMPLEX,
}
