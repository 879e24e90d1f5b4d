"""Workloads for comparing programs: the calls a serving system would make, and their arrays.

A language model is taken through a script, short or adversarial, of calls that fit its programs.
Any other module is called with random inputs and states, several times if it takes integers, so
that special ones have a place; and with positions, lengths and rows of a prompt if it takes all of
these. One that was read from elsewhere gets other inputs on each rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from graphgen.analysis import free_symbols
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.decode_steps import COUNT
from graphgen.exec.inputs import vocabulary
from graphgen.exec.session import Workload
from graphgen.ir import ADAPTER_IDS, MAIN, Dim, Module, Role
from graphgen.ir.dims import symbols
from graphgen.passes.core import Pass
from graphgen.passes.workload.adversarial_script import adversarial_script, long_script
from graphgen.passes.workload.call_plan import CallPlan
from graphgen.passes.workload.draw_calls import CallDrawer
from graphgen.passes.workload.program_shapes import (
    FEW_ROWS,
    LONG,
    LONG_ROWS,
    MORE_ROWS,
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
from graphgen.passes.workload.random_calls import (
    LANGUAGE_MODEL,
    RandomCalls,
    symbol_sizes,
    takes_prompts,
    with_adapters,
)
from graphgen.passes.workload.short_script import Script, choose_script, short_script
from graphgen.passes.workload.value_ranges import ArraySource, normal_numbers, own_generator

NO_SIZES: Mapping[str, int] = MappingProxyType({})
# Symbols of a language model that a script gives sizes: of calls, and of caches.
_CACHE_SYMBOLS = {"R", "M"}
_CALL_SYMBOLS = {*_CACHE_SYMBOLS, "B", "S", "C", COUNT}


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
    weights |= _adapters([stage_of(module)], seed, source)
    return Workload(weights, calls, dims, seed=seed)


def workload_for(
    module: Module,
    passes: Sequence[Pass],
    seed: int = 0,
    *,
    script: Script = "quick",
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
        script: the situations that the calls make; by default a few, by what the passes touch.
        source: draws weights, states, and inputs that language models do not have.
        slots: M, positions that a row of a cache has room for, where no program states it; by
            default a few.
        dims: sizes of symbols that no pass binds; by default small ones, all different.
    """
    ran = dry_run(module, passes)
    stages = (*ran.stages, of_sizes(module, dims)) if dims else ran.stages
    if not is_language_model(module):
        return random_workload(module, seed, source, stages)
    swept = script != "quick"
    chosen = script if swept else choose_script(ran.journal)
    return workload_of_stages(module, stages, seed, chosen, source, slots=slots, swept=swept)


def workload_of_stages(
    module: Module,
    stages: Sequence[StagePrograms],
    seed: int,
    script: Script,
    source: ArraySource = normal_numbers,
    *,
    slots: int = 0,
    swept: bool = True,
) -> Workload:
    """The workload whose calls fit the programs of several modules.

    Args:
        module: a language model, or any other module, of which each program is called once with
            random inputs; names weights and states, in logical types.
        stages: of the modules.
        seed: of weights, states and inputs.
        script: the situations that the calls make; ``auto`` is the adversarial one, and ``quick``
            is as well, for want of passes.
        source: draws weights, states, and inputs that language models do not have.
        slots: as of :func:`workload_for`.
        swept: whether programs are called at all of their positions, beside the short script.

    Raises:
        GraphgenError: GG0402 when no call fits all stages.
    """
    if not is_language_model(module):
        return random_workload(module, seed, source, stages)
    short = script == "short"
    exhaustive = swept and not short
    sizes = serving_sizes(
        module,
        stages,
        several=not short,
        room=slots,
        free_rows=_free_rows(slots) if exhaustive else FEW_ROWS,
    )
    plans = _plans(sizes, script, swept=swept)
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
    weights |= _adapters(stages, seed, source)
    made = Workload(
        weights, calls, dims, states, exhaustive=exhaustive, rings=sizes.rings, seed=seed
    )
    return replace(made, whole=any(shape.whole for shape in sizes.shapes))


def _plans(sizes: ServingSizes, script: Script, *, swept: bool) -> tuple[CallPlan, ...]:
    if script == "short":
        return short_script(sizes)
    if script == "long":
        return long_script(sizes)
    return adversarial_script(sizes, swept=swept)


