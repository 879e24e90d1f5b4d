"""Compile a model: from a configuration to a module that is ready for lowering."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, cast

from graphgen.config.bucket_ladder import powers
from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import KERNELS_OFF, KERNELS_ON
from graphgen.config.rank_config import AUTO, MANUAL
from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY, VERIFY_TREE, Module, Role, dtype
from graphgen.lowering.cpu.pjrt import has_matrix_unit
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library

if TYPE_CHECKING:
    from graphgen.models.medusa import MedusaShape
    from graphgen.passes.core import Pass, PassReport
    from graphgen.passes.core.journal import Journal
    from graphgen.targets import Accelerator

# ``max_len``, and what follows from the machine: not part of the settings of an artifact.
_DERIVED = ("slots", "min_rows")
# In the settings of every artifact, in this order; others are there if not at their defaults.
_ALWAYS = ("dtype", "batch", "max_len", "tp", "quantization", "sampling", "roll_window_cache")


def settings_of(config: CompileConfig) -> dict[str, object]:
    """The settings that an artifact records, by name: fields, and ``batch`` and ``max_len``.

    ``batch`` is a number where there is one size. Buckets are recorded if they are not those of
    :meth:`CompileConfig.serving`.
    """
    batch = config.batch[0] if len(config.batch) == 1 else config.batch
    values: dict[str, object] = {**config.values(), "batch": batch, "max_len": config.max_len}
    buckets = powers(config.max_len)
    usual = {"context": buckets, "tokens": buckets}
    changed = [
        item.name
        for item in fields(config)
        if item.compare
        and item.name not in (*_DERIVED, *_ALWAYS)
        and values[item.name] != usual.get(item.name, item.default)
    ]
    return {name: values[name] for name in (*_ALWAYS, *changed)}


def config_of(settings: Mapping[str, object]) -> CompileConfig:
    """The configuration of :func:`settings_of`, also as JSON holds it.

    Raises:
        TypeError: for a name that is not a setting.
        KeyError: for missing sizes.
    """
    values = {name: _frozen(value) for name, value in settings.items()}
    batch, max_len = values.pop("batch"), cast(int, values.pop("max_len"))
    implied = CompileConfig().serving(batch=1, max_len=max_len)
    sizes = cast("tuple[int, ...]", batch if isinstance(batch, tuple) else (batch,))
    return implied.updated({**values, "batch": sizes})


def _frozen(value: object) -> object:
    """A list of JSON as the tuple it was."""
    return tuple(cast("list[object]", value)) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class PassStep:
    """Statistics of one pass, recorded in artifacts too.

    Attributes:
        name: the pass with its options.
        ops_before, ops_after: ops in all functions.
        applications: rewrites made.
        seconds: wall time, verification excluded.
        remarks: messages for the user.
    """

    name: str
    ops_before: int
    ops_after: int
    applications: int
    seconds: float
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A module at level ``target`` and its compilation record.

    Attributes:
        config: the model's configuration, under Hugging Face's names.
        settings: the compile configuration.
        module: one program per phase and bucket.
        reports: one per pass.
    """

    config: Mapping[str, object]
    settings: CompileConfig
    module: Module
    reports: list[PassStep] = field(default_factory=list[PassStep])

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shape of every checkpoint tensor, by name."""
        return {row.name: row.logical.dims for row in self.module.entries(Role.WEIGHT)}

    @property
    def vocab_size(self) -> int:
        """Number of logits."""
        from graphgen.models import read_model_config

        return read_model_config(self.config).vocab_size


def build_model(
    model: Mapping[str, object],
    settings: CompileConfig,
    *,
    every_token: bool = False,
    journal: Journal | None = None,
    report: Callable[[float], None] | None = None,
) -> BuiltModel:
    """Build, specialize for every bucket, and legalize for the CPU.

    Args:
        model: a ``config.json``.
        settings: the configuration; ``min_rows`` follows from the machine.
        every_token: instead of the programs of generation, build one prefill program of the
            largest bucket that returns the logits of every token.
        journal: records every rewrite.
        report: called with the fraction of the passes that have run.

    Raises:
        GraphgenError: GG0501, GG0502, GG0503 for the configuration, GG0304 if it cannot be split
            over ``tp`` ranks, GG0705 for kernels that are not built.
    """
    # Only here: an artifact runs without any model, any pass and any reader of checkpoints.
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.pipelines import default

    settings, chosen = with_mesh(model, settings)
    config = replace(on_this_machine(settings), parallelism=MANUAL)
    if every_token:
        config = replace(config, context=(config.max_len,), tokens=(config.max_len,))
    module, steps = logical_module(model, config, every_token=every_token)
    passes, ran = default(config), itertools.count(1)

    def after(_: Pass, __: Module) -> None:
        if report is not None:
            report(next(ran) / len(passes))

    steps += [*chosen, *steps_of(run_pipeline(module, passes, journal=journal, after=after))]
    return BuiltModel(json.loads(json.dumps(dict(model))), settings, module, steps)


def with_mesh(
    model: Mapping[str, object], settings: CompileConfig, device: Accelerator | None = None
) -> tuple[CompileConfig, list[PassStep]]:
    """The settings with the mesh that ``parallelism=auto`` stands for, and the choice as a step.

    They are still ``auto``, so that an artifact is found by the options that it was made with.
    """
    if settings.parallelism != AUTO:
        return settings, []
    # Only here: the search compiles the model many times.
    from graphgen.lowering.plan.mesh_search import chosen_mesh

    made = chosen_mesh(model, settings, device)
    step = PassStep("choose-mesh", 0, 0, 0, 0.0, (made.remark,) if made.remark else ())
    return replace(made.config, parallelism=AUTO), [step]


def on_this_machine(settings: CompileConfig) -> CompileConfig:
    """The settings with what follows from this CPU (GG0705 for kernels that are not built)."""
    # Matrix units want eight rows; without them two are as fast as one and eight cost a little.
    return replace(settings, min_rows=8 if has_matrix_unit() else 2, kernels=_kernels(settings))


def logical_module(
    model: Mapping[str, object], config: CompileConfig, *, every_token: bool = False
) -> tuple[Module, list[PassStep]]:
    """The module that the pipeline of a configuration begins with, and how weights are read.

    Raises:
        GraphgenError: as :func:`build_model`, and GG0705 for names of weights that it has not.
    """
    from graphgen.models import PHASES, ExpertOutputs, build
    from graphgen.passes.quantization.stored_readings import read_quantized

    phases = list(PHASES)
    phases += [VERIFY] * bool(config.speculation_length) + [VERIFY_TREE] * bool(config.tree_nodes)
    module = build(
        model,
        dtype(config.dtype),
        phases=("prefill",) if every_token else tuple(phases),
        every_token=every_token,
        hidden_states=config.hidden_states,
        inputs_embeds=config.inputs_embeds,
        feature_layers=config.feature_layers,
        medusa=_medusa(model, config),
        experts=ExpertOutputs(
            logits=config.return_router_logits,
            index=config.return_expert_index,
            # Counted where experts may have no place for a token; not in loops over steps.
            counts=bool(config.capacity_factor) and config.steps_per_launch == 1,
        ),
    )
    _check_kept(module, config)
    steps: list[PassStep] = []
    if config.weight_dtypes:
        # Only here: most models have one type.
        from graphgen.passes.core import run_pipeline
        from graphgen.passes.precision.declared_weights import DeclaredWeights

        steps += steps_of(run_pipeline(module, [DeclaredWeights(config.weight_dtypes)]))
    remark = read_quantized(module, model, config.target, config.activation_quantization_type)
    steps += [PassStep("read-quantized", 0, 0, 0, 0.0, (remark,))] if remark else []
    return module, steps


def _check_kept(module: Module, config: CompileConfig) -> None:
    """Refuse names of weights to keep that the model has not, before any pass runs (GG0705)."""
    if not config.quantization:
        return
    from graphgen.passes.core import parse_pipeline
    from graphgen.passes.quantization.quantize_weights import QuantizeWeights

    for step in parse_pipeline(config.quantization):
        if not isinstance(step, QuantizeWeights):
            continue
        for name, near in step.unknown(module).items():
            found = f"did you mean {' or '.join(near)}? " if near else ""
            raise GraphgenError(
                "GG0705",
                f"modules_to_not_convert: '{name}' names no weight of the model",
                help=f"{found}give parts of dotted names, such as lm_head or layers.0.mlp",
            )


def steps_of(reports: Sequence[PassReport]) -> list[PassStep]:
    """The statistics of passes that an artifact records."""
    return [
        PassStep(r.name, r.ops_before, r.ops_after, r.applications, r.seconds, r.remarks)
        for r in reports
    ]


def _medusa(model: Mapping[str, object], config: CompileConfig) -> MedusaShape | None:
    """The heads of Medusa that programs have (GG0705 for heads without programs)."""
    from graphgen.models.medusa import MedusaShape

    if not config.num_medusa_heads:
        return None
    if not config.tree_nodes:
        raise GraphgenError(
            "GG0705",
            "num_medusa_heads has no effect without programs that verify trees",
            help="set tree_nodes, the nodes of a tree with the last token of a row",
        )
    blocks, own = model.get("medusa_num_layers", 1), model.get("medusa_own_heads", True)
    return MedusaShape(config.num_medusa_heads, cast(int, blocks), bool(own))


def build_eagle(model: Mapping[str, object], settings: CompileConfig) -> BuiltModel:
    """Build a draft of EAGLE, as :func:`build_model` builds models.

    Args:
        model: with the keys of :class:`~graphgen.models.eagle.EagleConfig`.
        settings: the configuration, with a ``speculation_length``.

    Raises:
        GraphgenError: GG0502 and GG0503 for the configuration.
    """
    from graphgen.models import PHASES
    from graphgen.models.eagle import EAGLE
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.pipelines import default

    config = on_this_machine(settings)
    phases = (*PHASES, VERIFY, *([VERIFY_TREE] if settings.tree_nodes else []))
    module = EAGLE.module(model, dtype(settings.dtype), phases)
    steps = steps_of(run_pipeline(module, default(config)))
    return BuiltModel(json.loads(json.dumps(dict(model))), settings, module, steps)


def _kernels(settings: CompileConfig) -> str:
    """``on`` or ``off``: by default, on where the kernels are there (GG0705)."""
    if settings.kernels == KERNELS_OFF or settings.target != "cpu":
        return settings.kernels
    missing = kernel_library().missing
    if missing and settings.kernels == KERNELS_ON:
        raise GraphgenError(
            "GG0705",
            f"--kernels on: there are no kernels here, {missing}",
            help="leave --kernels out: XLA's products are used where there are no kernels",
        )
    return KERNELS_OFF if missing else KERNELS_ON
