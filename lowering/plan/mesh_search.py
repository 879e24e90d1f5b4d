"""The mesh, and the layout on it, with which requests are predicted to take the least time.

A request is one prefill of the longest bucket and ``generated`` decode steps of the longest bucket,
each shared by the rows of its program:
``seconds = prefill / prefill rows + generated * step / rows``. By default ``generated``
is the slots of a cache row beyond the longest prefill bucket; where prompts may fill the row, half
of its slots. Seconds are rooflines of the compiled programs, bounds from below; for the CPU, of
which no rates are known, they stand for what ``partition`` minimizes, in bytes.

Every mesh that the degrees allow is looked at: slots of caches divided (flash decoding), rows
divided (attention data parallelism), prompts shared (context parallelism in each form, in the MLP
too or not), and the last two together. The switches of layouts are tried on the plain mesh, and
those of gathered weights on the best one, too.

A mesh is compiled unless it cannot be the best: no program of n ranks takes less than 1/n of that
of one rank, and decode steps are those of the mesh without shared prompts. Times that differ by
less than 0.1 % are the same, so that nothing is held twice for so little.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import cast

from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import fields_of
from graphgen.config.option_words import CP_FORMS
from graphgen.config.rank_config import AUTO, CHOSEN_FIELDS, MANUAL
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY, VERIFY_TREE, dtype
from graphgen.json_value import Json
from graphgen.lowering.plan.bucket_seconds import ProgramBound
from graphgen.lowering.plan.measure import few_layers, layer_period
from graphgen.lowering.plan.short_bounds import short_bounds
from graphgen.models import PHASES, build
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import Accelerator, accelerator, find_target

Changes = Mapping[str, object]

PLAIN: Changes = {}
_TOKENS = ("prefill:sequence:tp",)
# Layouts of one mesh that ``partition`` chooses by bytes and collectives, and seldom loses by.
_GATHERS: tuple[Changes, ...] = ({"weight_gather_length": 0}, {"weight_gather_length": 1})
_LAYOUTS = (*_GATHERS, *[{"rules": _TOKENS, **gathers} for gathers in ({}, *_GATHERS)])
# Seconds that differ by a smaller share are the same; fewer settings are then better. A mesh that
# is not compiled may be better by half of it, and one that is not chosen by the other half.
SAME = 1e-3
# Fields that decode steps depend on.
_STEP_FIELDS = {"flash_decoding", "flash_decoding_ranks", "attention_dp_degree"}


@dataclass(frozen=True, slots=True)
class MeshOption:
    """One mesh.

    Attributes:
        changes: fields of ``CompileConfig`` that give it; none for heads over all ranks.
        prefill_s, step_s: seconds of the programs of the longest buckets.
        seconds: of a request.
        bytes: of a core, with a program's code.
        refused: why it cannot serve; empty if it can.
    """

    changes: Changes
    prefill_s: float = 0.0
    step_s: float = 0.0
    seconds: float = 0.0
    bytes: int = 0
    refused: str = ""

    @property
    def text(self) -> str:
        """The options of the pipeline ``default``; ``-`` for none."""
        return ",".join(f"{name}={_value(value)}" for name, value in self.changes.items()) or "-"

    @property
    def flags(self) -> str:
        """Flags of ``graphgen generate`` that give it; empty where an option has none."""
        declared = fields_of(CompileConfig)
        found: list[str] = []
        for name, value in self.changes.items():
            option = declared[name].flag
            if not option:
                return ""
            found += [option] if value is True else [option, str(value)]
        return " ".join(found)

    def to_json(self) -> dict[str, Json]:
        """The numbers, ``None`` where it cannot be compiled; seconds, and bytes of a core."""
        known = bool(self.bytes)
        options: dict[str, Json] = {
            name: list(value) if isinstance(value, tuple) else value  # pyright: ignore
            for name, value in self.changes.items()
        }
        return {
            "options": options,
            "flags": self.flags or None,
            "prefill_s": self.prefill_s if known else None,
            "step_s": self.step_s if known else None,
            "request_s": self.seconds if known else None,
            "core_bytes": self.bytes or None,
            "refused": self.refused or None,
        }


@dataclass(frozen=True, slots=True)
class MeshSearch:
    """The answer.

    Attributes:
        demand: the configuration to compile for, on the plain mesh.
        generated: tokens of an answer.
        options: all that were tried; the first is the plain mesh.
        chosen: the one of least seconds that fits; ``None`` where none does.
    """

    demand: CompileConfig
    generated: int
    options: tuple[MeshOption, ...]
    chosen: MeshOption | None

    def to_json(self, model: str, target: Accelerator) -> dict[str, Json]:
        """The answer for a model on a device, by name; times in seconds, bytes of a core."""
        return {
            "model": model,
            "target": target.name,
            "lnc": target.lnc,
            "tp": self.demand.tp,
            "dtype": self.demand.dtype,
            "batch": self.demand.cache_rows,
            "seq": self.demand.max_len,
            "context": max(self.demand.context),
            "generated": self.generated,
            "core_bytes": target.hbm_bytes,
            "meshes": [item.to_json() for item in self.options],
            "chosen": None if self.chosen is None else self.chosen.to_json(),
        }


def meshes(demand: CompileConfig) -> Iterator[Changes]:
    """The plain mesh, then every other one of as many ranks; some may be refused later."""
    yield PLAIN
    divisors = [n for n in range(2, demand.tp + 1) if demand.tp % n == 0]
    # As few ranks as hold each head once, then each number of them.
    if divisors:
        yield {"flash_decoding": True}
    for ranks in divisors:
        yield {"flash_decoding": True, "flash_decoding_ranks": ranks}
    groups = [n for n in divisors if demand.cache_rows % n == 0]
    for number in groups:
        yield {"attention_dp_degree": number}
    for rows in ({}, *[{"attention_dp_degree": number} for number in groups]):
        for ranks in divisors:
            # Ranks that divide rows divide the ranks that share a prompt.
            if ranks % rows.get("attention_dp_degree", 1) == 0:
                for shared in _shared_prompts(ranks):
                    yield {**rows, **shared}


def _shared_prompts(ranks: int) -> Iterator[Changes]:
    """Context parallelism over some ranks in each form; ``auto`` is one of them."""
    for form in CP_FORMS[1:]:
        for mlp in ({}, {"mlp_cp_degree": ranks}):
            yield {"cp_degree": ranks, "cp_form": form, **mlp}


def generated_tokens(demand: CompileConfig) -> int:
    """Default number of tokens of an answer: see the module."""
    slots = demand.max_len
    return slots - max(demand.context) or slots // 2


def search_meshes(
    config: Mapping[str, object],
    target: Accelerator | None,
    demand: CompileConfig,
    generated: int = 0,
    progress: Callable[[float], None] = lambda _: None,
) -> MeshSearch:
    """Look at every mesh of ``demand.tp`` ranks, and choose the cheapest that fits.

    Args:
        config: a ``config.json``; Hugging Face's names.
        target: the accelerator; ``None`` for the CPU.
        demand: the configuration to compile for; what it says of the mesh is not used.
        generated: tokens of an answer; 0 for the rule of the module.
        progress: takes the fraction done.

    Raises:
        GraphgenError: GG0501 to GG0503 for a configuration that cannot be read.
    """
    plain = {item.name: item.default for item in fields(demand) if item.name in CHOSEN_FIELDS}
    name = "cpu" if target is None else target.name
    demand = replace(demand, target=name, parallelism=MANUAL).updated(plain)
    cost = _Cost(config, target, demand, generated or generated_tokens(demand))
    asked = list(meshes(demand))
    most = len(asked) + len(_LAYOUTS) + len(_GATHERS)
    found: list[MeshOption] = []

    def tries(some: Sequence[Changes]) -> None:
        for changes in some:
            found.append(cost.option(changes))
            progress(len(found) / most)

    tries([*asked, *(_LAYOUTS if demand.tp > 1 else ())])
    best = cheapest(found)
    if best and _is_mesh(best.changes):
        tries([{**best.changes, **layout} for layout in _GATHERS])
    return MeshSearch(demand, cost.generated, tuple(found), cheapest(found))


def cheapest(options: Sequence[MeshOption]) -> MeshOption | None:
    """The option of least seconds that can serve; of equal ones that with the fewest settings."""
    able = [item for item in options if not item.refused]
    least = min([item.seconds for item in able], default=0.0)
    equal = [item for item in able if item.seconds <= least * (1 + SAME / 2)]
    return min(equal, key=lambda item: len(item.changes), default=None)


class _Cost:
    """Cost of a mesh: that of programs of one bucket a phase and few layers, compiled."""

    def __init__(
        self,
        config: Mapping[str, object],
        target: Accelerator | None,
        demand: CompileConfig,
        generated: int,
    ) -> None:
        self.config, self.target, self.generated = config, target, generated
        # Other programs, and what chooses tokens, differ little between meshes.
        self.demand = replace(
            demand,
            context=(max(demand.context),),
            tokens=(max(demand.tokens),),
            slots=demand.max_len,
            rows=demand.cache_rows,
            chunk=(),
            speculation_length=0,
            verify_lengths=(),
            verify_batch=(),
            tree_nodes=0,
            steps_per_launch=1,
            outline=False,
        )
        self.period = layer_period(config)
        self.best = math.inf
        # Seconds of a step by the fields that it depends on; no program of the ranks takes less
        # than their share of one rank's.
        self.steps: dict[frozenset[object], float] = {}
        self.ideal_prefill, self.ideal_step = self._ideal()

    def option(self, changes: Changes) -> MeshOption:
        """The figures of one mesh; an error that a user would get is why it is refused."""
        if "rules" in changes and self.demand.rules:
            return MeshOption(changes, refused="the configuration has rules of its own")
        key = frozenset(item for item in changes.items() if item[0] in _STEP_FIELDS)
        least = self._request(self.ideal_prefill, self.steps.get(key, self.ideal_step))
        if least >= self.best * (1 - SAME / 2):
            return MeshOption(changes, refused=f"takes {least:.4g} s at least, another less")
        try:
            prefill, step = self._bounds(self.demand.updated(changes))
        except GraphgenError as error:
            return MeshOption(changes, refused=f"{error.code}: {error.what}")
        self.steps[key] = step.seconds
        seconds = self._request(prefill.seconds, step.seconds)
        needs, why = self._needs(prefill.core_bytes)
        if not why:
            self.best = min(self.best, seconds)
        return MeshOption(changes, prefill.seconds, step.seconds, seconds, needs, why)

    def _bounds(self, demand: CompileConfig) -> tuple[ProgramBound, ProgramBound]:
        """A prefill, and a decode step."""
        phases = ("prefill", "decode")
        found = short_bounds(self.config, self.target, demand, phases, self.period)
        return found["prefill", demand.context[0]], found["decode", demand.tokens[0]]

    def _ideal(self) -> tuple[float, float]:
        """Seconds of a prefill and of a step that no mesh of the ranks takes less than."""
        alone = {"tp": 1, "moe_ep_degree": 1, "moe_prefill_ep_degree": 0, "rules": ()}
        try:
            prefill, step = self._bounds(self.demand.updated({**alone, "heads": "auto"}))
        except GraphgenError:
            return 0.0, 0.0
        return prefill.seconds / self.demand.tp, step.seconds / self.demand.tp

    def _request(self, prefill: float, step: float) -> float:
        """Seconds of a request."""
        rows = max(self.demand.prefill_batch or self.demand.batch)
        return prefill / rows + self.generated * step / max(self.demand.batch)

    def _needs(self, held: int) -> tuple[int, str]:
        """Bytes of a core with a program's code, and why they do not fit; unknown of the CPU."""
        if self.target is None:
            return held, ""
        needs, room = held + self.target.code_bytes, self.target.hbm_bytes
        return needs, f"needs {needs / 1e9:.1f} GB of {room / 1e9:.1f} GB a core" * (needs > room)


