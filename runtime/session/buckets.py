"""Bucket sizes that programs are compiled for, and the choice of a program for a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from graphgen.config.bucket_ladder import SMALLEST_BUCKET, short_prompts
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.exec.decode_steps import COUNT, STEPS
from graphgen.ir import VERIFY, VERIFY_TREE, VERIFYING, Dim, Module
from graphgen.runtime.session.step_call import Index, StepCall

# Programs of the phase ``prefill`` that take fewer tokens a row than they attend to slots.
CHUNK = "chunk"


def bucket_limit(size: int, limit: int) -> int:
    """The largest bucket for ``size``: the next power of two from 128, at most ``limit``."""
    bucket = SMALLEST_BUCKET
    while bucket < size:
        bucket *= 2
    return min(bucket, max(limit, 1))


def choose_bucket(
    buckets: Sequence[int],
    size: int,
    what: str,
    option: str = "--max-len",
    other: str = "",
    limit: int = 1 << 30,
) -> int:
    """The smallest bucket with ``size <= bucket``.

    Args:
        buckets: to choose from, at least one.
        size: tokens.
        what: the tokens, for the error.
        option: the option that makes the largest bucket larger, for the error.
        other: another way out, for the error.
        limit: the most that the option can be, for the error.

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
        help=f"compile for longer {kind}, e.g. {option} {bucket_limit(size, limit)}{other}",
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
        return choose_bucket(buckets, size, "a prompt", "--max-context-length", other, limit)
    return choose_bucket(buckets, size, "a prompt")


def with_short_prompts(config: CompileConfig, longest: int = 0) -> CompileConfig:
    """The same with prefill buckets for short prompts before those that begin at 128 or later.

    On a CPU 128 tokens take several times as long as 16. Devices have the ladder as it is, and so
    have programs whose results, or ranks, depend on the tokens of a launch.

    Args:
        config: with the usual buckets.
        longest: tokens of the prompts, whose bucket alone is added; 0 for all.
    """
    divided = config.cp_degree > 1 or config.rules or config.capacity_factor
    if config.target != "cpu" or divided or config.context[0] < SMALLEST_BUCKET:
        return config
    return replace(config, context=(*short_prompts(longest), *config.context))


@dataclass(frozen=True, slots=True)
class ProgramSize:
    """One compiled program, by the calls it takes.

    Attributes:
        phase: ``prefill``, ``decode``, :data:`CHUNK`, :data:`STEPS`, or one of :data:`VERIFYING`.
        batch: B, rows of a call.
        tokens: S, tokens of a row.
        bucket: C, slots of a cache row it attends to.
        name: of the function.
        steps: N, tokens of a row that follow each other in one launch.
    """

    phase: str
    batch: int
    tokens: int
    bucket: int
    name: str
    steps: int = 1


