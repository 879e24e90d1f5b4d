"""The settings of a draft: one rank, with the rows and buckets of its target."""

from __future__ import annotations

from dataclasses import replace

from graphgen.compile_config import CompileConfig
from graphgen.runtime.engine import Engine


def draft_settings(engine: Engine, positions: int | None, max_len: int = 0) -> CompileConfig:
    """The settings of a draft's programs.

    Args:
        engine: of the target.
        positions: longest sequence of the draft; ``None`` for any.
        max_len: longest sequence that it proposes tokens for; 0 for the target's.
    """
    of_target = engine.model.settings
    most = min(size for size in (of_target.max_len, positions, max_len) if size)
    plain = CompileConfig(
        dtype=of_target.dtype,
        kernels=of_target.kernels,
        prefill_batch=of_target.prefill_batch,
        speculation_length=of_target.speculation_length,
        verify_lengths=of_target.verify_lengths,
    )
    chunk = tuple(size for size in of_target.chunk if size < most)
    settings = plain.serving(batch=engine.session.rows, max_len=most, chunk=chunk)
    if of_target.context and most == of_target.max_len:
        settings = replace(settings, context=of_target.context, tokens=of_target.tokens)
    return settings
