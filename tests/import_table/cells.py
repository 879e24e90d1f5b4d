"""Cells of one row of the table: each runs commands as a user would, and compares the numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphgen.eval import Array

# Largest difference from torch or JAX, relative to the largest number of the result.
TOLERANCE = 2e-5
CELLS = ("imports", "NumPy", "CPU", "raised", "tp 2", "tp 4", "HLO")


@dataclass(frozen=True, slots=True)
class Cell:
    """What came of a cell: whether it is as it should be, and a few words."""

    good: bool
    text: str


class CellError(Exception):
    """A command that failed, or a number that is wrong."""


@dataclass
class Source:
    """A model of a row.

    Attributes:
        place: ``package.module:function``, as ``graphgen import`` takes it.
        composites: how many of each composite its mathematics has.
        options: of ``graphgen import``.
        inputs: makes the arguments, and the weights that are arguments, by name.
        results: makes what torch or JAX computes of them, in order.
    """

    place: str
    composites: Mapping[str, int]
    inputs: Callable[[], Mapping[str, Array]]
    results: Callable[[], Sequence[Array]]
    options: Sequence[str] = field(default_factory=list[str])


def run_cell(name: str, source: Source, folder: Path) -> Cell:
    """Run one cell; those after the first read what it wrote into the folder."""
    try:
        return _MAKERS[name](source, folder)
    except CellError as error:
        return Cell(False, str(error))
    except Exception as error:
        # A defect is a result of the table, not its end.
        return Cell(False, f"{type(error).__name__}: {error}"[:200])


def command(*words: str | Path, refused: bool = False) -> str:
    """Run ``graphgen`` with these words and return what it prints.

    Raises:
        CellError: it fails, unless ``refused`` allows the exit status 1.
    """
    from typer.main import get_command
    from typer.testing import CliRunner

    from graphgen.cli.main import app

    assert get_command(app)
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exit_code > (1 if refused else 0):
        raise CellError(_reason(done.output, done.exception))
    return done.stdout


def _reason(output: str, exception: BaseException | None) -> str:
    """The line of the error, or of what differs."""
    lines = [line for line in output.splitlines() if line.strip()]
    if output.lstrip("{ \n").startswith('"error"'):
        told: Any = json.loads(output)["error"]
        return f"error[{told.get('code')}]: {told.get('what')}"[:200]
    for line in lines:
        if line.startswith(("error", "different", "Error")):
            return line[:200]
    return f"{type(exception).__name__}: {exception}"[:200] if exception else "".join(lines[-1:])


def _imports(source: Source, folder: Path) -> Cell:
    inputs = dict(source.inputs())
    results = list(source.results())
    weights = ["--save-weights", folder / "weights.npz"] if "torch" in source.place else []
    words = ["import", source.place, *source.options, *weights, "-o", folder / "m.gg", "--json"]
    told = command(*words)
    if weights:
        with np.load(folder / "weights.npz") as held:
            inputs |= dict(held)
    np.savez(folder / "given.npz", **inputs)  # pyright: ignore[reportArgumentType]
    np.savez(folder / "results.npz", **{f"r{n:03}": array for n, array in enumerate(results)})  # pyright: ignore[reportArgumentType]
    (folder / "import.json").write_text(told, encoding="utf-8")
    return Cell(True, "yes")


def _runs(on: str) -> Callable[[Source, Path], Cell]:
    def runs(_: Source, folder: Path) -> Cell:
        saved = folder / f"{on}.npz"
        given = folder / "given.npz"
        command("run", folder / "m.gg", "--on", on, "--inputs", given, "--save", saved)
        worst = max(_differences(folder, saved))
        if not worst <= TOLERANCE:
            raise CellError(f"differs by {worst:.1e}")
        return Cell(True, f"{worst:.0e}".replace("e-0", "e-"))

    return runs


def _differences(folder: Path, saved: Path) -> list[float]:
    """The relative difference of each result from what torch or JAX computed."""
    from graphgen.text import parse

    (program,) = parse((folder / "m.gg").read_text(encoding="utf-8")).programs()
    with np.load(saved) as ours, np.load(folder / "results.npz") as theirs:
        names = [name for name, _ in program.outputs]
        wanted = [theirs[key] for key in sorted(theirs)]
        if len(names) != len(wanted):
            raise CellError(f"{len(names)} results, {len(wanted)} expected")
        return [_difference(ours[n], w) for n, w in zip(names, wanted, strict=True)]


def _difference(ours: Array, theirs: Array) -> float:
    if ours.shape != theirs.shape:
        raise CellError(f"a result is {ours.shape}, not {theirs.shape}")
    given, wanted = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    largest = max(float(np.abs(wanted).max(initial=0)), 1e-30)
    return float(np.abs(given - wanted).max(initial=0)) / largest


def _raised(source: Source, folder: Path) -> Cell:
    told: Any = json.loads((folder / "import.json").read_text(encoding="utf-8"))
    found = Counter(told["found"])
    known = {name: min(found[name], count) for name, count in source.composites.items()}
    missing = [
        f"{name} {known[name]} of {count}"
        for name, count in source.composites.items()
        if known[name] < count
    ]
    total = sum(source.composites.values())
    counts = f"{sum(known.values())} of {total}"
    return Cell(not missing, f"{counts} ({', '.join(missing)})" if missing else counts)


def _split(ranks: int) -> Callable[[Source, Path], Cell]:
    def split(_: Source, folder: Path) -> Cell:
        whole, parts = folder / "m.gg", folder / f"tp{ranks}.gg"
        command("opt", whole, "-p", f"default{{tp={ranks}}}", "-o", parts)
        told: Any = json.loads(command("equiv", whole, parts, "--json"))
        return Cell(bool(told["equal"]), f"{_worst(told):.0e}".replace("e-0", "e-"))

    return split


def _worst(told: Mapping[str, Any]) -> float:
    return float(told["relative"])


def _hlo(_: Source, folder: Path) -> Cell:
    from jaxlib import _hlo  # pyright: ignore[reportAttributeAccessIssue]

    file = folder / "m.pb"
    command("lower", folder / "m.gg", "--target", "trn2", "--to", "hlo", "-o", file)
    _hlo.HloModule.from_serialized_hlo_module_proto(file.read_bytes())
    # Exit status 1 means that errors were found, which are counted below.
    told = command("check", file, "--target", "trn2", "--json", refused=True)
    findings: Any = json.loads(told)["findings"]
    errors = sorted({item["rule"] for item in findings if item["severity"] == "error"})
    if errors:
        raise CellError(f"check: {', '.join(errors)}")
    counts = Counter(item["severity"] for item in findings)
    return Cell(True, ", ".join(f"{n} {what}" for what, n in counts.items()) or "clean")


_MAKERS: dict[str, Callable[[Source, Path], Cell]] = {
    "imports": _imports,
    "NumPy": _runs("numpy"),
    "CPU": _runs("cpu"),
    "raised": _raised,
    "tp 2": _split(2),
    "tp 4": _split(4),
    "HLO": _hlo,
}
