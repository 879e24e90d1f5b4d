"""Compiling a model: from a configuration to a module ready to be lowered."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graphgen.ir import Module, Role, dtype
from graphgen.lowering.cpu.pjrt import has_matrix_unit
from graphgen.models import build, read_model_config


@dataclass(frozen=True, slots=True)
class Settings:
    """What a model is compiled for.

    Attributes:
        dtype: ``f32``, ``bf16`` or ``f16`` for weights, activations and caches.
        batch: rows of a call and of the cache.
        max_len: slots of a cache row, and the largest bucket.
        tp: ranks the model is split over.
        quantization: the pass that quantizes the weights with its options, as pipelines write it;
            empty for weights as they are.
        sampling: the pass that lets programs choose tokens, in the same way; empty for logits.
        roll_window_cache: whether layers with a window have caches that hold no more than it.
    """

    dtype: str = "f32"
    batch: int = 1
    max_len: int = 256
    tp: int = 1
    quantization: str = ""
    sampling: str = ""
    roll_window_cache: bool = False

    @property
    def buckets(self) -> tuple[int, ...]:
        """Bucket sizes of both phases."""
        # Only here: an artifact runs without any pass.
        from graphgen.passes.specialize.ladders import powers

        return powers(self.max_len)


@dataclass(frozen=True, slots=True)
class PassStep:
    """What one pass did; an artifact holds it too, so it is known where no pass is installed.

    Attributes:
        name: the pass with its options.
        ops_before, ops_after: ops in all functions.
        applications: rewrites made.
        seconds: wall time, verification excluded.
        remarks: what it has to say to the user.
    """

    name: str
    ops_before: int
    ops_after: int
    applications: int
    seconds: float
    remarks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class BuiltModel:
    """A module at level ``target`` and how it came about.

    Attributes:
        config: the configuration it was built from, Hugging Face's names.
        settings: what it was compiled for.
        module: with one program a phase and bucket.
        reports: one a pass.
    """

    config: Mapping[str, object]
    settings: Settings
    module: Module
    reports: list[PassStep] = field(default_factory=list[PassStep])

    @property
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Shape of every checkpoint tensor, by name."""
        return {row.name: row.logical.dims for row in self.module.entries(Role.WEIGHT)}

    @property
    def vocab_size(self) -> int:
        """Number of logits."""
        return read_model_config(self.config).vocab_size


def build_model(
    config: Mapping[str, object], settings: Settings, *, every_token: bool = False
) -> BuiltModel:
    """Build, specialize for every bucket, and legalize for the CPU.

    Args:
        config: a ``config.json``.
        settings: what to compile for.
        every_token: one program, a prefill of the longest bucket that gives the logits of every
            token, instead of those that generation uses.

    Raises:
        GraphgenError: GG0501, GG0502, GG0503 for the configuration, GG0304 when it cannot be split
            over ``tp`` ranks.
    """
    # Only here: an artifact runs without any pass.
    from graphgen.passes.core import parse_pipeline, run_pipeline
    from graphgen.passes.pipelines import Buckets, default

    element, sizes = dtype(settings.dtype), settings.buckets
    if every_token:
        module = build(config, element, phases=("prefill",), every_token=True)
        sizes = (settings.max_len,)
    else:
        module = build(config, element)
    buckets = Buckets((settings.batch,), sizes, sizes, slots=settings.max_len)
    # Matrix units want eight rows; without them two are as fast as one and eight cost a little.
    rows = 8 if has_matrix_unit() else 2
    quantize = next(iter(parse_pipeline(settings.quantization)), None)
    passes = parse_pipeline(settings.sampling)
    passes += default(
        buckets,
        tp=settings.tp,
        min_rows=rows,
        quantize=quantize,
        roll_window_cache=settings.roll_window_cache,
    )
    reports = run_pipeline(module, passes)
    steps = [
        PassStep(r.name, r.ops_before, r.ops_after, r.applications, r.seconds, r.remarks)
        for r in reports
    ]
    return BuiltModel(json.loads(json.dumps(dict(config))), settings, module, steps)
