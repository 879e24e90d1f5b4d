"""Collects the cases of a kit, and the files that they share."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from graphgen.eval import Array
from graphgen.lowering.check.check import Finding, check
from graphgen.lowering.check.compiler_rules import status_of
from graphgen.lowering.check.evidence import rule_key
from graphgen.lowering.check.predicates import Request
from graphgen.lowering.cost.roofline import roofline
from graphgen.lowering.neuronx_cc.command_line import OptionLayer, merge
from graphgen.lowering.neuronx_cc.default_options import Situation, default_layers
from graphgen.lowering.neuronx_cc.program_plan import PlannedProgram
from graphgen.runtime.device_kit.kit_program import TOLERANCE, KitProgram
from graphgen.runtime.kit_runner.kit_types import (
    ACCEPTED,
    REFUSED,
    UNKNOWN,
    WARNED,
    KitCase,
    KitTensor,
    RuleNote,
    Subject,
    TargetCases,
)
from graphgen.targets import Accelerator

# Statuses of an op that promise nothing.
_NO_PROMISE = ("unknown", "avoid", "likely")
# Longest sequence of a kit's programs: none of them is one of long contexts.
_LONGEST = 128


class KitBuilder:
    """The cases of every target.

    Args:
        devices: the targets, with their default logical cores.
    """

    def __init__(self, devices: Sequence[Accelerator]) -> None:
        self.targets: dict[str, TargetCases] = {
            device.name: {"lnc": device.lnc, "cases": []} for device in devices
        }
        self.files: dict[str, bytes] = {}

    def add(self, program: KitProgram, device: Accelerator) -> None:
        """Add a program as a case of a target (GG0705 for flags that cannot be read)."""
        words, flags = _command(program, device)
        case: KitCase = {
            "name": program.name,
            "subject": program.claim or subject_of(program, device, flags),
            "hlo": self._file("hlo", "pb", program.hlo),
            "words": words,
            "inputs": [self._argument(*item, program) for item in program.inputs.items()],
            "outputs": [self._result(*item, program) for item in program.outputs.items()],
            "aliases": dict(program.aliases),
            "why_not_run": program.why_not_run,
            "bound_s": _bound(program, device),
        }
        self.targets[device.name]["cases"].append(case)

    def _file(self, folder: str, ending: str, data: bytes) -> str:
        name = f"{folder}/{hashlib.sha256(data).hexdigest()[:24]}.{ending}"
        self.files[name] = data
        return name

    def _argument(self, name: str, array: Array, program: KitProgram) -> KitTensor:
        args = {value.name: value.dtype.name for value in program.function.args}
        return self._tensor(name, array, args[name], 0.0)

    def _result(self, name: str, array: Array, program: KitProgram) -> KitTensor:
        kind = dict(program.function.outputs)[name].dtype.name
        share = TOLERANCE.get(kind, 0.0)
        return self._tensor(name, array, kind, share and max(share, program.tolerance))

    def _tensor(self, name: str, array: Array, kind: str, share: float) -> KitTensor:
        return {
            "name": name,
            "dtype": kind,
            "dims": list(array.shape),
            "data": self._file("data", "bin", np.ascontiguousarray(array).tobytes()),
            "rtol": share,
            "atol": share * _largest(array) if share else 0.0,
        }


def _largest(array: Array) -> float:
    """The largest finite element in size."""
    wide = np.abs(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))
    return float(np.max(wide, initial=0.0, where=np.isfinite(wide)))


def _command(program: KitProgram, device: Accelerator) -> tuple[list[str], str]:
    """The arguments of the compiler, as the driver of ``graphgen compile`` gives them."""
    function = program.function
    phase = function.phase or ""
    layers = default_layers(Situation(phase, device.name, device.lnc, _LONGEST))
    if program.flags:
        layers.append(OptionLayer("kit", program.flags))
    command = merge(layers)
    return PlannedProgram(function.name, "", command, (), "").words(), command.text


def _bound(program: KitProgram, device: Accelerator) -> float:
    """Seconds by the published figures, of programs that are executed."""
    if program.why_not_run:
        return 0.0
    return roofline(program.module, program.function, device).seconds


def subject_of(program: KitProgram, device: Accelerator, flags: str) -> Subject:
    """The claims of the rules about a program."""
    request = Request(device.name, device.lnc, flags)
    found = check(program.module, request)
    notes = [_note(item) for item in found]
    own_status = status_of(program.op)[0] if program.op else ""
    # Ops that a reader decomposes are in the HLO all the same.
    if own_status in ("unsupported", "custom_call_only") and not _has_error(found):
        notes.append(_status_note(program.op, "error", "NCC_EVRF001"))
        expects = REFUSED
    else:
        expects = _expected(found, own_status)
    if program.op and expects in (ACCEPTED, UNKNOWN):
        notes.append(_status_note(program.op, "", ""))
        notes.append(
            {
                "rule": f"dtype {program.dtype}",
                "severity": "",
                "code": "",
                "trust": "",
                "source": "",
            }
        )
    unique = {(item["rule"], item["severity"]): item for item in notes}
    return {
        "op": program.op,
        "dtype": program.dtype,
        "expects": expects,
        "rules": list(unique.values()),
    }


def _has_error(found: Sequence[Finding]) -> bool:
    return any(item.severity == "error" for item in found)


def _expected(found: Sequence[Finding], own_status: str) -> str:
    if _has_error(found):
        return REFUSED
    statuses = {status_of(item.op)[0] for item in found if item.rule == "status"}
    if own_status in _NO_PROMISE or statuses:
        return UNKNOWN
    return WARNED if any(item.severity == "warn" for item in found) else ACCEPTED


def _note(item: Finding) -> RuleNote:
    return {
        "rule": rule_key(item),
        "severity": item.severity,
        "code": item.code,
        "trust": item.trust,
        "source": item.source,
    }


def _status_note(op: str, severity: str, code: str) -> RuleNote:
    return {
        "rule": f"status {op}", "severity": severity, "code": code, "trust": "observed",
        "source": "",
    }  # fmt: skip
