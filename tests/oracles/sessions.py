"""Our own stack from a checkpoint to a session, without engine and tokenizer in between."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import Array
from graphgen.ir import Entry
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import build_model
from graphgen.runtime.open_speculator import of_first_layers
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import RankWeights, put_weights, read_weight


def open_session(
    path: Path, settings: CompileConfig, read: Callable[[Checkpoint, Entry], Array] = read_weight
) -> Session:
    """A session on the checkpoint at ``path``.

    Args:
        path: of the checkpoint.
        settings: what to compile for.
        read: gives a tensor in the module's element type; to change weights on their way.
    """
    return session_of(open_checkpoint(path), settings, read)


def session_of(
    checkpoint: Checkpoint,
    settings: CompileConfig,
    read: Callable[[Checkpoint, Entry], Array] = read_weight,
    layers: int | None = None,
) -> Session:
    """A session on a checkpoint, or on its first layers; arguments as of :func:`open_session`."""
    if layers is None:
        built = build_model(checkpoint.config, settings)
        check_checkpoint(checkpoint, built.module)
    else:
        built = build_model(of_first_layers(checkpoint, layers), settings)
    source = RankWeights(built.module, lambda row: read(checkpoint, row))
    return Session(ExecutableCache(built.module, Silent()), put_weights(source, Silent()))
