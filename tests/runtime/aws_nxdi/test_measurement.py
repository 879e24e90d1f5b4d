"""AWS's names of accuracy checks, benchmarks and captured inputs, on a mini application."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.nxdi import (
    InputCaptureHook,
    LogitMatchingValidationError,
    benchmark_sampling,
    check_accuracy,
    check_accuracy_logits,
    check_accuracy_logits_v2,
    generate_expected_logits,
)
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws_nxdi.input_snapshots import capture_from_environment
from tests.oracles.applications import BATCH, open_application, write_checkpoint
from tests.oracles.planted_checkpoints import with_error

PROMPT = "7 2 9"


class Numbers:
    """A tokenizer of numbers between spaces."""

    eos_token_id = 60
    pad_token_id = 60

    def __call__(self, text: list[str]) -> Mapping[str, list[list[int]]]:
        return {"input_ids": [[int(word) for word in one.split()] for one in text]}

    def batch_decode(self, sequences: Any, **_: object) -> list[str]:
        return [" ".join(str(int(token)) for token in row) for row in sequences]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("mini"))


@pytest.fixture(scope="module")
def application(folder: Path) -> Any:
    return open_application(folder, seq_len=32)


class Planted:
    """An application whose reference has an error of 1 % in layer 1."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def __getattr__(self, name: str) -> Any:
        return getattr(self._application, name)

    def load_hf_model(self, path: str) -> Any:
        model = self._application.load_hf_model(path)
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                if ".layers.1." in name:
                    tensor.copy_(torch.from_numpy(with_error(tensor.numpy(), 1e-2)))
        return model


def test_tokens_match_those_of_transformers(application: Any):
    report = check_accuracy(application, Numbers(), prompt=PROMPT, num_tokens_to_check=4)
    assert report.passed
    tokens = report.match.rows[0].expected  # type: ignore[union-attr]
    given = torch.tensor([[7, 2, 9, *tokens]] * BATCH)
    check_accuracy(
        application, Numbers(), prompt=PROMPT, num_tokens_to_check=4, expected_token_ids=given
    )
    given[1, 5] = (given[1, 5] + 1) % 60
    with pytest.raises(GraphgenError, match=r"GG0907.*row 1, step 2") as caught:
        check_accuracy(
            application, Numbers(), prompt=PROMPT, num_tokens_to_check=4, expected_token_ids=given
        )
    assert caught.value.code == "GG0907"


def test_logits_match_those_of_transformers(application: Any):
    rows = check_accuracy_logits(application, Numbers(), prompt=PROMPT, num_tokens_to_check=3)
    assert [len(row) for row in rows] == [3] * BATCH
    assert all(step["passed"] for row in rows for step in row)


def test_a_planted_error_names_step_token_and_layer(application: Any):
    with pytest.raises(LogitMatchingValidationError) as caught:
        check_accuracy_logits(
            cast(NeuronBaseForCausalLM, Planted(application)),
            Numbers(),
            prompt=PROMPT,
            num_tokens_to_check=3,
            tol_map={5: (1e-5, 1e-4), None: (1e-5, 1e-4)},
        )
    assert isinstance(caught.value, AssertionError)
    assert caught.value.get_divergence_index() == 0
    assert "row 0, step 0, token" in caught.value.message
    assert caught.value.message.endswith("the first wrong place is layer 1")
    assert not caught.value.results[0][0]["passed"]


def test_expected_logits_may_be_kept(application: Any):
    ids, mask = torch.tensor([[0, 4, 5], [6, 7, 8]]), torch.tensor([[0, 1, 1], [1, 1, 1]])
    logits = generate_expected_logits(application, ids, mask, num_tokens=2)
    assert logits.shape == (2, 2, 61)
    check_accuracy_logits_v2(application, torch.tensor(logits), ids, mask)
    logits[1, 1] += np.linspace(0, 9, 61)
    with pytest.raises(LogitMatchingValidationError, match="row 1, step 1"):
        check_accuracy_logits_v2(application, torch.tensor(logits), ids, mask)


@pytest.mark.parametrize(
    "argument",
    [
        {"draft_model": object()},
        {"image": object()},
        {"input_start_offsets": [1]},
        {"execution_mode": "async"},
    ],
)
def test_features_that_are_not_built_are_refused(application: Any, argument: dict[str, Any]):
    for check in (check_accuracy, check_accuracy_logits):
        with pytest.raises(GraphgenError, match=rf"GG0904.*{next(iter(argument))}"):
            check(application, Numbers(), **argument)


def test_a_prompt_needs_room(application: Any):
    with pytest.raises(GraphgenError, match="prompt of 32 tokens leaves no room"):
        check_accuracy_logits(application, Numbers(), prompt="1 " * 32)
    with pytest.raises(GraphgenError, match="needs a tokenizer, or inputs"):
        check_accuracy_logits(application)


