"""The arguments of ``sample`` and ``forward``, checked and as arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.tnx_config import TnxGenerationConfig, exclusion
from graphgen.runtime.aws_nxdi.user_arrays import as_numpy
from graphgen.runtime.sampling import Sampling

if TYPE_CHECKING:
    import torch

# Integers, as a tensor, an array or lists.
Ids: TypeAlias = "torch.Tensor | npt.ArrayLike"
Ints = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class HostChoice:
    """The settings of a call for tokens that the host chooses; ``None`` for the default.

    Attributes:
        top_k: number of best tokens to draw from; 1 for the best one, 0 for all.
        top_p: probability that the drawn ones of the best tokens reach.
        temperature: divisor of scores.
        no_repeat_ngram_size: no n-gram of this length occurs twice.
    """

    top_k: int | None
    top_p: float | None
    temperature: float | None
    no_repeat_ngram_size: int | None

    def sampling(self, seed: int) -> Sampling:
        """The settings, with transformers-neuronx's defaults (GG0705)."""
        ngram = self.no_repeat_ngram_size or 0
        if self.top_k == 1:
            return Sampling(no_repeat_ngram_size=ngram)
        return Sampling(
            no_repeat_ngram_size=ngram,
            do_sample=True,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_k=50 if self.top_k is None else self.top_k,
            top_p=1.0 if self.top_p is None else self.top_p,
            seed=seed,
        )

    def check_compiled(self, compiled: TnxGenerationConfig, output_scores: bool) -> None:
        """Refuse settings that programs which choose tokens contradict (GG0903)."""
        if output_scores:
            raise exclusion(
                "output_scores=True",
                "the programs choose tokens and give no scores",
                "compile without on_device_generation",
            )
        for name in ("top_k", "top_p", "temperature"):
            value, mine = getattr(self, name), compiled.value(name)
            if value is not None and value != mine:
                raise exclusion(
                    f"{name}={value}",
                    f"the programs choose tokens with {name}={mine}",
                    "model.update_generation_config(...), with dynamic=True at compilation",
                )
        if self.no_repeat_ngram_size:
            raise exclusion(
                f"no_repeat_ngram_size={self.no_repeat_ngram_size}",
                "the programs choose tokens without it",
                "compile without on_device_generation",
            )


def refuse_unknown(arguments: Mapping[str, object]) -> None:
    """Refuse arguments that ``sample`` does not have (GG0901)."""
    for name in arguments:
        raise GraphgenError(
            "GG0901", f"sample has no argument '{name}'", help="see help(model.sample)"
        )


def random_seed() -> int:
    """A seed that follows from PyTorch's random numbers."""
    import torch

    return int(torch.randint(0, 1 << 62, ()).item())


def matrix(values: Ids, name: str) -> Ints:
    """Integers [B,S] (GG0705)."""
    array = as_numpy(values)
    if array.ndim != 2 or not array.size or array.dtype.kind not in "iu":
        raise GraphgenError(
            "GG0705",
            f"{name} is {array.dtype} {[*array.shape]}, not integers [B,S]",
            help="tokenizer(texts, return_tensors='pt', padding=True).input_ids is of this kind",
        )
    return array.astype(np.int32)


def vector(values: Ids, rows: int, name: str) -> Ints:
    """Integers, one for each of ``rows`` rows (GG0705)."""
    array = as_numpy(values).astype(np.int32).reshape(-1)
    if len(array) != rows:
        raise GraphgenError(
            "GG0705", f"{name} has {len(array)} values for {rows} rows", help="give one for each"
        )
    return array


def positions_of(ids: Ints, cache_ids: Ids | None, start_ids: Ids | None) -> Ints:
    """The position of each token, s32 [B,S]; -1 for padding.

    Args:
        ids: s32 [B,S].
        cache_ids: integers [S], counted from the first column; integers [B,S], of which those after
            the first run of consecutive ones are padding; ``None`` for 0 to S - 1.
        start_ids: integers [B], columns of padding before each row.

    Raises:
        GraphgenError: GG0705 for arrays of other shapes.
    """
    rows, columns = ids.shape
    starts = np.zeros(rows, np.int32)
    if start_ids is not None:
        starts = vector(start_ids, rows, "start_ids")
    counted = np.arange(columns, dtype=np.int32)
    places = counted if cache_ids is None else as_numpy(cache_ids).astype(np.int32)
    if places.shape not in ((rows, columns), (columns,)):
        raise GraphgenError(
            "GG0705",
            f"cache_ids is {[*places.shape]} and input_ids {[rows, columns]}",
            help=f"give [{columns}], or [{rows}, {columns}]",
        )
    if places.ndim == 2:
        run = np.logical_and.accumulate(places == places[:, :1] + counted, axis=1)
        places = np.where(run, places, -1)
    positions = np.where(places < 0, -1, places - starts[:, None])
    return np.maximum(positions, -1).astype(np.int32)
