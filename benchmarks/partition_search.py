"""Is partitioning without a switch as cheap as the best of all: every setting of 20 shapes.

A case is a model at full width with two layers, a number of ranks, rows, tokens of a prompt and
slots of a cache. Every setting that the switches of partitioning allow is compiled: sequence
parallelism, gathered weights, flash decoding with all its groups, context parallelism in each form,
and attention for rows of a group's own. The cost is the search's own, counted on the program of a
rank: bytes that it sends, 8 MB for each collective, and a quarter of the bytes and operations of
its ops.

Settings of one mesh are what ``partition`` chooses from: none may be cheaper than no switch in
either phase, which is checked. The others change the mesh, or hold weights twice: the table says
what each would gain, and what ``--parallelism auto`` chooses may not take more seconds of a request
than any setting that fits, which is checked too. (Times within 0.1 % are the same to it.)
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from graphgen.atomic_write import write_whole
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import CP_FORMS
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Role, dtype
from graphgen.lowering.cost.roofline import roofline
from graphgen.lowering.plan.mesh_search import SAME, generated_tokens, search_meshes
from graphgen.lowering.plan.short_bounds import sent_cost
from graphgen.models import build, known_shape
from graphgen.models.first_layers import first_layers
from graphgen.models.registry import family_of
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import accelerator

PHASES = ("prefill", "decode")
NONE = "no switch"


@dataclass(frozen=True, slots=True)
class Shape:
    """A model and the sizes of its programs.

    Attributes:
        model: a known shape.
        tp: ranks.
        prompt, slots: tokens of a prefill, and slots that a decode step attends to.
        rows: of both.
    """

    model: str
    tp: int
    prompt: int
    slots: int
    rows: int = 1

    @property
    def text(self) -> str:
        """All of it on one line."""
        return f"{self.model} tp {self.tp}, {self.rows} x {self.prompt} / {self.slots}"


SHAPES = (
    Shape("llama-3.1-8b", 4, 2048, 2048),
    Shape("llama-3.1-8b", 8, 512, 8192, 4),
    Shape("llama-3.1-8b", 8, 131072, 131072),
    Shape("llama-3.1-70b", 8, 16384, 32768),
    Shape("llama-3.2-1b", 2, 128, 1024),
    Shape("llama-3.2-1b", 8, 32768, 32768, 2),
    Shape("smollm2-135m", 3, 2048, 8192),
    Shape("smollm2-135m", 8, 8192, 8192),
    Shape("mistral-7b", 8, 4096, 32768),
    Shape("qwen2-7b", 8, 8192, 32768, 2),
    Shape("qwen3-8b", 4, 1024, 2048, 2),
    Shape("mixtral-8x7b", 8, 4096, 8192),
    Shape("gemma-2-9b", 8, 2048, 8192),
    Shape("gemma-3-1b", 4, 8192, 32768),
    Shape("gpt2", 4, 1024, 1024),
    Shape("bloom-7b1", 8, 2048, 2048, 2),
    Shape("falcon-40b", 8, 2048, 2048),
    Shape("olmo-2-7b", 4, 4096, 4096),
    Shape("phi-4", 5, 8192, 16384),
    Shape("glm-4-9b", 8, 8192, 131072, 2),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to give the switches.

    Attributes:
        name: as the table has it.
        changes: fields of ``CompileConfig``.
        same_mesh: whether the search without switches may choose the same.
    """

    name: str
    changes: Mapping[str, object]
    same_mesh: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What a setting costs.

    Attributes:
        shape, setting: which.
        same_mesh: see :class:`Setting`.
        prefill, decode: bytes that count, of a rank.
        weights: bytes of a rank's weights in both programs.
        refused: why it cannot be compiled; empty if it can.
        request: seconds of a request, as the search of a mesh weighs its programs.
    """

    shape: str
    setting: str
    same_mesh: bool
    prefill: int = 0
    decode: int = 0
    weights: int = 0
    refused: str = ""
    request: float = 0.0

    def of(self, phase: str) -> int:
        """The cost of one phase."""
        return self.prefill if phase == "prefill" else self.decode


def settings(shape: Shape) -> Iterator[Setting]:
    """Every setting of a shape; the first has no switch."""
    yield Setting(NONE, {}, True)
    tokens = ("prefill:sequence:tp",)
    # From one token on, in every program of a prompt, and in none.
    for name, least in (("gathered weights", 1), ("no gathered weights", 0)):
        changes = {"weight_gather_length": least}
        yield Setting(name, changes, True)
        yield Setting(f"sequence, {name}", {"rules": tokens, **changes}, True)
    yield Setting("sequence parallel", {"rules": tokens}, True)
    divisors = [n for n in range(2, shape.tp + 1) if shape.tp % n == 0]
    for ranks in divisors:
        changes = {"flash_decoding": True, "flash_decoding_ranks": ranks}
        yield Setting(f"flash decoding over {ranks}", changes)
    for ranks in divisors:
        for form in CP_FORMS[1:]:
            for mlp in (1, ranks):
                changes = {"cp_degree": ranks, "cp_form": form, "mlp_cp_degree": mlp}
                yield Setting(f"cp {ranks} {form}, mlp {mlp}", changes)
    for groups in [n for n in divisors if shape.rows % n == 0]:
        yield Setting(f"attention dp {groups}", {"attention_dp_degree": groups})
        for ranks in [n for n in divisors if n % groups == 0]:
            changes = {"attention_dp_degree": groups, "cp_degree": ranks}
            yield Setting(f"attention dp {groups}, cp {ranks}", changes)


def measured(shape: Shape, setting: Setting) -> Cost:
    """The cost of one setting."""
    config = plain_config(shape).updated(setting.changes)
    module = build(known_shape(shape.model), dtype(config.dtype), layers=2)
    passes = default(config)
    parted = [item.name for item in passes].index("merge-collectives") + 1
    try:
        run_pipeline(module, passes[:parted])
        costs = {f.phase: sent_cost(module, f, list(f.block)) for f in module.programs()}
        run_pipeline(module, passes[parted:])
    except GraphgenError as error:
        refused = f"{error.code}: {error.what}"
        return Cost(shape.text, setting.name, setting.same_mesh, refused=refused)
    weights = sum(row.physical.nbytes for row in module.interface.values() if row.role in _WEIGHTS)
    prefill, decode = (costs[phase] for phase in PHASES)
    made = Cost(shape.text, setting.name, setting.same_mesh, prefill, decode, weights)
    return replace(made, request=request_seconds(module, config))


def plain_config(shape: Shape) -> CompileConfig:
    """A shape without a switch."""
    return CompileConfig(
        target="trn2",
        dtype="bf16",
        tp=shape.tp,
        batch=(shape.rows,),
        context=(shape.prompt,),
        tokens=(shape.slots,),
    )


def request_seconds(module: Module, config: CompileConfig) -> float:
    """A prefill and the steps of an answer, shared by the rows."""
    device = accelerator(config.target)
    times = {f.phase: roofline(module, f, device).seconds for f in module.programs()}
    steps = generated_tokens(config) * times["decode"]
    return (times["prefill"] + steps) / max(config.batch)


def dearer_search(shape: Shape, costs: Sequence[Cost]) -> list[Cost]:
    """Settings with which a request takes less time than with what the search chooses."""
    config = known_shape(shape.model)
    short = first_layers(family_of(config), config, 2)
    started = time.process_time()
    made = search_meshes(short, accelerator("trn2"), plain_config(shape))
    took, chosen = time.process_time() - started, made.chosen
    least = min(cost.request for cost in costs if not cost.refused)
    over = math.inf if chosen is None else chosen.seconds / least - 1
    text = "nothing" if chosen is None else chosen.text
    compiled = sum(option.prefill_s > 0 for option in made.options)
    print(
        f"{shape.text:38} auto: {text}, {100 * over:+.3f} % of the best of {len(costs)} settings; "
        f"{compiled} of {len(made.options)} compiled in {took:.0f} s of a core",
        flush=True,
    )
    return [c for c in costs if not c.refused and c.request * (1 + SAME) < least * (1 + over)]


_WEIGHTS = (Role.WEIGHT, Role.PARAM)


def dearer(costs: Sequence[Cost]) -> list[tuple[str, Cost]]:
    """Phases in which a setting of the same mesh is cheaper than no switch, of one shape."""
    (plain,) = (cost for cost in costs if cost.setting == NONE)
    return [
        (phase, cost)
        for phase in PHASES
        for cost in costs
        if cost.same_mesh and not cost.refused and cost.of(phase) < plain.of(phase)
    ]


def line(costs: Sequence[Cost], phase: str) -> str:
    """One shape in one phase: no switch, the best of its mesh, and the best that change it."""
    (plain,) = (cost for cost in costs if cost.setting == NONE)
    able = [cost for cost in costs if not cost.refused]
    others = [cost for cost in able if not cost.same_mesh]
    light = [cost for cost in others if cost.weights <= plain.weights]

    def best(some: Sequence[Cost]) -> str:
        if not some:
            return f"{'-':>7} {'':28}"
        found = min(some, key=lambda cost: cost.of(phase))
        return f"{found.of(phase) / plain.of(phase):7.3f} {found.setting:28}"

    same = [cost for cost in able if cost.same_mesh and cost is not plain]
    columns = (best(same), best(light), best(others))
    return " ".join([f"{plain.shape:38} {phase:8} {plain.of(phase) / 1e6:9.1f}", *columns])


def main() -> None:
    """Print a line a shape and phase; end with 1 where no switch is dearer than one of its mesh."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", type=int, nargs="*", help="numbers of shapes; by default all")
    parser.add_argument("--same-mesh", action="store_true", help="only what the search may choose")
    parser.add_argument("--json", type=Path, help="write rows of JSON here")
    given = parser.parse_args()
    every: list[Cost] = []
    bad: list[str] = []
    names = ("same mesh", "other mesh, no more weights", "other mesh")
    print(f"{'shape':38} {'phase':8} {'MB':>9} " + " ".join(f"{name:>36}" for name in names))
    for shape in [SHAPES[n] for n in given.only] if given.only else SHAPES:
        asked = [item for item in settings(shape) if item.same_mesh or not given.same_mesh]
        costs = [measured(shape, setting) for setting in asked]
        for phase in PHASES:
            print(line(costs, phase), flush=True)
        bad += [f"{phase}, {cost.setting}: {cost.shape}" for phase, cost in dearer(costs)]
        if not given.same_mesh:
            bad += [f"search, {c.setting}: {c.shape}" for c in dearer_search(shape, costs)]
        every += costs
    print(f"{len(every)} settings: no switch, or the search, is dearer in {len(bad)}", *bad)
    if given.json:
        write_whole(given.json, json.dumps([asdict(cost) for cost in every], indent=1).encode())
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
