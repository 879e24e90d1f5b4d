"""Perplexity of a text under a model: exp(mean over tokens of -log p(token | earlier tokens)).

The text is split into windows of equal length; each token but the first of a window is predicted
from the earlier tokens of the window. Hugging Face's guide to perplexity calls this the version
without overlap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.pjrt import configure
from graphgen.lowering.cpu.processes import share_ranks
from graphgen.models import read_model_config
from graphgen.runtime.accuracy.cache_saturation import CacheSaturation, cache_saturation
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import as_stored
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.distributed.process_group import agree_on_program
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Progress
from graphgen.runtime.session.session import Session, check_token_ids
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer
from graphgen.runtime.weights.rank_weights import (
    have_same_weights,
    put_weights,
    weight_types,
    weights_of,
)


@dataclass(frozen=True, slots=True)
class Perplexity:
    """The perplexity of one text.

    Attributes:
        tokens: number of predicted tokens.
        nats: sum of -log of their probabilities.
        weight_types: bytes of weights that the programs read, per rank, by element type.
        saturation: of the caches, over all windows; ``None`` where they clamp nothing.
    """

    tokens: int
    nats: float
    weight_types: Mapping[str, int]
    saturation: CacheSaturation | None = None

    @property
    def weight_bytes(self) -> int:
        """Bytes of those weights."""
        return sum(self.weight_types.values())

    @property
    def value(self) -> float:
        """exp(nats / tokens); 1 for a text predicted with certainty."""
        return math.exp(self.nats / self.tokens)


def perplexity(
    checkpoint: Checkpoint, text: str, window: int, settings: CompileConfig, progress: Progress
) -> Perplexity:
    """The perplexity of a text under the model of a checkpoint.

    Args:
        checkpoint: the weights and the tokenizer.
        text: at least two tokens.
        window: tokens per window, at least 2.
        settings: element type, ranks and quantization; its sizes are ignored.
        progress: notified of long tasks.

    Raises:
        GraphgenError: as :func:`read_windows`; GG05xx and GG06xx for the checkpoint.
    """
    windows = read_windows(checkpoint, text, window)
    session = every_token_session(checkpoint, len(windows[0]), settings, progress)
    return session_perplexity(session, windows, settings, progress)


def session_perplexity(
    session: Session, windows: Sequence[Sequence[int]], settings: CompileConfig, progress: Progress
) -> Perplexity:
    """The perplexity of a text in windows.

    Args:
        session: of :func:`every_token_session`.
        windows: of :func:`read_windows`.
        settings: that the session's programs were compiled for.
        progress: notified of long tasks.
    """
    nats, saturation = 0.0, None
    for logits, part in zip(window_logits(session, windows, progress), windows, strict=True):
        nats += surprise(logits, part)
        found = cache_saturation(session, settings)
        saturation = found and found + (saturation or CacheSaturation())
    return Perplexity(predicted(windows), nats, weight_types(session.module), saturation)


def read_windows(checkpoint: Checkpoint, text: str, window: int) -> list[list[int]]:
    """The tokens of a text in windows; the last one may be shorter, and has at least two.

    Args:
        checkpoint: gives the tokenizer, and the most positions.
        text: at least two tokens.
        window: tokens per window, at least 2; no more than the text has.

    Raises:
        GraphgenError: GG0702 for a text of fewer than two tokens, GG0705 for a window longer than
            the model's positions, GG0706 for tokens that are not the model's.
    """
    config = read_model_config(checkpoint.config)
    most = config.max_position_embeddings
    if window < 2 or (most is not None and window > most):
        limit = f" and at most the model's {most} positions" if most else ""
        raise GraphgenError("GG0705", f"a window of {window} tokens: at least 2{limit} are needed")
    tokens = load_tokenizer(checkpoint.path).encode(text)
    if len(tokens) < 2:
        raise GraphgenError(
            "GG0702", f"the text has {len(tokens)} tokens", help="two are needed to predict one"
        )
    check_token_ids(tokens, config.vocab_size, "the text")
    window = min(window, len(tokens))
    return [tokens[start : start + window] for start in range(0, len(tokens) - 1, window)]


def predicted(windows: Sequence[Sequence[int]]) -> int:
    """The tokens that are predicted: all but the first of each window."""
    return sum(len(part) - 1 for part in windows)


def window_logits(
    session: Session, windows: Sequence[Sequence[int]], progress: Progress
) -> Iterator[npt.NDArray[np.float32]]:
    """The logits of each window, f32 [S,V]; row i predicts token i + 1.

    Args:
        session: of :func:`every_token_session`.
        windows: of :func:`read_windows`.
        progress: notified of long tasks.
    """
    with progress.task("reading the text") as report:
        for done, part in enumerate(windows):
            session.reset()
            yield session.prefill([part])[0]
            report((done + 1) / len(windows))


def every_token_session(
    checkpoint: Checkpoint,
    window: int,
    settings: CompileConfig,
    progress: Progress,
    beside: Session | None = None,
) -> Session:
    """A session of one row with one program that returns the logits of every token.

    Args:
        checkpoint: the weights.
        window: most tokens of a call.
        settings: element type, ranks and quantization; its sizes are ignored.
        progress: notified of long tasks.
        beside: a session of the same checkpoint, whose weights are used in place where its programs
            read them in the same form.
    """
    configure(share_ranks(settings.tp))
    sized = replace(settings, sampling="").serving(batch=1, max_len=window)
    checkpoint = as_stored(checkpoint, keep=settings.keep_quantized)
    with progress.task("building the graph"):
        built = build_model(checkpoint.config, sized, every_token=True)
    check_checkpoint(checkpoint, built.module)
    agree_on_program(checkpoint.config, checkpoint.fingerprint, sized, built.module)
    if beside is not None and have_same_weights(built.module, beside.module):
        placed = beside.weights
    else:
        placed = put_weights(weights_of(checkpoint, built.module), progress)
    return Session(ExecutableCache(built.module, progress), placed)


def surprise(logits: npt.NDArray[np.float32], tokens: Sequence[int]) -> float:
    """Sum of -log p over all tokens but the first.

    Args:
        logits: f32 [S,V]; row i predicts token i + 1; S may exceed the number of tokens.
        tokens: of one window.
    """
    wide = logits[: len(tokens) - 1].astype(np.float64)
    top = wide.max(-1)
    norm = top + np.log(np.exp(wide - top[:, None]).sum(-1))
    return float((norm - wide[np.arange(len(tokens) - 1), tokens[1:]]).sum())
