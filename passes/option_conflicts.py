"""Refuse options of a compilation that exclude each other, or are unsupported on its target."""

from __future__ import annotations

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import EXCHANGE_AUTO
from graphgen.config.rank_config import AUTO
from graphgen.errors import GraphgenError
from graphgen.passes.gqa.head_strategies import BY_ROWS, GATHERED
from graphgen.targets import find_target, target_names

# Strategies whose copies of key-value heads flash decoding replaces.
_FLASH_HEADS = ("auto", "REPLICATE_TO_TP_DEGREE", "REPLICATED_HEADS")


def check_combinations(config: CompileConfig) -> None:
    """Refuse options that cannot be together (GG0302)."""
    _check_mesh(config)
    _check_nodes(config)
    _check_experts(config)
    _check_rows(config)
    _check_flash(config)
    _check_shared_prompts(config)
    _check_own_rows(config)
    _check_kernels(config)
    _check_cache_type(config)


def _check_mesh(config: CompileConfig) -> None:
    """Refuse a mesh that is still to be chosen: a pipeline does not know the model (GG0302)."""
    if config.parallelism == AUTO:
        raise GraphgenError(
            "GG0302",
            "default: parallelism=auto is chosen for a model, which pipelines do not know",
            help="graphgen plan MODEL --tp N --search says the options that it stands for",
        )


def _check_nodes(config: CompileConfig) -> None:
    """Refuse ranks that machines cannot share evenly (GG0302)."""
    if config.nodes < 1 or config.tp % config.nodes:
        raise GraphgenError(
            "GG0302",
            f"default: nodes={config.nodes} machines cannot share tp={config.tp} ranks evenly",
            help="nodes is a divisor of tp, the ranks of a stage",
        )


def _check_experts(config: CompileConfig) -> None:
    """Refuse groups with experts of their own that are not as many ranks each (GG0302)."""
    for name in ("moe_ep_degree", "moe_prefill_ep_degree"):
        groups: int = getattr(config, name)
        if groups < (name == "moe_ep_degree") or config.tp % (groups or 1):
            raise GraphgenError(
                "GG0302",
                f"default: tp={config.tp} ranks are not {name}={groups} groups of as many",
                help=f"{name} is a divisor of tp; each group has 1/{name} of the experts",
            )
    if config.expert_exchange != EXCHANGE_AUTO and config.tp == 1:
        raise GraphgenError(
            "GG0302",
            f"default: expert_exchange={config.expert_exchange} on one rank, which has all experts",
            help="leave it out, or give more ranks (tp)",
        )


def _check_rows(config: CompileConfig) -> None:
    """Refuse ranks that divide the rows of a cache where calls have other rows (GG0302)."""
    sizes = {*config.batch, *config.prefill_batch, *config.verify_batch, config.cache_rows}
    if config.heads == BY_ROWS and config.tp > 1 and len(sizes) > 1:
        raise GraphgenError(
            "GG0302",
            f"default: heads={BY_ROWS} needs calls and caches of as many rows, not "
            f"{', '.join(map(str, sorted(sizes)))}",
            help="give one batch size, or another strategy",
        )


def _check_flash(config: CompileConfig) -> None:
    """Refuse other layouts of heads and experts beside those of flash decoding (GG0302)."""
    if config.flash_decoding_ranks and not config.flash_decoding:
        raise GraphgenError(
            "GG0302",
            f"default: flash_decoding_ranks={config.flash_decoding_ranks} without flash_decoding",
            help="give flash_decoding=true (--flash-decoding) too",
        )
    if not config.flash_decoding or config.tp == 1:
        return
    if config.heads not in _FLASH_HEADS:
        raise GraphgenError(
            "GG0302",
            f"default: flash_decoding lays out heads itself, not as heads={config.heads} does",
            help=f"leave out one of them; heads may be {' or '.join(_FLASH_HEADS)}",
        )
    experts = max(config.moe_ep_degree, config.moe_prefill_ep_degree)
    if experts > 1:
        raise GraphgenError(
            "GG0302",
            f"default: flash_decoding groups ranks by heads, moe_ep_degree={experts} by experts",
            help="leave out one of them",
        )


def _check_shared_prompts(config: CompileConfig) -> None:
    """Refuse ranks that share prompts, or rows, where heads lie as a strategy has them (GG0302)."""
    given = {
        "cp_degree": config.cp_degree,
        "attention_dp_degree": config.attention_dp_degree,
        "mlp_cp_degree": config.mlp_cp_degree,
    }
    for name in [name for name, size in given.items() if size > 1]:
        if config.tp % given[name]:
            raise GraphgenError(
                "GG0302",
                f"default: tp={config.tp} ranks are not {name}={given[name]} groups of as many",
                help=f"{name} is a divisor of tp",
            )
        if config.flash_decoding:
            raise GraphgenError(
                "GG0302",
                f"default: {name}={given[name]} and flash_decoding exclude each other",
                help="leave one of them out: both say what the copies of a head are for",
            )
        if config.heads in (BY_ROWS, GATHERED):
            raise GraphgenError(
                "GG0302",
                f"default: {name}={given[name]} and heads={config.heads} exclude each other",
                help="leave one of them out: both say which ranks have which heads and rows",
            )


def _check_own_rows(config: CompileConfig) -> None:
    """Refuse groups with rows of their own where token programs have other rows (GG0302)."""
    groups = config.attention_dp_degree
    if groups == 1:
        return
    if config.page_cache:
        raise GraphgenError(
            "GG0302",
            f"default: attention_dp_degree={groups} divides the rows of caches, whose blocks "
            "page_cache hands to any row",
            help="leave one of them out",
        )
    sizes = {*config.batch, *config.verify_batch, config.cache_rows}
    if len(sizes) > 1 or config.cache_rows % groups:
        raise GraphgenError(
            "GG0302",
            f"default: attention_dp_degree={groups} needs token programs with the rows of the cache"
            f", a multiple of {groups}, not {', '.join(map(str, sorted(sizes)))}",
            help="give one batch size; prefill programs may have fewer rows (prefill_batch)",
        )


def _check_kernels(config: CompileConfig) -> None:
    """Refuse kernels in NKI for the CPU (GG0302)."""
    native = config.native_kernels or config.kernel_artifacts
    if native and config.target == "cpu":
        raise GraphgenError(
            "GG0302",
            "default: native_kernels and kernel_artifacts are Neuron's, and the target is cpu",
            help="leave them out, or give a target such as trn2",
        )


def _check_cache_type(config: CompileConfig) -> None:
    """Refuse 8-bit floats for caches in a format that the target does not have (GG0302)."""
    known, element = config.target in target_names(), config.kv_cache_dtype
    # A target that multiplies 8-bit floats has the formats that it multiplies.
    formats = find_target(config.target).narrow_products if known else ()
    missing = "f8e4m3" in formats and element not in formats
    if config.kv_cache_quant and element == "f8e4m3fn" and missing:
        raise GraphgenError(
            "GG0302",
            f"default: {config.target} has no {element}: its 8-bit floats end at 240",
            help="take kv_cache_dtype=f8e4m3, or target=trn3",
        )
