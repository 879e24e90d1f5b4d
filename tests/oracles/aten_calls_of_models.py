"""Calls of the ATen ops of experts and of complex numbers on small tensors.

Complex results are compared as real tensors. Letters are those of :mod:`tests.oracles.aten_calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers.integrations.moe  # pyright: ignore[reportUnusedImport]  # noqa: F401
from torch import Tensor

A = torch.ops.aten
Tensors = dict[str, Tensor]
Run = Callable[[Tensors], Any]


def _grouped(t: Tensors, ends: list[int]) -> Tensor:
    op = torch.ops.transformers.grouped_mm_fallback.default
    offsets = torch.tensor(ends, dtype=torch.int32)
    return op(t["g"], A.view.default(t["keys"], [4, 4, 20])[:, :, :7].clone(), offsets)


def _packed(t: Tensors) -> Tensor:
    """bf16 rows, with sizes that its kernel takes."""
    rows = A.view.default(t["keys"], [20, 16]).bfloat16()
    matrices = A.view.default(t["keys"], [2, 16, 10])[:, :, :8].transpose(1, 2).contiguous()
    offsets = torch.tensor([7, 20], dtype=torch.int32)
    return A._grouped_mm.default(rows, matrices.bfloat16().transpose(1, 2), offsets)


EXPERTS: dict[str, Run] = {
    "histc.default": lambda t: A.histc.default(t["j"].float(), 4, 0, 3),
    "histc.default ends": lambda t: A.histc.default(t["s"].float(), 5, -3, 2),
    "histc.default wide": lambda t: A.histc.default(t["g"], 3, -0.5, 1.25),
    "transformers.grouped_mm_fallback.default": lambda t: _grouped(t, [1, 1, 2, 3]),
    "transformers.grouped_mm_fallback.default none": lambda t: _grouped(t, [0, 0, 3, 3]),
    "_grouped_mm.default": _packed,
}


def _convolved(t: Tensors, *options: Any, features: int = 4, bias: bool = False) -> Tensor:
    """keys as [2, 4, 5, 8] images, with a kernel [6, features, 3, 2]."""
    kernel = A.view.default(A.cat.default([t["keys"], t["keys"]]), [640])[: 36 * features]
    kernel = A.view.default(kernel, [6, features, 3, 2])
    return A.convolution.default(t["keys"], kernel, kernel[:, 0, 0, 0] if bias else None, *options)


def _spread(t: Tensors, *options: Any, out: int = 3) -> Tensor:
    """Transposed, with a kernel [4, out, 3, 2]."""
    kernel = A.view.default(A.view.default(t["keys"], [320])[: 24 * out], [4, out, 3, 2])
    return A.convolution.default(t["keys"], kernel, None, *options)


def _along(t: Tensors, *options: Any) -> Tensor:
    return A.convolution.default(t["w"], A.view.default(t["h"], [4, 3, 1]), t["v"], *options)


PLAIN = ([1, 1], [0, 0], [1, 1], False, [0, 0])
CONVOLUTIONS: dict[str, Run] = {
    "convolution.default": lambda t: _convolved(t, *PLAIN, 1),
    "convolution.default bias": lambda t: _convolved(t, *PLAIN, 1, bias=True),
    "convolution.default strides": lambda t: _convolved(
        t, [2, 3], [1, 0], [1, 2], False, [0, 0], 1
    ),
    "convolution.default groups": lambda t: _convolved(t, *PLAIN, 2, features=2),
    "convolution.default one": lambda t: _along(t, [2], [1], [1], False, [0], 1),
    "convolution.default transposed": lambda t: _spread(t, [2, 1], [1, 0], [1, 2], True, [1, 0], 1),
    "convolution.default transposed groups": lambda t: _spread(
        t, [3, 2], [0, 1], [1, 1], True, [2, 1], 2
    ),
}


# Planes of 7 by 6, two of them; with NaN, and with nothing but -inf.
def _plane(t: Tensors) -> Tensor:
    plane = t["g"].repeat(1, 1, 4)[:, :, None].repeat(1, 1, 1, 2).reshape(1, 2, 8, 6)[:, :, :7]
    return plane * torch.arange(1, 43).reshape(7, 6)


def _holes(t: Tensors) -> Tensor:
    plane = _plane(t).clone()
    plane[:, 0, 2, 3] = float("nan")
    plane[:, 1, :4] = -float("inf")
    return plane


LARGEST, AVERAGE = A.max_pool2d_with_indices.default, A.avg_pool2d.default
POOLING: dict[str, Run] = {
    "max_pool2d_with_indices.default": lambda t: LARGEST(_plane(t), [2, 2]),
    "max_pool2d_with_indices.default nan": lambda t: LARGEST(_holes(t), [3, 2], [2, 1], [1, 1]),
    "max_pool2d_with_indices.default dilation": lambda t: LARGEST(
        _plane(t), [2, 2], [1, 2], [0, 1], [3, 2]
    ),
    "max_pool2d_with_indices.default ceil": lambda t: LARGEST(
        _holes(t), [2, 2], [2, 4], [0, 0], [1, 1], True
    ),
    "max_pool3d_with_indices.default": lambda t: A.max_pool3d_with_indices.default(
        _plane(t), [2, 3, 2], [1, 2, 2]
    ),
    "avg_pool1d.default": lambda t: A.avg_pool1d.default(t["w"], [3], [1], [1]),
    "avg_pool2d.default": lambda t: AVERAGE(_plane(t), [2, 2]),
    "avg_pool2d.default padding": lambda t: AVERAGE(_plane(t), [3, 3], [2, 2], [1, 1]),
    "avg_pool2d.default not padding": lambda t: AVERAGE(
        _plane(t), [3, 3], [2, 2], [1, 1], False, False
    ),
    "avg_pool2d.default ceil": lambda t: AVERAGE(_plane(t), [3, 4], [2, 3], [1, 1], True),
    "avg_pool2d.default ceil not padding": lambda t: AVERAGE(
        _plane(t), [3, 4], [2, 3], [1, 1], True, False
    ),
    "avg_pool2d.default divisor": lambda t: AVERAGE(
        _plane(t).bfloat16(), [2, 2], [2, 2], [0, 0], False, True, 3
    ),
    "avg_pool3d.default": lambda t: A.avg_pool3d.default(_plane(t), [2, 3, 2]),
    "adaptive_avg_pool1d.default": lambda t: A.adaptive_avg_pool1d.default(t["w"], [2]),
    "_adaptive_avg_pool2d.default": lambda t: A._adaptive_avg_pool2d.default(_plane(t), [1, 3]),
    "_adaptive_avg_pool3d.default": lambda t: A._adaptive_avg_pool3d.default(_plane(t), [1, 7, 2]),
}


def _complex(t: Tensors, name: str = "y") -> Tensor:
    """A complex tensor [2, 4] of the parts of one of [2, 4, ...]."""
    return A.view_as_complex.default(A.slice.Tensor(t[name], 2, 0, 2).clone())


def _real(x: Any) -> Any:
    return A.view_as_real.default(x) if isinstance(x, Tensor) else [*map(_real, x)]


def _moved(op: Any, *more: Any) -> Run:
    return lambda t: _real(op(_complex(t), *more))


COMPLEX: dict[str, Run] = {
    "polar.default": lambda t: _real(A.polar.default(t["h"], t["g"])),
    "complex.default": lambda t: _real(A.complex.default(t["h"], t["g"])),
    "view_as_complex.default": lambda t: _real(_complex(t)),
    "view_as_real.default": lambda t: _real(_complex(t)),
    "mul.Tensor": lambda t: _real(A.mul.Tensor(_complex(t), _complex(t)[:1])),
    "mul.Tensor real": lambda t: _real(A.mul.Tensor(t["v"], _complex(t))),
    "mul.Tensor number": lambda t: _real(A.mul.Tensor(_complex(t), 2.5)),
    "mul.Scalar": lambda t: _real(A.mul.Scalar(_complex(t), 0.5)),
    "add.Tensor": lambda t: _real(A.add.Tensor(_complex(t), _complex(t)[:1])),
    "add.Tensor real": lambda t: _real(A.add.Tensor(_complex(t), t["v"])),
    "sub.Tensor": lambda t: _real(A.sub.Tensor(t["v"], _complex(t))),
    "sub.Tensor alpha": lambda t: _real(A.sub.Tensor(_complex(t), _complex(t)[:1], alpha=2)),
    "abs.default": lambda t: A.abs.default(_complex(t)),
    "_conj.default": lambda t: _real(A.resolve_conj.default(A._conj.default(_complex(t)))),
    "_conj_physical.default": lambda t: _real(A._conj_physical.default(_complex(t))),
    "view.default": _moved(A.view.default, [4, 2]),
    "_unsafe_view.default": _moved(A._unsafe_view.default, [8]),
    "unsqueeze.default": _moved(A.unsqueeze.default, -1),
    "squeeze.default": lambda t: _real(A.squeeze.default(_complex(t)[:1])),
    "squeeze.dim": lambda t: _real(A.squeeze.dim(_complex(t)[:1], 0)),
    "squeeze.dims": lambda t: _real(A.squeeze.dims(_complex(t)[:1], [0])),
    "clone.default": _moved(A.clone.default),
    "alias.default": _moved(A.alias.default),
    "permute.default": _moved(A.permute.default, [1, 0]),
    "transpose.int": _moved(A.transpose.int, -2, -1),
    "t.default": _moved(A.t.default),
    "expand.default": lambda t: _real(A.expand.default(_complex(t)[:1], [3, 4])),
    "slice.Tensor": _moved(A.slice.Tensor, -1, 1, 3),
    "select.int": _moved(A.select.int, -1, 2),
    "cat.default": lambda t: _real(A.cat.default([_complex(t), _complex(t)], -1)),
    "stack.default": lambda t: _real(A.stack.default([_complex(t), _complex(t)], -1)),
    "split_with_sizes.default": _moved(A.split_with_sizes.default, [1, 3], -1),
    "split.Tensor": _moved(A.split.Tensor, 2, -1),
    "unbind.int": _moved(A.unbind.int, 0),
    "flip.default": _moved(A.flip.default, [1]),
    "roll.default": _moved(A.roll.default, [1], [1]),
    "repeat.default": _moved(A.repeat.default, [2, 2]),
    "index.Tensor": lambda t: _real(A.index.Tensor(_complex(t), [t["t"][0] % 2])),
    "index_select.default": lambda t: _real(A.index_select.default(_complex(t), 1, t["t"][0])),
    "gather.default": lambda t: _real(A.gather.default(_complex(t), 1, t["t"])),
    "neg.default": _moved(A.neg.default),
    "sum.default": _moved(A.sum.default),
    "sum.dim_IntList": _moved(A.sum.dim_IntList, [-1]),
    "mean.dim": _moved(A.mean.dim, [-1]),
}
