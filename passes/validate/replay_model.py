"""Replay of a refutation in NumPy: both programs on arrays made of the solver's model.

The model names sizes, an index, and the elements of arguments that the two elements are made of;
all others are zero. Of elements that are neither integers nor truth values
the model knows only whether they are equal: each different one becomes another number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from graphgen.eval import NATIVE, Array, evaluate_ranks, numpy_dtype
from graphgen.ir import RANK, Dim, Function, Module, Op, Value
from graphgen.passes.core.relation import EQUAL
from graphgen.passes.proof.pass_proof import PassProof, Proof, Status
from graphgen.passes.proof.prove_equal import Side
from graphgen.passes.proof.prove_pass import sides_of
from graphgen.passes.validate.counterexample import counterexample, number_text
from graphgen.passes.validate.rewrite_verdict import Counterexample
from graphgen.passes.validate.rewrite_window import WindowCut
from graphgen.passes.validate.window_check import UNFIT, Differing, FailedSample

# Most elements of an argument that are shown.
_SHOWN = 6
# Most elements of the arguments that are made.
_LARGEST = 1 << 26


@dataclass(frozen=True, slots=True)
class _Window:
    """The ops that one output of both programs depends on.

    Attributes:
        cut: with arguments of one name shared.
        function: the same with its symbols bound.
    """

    cut: WindowCut
    function: Function


def replayed(
    proofs: PassProof, before: Module, after: Module
) -> tuple[PassProof, dict[str, Counterexample]]:
    """Replay every refutation of a pass.

    Args:
        proofs: of the pass.
        before: the module as the pass got it.
        after: the module as the pass left it.

    Returns:
        The proofs, ``Status.NOT_CONFIRMED`` where both programs compute the same on the model,
        which is a fault of the prover; and the counterexamples by program.
    """
    made, examples = dict(proofs.programs), dict[str, Counterexample]()
    for name, proof in proofs.having(Status.REFUTED).items():
        found = _replayed(proof, *sides_of(before, after, name), after)
        if isinstance(found, Counterexample):
            examples[name] = found
        else:
            made[name] = found
    return PassProof(made), examples


def _replayed(proof: Proof, left: Side, right: Side, module: Module) -> Proof | Counterexample:
    """The counterexample of a refutation, or what became of it."""
    sizes: dict[str, Dim] = {k: n for k, n in proof.counterexample.items() if not _is_index(k)}
    window = _window(proof.output, left, right, sizes)
    elements = sum(prod(map(int, arg.type.dims)) for arg in window.function.args)
    if elements > _LARGEST:
        return replace(proof, why=f"not replayed: {elements} elements of arguments")
    given = [_arguments(window, proof)]
    try:
        with np.errstate(all="ignore"):
            (result,) = evaluate_ranks(window.function, given, NATIVE, None, module)
    except UNFIT as error:
        return replace(proof, why=f"not replayed: {error}")
    found = _difference(result["before.0"], result["after.0"])
    if found is None:
        why = "both programs compute the same in NumPy"
        return replace(proof, status=Status.NOT_CONFIRMED, why=why)
    example = counterexample(FailedSample(window.cut.pairs, window.function, sizes, given, found))
    assert example is not None
    return replace(example, values=_values_text(window, given[0]))


def _values_text(window: _Window, given: Mapping[str, Array]) -> tuple[str, ...]:
    """The arguments, each by its elements that are not zero."""
    out: list[str] = []
    for arg in window.function.args:
        name = arg.name or ""
        array = given[name]
        if not array.ndim:
            text = number_text(array.ravel()[0])
        else:
            places = [tuple(map(int, at)) for at in np.argwhere(array != 0)[:_SHOWN]]
            parts = [f"{number_text(array[at])} at {list(at)}" for at in places]
            text = ", ".join(["0", *parts]) if parts else "0 everywhere"
        out.append(f"%{name} : {arg.type.text} = {text}")
    return tuple(out)


def _is_index(name: str) -> bool:
    """True for index variables of the prover: ``i0``, ``sum1_0_8``, ``dim0_8``."""
    return name.startswith(("sum", "dim")) or (name[:1] == "i" and name[1:].isdigit())


def _window(output: str, left: Side, right: Side, sizes: Mapping[str, Dim]) -> _Window:
    """Both programs from their arguments to one output, as one function of static shapes."""
    sides = (left, right)
    args: dict[str, Value] = {}
    shared: dict[Value, Value] = {}
    for side in sides:
        for arg in (*side.function.args, *side.args):
            shared[arg] = args.setdefault(arg.name or "", arg)

    def meant(value: Value) -> Value:
        for side in sides:
            value = side.made.get(value, value)
        return shared.get(value, value)

    roots = [meant(dict(side.function.outputs)[output]) for side in sides]
    ops = _producers(roots, meant)
    reads = {op: tuple([meant(value) for value in op.operands]) for op in ops}
    cut = WindowCut(((roots[0], roots[1], EQUAL),), reads, set(ops))
    cut.settle()
    # Sizes that the model leaves open are 1.
    open_ = {name: sizes.get(name, 1) for name in cut.symbols()}
    return _Window(cut, cut.function(open_))


def _producers(roots: Sequence[Value], meant: Callable[[Value], Value]) -> list[Op]:
    found: dict[Op, None] = {}
    work = [value.op for value in roots if value.op is not None]
    while work:
        op = work.pop()
        if op not in found:
            found[op] = None
            operands = [meant(value).op for value in op.operands]
            work += [each for each in operands if each is not None]
    return list(found)


def _arguments(window: _Window, proof: Proof) -> dict[str, Array]:
    """The arguments of the window: zeros, and the elements of the model."""
    out: dict[str, Array] = {}
    for place, value in enumerate(window.cut.boundary):
        name = value.name or ""
        arg = window.function.args[place]
        array = np.zeros(tuple(map(int, arg.type.dims)), numpy_dtype(arg.type.dtype))
        for element in proof.elements:
            inside = all(0 <= n < size for n, size in zip(element.index, array.shape, strict=False))
            if element.argument == name and inside and len(element.index) == array.ndim:
                array[element.index] = element.value
        out[arg.name or f"{place}.{RANK}"] = array
    return out


def _difference(before: Array, after: Array) -> Differing | None:
    """The first element that is not the same: zeros have signs, and NaN is equal to itself."""
    if before.shape != after.shape:
        return Differing(0, (), float("nan"), float("nan"), float("inf"))
    same = (before == after) | ((before != before) & (after != after))
    if before.dtype.kind not in "iubc":
        a, b = before.astype(float), after.astype(float)
        same &= (np.signbit(a) == np.signbit(b)) | np.isnan(a)
    if same.all():
        return None
    index = tuple(int(n) for n in np.argwhere(~same)[0])
    a, b = float(before[index]), float(after[index])
    return Differing(0, index, a, b, abs(a - b) / abs(a) if a else float("inf"))