class ProgramTable:
    """The programs of a module by phase, rows, tokens and bucket.

    Attributes:
        sizes: all programs.
        rows: R, rows of a cache.
        slots: M, slots of a cache row.
        limit: longest sequence: slots of the largest decode bucket, M without decode programs.
        steps: decode steps that one launch makes at most.
        verifies: tokens of a row that one launch verifies; 0 without programs for it.
        tree_nodes: the same of tokens that form a tree.
    """

    def __init__(self, module: Module) -> None:
        self.sizes: list[ProgramSize] = []
        self.rows = self.slots = 0
        for function in module.programs():
            sizes = function.dims
            self.rows, self.slots = _int(sizes["R"]), _int(sizes["M"])
            batch, tokens, bucket = (_int(sizes[key]) for key in "BSC")
            phase = function.phase
            if phase == "prefill" and tokens < bucket:
                phase = CHUNK
            steps = _int(sizes.get(COUNT, 1)) if phase == STEPS else 1
            self.sizes.append(ProgramSize(phase, batch, tokens, bucket, function.name, steps))
        self.limit = max(self.buckets("decode"), default=self.slots)
        self.steps = max((size.steps for size in self.sizes), default=1)
        self.verifies, self.tree_nodes = (
            max((size.tokens for size in self.sizes if size.phase == phase), default=0)
            for phase in (VERIFY, VERIFY_TREE)
        )

    def buckets(self, phase: str) -> list[int]:
        """The buckets of a phase, in order; empty for a phase without programs."""
        return sorted({size.bucket for size in self.sizes if size.phase == phase})

    def batches(self, phase: str) -> list[int]:
        """The sizes of B of a phase, in order."""
        return sorted({size.batch for size in self.sizes if size.phase == phase})

    def chunk_sizes(self) -> list[int]:
        """The sizes of S of the chunk programs, in order."""
        return sorted({size.tokens for size in self.sizes if size.phase == CHUNK})

    def verify_sizes(self) -> list[int]:
        """The sizes of S of the verify programs, in order."""
        return sorted({size.tokens for size in self.sizes if size.phase == VERIFY})

    def phase_of(self, call: StepCall, width: int) -> str:
        """The programs that a step goes through, of ``width`` columns.

        One token a row goes through the decode programs, several through the prefill programs, or
        through the chunk programs where one of those takes them with less padding, or where they
        reach beyond the largest prefill bucket: then more than the largest chunk go in several
        launches. Without chunk programs several tokens go through the decode programs one after the
        other, where a row goes on beyond the largest prefill bucket or there is none. Trees have
        programs of their own.
        """
        if call.ancestors is not None:
            return VERIFY_TREE
        prefill, decode = self.buckets("prefill"), self.buckets("decode")
        if width == 1 and decode:
            return "decode"
        chunks = self.chunk_sizes()
        longest = max(int(call.lengths.max(initial=0)), width)
        if chunks:
            if not prefill or longest > prefill[-1]:
                return CHUNK
            # A prefill program takes as many tokens as it has slots, held ones too; it reads the
            # weights once, where several chunks read them several times.
            chunk = min((size for size in chunks if size >= width), default=longest)
            taken = self.find("prefill", 1, longest).tokens
            return CHUNK if chunk < taken and width <= chunks[-1] else "prefill"
        if not prefill or not decode:
            return "prefill" if prefill else "decode"
        beyond = call.starts[call.lengths > prefill[-1]]
        going_on = len(beyond) > 0 and bool((beyond > 0).all())
        return "decode" if going_on else "prefill"

    def prompt_phase(self, longest: int) -> str:
        """The programs that prompts of up to ``longest`` tokens go through."""
        prefill, chunks = self.buckets("prefill"), self.chunk_sizes()
        if chunks and (not prefill or longest > prefill[-1]):
            return CHUNK
        return "prefill" if prefill else "decode"

    def parts(self, phase: str, columns: Index) -> list[Index]:
        """The columns of each launch."""
        if phase in ("prefill", *VERIFYING):
            return [columns]
        most = self.chunk_sizes()[-1] if phase == CHUNK else 1
        return [columns[start : start + most] for start in range(0, len(columns), most)]

    def prompt_programs(self, rows: int, longest: int) -> list[ProgramSize]:
        """The programs that ``rows`` prompts of up to ``longest`` tokens go through (GG0701)."""
        phase = self.prompt_phase(longest)
        rows = min(rows, self.batches(phase)[-1])
        if phase != CHUNK:
            return [self.find(phase, rows, longest)]
        parts = self.parts(phase, np.arange(longest))
        return [self.find(phase, rows, int(part[-1]) + 1, len(part)) for part in parts]

    def find(self, phase: str, rows: int, needed: int, tokens: int = 1) -> ProgramSize:
        """The smallest program for ``rows`` rows that attends to ``needed`` slots.

        Args:
            phase: that has programs.
            rows: at most those of the largest program.
            needed: slots up to the last token.
            tokens: of a row, at most those of the largest chunk; of chunk and verify programs only,
                as the others take one, or as many as they have slots.

        Raises:
            GraphgenError: GG0701 if the largest bucket is too small.
        """
        batch = min(size for size in self.batches(phase) if size >= rows)
        several = {CHUNK: self.chunk_sizes, VERIFY: self.verify_sizes}.get(phase)
        width = min((size for size in several() if size >= tokens), default=0) if several else 0
        fitting = {
            size.bucket: size
            for size in self.sizes
            if (size.phase, size.batch) == (phase, batch) and (not several or size.tokens == width)
        }
        if phase == "prefill":
            return fitting[choose_prompt_bucket(list(fitting), needed, self.limit)]
        return fitting[choose_bucket(list(fitting), needed, "a sequence")]


def _int(value: Dim) -> int:
    assert isinstance(value, int), value
    return value
