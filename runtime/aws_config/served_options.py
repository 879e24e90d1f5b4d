"""The flags of vLLM's server for Neuron devices, as options to open a model with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import fields_of
from graphgen.config.rank_config import check_one_rank
from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import is_artifact, open_artifact
from graphgen.runtime.aws_config.attribute import CompileSetting
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.compile_settings import compile_settings
from graphgen.runtime.aws_config.environment import COMPILED_ARTIFACTS, check_nodes
from graphgen.runtime.aws_config.model_checks import check_quantized_mlp
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_config.served_override import ServedOverride, read_override
from graphgen.runtime.aws_config.value_kinds import ELEMENTS
from graphgen.runtime.distributed.launch_plan import stages_of_launch
from graphgen.runtime.distributed.process_group import current_place
from graphgen.runtime.engine import EngineOptions, locate_checkpoint
from graphgen.runtime.speculation.fused_steps import is_fused_module

# Rows and slots of a model that no flag gives: enough to try it on a CPU.
DEFAULT_ROWS, DEFAULT_LENGTH = 8, 2048
# Tokens of a prompt that one launch takes, so that others wait no longer than for these.
DEFAULT_CHUNK = 128
# Attributes of sizes that a flag gives: the field of ServedFlags, and the flag.
_SIZE_FLAGS: Final = {
    "batch_size": ("max_num_seqs", "--max-num-seqs"),
    "seq_len": ("max_model_len", "--max-model-len"),
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
        compile: the options of the compilation that are given.
        override: the JSON object of ``--override-neuron-config``.
        chunk: tokens of the programs that take long prompts in parts; empty for the default.
        artifact: folder to start from; it is written if it does not exist.
        weights: folder of prepared weights.
    """

    max_num_seqs: int | None = None
    max_model_len: int | None = None
    compile: CompileConfig = field(default_factory=CompileConfig)
    override: str = "{}"
    chunk: tuple[int, ...] = ()
    artifact: Path | None = None
    weights: Path | None = None


def element_type(name: str | None) -> str | None:
    """An element type by the name that torch, vLLM or graphgen gives it."""
    return name and _DTYPES.get(name, name)


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
    speculates = "speculation_length" in flags.compile.given
    base = _compiled(model, flags)
    override = read_override(flags.override, speculates=speculates)
    given = override.programs
    changes = _overridden(flags, given, base or _fresh(model, flags, given))
    requested = {**flags.compile.asked, **_without_sizes(changes)}
    if base is None:
        requested = {"prefill_batch": (1,), **requested}
    if override.prompts:
        requested["prefill_batch"] = (override.prompts,)
    rows, slots = flags.max_num_seqs, flags.max_model_len
    if base is None:
        rows, slots = rows or DEFAULT_ROWS, slots or _length(model)
    check_nodes(os.environ, of_all := _ranks(requested, base, flags))
    override.ranks.check(of_all, current_place())
    length = changes.get("slots", slots)
    requested |= _blocks(flags, override, base, length)
    chunk = _chunk(flags, override.chunked, base, length)
    if not _sizes(changes, "batch") and "rows" not in changes:
        if base is None:
            rows, requested["rows"] = _row_groups(requested, rows or DEFAULT_ROWS)
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


def _ranks(requested: Mapping[str, object], base: CompileConfig | None, flags: ServedFlags) -> int:
    """Ranks of all stages, in a launch of those that AWS's variable asks for (GG0705).

    Flags that have no effect on one rank are refused (GG0705).
    """
    asked = (base or CompileConfig()).updated(
        {name: requested[name] for name in ("tp", "pp_degree") if requested.get(name) is not None}
    )
    check_one_rank(flags.compile.asked, asked.tp)
    given, place = asked.pp_degree, current_place()
    return asked.tp * (given if place is None else stages_of_launch(given, os.environ))


