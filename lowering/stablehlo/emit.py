"""Emitter of StableHLO text, with a location at every op."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphgen.analysis import called
from graphgen.errors import GraphgenError
from graphgen.gc_pause import paused_collector
from graphgen.ir import Function, Loc, Module, Op, Value
from graphgen.ir.attrs import EMPTY
from graphgen.lowering.abi import donated, operation_name
from graphgen.lowering.hlo.module_annotations import check_partitions
from graphgen.lowering.mlir.mlir_types import string
from graphgen.lowering.stablehlo.attribute_notes import (
    PROMISES,
    attribute_texts,
    dictionary_text,
    with_attributes,
)
from graphgen.lowering.stablehlo.bounded_sizes import value_type_text, without_bounds
from graphgen.lowering.stablehlo.composite_notes import is_composite, without_composite
from graphgen.lowering.stablehlo.control_rows import callee_symbol
from graphgen.lowering.stablehlo.custom_call_rows import CONSTRAINT, constraint_is_op
from graphgen.lowering.stablehlo.dialect import BY_OP
from graphgen.lowering.stablehlo.dot_precision import ALGORITHM, PRECISION, precision_texts
from graphgen.lowering.stablehlo.manual_computation import parts_of
from graphgen.lowering.stablehlo.module_notes import (
    channel_texts,
    function_texts,
    mesh_lines,
    module_texts,
    result_texts,
)
from graphgen.lowering.stablehlo.op_row import signature, types_text
from graphgen.lowering.stablehlo.op_texts import OpTexts
from graphgen.ops import OPS
from graphgen.text.printer import value_names

_INDEXED = ("gather", "scatter", "scatter_add")


def annotated_text(op: Op, text: str) -> str:
    """The text of an op with its annotations (GG0401 for one without a word in StableHLO)."""
    if constraint_is_op(op) or parts_of(op) is not None:
        return text
    annotations: Mapping[str, object] = op.annotations
    pairs: list[tuple[str, str]] = []
    taken: tuple[str, ...] = ()
    if op.name in ("dot_general", "convolution"):
        pairs, taken = precision_texts(annotations), (PRECISION, ALGORITHM)
    elif OPS[op.name].collective:
        pairs = channel_texts(annotations)
    elif op.name in _INDEXED:
        taken = tuple([f"hlo.{key}" for key in PROMISES])
        pairs = [(key, "true") for key in PROMISES if annotations.get(f"hlo.{key}") == "true"]
    rest = {key: value for key, value in annotations.items() if key not in taken}
    if op.name == "hlo.opaque":
        # Its types are written with their bounds.
        rest = {key: str(value) for key, value in without_bounds(rest).items()}
    if is_composite(op):
        rest = without_composite(rest)
    try:
        return with_attributes(text, pairs + attribute_texts(rest))
    except GraphgenError as error:
        error.where = error.where or repr(op.loc)
        raise


def plain_text(op: Op, text: str) -> str:
    """The text of an op as a rank runs it: a sharding constraint is a custom call there."""
    if not constraint_is_op(op):
        return text
    out, _, rest = text.partition(" = sdy.sharding_constraint ")
    operand = rest.split(" ", 1)[0]
    return f"{out} = stablehlo.custom_call @{CONSTRAINT}({operand}) : {signature(op)}"


@paused_collector()
def emit_stablehlo(
    module: Module, function: Function, *, locs: bool = True, preserved: bool = True
) -> str:
    """Emit the StableHLO module of one program.

    States are donated: the output of a state's name aliases its argument. Each op's location is
    fused from its scope and its source line, the form that XLA copies to HLO's metadata.

    Args:
        module: at level ``target``.
        function: one of its functions.
        locs: with locations.
        preserved: with what a file says that no op models, such as shardings for XLA to apply;
            without it the text is what every rank runs.

    Raises:
        GraphgenError: GG0401 for an op without a StableHLO form or an annotation that it has no
            words for. A dimension with symbols is written as an open size, `?`.
    """
    table = _LocationTable() if locs else None
    names = _names(function)
    # Ops first: their errors come before those of the arguments.
    lines = _lines(function, names, table, preserved)
    callees = called(module, function, native=False)
    return "\n".join(
        [
            *_opening(module, function, names, preserved),
            *lines,
            *[line for callee in callees for line in _body(callee, table, preserved)],
            "}",
            *(table.definitions() if table else []),
            "",
        ]
    )


def stablehlo_lines(module: Module, function: Function) -> dict[Op, tuple[int, str]]:
    """Map each op to its line in the text of :func:`emit_stablehlo`: 1-based number, and text.

    The text is without its location. Raises the errors of :func:`emit_stablehlo`.
    """
    opening = "\n".join(_opening(module, function, _names(function), preserved=True))
    number = len(opening.splitlines()) + 1
    found: dict[Op, tuple[int, str]] = {}
    for each in (function, *called(module, function, native=False)):
        texts = OpTexts(each, _names(each))
        for op in each.block:
            text = _op(op, texts, None, preserved=True)
            found[op] = (number, text.strip())
            number += text.count("\n") + 1
        # The return, a brace, and the head of the next function.
        number += 3
    return found


def stablehlo_places(module: Module) -> dict[Op, tuple[str, int, str]]:
    """Program, line and text of each op in the StableHLO of its program.

    Empty for a module below level ``target``. An op of a function that several programs call is
    found in the first of them.
    """
    found: dict[Op, tuple[str, int, str]] = {}
    if module.level == "target":
        for function in module.programs():
            for op, (number, text) in stablehlo_lines(module, function).items():
                found.setdefault(op, (function.name, number, text))
    return found


def _opening(
    module: Module, function: Function, names: dict[Value, str], preserved: bool
) -> list[str]:
    """Write the lines before the ops."""
    arguments = ",\n    ".join(_arguments(module, function, names, preserved))
    outputs: list[str] = []
    for index, (name, value) in enumerate(function.outputs):
        info = [("jax.result_info", string(name))]
        pairs = info + (result_texts(function, index) if preserved else [])
        outputs.append(f"{value_type_text(value)} {dictionary_text(pairs)}")
    attrs = [("mhlo.num_replicas", f"{module.ranks} : i32")]
    more, meshes = "", list[str]()
    if preserved:
        check_partitions(module)
        attrs, meshes = module_texts(module), mesh_lines(module)
        own = function_texts(function)
        more = f" attributes {dictionary_text(own)}" if own else ""
    head = f"module @{_symbol(module.name)} attributes {dictionary_text(attrs)}"
    results = ", ".join(outputs)
    return [
        f"{head} {{",
        *meshes,
        f"  func.func public @main(\n    {arguments}) -> ({results}){more} {{",
    ]


def _body(function: Function, table: _LocationTable | None, preserved: bool) -> list[str]:
    """Write a called function."""
    names = _names(function)
    arguments = ", ".join([_noted(v, names[v], preserved) for v in function.args])
    results: list[str] = []
    for index, (_, value) in enumerate(function.outputs):
        attrs = dictionary_text(result_texts(function, index) if preserved else [])
        results.append(f"{value_type_text(value)} {attrs}".rstrip())
    own = dictionary_text(function_texts(function) if preserved else [])
    more = f" attributes {own}" if own else ""
    symbol = callee_symbol(function.name)
    head = f"  func.func private {symbol}({arguments}) -> ({', '.join(results)}){more} {{"
    return [head, *_lines(function, names, table, preserved)]


def _noted(value: Value, name: str, preserved: bool) -> str:
    """Write an argument of a called function."""
    pairs = (
        attribute_texts(without_bounds(value.annotations), f" of %{value.name}")
        if preserved and value.annotations
        else []
    )
    return f"{name}: {value_type_text(value)} {dictionary_text(pairs)}".rstrip()


def _lines(
    function: Function, names: dict[Value, str], table: _LocationTable | None, preserved: bool
) -> list[str]:
    """Write the ops, the return and the closing brace."""
    texts = OpTexts(function, names)
    ops = [_op(op, texts, table, preserved) for op in function.block]
    results = ", ".join([names[value] for _, value in function.outputs])
    types = types_text([value for _, value in function.outputs])
    returned = f" {results} : {types}" if results else ""
    return [*ops, f"    return{returned}", "  }"]


# Names of values in MLIR; those of the IR may be in any alphabet, or begin with a digit.
_NAME = re.compile(r"%(?:\d+|[A-Za-z_.\-][\w.$\-]*)", re.ASCII)


def _names(function: Function) -> dict[Value, str]:
    """Choose a name for each value that MLIR can parse; names of the IR never start with $."""
    names = value_names(function)
    return {
        value: name if _NAME.fullmatch(name) else f"%$value.{index}"
        for index, (value, name) in enumerate(names.items())
    }


def _symbol(name: str) -> str:
    safe = re.sub(r"\W", "_", name, flags=re.ASCII)
    return safe if re.match(r"[A-Za-z_]", safe) else f"_{safe}"


def _arguments(
    module: Module, function: Function, names: dict[Value, str], preserved: bool
) -> list[str]:
    alias = donated(module, function)
    out: list[str] = []
    for index, value in enumerate(function.args):
        pairs = [("tf.aliasing_output", f"{alias[index]} : i32")] if index in alias else []
        if preserved and value.annotations:
            pairs += attribute_texts(without_bounds(value.annotations), f" of %{value.name}")
        attrs = f" {dictionary_text(pairs)}" if pairs else ""
        out.append(f"{names[value]}: {value_type_text(value)}{attrs}")
    return out


def _op(op: Op, texts: OpTexts, locs: _LocationTable | None, preserved: bool) -> str:
    if op.name not in BY_OP:
        raise GraphgenError(
            "GG0401",
            f"{op.name} has no StableHLO form",
            where=repr(op.loc),
            help="run the pass legalize{target=cpu} first",
        )
    text = texts.text(op)
    if op.annotations is not EMPTY:
        text = annotated_text(op, text) if preserved else plain_text(op, text)
    return f"    {text} loc({locs.name(op.loc)})" if locs else f"    {text}"


class _LocationTable:
    """Table of distinct locations, defined at the end of the text."""

    def __init__(self) -> None:
        self.numbers: dict[Loc, str] = {}

    def name(self, where: Loc) -> str:
        found = self.numbers.get(where)
        if found is None:
            found = self.numbers[where] = f"#loc{len(self.numbers) + 1}"
        return found

    def definitions(self) -> list[str]:
        return [
            f"{name} = loc(fused[{string(operation_name(where))}, "
            f"{string(where.file)}:{where.line}:0])"
            for where, name in self.numbers.items()
        ]
