"""Snapshots of lowered programs: the check that a refactoring changes no program.

For each known model's mini twin, on 1 to 4 ranks and for several targets, a snapshot holds every
program as StableHLO without locations, as an HLO protobuf without metadata, its canonical hash, and
the text of the weight programs. A refusal is part of a snapshot too, as its error code.

Run as a program, this file prints the snapshots made by the packages beside it, as JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ir.dtype import bf16
from graphgen.lowering.canonical_hash import Compilation, canonical_hash
from graphgen.lowering.hlo import emit_hlo
from graphgen.lowering.hlo_proto.fields import ComputationField, InstructionField, ModuleField
from graphgen.lowering.hlo_proto.wire import Message, delimited
from graphgen.lowering.stablehlo import emit_stablehlo
from graphgen.models import SHAPES, build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.pipelines import default
from graphgen.text import print_function

BUCKETS = CompileConfig(batch=(2,), context=(8,), tokens=(8, 16))
TARGETS = ("cpu", "trn1", "trn2")
RANKS = (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Case:
    """One way to compile one model.

    Attributes:
        model: a name of ``SHAPES``.
        tp: number of ranks.
        target: ``cpu``, ``trn1`` or ``trn2``.
        variant: ``""``, ``quantized`` (int8 weights) or ``rolled`` (ring caches).
    """

    model: str
    tp: int
    target: str
    variant: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.model, f"tp={self.tp}", self.target, self.variant)))


# The shortest list that still reaches each target, several ranks and each option.
QUICK = (
    *(Case(model, tp, target) for model in ("llama-3.1-8b", "gemma-3-1b", "bloom-560m", "gpt2")
      for tp, target in ((1, "cpu"), (3, "cpu"), (1, "trn1"), (4, "trn2"))),
    Case("llama-3.1-8b", 2, "cpu", "quantized"),
    Case("mistral-7b", 2, "trn2", "rolled"),
)  # fmt: skip


def every_case(models: Sequence[str]) -> list[Case]:
    """Each model on each number of ranks for each target, and the variants on two ranks."""
    plain = [Case(m, tp, target) for m in models for tp in RANKS for target in TARGETS]
    varied = [
        Case(model, 2, target, variant)
        for model in models
        for target in TARGETS
        for variant in ("quantized", "rolled")
    ]
    return plain + varied


def snapshot(case: Case) -> dict[str, str]:
    """Texts by ``@program form``; ``refused`` with the error code where it cannot be compiled."""
    try:
        module = build(known_shape(case.model), bf16, mini=True)
        run_pipeline(
            module,
            default(
                replace(
                    BUCKETS,
                    tp=case.tp,
                    target=case.target,
                    quantization="quantize-weights" if case.variant == "quantized" else "",
                    roll_window_cache=case.variant == "rolled",
                )
            ),
        )
        return dict(_texts(module, case.target))
    except GraphgenError as error:
        return {"refused": error.code}


def _texts(module: Module, target: str) -> Iterator[tuple[str, str]]:
    programs = module.programs()
    for function in programs:
        key = canonical_hash(module, function, Compilation(target))
        yield f"@{function.name} stablehlo", emit_stablehlo(module, function, locs=False)
        yield f"@{function.name} hlo", _digest(without_metadata(emit_hlo(module, function)))
        yield f"@{function.name} key", key
    for function in module.functions.values():
        if function not in programs:
            yield f"@{function.name} ir", print_function(function, locs=False)


def without_metadata(proto: bytes) -> bytes:
    """An HloModuleProto without the metadata of its instructions: source lines and scopes."""
    return _rewritten(proto, (ModuleField.COMPUTATIONS, ComputationField.INSTRUCTIONS))


def _rewritten(data: bytes, path: Sequence[int]) -> bytes:
    """``data`` with the messages at ``path`` stripped of their metadata."""
    message, out = Message(data), bytearray()
    for number, field in message.pieces():
        if path and number == path[0]:
            start, end = Message(field).spans(number)[0]
            out += delimited(number, _rewritten(field[start:end], path[1:]))
        elif path or number != InstructionField.METADATA:
            out += field
    return bytes(out)


def _digest(data: bytes) -> str:
    return f"{len(data)} bytes, SHA-256 {hashlib.sha256(data).hexdigest()}"


def snapshots(cases: Sequence[Case]) -> dict[str, str]:
    """The texts of all cases: ``llama-3.1-8b tp=2 cpu @prefill.b2.s8 stablehlo`` and so on."""
    return {f"{case} {key}": text for case in cases for key, text in snapshot(case).items()}


def digests(texts: Mapping[str, str]) -> dict[str, str]:
    """One short hash for each case and form of :func:`snapshots`, small enough for a file.

    Returns:
        ``{"llama-3.1-8b tp=2 cpu": "hlo 39... ir d4... key 47... stablehlo c9..."}``
    """
    joined: dict[str, dict[str, list[str]]] = {}
    for key, text in texts.items():
        case, _, program = key.partition(" @")
        form = program.rpartition(" ")[2]
        joined.setdefault(case, {}).setdefault(form, []).append(f"@{program}\n{text}\n")
    return {case: " ".join(_hashes(forms)) for case, forms in joined.items()}


def _hashes(forms: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for form, parts in sorted(forms.items()):
        digest = hashlib.sha256("".join(parts).encode()).hexdigest()
        yield f"{form} {digest[:16]}".strip()


def main() -> None:
    """Print the snapshots of the models named, or of all, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--quick", action="store_true", help="a short list that reaches each form")
    parser.add_argument("--digests", action="store_true", help="a hash for each case and form")
    options = parser.parse_args()
    # A model that another revision does not have cannot be compared.
    models = [name for name in options.models or SHAPES if name in SHAPES]
    cases = [c for c in QUICK if c.model in models] if options.quick else every_case(models)
    texts = snapshots(cases)
    json.dump(digests(texts) if options.digests else texts, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
