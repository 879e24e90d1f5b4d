"""How much of a folder of StableHLO programs graphgen reads, evaluates and writes again.

Most programs judge themselves: they end in calls of ``check``, such as ``check.expect_eq``, of what
they computed and what is right, as those of openxla/stablehlo do. One without a check is given
random inputs, and right is what XLA makes of them. Sizes that a program leaves open are 4;
quantized elements are the integers that are stored. Legs: ``read`` the file as it is;
``numpy_runs`` and ``numpy_right`` our evaluation; ``written`` the program as StableHLO again;
``xla_runs`` and ``xla_right`` that text on XLA's CPU client. ``expect_close`` allows a few units in
the last place; what is farther and still within the rounding of its type counts as right and is
listed as near. A file of several modules between lines of ``// -----`` has the worst of their legs.

Files run in processes of their own with a time limit for each, so that one that dies costs itself
only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.child_process import EachInAChild
from graphgen.atomic_write import write_whole
from graphgen.eval import Array
from graphgen.ir import Function, Module

LEGS = ("read", "numpy_runs", "numpy_right", "written", "xla_runs", "xla_right")
# Files between two lines of progress.
TOLD_EVERY = 20
_CHECK = re.compile(
    r" *(?:%\S+ = )?stablehlo\.custom_call @check\.(\w+)\((%\S+), (%\S+)\).*? : \((.*)\) -> .*\n"
)
_CHECK_CONST = re.compile(
    r" *\"check\.(\w+)_const\"\((%\S+)\) <\{value = (dense<.*>) : (tensor<.*>)\}> : .*\n"
)
_RETURN = re.compile(r"^( *)(?:func\.)?return\b.*\n", re.MULTILINE)
_FUNCTION = re.compile(r"(func\.func (?:public )?@(\w+)\(.*?\))(?: -> .*)?( \{\n)")
# Relative distance that rounding alone explains, by size of the type in bytes.
_NEAR = {1: 0.3, 2: 2e-2, 4: 1e-3, 8: 1e-6}
_ULPS = {"eq": 0, "expect_eq": 0, "expect_almost_eq": 8, "expect_close": 3}
_BETWEEN_MODULES = re.compile(r"^// -----.*\n", re.MULTILINE)
_OPEN_SIZE = 4


def checks_as_outputs(text: str) -> tuple[str, list[str]]:
    """The program with the operands of its checks as outputs, and the kinds of the checks."""
    consts: list[tuple[str, str, str, str]] = []

    def as_pair(found: re.Match[str]) -> str:
        kind, value, literal, type_ = found.groups()
        name = f"%checked_{len(consts)}"
        consts.append((kind, value, name, f"{type_}, {type_}"))
        return f"    {name} = stablehlo.constant {literal} : {type_}\n"

    kept = _CHECK_CONST.sub(as_pair, text)
    found = [*consts, *_CHECK.findall(kept)]
    kept = _CHECK.sub("", kept)
    heads = list(_FUNCTION.finditer(kept))
    if not found or not heads:
        return text, []
    head = next((each for each in heads if each[2] == "main"), heads[0])
    values = ", ".join(f"{a}, {b}" for _, a, b, _ in found)
    types = ", ".join(types for _, _, _, types in found)
    rest = kept[head.end() :]
    body = _RETURN.sub(lambda m: f"{m[1]}return {values} : {types}\n", rest, count=1)
    named = head[1].replace(f"@{head[2]}", "@main", 1)
    made = f"{kept[: head.start()]}{named} -> ({types}){head[3]}{body}"
    return made, [kind for kind, _, _, _ in found]


def judge(kinds: Sequence[str], outputs: Sequence[object]) -> str:
    """``right``, ``near`` or ``wrong``: pairs of what was computed and what is right."""
    verdicts = [
        _distance(kind, outputs[2 * index], outputs[2 * index + 1])
        for index, kind in enumerate(kinds)
    ]
    return max(verdicts, key=("right", "near", "wrong").index, default="wrong")


def _distance(kind: str, computed: object, wanted: object) -> str:
    import numpy as np

    a, b = np.asarray(computed), np.asarray(wanted)
    if a.dtype != b.dtype or a.shape != b.shape:
        return "wrong"
    size = a.dtype.itemsize
    if a.dtype.kind == "c":
        a, b, size = (
            np.stack([np.real(a), np.imag(a)]),
            np.stack([np.real(b), np.imag(b)]),
            size // 2,
        )
    if a.dtype.kind in "biu":
        return "right" if np.array_equal(a, b) else "wrong"
    x, y = a.astype(np.float64), b.astype(np.float64)
    if np.array_equal(x, y, equal_nan=True):
        return "right"
    step = {1: 2**-3, 2: 2**-8 if a.dtype.kind == "V" else 2**-10, 4: 2**-23, 8: 2**-52}[size]
    with np.errstate(all="ignore"):
        close = np.isclose(x, y, rtol=_ULPS[kind] * step, atol=0, equal_nan=True)
        near = np.isclose(x, y, rtol=_NEAR[size], atol=_NEAR[size], equal_nan=True)
    return "right" if bool(close.all()) else "near" if bool(near.all()) else "wrong"


def measure(path: Path) -> dict[str, str]:
    """Leg -> ``yes``, ``near``, or the reason why not; legs behind a failure are left out."""
    texts = _BETWEEN_MODULES.split(path.read_text())
    found = [_measured(path.name, text) for text in texts]
    out: dict[str, str] = {}
    for leg in LEGS:
        verdicts = [each.get(leg, "") for each in found]
        if all(verdicts):
            out[leg] = next(
                (one for one in verdicts if one not in ("yes", "near")),
                "near" if "near" in verdicts else "yes",
            )
    return out


def _measured(name: str, text: str) -> dict[str, str]:
    from graphgen.errors import GraphgenError
    from graphgen.lowering.open import Source, open_source

    changed, kinds = checks_as_outputs(text)
    out: dict[str, str] = {}
    try:
        open_source(Source(name, text.encode()))
        out["read"] = "yes"
        module, inputs = _ready(open_source(Source(name, changed.encode())))
    except GraphgenError as error:
        return {**out, "numpy_runs" if out else "read": error.what}
    function = module.programs()[0]
    legs, computed = _numpy_legs(module, function, kinds, inputs)
    wanted = [] if kinds else computed
    legs |= _xla_legs(module, function, kinds, inputs, wanted)
    if not kinds and "xla_right" in legs:
        legs["numpy_right"] = legs["xla_right"]
    return {**out, **legs}


def _ready(module: Module) -> tuple[Module, Mapping[str, Array]]:
    """The module with sizes bound and integers for quantized elements, and inputs."""
    from graphgen.exec.inputs import program_inputs
    from graphgen.lowering.runnable import runnable
    from graphgen.lowering.stablehlo.bind_sizes import (
        as_plain_integers,
        bind_sizes,
        has_quantized,
        leaves_sizes_open,
        open_sizes,
        size_arguments,
    )

    module = runnable(module)
    given: dict[str, int] = {}
    if leaves_sizes_open(module):
        function = module.programs()[0]
        given = dict.fromkeys(size_arguments(function), _OPEN_SIZE)
        sizes = dict.fromkeys(open_sizes(function), _OPEN_SIZE)
        module = bind_sizes(module, function, sizes, given)
    if has_quantized(module):
        module = as_plain_integers(module, module.programs()[0])
    made = program_inputs(module, module.programs()[0], {}, 0, per_rank=False)
    return module, made.shared


def _numpy_legs(
    module: Module, function: Function, kinds: Sequence[str], inputs: Mapping[str, Array]
) -> tuple[dict[str, str], list[Array]]:
    """The legs, and the outputs."""
    from graphgen.errors import GraphgenError
    from graphgen.eval import evaluate

    try:
        outputs = list(evaluate(function, inputs, module=module).values())
    except GraphgenError as error:
        return {"numpy_runs": error.what}, []
    judged = {"numpy_right": _verdict(kinds, outputs)} if kinds else {}
    return {"numpy_runs": "yes", **judged}, outputs


def _xla_legs(
    module: Module,
    function: Function,
    kinds: Sequence[str],
    inputs: Mapping[str, Array],
    wanted: Sequence[Array],
) -> dict[str, str]:
    from graphgen.errors import GraphgenError
    from graphgen.lowering.cpu import compile_program
    from graphgen.lowering.stablehlo import emit_stablehlo
    from graphgen.passes.core import run_pipeline
    from graphgen.passes.core.registry import parse_pipeline

    out: dict[str, str] = {}
    try:
        run_pipeline(module, parse_pipeline("legalize{target=cpu}"))
        emit_stablehlo(module, function)
        out["written"] = "yes"
        (found,) = compile_program(module, function).run_numpy([inputs])
        out["xla_runs"] = "yes"
    except GraphgenError as error:
        out["xla_runs" if out else "written"] = error.what
        return out
    except (RuntimeError, ValueError) as error:
        return {**out, "xla_runs": str(error).splitlines()[0]}
    outputs = list(found.values())
    if kinds:
        return {**out, "xla_right": _verdict(kinds, outputs)}
    if len(wanted) != len(outputs) or not outputs:
        return out
    pairs = [each for pair in zip(outputs, wanted, strict=True) for each in pair]
    return {**out, "xla_right": _verdict(["expect_close"] * len(outputs), pairs)}


def _verdict(kinds: Sequence[str], outputs: Sequence[object]) -> str:
    found = judge(kinds, outputs)
    return "yes" if found == "right" else found


MEASURED = EachInAChild[dict[str, str]](
    "benchmarks.third_party_stablehlo", measure, {"read": "the process died"}
)


def sweep(files: Sequence[Path]) -> dict[str, dict[str, str]]:
    """The legs of every file; one whose process died says so."""
    found: dict[str, dict[str, str]] = {}
    for path, legs in MEASURED(files):
        found[str(path)] = legs
        if len(found) % TOLD_EVERY == 0 or len(found) == len(files):
            print(f"{len(found)} of {len(files)}", file=sys.stderr)
    return found


def report(found: Mapping[str, Mapping[str, str]]) -> str:
    """A table by leg, and one of what is left by reason."""
    total = max(len(found), 1)
    lines = [f"{'leg':<12} {'files':>6} {'share':>7} {'near':>5} {'wrong':>6}"]
    for leg in LEGS:
        verdicts = Counter(row.get(leg, "") for row in found.values())
        right = verdicts["yes"] + verdicts["near"]
        counts = f"{right:>6} {100 * right / total:>6.1f}% {verdicts['near']:>5}"
        lines.append(f"{leg:<12} {counts} {verdicts['wrong']:>6}")
    reasons = Counter(
        f"{leg}: {reason}"
        for row in found.values()
        for leg, reason in row.items()
        if reason not in ("yes", "near")
    )
    return "\n".join([*lines, "", *[f"{n:>6}  {text}" for text, n in reasons.most_common()]])


def main() -> None:
    """Measure, print the tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", default=os.environ.get("GRAPHGEN_HLO_CORPUS", ""))
    parser.add_argument("--every", type=int, default=1, help="of so many files one")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        MEASURED.work()
        return
    if not given.corpus:
        parser.error("name a folder by --corpus or GRAPHGEN_HLO_CORPUS")
    files = sorted(Path(given.corpus).rglob("*.mlir"))[:: given.every]
    found = sweep(files)
    print(report(found))
    if given.json:
        write_whole(given.json, json.dumps(found, indent=1).encode())


if __name__ == "__main__":
    main()
