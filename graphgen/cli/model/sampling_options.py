"""Sampling options of ``graphgen generate``, under Hugging Face's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from graphgen.cli.flag_group import flag_field

if TYPE_CHECKING:
    from graphgen.runtime.sampling import Sampling

_DRAW = "Draw tokens instead of taking the best one."
_BY_PROGRAMS = "Let the programs choose tokens, not the host."
DoSample = Annotated[bool, typer.Option("--do-sample", help=_DRAW)]
OnDevice = Annotated[bool, typer.Option("--on-device-sampling", help=_BY_PROGRAMS)]
_FLOATS, _INTS = "FLOAT[,FLOAT...]", "INT[,INT...]"


@dataclass(frozen=True, slots=True)
class SamplingFlags:
    """The values of the flags."""

    do_sample: bool = flag_field(False, _DRAW)
    temperature: str | None = flag_field(
        None,
        "Divides scores; above 1 is more random, 0 takes the best token. Like the next six: "
        "one value, or one a prompt.",
        metavar=_FLOATS,
    )
    top_k: str | None = flag_field(None, "Keep this many best tokens; 0 or -1: all.", metavar=_INTS)
    top_p: str | None = flag_field(
        None, "Keep the best tokens that reach this probability.", metavar=_FLOATS
    )
    top_p_min_tokens: str | None = flag_field(
        None, "Let --top-p keep at least this many tokens.", metavar=_INTS
    )
    min_p: str | None = flag_field(
        None, "Drop tokens below this part of the best one's probability.", metavar=_FLOATS
    )
    repetition_penalty: str | None = flag_field(
        None, "Above 1 makes tokens that are there less likely.", metavar=_FLOATS
    )
    no_repeat_ngram_size: str | None = flag_field(
        None, "No n-gram of this many tokens occurs twice.", metavar=_INTS
    )
    seed: int | None = flag_field(None, "Of the random numbers.  [default: 0]")
    deterministic: bool = flag_field(False, "Draw with the number 0.5 each time: no randomness.")
    num_return_sequences: int = flag_field(
        1, "Answers to each prompt; each has a row of the batch.", min=1, max=4096
    )
    on_device_sampling: bool = flag_field(False, _BY_PROGRAMS)
    global_topk: int | None = flag_field(
        None,
        "Number of best tokens that programs sample from; 0: all.  "
        "[default: 256 if every --top-k is within, else all]",
        min=0,
    )

    def settings(self, prompts: int) -> list[Sampling]:
        """The settings of each answer, those of one prompt next to each other (GG0705)."""
        from graphgen.runtime.sampling.sampling_flags import sampling_settings

        filters = (self.temperature, self.top_k, self.top_p, self.top_p_min_tokens, self.min_p)
        filters = (*filters, self.repetition_penalty, self.no_repeat_ngram_size)
        answers = (prompts, self.num_return_sequences)
        return sampling_settings(self.do_sample, filters, self.seed, self.deterministic, answers)


GREEDY_FLAGS = SamplingFlags()
