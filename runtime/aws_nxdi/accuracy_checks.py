"""AWS's accuracy checks of an application, over :mod:`graphgen.runtime.accuracy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from graphgen.errors import GraphgenError
from graphgen.runtime.accuracy.accuracy_check import (
    AccuracyError,
    AccuracyReport,
    LayerSearch,
    check_logits,
    check_tokens,
)
from graphgen.runtime.accuracy.expected_outputs import ExpectedOutputs, expect
from graphgen.runtime.accuracy.graph_layers import GraphLayers
from graphgen.runtime.accuracy.hugging_face_model import HuggingFaceModel
from graphgen.runtime.accuracy.step_model import LayerModel, SessionModel
from graphgen.runtime.accuracy.tolerances import (
    AWS_TOLERANCES,
    DIVERGENCE_DIFFERENCE_TOL,
    ToleranceMap,
    tolerance_map,
)
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws_nxdi.generate_outputs import get_generate_outputs
from graphgen.runtime.aws_nxdi.user_arrays import as_numpy

TEST_PROMPT = "The keeper of the lighthouse climbed the stairs and"


class LogitMatchingValidationError(AccuracyError, AssertionError):
    """Logits differ (GG0907); an ``AssertionError`` too, as AWS's error of this name is.

    Args:
        report: the result.

    Attributes:
        message: the first failure in a sentence.
        results: for each row the comparisons of its steps, as dictionaries.
    """

    def __init__(self, report: AccuracyReport) -> None:
        super().__init__(report)
        self.message = self.what
        self.results = rows_of(report)


class CheckedTokenizer(Protocol):
    """The part of transformers' tokenizers that is used."""

    @property
    def eos_token_id(self) -> int | None:
        """The token that ends a text."""
        ...

    def __call__(self, text: list[str]) -> Mapping[str, list[list[int]]]:
        """``input_ids`` of each text."""
        ...


def check_accuracy(
    neuron_model: NeuronBaseForCausalLM,
    tokenizer: CheckedTokenizer,
    generation_config: object = None,
    expected_token_ids: object = None,
    num_tokens_to_check: int | None = None,
    do_sample: bool = False,
    draft_model: object = None,
    prompt: str | None = None,
    image: object = None,
    input_start_offsets: object = None,
    execution_mode: str = "config",
) -> AccuracyReport:
    """Match the greedy tokens of an application with those of transformers.

    Args:
        neuron_model: a loaded application.
        tokenizer: of transformers.
        generation_config: settings of both sides.
        expected_token_ids: integers [B,N], with or without the prompt; by default transformers
            generates them from ``load_hf_model``.
        num_tokens_to_check: new tokens; by default as many as the application holds.
        do_sample, draft_model, image, input_start_offsets, execution_mode: only what requests
            nothing is accepted.
        prompt: the text of every row.

    Raises:
        AccuracyError: GG0907 at the first difference.
        GraphgenError: GG0904 for features that are not built.
    """
    _refuse(draft_model, image, input_start_offsets, execution_mode, do_sample=do_sample)
    prompts = [prompt or TEST_PROMPT] * _number(neuron_model, "batch_size")
    rows = tokenizer(prompts)["input_ids"]
    width = max(map(len, rows))
    steps = _steps(neuron_model, width, num_tokens_to_check)

    def generated(model: object, *, is_hf: bool) -> list[list[int]]:
        outputs, _ = get_generate_outputs(
            model, prompts, tokenizer, is_hf, None, generation_config,
            do_sample=False, max_new_tokens=steps,
        )  # fmt: skip
        sequences = as_numpy(getattr(outputs, "sequences", outputs))
        return _ended(sequences[:, width:].tolist(), ends)

    ends = _end_tokens(generation_config, tokenizer)
    if expected_token_ids is None:
        reference = neuron_model.load_hf_model(neuron_model.model_path)
        expected = generated(reference, is_hf=True)
    else:
        expected = _ended(_without_prompt(expected_token_ids, rows, steps), ends)
    report = check_tokens(ExpectedOutputs(rows, expected), generated(neuron_model, is_hf=False))
    report.require_passed()
    return report


