"""Attributes of parallelism, of neuronx-cc, of loading and of debugging."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from graphgen.config.fields import optional, words
from graphgen.runtime.aws_config.attribute import (
    Attribute,
    CompilerArgument,
    CompileRequest,
    CompileSetting,
    Derived,
    NoEffect,
    Refused,
    RunTimeSetting,
    Values,
    owned_by,
    same_as,
    sets,
)
from graphgen.runtime.aws_config.value_kinds import BOOL, COUNT, INDEX, MAPPING, TEXTS

# The prompt length from which the library sets the options for long contexts.
LONG_CONTEXT = 32768
# No target joins more physical cores to a logical one.
_LNC = words(1, 2)
_NO_COLLECTIVES = NoEffect("it changes only how Neuron devices exchange data")
_NO_NEURONX_CC = NoEffect("neuronx-cc is not used for the CPU")
_PROCESSES = Refused(
    "an application with a part of the ranks",
    "leave it out; 'graphgen launch -- serve' gives each process its ranks",
)


def _number(values: Values, name: str) -> int:
    value = values[name]
    return value if isinstance(value, int) else 1


def _world(values: Values) -> object:
    """Ranks of all degrees together."""
    degrees = (_number(values, name) for name in ("tp_degree", "pp_degree", "ep_degree"))
    product = 1
    for degree in degrees:
        product *= degree
    return product


# The device that AWS's tools compile for where none is named and none is there.
UNSTATED_TARGET = "trn1"


def _logical_cores(values: Values) -> object:
    """The LNC of the target, or of the one that AWS's variable names; 1 where neither does."""
    platform = str(values["target"] or os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", ""))
    return 2 if platform.startswith(("trn2", "trn3")) else 1


def _unbuilt(feature: str, remedy: str = "leave it out") -> Refused:
    return Refused(feature, remedy)


def _split_tokens(request: CompileRequest) -> tuple[str, ...]:
    """Tokens of the residual stream over all ranks, those that share a prompt first."""
    if not request["sequence_parallel_enabled"]:
        return ()
    # Only here: a compiled model is opened without any pass.
    from graphgen.passes.sharding.rank_axes import RankAxes

    degrees = ("tp_degree", "cp_degree", "attention_dp_degree")
    ranks = RankAxes(*[cast(int, request[name]) for name in degrees])
    return (f"prefill:sequence:{ranks.every_token}",)


def _gathered(request: CompileRequest) -> Mapping[str, object]:
    """The length from which weights may be gathered: AWS's with its sequence parallelism."""
    longest = request["weight_gather_seq_len_threshold"]
    return {"weight_gather_length": longest} if request["sequence_parallel_enabled"] else {}


PARALLELISM = owned_by(
    "NeuronConfig",
    Attribute(
        "tp_degree",
        COUNT,
        1,
        "ranks that share each layer",
        sets("tp"),
        source="C20",
        decision="for trn1 one document lists the degrees 1, 2, 8 and 32, two list 16 too; 16 is "
        "accepted, and the CPU runs any degree",
    ),
    Attribute("cp_degree", COUNT, 1, "ranks that share a prompt", sets("cp_degree")),
    Attribute(
        "mlp_cp_degree",
        COUNT,
        1,
        "ranks that share a prompt in the MLP",
        sets("mlp_cp_degree"),
    ),
    Attribute(
        "attention_dp_degree",
        COUNT,
        1,
        "groups of ranks with attention for different rows",
        sets("attention_dp_degree"),
    ),
    Attribute(
        "pp_degree",
        COUNT,
        1,
        "stages of layers, each with ranks of its own",
        sets("pp_degree"),
    ),
    Attribute(
        "ep_degree",
        COUNT,
        1,
        "ranks that hold different experts",
        Refused(
            "ranks beside those of tp_degree", "set it to 1, and MoENeuronConfig.moe_ep_degree"
        ),
    ),
    Attribute(
        "world_size",
        optional(COUNT),
        Derived("tp_degree x pp_degree x ep_degree", _world),
        "ranks in all",
        Refused("ranks beside those of the degrees", "leave it out"),
        served="must be the ranks of all stages",
    ),
    Attribute(
        "start_rank_id",
        INDEX,
        0,
        "first rank of this process",
        _PROCESSES,
        served="in a launch, must be the first rank of the machine",
    ),
    Attribute(
        "local_ranks_size",
        optional(COUNT),
        same_as("world_size"),
        "ranks of this process",
        _PROCESSES,
        served="in a launch, must be the ranks of the machine",
    ),
    Attribute(
        "sequence_parallel_enabled",
        BOOL,
        False,
        "splits the residual stream along the sequence, in context programs",
        sets("rules", _split_tokens),
        source="C23",
    ),
    Attribute(
        "weight_gather_seq_len_threshold",
        COUNT,
        32768,
        "prompt length from which sequence parallelism gathers weights",
        CompileSetting(("weight_gather_length",), _gathered),
    ),
    Attribute(
        "vocab_parallel",
        BOOL,
        False,
        "splits the embedding along the vocabulary",
        NoEffect("the sharding pass chooses how the embedding is split"),
        Refused("a choice of how the embedding is split", "leave it out"),
    ),
    Attribute(
        "lm_head_pad",
        BOOL,
        Derived("logical_nc_config > 1", lambda values: _number(values, "logical_nc_config") > 1),
        "pads the vocabulary for logical cores of several cores",
        NoEffect("the sharding pass pads the vocabulary as far as it must"),
    ),
    Attribute(
        "lm_head_pad_alignment_size",
        COUNT,
        1,
        "multiple to which the vocabulary is padded",
        NoEffect("the sharding pass pads the vocabulary as far as it must"),
    ),
)

COMPILER = owned_by(
    "NeuronConfig",
    Attribute(
        "logical_nc_config",
        _LNC,
        Derived(
            "2 if target or NEURON_PLATFORM_TARGET_OVERRIDE is trn2 or trn3, else 1",
            _logical_cores,
        ),
        "physical cores of a logical one (LNC); a Neuron target's own where it is not given",
        NoEffect("the CPU has no logical cores"),
        CompilerArgument("--lnc"),
        source="C14",
        environment="NEURON_LOGICAL_NC_CONFIG",
        decision="NEURON_LOGICAL_NC_CONFIG, then the attribute, then the target, as the newer "
        "reference orders them; the variable replaces the attribute with a note",
    ),
    Attribute(
        "logical_neuron_cores",
        _LNC,
        same_as("logical_nc_config"),
        "the old name of logical_nc_config",
        NoEffect("the CPU has no logical cores"),
        CompilerArgument("--lnc"),
        source="C15",
        replaces="logical_nc_config",
        decision="the references differ in the name; logical_nc_config is the newer one",
    ),
    Attribute(
        "target",
        optional(words("inf2", "trn1", "trn2", "trn3")),
        None,
        "the device to compile for, where none is named",
        RunTimeSetting("the HLO files that compile writes"),
        sets("target", lambda request: request.target),
    ),
    Attribute(
        "cc_pipeline_tiling_factor",
        COUNT,
        2,
        "pieces of a collective that overlap with computation",
        _NO_COLLECTIVES,
        CompilerArgument("--tensorizer-options=--cc-pipeline-tiling-factor"),
        source="C67",
    ),
    Attribute(
        "scratchpad_page_size",
        optional(COUNT),
        Derived(
            "1024 in long-context mode, else None",
            lambda values: 1024 if values["enable_long_context_mode"] else None,
        ),
        "page size of the device's scratchpad",
        NoEffect("the CPU has no scratchpad"),
        CompilerArgument("--hbm-scratchpad-page-size"),
        source="C19",
    ),
    Attribute(
        "enable_long_context_mode",
        BOOL,
        Derived(
            f"max_context_length >= {LONG_CONTEXT}",
            lambda values: _number(values, "max_context_length") >= LONG_CONTEXT,
        ),
        "options of the compiler for long prompts",
        _NO_NEURONX_CC,
        CompilerArgument("--internal-disable-fma-on-ios --disable-mixed-precision-accumulation"),
    ),
    Attribute(
        "enable_spill_reload_dge",
        BOOL,
        False,
        "descriptors of spills that the device generates itself",
        _NO_NEURONX_CC,
        CompilerArgument("--internal-enable-dge-levels spill_reload"),
    ),
    Attribute(
        "enable_output_completion_notifications",
        BOOL,
        False,
        "a signal for each finished output",
        _NO_NEURONX_CC,
        CompilerArgument("--internal-backend-options=--enable-output-completion-notifications"),
    ),
    Attribute(
        "enable_cte_modular_flow",
        BOOL,
        False,
        "compiles context programs in parts",
        _NO_NEURONX_CC,
        _unbuilt("modular compilation"),
    ),
    Attribute(
        "layer_boundary_markers",
        BOOL,
        False,
        "marks the layers for the compiler",
        _NO_NEURONX_CC,
        RunTimeSetting("marks of layers in the HLO, and --recursive-layer-det=false"),
    ),
    Attribute(
        "seq_len_threshold_for_cc_tiling",
        COUNT,
        16384,
        "length from which collectives are cut into pieces",
        _NO_COLLECTIVES,
        _unbuilt("collectives in pieces"),
    ),
    Attribute(
        "tile_cc",
        BOOL,
        Derived("the MLP kernel with cc_pipeline_tiling_factor > 1", lambda values: _tiles(values)),
        "collectives in pieces around kernels",
        _NO_COLLECTIVES,
        _unbuilt("collectives in pieces"),
    ),
    Attribute(
        "dma_order_config",
        optional(MAPPING),
        None,
        "order of the device's transfers",
        _NO_NEURONX_CC,
        _unbuilt("an order of transfers"),
    ),
    Attribute(
        "disable_numeric_cc_token",
        BOOL,
        False,
        "collectives without numeric tokens",
        _NO_NEURONX_CC,
        _unbuilt("a choice of tokens of collectives"),
    ),
    Attribute(
        "switch_cc",
        BOOL,
        False,
        "collectives over the switch",
        _NO_COLLECTIVES,
        _unbuilt("collectives over the switch"),
    ),
    Attribute(
        "ep_dispatch_cc_option",
        optional(words("AR_AG", "RS_AG", "AG_AR")),
        "AR_AG",
        "collectives that bring tokens to experts and back",
        _NO_COLLECTIVES,
        _unbuilt("a choice of the experts' collectives"),
    ),
    Attribute(
        "weights_to_skip_layout_optimization",
        TEXTS,
        (),
        "weights that keep the layout of the checkpoint",
        NoEffect("weights are laid out by programs of the artifact, not by neuronx-cc"),
        RunTimeSetting("weights that graphgen compile --optimize-layouts leaves alone"),
        source="C17",
    ),
)

LOADING = owned_by(
    "NeuronConfig",
    Attribute(
        "save_sharded_checkpoint",
        BOOL,
        True,
        "whether compile writes the weights of each rank beside the programs",
        RunTimeSetting("the files that compile writes"),
        source="C13",
        decision="the references say True, the library does False; True, because a compiled folder "
        "then loads without the checkpoint",
    ),
    Attribute(
        "skip_sharding",
        BOOL,
        False,
        "whether compile keeps the sharded weights that the folder has",
        RunTimeSetting("the files that compile writes"),
        source="C16",
    ),
    Attribute(
        "skip_warmup",
        BOOL,
        False,
        "whether load leaves out the first launch of each program",
        RunTimeSetting("the launches of load"),
        source="C18",
    ),
    Attribute(
        "async_mode",
        BOOL,
        False,
        "starts a step before the tokens of the one before are read; needs on-device sampling",
        RunTimeSetting("decode steps of forward, generate, inference_demo and benchmark_sampling"),
        source="C12",
        served="steps of the engine",
    ),
    Attribute(
        "on_cpu",
        BOOL,
        False,
        "runs the model on the CPU",
        NoEffect("programs for the CPU run there anyway"),
        Refused("a Neuron target with on_cpu", "leave on_cpu out, or compile for the target cpu"),
    ),
    Attribute(
        "tensor_capture_config",
        optional(MAPPING),
        None,
        "tensors inside a program that it gives too",
        Refused("capture of tensors inside a program", "graphgen run shows a program's values"),
    ),
    Attribute(
        "tensor_replacement_config",
        optional(MAPPING),
        None,
        "tensors inside a program that are replaced",
        Refused("replacement of tensors inside a program", "compare the layers instead"),
    ),
)


def _tiles(values: Values) -> bool:
    pieces = _number(values, "cc_pipeline_tiling_factor") > 1
    return (
        pieces and (values["mlp_kernel_enabled"] or values["quantized_mlp_kernel_enabled"]) is True
    )
