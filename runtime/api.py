"""The Python entry points: ``graphgen.load`` opens a model, ``graphgen.compile`` compiles one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import (
    TypedField,
    fields_of,
    integer,
    optional,
    read_field,
    words,
)
from graphgen.errors import GraphgenError, did_you_mean
from graphgen.targets import DEFAULT_ACCELERATOR

if TYPE_CHECKING:
    from graphgen.ir import Module
    from graphgen.runtime.compiled_module import CompiledModule
    from graphgen.runtime.language_model import LanguageModel

# CPU devices that JAX starts with at least: models of more ranks may be opened after the first one.
_DEVICES = 8
# Rows that decode programs take beside all: one prompt alone is the usual case.
_FEWER_ROWS = (1,)
_DTYPES = ("f32", "bf16", "f16")
# Fields of a compilation that `load` and `compile` have as parameters, or that follow from them.
_OWN = (
    *("batch", "prefill_batch", "verify_batch", "rows", "context", "tokens", "chunk", "slots"),
    *("dims", "target", "dtype", "tp", "min_rows", "weight_dtypes"),
)


def load(
    model: str | Path,
    *,
    dtype: str | None = None,
    tp: int | None = None,
    batch: int | None = None,
    max_len: int | None = None,
    artifact: str | Path | None = None,
    trust_artifacts: bool = False,
    progress: bool = True,
    **options: object,
) -> LanguageModel:
    """Open a model on this machine's CPU; programs are compiled at their first use.

    Args:
        model: a checkpoint folder, a GGUF file, ``ORGANIZATION/NAME`` of the Hugging Face hub, an
            artifact folder, or ``smollm2``.
        dtype: ``f32`` (default), ``bf16``, ``f16`` or ``as-declared`` by the checkpoint.
        tp: ranks that the model is split over, 1 by default.
        batch: prompts that are answered together, 8 by default; further ones wait.
        max_len: tokens of a prompt and its answer; by default the model's positions, at most 2048.
        artifact: folder to start from; it is written if it does not exist.
        trust_artifacts: load the machine code of artifacts that this user has not signed, too.
        progress: show what takes long on standard error, or in a notebook.
        options: options of the compilation by name, such as ``kv_cache_quant=True``; ``graphgen
            pipeline default`` lists them.

    Returns:
        The model, which ``with`` or ``close`` closes.

    Raises:
        GraphgenError: GG05xx for the configuration, GG06xx for the files, GG0703 for an artifact
            that does not fit, GG0705 for an argument.
    """
    # Only here: importing graphgen loads no NumPy.
    from graphgen.lowering.cpu.pjrt import reserve
    from graphgen.runtime.aws_config.served_options import ServedFlags, served_options
    from graphgen.runtime.engine import open_engine
    from graphgen.runtime.language_model import LanguageModel
    from graphgen.runtime.progress import Silent, TerminalProgress

    for name, value in {"tp": tp, "batch": batch, "max_len": max_len}.items():
        _check_count(name, value)
    _check_dtype(dtype, (*_DTYPES, "as-declared"))
    reserve(max(_DEVICES, tp or 1))
    flags = ServedFlags(
        max_num_seqs=batch,
        max_model_len=max_len,
        compile=CompileConfig.of(tp=tp, dtype=dtype),
        artifact=None if artifact is None else Path(artifact),
    )
    opened = replace(served_options(str(model), flags), fewer_rows=_FEWER_ROWS)
    opened = replace(opened.updated(_checked(options)), trust_artifacts=trust_artifacts)
    shown = TerminalProgress() if progress else Silent()
    # One token stands for the prompts, which are not known yet.
    engine, _ = open_engine(str(model), opened, lambda _: [[0]], 1, shown)
    return LanguageModel(engine, str(model), shown)


def compile(
    model: str | Path | Mapping[str, object] | Module,
    *,
    target: str = DEFAULT_ACCELERATOR,
    dtype: str = "bf16",
    tp: int = 1,
    batch: int = 1,
    max_len: int = 2048,
    dims: Mapping[str, int] | None = None,
    pipeline: str = "",
    prove: bool = False,
    **options: object,
) -> CompiledModule:
    """Compile a model or a module for a target: passes, then its programs; no weights are read.

    Args:
        model: a checkpoint, a ``config.json``, a known shape such as ``llama-3.1-8b``, a
            configuration under Hugging Face's names; or a module, which stays as it is, or its
            file: ``.gg``, ``.mlir``, ``.pb`` or ``.hlo``.
        target: ``inf2``, ``trn1``, ``trn2`` (default), ``trn3``, ``cpu``, or one of your own.
        dtype: element type of a model: ``f32``, ``bf16`` or ``f16``.
        tp: ranks that a model is split over.
        batch: rows of a call of a model.
        max_len: tokens of a sequence of a model.
        dims: sizes of a module's symbols.
        pipeline: passes for a module, as ``graphgen opt -p`` takes them; by default those that
            bring it to the target.
        prove: prove that the programs of every rank compute what the model does.
        options: further options of a model's compilation by name; ``graphgen pipeline default``
            lists them.

    Returns:
        The module, the journal of the passes, the programs, and the proof if it is requested.

    Raises:
        GraphgenError: GG05xx for the model, GG0301 to GG0306 for passes, GG0705 for an argument.
    """
    # Only here: importing graphgen loads no pass.
    from graphgen.ir import Module
    from graphgen.lowering.open import open_module
    from graphgen.lowering.program_file import FORMS
    from graphgen.runtime.compiled_module import compile_model, compile_module

    if isinstance(model, str | Path) and Path(model).suffix in FORMS:
        model = open_module(str(model))
    if isinstance(model, Module):
        _check_model_only(dtype=dtype != "bf16", tp=tp != 1, batch=batch != 1, **options)
        return compile_module(model, target, dims or {}, pipeline, prove=prove)
    if dims or pipeline:
        raise GraphgenError(
            "GG0705",
            f"{'dims' if dims else 'pipeline'} is for a module, and this is a model",
            help="give graphgen.Module, or leave it out",
        )
    for name, value in {"tp": tp, "batch": batch, "max_len": max_len}.items():
        _check_count(name, value)
    _check_dtype(dtype, _DTYPES)
    config = CompileConfig(dtype=dtype, tp=tp).updated(_checked(options))
    settings = config.serving(batch=batch, max_len=max_len)
    return compile_model(model, target, settings, prove=prove)


def _check_model_only(**given: object) -> None:
    """Refuse options of a model's compilation for a module (GG0705)."""
    name = next((name for name, value in given.items() if value), None)
    if name is not None:
        raise GraphgenError(
            "GG0705",
            f"{name} is for models, and this is a module",
            help="give the passes as pipeline, such as pipeline='default{tp=2,target=trn2}'",
        )


def _check_count(name: str, value: object) -> None:
    read_field("", TypedField(name, optional(integer(1)), None), value, "GG0705")


def _check_dtype(dtype: str | None, known: Sequence[str]) -> None:
    read_field("", TypedField("dtype", optional(words(*known)), None), dtype, "GG0705")


def _checked(options: Mapping[str, object]) -> Mapping[str, object]:
    """Options of a compilation; unknown names and values of other types are refused (GG0705)."""
    known = {name: item for name, item in fields_of(CompileConfig).items() if name not in _OWN}
    for name in options:
        if name not in known:
            near = did_you_mean(name, [*known, *_OWN])
            raise GraphgenError("GG0705", f"there is no option '{name}'", help=near)
    return {name: read_field("", known[name], value, "GG0705") for name, value in options.items()}
