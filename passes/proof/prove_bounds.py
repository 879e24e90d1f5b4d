"""Proof that computed indices are within bounds for all sizes and all legal inputs.

HLO clamps the start of a slice, and drops a write outside of its operand, without a word. An index
that may be outside is a fault, or a choice of the model: it is reported as undecided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphgen.analysis import inlined
from graphgen.ir import Dim, Function, Module, Op, Value
from graphgen.passes.proof.elements import Elements
from graphgen.passes.proof.integers import at_most_zero, both
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_equal import Assumptions, deep_recursion
from graphgen.passes.proof.prove_pass import assumptions
from graphgen.passes.proof.solver import PASS_STEPS, Solver, has_solver
from graphgen.passes.proof.terms import Terms


@dataclass(frozen=True, slots=True)
class IndexBounds:
    """An index operand, with the lowest and highest number that is inside.

    Attributes:
        operand: integers of any shape.
        low, high: the bounds.
        component: of index vectors the dimension that holds them, and the place in a vector.
    """

    operand: Value
    low: Dim
    high: Dim
    component: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class IndexProof:
    """Proof for one index operand of an op.

    Attributes:
        op: the op.
        index: its operand and the bounds.
        status: proved, or undecided.
        why: the range that is known, of what is undecided.
    """

    op: Op
    index: IndexBounds
    status: Status
    why: str = ""

    @property
    def proved(self) -> bool:
        """True if the index is within bounds for all sizes and all legal inputs."""
        return self.status is Status.PROVED


def prove_indices(module: Module) -> dict[str, list[IndexProof]]:
    """The index operands of every program, each with its proof, by the program's name."""
    return {f.name: prove_bounds(module, f) for f in module.programs()}


def prove_bounds(module: Module, function: Function, steps: int = PASS_STEPS) -> list[IndexProof]:
    """The index operands of a program, each with its proof.

    Args:
        module: has the functions it calls.
        function: the program, with or without symbols.
        steps: of the solver for each question, at most; 0 for no solver.
    """
    program = inlined(module, function)
    given = assumptions(module, program, steps)
    terms = Terms()
    names = {value: value.name or "" for value in program.args}
    elements = Elements(terms, names, expand=True, ranges=given.ranges)
    with deep_recursion():
        return [
            _proved(elements, given, op, index) for op in program.block for index in _indices(op)
        ]


def _indices(op: Op) -> Iterator[IndexBounds]:
    """The index operands of an op."""
    operands = op.operands
    match op.name:
        case "embedding":
            yield IndexBounds(operands[1], 0, operands[0].shape[0] + -1)
        case "take":
            count = operands[0].shape[op.attrs.integer("dimension")]
            if isinstance(count, int):
                # -1 gives zeros, on purpose.
                yield IndexBounds(operands[1], -1, count // op.attrs.integer("block") - 1)
        case "kv_update":
            # Row R and position -1 are dropped, on purpose.
            yield IndexBounds(operands[2], 0, operands[0].shape[0])
            yield IndexBounds(operands[3], -1, operands[0].shape[1] + -1)
        case "cache_read":
            yield IndexBounds(operands[1], 0, operands[0].shape[0])
        case "dynamic_slice" | "dynamic_update_slice":
            first, part = (1, op.results[0]) if op.name == "dynamic_slice" else (2, operands[1])
            sizes = zip(operands[0].shape, part.shape, strict=True)
            for start, (size, length) in zip(operands[first:], sizes, strict=True):
                yield IndexBounds(start, 0, size + length * -1)
        case "gather":
            sizes = op.attrs.dims("slice_sizes")
            for place, axis in enumerate(op.attrs.integers("start_index_map")):
                room = operands[0].shape[axis] + sizes[axis] * -1
                component = (op.attrs.integer("index_vector_dim"), place)
                yield IndexBounds(operands[1], 0, room, component)
        case _:
            return


def _proved(elements: Elements, given: Assumptions, op: Op, index: IndexBounds) -> IndexProof:
    terms = elements.terms
    place = [
        terms.variable(f"j{axis}_{size}", size) for axis, size in enumerate(index.operand.shape)
    ]
    if index.component is not None and index.component[0] < len(place):
        place[index.component[0]] = index.component[1]
    number = elements.integer(index.operand, tuple(place))
    inside = both(
        terms,
        at_most_zero(terms, index.low + number * -1),
        at_most_zero(terms, number + index.high * -1),
    )
    if inside is True:
        return IndexProof(op, index, Status.PROVED)
    known = f"known to be in [{_text(terms.lowest(number))}, {_text(terms.highest(number))}]"
    if has_solver() and given.steps:
        found = Solver(terms, given.facts).find(inside, True, given.steps)
        if found is None:
            return IndexProof(op, index, Status.PROVED)
        if isinstance(found, str):
            known += f"; z3: {found}"
    return IndexProof(op, index, Status.UNDECIDED, known)


def _text(bound: Dim | None) -> str:
    return "?" if bound is None else str(bound)