def _is_mesh(changes: Changes) -> bool:
    return bool(changes.keys() - {"rules", "weight_gather_length"})


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(map(str, cast(tuple[object, ...], value)))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class ChosenMesh:
    """A configuration whose mesh was chosen.

    Attributes:
        config: to compile with; its ``parallelism`` is ``manual``.
        remark: the choice, for the user; empty where nothing was chosen.
    """

    config: CompileConfig
    remark: str = ""


def chosen_mesh(
    model: Mapping[str, object],
    demand: CompileConfig,
    device: Accelerator | None = None,
) -> ChosenMesh:
    """The configuration with a mesh, if it leaves that to graphgen; else the same.

    Args:
        model: a ``config.json``.
        demand: the configuration.
        device: the accelerator; by default the target's, with its usual logical cores.

    Raises:
        GraphgenError: GG0304 where no mesh of the ranks serves, with the reason of the plain one.
    """
    if demand.parallelism != AUTO:
        return ChosenMesh(demand)
    if demand.tp == 1:
        return ChosenMesh(replace(demand, parallelism=MANUAL))
    if device is None and find_target(demand.target).is_accelerator:
        device = accelerator(demand.target)
    made = search_meshes(model, device, demand)
    for option in by_seconds(made):
        config = made.demand.updated(option.changes)
        if option.changes == PLAIN or compiles(model, config):
            return ChosenMesh(config, _remark(made, option))
    raise GraphgenError(
        "GG0304",
        f"no mesh of {demand.tp} ranks serves the model: {made.options[0].refused}",
        help="give another number of ranks",
    )


