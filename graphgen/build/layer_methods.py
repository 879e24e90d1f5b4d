"""Builder methods that are layers without a single op: convolutions with a bias, group norm."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.build.argument_checks import as_tuple
from graphgen.build.array_methods import ArrayMethods
from graphgen.build.shape_methods import refused
from graphgen.ir import Value
from graphgen.ir.dtype import f32

# One number for all spatial dimensions, or one for each.
PerDim = int | Sequence[int]


class LayerMethods(ArrayMethods):
    """Methods for layers of PyTorch that are a few ops."""

    def conv1d(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        strides: PerDim = 1,
        padding: PerDim | str = 0,
        dilation: PerDim = 1,
        groups: int = 1,
    ) -> Value:
        """``x`` [N,C,L] with the kernels ``weight`` [O,C/groups,K], plus ``bias`` [O]."""
        return self._conv(1, x, weight, bias, strides, padding, dilation, groups)

    def conv2d(
        self,
        x: Value,
        weight: Value,
        bias: Value | None = None,
        *,
        strides: PerDim = 1,
        padding: PerDim | str = 0,
        dilation: PerDim = 1,
        groups: int = 1,
    ) -> Value:
        """``x`` [N,C,H,W] with the kernels ``weight`` [O,C/groups,Y,X], plus ``bias`` [O].

        Args:
            x: images.
            weight: kernels.
            bias: one number an output feature.
            strides: from one place of the kernel to the next, one number or one a dimension.
            padding: zeros on both sides, likewise; or ``same``, for a result as large as ``x``.
            dilation: from one element of the kernel to the next, likewise.
            groups: parts of the features that have kernels of their own.
        """
        return self._conv(2, x, weight, bias, strides, padding, dilation, groups)

    def _conv(
        self,
        spatial: int,
        x: Value,
        weight: Value,
        bias: Value | None,
        strides: PerDim,
        padding: PerDim | str,
        dilation: PerDim,
        groups: int,
    ) -> Value:
        name = f"conv{spatial}d"
        for value in (x, weight):
            if len(value.shape) != spatial + 2:
                raise refused(
                    f"{name}: {value.type.text} has not {spatial + 2} dimensions",
                    "x is [batch, features, places], weight [out, in, places]",
                )
        steps = _each(name, "strides", strides, spatial)
        holes = _each(name, "dilation", dilation, spatial)
        sizes = list(weight.shape[2:])
        if padding == "same":
            if max(steps) > 1 or not all(isinstance(size, int) for size in sizes):
                raise refused(f"{name}: padding 'same' is for strides of 1 and kernels of one size")
            whole = [
                hole * (size - 1)
                for hole, size in zip(holes, sizes, strict=True)
                if isinstance(size, int)
            ]
            edges = [(total // 2, total - total // 2) for total in whole]
        else:
            edges = [(size, size) for size in _each(name, "padding", padding, spatial)]
        places = "".join(map(str, range(spatial)))
        y = self.convolution(
            x,
            weight,
            f"bf{places}_oi{places}->bf{places}",
            strides=steps,
            padding=edges,
            rhs_dilation=holes,
            feature_groups=groups,
        )
        return y if bias is None else self.add(y, self.broadcast_in_dim(bias, y.shape, [1]))

    def group_norm(
        self,
        x: Value,
        groups: int,
        weight: Value | None = None,
        bias: Value | None = None,
        epsilon: float = 1e-5,
    ) -> Value:
        """Norm of ``x`` [N,C,...] over each of ``groups`` parts of its features and all places.

        Computed in f32 where ``x`` is narrower; ``weight`` and ``bias`` are [C].
        """
        features = x.shape[1] if len(x.shape) > 1 else 0
        if not isinstance(features, int) or groups < 1 or features < 1 or features % groups:
            raise refused(
                f"group_norm: {x.type.text} has not {groups} equal groups in dimension 1",
                "x is [batch, features, ...], and groups divides the features",
            )
        wide = x if x.dtype.bits > 16 else self.convert(x, f32)
        parts = self.reshape(wide, (*x.shape[:1], groups, features // groups, *x.shape[2:]))
        dims = list(range(2, len(parts.shape)))
        kept = [0, 1]
        mean = self.broadcast_in_dim(self.mean(parts, dims), parts.shape, kept)
        apart = self.subtract(parts, mean)
        spread = self.mean(self.multiply(apart, apart), dims)
        scale = self.rsqrt(self.add(spread, epsilon))
        y = self.multiply(apart, self.broadcast_in_dim(scale, parts.shape, kept))
        y = self.reshape(y, x.shape)
        for term, combine in ((weight, self.multiply), (bias, self.add)):
            if term is not None:
                term = self.convert(term, y.dtype)
                y = combine(y, self.broadcast_in_dim(term, y.shape, [1]))
        return self.convert(y, x.dtype)


def _each(name: str, what: str, given: PerDim | str, count: int) -> tuple[int, ...]:
    """One number a spatial dimension (GG0105 for another count, or for no numbers)."""
    if isinstance(given, str):
        raise refused(f"{name}: {what} '{given}'", "give 'same', a number, or one a dimension")
    found: tuple[int, ...] = tuple([given] * count if isinstance(given, int) else as_tuple(given))
    if len(found) != count:
        raise refused(f"{name}: {what} {list(found)} is not one number for {count} dimensions")
    return found
