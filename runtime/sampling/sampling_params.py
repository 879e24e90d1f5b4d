"""The array ``sampling_params`` [B,3] of NxD Inference: top_k, top_p, temperature of each row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.sampling.sampling_settings import Sampling

COLUMNS = ("top_k", "top_p", "temperature")
Params = npt.NDArray[np.float32]


def prepare_sampling_params(
    batch_size: int,
    top_k: float | Sequence[float] = (1,),
    top_p: float | Sequence[float] = (1.0,),
    temperature: float | Sequence[float] = (1.0,),
) -> Params:
    """Settings of each row as an array, f32 [B,3]; a number, or a list of one, is for all rows.

    Args:
        batch_size: B, above 0.
        top_k: numbers of best tokens to keep; 0 or -1 for all.
        top_p: probabilities to reach.
        temperature: divisors of the scores; 0 for the best token.

    Raises:
        GraphgenError: GG0705 for a list with another length than 1 or B; values are not checked.
    """
    columns: list[Params] = []
    for name, values in zip(COLUMNS, (top_k, top_p, temperature), strict=True):
        column = _as_floats(name, values)
        column = column.reshape(1) if column.ndim == 0 else column
        if column.ndim != 1 or column.size not in (1, batch_size):
            count = f"{column.size} values" if column.ndim == 1 else f"the shape {column.shape}"
            raise GraphgenError(
                "GG0705",
                f"{name} has {count} for a batch of {batch_size}",
                help="give a number, a list of one value, or one of a value a row",
            )
        columns.append(np.broadcast_to(column, (batch_size,)))
    return np.stack(columns, 1)


def validate_sampling_params(
    params: object, batch_size: int | None = None, global_topk: int = 0
) -> Params:
    """The checked array, f32 [B,3]; an array of one row is repeated for ``batch_size`` rows.

    Args:
        params: [B,3] as nested lists or as an array: top_k a whole number, -1 or 0 for all or at
            most ``global_topk``; top_p above 0 and at most 1; temperature 0 or above.
        batch_size: B; ``None`` for the number of rows of ``params``.
        global_topk: number of best tokens that programs look at; 0 for all.

    Raises:
        GraphgenError: GG0705 that names row, setting, value and range.
    """
    array = _as_floats("sampling_params", params)
    _check_shape(array, batch_size)
    for row, values in enumerate(array):
        _setting(row, values, global_topk)
    return np.array(np.broadcast_to(array, (batch_size or array.shape[0], 3)))


def settings_of_params(
    params: object,
    batch_size: int | None = None,
    global_topk: int = 0,
    *,
    seed: int = 0,
    deterministic: bool = False,
) -> list[Sampling]:
    """The sampling settings of each row of :func:`validate_sampling_params` (GG0705).

    Args:
        params: [B,3].
        batch_size: B; ``None`` for the number of rows of ``params``.
        global_topk: number of best tokens to draw from; 0 for all.
        seed: of the random numbers.
        deterministic: draw with the number 0.5 each time.
    """
    made: list[Sampling] = []
    for row, values in enumerate(validate_sampling_params(params, batch_size, global_topk)):
        top_k, top_p, temperature = _setting(row, values, global_topk)
        made.append(
            Sampling(
                do_sample=True,
                temperature=temperature,
                global_topk=global_topk,
                top_k=int(top_k),
                top_p=top_p,
                seed=seed,
                deterministic=deterministic,
            )
        )
    return made


def _as_floats(name: str, values: object) -> Params:
    """Values as f32; refuse what has no numbers or ragged rows (GG0705)."""
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.empty(0, np.object_)
    if array.dtype.kind not in "iuf":
        raise GraphgenError(
            "GG0705",
            f"{name} is {str(values)[:60]}, not an array of numbers",
            help="give rows of equal length: [[top_k, top_p, temperature], ...]",
        )
    return array.astype(np.float32)


def _check_shape(array: Params, batch_size: int | None) -> None:
    """Refuse a shape other than [B,3] and [1,3] (GG0705)."""
    wanted = f"({'B' if batch_size is None else batch_size}, 3)"
    rows = array.shape[0] if array.ndim == 2 else 0
    fits = rows > 0 and (batch_size is None or rows in (1, batch_size))
    if not fits or array.shape[1] != len(COLUMNS):
        raise GraphgenError(
            "GG0705",
            f"sampling_params has the shape {array.shape}, not {wanted}",
            help="give each row top_k, top_p and temperature; one row is for all",
        )


def _setting(row: int, values: Params, global_topk: int) -> tuple[float, float, float]:
    """top_k, top_p and temperature of a row, refused with its number (GG0705)."""
    top_k, top_p, temperature = (float(value) for value in values)
    try:
        # Both with and without sampling: a temperature of 0 hides no wrong top_p.
        Sampling(do_sample=True, temperature=temperature, top_k=top_k, top_p=top_p)  # pyright: ignore[reportArgumentType]
    except GraphgenError as error:
        raise GraphgenError(
            "GG0705", f"sampling_params, row {row}: {error.what}", help=error.help
        ) from None
    if 0 < global_topk < top_k:
        raise GraphgenError(
            "GG0705",
            f"sampling_params, row {row}: top_k is {top_k:g}, not in [0, {global_topk}]",
            note=f"programs look at the {global_topk} best tokens only (global_topk)",
            help="ask for fewer, -1 for all of them, or compile with a larger global_topk",
        )
    return top_k, top_p, temperature
