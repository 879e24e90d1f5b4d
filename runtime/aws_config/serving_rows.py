"""Attributes of speculation, paged caches, chunked prefill, and adapters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from graphgen.config.fields import one_of, optional, words
from graphgen.runtime.aws_config.attribute import (
    REQUIRED,
    Attribute,
    CompileRequest,
    Derived,
    NoEffect,
    PartOf,
    Refused,
    RunTimeSetting,
    Values,
    owned_by,
    same_as,
    sets,
)
from graphgen.runtime.aws_config.size_rows import CHUNKS
from graphgen.runtime.aws_config.value_kinds import (
    ADAPTERS,
    BOOL,
    CLASS,
    COUNT,
    INDEX,
    MAPPING,
    MODEL_CONFIG,
    TEXT,
    TEXTS,
    nested,
    tuple_of,
)

_SEPARATE = "set speculation_length and give generate an assistant_model"
_TREE = Refused("speculation with a tree of tokens", _SEPARATE)
_MEDUSA = PartOf("is_medusa")


def _verify_batch(request: CompileRequest) -> tuple[int, ...]:
    """Batch size of verification programs, if it differs from the token programs'."""
    rows = cast(int, request["spec_batch_size"])
    own = request["speculation_length"] and rows != request["tkg_batch_size"]
    return (rows,) if own else ()


def _features(request: CompileRequest) -> tuple[int, ...]:
    """The hidden states that a draft of EAGLE takes; none without a model."""
    if not request["enable_eagle_speculation"] or not request.model:
        return ()
    # Only here: the table is read without any model.
    from graphgen.models import family_of
    from graphgen.models.eagle import target_layers
    from graphgen.models.first_layers import stated_layers

    _, layers = stated_layers(family_of(request.model), request.model)
    return target_layers(3 if request["is_eagle3"] else 1, cast(int, layers))


def _medusa(name: str) -> Callable[[CompileRequest], int]:
    """The number that an attribute gives; 0 without ``is_medusa``."""
    return lambda request: cast(int, request[name]) if request["is_medusa"] else 0


def _paged(name: str) -> Callable[[CompileRequest], int]:
    """The number that an attribute gives; 0 without a cache of blocks."""
    return lambda request: cast(int, request[name]) if request["is_block_kv_layout"] else 0


_BLOCK = sets("page_cache", _paged("pa_block_size"))

SPECULATION = owned_by(
    "NeuronConfig",
    Attribute(
        "trace_tokengen_model",
        BOOL,
        True,
        "whether there are token programs; False for targets of speculation",
        NoEffect("there are token programs: steps that nothing is proposed for go through them"),
        source="C50",
        decision="the older documents use it; the library computes it from the speculation "
        "attributes and ignores what is given, here there are token programs whatever it says",
    ),
    Attribute(
        "speculation_length",
        INDEX,
        0,
        "tokens of a verification: the last one of a row, and those proposed",
        sets("speculation_length"),
        source="C51",
    ),
    Attribute(
        "spec_batch_size",
        COUNT,
        same_as("batch_size"),
        "sequences of a verification; more are verified in several launches",
        sets("verify_batch", _verify_batch),
        source="C52",
        described=lambda settings: (settings.verify_batch or settings.batch)[0],
    ),
    Attribute(
        "enable_eagle_speculation",
        BOOL,
        False,
        "EAGLE: programs return the hidden states that the draft takes",
        sets("feature_layers", _features),
        source="C53",
    ),
    Attribute(
        "enable_eagle_draft_input_norm",
        BOOL,
        False,
        "a norm of the EAGLE draft's input; it has to be what the draft's tensors say",
        PartOf("is_eagle_draft"),
        source="C54",
    ),
    Attribute(
        "enable_fused_speculation",
        BOOL,
        Derived("enable_eagle_speculation", lambda values: values["enable_eagle_speculation"]),
        "draft and target in one program; a draft of EAGLE has programs of its own",
        RunTimeSetting("programs that hold the draft of fused_spec_config"),
        source="C55",
    ),
    Attribute(
        "is_eagle_draft",
        BOOL,
        False,
        "marks the EAGLE draft of a fused_spec_config",
        RunTimeSetting("the draft at draft_model_path, which proposes tokens"),
        source="C56",
    ),
    Attribute("is_eagle3", BOOL, False, "EAGLE-3", PartOf("enable_eagle_speculation")),
    Attribute("token_tree_config", optional(MAPPING), None, "a tree of drafts", _TREE),
    Attribute(
        "enable_token_tree",
        BOOL,
        Derived("token_tree_config is given", lambda values: bool(values["token_tree_config"])),
        "a tree of drafts",
        _TREE,
    ),
    Attribute(
        "is_medusa",
        BOOL,
        False,
        "Medusa: heads in the model's programs guess later tokens",
        RunTimeSetting("the model's heads of Medusa, which propose where it is its own assistant"),
        source="C57",
    ),
    Attribute(
        "medusa_speculation_length",
        INDEX,
        0,
        "nodes of a verification: the last token of a row, and those of the tree",
        sets("tree_nodes", _medusa("medusa_speculation_length")),
        source="C57",
    ),
    Attribute(
        "num_medusa_heads",
        INDEX,
        0,
        "heads that guess",
        sets("num_medusa_heads", _medusa("num_medusa_heads")),
        source="C57",
    ),
    Attribute(
        "medusa_tree",
        optional(one_of(MAPPING, tuple_of(tuple_of(INDEX, ""), "a list of lists of integers"))),
        None,
        "the paths of the tree of guesses",
        _MEDUSA,
        source="C57",
        inactive=((),),
    ),
)

