"""Makes the cases of a kit: ops, rewrites, models, options of the compiler."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence

from graphgen.runtime.device_kit.flag_cases import flag_name, flag_programs, option_claims
from graphgen.runtime.device_kit.hlo_text_cases import hlo_text_programs
from graphgen.runtime.device_kit.kit_builder import KitBuilder
from graphgen.runtime.device_kit.kit_program import KitProgram
from graphgen.runtime.device_kit.model_cases import MODELS, model_names, model_programs
from graphgen.runtime.device_kit.op_cases import op_program, op_programs
from graphgen.runtime.device_kit.rate_cases import rate_programs, rates
from graphgen.runtime.device_kit.rewrite_cases import (
    rewrite_names,
    rewrite_programs,
    rewrites_of,
)
from graphgen.targets import Accelerator

# Whether a case of a name is wanted.
Wanted = Callable[[str], bool]


def wanted_by(patterns: Sequence[str]) -> Wanted:
    """Choose by patterns as the runner does: ``op/add``, ``*/f8*``; without any, everything."""

    def wanted(name: str) -> bool:
        return not patterns or any(
            fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern.rstrip("/") + "/")
            for pattern in patterns
        )

    return wanted


def build_kit(devices: Sequence[Accelerator], wanted: Wanted) -> KitBuilder:
    """Make the cases of some targets.

    Args:
        devices: the targets.
        wanted: chooses cases by name.
    """
    builder = KitBuilder(devices)
    # Whole programs first: most is known when a run that takes hours is stopped early.
    for device in devices:
        for program in _of_target(device, wanted):
            builder.add(program, device)
    for program in _everywhere(wanted):
        for device in devices:
            builder.add(program, device)
    return builder


def _of_target(device: Accelerator, wanted: Wanted) -> Iterator[KitProgram]:
    """Programs that are lowered for a target."""
    rewrites = [name for name in rewrites_of(device) if any(map(wanted, rewrite_names(name)))]
    for name in rewrites:
        yield from (item for item in rewrite_programs(name, device) if wanted(item.name))
    for model in MODELS:
        if any(wanted(name) for name in model_names(model)):
            yield from (item for item in model_programs(model, device) if wanted(item.name))
    claims = [claim for claim in option_claims(device) if wanted(flag_name(claim))]
    if claims:
        yield from flag_programs(claims, device)


def _everywhere(wanted: Wanted) -> Iterator[KitProgram]:
    """Programs that are the same for every target."""
    for name, use in op_programs():
        if wanted(name) and (program := op_program(name, use)) is not None:
            yield program
    for program in hlo_text_programs():
        if wanted(program.name):
            yield program
    if any(wanted(rate.name) for rate in rates()):
        yield from (program for program in rate_programs() if wanted(program.name))
