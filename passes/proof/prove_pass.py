"""Prove that a pass preserves every program, for all sizes and all arguments.

Programs are compared from the checkpoint's weights to their outputs: prepared weights are followed
into the functions that make them. Undecided is a pass that changes the representation of states,
splits programs over ranks, or computes floats by other ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphgen.ir import RANK, Dim, Function, Module, Role, Value
from graphgen.ir.clone import bind_function
from graphgen.ir.dims import symbol, symbols
from graphgen.passes.proof.elements import bodies_of
from graphgen.passes.proof.pass_proof import PassProof, Proof, Status
from graphgen.passes.proof.prove_equal import Assumptions, Side, prove_equal
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.passes.proof.refinement_result import Claim
from graphgen.passes.proof.solver import PASS_STEPS
from graphgen.text.printer import print_function

_WEIGHTS = ("weights.global", "weights.rank")


def prove_pass(before: Module, after: Module, steps: int = PASS_STEPS) -> PassProof:
    """Compare every program of ``after`` with the one of ``before`` that it comes from.

    Args:
        before: the module as the pass got it.
        after: the module as the pass left it.
        steps: of the solver for each question, at most; 0 for no solver.
    """
    reason = _incomparable(before, after)
    proofs: dict[str, Proof] = {}
    for function in after.programs():
        source = _source(before, function)
        if reason or source is None:
            why = reason or "no program of the module before has its phase and sizes"
            proofs[function.name] = Proof(Status.UNDECIDED, why=why)
            continue
        given = assumptions(after, function, steps)
        proofs[function.name] = prove_equal(_side(before, source), _side(after, function), given)
    if any(proof.status is Status.UNDECIDED for proof in proofs.values()):
        proofs |= _refined(before, after, proofs)
    return PassProof(proofs)


def _refined(before: Module, after: Module, proofs: Mapping[str, Proof]) -> dict[str, Proof]:
    """Proofs of undecided programs on every rank, by the interface tables of both modules."""
    found: dict[str, list[Claim]] = {}
    for claim in prove_refinement(before, after).claims:
        found.setdefault(claim.program, []).append(claim)
    out: dict[str, Proof] = {}
    for name, proof in proofs.items():
        claims = found.get(name, [])
        if proof.status is not Status.UNDECIDED or not claims:
            continue
        lost = next((x for x in claims if x.status not in (Status.PROVED, Status.REAL)), None)
        real = next((x for x in claims if x.status is Status.REAL), None)
        if lost is not None:
            out[name] = Proof(Status.UNDECIDED, lost.output, lost.reason)
        elif real is not None:
            out[name] = Proof(Status.REAL, real.output, rounding=next(iter(real.rounding), "an op"))
        else:
            out[name] = Proof(Status.PROVED)
    return out


def sides_of(before: Module, after: Module, name: str) -> tuple[Side, Side]:
    """A program of ``after`` and the one that it comes from, as they are compared."""
    function = after.function(name)
    source = _source(before, function)
    assert source is not None, name
    return _side(before, source), _side(after, function)


def _incomparable(before: Module, after: Module) -> str:
    """The reason why programs of two modules are not compared; empty if they are."""
    if before.ranks != after.ranks:
        return f"programs of {before.ranks} and of {after.ranks} ranks"
    for row in after.interface.values():
        old = before.interface.get(row.name)
        if old is not None and _layout(before, row.name) != _layout(after, row.name):
            return f"{row.name} is stored otherwise"
    return ""


def _layout(module: Module, name: str) -> tuple[object, ...]:
    """The representation of an entry of the interface."""
    row = module.interface[name]
    functions = [module.functions[f] for f in (row.pack, row.unpack) if f]
    return (row.last, *(print_function(f, locs=False) for f in functions))


def _source(before: Module, function: Function) -> Function | None:
    """The program that ``function`` comes from, bound to its sizes."""
    for old in before.programs():
        if old.name == function.name and old.dims == function.dims:
            return old
    for old in before.programs():
        sizes = {k: v for k, v in function.dims.items() if old.dims.get(k, v) == v}
        if old.phase == function.phase and sizes.keys() == function.dims.keys():
            return bind_function(old, {k: v for k, v in sizes.items() if isinstance(v, int)})
    return None


def _side(module: Module, program: Function) -> Side:
    """A program with the functions that prepare its weights."""
    made: dict[Value, Value] = {}
    args: list[Value] = []
    known: dict[str, Value] = {}
    for name in _WEIGHTS:
        maker = module.functions.get(name)
        if maker is not None:
            made |= _linked(maker.args, known)
            args += maker.args
            known |= dict(maker.outputs)
    return Side(program, {**made, **_linked(program.args, known)}, args, bodies_of(module))


def _linked(args: Sequence[Value], known: Mapping[str, Value]) -> dict[Value, Value]:
    pairs = [(arg, known.get(arg.name or "")) for arg in args]
    return {a: made for a, made in pairs if made is not None and made.type is a.type}


def assumptions(module: Module, function: Function, steps: int = PASS_STEPS) -> Assumptions:
    """Facts about every call of a program of a language model.

    Token ids are in the vocabulary; a position is -1 for padding, or a slot of the cache; a length
    is 0 for an idle row; the row id R means none; a program attends to no more slots than exist.
    """
    names = {row.name for row in module.entries(Role.INPUT)}
    ranges: dict[str, tuple[Dim, Dim]] = {RANK: (0, module.ranks - 1)}
    if not names >= {"tokens", "positions", "lengths", "seq_ids"}:
        return Assumptions((), ranges, steps)
    states = {row.name for row in module.entries(Role.STATE)}
    shapes = [v.shape for v in function.args if v.name in states and v.type.rank == 4]
    rows, slots = (shapes[0][0], shapes[0][1]) if shapes else (None, None)
    logits = function.outputs.get("logits")
    if logits is not None:
        ranges["tokens"] = (0, logits.shape[-1] + -1)
    if rows is not None and slots is not None:
        ranges |= {"seq_ids": (0, rows), "positions": (-1, slots + -1), "lengths": (0, slots)}
    sizes = symbols(dim for value in function.args for dim in value.shape)
    facts = [symbol("M") + symbol("C") * -1] if {"M", "C"} <= sizes else []
    return Assumptions(facts, ranges, steps)