_FUSED = PartOf("InferenceConfig.fused_spec_config")

FUSED_SPECULATION = owned_by(
    "FusedSpecNeuronConfig",
    Attribute("worker_cls", CLASS, REQUIRED, "class of the fused model", _FUSED, source="W20"),
    Attribute(
        "draft_config",
        optional(MODEL_CONFIG),
        None,
        "configuration of the draft model",
        _FUSED,
        source="W20",
    ),
    Attribute(
        "draft_model_path",
        optional(TEXT),
        None,
        "checkpoint of the draft model",
        _FUSED,
        source="W20",
    ),
    Attribute(
        "draft_model_cls", optional(CLASS), None, "class of the draft model", _FUSED, source="W20"
    ),
)

PAGES = owned_by(
    "NeuronConfig",
    Attribute(
        "is_block_kv_layout",
        optional(BOOL),
        False,
        "a cache of blocks",
        _BLOCK,
        described=lambda settings: settings.page_cache > 0,
        served="as --block-size",
    ),
    Attribute(
        "pa_num_blocks",
        COUNT,
        same_as("batch_size"),
        "blocks of a cache",
        sets("cache_blocks", _paged("pa_num_blocks")),
        described=lambda settings: settings.cache_blocks or settings.cache_rows,
        served="as --num-gpu-blocks-override, which says the default",
    ),
    Attribute(
        "pa_block_size",
        COUNT,
        same_as("seq_len"),
        "slots of a block",
        _BLOCK,
        described=lambda settings: settings.page_cache or settings.max_len,
        served="as --block-size",
    ),
    Attribute(
        "chunked_prefill_config",
        optional(nested("ChunkedPrefillConfig")),
        None,
        "prompts in chunks",
        CHUNKS,
        served="max_num_seqs is the number of prompts of a launch",
    ),
    Attribute(
        "is_chunked_prefill",
        BOOL,
        Derived(
            "chunked_prefill_config is given",
            lambda values: values["chunked_prefill_config"] is not None,
        ),
        "prompts in chunks",
        CHUNKS,
        served="long prompts in parts of --chunked-prefill-size tokens",
    ),
)

_TILES = NoEffect("attention is computed in tiles of attention_block, or of what costs least")

CHUNKED_PREFILL = owned_by(
    "ChunkedPrefillConfig",
    Attribute(
        "max_num_seqs",
        INDEX,
        0,
        "sequences of a call; 0 for batch_size",
        PartOf("NeuronConfig.chunked_prefill_config"),
    ),
    Attribute(
        "tkg_model_enabled",
        BOOL,
        True,
        "separate token programs",
        NoEffect("there are token programs: sequences with one new token go through them"),
    ),
    Attribute("kernel_q_tile_size", COUNT, 128, "queries of a tile", _TILES),
    Attribute("kernel_kv_tile_size", COUNT, 1024, "slots of a tile", _TILES),
)