@pytest.mark.parametrize(
    ("target", "entries"),
    [
        (
            None,
            ["e2e_model", "context_encoding_model", "token_generation_model", "results", "errors"],
        ),
        ("e2e", ["e2e_model", "errors"]),
        ("context_encode", ["context_encoding_model", "errors"]),
        ("token_gen", ["token_generation_model", "errors"]),
    ],
)
def test_the_benchmark_of_each_target(
    application: Any, target: str | None, entries: list[str], tmp_path: Path
):
    path = tmp_path / "report.json"
    report = benchmark_sampling(application, target=target, num_runs=2, benchmark_report_path=path)
    assert list(report) == entries
    assert json.loads(path.read_text()) == report
    columns = report[entries[0]]
    assert isinstance(columns, dict)
    assert columns["latency_ms_p50"] > 0  # type: ignore[operator]


def test_benchmarks_of_what_is_not_built_are_refused(application: Any, folder: Path):
    found = {
        "model that reads images": {"image": object()},
        "nothing proposes tokens": {"target": "speculation"},
        "the target 'else' is unknown": {"target": "else"},
        "a speculation length of 0": {"draft_model": open_application(folder, seq_len=32)},
    }
    for what, argument in found.items():
        with pytest.raises(GraphgenError, match=what):
            benchmark_sampling(application, benchmark_report_path=None, **argument)  # type: ignore[arg-type]


def test_the_benchmark_of_a_model_with_a_draft(application: Any, folder: Path):
    target = open_application(folder, seq_len=32, speculation_length=3)
    options = {"num_runs": 2, "benchmark_report_path": None}
    report = benchmark_sampling(target, draft_model=application, **options)
    assert report["speculation_model"]["latency_ms_p50"] > 0  # type: ignore[call-overload, index]
    one = benchmark_sampling(target, application, target="speculation", **options)
    assert list(one) == ["speculation_model", "errors"]


def test_the_hook_of_forward_captures_inputs(application: Any, tmp_path: Path):
    session = application.running().session
    hook = InputCaptureHook(session, [1], tmp_path / "captured")
    try:
        application.forward(torch.tensor([[5, 6, 7]]), input_capture_hook=hook)
        application.forward(
            torch.tensor([[8]]), position_ids=torch.tensor([[3]]), input_capture_hook=hook
        )
    finally:
        hook.close()
        application.reset()
    manifest = json.loads((tmp_path / "captured" / "manifest.json").read_text())
    assert [(one["phase"], one["step"]) for one in manifest["captures"]] == [("decode", 1)]
    with np.load(tmp_path / "captured" / manifest["captures"][0]["file"]) as arrays:
        assert arrays["tokens"].ravel()[0] == 8
    assert hook.capture not in session.observers


def test_environment_variables_capture_inputs(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("NXD_INFERENCE_CAPTURE_SNAPSHOT", "1")
    monkeypatch.setenv("NXD_INFERENCE_CAPTURE_OUTPUT_PATH", str(tmp_path / "snapshots"))
    monkeypatch.setenv("NXD_INFERENCE_CAPTURE_AT_REQUESTS", "0")
    application = open_application(folder, seq_len=32)
    application.forward(torch.tensor([[5, 6, 7]]))
    manifest = json.loads((tmp_path / "snapshots" / "manifest.json").read_text())
    assert [(one["phase"], one["call"]) for one in manifest["captures"]] == [("prefill", 0)]


PREFIX = "NXD_INFERENCE_CAPTURE_"


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({}, "OUTPUT_PATH is not"),
        ({"OUTPUT_PATH": "x", "OUTPUT_FORMAT": "NUMPY_PICKLE"}, "GG0904.*pickled files run code"),
        ({"OUTPUT_PATH": "x", "OUTPUT_FORMAT": "png"}, "OUTPUT_FORMAT=png is unknown"),
        ({"OUTPUT_PATH": "x", "AT_REQUESTS": "1,two"}, "'1,two' is not a list of numbers"),
    ],
)
def test_wrong_variables_are_named(given: dict[str, str], what: str):
    variables = {PREFIX + "SNAPSHOT": "1", **{PREFIX + key: value for key, value in given.items()}}
    with pytest.raises(GraphgenError, match=what):
        capture_from_environment(variables)


def test_variables_have_defaults():
    assert capture_from_environment({}) is None
    assert capture_from_environment({PREFIX + "SNAPSHOT": "0"}) is None
    made = capture_from_environment(
        {PREFIX + "SNAPSHOT": "1", PREFIX + "OUTPUT_PATH": "x", PREFIX + "FOR_TOKENS": "3, 4"}
    )
    assert made is not None
    assert (made.steps, made.calls, made.ending) == ({3, 4}, frozenset(), "npz")
