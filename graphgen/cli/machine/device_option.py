"""``--device`` of commands that run a model: the CPU, or the target of a compiled folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from graphgen.errors import GraphgenError

Device = Annotated[
    Literal["auto", "cpu", "neuron"],
    typer.Option("--device", help="auto: what MODEL was compiled for, this CPU if for nothing."),
]


def check_device(model: str, device: str) -> None:
    """Refuse a device that MODEL does not run on (GG0705)."""
    from graphgen.runtime.artifact import is_for_device

    compiled = is_for_device(Path(model))
    if device == "cpu" and compiled:
        raise GraphgenError(
            "GG0705",
            f"--device cpu: {model} was compiled for a device",
            help="leave it out, or give the checkpoint",
        )
    if device == "neuron" and not compiled:
        raise GraphgenError(
            "GG0705",
            f"--device neuron: {model} is not compiled for it",
            help=f"graphgen compile {model} --weights -o DIR, then give DIR",
        )
