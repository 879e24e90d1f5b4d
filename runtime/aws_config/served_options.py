"""The flags of vLLM's server for Neuron devices, as options to open a model with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import is_artifact, open_artifact
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.environment import check_nodes
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.served_override import ServedOverride, read_override
from graphgen.runtime.aws_config.value_kinds import ELEMENTS
from graphgen.runtime.distributed.launch_plan import stages_of_launch
from graphgen.runtime.distributed.process_group import current_place
from graphgen.runtime.engine import EngineOptions, locate_checkpoint

# Rows and slots of a model that no flag gives: enough to try it on a CPU.
DEFAULT_ROWS, DEFAULT_LENGTH = 8, 2048
# Tokens of a prompt that one launch takes, so that others wait no longer than for these.
DEFAULT_CHUNK = 128
# Attributes that a flag of the server gives: the field of ServedFlags, and the flag.
_BY_FLAG = {
    "tp_degree": ("tensor_parallel_size", "--tensor-parallel-size"),
    "pp_degree": ("pipeline_parallel_size", "--pipeline-parallel-size"),
    "batch_size": ("max_num_seqs", "--max-num-seqs"),
    "seq_len": ("max_model_len", "--max-model-len"),
    "torch_dtype": ("dtype", "--dtype"),
    "pa_block_size": ("block_size", "--block-size"),
    "pa_num_blocks": ("num_blocks", "--num-gpu-blocks-override"),
    "kv_cache_quant": ("caches", "--kv-cache-quant"),
    "kv_quant_config": ("caches", "--kv-cache-quant"),
    "speculation_length": ("speculation_length", "--speculation-length"),
}
# Element types by the names that vLLM gives them; auto is the checkpoint's own.
_DTYPES = {**ELEMENTS, "float": "f32", "half": "f16", "auto": "as-declared"}
# Fields of a compilation that are sizes, which EngineOptions has under names of its own.
_SIZES = ("batch", "context", "tokens", "slots", "chunk")


@dataclass(frozen=True, slots=True)
class ServedFlags:
    """The server's flags about the model; ``None`` for a flag that is not given.

    Attributes:
        max_num_seqs: rows of the cache: sequences that are answered at a time.
        max_model_len: slots of a row: tokens of a prompt and its answer.
        tensor_parallel_size: ranks.
        pipeline_parallel_size: stages of a pipeline, each with as many ranks.
        nodes: machines that the ranks fill in order.
        dtype: element type, with the names of torch or of graphgen.
        override: the JSON object of ``--override-neuron-config``.
        chunk: tokens of the programs that take long prompts in parts; empty for the default.
        artifact: folder to start from; it is written if it does not exist.
        weights: folder of prepared weights.
        block_size: slots of a block of a paged cache; without it each sequence has a row.
        num_blocks: number of blocks, by default as many as all rows need.
        caches: fields of a compilation that quantize caches, by name.
        speculation_length: k, tokens of a row that a step verifies, where something proposes them.
        verify_lengths: fewer tokens that further programs verify.
        slots: fields of a compilation that are about adapters, by name.
        experts: groups of ranks with different experts.
    """

    max_num_seqs: int | None = None
    max_model_len: int | None = None
    tensor_parallel_size: int | None = None
    pipeline_parallel_size: int | None = None
    nodes: int | None = None
    dtype: str | None = None
    override: str = "{}"
    chunk: tuple[int, ...] = ()
    artifact: Path | None = None
    weights: Path | None = None
    block_size: int | None = None
    num_blocks: int | None = None
    caches: Mapping[str, object] | None = None
    speculation_length: int | None = None
    verify_lengths: tuple[int, ...] = ()
    slots: Mapping[str, object] | None = None
    experts: int | None = None


def served_options(model: str, flags: ServedFlags) -> EngineOptions:
    """The options to open a model with.

    An artifact keeps the sizes that it was compiled for; flags that are given have to agree.

    Args:
        model: an artifact, a checkpoint or a known name.
        flags: of the server.

    Raises:
        GraphgenError: GG0901 to GG0904 and GG0906 for the override, GG0705 for flags, GG0904 for
            variables that make this process one of several nodes.
    """
    speculates = flags.speculation_length is not None
    base = _compiled(model, flags)
    override = read_override(flags.override, speculates=speculates)
    changes = _overridden(flags, override.programs, base or _fresh(model, flags))
    wanted: dict[str, object] = {"dtype": flags.dtype and _DTYPES.get(flags.dtype, flags.dtype)}
    ranks = {
        "tp": flags.tensor_parallel_size,
        "pp_degree": flags.pipeline_parallel_size,
        "nodes": flags.nodes,
    }
    requested = {**wanted, **ranks, **_without_sizes(changes)}
    if base is None:
        requested = {"prefill_batch": (1,), **requested}
    if override.prompts:
        requested["prefill_batch"] = (override.prompts,)
    rows, slots = flags.max_num_seqs, flags.max_model_len
    if base is None:
        rows, slots = rows or DEFAULT_ROWS, slots or _length(model)
    ranks_of_all = _ranks(requested, base)
    check_nodes(os.environ, ranks_of_all)
    override.ranks.check(ranks_of_all, current_place())
    length = changes.get("slots", slots)
    requested |= _blocks(flags, override, base, length)
    requested |= {**(flags.caches or {}), **(flags.slots or {})}
    requested["speculation_length"] = flags.speculation_length
    requested["verify_lengths"] = flags.verify_lengths or None
    requested["moe_ep_degree"] = flags.experts
    chunk = _chunk(flags, override.chunked, base, length)
    if not _sizes(changes, "batch") and "rows" not in changes:
        if base is None:
            rows, requested["rows"] = _row_groups(flags, changes, rows or DEFAULT_ROWS)
        elif base.rows:
            requested["rows"] = rows
    return EngineOptions(
        CompileConfig().updated(requested),
        batch=max(_sizes(changes, "batch"), default=rows),
        max_len=length if isinstance(length, int) else None,
        # With chunks no launch takes more of a prompt than one.
        max_context=max((*_sizes(changes, "context"), *chunk), default=None),
        context=_sizes(changes, "context"),
        tokens=_sizes(changes, "tokens"),
        chunk=chunk,
        served=True,
        async_mode=override.async_mode,
        artifact=flags.artifact,
        weights=flags.weights,
    )


def _ranks(requested: Mapping[str, object], base: CompileConfig | None) -> int:
    """Ranks of all stages, in a launch of those that AWS's variable asks for (GG0705)."""
    asked = (base or CompileConfig()).updated(
        {name: requested[name] for name in ("tp", "pp_degree") if requested.get(name) is not None}
    )
    given, place = asked.pp_degree, current_place()
    return asked.tp * (given if place is None else stages_of_launch(given, os.environ))


