"""The axes of a compilation and their values.

A feature adds values here. Combinations that the product refuses, or that mean nothing new, are in
``holes.py``; every other one can be a cell.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from graphgen.config.option_words import DTYPES, HEAD_STRATEGIES
from graphgen.ir import Dim, dtype
from graphgen.models import SHAPES, build, known_shape
from graphgen.models.registry import BUILT_IN, FAMILIES
from graphgen.targets import target_names

# A value of each axis, or of some.
Cell = Mapping[str, str]

# The first value of an axis is the plain one.
AXES: Mapping[str, tuple[str, ...]] = {
    "family": tuple(name for name in FAMILIES if name in BUILT_IN),
    "ranks": ("1", "2", "3", "4"),
    "heads": HEAD_STRATEGIES,
    "dtype": DTYPES,
    "weights": (
        "as they are",
        "int8 a channel",
        "int8 a tensor",
        "f8e4m3",
        "f8e5m2",
        "int4 in groups",
        *(
            "stored int8 a row",
            "stored 4 bits in groups",
            "stored f8e4m3 in blocks",
            "stored MXFP4",
        ),
    ),
    "phases": ("prefill and decode", "decode alone"),
    "interface": ("tokens", "embeddings", "hidden states", "every token", "features"),
    "buckets": ("8, 16", "7, 13", "8, 32"),
    "rows": ("3", "4", "1"),
    "caches": ("whole", "rolled", "paged"),
    "numbers of caches": (
        *("as they are", "f8e4m3 cast", "f8e5m2 cast", "f8e4m3 a tensor", "f8e4m3 a key"),
        *("int8 a channel", "int8 a token", "f8e5m2 a token", "f8e4m3fn cast"),
    ),
    "sampling": ("logits", "logits and best", "best", "drawn"),
    "experts": ("least cost", "all", "selective", "capacity", "blocks of 2"),
    "groups of experts": ("1", "2", "3", "4"),
    "slots of caches": ("on each rank", "divided"),
    "ranks of a prompt": (
        *("1", "2", "2, gathering", "4, exchanging"),
        *("2, in a ring", "2, in a balanced ring"),
    ),
    "groups of rows": ("1", "2"),
    "layers": ("in line", "outlined"),
    "target": ("cpu", *sorted(set(target_names()) - {"cpu"})),
    "kernels": ("none", "selected"),
    "launches": ("one step", "several steps"),
    "adapters": ("none", "two of rank 3"),
    # Last: they are in few holes, and what cannot be completed is found before them.
    "sums over ranks": DTYPES,
    "attention": ("model", *DTYPES),
    "softmax": DTYPES,
    "tiles of attention": ("least cost", "3x5", "off"),
    "numbers of logits": DTYPES,
    "activations": ("as they are", "dynamic", "static", "in blocks"),
}
# The axis of each option of a compilation; an option without one says why.
AXIS_OF_OPTION: Mapping[str, str] = {
    "target": "target",
    "tp": "ranks",
    "heads": "heads",
    "batch": "rows",
    "context": "buckets",
    "tokens": "buckets",
    "roll_window_cache": "caches",
    "page_cache": "caches",
    "kv_cache_quant": "numbers of caches",
    "kv_cache_dtype": "numbers of caches",
    "kv_cache_scale": "numbers of caches",
    "rpl_reduce_dtype": "sums over ranks",
    "attention_dtype": "attention",
    "softmax_dtype": "softmax",
    "attention_block": "tiles of attention",
    "cast_logits_dtype": "numbers of logits",
    "kv_cache_ranges": "numbers of caches",
    "activation_quantization_type": "activations",
    "activation_ranges": "activations",
    "flash_decoding": "slots of caches",
    "outline": "layers",
    "kernels": "kernels",
    "steps_per_launch": "launches",
    "dtype": "dtype",
    "hidden_states": "interface",
    "inputs_embeds": "interface",
    "feature_layers": "interface",
    "quantization": "weights",
    "sampling": "sampling",
    "expert_dispatch": "experts",
    "expert_block_size": "experts",
    "moe_ep_degree": "groups of experts",
    "cp_degree": "ranks of a prompt",
    "cp_form": "ranks of a prompt",
    "cp_balance": "ranks of a prompt",
    "attention_dp_degree": "groups of rows",
    "max_loras": "adapters",
    "max_lora_rank": "adapters",
}
OPTIONS_WITHOUT_AXIS: Mapping[str, str] = {
    "flash_decoding_ranks": "as flash_decoding; tests/passes/kv_cache varies it",
    "parallelism": "it chooses values of other axes; tests/lowering/plan varies it",
    "pp_degree": "the programs of a cell run whole; tests/passes/sharding varies it",
    "nodes": "the ranks of a cell are of one machine; "
    "tests/passes/spmd/test_hierarchical_collectives.py varies it",
    "prefill_batch": "the calls of a cell are all of one batch size",
    "rows": "a cache has the rows of the calls",
    "slots": "a row of a cache has the slots of the largest bucket",
    "chunk": "the calls of a cell are whole prompts; tests/passes/programs varies it",
    "rules": "they replace layouts that a model's axes give; tests/passes/sharding varies them",
    "dims": "these models have no symbols of their own; tests/test_first_time_user.py has some",
    "activation_quantization_weights": "fewer products of a kind that cells have; "
    "tests/passes/quantization varies it",
    "quantize_clamp_bound": "it clips what no cell has; tests/passes/quantization varies it",
    "speculation_length": "the calls of a cell have one token; tests/runtime/speculation varies it",
    "verify_lengths": "as speculation_length; tests/passes/programs varies it",
    "verify_batch": "as prefill_batch; tests/runtime/speculation varies it",
    "tree_nodes": "as speculation_length; tests/runtime/speculation varies it",
    "num_medusa_heads": "needs tree_nodes; tests/runtime/speculation varies it",
    "cache_blocks": "cells have blocks for all rows; tests/passes/kv_cache varies them",
    "native_kernels": "they need artifacts of the sizes of programs; tests/passes/kernels has some",
    "kernel_artifacts": "as native_kernels",
    "weight_dtypes": "they are of a file; tests/runtime/checkpoint/test_declared_types.py has some",
    "keep_quantized": "it is of a file; tests/runtime/checkpoint/test_gguf_blocks.py has its kinds",
    "return_router_logits": "tests/runtime/test_router_outputs.py varies it",
    "return_expert_index": "tests/runtime/test_router_outputs.py varies it",
    "moe_prefill_ep_degree": "it is of two phases; tests/passes/spmd/test_hybrid_experts.py "
    "varies it",
    "expert_exchange": "it is of tokens that are divided; "
    "tests/passes/sharding/test_expert_exchange.py varies it",
    "capacity_factor": "it changes the model, and cells mean what it meant; tests/passes/experts "
    "varies it",
    "latent_attention": "it is of latent attention alone; tests/passes/attention varies it",
    "weight_gather_length": "no cell is so long that weights are smaller than tokens; "
    "tests/passes/sharding/test_sequence_parallel.py is",
    "mlp_cp_degree": "it moves sums alone; tests/passes/sharding varies it",
    "lora_target_modules": "cells have all; tests/passes/lora varies it",
    "router_dtype": "it is of routers alone; tests/passes/precision varies it",
    "min_rows": "it pads products for speed alone; tests/passes/legalize varies it",
}

# Where a window is for the configuration to choose.
_CHOSEN: Mapping[str, Mapping[str, object]] = {
    family: {"use_sliding_window": True, "max_window_layers": 1} for family in ("qwen2", "qwen3")
}
_SHORTEST_BUCKETS = 13


@cache
def _shapes() -> Mapping[str, str]:
    """For each family the known shape with the fewest layers, which is the first."""
    found: dict[str, str] = {}
    for name in SHAPES:
        found.setdefault(str(known_shape(name)["model_type"]), name)
    return found


def config_of(family: str) -> dict[str, object]:
    """A ``config.json`` of the family, with a window where it can have one."""
    return {**known_shape(_shapes()[family]), **_CHOSEN.get(family, {})}


@dataclass(frozen=True, slots=True)
class Counts:
    """What of a family's mini twin decides which combinations there are.

    Attributes:
        kv_heads: key-value heads.
        head_dim: features of a head.
        windowed: whether a layer reads less than the shortest ladder of buckets.
        inputs_first: whether a row of a stored weight is an input, not an output.
        mixture: whether a layer has experts.
        latent: whether caches hold what keys are made of.
    """

    kv_heads: int
    head_dim: int
    windowed: bool
    inputs_first: bool
    mixture: bool
    latent: bool


@cache
def counts(family: str) -> Counts:
    """The counts of the family's mini twin."""
    module = build(config_of(family), dtype("f32"), mini=True)
    # Not those of a cache, which may hold what keys are made of.
    keys = [op.operands[1] for op in module.programs()[0].ops if op.name == "attention"]
    *_, kv_heads, head_dim = keys[0].shape
    masks = [op for f in module.programs() for op in f.ops if op.name == "attention_mask"]
    reach = [op.attrs.integer(name) for op in masks for name in ("window", "chunk")]
    windowed = any(0 < count < _SHORTEST_BUCKETS for count in reach)
    products = [op for f in module.programs() for op in f.ops if op.name == "dot_general"]
    inputs_first = any(
        op.operands[1].name in module.interface and 0 in op.attrs.integers("rhs_contracting_dims")
        for op in products
    )
    mixture = any(op.name == "experts" for f in module.programs() for op in f.ops)
    updates = [op for f in module.programs() for op in f.ops if op.name == "kv_update"]
    latent = {op.operands[0].shape[2] for op in updates} != {kv_heads}
    return Counts(_fixed(kv_heads), _fixed(head_dim), windowed, inputs_first, mixture, latent)


def _fixed(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


def label(cell: Cell) -> str:
    """What of a cell is not plain, on one line: ``opt, ranks 3, dtype bf16``."""
    rest = [f"{axis} {cell[axis]}" for axis in AXES if cell[axis] != AXES[axis][0]]
    return ", ".join([cell["family"], *[item for item in rest if not item.startswith("family ")]])
