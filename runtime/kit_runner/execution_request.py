"""The lines of JSON between the runner and the process that holds the device."""

from __future__ import annotations

from typing import TypedDict


class ArrayFile(TypedDict):
    """An argument with its bytes, or a result without: its type and where it is."""

    name: str
    dtype: str
    dims: list[int]
    path: str


class ExecutionRequest(TypedDict):
    """A program to run: the NEFF, or the HLO for a device that compiles for itself.

    The bytes of each result are written to its ``path``.
    """

    neff: str
    hlo: str
    words: list[str]
    inputs: list[ArrayFile]
    outputs: list[ArrayFile]
    aliases: dict[str, str]
    repeat: int


class ExecutionAnswer(TypedDict):
    """``why`` is empty for a program that ran."""

    why: str
    times_s: list[float]
