"""ATen's convolutions, of any number of spatial dimensions, grouped and transposed."""

from __future__ import annotations

from graphgen.errors import GraphgenError
from graphgen.ir import Value
from graphgen.lowering.aten.call import AtenCall, AtenResult, aten


@aten("convolution.default")
def _convolution(c: AtenCall) -> AtenResult:
    """``input`` [N, features, ...] with ``weight`` [out, features / groups, ...], and a bias."""
    x, kernel, bias = c.value("input"), c.value("weight"), c.maybe("bias")
    spatial = "".join(map(str, range(x.type.rank - 2)))
    labels = f"bf{spatial}_oi{spatial}->bf{spatial}"
    strides, pads, dilation = (_each(c, n) for n in ("stride", "padding", "dilation"))
    groups = c.integer("groups", 1)
    if c.flag("transposed"):
        made = _transposed(c, labels, x, kernel)
    else:
        made = c.b.convolution(
            x,
            kernel,
            labels,
            strides=strides,
            padding=[(pad, pad) for pad in pads],
            rhs_dilation=dilation,
            feature_groups=groups,
        )
    if bias is None:
        return made
    return c.b.add(made, c.b.broadcast_in_dim(bias, made.shape, [1]))


def _each(c: AtenCall, name: str) -> list[int]:
    """One number a spatial dimension; a single one is for all."""
    count = c.value("input").type.rank - 2
    found = [item for item in c.items(name) if isinstance(item, int)]
    if len(found) not in (1, count):
        raise GraphgenError("GG0106", f"{c.op}: {name} has to be known")
    return found if len(found) == count else found * count


def _transposed(c: AtenCall, labels: str, x: Value, kernel: Value) -> Value:
    """The gradient of a convolution: a stride is a distance between the elements of the input."""
    strides, pads, dilation, more = (
        _each(c, name) for name in ("stride", "padding", "dilation", "output_padding")
    )
    padding: list[tuple[int, int]] = []
    for index, size in enumerate(kernel.type.dims[2:]):
        reach = dilation[index] * (size - 1) - pads[index]
        padding.append((reach, reach + more[index]))
    groups = c.integer("groups", 1)
    return c.b.convolution(
        x,
        _swapped(c, kernel, groups),
        labels,
        padding=padding,
        lhs_dilation=strides,
        rhs_dilation=dilation,
        reversal=[1] * len(pads),
        feature_groups=groups,
    )


def _swapped(c: AtenCall, kernel: Value, groups: int) -> Value:
    """A kernel [features, out / groups, ...] as [out, features / groups, ...]."""
    features, out, *window = kernel.type.dims
    parts = c.b.reshape(kernel, (groups, features // groups, out, *window))
    order = [0, 2, 1, *range(3, parts.type.rank)]
    swapped = c.b.transpose(parts, order)
    return c.b.reshape(swapped, (groups * out, features // groups, *window))