def _row_groups(requested: Mapping[str, object], rows: int) -> tuple[int, int | None]:
    """Rows of a call of the token programs, and of the cache where those are more.

    With stages of a pipeline a call takes one group of the rows, of which each stage has one.
    Programs that verify tokens, and ranks that have rows of their own, take all rows.
    """
    stages = cast(int, requested.get("pp_degree", 1))
    whole = requested.get("speculation_length") or "attention_dp_degree" in requested
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
    asked = flags.compile.asked
    # 0 is a size: that of a cache without blocks.
    size = cast("int | None", asked.get("page_cache", override.block_size))
    blocks = cast("int | None", asked.get("cache_blocks", override.num_blocks))
    if size == 0 and override.paged:
        raise GraphgenError(
            "GG0705",
            "is_block_kv_layout = True, and blocks of 0 tokens, which are none",
            help="leave one of them out",
        )
    if size and override.paged is False:
        raise GraphgenError(
            "GG0705",
            f"is_block_kv_layout = False, and blocks of {size} tokens",
            help="leave one of them out",
        )
    if size is None and override.paged:
        compiled = None if base is None else base.page_cache or base.max_len
        size = compiled or length
    paged = base is not None and base.page_cache if size is None else size
    if blocks is not None and not paged:
        name = "--num-gpu-blocks-override" if "cache_blocks" in asked else "pa_num_blocks"
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


def stated_artifact(environ: Mapping[str, str]) -> tuple[Path | None, tuple[str, ...]]:
    """The folder that AWS's variable names, for a server, and remarks.

    AWS's tutorial gives its server the folder of ``inference_demo``. One with fused speculation is
    left out, as programs that propose by themselves have no rows that come and go.

    Args:
        environ: the variables.
    """
    stated = environ.get(COMPILED_ARTIFACTS)
    folder = Path(stated) if stated else None
    if folder is None or not is_fused_folder(folder):
        return folder, ()
    return None, (
        f"{COMPILED_ARTIFACTS}: the programs in {folder} propose by themselves, for generate; the "
        "server compiles its own, with the draft beside the model",
    )


def is_fused_folder(path: Path) -> bool:
    """True for an artifact of a model and its draft, whose programs speculate by themselves."""
    return is_artifact(path) and is_fused_module(open_artifact(path).model.module)


def _fresh(model: str, flags: ServedFlags, given: Mapping[str, object]) -> CompileConfig:
    """The configuration without overrides of a model to compile.

    Products of 8 bits are refused where its weights are not quantized (GG0903).
    """
    if given.get("quantized_mlp_kernel_enabled"):
        stored = locate_checkpoint(model).config
        check_quantized_mlp(given.get, NeuronConfig.__name__, stored)
    rows, length = flags.max_num_seqs or DEFAULT_ROWS, flags.max_model_len or _length(model)
    made = CompileConfig(tp=flags.compile.tp, prefill_batch=(1,))
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
    asked = flags.compile.over(base)
    element = asked.dtype
    if "dtype" not in flags.compile.given and any(given.get(name) is True for name in _OF_BF16):
        # vLLM takes the type of the checkpoint, which these kernels are for; none is on a CPU.
        element = "bf16"
    plain: dict[str, object] = {
        "tp_degree": asked.tp,
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
    for name in given:
        for flag in _flags_of(name, flags):
            raise GraphgenError(
                "GG0705",
                f"--override-neuron-config has {name}, which {flag} gives too",
                help="leave one of them out",
            )


def _flags_of(name: str, flags: ServedFlags) -> Iterator[str]:
    """The flags that are given for the fields which an attribute sets."""
    size, of_size = _SIZE_FLAGS.get(name, ("", ""))
    if size and getattr(flags, size) is not None:
        yield of_size
    effect = attributes_of("NeuronConfig")[name].cpu
    # The numbers of a quantized cache go with the request for one.
    also = ("kv_cache_quant",) if name == "kv_quant_config" else ()
    for set_field in (*also, *(effect.fields if isinstance(effect, CompileSetting) else ())):
        if set_field in flags.compile.given:
            option = fields_of(CompileConfig)[set_field]
            yield (*option.served, option.flag)[0]


def _without_sizes(changes: Mapping[str, object]) -> Mapping[str, object]:
    return {name: value for name, value in changes.items() if name not in _SIZES}


def _sizes(changes: Mapping[str, object], name: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", changes.get(name, ()))
