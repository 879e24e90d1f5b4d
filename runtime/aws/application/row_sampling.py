"""The sampling inputs of a call, for programs that draw tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.application.forward_inputs import RowInput
from graphgen.runtime.aws.application.user_arrays import as_numpy
from graphgen.runtime.aws.config.neuron_config import NeuronConfig
from graphgen.runtime.aws.config.strict_config import StrictConfig
from graphgen.runtime.session import Draw, Session

# A count to as many numbers in [0, 1).
RandomNumbers = Callable[[int], npt.NDArray[np.float64]]
_NEUTRAL = np.ones(3, np.float32)


def row_draw(
    session: Session,
    rows: Sequence[RowInput],
    sampling_params: object,
    config: NeuronConfig,
    random: RandomNumbers,
) -> Draw | None:
    """The inputs of sampling programs for one call; ``None`` for programs that do not sample.

    Args:
        session: the loaded programs.
        rows: of the call.
        sampling_params: f32 [B,3] of top_k, top_p and temperature; [1,3] for all rows. By default
            those of ``on_device_sampling_config``.
        config: has that configuration.
        random: gives the random numbers.

    Raises:
        GraphgenError: GG0402 for another shape or values out of range, GG0903 for values that
            programs without dynamic sampling do not use.
    """
    given = None if sampling_params is None else _params(sampling_params, len(rows))
    fixed = _configured(config)
    if given is not None and not _dynamic(config):
        if not all(np.array_equal(row, _NEUTRAL) or np.array_equal(row, fixed) for row in given):
            raise GraphgenError(
                "GG0903",
                f"sampling_params {given.tolist()} need dynamic on-device sampling",
                help="NeuronConfig(on_device_sampling_config=OnDeviceSamplingConfig("
                "do_sample=True, dynamic=True)), or leave sampling_params out",
            )
        given = None
    if not session.draws:
        return None
    params = np.tile(np.array([1, 1, 0], np.float32), (session.rows, 1))
    numbers = np.zeros(session.rows, np.float32)
    drawn = random(len(rows))
    for index, row in enumerate(rows):
        params[row.row] = fixed if given is None else given[index]
        numbers[row.row] = drawn[index]
    # A number just below 1 rounds to 1 in f32, outside of the interval [0, 1).
    return Draw(params, np.minimum(numbers, np.float32(1 - 2**-24)))


def _params(value: object, rows: int) -> npt.NDArray[np.float32]:
    """The parameters per row (GG0402)."""
    array = as_numpy(value).astype(np.float32)
    if array.ndim != 2 or array.shape[1] != 3 or len(array) not in (1, rows):
        raise GraphgenError(
            "GG0402",
            f"sampling_params is {[*array.shape]}, not [{rows},3]",
            help="a row of top_k, top_p and temperature for each sequence",
        )
    return np.broadcast_to(array, (rows, 3))


def _sampling(config: NeuronConfig) -> StrictConfig | None:
    """The configuration of on-device sampling, if there is one."""
    try:
        return cast("StrictConfig | None", config.value("on_device_sampling_config"))
    except GraphgenError:
        return None


def _dynamic(config: NeuronConfig) -> bool:
    sampling = _sampling(config)
    return sampling is not None and bool(sampling.value("dynamic"))


def _configured(config: NeuronConfig) -> npt.NDArray[np.float32]:
    """top_k, top_p and temperature of the configuration; greedy without one."""
    sampling = _sampling(config)
    if sampling is None:
        return np.array([1, 1, 1], np.float32)
    values = [sampling.value(name) for name in ("top_k", "top_p", "temperature")]
    return np.array([float(str(value)) for value in values], np.float32)