def check_accuracy_logits(
    neuron_model: NeuronBaseForCausalLM,
    tokenizer: CheckedTokenizer | None = None,
    generation_config: object = None,
    prompt: str | None = None,
    expected_logits: object = None,
    divergence_difference_tol: float = DIVERGENCE_DIFFERENCE_TOL,
    tol_map: Mapping[object, object] | None = None,
    num_tokens_to_check: int | None = None,
    execution_mode: str = "config",
    draft_model: object = None,
    image: object = None,
    inputs: object = None,
    input_start_offsets: object = None,
) -> list[list[Mapping[str, object]]]:
    """Match the logits of an application, with the reference's tokens fed after a divergence.

    Args:
        neuron_model: a loaded application whose programs give logits.
        tokenizer: of transformers; may be ``None`` beside ``inputs``.
        generation_config: accepted for AWS's signature; logits are compared greedily and before
            any processor.
        prompt: the text of every row.
        expected_logits: f32 [T,B,V]; by default of transformers, from ``load_hf_model``.
        divergence_difference_tol: accepted gap between the best and the expected token, in logits.
        tol_map: k to (atol, rtol), ``None`` for all logits; AWS's defaults.
        num_tokens_to_check: steps; by default as many as the application holds.
        execution_mode, draft_model, image, input_start_offsets: only what requests nothing.
        inputs: with ``input_ids`` [B,S] and ``attention_mask`` [B,S], in place of ``prompt``.

    Returns:
        For each row the comparison of each step.

    Raises:
        LogitMatchingValidationError: GG0907 at the first error, naming step, token and layer.
        GraphgenError: GG0705 for programs that choose tokens and give no logits.
    """
    _refuse(draft_model, image, input_start_offsets, execution_mode)
    if inputs is None and tokenizer is None:
        raise GraphgenError("GG0705", "logit matching needs a tokenizer, or inputs")
    if inputs is None:
        texts = [prompt or TEST_PROMPT] * _number(neuron_model, "batch_size")
        rows = cast(CheckedTokenizer, tokenizer)(texts)["input_ids"]
    else:
        rows = _unpadded(_part(inputs, "input_ids"), _part(inputs, "attention_mask"))
    logits = None if expected_logits is None else as_numpy(expected_logits).astype(np.float32)
    return _matched(
        neuron_model, rows, logits, divergence_difference_tol, tol_map, num_tokens_to_check
    )


def generate_expected_logits(
    neuron_model: NeuronBaseForCausalLM,
    input_ids: object,
    inputs_attention_mask: object,
    generation_config: object = None,
    num_tokens: int | None = None,
) -> npt.NDArray[np.float32]:
    """The logits f32 [T,B,V] of transformers' greedy answer to prompts [B,S]."""
    rows = _unpadded(input_ids, inputs_attention_mask)
    steps = _steps(neuron_model, max(map(len, rows)), num_tokens)
    reference = HuggingFaceModel(neuron_model.load_hf_model(neuron_model.model_path))
    logits = expect(reference, rows, steps, with_logits=True).logits
    assert logits is not None
    return logits


def check_accuracy_logits_v2(
    neuron_model: NeuronBaseForCausalLM,
    expected_logits: object,
    inputs_input_ids: object,
    inputs_attention_mask: object,
    generation_config: object = None,
    divergence_difference_tol: float = DIVERGENCE_DIFFERENCE_TOL,
    tol_map: Mapping[object, object] | None = None,
    num_tokens_to_check: int | None = None,
) -> list[list[Mapping[str, object]]]:
    """:func:`check_accuracy_logits` of prompts [B,S] with expected logits f32 [T,B,V]."""
    return check_accuracy_logits(
        neuron_model,
        generation_config=generation_config,
        expected_logits=expected_logits,
        divergence_difference_tol=divergence_difference_tol,
        tol_map=tol_map,
        num_tokens_to_check=num_tokens_to_check,
        inputs={"input_ids": inputs_input_ids, "attention_mask": inputs_attention_mask},
    )


