"""The settings of a draft: one rank, with the rows and buckets of its target."""

from __future__ import annotations

from dataclasses import replace

from graphgen.compile_config import CompileConfig


def draft_settings(
    of_target: CompileConfig, rows: int, positions: int | None, max_len: int = 0
) -> CompileConfig:
    """The settings of a draft's programs.

    Args:
        of_target: the target's.
        rows: of the target's cache.
        positions: longest sequence of the draft; ``None`` for any.
        max_len: longest sequence that it proposes tokens for; 0 for the target's.
    """
    most = min(size for size in (of_target.max_len, positions, max_len) if size)
    plain = CompileConfig(
        dtype=of_target.dtype,
        kernels=of_target.kernels,
        prefill_batch=of_target.prefill_batch,
        speculation_length=of_target.speculation_length,
        verify_lengths=of_target.verify_lengths,
    )
    chunk = tuple(size for size in of_target.chunk if size < most)
    settings = plain.serving(batch=rows, max_len=most, chunk=chunk)
    if of_target.context and most == of_target.max_len:
        settings = replace(settings, context=of_target.context, tokens=of_target.tokens)
    return settings
