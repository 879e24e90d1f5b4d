"""Bucket sizes that programs are compiled for, and the choice of a program for a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphgen.compile_config import SMALLEST_BUCKET
from graphgen.errors import GraphgenError
from graphgen.ir import Dim, Module


def bucket_limit(size: int, limit: int) -> int:
    """The largest bucket for ``size``: the next power of two from 128, at most ``limit``."""
    bucket = SMALLEST_BUCKET
    while bucket < size:
        bucket *= 2
    return min(bucket, max(limit, 1))


def choose_bucket(
    buckets: Sequence[int], size: int, what: str, option: str = "--max-len", other: str = ""
) -> int:
    """The smallest bucket with ``size <= bucket``.

    Args:
        buckets: to choose from, at least one.
        size: tokens.
        what: the tokens, for the error.
        option: the option that makes the largest bucket larger, for the error.
        other: another way out, for the error.

    Raises:
        GraphgenError: GG0701 if the largest bucket is too small; inputs are never truncated.
    """
    for bucket in sorted(buckets):
        if size <= bucket:
            return bucket
    kind = "prompts" if option == "--max-context-length" else "sequences"
    raise GraphgenError(
        "GG0701",
        f"{what} of {size} tokens is longer than the largest bucket, {max(buckets)}",
        help=f"compile for longer {kind}, e.g. {option} {bucket_limit(size, 1 << 30)}{other}",
    )


def choose_prompt_bucket(buckets: Sequence[int], size: int, limit: int) -> int:
    """The smallest bucket for a prompt.

    Args:
        buckets: of prefill programs.
        size: tokens.
        limit: longest sequence.

    Raises:
        GraphgenError: GG0701 if the largest bucket is too small, naming the option to change.
    """
    if max(buckets) < size <= limit:
        other = ", and a bucket of as many tokens if --context-encoding-buckets is given"
        return choose_bucket(buckets, size, "a prompt", "--max-context-length", other)
    return choose_bucket(buckets, size, "a prompt")


@dataclass(frozen=True, slots=True)
class ProgramSize:
    """One compiled program, by the calls it takes.

    Attributes:
        phase: ``prefill`` or ``decode``.
        batch: B, rows of a call.
        tokens: S, tokens of a row.
        bucket: C, slots of a cache row it attends to.
        name: of the function.
    """

    phase: str
    batch: int
    tokens: int
    bucket: int
    name: str


class ProgramTable:
    """The programs of a module by phase, rows and bucket.

    Attributes:
        sizes: all programs.
        rows: R, rows of a cache.
        slots: M, slots of a cache row.
        limit: longest sequence: slots of the largest decode bucket, M without decode programs.
    """

    def __init__(self, module: Module) -> None:
        self.sizes: list[ProgramSize] = []
        self.rows = self.slots = 0
        for function in module.programs():
            sizes = function.dims
            self.rows, self.slots = _int(sizes["R"]), _int(sizes["M"])
            batch, tokens, bucket = (_int(sizes[key]) for key in "BSC")
            self.sizes.append(ProgramSize(function.phase, batch, tokens, bucket, function.name))
        self.limit = max(self.buckets("decode"), default=self.slots)

    def buckets(self, phase: str) -> list[int]:
        """The buckets of a phase, in order; empty for a phase without programs."""
        return sorted({size.bucket for size in self.sizes if size.phase == phase})

    def batches(self, phase: str) -> list[int]:
        """The sizes of B of a phase, in order."""
        return sorted({size.batch for size in self.sizes if size.phase == phase})

    def find(self, phase: str, rows: int, needed: int) -> ProgramSize:
        """The smallest program for ``rows`` rows that attends to ``needed`` slots.

        Args:
            phase: that has programs.
            rows: at most those of the largest program.
            needed: slots up to the last token.

        Raises:
            GraphgenError: GG0701 if the largest bucket is too small.
        """
        batch = min(size for size in self.batches(phase) if size >= rows)
        fitting = {
            size.bucket: size for size in self.sizes if (size.phase, size.batch) == (phase, batch)
        }
        if phase == "decode":
            return fitting[choose_bucket(list(fitting), needed, "a sequence")]
        return fitting[choose_prompt_bucket(list(fitting), needed, self.limit)]


def _int(value: Dim) -> int:
    assert isinstance(value, int), value
    return value
