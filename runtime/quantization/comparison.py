"""Compare quantization schemes on one text with the same model in f32."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import (
    ACTIVATIONS_BLOCKS,
    ACTIVATIONS_DYNAMIC,
    ACTIVATIONS_STATIC,
    ACTIVATIONS_WIDE,
    DTYPES,
)
from graphgen.errors import GraphgenError
from graphgen.json_value import Json
from graphgen.passes.quantization.quantize_flags import quantization_pass
from graphgen.passes.quantization.schemes import scheme_of_text
from graphgen.read_file import is_there
from graphgen.runtime.accuracy.perplexity import (
    every_token_session,
    predicted,
    surprise,
    window_logits,
)
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.progress import Progress
from graphgen.runtime.sampling.processors import log_softmax
from graphgen.runtime.weights.rank_weights import weight_bytes

Logits = npt.NDArray[np.float32]


# In a list of --compare: a GGUF file's weights in its own blocks.
STORED = "stored"


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """One row of a comparison before it is measured.

    Attributes:
        name: as the user wrote it.
        settings: element type, ranks and quantization.
        checkpoint: the weights; ``None`` for those of the model.
    """

    name: str
    settings: CompileConfig
    checkpoint: Checkpoint | None = None


@dataclass(frozen=True, slots=True)
class SchemeScore:
    """One row of a comparison.

    Attributes:
        name: as the user wrote it.
        perplexity: of the text.
        divergence: mean over tokens of KL(f32 || this), nats.
        agreement: part of the tokens whose most likely token is that of f32.
        weight_bytes: bytes of weights that the programs read, per rank.
    """

    name: str
    perplexity: float
    divergence: float
    agreement: float
    weight_bytes: int

    def to_json(self) -> dict[str, Json]:
        """The attributes by name."""
        return {
            "name": self.name,
            "perplexity": self.perplexity,
            "kl_to_f32": self.divergence,
            "top1_agreement": self.agreement,
            "weight_bytes": self.weight_bytes,
        }


def compared_models(names: str, base: CompileConfig) -> list[ComparedModel]:
    """The models that a list of names stands for.

    Args:
        names: separated by commas: ``f32``, ``bf16`` or ``f16``; ``int8``, ``f8e4m3`` or another
            quantized element type, with ``:per_tensor_symmetric`` and the like appended, and
            ``+dynamic``, ``+static`` or ``+blocks`` for activations in 8 bits too; ``stored`` for a
            GGUF file's own blocks; or the folder of a checkpoint, with ``+...`` likewise.
        base: element type of what is not quantized, ranks, and the ranges of static activations.
            The type of activations is that of quantized rows that name none.

    Raises:
        GraphgenError: GG0705 for an unknown name, GG06xx for a folder that cannot be read.
    """
    return [_compared(name.strip(), base) for name in names.split(",") if name.strip()]


_SUFFIXES = (ACTIVATIONS_DYNAMIC, ACTIVATIONS_STATIC, ACTIVATIONS_BLOCKS)


def _compared(name: str, base: CompileConfig) -> ComparedModel:
    if name in DTYPES:
        wide = _with_activations(base, ACTIVATIONS_WIDE)
        return ComparedModel(name, replace(wide, dtype=name, quantization=""))
    scheme, plus, activations = name.rpartition("+")
    if not plus or activations not in _SUFFIXES:
        scheme, activations = name, base.activation_quantization_type
    settings = _with_activations(base, activations)
    if scheme == STORED:
        return ComparedModel(name, replace(settings, quantization="", keep_quantized=True))
    if is_there(Path(scheme)):
        return ComparedModel(
            name, replace(settings, quantization=""), open_checkpoint(Path(scheme))
        )
    try:
        made = scheme_of_text(scheme)
        text = quantization_pass(True, made.scheme, made.dtype, None, made.group_size or None)
    except GraphgenError as error:
        raise GraphgenError(
            "GG0705",
            f"--compare {name}: neither an element type, nor a quantized one, nor a folder",
            note=str(error),
            help=f"such as {', '.join(DTYPES)}, int8:per_tensor_symmetric, int8+static, or a "
            "checkpoint",
        ) from error
    return ComparedModel(name, replace(settings, quantization=text or ""))


def _with_activations(base: CompileConfig, kind: str) -> CompileConfig:
    """The settings with activations of a kind; only static ones read ranges."""
    ranges = base.activation_ranges if kind == ACTIVATIONS_STATIC else ""
    return replace(base, activation_quantization_type=kind, activation_ranges=ranges)


def compare_schemes(
    checkpoint: Checkpoint,
    windows: Sequence[Sequence[int]],
    models: Iterable[ComparedModel],
    progress: Progress,
) -> list[SchemeScore]:
    """Measure each model on the same windows.

    The logits of f32 are kept in a temporary file, so that one model is in memory at a time.

    Args:
        checkpoint: the weights of f32, and of models without their own.
        windows: of :func:`~graphgen.runtime.accuracy.perplexity.read_windows`.
        models: what to measure.
        progress: notified of long tasks.
    """
    with tempfile.TemporaryFile() as file:
        reference = ReferenceLogits(file.fileno(), checkpoint, windows, progress)
        return [_score(checkpoint, reference, model, progress) for model in models]


def _score(
    checkpoint: Checkpoint, reference: ReferenceLogits, model: ComparedModel, progress: Progress
) -> SchemeScore:
    source = model.checkpoint or checkpoint
    if model.checkpoint is None and model.settings == CompileConfig(dtype="f32"):
        return reference.score(model.name, reference.windows_of_file(), reference.weight_bytes)
    session = every_token_session(source, len(reference.windows[0]), model.settings, progress)
    found = window_logits(session, reference.windows, progress)
    return reference.score(model.name, found, weight_bytes(session.module))


class ReferenceLogits:
    """The logits of a model in f32 for every token of a text, in a file.

    Args:
        file: descriptor of an empty file that is open for writing.
        checkpoint: the weights.
        windows: token ids.
        progress: notified of long tasks.

    Attributes:
        windows: token ids.
        weight_bytes: bytes of the weights in f32.
    """

    def __init__(
        self,
        file: int,
        checkpoint: Checkpoint,
        windows: Sequence[Sequence[int]],
        progress: Progress,
    ) -> None:
        self.windows = windows
        self._parts: list[Logits] = []
        session = every_token_session(
            checkpoint, len(windows[0]), CompileConfig(dtype="f32"), progress
        )
        self.weight_bytes = weight_bytes(session.module)
        found = window_logits(session, windows, progress)
        with open(file, "w+b", closefd=False) as home:
            for window, logits in zip(windows, found, strict=True):
                rows = np.ascontiguousarray(logits[: len(window) - 1])
                start = home.tell()
                home.write(rows.data)
                home.flush()
                self._parts.append(
                    np.memmap(home, np.float32, mode="r", offset=start, shape=rows.shape)
                )

    def windows_of_file(self) -> Iterable[Logits]:
        """The logits themselves, f32 [S-1,V] a window."""
        return self._parts

    def score(self, name: str, found: Iterable[Logits], size: int) -> SchemeScore:
        """Compare other logits of the same windows.

        Args:
            name: of the row.
            found: f32 [S,V] a window.
            size: bytes of the other model's weights.
        """
        nats = divergence = agreed = 0.0
        for window, wanted, logits in zip(self.windows, self._parts, found, strict=True):
            rows = logits[: len(window) - 1]
            nats += surprise(rows, window)
            divergence += kl_divergence(wanted, rows)
            agreed += float((wanted.argmax(-1) == rows.argmax(-1)).sum())
        tokens = predicted(self.windows)
        return SchemeScore(
            name, math.exp(nats / tokens), divergence / tokens, agreed / tokens, size
        )


def kl_divergence(wanted: Logits, found: Logits) -> float:
    """Sum over rows of KL(softmax(wanted) || softmax(found)), nats."""
    p, q = log_softmax(wanted), log_softmax(found)
    return float((np.exp(p) * (p - q)).sum())
