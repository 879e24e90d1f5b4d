"""NKI kernels supplied by a user: read the manifest of traced kernels and find one for a call.

NKI's compiler is not public. Users that have it trace a kernel for the shapes of a program and
write down what its front end passes to HLO: a JSON list with an object a kernel,

    {"kernel": "mlp_isa_kernel",
     "operands": ["bf16[1,1,64]", "bf16[1,64]", "bf16[64,128]", "bf16[64,128]", "bf16[128,64]"],
     "results": ["bf16[1,1,64]"],
     "arguments": {"fused_rmsnorm": true, "eps": 1e-05},
     "config": {"kernel_version": 1, "klir_binary": {...}, "func_name": "mlp_isa_kernel", ...}}

``arguments`` are what the kernel was traced with beside its tensors. ``config`` is the
configuration of the custom call ``AwsNeuronCustomNativeKernel``, as text or decoded.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from graphgen.atomic_write import read_regular
from graphgen.errors import GraphgenError
from graphgen.ir import TensorType, Value
from graphgen.json_value import parse_json
from graphgen.limits import JSON_BYTES
from graphgen.ops.custom_calls import NKI, decode
from graphgen.passes.core import NoMatch, no_match

_Json = Mapping[str, object]
# The name of an input that the kernel writes into.
_IN_PLACE = ".must_alias_input"


@dataclass(frozen=True, slots=True)
class KernelArtifact:
    """A traced kernel.

    Attributes:
        kernel: the name of its function.
        operands: types of its tensors, as text, in the order of its signature.
        results: types of its results.
        arguments: what else it was traced with, by name.
        config: of the custom call, as it is written into HLO.
    """

    kernel: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    arguments: _Json
    config: str


@dataclass(frozen=True, slots=True)
class WantedKernel:
    """Needs of a call of an artifact; the attributes are those of :class:`KernelArtifact`."""

    kernel: str
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    arguments: _Json

    @property
    def text(self) -> str:
        """The call on one line."""
        operands, results = (
            ", ".join(item.text for item in types) for types in (self.operands, self.results)
        )
        return f"{self.kernel}({operands}) -> {results}"


def find_artifact(
    artifacts: Sequence[KernelArtifact], wanted: WantedKernel, at: Value
) -> KernelArtifact | NoMatch:
    """The artifact of exactly these types and arguments, or what the nearest one lacks."""
    named = [item for item in artifacts if item.kernel == wanted.kernel]
    if not named:
        return no_match(f"no artifact of {wanted.text} is given", at, depth=20)
    operands, results = (
        tuple([item.text for item in types]) for types in (wanted.operands, wanted.results)
    )
    typed = [item for item in named if (item.operands, item.results) == (operands, results)]
    if not typed:
        return no_match(f"no artifact is of the types {wanted.text}", at, depth=21)
    reasons = [_lacks(item, wanted) for item in typed]
    for item, why in zip(typed, reasons, strict=True):
        if not why:
            return item
    return no_match(f"the artifact of {wanted.kernel} {reasons[0]}", at, depth=22)


def _lacks(artifact: KernelArtifact, wanted: WantedKernel) -> str:
    """Why an artifact of the right types cannot be called; empty if it can."""
    for name, value in wanted.arguments.items():
        if name not in artifact.arguments:
            return f"does not say what {name} it was traced with: {value!r} is needed"
        if artifact.arguments[name] != value:
            return f"was traced with {name}={artifact.arguments[name]!r}, not {value!r}"
    return ""


def read_artifacts(path: str) -> tuple[KernelArtifact, ...]:
    """The kernels of a manifest; none for an empty path.

    Raises:
        GraphgenError: GG0302 for a file that is no such manifest, and for a kernel that cannot be
            called by its tensors alone.
    """
    if not path:
        return ()
    try:
        content: object = parse_json(read_regular(Path(path), JSON_BYTES))
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is not JSON"
        raise _refused(path, f"it cannot be read: {what}") from error
    if not isinstance(content, list):
        raise _refused(path, "it is not a list")
    rows = cast(list[object], content)
    return tuple(_artifact(path, number, row) for number, row in enumerate(rows))


def _artifact(path: str, number: int, row: object) -> KernelArtifact:
    where = f"entry {number}"
    if not isinstance(row, dict):
        raise _refused(path, f"{where} is not an object")
    given = cast(_Json, row)
    unknown = set(given) - set(KernelArtifact.__dataclass_fields__)
    kernel, arguments = given.get("kernel"), given.get("arguments", {})
    if unknown:
        raise _refused(path, f"{where} has an unknown '{min(unknown)}'")
    if not isinstance(kernel, str) or not isinstance(arguments, dict):
        raise _refused(path, f'{where} needs a "kernel", and "arguments" that are an object')
    types = [_types(path, where, given, key) for key in ("operands", "results")]
    config = _config(path, where, given.get("config"))
    why = _uncallable(config, types[0], types[1])
    if why:
        raise _refused(path, f"{where}, {kernel}, {why}")
    return KernelArtifact(kernel, types[0], types[1], cast(_Json, arguments), config)


def _types(path: str, where: str, given: _Json, key: str) -> tuple[str, ...]:
    found = given.get(key)
    texts = cast(list[object], found) if isinstance(found, list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise _refused(path, f'{where} needs "{key}", a list of types such as "bf16[1,64]"')
    return tuple(str(text) for text in texts)


def _config(path: str, where: str, given: object) -> str:
    """The configuration as HLO has it: base64 of JSON."""
    if isinstance(given, dict):
        text = json.dumps(given, separators=(",", ":"))
        return base64.b64encode(text.encode()).decode()
    if not isinstance(given, str) or "kernel" not in decode(NKI, given):
        raise _refused(path, f'{where} needs a "config" that names a function')
    return given


def _uncallable(config: str, operands: Sequence[str], results: Sequence[str]) -> str:
    """Why a custom call of these operands cannot run a kernel; empty if it can."""
    facts = decode(NKI, config)
    if "artifact" in facts and Path(str(facts["artifact"])).is_absolute() and not facts["there"]:
        return f"has its artifact in {facts['artifact']}, which is not a file (NCC_EVRF059)"
    if facts.get("has_collectives") is True:
        return "has collectives inside, which programs here do not leave room for"
    for key, types in (("inputs", operands), ("outputs", results)):
        names = [str(name) for name in cast(list[object], facts.get(key, types))]
        if any(_IN_PLACE in name for name in names):
            return "writes into an input: calls here have results of their own"
        if len(names) != len(types):
            given = ", ".join(names)
            return f"has the {key} {given}, and {len(types)} types are stated"
    return ""


def _refused(path: str, why: str) -> GraphgenError:
    return GraphgenError(
        "GG0302",
        f"kernel_artifacts={path}: {why}",
        help='a list of {"kernel", "operands", "results", "arguments", "config"}; '
        "see docs/kernels.md",
    )
