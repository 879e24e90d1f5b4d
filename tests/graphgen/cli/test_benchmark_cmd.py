"""``graphgen benchmark`` on a mini: both reports, as text, JSON and a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import done, error, facts
from tests.oracles.small_gguf import write_small_model


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mini") / "small.gguf"
    write_small_model(path)
    return path


SIZES = ("--runs", 2, "--input-tokens", 5, "--new-tokens", 3)


def test_both_reports_as_json_and_in_a_file(mini: Path, tmp_path: Path):
    found = facts("benchmark", mini, *SIZES, "--batch", 2, "--report", tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text()) == found
    assert list(found)[:3] == ["e2e_model", "context_encoding_model", "token_generation_model"]
    for columns in list(found.values())[:3]:
        assert 0 < columns["latency_ms_p50"] <= columns["latency_ms_p100"]
    results = found["results"]
    assert results["num_completed_requests"] == 4
    assert results["number_input_tokens"]["mean"] == 5
    assert results["number_output_tokens"]["min"] == 3
    assert results["ttft_s"]["max"] < results["end_to_end_latency_s"]["max"]
    assert set(results["inter_token_latency_s"]["quantiles"]) == {
        f"p{percent}" for percent in (25, 50, 75, 90, 95, 99)
    }


def test_the_table_has_the_names_of_both_reports(mini: Path):
    text = done("benchmark", mini, *SIZES).stdout
    for name in ("p100", "token_generation_model", "inter_token_latency_s", "p99", "stddev"):
        assert name in text
    assert "errored requests: 0\n" in text
    assert "completed requests: 2\n" in text


def test_prompts_that_do_not_fit_are_refused(mini: Path, tmp_path: Path):
    assert "GG0705" in error("benchmark", mini, "--max-len", 4096)
    assert "GG0704" in error("benchmark", mini, "--report", tmp_path / "no" / "report.json")