def by_seconds(made: MeshSearch) -> list[MeshOption]:
    """Options that can serve, the cheapest first; the chosen one before its equals."""
    able = [item for item in made.options if not item.refused]
    return sorted(able, key=lambda item: (item is not made.chosen, item.seconds))


def compiles(model: Mapping[str, object], config: CompileConfig) -> bool:
    """True if the programs outside of the search compile: chunked prefill and verification."""
    more = [VERIFY] * bool(config.speculation_length) + [VERIFY_TREE] * bool(config.tree_nodes)
    if not (config.chunk or more or config.steps_per_launch > 1):
        return True
    short = few_layers(model)
    module = build(
        model if short is None else short.few, dtype(config.dtype), phases=(*PHASES, *more)
    )
    try:
        run_pipeline(module, default(config))
    except GraphgenError:
        return False
    return True


def _remark(made: MeshSearch, option: MeshOption) -> str:
    plain = made.options[0]
    shown = "the plain mesh" if option.changes == PLAIN else option.text
    if plain.refused or option.changes == PLAIN:
        return f"parallelism auto: {shown}, of {len(made.options)} meshes and layouts"
    less = 100 * (1 - option.seconds / plain.seconds)
    return f"parallelism auto: {shown}, {less:.1f} % less time a request than the plain mesh"
