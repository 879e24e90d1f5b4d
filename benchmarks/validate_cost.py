"""CPU seconds of ``graphgen validate FILE`` on the minis of all families, beside another checkout.

    python -m benchmarks.validate_cost                       # 28 families, a few minutes
    python -m benchmarks.validate_cost --old ../before       # beside a checkout with a .venv
    python -m benchmarks.validate_cost --only llama,gemma2 --best-of 3 --options=--quick

Each run is a process of its own, imports included; both checkouts take turns. A checkout validates
the file that it builds itself. Without ``--old`` the table has one column of seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from graphgen.atomic_write import write_whole
from graphgen.models.named_shapes import SHAPES
from graphgen.models.registry import BUILT_IN, FAMILIES, family_of

# Seconds, the median of all families; and times what the other checkout takes.
GOAL_S, GOAL_RATIO = 3.0, 2.0
_RUN = "from graphgen.cli.main import main; main()"


def shapes() -> dict[str, str]:
    """A named model of each family."""
    found: dict[str, str] = {}
    for name, config in SHAPES.items():
        found.setdefault(family_of(config).model_type, name)
    return {family: found[family] for family in FAMILIES if family in BUILT_IN}


def command(checkout: Path | None) -> list[str]:
    """The command line of a checkout; of this one for ``None``."""
    if checkout is None:
        return [sys.executable, "-c", _RUN]
    return [str(checkout / ".venv" / "bin" / "graphgen")]


def cpu_seconds(arguments: Sequence[str], folder: Path) -> float:
    """User and system time of a process, whatever its exit status says of a verdict.

    Raises:
        RuntimeError: it ends by a signal, or with the status of a wrong command line.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    child = subprocess.Popen(
        arguments, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1, 2):
        raise RuntimeError(f"{' '.join(arguments)} ended with {child.returncode}")
    return used.ru_utime + used.ru_stime


def measured(
    family: str,
    checkouts: Sequence[Path | None],
    options: Sequence[str],
    best_of: int,
    folder: Path,
) -> list[float]:
    """The least seconds of each checkout."""
    runs: list[list[str]] = []
    for number, checkout in enumerate(checkouts):
        file = folder / f"{family}.{number}.gg"
        build = [*command(checkout), "build", shapes()[family], "--mini", "-o", str(file)]
        cpu_seconds(build, folder)
        runs.append([*command(checkout), "validate", str(file), *options])
    found = [[cpu_seconds(run, folder) for run in runs] for _ in range(best_of)]
    return [min(times) for times in zip(*found, strict=True)]


def table(found: Mapping[str, Sequence[float]]) -> str:
    """A line for each family, then the median and the largest ratio."""
    width = max(len("family"), *map(len, found))
    lines = [f"{'family':{width}}   cpu s" + ("   old s  ratio" if _compared(found) else "")]
    for family, times in found.items():
        line = f"{family:{width}}  " + "".join(f"{seconds:6.2f}  " for seconds in times)
        lines.append((line + (f"{times[0] / times[1]:5.2f}" if len(times) > 1 else "")).rstrip())
    middle = median(times[0] for times in found.values())
    lines.append(f"median {middle:.2f} s (goal: below {GOAL_S:g} s)")
    if _compared(found):
        ratios = {family: times[0] / times[1] for family, times in found.items()}
        most = max(ratios, key=lambda family: ratios[family])
        lines.append(f"largest ratio {ratios[most]:.2f} of {most} (goal: at most {GOAL_RATIO:g})")
    return "\n".join(lines)


def _compared(found: Mapping[str, Sequence[float]]) -> bool:
    return any(len(times) > 1 for times in found.values())


def main() -> None:
    """Print the table; write the seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, help="a checkout to compare with")
    parser.add_argument("--only", default="", help="families, with commas")
    parser.add_argument("--options", default="", help="of validate, with spaces between")
    parser.add_argument("--best-of", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file for the seconds")
    args = parser.parse_args()
    chosen = [family for family in args.only.split(",") if family] or list(shapes())
    checkouts = [None] if args.old is None else [None, args.old.resolve()]
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Compiles the modules of each checkout to bytecode.
        measured(chosen[0], checkouts, args.options.split(), 1, folder)
        for family in chosen:
            found[family] = measured(family, checkouts, args.options.split(), args.best_of, folder)
            print(family, *[f"{seconds:.2f}" for seconds in found[family]], flush=True)
    print(table(found))
    if args.json is not None:
        write_whole(args.json, (json.dumps(found, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