def _row_groups(
    flags: ServedFlags, changes: Mapping[str, object], rows: int
) -> tuple[int, int | None]:
    """Rows of a call of the token programs, and of the cache where those are more.

    With stages of a pipeline a call takes one group of the rows, of which each stage has one.
    Programs that verify tokens, and ranks that have rows of their own, take all rows.
    """
    stages = flags.pipeline_parallel_size or 1
    whole = flags.speculation_length or "attention_dp_degree" in changes
    if stages == 1 or rows % stages or whole:
        return rows, None
    return rows // stages, rows


def _blocks(
    flags: ServedFlags, override: ServedOverride, base: CompileConfig | None, length: object
) -> Mapping[str, object]:
    """Slots of a block, and number of blocks, as fields of a compilation.

    Args:
        flags: of the server.
        override: its attributes have the same meaning as the flags.
        base: the configuration of an artifact.
        length: slots of a row, those of a block where no size is given, as in a NeuronConfig;
            ``None`` for those of the artifact.

    Raises:
        GraphgenError: GG0705 for a number of blocks without blocks, and for an attribute that
            contradicts a flag or another attribute.
    """
    given = {"pa_block_size": override.block_size, "pa_num_blocks": override.num_blocks}
    _check_flags({name: value for name, value in given.items() if value is not None}, flags)
    size = flags.block_size or override.block_size
    blocks = flags.num_blocks or override.num_blocks
    if size is not None and override.paged is False:
        raise GraphgenError(
            "GG0705",
            f"is_block_kv_layout = False, and blocks of {size} tokens",
            help="leave one of them out",
        )
    if size is None and override.paged:
        compiled = None if base is None else base.page_cache or base.max_len
        size = compiled or length
    if blocks is not None and not size and not (base is not None and base.page_cache):
        name = "--num-gpu-blocks-override" if flags.num_blocks else "pa_num_blocks"
        raise GraphgenError(
            "GG0705",
            f"{name} {blocks} without blocks",
            help="give --block-size too, such as --block-size 16",
        )
    return {"page_cache": size, "cache_blocks": blocks}


