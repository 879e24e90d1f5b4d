"""The command line of a kit's runner."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from graphgen.runtime.device_kit.runner.device_client import AUTO


class Arguments(argparse.Namespace):
    """The options of one call."""

    only: list[str]
    target: str
    jobs: int
    timeout: float
    run_timeout: float
    repeat: int
    output: Path
    work: Path
    compiler: str
    device: str
    retry: bool
    list: bool


def parse(words: Sequence[str], kit: Path) -> Arguments:
    """Read the words of the command line; wrong ones end the program with status 2."""
    parser = argparse.ArgumentParser(
        "run.py",
        description="Compile and run every case of this kit with the Neuron SDK that is here, "
        "and write what came of it as one JSON. It may be stopped at any time: the same command "
        "goes on where it was.",
    )
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="PATTERN", help="such as 'op/add' or '*f8*'")
    add("--target", default="", help="by default that of the machine")
    add("--jobs", type=int, default=0, help="compilers at a time; by default one a core, at most 8")
    add("--timeout", type=float, default=1800.0, metavar="S", help="seconds of a compiler")
    add("--run-timeout", type=float, default=120.0, metavar="S", help="seconds of an execution")
    add("--repeat", type=int, default=5, metavar="N", help="runs to be timed after the first")
    add("-o", "--output", type=Path, default=Path("results.json"), help="the results")
    add("--work", type=Path, default=kit / "work", help="folder for files and finished cases")
    add("--compiler", default="neuronx-cc", help="the compiler, a name or a path")
    add("--device", default=AUTO, metavar="NAME", help="auto, nrt, jax, or none to compile only")
    add("--retry", action="store_true", help="run again cases that did not end well")
    add("--list", action="store_true", help="name the cases and end")
    return parser.parse_args(list(words), Arguments())
