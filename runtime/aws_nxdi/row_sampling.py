"""The sampling inputs of a call, for programs that draw tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.compile_settings import sampling_defaults
from graphgen.runtime.aws_config.neuron_config import NeuronConfig, OnDeviceSamplingConfig
from graphgen.runtime.aws_nxdi.user_arrays import UserArray, as_numpy, as_user_array
from graphgen.runtime.sampling.on_device_sampling import below_one, sampling_row
from graphgen.runtime.sampling.sampling_params import prepare_sampling_params as rows_of_settings
from graphgen.runtime.sampling.sampling_params import settings_of_params, validate_sampling_params
from graphgen.runtime.session.session import Session
from graphgen.runtime.session.step_call import Draw

# A count to as many numbers in [0, 1).
RandomNumbers = Callable[[int], npt.NDArray[np.float64]]
# top_k, top_p and temperature that AWS's helpers give where nothing is requested.
_NEUTRAL = (1.0, 1.0, 1.0)


def prepare_sampling_params(
    batch_size: int,
    top_k: float | Sequence[float] = (1,),
    top_p: float | Sequence[float] = (1.0,),
    temperature: float | Sequence[float] = (1.0,),
) -> UserArray:
    """The ``sampling_params`` of forward, f32 [B,3], in torch if the program imported it.

    Args:
        batch_size: B.
        top_k, top_p, temperature: of all rows, or a list of one for all or of one a row.

    Raises:
        GraphgenError: GG0705 for a list of another length.
    """
    return as_user_array(rows_of_settings(batch_size, top_k, top_p, temperature))


def row_draw(
    session: Session,
    rows: int,
    sampling_params: object,
    config: NeuronConfig,
    random: RandomNumbers,
) -> Draw | None:
    """The inputs of sampling programs for one call; ``None`` for programs that do not sample.

    Args:
        session: the loaded programs.
        rows: B, rows of the call.
        sampling_params: f32 [B,3] of top_k, top_p and temperature; [1,3] for all rows. By default
            those of ``on_device_sampling_config``.
        config: has that configuration.
        random: gives the random numbers.

    Raises:
        GraphgenError: GG0705 for another shape or values out of range, GG0903 for values that
            programs without dynamic sampling do not use.
    """
    if not session.draws and sampling_params is None:
        return None
    fixed = sampling_defaults(config)
    given: object = [fixed] * rows
    if sampling_params is not None:
        array = as_numpy(sampling_params)
        if _dynamic(config):
            given = array
        else:
            params = validate_sampling_params(array, rows)
            _require_fixed(params, fixed)
            given = [fixed if row[2] else row for row in params.tolist()]
    if not session.draws:
        return None
    settings = settings_of_params(given, rows, session.candidates)
    params = np.array([sampling_row(how) for how in settings], np.float32)
    return Draw(params, below_one(random(rows)))


def _require_fixed(given: npt.NDArray[np.float32], fixed: tuple[float, float, float]) -> None:
    """Refuse draws that differ from those of the programs (GG0903); temperature 0 draws none."""
    wanted = [np.array(row, np.float32).tolist() for row in (fixed, _NEUTRAL)]
    other = [row for row in given.tolist() if row[2] and row not in wanted]
    if other:
        raise GraphgenError(
            "GG0903",
            f"sampling_params {other[0]} (top_k, top_p, temperature) need dynamic on-device "
            "sampling",
            help="NeuronConfig(on_device_sampling_config=OnDeviceSamplingConfig(do_sample=True, "
            "dynamic=True)), or leave sampling_params out",
        )


def _dynamic(config: NeuronConfig) -> bool:
    sampling = config.value("on_device_sampling_config")
    return isinstance(sampling, OnDeviceSamplingConfig) and bool(sampling.value("dynamic"))