def _matched(
    model: NeuronBaseForCausalLM,
    rows: list[list[int]],
    logits: npt.NDArray[np.float32] | None,
    gap: float,
    tol_map: Mapping[object, object] | None,
    most: int | None,
) -> list[list[Mapping[str, object]]]:
    tested = SessionModel(model.running().session)
    model.reset()
    steps = _steps(model, max(map(len, rows)), most)
    search: LayerSearch | None = None
    if logits is None:
        reference = HuggingFaceModel(model.load_hf_model(model.model_path))
        expected = expect(reference, rows, steps, with_logits=True)

        def layers() -> tuple[LayerModel, LayerModel]:
            return reference, _layers(model)

        search = LayerSearch(layers, model.compile_config().dtype)
    else:
        tokens = logits[:steps].argmax(-1).T.tolist()
        expected = ExpectedOutputs(rows, tokens, logits[:steps])
    tolerances: ToleranceMap = AWS_TOLERANCES if tol_map is None else tolerance_map(tol_map)
    report = check_logits(tested, expected, tolerances, gap, search)
    model.reset()
    if not report.passed:
        raise LogitMatchingValidationError(report)
    return rows_of(report)


def _layers(model: NeuronBaseForCausalLM) -> GraphLayers:
    checkpoint = model.checkpoint(model.running().session.module)
    return GraphLayers(model.model_config(), model.compile_config(), checkpoint, model.progress)


def rows_of(report: AccuracyReport) -> list[list[Mapping[str, object]]]:
    """The comparisons of logits as dictionaries, by row and step."""
    steps = cast("Sequence[Mapping[str, object]]", report.match.to_json().get("steps", ()))
    rows = 1 + max((cast(int, step["row"]) for step in steps), default=-1)
    return [[step for step in steps if step["row"] == row] for row in range(rows)]


def _steps(model: NeuronBaseForCausalLM, width: int, most: int | None) -> int:
    """New tokens that fit beside a prompt, at most ``most``."""
    room = _number(model, "seq_len") - width
    steps = room if most is None else min(most, room)
    if steps < 1:
        raise GraphgenError(
            "GG0701",
            f"a prompt of {width} tokens leaves no room for new ones in seq_len {room + width}",
            help="use a shorter prompt, or compile with a larger seq_len",
        )
    return steps


def _number(model: NeuronBaseForCausalLM, name: str) -> int:
    return cast(int, model.neuron_config.value(name))


def _refuse(
    draft_model: object,
    image: object,
    input_start_offsets: object,
    execution_mode: str,
    *,
    do_sample: bool = False,
) -> None:
    """Refuse what is not built, by name (GG0904)."""
    given = {
        "draft_model": (draft_model is not None, "speculation"),
        "image": (image is not None, "models that read images"),
        "input_start_offsets": (input_start_offsets is not None, "shifted inputs"),
        "execution_mode": (execution_mode not in ("config", "sync"), "asynchronous execution"),
        "do_sample": (do_sample, "matching of sampled tokens"),
    }
    for name, (requested, feature) in given.items():
        if requested:
            raise GraphgenError(
                "GG0904", f"{name}: {feature} is not built", help=f"leave {name} out"
            )


def _part(inputs: object, name: str) -> object:
    if isinstance(inputs, Mapping):
        return cast("Mapping[str, object]", inputs)[name]
    return getattr(inputs, name)


def _unpadded(input_ids: object, attention_mask: object) -> list[list[int]]:
    ids, mask = as_numpy(input_ids), as_numpy(attention_mask) != 0
    return [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)]


def _end_tokens(generation_config: object, tokenizer: CheckedTokenizer) -> set[int]:
    given = getattr(generation_config, "eos_token_id", None)
    given = tokenizer.eos_token_id if given is None else given
    return set(cast("list[int]", given)) if isinstance(given, list) else {cast(int, given)}


def _ended(rows: list[list[int]], ends: set[int]) -> list[list[int]]:
    """Each row up to its first end token; what follows is padding."""
    return [
        row[: next((i + 1 for i, token in enumerate(row) if token in ends), None)] for row in rows
    ]


def _without_prompt(given: object, prompts: list[list[int]], steps: int) -> list[list[int]]:
    rows = [list(map(int, row)) for row in cast("Sequence[Sequence[int]]", given)]
    out: list[list[int]] = []
    for row, prompt in zip(rows, prompts, strict=True):
        # Transformers pads prompts on the left.
        at = next((i for i in range(len(row)) if row[i : i + len(prompt)] == prompt), None)
        out.append((row if at is None else row[at + len(prompt) :])[:steps])
    return out
