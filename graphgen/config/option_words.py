"""The words that options of a compilation may be: element types, strategies, forms."""

from __future__ import annotations

# Keys of the table in graphgen.passes.gqa.head_strategies.
HEAD_STRATEGIES = (
    "auto",
    "CONVERT_TO_MHA",
    "REPLICATE_TO_TP_DEGREE",
    "SHARD_OVER_HEADS",
    "SHARD_OVER_BATCH",
    "REPLICATED_HEADS",
    "ALL_GATHER_HEADS",
)
# Element types of weights, activations and caches.
DTYPES = ("f32", "bf16", "f16")
# The default type of sums, softmax and logits.
PLAIN_DTYPE = DTYPES[0]
# Element types and scales of quantized caches; the scale of a type that is not given one.
CACHE_DTYPES = ("f8e4m3", "f8e5m2", "int8", "f8e4m3fn")
CACHE_SCALES = ("none", "per_tensor", "per_key", "per_channel", "per_token")
# The scale of a type that is not given one: integers without would be whole numbers alone.
DEFAULT_CACHE_SCALE = {**dict.fromkeys(CACHE_DTYPES, "none"), "int8": "per_token"}
# Attention in the element type of the model.
ATTENTION_OF_MODEL = "model"
# Values of ``activation_quantization_type``.
ACTIVATIONS = ("none", "dynamic", "static", "blocks")
ACTIVATIONS_WIDE, ACTIVATIONS_DYNAMIC, ACTIVATIONS_STATIC, ACTIVATIONS_BLOCKS = ACTIVATIONS
# Values of ``kernels``.
KERNELS_AUTO, KERNELS_ON, KERNELS_OFF = "auto", "on", "off"
# Values of ``cp_form``: how attention gets at the keys of ranks that share a prompt.
CP_AUTO = "auto"
CP_FORMS = (CP_AUTO, "gather", "all-to-all", "ring")
# Values of ``cp_balance``: whether the tokens of a ring are dealt out so that ranks work as much.
BALANCE_AUTO, BALANCE_ON, BALANCE_OFF = "auto", "on", "off"
# Values of ``expert_dispatch``: the forms of a mixture of experts.
DISPATCH_AUTO = "auto"
EXPERT_DISPATCH = (DISPATCH_AUTO, "all", "selective", "capacity", "blockwise")
# Values of ``expert_exchange``: how tokens that ranks divide get to experts of other ranks.
EXCHANGE_AUTO, EXCHANGE_ALL_TO_ALL = "auto", "all-to-all"
EXPERT_EXCHANGES = (EXCHANGE_AUTO, "all-gather", EXCHANGE_ALL_TO_ALL)
# Values of ``latent_attention``: whether keys and values are made of the latent vector, or not.
LATENT_AUTO = "auto"
LATENT_FORMS = (LATENT_AUTO, "absorb", "expand")
# Values of ``attention_block`` beside sizes of tiles.
TILES_AUTO, TILES_OFF = "auto", "off"
