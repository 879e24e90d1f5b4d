"""A process of its own: compiles a mini Llama, loads it on the stand-in's device and compares."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.exec.backend import NumpyBackend
from graphgen.lowering.compile_cache.neuron_cache import NeuronCache
from graphgen.lowering.neuronx_cc.driver import CompileDriver, DriverSettings
from graphgen.lowering.neuronx_cc.neuron_compiler import find_compiler
from graphgen.lowering.neuronx_cc.program_plan import plan_programs, program_folder, write_program
from graphgen.models import known_shape
from graphgen.runtime.artifact.device_folder import open_device_folder, write_device_folder
from graphgen.runtime.artifact.device_programs import device_programs
from graphgen.runtime.artifact.load_program import NeuronBackend
from graphgen.targets import accelerator
from tests.fake_compiler.fake_neuron import FakeNeuron

SMALL = {
    "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip


def main(root: Path) -> dict[str, object]:
    """What happened, as JSON."""
    fake = FakeNeuron(root / "fake")
    settings = CompileConfig(target="trn1", dtype="f32", tp=2, context=(8,), tokens=(8,))
    config = {**known_shape("llama-3.1-8b"), **SMALL}
    programs = device_programs(config, settings, accelerator("trn1"), [])
    module = programs.module
    planned = [
        write_program(
            module, item, program_folder(item, root / "out"), root / "out", metadata=False
        )
        for item in plan_programs(module, programs.options)
    ]
    compiler = find_compiler(environment=fake.environment)
    cache = NeuronCache(root / "cache")
    made = CompileDriver(compiler, cache, DriverSettings(environment=fake.environment)).run(planned)
    write_device_folder(root / "out", programs, made, compiler.version)
    folder = open_device_folder(root / "out")
    said: dict[str, object] = {}
    try:
        NeuronBackend(folder, {**os.environ, "NEURON_RT_NUM_CORES": "3"})
    except GraphgenError as error:
        said["refused"] = [error.code, error.note]
    wanted = folder.manifest["environment"]
    assert isinstance(wanted, dict)
    backend = NeuronBackend(folder, wanted)
    function = module.function("decode.b1.c8")
    generator = np.random.default_rng(0)
    inputs = [
        {
            value.name or "": (
                generator.normal(0, 0.2, value.type.dims).astype("f4")
                if value.dtype.is_float
                else np.zeros(
                    value.type.dims, value.dtype.name.replace("s", "i").replace("32", "4")
                )
            )
            for value in function.args
        }
        for _ in range(2)
    ]
    ours = backend(module, function, inputs)
    theirs = NumpyBackend()(module, function, inputs)
    said["difference"] = max(
        float(np.abs(a[name].astype("f4") - b[name].astype("f4")).max())
        for a, b in zip(ours, theirs, strict=True)
        for name in a
    )
    backend(module, function, inputs)
    from jax_plugins import neuron_stand_in  # pyright: ignore[reportMissingImports]

    said["loaded"] = neuron_stand_in.LOADED
    try:
        backend(module, module.function("prefill.b1.s8"), [{}, {}, {}])
    except GraphgenError as error:
        said["cores"] = [error.code, error.what]
    return said


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
