"""The layout of each value over the ranks, as far as the module states or implies it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from graphgen.errors import GraphgenError
from graphgen.ir import Attrs, Function, Module, Value
from graphgen.passes.inspect.layouts.rank_layouts import rank_layouts
from graphgen.passes.sharding.partition import Partition
from graphgen.passes.sharding.solver.sharding_plan import make_plans

# Levels of a module whose programs are those of one rank.
_PER_RANK = ("sharded", "target")
# Annotations of instructions read from HLO, where Shardy's attributes are frontend attributes.
_SHARDING, _ATTRIBUTES = "hlo.sharding", "hlo.frontend_attributes"
_SHARDY = re.compile(r"xla\.sdy\.sharding=")
_ON_MESH = re.compile(r"<@[\w.]+, \[((?:\{[^{}]*\}(?:, )?)*)\]")
_DIMENSION = re.compile(r"\{([^{}]*)\}")


def value_layouts(module: Module, function: Function) -> dict[Value, str]:
    """The sharding of each value that has one, as text.

    Layouts stated in the file take precedence. A program of ours has its layouts before the
    partitioner from the partitioner's plan, and after it from what each rank reads: ``by rank`` is
    a value that differs in another way than by its parts, such as a row of a table that the rank
    has or has not.

    Args:
        module: has the interface and the mesh.
        function: without calls.
    """
    found = {value: text for value, text in _annotated(function) if text}
    ours = "format" not in module.meta and module.ranks > 1
    if ours and function.phase and module.level in _PER_RANK:
        for value, layout in rank_layouts(module, function).items():
            found.setdefault(value, layout.text if layout is not None else "by rank")
    for value in function.args:
        row = module.interface.get(value.name or "")
        if row is not None and row.sharding is not None:
            found.setdefault(value, row.sharding.text)
    if ours and module.level not in _PER_RANK and found:
        for value, text in _planned(module, function):
            found.setdefault(value, text)
    return found


def _planned(module: Module, function: Function) -> Iterator[tuple[Value, str]]:
    """The layouts that the partitioner would choose; none where it would refuse."""
    try:
        plan = make_plans(module, Partition().search(module)).get(function)
    except GraphgenError:
        return
    if plan is None:
        return
    for value, layout in plan.pins.items():
        yield value, layout.text
    for op, choice in plan.choices.items():
        for value, layout in zip(op.results, choice.strategy.out_shardings, strict=True):
            yield value, layout.text


def _annotated(function: Function) -> Iterator[tuple[Value, str]]:
    """Annotations of our passes, else those of the file that the function was read from."""
    for value in function.args:
        yield value, _text(value, 0, 1, value.annotations)
    for op in function.block:
        for index, value in enumerate(op.results):
            yield value, _text(value, index, len(op.results), op.annotations)


def _text(value: Value, index: int, count: int, annotations: Attrs) -> str:
    if value.sharding is not None:
        return value.sharding.text
    attributes = str(annotations.get(_ATTRIBUTES, "")) if annotations else ""
    if _SHARDY.search(attributes):
        layouts = [_axes(dims) for dims in _ON_MESH.findall(attributes.replace('\\"', '"'))]
        if len(layouts) == count:
            return layouts[index]
    whole = str(annotations.get(_SHARDING, "")) if annotations else ""
    members = _members(whole)
    return members[index] if len(members) == count else whole


def _axes(dims: str) -> str:
    """Shardy's ``{"x", "y"}, {}`` in our words: ``{x*y,-}``."""
    axes = [re.sub(r'[" ]', "", dim).replace(",", "*") for dim in _DIMENSION.findall(dims)]
    return "{" + ",".join(axis or "-" for axis in axes) + "}"


def _members(text: str) -> list[str]:
    """The parts of a tuple's sharding ``{{..}, {..}}``; the text itself for another one."""
    if not text.startswith("{{"):
        return [text]
    parts: list[str] = []
    depth = start = 0
    for at, letter in enumerate(text):
        depth += (letter == "{") - (letter == "}")
        if letter == "{" and depth == 2:
            start = at
        elif letter == "}" and depth == 1:
            parts.append(text[start : at + 1])
    return parts
