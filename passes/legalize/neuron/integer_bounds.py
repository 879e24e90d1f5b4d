"""Bounds of integers, as far as the ops that make them show them."""

from __future__ import annotations

from collections.abc import Callable

from graphgen.ir import Op, Value
from graphgen.ir.dtype import highest, lowest, pred

# The least and the largest element; ``None`` where nothing is known.
Bounds = tuple[int, int] | None
_Of = Callable[[Value], Bounds]
_Rule = Callable[[Op, _Of], Bounds]
_RULES: dict[str, _Rule] = {}
# The longest chain of ops, and the most elements of a constant, that are looked at.
_DEPTH, _MOST = 32, 4096


def integer_bounds(value: Value) -> Bounds:
    """Find the least and the largest element that a value of integers may have."""
    known: dict[Value, Bounds] = {}

    def bounds(value: Value, depth: int) -> Bounds:
        if value not in known:
            found = _found(value, lambda inner: bounds(inner, depth - 1)) if depth else None
            known[value] = found if found is not None and _fit(value, found) else None
        return known[value]

    return bounds(value, _DEPTH)


def _found(value: Value, of: _Of) -> Bounds:
    op = value.op
    if op is None or not (value.dtype.is_integer or value.dtype is pred):
        return None
    if op.name == "sort" or (op.name == "top_k" and value.index == 0):
        return of(op.operands[value.index])
    if op.name == "top_k":
        size = op.operands[0].shape[-1]
        return (0, size - 1) if isinstance(size, int) else None
    return _RULES[op.name](op, of) if op.name in _RULES else None


def _fit(value: Value, found: tuple[int, int]) -> bool:
    """Test whether no number wraps around in the value's type."""
    return lowest(value.dtype) <= found[0] and found[1] <= highest(value.dtype)


def _rule(*names: str) -> Callable[[_Rule], _Rule]:
    def enter(rule: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return enter


@_rule("constant")
def _constant(op: Op, of: _Of) -> Bounds:
    literal = op.attrs.literal("value")
    size = op.result.type.size
    if not isinstance(size, int) or not 0 < size <= _MOST:
        return None
    numbers = [int(number) for number in literal.values()]
    return min(numbers), max(numbers)


@_rule("iota")
def _iota(op: Op, of: _Of) -> Bounds:
    size = op.result.shape[op.attrs.integer("dimension")]
    return (0, max(0, size - 1)) if isinstance(size, int) else None


@_rule("reshape", "transpose", "broadcast_in_dim", "slice", "dynamic_slice", "gather", "reverse")
def _moved(op: Op, of: _Of) -> Bounds:
    return of(op.operands[0])


@_rule("reduce")
def _reduced(op: Op, of: _Of) -> Bounds:
    # Of nothing, it would be the least or the largest number of the type.
    empty = 0 in op.operands[0].shape
    extreme = op.attrs.text("kind") in ("maximum", "minimum") and not empty
    return of(op.operands[0]) if extreme else None


@_rule("convert")
def _converted(op: Op, of: _Of) -> Bounds:
    (source,) = op.operands
    return (0, 1) if source.dtype is pred else of(source)


@_rule("concatenate", "pad", "select")
def _any_of(op: Op, of: _Of) -> Bounds:
    values = op.operands[1:] if op.name == "select" else op.operands
    return _union([of(value) for value in values])


def _union(found: list[Bounds]) -> Bounds:
    known = [bounds for bounds in found if bounds is not None]
    if not known or len(known) < len(found):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


@_rule("minimum", "maximum")
def _extreme(op: Op, of: _Of) -> Bounds:
    a, b = (of(value) for value in op.operands)
    if a is None or b is None:
        return None
    pick = min if op.name == "minimum" else max
    return pick(a[0], b[0]), pick(a[1], b[1])


@_rule("add", "subtract", "multiply")
def _combined(op: Op, of: _Of) -> Bounds:
    a, b = (of(value) for value in op.operands)
    if a is None or b is None:
        return None
    if op.name == "subtract":
        return a[0] - b[1], a[1] - b[0]
    if op.name == "add":
        return a[0] + b[0], a[1] + b[1]
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


@_rule("clamp")
def _clamped(op: Op, of: _Of) -> Bounds:
    low, _, high = (of(value) for value in op.operands)
    return (low[0], high[1]) if low is not None and high is not None else None


@_rule("remainder")
def _rest(op: Op, of: _Of) -> Bounds:
    """Remainder of a divisor that is not zero: smaller, and with the dividend's sign."""
    given, divisor = (of(value) for value in op.operands)
    if given is None or divisor is None or divisor[0] <= 0:
        return None
    most = divisor[1] - 1
    return max(min(given[0], 0), -most), min(max(given[1], 0), most)
