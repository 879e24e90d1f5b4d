"""A compiled module in Python: its programs, the journal of the passes, and a proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from graphgen.atomic_write import write_inside
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.gc_pause import paused_collector
from graphgen.ir import Module
from graphgen.ir.clone import clone_module
from graphgen.lowering.program_file import program_bytes
from graphgen.passes.core.journal import Journal
from graphgen.runtime.model import PassStep, build_model, logical_module, steps_of
from graphgen.targets import accelerator, find_target

if TYPE_CHECKING:
    from graphgen.passes.core import Pass
    from graphgen.passes.proof.refinement_result import RefinementProof


@dataclass(frozen=True)
class CompiledModule:
    """A module at level ``target``.

    Attributes:
        target: name of the target.
        source: the module before the passes.
        module: after them; it has all programs, the interface and the weight preparation.
        journal: every rewrite of the passes, and the nearest misses of their rules.
        passes: the report of each pass, in order.
        proof: what was proved of every output and state; ``None`` if it was not requested.
    """

    target: str
    source: Module
    module: Module
    journal: Journal
    passes: Sequence[PassStep]
    proof: RefinementProof | None = None

    def __repr__(self) -> str:
        names = ", ".join(function.name for function in self.module.programs())
        return f"<CompiledModule {self.module.name} for {self.target}: {names}>"

    @property
    def ending(self) -> str:
        """Ending of the files of programs: ``.mlir`` for the CPU, ``.pb`` for accelerators."""
        return ".pb" if find_target(self.target).is_accelerator else ".mlir"

    @cached_property
    def programs(self) -> Mapping[str, bytes]:
        """The programs by name: StableHLO text for the CPU, HLO protobufs for accelerators."""
        return {
            function.name: b"".join(program_bytes(self.module, function, self.ending))
            for function in self.module.programs()
        }

    def write(self, folder: str | Path) -> list[Path]:
        """Write programs and module to a folder, and the certificate of a proof.

        ``graphgen prove --check`` proves again what the certificate states.

        Returns:
            The files.

        Raises:
            GraphgenError: GG0704 for a folder that cannot be written.
        """
        # Only here: most programs are not written.
        from graphgen.lowering.certificate import CertificateFiles, write_certificate
        from graphgen.lowering.lowered_module import MODULE, PASSES, TARGET, with_meta
        from graphgen.text import print_module

        home = Path(folder)
        files = {name: f"{name}{self.ending}" for name in self.programs}
        stated = with_meta(
            self.module, {TARGET: self.target, PASSES: ",".join(step.name for step in self.passes)}
        )
        contents = {files[name]: data for name, data in self.programs.items()}
        contents[MODULE] = print_module(stated).encode()
        for name, data in contents.items():
            write_inside(home, home / name, data, parents=True)
        made = [home / name for name in contents]
        if self.proof is not None:
            written = CertificateFiles(home, "source.gg", MODULE, files)
            path, _ = write_certificate(self.source, None, written, "certificate.json")
            made += [home / "source.gg", path]
        return made


def compile_model(
    model: str | Path | Mapping[str, object], target: str, settings: CompileConfig, *, prove: bool
) -> CompiledModule:
    """Compile a model; see :func:`graphgen.runtime.api.compile`."""
    # Only here: modules are compiled without any model.
    from graphgen.runtime.artifact.device_programs import device_programs
    from graphgen.runtime.checkpoint.model_config import model_config

    config = model if isinstance(model, Mapping) else model_config(str(model))
    journal = Journal()
    with paused_collector():
        if find_target(target).is_accelerator:
            device = accelerator(target)
            built = device_programs(config, settings, device, (), journal=journal).built
        else:
            built = build_model(config, settings, journal=journal)
        source, _ = logical_module(built.config, built.settings)
        proof = _proof(source, built.module) if prove else None
    return CompiledModule(target, source, built.module, journal, built.reports, proof)


def compile_module(
    module: Module, target: str, dims: Mapping[str, int], pipeline: str, *, prove: bool
) -> CompiledModule:
    """Compile a module; see :func:`graphgen.runtime.api.compile`."""
    from graphgen.passes.core import run_pipeline

    find_target(target)
    source, made, journal = clone_module(module), clone_module(module), Journal()
    passes = _passes(made, target, dims, pipeline)
    steps = steps_of(run_pipeline(made, passes, journal=journal))
    proof = _proof(source, made) if prove else None
    return CompiledModule(target, source, made, journal, steps, proof)


def _passes(module: Module, target: str, dims: Mapping[str, int], pipeline: str) -> list[Pass]:
    """The passes of a pipeline, or those that bring a module to level ``target``."""
    from graphgen.analysis import free_symbols
    from graphgen.passes.partial_pipeline import foreign, remaining
    from graphgen.passes.pipelines import parse

    free = free_symbols(module.functions.values())
    unknown = next((name for name in dims if name not in free), None)
    if unknown is not None:
        what = f"@{module.name} has no symbol '{unknown}'"
        raise GraphgenError("GG0705", what, help=f"it has {', '.join(sorted(free)) or 'none'}")
    sizes = tuple(f"{name}={size}" for name, size in dims.items())
    if pipeline and sizes:
        raise GraphgenError(
            "GG0705",
            "dims and pipeline both say the sizes",
            help=f"pipeline='default{{dims=[{','.join(sizes)}]}}' says them in the pipeline",
        )
    if pipeline:
        return parse(pipeline)
    return remaining(module, target, sizes) or foreign(module, target)


def _proof(source: Module, module: Module) -> RefinementProof:
    # Only here: a proof is not made unless it is requested.
    from graphgen.passes.proof.refinement import prove_refinement

    return prove_refinement(source, module)
