"""How much of a folder of StableHLO programs graphgen reads, evaluates and writes again.

Each program judges itself: it ends in custom calls ``check.expect_eq``, ``expect_almost_eq`` or
``expect_close`` of what it computed and what is right, as those of openxla/stablehlo do. Legs:
``read`` the file as it is; ``numpy_runs`` and ``numpy_right`` our evaluation of the operands of
its checks; ``written`` the program as StableHLO again; ``xla_runs`` and ``xla_right`` that text on
XLA's CPU client. ``expect_close`` allows a few units in the last place; what is farther and still
within the rounding of its type counts as right and is listed as near.

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
from graphgen.ir import Function, Module

LEGS = ("read", "numpy_runs", "numpy_right", "written", "xla_runs", "xla_right")
# Files between two lines of progress.
TOLD_EVERY = 20
_CHECK = re.compile(
    r" *stablehlo\.custom_call @check\.(expect_\w+)\((%\S+), (%\S+)\).*? : \((.*)\) -> \(\)\n"
)
_RETURN = re.compile(r"^( *)(?:func\.)?return\b.*\n", re.MULTILINE)
_MAIN = re.compile(r"(func\.func public @main\(.*?\) -> )(.*)( \{\n)")
# Relative distance that rounding alone explains, by size of the type in bytes.
_NEAR = {1: 0.3, 2: 2e-2, 4: 1e-3, 8: 1e-6}
_ULPS = {"expect_eq": 0, "expect_almost_eq": 8, "expect_close": 3}


def checks_as_outputs(text: str) -> tuple[str, list[str]]:
    """The program with the operands of its checks as outputs, and the kinds of the checks."""
    found = _CHECK.findall(text)
    kept, main = _CHECK.sub("", text), _MAIN.search(text)
    if not found or main is None:
        return text, []
    values = ", ".join(f"{a}, {b}" for _, a, b, _ in found)
    types = ", ".join(types for _, _, _, types in found)
    kept = _MAIN.sub(lambda m: f"{m[1]}({types}){m[3]}", kept, count=1)
    at = kept.index("func.func public @main")
    body = _RETURN.sub(lambda m: f"{m[1]}return {values} : {types}\n", kept[at:], count=1)
    return kept[:at] + body, [kind for kind, _, _, _ in found]


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
    from graphgen.errors import GraphgenError
    from graphgen.lowering.open import Source, open_module, open_source

    text, kinds = checks_as_outputs(path.read_text())
    out: dict[str, str] = {}
    try:
        open_module(path)
        out["read"] = "yes"
        module = open_source(Source(path.name, text.encode()))
    except GraphgenError as error:
        return {**out, "numpy_runs" if out else "read": error.what}
    function = module.programs()[0]
    out |= _numpy_legs(module, function, kinds)
    return {**out, **_xla_legs(module, function, kinds)}


def _numpy_legs(module: Module, function: Function, kinds: Sequence[str]) -> dict[str, str]:
    from graphgen.errors import GraphgenError
    from graphgen.eval import evaluate

    try:
        outputs = evaluate(function, {}, module=module)
    except GraphgenError as error:
        return {"numpy_runs": error.what}
    return {"numpy_runs": "yes", "numpy_right": _verdict(kinds, list(outputs.values()))}


def _xla_legs(module: Module, function: Function, kinds: Sequence[str]) -> dict[str, str]:
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
        (outputs,) = compile_program(module, function).run_numpy([{}])
        out["xla_runs"] = "yes"
    except GraphgenError as error:
        out["xla_runs" if out else "written"] = error.what
        return out
    except (RuntimeError, ValueError) as error:
        return {**out, "xla_runs": str(error).splitlines()[0]}
    return {**out, "xla_right": _verdict(kinds, list(outputs.values()))}


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
