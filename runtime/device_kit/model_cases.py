"""Mini twins of the families: the prefill and the decode program of each, with random weights."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.config.option_words import KERNELS_OFF
from graphgen.eval import Array
from graphgen.exec import NumpyBackend, run_program
from graphgen.exec.backend import RankArrays
from graphgen.exec.bind import bind_module, isolate
from graphgen.exec.inputs import program_inputs
from graphgen.ir import Entry, Function, Module, Role, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.runtime.device_kit.kit_program import MODEL_TOLERANCE, KitProgram, kit_program
from graphgen.targets import Accelerator

PHASES = ("prefill", "decode")
# A model of each structure that the families have, and its element type: with routers, which choose
# experts by their scores, in f32, so that no rounding chooses another one.
MODELS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("llama-3.1-8b", "mistral-7b", "qwen2-7b", "qwen3-8b", "gemma-3-1b", "gpt2"),
            *("opt-125m", "gpt-neox-20b", "bloom-560m", "olmo-2-7b", "phi-3-mini"),
        ),
        "bf16",
    ),
    **dict.fromkeys(
        ("mixtral-8x7b", "qwen3-30b-a3b", "gpt-oss-20b", "deepseek-v2-lite", "llama-4-scout"),
        "f32",
    ),
}
_SLOTS, _PROMPT = 16, 8
# Standard deviation of weights: products of mini twins neither vanish nor grow.
_WEIGHTS = 0.12
# Positions of a row before the token of a decode program.
_FILLED = 5


def model_names(model: str) -> list[str]:
    """The names of a model's cases."""
    return [f"model/{model}/{phase}" for phase in PHASES]


def model_programs(model: str, device: Accelerator) -> Iterator[KitProgram]:
    """The programs of a model for a target; one core, weights and caches are arguments."""
    module = build(known_shape(model), dtype(MODELS[model]), twin="mini")
    config = CompileConfig(
        dtype=MODELS[model],
        target=device.name,
        context=(_PROMPT,),
        tokens=(_SLOTS,),
        kernels=KERNELS_OFF,
    )
    run_pipeline(module, default(config))
    for function in module.programs():
        sizes = {name: size for name, size in function.dims.items() if isinstance(size, int)}
        alone = bind_module(isolate(module, function), sizes)
        name = f"model/{model}/{function.phase}"
        yield _program(name, alone, alone.function(function.name), MODELS[model])


def _program(name: str, module: Module, function: Function, kind: str) -> KitProgram:
    given = {
        row.name: array
        for row in module.interface.values()
        if (array := _array(row, function)) is not None
    }
    arrays = program_inputs(module, function, given, 0, per_rank=False).shared
    recorder = _RecordingBackend()
    run_program(module, function, arrays, recorder)
    inputs = {value.name or "": recorder.inputs[value.name or ""] for value in function.args}
    return kit_program(
        name, module, function, inputs, recorder.outputs, tolerance=MODEL_TOLERANCE[kind]
    )


def _array(row: Entry, function: Function) -> Array | None:
    """Weights that each part of the result depends on, and caches that hold something.

    In a decode program, the place of the token that follows.
    """
    random = np.random.default_rng(zlib.crc32(row.name.encode()))
    if row.role is Role.WEIGHT and row.logical.dtype.is_float:
        noise = random.standard_normal(row.logical.dims, np.float32) * np.float32(_WEIGHTS)
        return noise + np.float32("norm" in row.name and row.logical.rank == 1)
    if row.role is Role.STATE:
        return random.standard_normal(row.logical.dims, np.float32) * np.float32(0.5)
    if function.phase != "decode":
        return None
    if row.name == "positions":
        return np.full(row.logical.dims, _FILLED, np.int32)
    if row.name == "lengths":
        return np.full(row.logical.dims, _FILLED + 1, np.int32)
    return None


@dataclass
class _RecordingBackend:
    """NumPy as a backend that records the inputs and outputs of each program."""

    inputs: Mapping[str, Array] = field(default_factory=dict[str, Array])
    outputs: Mapping[str, Array] = field(default_factory=dict[str, Array])

    def __call__(
        self, module: Module, function: Function, inputs: RankArrays
    ) -> list[dict[str, Array]]:
        with np.errstate(all="ignore"):
            found = NumpyBackend()(module, function, inputs)
        self.inputs, self.outputs = inputs[0], found[0]
        return found
