"""AWS's benchmark of an application, over :mod:`graphgen.runtime.benchmark`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.ir import VERIFY
from graphgen.json_value import Json
from graphgen.runtime.aws_nxdi.assisted_decoding import draft_of
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.benchmark.benchmark_report import END_TO_END, SUB_MODELS, run_benchmark
from graphgen.runtime.generation import GenerationRequest, generate
from graphgen.runtime.speculation.speculator import Speculator

BENCHMARK_REPORT_PATH: Final = "./benchmark_report.json"
_TARGETS: Final = {
    "all": None,
    "e2e": END_TO_END,
    "context_encode": SUB_MODELS["prefill"],
    "token_gen": SUB_MODELS["decode"],
    "speculation": SUB_MODELS[VERIFY],
}


def benchmark_sampling(
    model: NeuronBaseForCausalLM,
    draft_model: object = None,
    generation_config: object = None,
    target: str | None = None,
    image: object = None,
    num_runs: int = 20,
    benchmark_report_path: str | Path | None = BENCHMARK_REPORT_PATH,
) -> dict[str, Json]:
    """Measure a loaded application over random prompts, after a warm-up that is not counted.

    Every row answers greedily with as many tokens as the configuration has room for.

    Args:
        model: a loaded application.
        draft_model: a loaded application that proposes tokens; ``None`` for none.
        image: refused; of models that are not built.
        generation_config: accepted for AWS's signature; runs are greedy, to equal lengths.
        target: ``all``, ``e2e``, ``context_encode``, ``token_gen`` or, with a draft,
            ``speculation``: the report's entries.
        num_runs: measured runs.
        benchmark_report_path: the JSON file; ``None`` for none.

    Returns:
        AWS's columns by sub-model; with ``all`` also ``results`` of requests, as LLMPerf has them,
        and ``errors``.

    Raises:
        GraphgenError: GG0705 for another target and for programs that verify no tokens, GG0904 for
            an image; GG0902, GG0903, GG0705, GG0904 and GG0908 for the draft.
    """
    if image is not None:
        what = "benchmark_sampling(image=...): a model that reads images is not built"
        raise GraphgenError("GG0904", what, help="leave image out")
    if (target or "all") not in _TARGETS:
        known = ", ".join(_TARGETS)
        raise GraphgenError("GG0705", f"the target {target!r} is unknown", help=f"one of {known}")
    if target == "speculation" and draft_model is None:
        what = "benchmark_sampling(target='speculation'): nothing proposes tokens"
        raise GraphgenError("GG0705", what, help="give draft_model")
    prompts, new_tokens = _sizes(model)
    session = model.running().session
    model.reset()
    run = _answers(model, draft_model, prompts, GenerationRequest(new_tokens))
    length = _number(model, "max_length")
    found = run_benchmark(run, session, [len(row) for row in prompts], length, num_runs)
    model.reset()
    wanted = _TARGETS[target or "all"]
    whole = found.to_json()
    report = whole if wanted is None else {wanted: whole[wanted], "errors": whole["errors"]}
    if benchmark_report_path is not None:
        found.write(Path(benchmark_report_path), report)
    return report


def _answers(
    model: NeuronBaseForCausalLM,
    draft_model: object,
    prompts: list[list[int]],
    request: GenerationRequest,
) -> Callable[[], Sequence[int]]:
    """A function that answers the prompts and gives the number of new tokens of each."""
    session = model.running().session
    in_flight = bool(model.neuron_config.value("async_mode"))

    def run() -> Sequence[int]:
        decode = None
        if draft_model is not None:
            draft = draft_of(model, draft_model, [session.limit] * len(prompts))
            decode = Speculator(draft, session.table.verifies).decode
        done, _ = generate(session, prompts, request, async_mode=in_flight, decode=decode)
        return [len(row.tokens) for row in done]

    return run


def _sizes(model: NeuronBaseForCausalLM) -> tuple[list[list[int]], int]:
    """Random prompts, as long as allowed beside at least half as many new tokens as none is set."""
    length, context = _number(model, "seq_len"), _number(model, "max_context_length")
    new_tokens = model.neuron_config.value("max_new_tokens")
    room = max(1, length // 2) if new_tokens is None else cast(int, new_tokens)
    width = max(1, min(context, length - room))
    vocabulary = model.running().model.vocab_size
    shape = (_number(model, "batch_size"), width)
    ids = np.random.default_rng(0).integers(0, vocabulary, shape)
    return ids.tolist(), min(room, length - width)


def _number(model: NeuronBaseForCausalLM, name: str) -> int:
    return cast(int, model.neuron_config.value(name))
