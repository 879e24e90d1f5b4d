"""One program of each of two modules, given the same arguments at every call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array, rank_index
from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.ir import Function, Module, Role
from graphgen.passes.core.relation import Relation
from graphgen.passes.equiv.match_interfaces import Pairing, is_rank, pair_programs
from graphgen.passes.equiv.paired_run import (
    CompareOptions,
    PairedCall,
    ProgramRun,
    mesh_of,
    stored,
    with_scales,
)
from graphgen.passes.equiv.relate import RankGrid, apply, meet
from graphgen.passes.workload.make_workload import WorkloadSizes, is_language_model, make_workload

Parts = Sequence[Array]
Given = Sequence[Mapping[str, Array]]


def by_program(left: Module, right: Module, terms: CompareOptions) -> Iterator[PairedCall]:
    """One program of each module, given the same arguments at every call.

    Raises:
        GraphgenError: GG0205 when their values cannot be paired.
    """
    pairing = pair_programs(left, right, terms.relations.keys(), terms.program)
    # The meaning of a language model's inputs is known for the module with its names.
    forward = is_language_model(left) or not is_language_model(right)
    leader, function = (left, pairing.left) if forward else (right, pairing.right)
    workload = _workload(leader, function, pairing, terms)
    backend = terms.run(0 if forward else 1)
    runner = Runner(only_program(leader, function), workload, backend, terms.arithmetic)
    for number, ran in enumerate(runner.calls()):
        if forward:
            given = _carried(right, pairing, ran.given, terms)
            results = terms.run(1)(right, pairing.right, given)
            a, b = (
                ProgramRun(left, ran.function, ran.given),
                ProgramRun(right, pairing.right, given),
            )
            yield _paired(number, a, ran.results, b, results, pairing, right, ran.call, terms)
        else:
            given = _carried(left, _reversed(pairing), ran.given, terms)
            results = terms.run(0)(left, pairing.left, given)
            a, b = ProgramRun(left, pairing.left, given), ProgramRun(right, ran.function, ran.given)
            yield _paired(number, a, results, b, ran.results, pairing, right, ran.call, terms)


def _reversed(pairing: Pairing) -> Pairing:
    inputs = {ours: theirs for theirs, ours in pairing.inputs.items()}
    return replace(pairing, left=pairing.right, right=pairing.left, inputs=inputs)


def only_program(module: Module, function: Function) -> Module:
    """The module without its other programs."""
    kept = {n: f for n, f in module.functions.items() if not f.phase or f is function}
    copy = Module(module.name, module.level, module.mesh, kept, module.interface, module.meta)
    return copy


def _workload(
    leader: Module, function: Function, pairing: Pairing, terms: CompareOptions
) -> Workload:
    """Calls of the leading program: those of the workload that are its own."""
    dims = {**pairing.dims, **function.dims}
    sizes = None
    if is_language_model(leader):
        rows, slots = dims.get("B", dims.get("R")), dims.get("M")
        width, attended = dims.get("S", slots), dims.get("C", slots)
        known = [size for size in (rows, width, attended, slots) if isinstance(size, int)]
        if len(known) == 4:
            active = known[2] if function.phase != "prefill" else known[1]
            sizes = WorkloadSizes(known[0], active, known[2], known[3])
    workload = make_workload(only_program(leader, function), terms.seed, sizes)
    fits = [call for call in workload.calls if _is_call_of(call, function)]
    if not fits:
        what = f"nothing is known to call @{function.name} with"
        raise GraphgenError("GG0402", what, help="give its inputs: --inputs FILE.npz")
    return terms.drawn(only_program(leader, function), replace(workload, calls=tuple(fits)))


def _is_call_of(call: ProgramCall, function: Function) -> bool:
    """True for a call of this program within the slots of its caches."""
    if call.phase != function.phase:
        return False
    if any(call.dims.get(key) not in (size, None) for key, size in function.dims.items()):
        return False
    lengths, slots = call.inputs.get("lengths"), call.dims.get("M")
    return lengths is None or not isinstance(slots, int) or int(lengths.max(initial=0)) <= slots


def _carried(
    target: Module, pairing: Pairing, given: Given, terms: CompareOptions
) -> list[dict[str, Array]]:
    """Per rank the arguments of ``pairing.right``, from those of ``pairing.left``."""
    mesh = mesh_of(target)
    out: list[dict[str, Array]] = [{} for _ in range(mesh.ranks)]
    for value in pairing.right.args:
        name = value.name or ""
        if is_rank(target, name, value.type):
            arrays = [rank_index(rank) for rank in range(mesh.ranks)]
        else:
            ours = pairing.inputs[name]
            parts = [one[ours] for one in given]
            relation = terms.relations.get(name) or terms.relations.get(ours)
            arrays = _spread(parts, relation, mesh, name)
            arrays = [stored(array, parts[0], target, name) for array in arrays]
        for one, array in zip(out, arrays, strict=True):
            one[name] = array
    return out


def _spread(parts: Parts, relation: Relation | None, mesh: RankGrid, name: str) -> list[Array]:
    """Arguments of the other program's ranks: the relation's parts, or the same rank by rank."""
    if relation is None and len(parts) == mesh.ranks:
        return list(parts)
    if any(part.tobytes() != parts[0].tobytes() for part in parts[1:]):
        what = f"{name} is not the same on the {len(parts)} ranks of one module"
        raise GraphgenError("GG0302", what, help="compare modules of as many ranks")
    return [parts[0]] * mesh.ranks if relation is None else apply(relation, parts[0], mesh)


def _stacked(wholes: Parts, parts: Parts, name: str) -> tuple[Array, Array]:
    """Rank by rank; what one program has once is compared with every rank of the other."""
    count = max(len(wholes), len(parts))
    if {len(wholes), len(parts)} - {1, count}:
        what = f"{name} is on {len(wholes)} ranks in one module and {len(parts)} in the other"
        raise GraphgenError("GG0302", what, help=f"say how: --relation '{name}=shard{{-,tp}}'")
    if count == 1:
        return wholes[0], parts[0]
    left, right = (list(p) * (count // len(p)) for p in (wholes, parts))
    return np.stack(left), np.stack(right)


def _paired(
    number: int,
    left: ProgramRun,
    left_results: Given,
    right: ProgramRun,
    right_results: Given,
    pairing: Pairing,
    module: Module,
    call: ProgramCall,
    terms: CompareOptions,
) -> PairedCall:
    mesh = with_scales(mesh_of(module), right_results, right.given)
    ours, theirs = dict(left.function.outputs), dict(right.function.outputs)
    outputs: dict[str, tuple[Array, Array]] = {}
    for name, mine in pairing.outputs.items():
        parts = [one[name] for one in right_results]
        wholes = [one[mine] for one in left_results]
        row = module.interface.get(name)
        if call.active is not None and (row is None or row.role is not Role.STATE):
            parts = [part[list(call.active)] for part in parts]
            wholes = [whole[list(call.active)] for whole in wholes]
        relation = terms.relations.get(name) or terms.relations.get(mine)
        if relation is not None:
            outputs[mine] = meet(relation, wholes[0], parts, mesh)
        else:
            outputs[mine] = _stacked(wholes, parts, mine)
    left_args = {value.name: value for value in left.function.args}
    right_args = {value.name: value for value in right.function.args}
    inputs = {right_args[name]: left_args[mine] for name, mine in pairing.inputs.items()}
    results = {theirs[name]: ours[mine] for name, mine in pairing.outputs.items()}
    return PairedCall(number, left, right, outputs, inputs, results)
