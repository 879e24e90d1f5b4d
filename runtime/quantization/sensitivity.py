"""Sensitivity: the loss from quantizing one layer, or one module, alone.

The weights of one part are rounded in place of the others', in the programs of f32: nothing is
compiled again, and what differs is the rounding alone. Where the inputs of its products are rounded
too, each part has programs of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import ACTIVATIONS_WIDE
from graphgen.eval import Array
from graphgen.ir import Entry
from graphgen.json_value import Json
from graphgen.passes.quantization.quantize_weights import QuantizeWeights
from graphgen.passes.quantization.schemes import WeightScheme
from graphgen.report.figure import COLORS, picture
from graphgen.runtime.accuracy.perplexity import every_token_session, window_logits
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.progress import Progress, Silent
from graphgen.runtime.quantization.comparison import ReferenceLogits, SchemeScore
from graphgen.runtime.quantization.quantizable import (
    QuantizableWeight,
    quantizable_stacks,
    quantizable_weights,
)
from graphgen.runtime.quantization.rounding import round_trip
from graphgen.runtime.weights.rank_weights import RankWeights, put_weights

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# The default of quantize-weights.
_SKIPPED = ("lm_head",)
PARTS = ("layer", "module")
_TASK = "quantizing one part after the other"


@dataclass(frozen=True, slots=True)
class PartCost:
    """The cost of quantizing one part alone.

    Attributes:
        name: of the part, as ``--modules-to-not-convert`` takes it.
        perplexity: of the text.
        divergence: mean over tokens of KL(f32 || this), nats.
        weights: elements of the part that are quantized.
    """

    name: str
    perplexity: float
    divergence: float
    weights: int

    def to_json(self) -> dict[str, Json]:
        """The attributes by name."""
        return {
            "name": self.name,
            "perplexity": self.perplexity,
            "kl_to_f32": self.divergence,
            "weights": self.weights,
        }


def sensitivity(
    checkpoint: Checkpoint,
    windows: Sequence[Sequence[int]],
    scheme: WeightScheme,
    each: str,
    progress: Progress,
    activations: str = ACTIVATIONS_WIDE,
) -> list[PartCost]:
    """Quantize each part alone; the costs, largest first.

    Args:
        checkpoint: the model.
        windows: of :func:`~graphgen.runtime.accuracy.perplexity.read_windows`.
        scheme: how the part is rounded, to nearest.
        each: ``layer`` or ``module``.
        progress: notified of long tasks.
        activations: ``dynamic`` if what a part's weights are multiplied by is rounded to 8 bits
            too.
    """
    parts: dict[str, list[QuantizableWeight]] = {}
    found = quantizable_weights(checkpoint.config, _SKIPPED)
    found |= quantizable_stacks(checkpoint.config, _SKIPPED)
    for weight in found.values():
        parts.setdefault(weight.layer if each == "layer" else weight.module, []).append(weight)
    with tempfile.TemporaryFile() as file:
        reference = ReferenceLogits(file.fileno(), checkpoint, windows, progress)
        if activations == ACTIVATIONS_WIDE:
            costs = list(_costs(checkpoint, reference, parts, scheme, progress))
        else:
            found = _costs_of_rows(checkpoint, reference, parts, scheme, activations)
            with progress.task(_TASK) as report:
                costs: list[PartCost] = []
                for cost in found:
                    costs.append(cost)
                    report(len(costs) / len(parts))
    return sorted(costs, key=lambda cost: -cost.divergence)


def _costs(
    checkpoint: Checkpoint,
    reference: ReferenceLogits,
    parts: Mapping[str, Sequence[QuantizableWeight]],
    scheme: WeightScheme,
    progress: Progress,
) -> Iterator[PartCost]:
    window = len(reference.windows[0])
    session = every_token_session(checkpoint, window, CompileConfig(dtype="f32"), progress)
    exact = dict(session.weights)
    with progress.task(_TASK) as report:
        for done, (name, weights) in enumerate(parts.items()):
            changed = {weight.name: weight for weight in weights}

            def read(row: Entry, changed: Mapping[str, QuantizableWeight] = changed) -> Array:
                array = checkpoint.read(row.name)
                weight = changed.get(row.name)
                return array if weight is None else round_trip(array, weight.contracted, scheme)

            made = RankWeights(session.module, read, str(checkpoint.path))
            placed = put_weights(made, Silent(), changed.keys())
            session.load_weights({**exact, **placed})
            found = window_logits(session, reference.windows, Silent())
            score = reference.score(name, found, 0)
            yield PartCost(name, score.perplexity, score.divergence, _size(weights))
            report((done + 1) / len(parts))


def _size(weights: Sequence[QuantizableWeight]) -> int:
    """Elements of weights."""
    return sum(prod(weight.shape) for weight in weights)


def _costs_of_rows(
    checkpoint: Checkpoint,
    reference: ReferenceLogits,
    parts: Mapping[str, Sequence[QuantizableWeight]],
    scheme: WeightScheme,
    activations: str,
) -> Iterator[PartCost]:
    """The costs where the inputs of a part's products are rounded as well, as the passes do it."""
    for name, weights in parts.items():
        skip = (
            *_SKIPPED,
            *(weight.module for own in parts for weight in parts[own] if own != name),
        )
        pass_ = QuantizeWeights(scheme.dtype, scheme.scheme, skip, scheme.group_size)
        settings = CompileConfig(
            dtype="f32", quantization=str(pass_), activation_quantization_type=activations
        )
        session = every_token_session(checkpoint, len(reference.windows[0]), settings, Silent())
        found = window_logits(session, reference.windows, Silent())
        score = reference.score(name, found, 0)
        yield PartCost(name, score.perplexity, score.divergence, _size(weights))


# matplotlib's keyword arguments carry no types.
# pyright: reportUnknownMemberType=false


# More bars than this cannot be read.
_MOST_PARTS = 40


def comparison_picture(name: str, title: str, scores: Sequence[SchemeScore]) -> bytes:
    """The bytes of an SVG or a PNG: perplexity and divergence against the bytes of weights.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        title: of the picture.
        scores: a point each.
    """

    def draw(figure: Figure) -> None:
        figure.suptitle(title, fontsize=12)
        panels = figure.subplots(1, 2).ravel().tolist()
        sizes = [score.weight_bytes / 1e6 for score in scores]
        for axes, label, values in (
            (panels[0], "perplexity", [score.perplexity for score in scores]),
            (panels[1], "KL to f32, nats a token", [score.divergence for score in scores]),
        ):
            axes.scatter(sizes, values, color=COLORS["weights"])
            for score, x, y in zip(scores, sizes, values, strict=True):
                axes.annotate(score.name, (x, y), (4, 4), textcoords="offset points", fontsize=8)
            axes.set_xlabel("weights, MB")
            axes.set_ylabel(label)
            axes.set_xlim(left=0)

    return picture(name, (10.0, 4.5), draw)


def sensitivity_picture(name: str, title: str, costs: Sequence[PartCost]) -> bytes:
    """The bytes of an SVG or a PNG: a bar for each of the parts that cost most.

    Args:
        name: of the file, which ends in ``.svg`` or ``.png``.
        title: of the picture.
        costs: largest first.
    """
    shown = list(reversed(costs[:_MOST_PARTS]))

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.barh([cost.name for cost in shown], [cost.divergence for cost in shown])
        axes.set_title(title)
        axes.set_xlabel("KL to f32, nats a token, with this part alone quantized")
        axes.tick_params(axis="y", labelsize=7)

    return picture(name, (9.0, 1.5 + 0.18 * len(shown)), draw)