def _compiled(model: str, flags: ServedFlags) -> CompileConfig | None:
    """The configuration of an artifact that is there; ``None`` for a model to compile."""
    for path in (Path(model), flags.artifact):
        if path is not None and is_artifact(path):
            return open_artifact(path).model.settings
    return None


def _fresh(model: str, flags: ServedFlags) -> CompileConfig:
    """The configuration without overrides of a model to compile."""
    rows, length = flags.max_num_seqs or DEFAULT_ROWS, flags.max_model_len or _length(model)
    made = CompileConfig(tp=flags.tensor_parallel_size or 1, prefill_batch=(1,))
    return made.serving(batch=rows, max_len=length)


def _length(model: str) -> int:
    most = locate_checkpoint(model).config.get("max_position_embeddings")
    return min(DEFAULT_LENGTH, most) if isinstance(most, int) else DEFAULT_LENGTH


def _chunk(
    flags: ServedFlags, wanted: bool | None, base: CompileConfig | None, length: object
) -> tuple[int, ...]:
    """Tokens of the parts of long prompts; empty for whole prompts, or those of an artifact.

    Args:
        flags: of the server.
        wanted: ``is_chunked_prefill``, if it is given.
        base: the configuration of an artifact.
        length: slots of a row; ``None`` for those of the artifact.
    """
    if flags.chunk and wanted is False:
        raise GraphgenError(
            "GG0705",
            "--override-neuron-config has is_chunked_prefill = False, and --chunked-prefill-size "
            "is given",
            help="leave one of them out",
        )
    if flags.chunk or wanted is False or (base is not None and not wanted):
        return flags.chunk
    if base is not None and base.chunk:
        return base.chunk
    slots = length if isinstance(length, int) else base.max_len if base is not None else 0
    return (DEFAULT_CHUNK,) if slots > DEFAULT_CHUNK else ()


def _overridden(
    flags: ServedFlags, given: Mapping[str, object], base: CompileConfig
) -> Mapping[str, object]:
    """The fields of a compilation that attributes of the override change."""
    if not given:
        return {}
    torch = {ours: theirs for theirs, ours in ELEMENTS.items()}
    element = _DTYPES.get(flags.dtype or "", flags.dtype) or base.dtype
    if flags.dtype is None and any(given.get(name) is True for name in _OF_BF16):
        # vLLM takes the type of the checkpoint, which these kernels are for; none is on a CPU.
        element = "bf16"
    plain: dict[str, object] = {
        "tp_degree": flags.tensor_parallel_size or base.tp,
        "batch_size": flags.max_num_seqs or base.cache_rows,
        "seq_len": flags.max_model_len or base.max_len,
        "enable_bucketing": True,
        # The weights are quantized when they are read.
        "quantized_checkpoints_path": "none",
    }
    if element in torch:
        plain["torch_dtype"] = torch[element]
    if base.prefill_batch:
        plain["ctx_batch_size"] = base.prefill_batch[0]
    kept = {name: value for name, value in plain.items() if name not in given}
    _check_flags(given, flags)
    before, after = (compile_settings(NeuronConfig(**v)) for v in (plain, {**kept, **given}))
    plainly = before.values()
    return {name: value for name, value in after.values().items() if value != plainly[name]}


# Attributes of kernels that need bfloat16.
_OF_BF16 = ("qkv_kernel_enabled", "mlp_kernel_enabled")


def _check_flags(given: Mapping[str, object], flags: ServedFlags) -> None:
    """Refuse an attribute beside the flag that gives it too (GG0705)."""
    for name, (field, flag) in _BY_FLAG.items():
        if name in given and getattr(flags, field) is not None:
            raise GraphgenError(
                "GG0705",
                f"--override-neuron-config has {name}, which {flag} gives too",
                help="leave one of them out",
            )


def _without_sizes(changes: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in changes.items() if name not in _SIZES}


def _sizes(changes: Mapping[str, object], name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", changes.get(name, ()))
