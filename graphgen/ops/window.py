"""Sizes of windows: how often one fits, with strides, padding and both dilations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from graphgen.ir import Attrs, Dim
from graphgen.ops.opdef import require


@dataclass(frozen=True, slots=True)
class Window:
    """A window along one dimension (HLO: ``WindowDimension``).

    Attributes:
        size: how many elements it reads.
        stride: from one place of the window to the next.
        low, high: elements before and after the dimension; negative ones are cut off.
        base_dilation: from one element of the dimension to the next; between them are holes.
        window_dilation: from one element that the window reads to the next.
        reversal: the window reads from its end.
    """

    size: Dim
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversal: bool = False

    def check(self, what: str) -> None:
        """Require positive numbers, as XLA does."""
        numbers = {
            "size": self.size,
            "stride": self.stride,
            "base dilation": self.base_dilation,
            "window dilation": self.window_dilation,
        }
        for name, value in numbers.items():
            positive = not isinstance(value, int) or value > 0
            require(positive, f"the {name} of {what} is {value}, not positive")

    def places(self, size: Dim, what: str) -> Dim:
        """The number of places where the window fits a dimension of ``size`` elements."""
        self.check(what)
        spread = _dilated(size, self.base_dilation) + self.low + self.high
        if isinstance(spread, int):
            require(spread >= 0, f"padding removes more than {what} of {size} has")
        window = _dilated(self.size, self.window_dilation)
        if isinstance(spread, int) and isinstance(window, int):
            return 0 if window > spread else (spread - window) // self.stride + 1
        require(self.stride == 1, f"the stride of {what} is {self.stride} and its size unknown")
        return spread - window + 1

    def hits(self, size: int) -> int:
        """The number of elements that the window reads in all its places, padding aside."""
        places, window = self.places(size, "it"), self.size
        assert isinstance(places, int)
        assert isinstance(window, int)
        return _hits(self, size, places, window)


def _dilated(size: Dim, dilation: int) -> Dim:
    """The size with holes between the elements."""
    return 0 if size == 0 else (size - 1) * dilation + 1


@cache
def _hits(window: Window, size: int, places: int, elements: int) -> int:
    count = 0
    for tap in range(elements):
        first = tap * window.window_dilation - window.low
        for place in range(places):
            at = first + place * window.stride
            count += at % window.base_dilation == 0 and 0 <= at // window.base_dilation < size
    return count


@dataclass(frozen=True, slots=True)
class WindowNames:
    """The names that an op has for the lists of its window; an empty list is the default."""

    stride: str
    base_dilation: str
    window_dilation: str
    reversal: str = ""


CONVOLUTION = WindowNames("window_strides", "lhs_dilation", "rhs_dilation", "window_reversal")
REDUCTION = WindowNames("window_strides", "base_dilations", "window_dilations")


def windows_of(attrs: Attrs, sizes: Sequence[Dim], names: WindowNames) -> list[Window]:
    """The window of an op along each dimension.

    Args:
        attrs: of the op.
        sizes: of the window.
        names: of its lists.

    Raises:
        InferError: a list is neither empty nor as long as there are dimensions.
    """
    rank = len(sizes)

    def numbers(key: str, default: int) -> Iterator[int]:
        values = attrs.integers(key) if key else ()
        require(len(values) in (0, rank), f"{key} has {len(values)} numbers for {rank} dimensions")
        return iter(values or (default,) * rank)

    return [
        Window(size, stride, low, high, base, window, bool(backward))
        for size, stride, low, high, base, window, backward in zip(
            sizes,
            numbers(names.stride, 1),
            numbers("low", 0),
            numbers("high", 0),
            numbers(names.base_dilation, 1),
            numbers(names.window_dilation, 1),
            numbers(names.reversal, 0),
            strict=True,
        )
    ]


def or_default(values: Sequence[int], default: int) -> tuple[int, ...]:
    """A list of a window as the IR spells it: empty where all are the default."""
    return tuple(values) if any(value != default for value in values) else ()
