"""One program with each option of the compiler, one at a time, over the default ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from graphgen.lowering.check.compiler_rules import module_rules
from graphgen.runtime.device_kit.kit_program import KitProgram
from graphgen.runtime.device_kit.model_cases import model_programs
from graphgen.runtime.kit_runner.kit_types import ACCEPTED, REFUSED, UNKNOWN, RuleNote
from graphgen.targets import Accelerator, find_target

# The program that options are tried on.
_MODEL, _PHASE = "llama-3.1-8b", "decode"
_REFERENCE = "neuronx-cc's command line reference"
_NXDI = "NxD Inference, models/model_wrapper.py"
_REPORTS = "reports of others"
_DOCUMENTED = (
    *("-O1", "-O2", "-O3", "--model-type=generic", "--model-type=transformer"),
    *("--model-type=unet-inference", "--auto-cast=none", "--auto-cast=all"),
    *(f"--auto-cast=matmult --auto-cast-type={kind}" for kind in ("bf16", "fp16", "tf32")),
    "--auto-cast=matmult --auto-cast-type=fp8_e4m3",
    *(f"--native-int64={value}" for value in ("default", "enabled", "disabled")),
    *(f"--implicit-integer-downcast={value}" for value in ("default", "all", "none")),
    "--implicit-integer-downcast=dot,scatter,all_reduce,reduce_scatter,pow",
    *("--distribution-strategy=llm-training", "--enable-mixed-precision-accumulation"),
    *("--enable-saturate-infinity", "--enable-fast-context-switch"),
    *("--enable-fast-loading-neuron-binaries", "--verbose=35"),
)
_OF_NXDI = (
    *("--disable-mixed-precision-accumulation", "--internal-disable-fma-on-ios"),
    *(f"--tensorizer-options='--cc-pipeline-tiling-factor={factor}'" for factor in (1, 2, 4)),
    "--tensorizer-options='--enable-ccop-compute-overlap'",
    "--tensorizer-options='--vectorize-strided-dma'",
    "--internal-hlo2tensorizer-options='--modular-flow-mac-threshold=10'",
    "--internal-hlo2tensorizer-options='--verify-hlo=true'",
    "--internal-hlo2tensorizer-options='--recursive-layer-det=false'",
    "--internal-hlo2tensorizer-options='--experimental-unsafe-fp8e4m3fn-as-fp8e4m3'",
    "--internal-backend-options='--enable-verifier=false'",
    "--internal-backend-options='--enable-output-completion-notifications'",
    *("--hbm-scratchpad-page-size=1024", "--internal-enable-dge-levels spill_reload"),
    *("--internal-enable-dge-levels vector_dynamic_offsets", "--enable-internal-neff-wrapper"),
)
_REPORTED = (
    *("--internal-max-instruction-limit=15000000", "--execute-repetition=1", "--disable-dge"),
    "--internal-backend-options='--max-instruction-limit=15000000'",
    "--internal-hlo2tensorizer-options='--tiled-inst-limit=15000000'",
    "--disable-hlo-operand-type-check=evrf_035",
)
# An option that there is not: a compiler that takes it checks none of them.
_INVENTED = "--graphgen-knows-of-none"
# Options that change numbers or what a core is.
_COMPILED_ONLY = ("fp8_e4m3", "--lnc", "--execute-repetition", "wrapper", "notifications")


@dataclass(frozen=True, slots=True)
class OptionClaim:
    """An option with the claim that is tested, and its source."""

    flags: str
    expects: str
    note: RuleNote


def option_claims(device: Accelerator) -> list[OptionClaim]:
    """All options that are tried on a target."""
    rows = [(_DOCUMENTED, ACCEPTED, "official", _REFERENCE)]
    rows += [(_OF_NXDI, ACCEPTED, "aws-code", _NXDI), (_REPORTED, UNKNOWN, "community", _REPORTS)]
    claims = [
        OptionClaim(flags, expects, _note(flags, "", "", trust, source))
        for texts, expects, trust, source in rows
        for flags in texts
    ]
    rule = module_rules()["lnc"]
    allowed = _allowed(device)
    for cores in (1, 2):
        legal = cores in allowed
        severity, code = ("", "") if legal else ("error", rule.code)
        note: RuleNote = {
            "rule": rule.id, "severity": severity, "code": code, "trust": rule.trust,
            "source": rule.source,
        }  # fmt: skip
        claims.append(OptionClaim(f"--lnc={cores}", ACCEPTED if legal else REFUSED, note))
    note = _note(_INVENTED, "error", "", "measured", "argparse")
    return [*claims, OptionClaim(_INVENTED, REFUSED, note)]


def _allowed(device: Accelerator) -> Sequence[int]:
    row = find_target(device.name).hardware["lnc_allowed"]
    return cast("Sequence[int]", cast("Mapping[str, object]", row)["value"])


def _note(flags: str, severity: str, code: str, trust: str, source: str) -> RuleNote:
    return {
        "rule": f"option {flags}", "severity": severity, "code": code, "trust": trust,
        "source": source,
    }  # fmt: skip


def flag_name(claim: OptionClaim) -> str:
    """The name of the case of an option."""
    return f"flag/{claim.flags}"


def flag_programs(claims: Sequence[OptionClaim], device: Accelerator) -> Iterator[KitProgram]:
    """The program with each of the options."""
    programs = model_programs(_MODEL, device)
    base = next(item for item in programs if item.name.endswith(_PHASE))
    for claim in claims:
        why = ""
        if any(word in claim.flags for word in _COMPILED_ONLY):
            why = "the option changes the numbers, or what runs them"
        yield replace(
            base,
            name=flag_name(claim),
            flags=claim.flags,
            why_not_run=why,
            claim={"op": "", "dtype": "", "expects": claim.expects, "rules": [claim.note]},
        )
