"""What a rule of the NumPy reference is: arrays in, one array out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphgen.eval.arithmetic import Arithmetic, Array
from graphgen.ir import Attrs

Rule = Callable[[Arithmetic, Attrs, Sequence[Array]], Array]


def static(attrs: Attrs, key: str) -> tuple[int, ...]:
    """A list of dimensions that are bound by the time a program is evaluated."""
    return tuple(dim for dim in attrs.dims(key) if isinstance(dim, int))
