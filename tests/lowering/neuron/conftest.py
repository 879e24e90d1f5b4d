"""Programs of a small model for trn2, and the stand-in for neuronx-cc."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.ir import Module, dtype
from graphgen.lowering.compile_cache.neuron_cache import NeuronCache
from graphgen.lowering.neuronx_cc.command_line import OptionLayer
from graphgen.lowering.neuronx_cc.default_options import Situation
from graphgen.lowering.neuronx_cc.driver import CompileDriver, DriverSettings
from graphgen.lowering.neuronx_cc.neuron_compiler import find_compiler
from graphgen.lowering.neuronx_cc.program_plan import (
    PlannedProgram,
    options_by_default,
    plan_programs,
    program_folder,
    write_program,
)
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.targets import accelerator
from tests.fake_compiler.fake_neuron import FakeNeuron


@pytest.fixture(scope="session")
def lowered() -> Module:
    """A mini Llama for trn2: a prefill program and two decode programs."""
    module = build(known_shape("llama-3.1-8b"), dtype("bf16"), twin="mini")
    sizes = CompileConfig(target="trn2", context=(8,), tokens=(8, 16))
    run_pipeline(module, default(sizes))
    return module


@pytest.fixture
def fake(tmp_path: Path) -> FakeNeuron:
    return FakeNeuron(tmp_path / "fake")


@pytest.fixture
def planned(lowered: Module) -> Callable[..., list[PlannedProgram]]:
    """Plans the programs and writes their files below a folder."""

    def plan(root: Path, flags: str = "", only: str = "") -> list[PlannedProgram]:
        device = accelerator("trn2", 2)
        base = Situation("", "trn2", 2, 16)
        layers = [OptionLayer("--flags", flags)] if flags else []
        options = options_by_default(base, device, {"prefill": "context"}, layers)
        programs = plan_programs(lowered, options)
        chosen = [item for item in programs if only in item.name]
        return [
            write_program(lowered, item, program_folder(item, root), root, metadata=True)
            for item in chosen
        ]

    return plan


@pytest.fixture
def driver(fake: FakeNeuron, tmp_path: Path) -> Callable[..., CompileDriver]:
    """Drivers of the stand-in, by default over one cache."""

    def make(
        cache: Path | None = None, notes: list[Sequence[str]] | None = None, **settings: object
    ) -> CompileDriver:
        environment = fake.environment
        compiler = find_compiler(environment=environment)
        held = DriverSettings(environment=environment, **settings)  # pyright: ignore[reportArgumentType]
        kept: list[Sequence[str]] = [] if notes is None else notes
        return CompileDriver(
            compiler,
            NeuronCache(cache or tmp_path / "cache"),
            held,
            lambda *change: kept.append(change),
        )

    return make
