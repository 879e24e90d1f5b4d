"""How fast is SmolLM2-135M on this CPU, beside the engines that people run models with?

Each engine is a child process in its own Python environment (``--python ENGINE=INTERPRETER``), left
out with a message where it is not installed. All have the same weights and prompts and take turns;
who waits is stopped. Tokens are greedy, and compared with ours.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import math
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.comparison.goals import goal_lines
from benchmarks.comparison.interfaces import Case
from benchmarks.comparison.measured import Measured, markdown, perplexity_lines, rows_of
from benchmarks.comparison.model_files import write_files
from benchmarks.comparison.picture import write_pictures
from benchmarks.comparison.quantized_folder import write_int4_folder
from benchmarks.comparison.rounds import Rounds, close_all, say, start_engines, windows_of
from benchmarks.engines import ENGINES, OURS
from benchmarks.rows import table, write_json
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

ROOT = Path(__file__).resolve().parent.parent
TEXT = ROOT / "tests" / "data" / "lighthouse.txt"
# Tokens of a window of perplexity, as of `graphgen perplexity`.
WINDOW = 256
CASES = [Case(*c) for c in itertools.product(("f32", "bf16", "int8", "int4"), (1, 8), (128, 512))]


@dataclass(slots=True)
class Outcome:
    """All that was measured."""

    cases: list[Measured] = field(default_factory=list[Measured])
    perplexities: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])
    versions: dict[str, str] = field(default_factory=dict[str, str])


def run(
    cases: Sequence[Case], rounds: Rounds, text: Sequence[int], perplexity: bool, outcome: Outcome
) -> None:
    """Measure the cases, one kind of weights after the other, and add each to ``outcome``."""
    for weights, group in itertools.groupby(cases, key=lambda case: case.weights):
        opened = False
        for case in group:
            if (measured := rounds.measure(case)) is not None:
                opened = True
                outcome.cases.append(measured)
                say(measured.line())
        if opened and perplexity:
            found = rounds.perplexities(weights, windows_of(text, WINDOW))
            outcome.perplexities[weights] = found


def report(outcome: Outcome, options: argparse.Namespace) -> None:
    """Print the tables; write the rows and the picture where asked to."""
    rows = rows_of(outcome.cases, outcome.versions, outcome.perplexities)
    print(table(rows, ("tokens",)), end="\n\n")
    used = [name for name in outcome.versions if any(name in m.seconds for m in outcome.cases)]
    print(markdown(outcome.cases, used), end="\n\n")
    print("\n".join(goal_lines(outcome.cases, outcome.perplexities)), end="\n\n")
    print("\n".join(perplexity_lines(outcome.perplexities)))
    if options.json:
        write_json(rows, options.json)
    if options.plot:
        title = f"SmolLM2-135M, {machine()}, {datetime.date.today():%Y-%m-%d}"
        for path in write_pictures(outcome.cases, used, title, options.plot):
            say(f"wrote {path}")


def machine() -> str:
    """The processor's name and the number of cores, as Linux gives them."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "CPU")
    return f"{len(os.sched_getaffinity(0))} cores of {name}"


def _pair(text: str) -> tuple[str, str]:
    name, _, python = text.partition("=")
    if not python:
        raise argparse.ArgumentTypeError(f"{text}: ENGINE=INTERPRETER is needed")
    return name, python


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(description=__doc__)
    out.add_argument("--engine", action="append", help="a peer, or a module; by default all")
    out.add_argument("--python", action="append", type=_pair, default=[], help="ENGINE=INTERPRETER")
    out.add_argument("--only", action="append", help="a case, e.g. bf16.b1.p128; repeatable")
    out.add_argument("--rounds", type=int, default=3, help="turns of each engine (default 3)")
    out.add_argument("--steps", type=int, default=16, help="decode steps a turn (default 16)")
    out.add_argument("--alone", action="store_true", help="let other work wait; needs root")
    out.add_argument("--no-perplexity", action="store_true", help="leave out the perplexities")
    out.add_argument(
        "--models", type=Path, default=ROOT / ".cache" / "compare", help="files go here"
    )
    out.add_argument("--json", type=Path, help="also write the rows to this file")
    out.add_argument("--plot", type=Path, help="also write PATH.png and PATH.svg")
    return out


def main() -> None:
    """Run the cases and print the tables."""
    options = parser().parse_args()
    # Engines that wait are stopped: they would outlive a process that ends without more ado.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    path = locate("smollm2")
    assert path is not None
    checkpoint = open_checkpoint(path)
    files = write_files(checkpoint, options.models)
    sizes = [info.shape for info in checkpoint.tensors().values()]
    parameters = sum(math.prod(shape) for shape in sizes)
    text = load_tokenizer(path).encode(TEXT.read_text())
    chosen = [case for case in CASES if not options.only or case.name in options.only]
    if any(case.weights == "int4" for case in chosen):
        files.quantized["int4"] = write_int4_folder(checkpoint, options.models / "int4-gptq")
    peers = options.engine or [name for name in ENGINES if name != OURS]
    engines = start_engines([OURS, *peers], dict(options.python))
    outcome = Outcome(versions={name: engine.version for name, engine in engines.items()})
    try:
        how = options.rounds, options.steps, options.alone
        rounds = Rounds(engines, files, parameters, text, *how)
        run(chosen, rounds, text, not options.no_perplexity, outcome)
    except KeyboardInterrupt:
        say("interrupted: this was measured until then")
    finally:
        close_all(engines.values())
        if outcome.cases:
            report(outcome, options)


if __name__ == "__main__":
    main()
