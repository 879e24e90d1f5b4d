"""How well a model foresees a text: its perplexity, from the logits of every token.

The text is cut into windows of equal length. In each, every token but the first is predicted from
those before it in the window; perplexity is e to the mean of minus the log of the probabilities
that the tokens had. Hugging Face's guide calls this the version without overlap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from graphgen.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.pjrt import configure
from graphgen.models import read_model_config
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.validate_tensors import check_checkpoint
from graphgen.runtime.executable_cache import ProgramStore
from graphgen.runtime.model import build_model
from graphgen.runtime.progress_callback import Progress
from graphgen.runtime.session import Session
from graphgen.runtime.tokenizer import load_tokenizer
from graphgen.runtime.weights.rank_weights import put_weights, weight_bytes, weights_of


@dataclass(frozen=True, slots=True)
class Perplexity:
    """What a text cost.

    Attributes:
        tokens: how many were predicted.
        nats: minus the log of their probabilities, added up.
        weight_bytes: what the programs read of weights, on one rank.
    """

    tokens: int
    nats: float
    weight_bytes: int

    @property
    def value(self) -> float:
        """The perplexity: 1 for a text foreseen for certain."""
        return math.exp(self.nats / self.tokens)


def perplexity(
    checkpoint: Checkpoint, text: str, window: int, settings: CompileConfig, progress: Progress
) -> Perplexity:
    """The perplexity of a text under the model of a checkpoint.

    Args:
        checkpoint: its weights and tokenizer.
        text: at least two tokens.
        window: tokens of a window, at least 2.
        settings: element type, ranks and quantization; its sizes are not used.
        progress: told about long work.

    Raises:
        GraphgenError: GG0702 for a text with nothing to predict, GG0705 for a window that the model
            has not the positions for; GG05xx and GG06xx for the checkpoint.
    """
    most = read_model_config(checkpoint.config).max_position_embeddings
    if window < 2 or (most is not None and window > most):
        limit = f" and at most the model's {most} positions" if most else ""
        raise GraphgenError("GG0705", f"a window of {window} tokens: at least 2{limit} are needed")
    tokens = load_tokenizer(checkpoint.path).encode(text)
    if len(tokens) < 2:
        raise GraphgenError(
            "GG0702", f"the text has {len(tokens)} tokens", help="two are needed to predict one"
        )
    window = min(window, len(tokens))
    session = _open(checkpoint, window, settings, progress)
    starts = range(0, len(tokens) - 1, window)
    nats = 0.0
    with progress.task("reading the text") as report:
        for done, start in enumerate(starts):
            part = tokens[start : start + window]
            session.reset()
            nats += surprise(session.prefill([part])[0], part)
            report((done + 1) / len(starts))
    return Perplexity(len(tokens) - len(starts), nats, weight_bytes(session.module))


def _open(
    checkpoint: Checkpoint, window: int, settings: CompileConfig, progress: Progress
) -> Session:
    """A session of one row whose one program gives the logits of every token."""
    configure(settings.tp)
    sized = replace(settings, sampling="").serving(batch=1, max_len=window)
    with progress.task("building the graph"):
        built = build_model(checkpoint.config, sized, every_token=True)
    check_checkpoint(checkpoint, built.module)
    placed = put_weights(weights_of(checkpoint, built.module), progress)
    return Session(ProgramStore(built.module, progress), placed)


def surprise(logits: npt.NDArray[np.float32], tokens: Sequence[int]) -> float:
    """Minus the log of the probabilities of all tokens but the first, added up.

    Args:
        logits: f32 [S,V], those at position i for token i + 1; S may be more than there are tokens.
        tokens: of one window.
    """
    wide = logits[: len(tokens) - 1].astype(np.float64)
    top = wide.max(-1)
    norm = top + np.log(np.exp(wide - top[:, None]).sum(-1))
    return float((norm - wide[np.arange(len(tokens) - 1), tokens[1:]]).sum())
