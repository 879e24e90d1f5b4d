"""Workloads for comparing programs: the calls a serving system would make, and their arrays.

A language model is taken through a script, short or adversarial, of calls that fit its programs.
Any other module is called once with random inputs and states, and with positions, lengths and rows
of a prompt if it takes all of these; one that was read from elsewhere with others on each rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.inputs import vocabulary
from graphgen.exec.session import ProgramCall, Workload
from graphgen.ir import ADAPTER_IDS, MAIN, Dim, Function, Module, Role, TensorType
from graphgen.ir.dims import symbols
from graphgen.passes.core import Pass
from graphgen.passes.workload.adversarial_script import adversarial_script
from graphgen.passes.workload.call_plan import CallPlan, Span
from graphgen.passes.workload.draw_calls import CallDrawer, slot_of_row
from graphgen.passes.workload.program_shapes import (
    ProgramShape,
    ServingSizes,
    StagePrograms,
    common_sizes,
    dry_run,
    of_sizes,
    random_sizes,
    serving_sizes,
    stage_of,
)
from graphgen.passes.workload.short_script import Script, choose_script, short_script
from graphgen.passes.workload.value_ranges import ArraySource, normal_numbers, own_generator

NO_SIZES: Mapping[str, int] = MappingProxyType({})
_PLACES = {"positions", "lengths", "seq_ids"}
_LANGUAGE_MODEL = {"tokens", *_PLACES}


@dataclass(frozen=True, slots=True)
class WorkloadSizes:
    """Sizes of the workload of a language model; the second bucket is larger than the first."""

    rows: int = 3
    active: int = 8
    first: int = 8
    second: int = 16

    def serving(self, module: Module, found: ServingSizes) -> ServingSizes:
        """Programs of these sizes, one prompt and a decode step in either bucket."""
        phases = {function.phase for function in module.programs()}
        every = (
            ProgramShape("prefill", self.first, self.active, self.rows),
            ProgramShape("decode", self.first, 1, self.rows),
            ProgramShape("decode", self.second, 1, self.rows),
        )
        shapes = tuple(dict.fromkeys(shape for shape in every if shape.phase in phases))
        return ServingSizes(shapes, self.rows, self.second, found.rings, found.window)


def make_workload(
    module: Module,
    seed: int = 0,
    sizes: WorkloadSizes | None = None,
    *,
    shuffled: bool = False,
    source: ArraySource = normal_numbers,
) -> Workload:
    """The short workload of a module alone, whatever passes it goes through.

    Args:
        module: its interface says what the inputs and weights are; any level.
        seed: of weights and inputs.
        sizes: for a language model; by default small ones, or those of the module's programs.
        shuffled: whether the rows of a call are other rows of the cache. Only then does it show
            when row ids are ignored; programs specialized with ``in_place`` may ignore them.
        source: draws weights, states and the inputs of modules other than language models.
    """
    if not is_language_model(module):
        return random_workload(module, seed, source)
    chosen = serving_sizes(module, [stage_of(module, given=True)], several=False)
    chosen = chosen if sizes is None else sizes.serving(module, chosen)
    shapes = [replace(s, in_place=s.rows == chosen.rows and not shuffled) for s in chosen.shapes]
    chosen = replace(chosen, shapes=tuple(shapes))
    inputs = {row.name: row for row in module.entries(Role.INPUT)}
    slots = _slots([stage_of(module)])
    drawer = CallDrawer(chosen, inputs, vocabulary_of(module), source, slots)
    calls = drawer.draw(seed, short_script(chosen))
    dims: dict[str, Dim] = {"R": chosen.rows, "M": chosen.slots}
    weights = _drawn(module, Role.WEIGHT, dims, seed, source)
    return Workload({**weights, **_adapters([stage_of(module)], seed, source)}, calls, dims)


def workload_for(
    module: Module,
    passes: Sequence[Pass],
    seed: int = 0,
    *,
    script: Script = "auto",
    source: ArraySource = normal_numbers,
    slots: int = 0,
    dims: Mapping[str, int] = NO_SIZES,
) -> Workload:
    """The workload that fits a module and all that a pipeline makes of it.

    The pipeline is run once on a copy, up to a pass that raises. Every call of a language model
    fits the programs of all these stages, and every program is called; caches start as random
    numbers. Any other module is called once a program, with sizes that the programs of all stages
    have.

    Args:
        module: at any level; unchanged.
        passes: the pipeline; empty for the module alone.
        seed: of weights, states and inputs.
        script: the situations that the calls make; by default those that the passes touch.
        source: draws weights, states, and inputs that language models do not have.
        slots: M, positions that a row of a cache has room for, where no program states it; by
            default a few.
        dims: sizes of symbols that no pass binds; by default small ones, all different.
    """
    ran = dry_run(module, passes)
    stages = (*ran.stages, of_sizes(module, dims)) if dims else ran.stages
    if not is_language_model(module):
        return random_workload(module, seed, source, stages)
    chosen = choose_script(ran.journal) if script == "auto" else script
    return workload_of_stages(module, stages, seed, chosen, source, slots=slots)


def workload_of_stages(
    module: Module,
    stages: Sequence[StagePrograms],
    seed: int,
    script: Script,
    source: ArraySource = normal_numbers,
    *,
    slots: int = 0,
) -> Workload:
    """The workload whose calls fit the programs of several modules.

    Args:
        module: a language model, or any other module, of which each program is called once with
            random inputs; names weights and states, in logical types.
        stages: of the modules.
        seed: of weights, states and inputs.
        script: the situations that the calls make; ``auto`` is the adversarial one.
        source: draws weights, states, and inputs that language models do not have.
        slots: as of :func:`workload_for`.

    Raises:
        GraphgenError: GG0402 when no call fits all stages.
    """
    if not is_language_model(module):
        return random_workload(module, seed, source, stages)
    short = script == "short"
    sizes = serving_sizes(module, stages, several=not short, room=slots)
    plans = (short_script if short else adversarial_script)(sizes)
    if not plans:
        raise GraphgenError(
            "GG0402",
            f"no program of @{module.name} can be called at every stage with the same sizes",
            help="give all of them the same phases, batch sizes, buckets, rows and slots",
        )
    inputs = {name: row for stage in stages for name, row in stage.inputs.items()}
    drawer = CallDrawer(sizes, inputs, vocabulary_of(module), source, _slots(stages))
    calls = drawer.draw(seed, plans)
    dims: dict[str, Dim] = {"R": sizes.rows, "M": sizes.slots}
    weights, states = (
        _drawn(module, role, dims, seed, source) for role in (Role.WEIGHT, Role.STATE)
    )
    return Workload({**weights, **_adapters(stages, seed, source)}, calls, dims, states)


def _adapters(stages: Sequence[StagePrograms], seed: int, source: ArraySource) -> dict[str, Array]:
    """Random tensors of adapters, which a stage has whose projections have such."""
    rows = {name: row for stage in stages for name, row in stage.adapters.items()}
    return {name: source(own_generator(seed, name), row, row.logical) for name, row in rows.items()}


def random_workload(
    module: Module, seed: int, source: ArraySource, stages: Sequence[StagePrograms] = ()
) -> Workload:
    """One call of each program with random inputs and states; the sizes of symbols differ.

    Args:
        module: names inputs, weights and states.
        seed: of all arrays.
        source: draws them.
        stages: whose programs' sizes the calls have, as far as those are numbers.
    """
    called = [
        (function, dims)
        for function in module.programs()
        for dims in random_sizes(function, _sizes(module), stages)
    ]
    calls = tuple(_random_call(module, f, dims, seed, source) for f, dims in called)
    if ADAPTER_IDS not in module.interface:
        calls = tuple([_with_adapters(call, stages) for call in calls])
    dims = common_sizes([dims for _, dims in called]) if called else _sizes(module)
    weights, states = (
        _drawn(module, role, dims, seed, source) for role in (Role.WEIGHT, Role.STATE)
    )
    return Workload({**weights, **_adapters(stages, seed, source)}, calls, dims, states)


def _slots(stages: Sequence[StagePrograms]) -> int:
    """Slots of adapters; 0 where no stage has such."""
    rows = [row for stage in stages for row in stage.adapters.values()]
    return rows[0].logical.dims[0] if rows else 0


def _with_adapters(call: ProgramCall, stages: Sequence[StagePrograms]) -> ProgramCall:
    """The call with the adapter of each row, where a stage takes one."""
    ids = [row for stage in stages for name, row in stage.inputs.items() if name == ADAPTER_IDS]
    if not ids:
        return call
    (rows,) = ids[0].logical.bind(call.dims).dims
    places = np.arange(rows, dtype=np.int32)
    chosen = slot_of_row(places, rows, _slots(stages))
    return replace(call, inputs={**call.inputs, ADAPTER_IDS: chosen})


def _drawn(
    module: Module, role: Role, dims: Mapping[str, Dim], seed: int, source: ArraySource
) -> dict[str, Array]:
    """Random arrays of the entries of one role by name, in logical types."""
    return {
        row.name: source(own_generator(seed, row.name), row, row.logical.bind(dims))
        for row in module.entries(role)
    }


def is_language_model(module: Module) -> bool:
    """True for a module with the inputs and phases of a language model."""
    names = {row.name for row in module.entries(Role.INPUT)}
    return names >= _LANGUAGE_MODEL and all(f.phase != MAIN for f in module.programs())


def may_shuffle(module: Module) -> bool:
    """True if no program was promised that row b of a call is row b of the cache."""
    return not any(fixed for _, _, fixed in stage_of(module, given=True).programs)


def vocabulary_of(module: Module) -> int:
    """Number of token ids."""
    sizes = [vocabulary(module, function) for function in module.programs()]
    logits = [row.logical.shape[-1] for row in module.entries(Role.OUTPUT) if row.name == "logits"]
    return max([*sizes, *(size for size in logits if isinstance(size, int))], default=2)


def _sizes(module: Module) -> dict[str, Dim]:
    """A size for each symbol of the programs' arguments: small ones, all different.

    Of a cache there are more slots than a call has tokens.
    """
    values = [value for function in module.programs() for value in function.args]
    free = {name for value in values for name in symbols(value.type.shape)}
    slots = {name for row in module.entries(Role.STATE) for name in symbols(row.logical.shape)}
    ordered = sorted(free, key=lambda name: (name in slots and name != "B", name))
    return {name: 3 + index for index, name in enumerate(ordered)}


def _random_call(
    module: Module,
    function: Function,
    sizes: Mapping[str, Dim],
    seed: int,
    source: ArraySource,
) -> ProgramCall:
    dims = dict(sizes)
    rows = [r for r in module.entries(Role.INPUT) if function.arg(r.name) is not None]
    types = {row.name: row.logical.bind(dims) for row in rows}
    shared = dict[str, Array]()
    if types.keys() >= _PLACES:
        shared |= _sensible(module, seed, types, source)
    types = {name: type_ for name, type_ in types.items() if name not in shared}

    def drawn(name: str, rank: int = 0) -> Array:
        own = own_generator(seed, function.name, name, rank)
        return source(own, module.interface[name], types[name])

    if function.phase == MAIN and module.ranks > 1:
        parts = {n: [drawn(n, rank) for rank in range(module.ranks)] for n in types}
        return ProgramCall(function.phase, dims, shared, parts=parts)
    inputs = {name: drawn(name) for name in types}
    return ProgramCall(function.phase, dims, {**inputs, **shared})


def _sensible(
    module: Module, seed: int, types: Mapping[str, TensorType], source: ArraySource
) -> Mapping[str, Array]:
    """Inputs of an imported language model, as in the workload of ours.

    A part of one, without tokens, has no padding: what it computes there is read nowhere.
    """
    rows, width = types["positions"].dims if types["positions"].rank == 2 else (0, 0)
    if [types[name].shape for name in ("lengths", "seq_ids")] != [(rows,)] * 2:
        return {}
    caches = [row.logical.dims for row in module.entries(Role.STATE) if row.logical.rank == 4]
    slots = caches[0][1] if caches else width
    shape = ProgramShape(MAIN, slots, width, rows, in_place=True)
    sizes = ServingSizes((shape,), rows, slots)
    room = slots if width == 1 else width
    part = width > 1 and "tokens" not in types
    ends = [room if part else max(room - 2 - 3 * row, 1) for row in range(rows)]
    spans = [
        Span(end - 1, 1) if width == 1 else Span(0, end, left=row % 2 == 1)
        for row, end in enumerate(ends)
    ]
    plan = CallPlan("", shape, tuple(enumerate(spans)))
    inputs = {row.name: row for row in module.entries(Role.INPUT) if row.name in _LANGUAGE_MODEL}
    (call,) = CallDrawer(
        sizes, inputs, vocabulary_of(module), source, _slots([stage_of(module)])
    ).draw(seed, [plan])
    return call.inputs