LORA = owned_by(
    "NeuronConfig",
    Attribute(
        "lora_config",
        optional(nested("LoraServingConfig")),
        None,
        "adapters that requests choose from",
        RunTimeSetting("adapters that forward and generate take by adapter_ids"),
        source="C58",
        described=lambda settings: settings.max_loras > 0,
    ),
)

_FILES = RunTimeSetting("the files of each adapter, by its id in adapter_ids")
_LAYOUT = NoEffect("the factors are laid out and divided as their weights are")
_BASE = NoEffect("programs know whether their weights are quantized")
_MODEL_TYPE = PartOf("NeuronConfig.torch_dtype")
_ROWS = PartOf("NeuronConfig.batch_size")
_COUNTS = NoEffect("the adapter that was used least recently leaves, so that nothing is counted")


def _slots(values: Values) -> object:
    """The number of adapters on the device that no other attribute gives."""
    listed = cast("Mapping[str, str] | None", values["lora_ckpt_paths"])
    return max(1, len(listed or ()))


LORA_SERVING = owned_by(
    "LoraServingConfig",
    Attribute(
        "max_loras",
        COUNT,
        Derived("1, or the number of lora_ckpt_paths", _slots),
        "adapters in the device's memory",
        sets("max_loras"),
        source="C59",
    ),
    Attribute(
        "max_cpu_loras",
        COUNT,
        100,
        "adapters in the host's memory",
        RunTimeSetting("adapters that the host keeps prepared, with dynamic_multi_lora"),
        source="C60",
        decision="the reference gives no default; 100 is the library's",
    ),
    Attribute(
        "dynamic_multi_lora",
        BOOL,
        False,
        "whether adapters are exchanged while serving",
        RunTimeSetting("slots that adapters of lora_ckpt_paths_cpu get when rows use them"),
        source="C61",
        decision="the guide says that it is not supported, the reference has an attribute",
    ),
    Attribute(
        "enable_dynamic_multi_lora",
        BOOL,
        same_as("dynamic_multi_lora"),
        "the documents' name of dynamic_multi_lora",
        PartOf("dynamic_multi_lora"),
        source="C61",
        replaces="dynamic_multi_lora",
    ),
    Attribute(
        "lora_ckpt_paths", optional(ADAPTERS), None, "adapters on the device", _FILES, source="C62"
    ),
    Attribute(
        "lora_ckpt_paths_cpu",
        optional(ADAPTERS),
        None,
        "adapters on the host",
        _FILES,
        source="C62",
    ),
    Attribute(
        "lora_ckpt_json",
        optional(TEXT),
        None,
        "a file that lists the adapters",
        _FILES,
        source="C63",
    ),
    Attribute("lora_memory_transpose", BOOL, True, "the layout of adapters", _LAYOUT, source="C64"),
    Attribute(
        "lora_shard_linear_layer",
        BOOL,
        True,
        "whether ranks divide both factors of an adapter, or one",
        sets("rules", lambda lora: ("adapters:tp",) if lora["lora_shard_linear_layer"] else ()),
        source="C65",
    ),
    Attribute(
        "base_model_quantized", BOOL, False, "whether the model is quantized", _BASE, source="C66"
    ),
    Attribute("max_lora_rank", COUNT, 16, "the largest rank", sets("max_lora_rank")),
    Attribute(
        "target_modules",
        optional(TEXTS),
        None,
        "modules with adapters",
        sets("lora_target_modules", lambda lora: lora["target_modules"] or ()),
        described=lambda settings: settings.lora_target_modules or None,
    ),
    Attribute(
        "lora_bias",
        words("none", "all"),
        "none",
        "biases",
        Refused("a bias of adapters", "merge the adapter into the checkpoint"),
    ),
    Attribute("lora_dtype", optional(TEXT), None, "element type", _MODEL_TYPE),
    Attribute("batch_size", optional(COUNT), None, "sequences of a call", _ROWS),
    Attribute(
        "eviction_policy",
        words("lru", "lfu"),
        "lru",
        "the order of exchange",
        Refused("exchange of the least often used adapter", "leave it out: the order is lru"),
    ),
    Attribute("lfu_decay_period", COUNT, 128, "calls until counts are halved", _COUNTS),
    Attribute(
        "is_context_encoding",
        optional(BOOL),
        False,
        "the phase of a program; the library sets it",
        NoEffect("each program knows its own phase"),
    ),
)
