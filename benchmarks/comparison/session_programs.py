"""Our side: the settings of each kind of weights, and a session with them."""

from __future__ import annotations

from collections.abc import Mapping

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import put_weights, weights_of

SETTINGS: Mapping[str, CompileConfig] = {
    "f32": CompileConfig(dtype="f32"),
    "bf16": CompileConfig(dtype="bf16"),
    # llama.cpp's Q8_0 and Q4_0 hold the tied embedding quantized too.
    "int8": CompileConfig(dtype="bf16", quantization="quantize-weights{copies=true}"),
    # Of a checkpoint in int4: what is left is the head, in groups of Q4_0's size. Rows are integers
    # too, as llama.cpp's.
    "int4": CompileConfig(
        dtype="bf16",
        quantization="quantize-weights{copies=true,dtype=int4,scheme=group,group_size=32}",
        activation_quantization_type="blocks",
    ),
}
"""Settings by ``Case.weights``."""


def session_of(
    checkpoint: Checkpoint, settings: CompileConfig, *, every_token: bool = False
) -> Session:
    """The programs of these settings, with their weights.

    Args:
        checkpoint: the weights.
        settings: with the sizes of calls.
        every_token: one prefill program, which returns the logits of every token.
    """
    built = build_model(checkpoint.config, settings, every_token=every_token)
    placed = put_weights(weights_of(checkpoint, built.module), Silent())
    return Session(ExecutableCache(built.module, Silent()), placed)
