"""Counterexamples of rewrites, for people: sizes, values, and both sides as short IR."""

from __future__ import annotations

import numpy as np

from graphgen.eval import Array
from graphgen.eval.element_kinds import element, element_text
from graphgen.ir import Function
from graphgen.passes.core.journal import describe
from graphgen.passes.validate.rebuilt_functions import RebuiltDifference
from graphgen.passes.validate.rewrite_verdict import Counterexample
from graphgen.passes.validate.window_check import FailedSample
from graphgen.text import print_function

_VALUES, _ELEMENTS, _LINES = 8, 6, 24


def counterexample(failed: FailedSample | None) -> Counterexample | None:
    """The example of a sample on which both sides differ; ``None`` where they cannot be run."""
    found = failed.difference if failed is not None else None
    if failed is None or found is None:
        return None
    values = [_line(failed, value.name or "") for value in failed.window.args[:_VALUES]]
    if len(failed.window.args) > _VALUES:
        values.append(f"and {len(failed.window.args) - _VALUES} more")
    sizes = {name: size for name, size in failed.sizes.items() if isinstance(size, int)}
    return Counterexample(
        sizes,
        tuple(values),
        found.index,
        found.before,
        found.after,
        found.relative,
        found.rounding,
        _program(failed.window, found.pair),
    )


def rebuilt_example(found: RebuiltDifference) -> Counterexample:
    """The example of a value of a rebuilt function that differs from its original."""
    gap = found.difference
    sizes = {name: size for name, size in found.call.items() if isinstance(size, int)}
    maker = found.original.op
    before = describe(maker) if maker is not None else f"%{found.original.name}"
    program = f"before: {before}\nafter: {describe(found.op)}"
    at = (gap.index, gap.before, gap.after, gap.relative, gap.rounding)
    return Counterexample(sizes, (), *at, program)


def _line(failed: FailedSample, name: str) -> str:
    value, found = failed.window.arg(name), failed.difference
    assert value is not None
    index = found.index if found is not None else ()
    # The first index is the rank where there are several.
    rank = index[0] if len(failed.given) > 1 and index else 0
    array = failed.given[rank][name]
    at = index[len(index) - array.ndim :] if array.ndim <= len(index) else ()
    return f"%{name} : {value.type.text} = {_short(array, at)}"


def _short(array: Array, at: tuple[int, ...] = ()) -> str:
    """The first elements of an array, and the one at an index that is not among them."""
    flat = [number_text(item) for item in array.ravel()[:_ELEMENTS]]
    if array.size <= _ELEMENTS:
        return f"[{', '.join(flat)}]"
    text = f"[{', '.join(flat)}, ...]"
    inside = len(at) == array.ndim and all(np.less(at, array.shape))
    if not inside or np.ravel_multi_index(at, array.shape) < _ELEMENTS:
        return text
    return f"{text}, {number_text(array[at])} at [{', '.join(map(str, at))}]"


def number_text(item: np.generic) -> str:
    """An integer with all its digits, a float with six, both parts of a complex number."""
    return element_text(element(item))


def _program(window: Function, pair: int) -> str:
    """Both sides of one pair; the middle of a long one is left out."""
    shown = Function(window.name, window.phase, dict(window.dims))
    shown.block = window.block
    wanted = (f"before.{pair}", f"after.{pair}")
    shown.outputs = [(name, value) for name, value in window.outputs if name in wanted]
    lines = print_function(shown, locs=False).splitlines()
    if len(lines) > _LINES:
        left_out = f"  ... {len(lines) - _LINES} lines"
        lines = [*lines[: _LINES // 2], left_out, *lines[-_LINES // 2 :]]
    return "\n".join(lines)
