"""Sampling settings from options as users write them, with the errors of options."""

from __future__ import annotations

from collections.abc import Sequence

from graphgen.config.fields import MismatchError, integer, number
from graphgen.errors import GraphgenError
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.sampling_settings import SETTINGS

# Candidates of NxD Inference; a top-k up to this number loses nothing by it.
CANDIDATES = 256
# In the order of the filters of `sampling_settings`.
_FILTERS = (
    "temperature",
    "top_k",
    "top_p",
    "top_p_min_tokens",
    "min_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
)
_RULES = ("repetition_penalty", "no_repeat_ngram_size")


def sampling_settings(
    do_sample: bool,
    filters: Sequence[str | None],
    seed: int | None,
    deterministic: bool,
    answers: tuple[int, int],
) -> list[Sampling]:
    """Settings of each sequence, those of one prompt next to each other.

    Args:
        do_sample: draw tokens instead of taking the most probable one.
        filters: temperature, top_k, top_p, top_p_min_tokens, min_p, repetition_penalty,
            no_repeat_ngram_size as the user writes them: one value, or one per prompt.
        seed: of the random numbers.
        deterministic: draw with the number 0.5 each time.
        answers: number of prompts, and number of answers to each.

    Raises:
        GraphgenError: GG0705 for options that would have no effect, values without meaning, and
            another number of values than of prompts.
    """
    prompts, sequences = answers
    texts = dict(zip(_FILTERS, filters, strict=True))
    given = {name: text for name, text in texts.items() if text is not None}
    drawing = [_option(name) for name in given if name not in _RULES]
    drawing += ["--seed"] * (seed is not None) + ["--deterministic"] * deterministic
    if not do_sample:
        _check_greedy(drawing, sequences)
    if deterministic and seed is not None:
        raise GraphgenError(
            "GG0705",
            "--seed has no effect with --deterministic, which takes no random numbers",
            help="leave one of them out",
        )
    if deterministic and sequences > 1:
        raise _same_answers(sequences, "leave --deterministic out")
    columns = {name: _values(name, text, prompts) for name, text in given.items()}
    rows = [{name: values[row] for name, values in columns.items()} for row in range(prompts)]
    made = [
        Sampling(do_sample=do_sample, seed=seed or 0, deterministic=deterministic, **row)  # pyright: ignore[reportArgumentType]
        for row in rows
    ]
    return [how for how in made for _ in range(sequences)]


def _check_greedy(drawing: Sequence[str], sequences: int) -> None:
    """Refuse options without effect on greedy decoding (GG0705)."""
    if drawing:
        raise GraphgenError(
            "GG0705", f"{drawing[0]} has no effect without --do-sample", help="add --do-sample"
        )
    if sequences > 1:
        raise _same_answers(sequences, "add --do-sample")


def _same_answers(sequences: int, help: str) -> GraphgenError:
    return GraphgenError(
        "GG0705",
        f"--num-return-sequences {sequences} would give the same answer {sequences} times",
        help=help,
    )


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _values(field: str, text: str, prompts: int) -> list[float]:
    """The value of each prompt (GG0705)."""
    # The range is checked with the other settings.
    kind = integer() if SETTINGS[field].type.code == "int" else number(infinite=True)
    values: list[float] = []
    for item in text.split(","):
        try:
            values.append(kind.parse(item.strip()))
        except MismatchError as error:
            raise GraphgenError(
                "GG0705",
                f"{_option(field)} is '{item.strip()}', {error}",
                help="give one value, or one a prompt with commas between them",
            ) from None
    if len(values) not in (1, prompts):
        raise GraphgenError(
            "GG0705",
            f"{_option(field)} has {len(values)} values for {prompts} "
            f"prompt{'s' if prompts > 1 else ''}",
            help="give one value, or one a prompt",
        )
    return values * prompts if len(values) == 1 else values


def on_device_pass(
    rows: Sequence[Sampling], candidates: int | None, by_programs: bool
) -> str | None:
    """The pass that makes programs sample as ``rows`` say, as text for a pipeline.

    Args:
        rows: of each sequence; those that draw agree on ``deterministic``.
        candidates: number of best tokens to draw from; ``None`` to derive it from ``rows``.
        by_programs: whether programs sample at all; ``None`` is returned otherwise.

    Raises:
        GraphgenError: GG0705 for rules that programs lack, or candidates without drawing.
    """
    if candidates is not None and not (by_programs and any(how.do_sample for how in rows)):
        raise GraphgenError(
            "GG0705",
            "--global-topk has no effect without --on-device-sampling and --do-sample",
            help="add both",
        )
    if not by_programs:
        return None
    for how in rows:
        _check_known(how)
    drawn = [how for how in rows if how.do_sample]
    if not drawn:
        return "on-device-sampling"
    if candidates is None:
        few = all(0 < how.top_k <= CANDIDATES for how in drawn)
        candidates = CANDIDATES if few else 0
    options = f"do_sample=true,global_topk={candidates}"
    options += ",deterministic=true" * drawn[0].deterministic
    options += ",top_p_min_tokens=true" * any(how.top_p_min_tokens > 1 for how in drawn)
    return f"on-device-sampling{{{options}}}"


def _check_known(how: Sampling) -> None:
    """Refuse rules that programs lack (GG0705)."""
    for name, row in SETTINGS.items():
        if getattr(how, name) != row.none and not row.in_programs and name != "seed":
            raise GraphgenError(
                "GG0705",
                f"{_option(name)} and --on-device-sampling exclude each other",
                help="leave one of them out: the host has this rule, programs have not",
            )