def _free_rows(slots: int) -> int:
    """Rows of calls to all places; fewer of caches that are long."""
    return LONG_ROWS if slots > LONG else MORE_ROWS


def rounded_calls(workload: Workload) -> Workload:
    """The calls that are compared in the program's own types as well, which come first."""
    return replace(workload, calls=tuple(call for call in workload.calls if not call.exact))


def random_workload(
    module: Module, seed: int, source: ArraySource, stages: Sequence[StagePrograms] = ()
) -> Workload:
    """Calls of each program with random inputs and states; the sizes of symbols differ.

    Integers are ordinary in the first call of a program, and special in the next ones, so that all
    of them have a place: see :mod:`~graphgen.passes.workload.legal_values`.

    Args:
        module: names inputs, weights and states.
        seed: of all arrays.
        source: draws what is neither an integer nor has a domain, and weights.
        stages: whose programs' sizes the calls have, as far as those are numbers.
    """
    slots, sizes = _slots(stages or [stage_of(module)]), symbol_sizes(module)
    called = [
        (function, dims)
        for function in module.programs()
        for dims in random_sizes(function, sizes, stages)
    ]
    drawn = RandomCalls(module, seed, source, vocabulary_of(module), slots)
    calls = tuple([call for function, dims in called for call in drawn.of(function, dims)])
    if ADAPTER_IDS not in module.interface:
        calls = tuple([with_adapters(call, stages, slots, seed) for call in calls])
    dims = common_sizes([dims for _, dims in called]) if called else sizes
    # A state has one size, also where two programs do not agree on a symbol of theirs.
    states, weights = (
        drawn.states({**sizes, **dims}),
        _drawn(module, Role.WEIGHT, {**sizes, **dims}, seed, source),
    )
    weights |= _adapters(stages, seed, source)
    return Workload(weights, calls, dims, states, seed=seed)


def _adapters(stages: Sequence[StagePrograms], seed: int, source: ArraySource) -> dict[str, Array]:
    """Random tensors of adapters, which a stage has whose projections have such."""
    rows = {name: row for stage in stages for name, row in stage.adapters.items()}
    return {name: source(own_generator(seed, name), row, row.logical) for name, row in rows.items()}


def _slots(stages: Sequence[StagePrograms]) -> int:
    """Slots of adapters; 0 where no stage has such."""
    rows = [row for stage in stages for row in stage.adapters.values()]
    return rows[0].logical.dims[0] if rows else 0


def _drawn(
    module: Module, role: Role, dims: Mapping[str, Dim], seed: int, source: ArraySource
) -> dict[str, Array]:
    """Random arrays of the entries of one role by name, in logical types."""
    return {
        row.name: source(own_generator(seed, row.name), row, row.logical.bind(dims))
        for row in module.entries(role)
    }


def is_language_model(module: Module) -> bool:
    """True for a module with the inputs, phases and sizes of a language model.

    Sizes of calls are B, S, C and those of several steps, sizes of caches R and M; any others, as
    those of an encoder, are nothing that a script of calls knows.
    """
    inputs = {row.name: row.logical for row in module.entries(Role.INPUT)}
    if not inputs.keys() >= LANGUAGE_MODEL or not takes_prompts(inputs):
        return False
    programs = module.programs()
    held = [*module.entries(Role.STATE), *module.entries(Role.WEIGHT)]
    of_caches = symbols([dim for row in held for dim in row.logical.shape])
    known = free_symbols(programs) <= _CALL_SYMBOLS and of_caches <= _CACHE_SYMBOLS
    return known and all(function.phase != MAIN for function in programs)


def may_shuffle(module: Module) -> bool:
    """True if no program was promised that row b of a call is row b of the cache."""
    return not any(fixed for _, _, fixed in stage_of(module, given=True).programs)


def vocabulary_of(module: Module) -> int:
    """Number of token ids."""
    sizes = [vocabulary(module, function) for function in module.programs()]
    logits = [row.logical.shape[-1] for row in module.entries(Role.OUTPUT) if row.name == "logits"]
    return max([*sizes, *(size for size in logits if isinstance(size, int))], default=2)
