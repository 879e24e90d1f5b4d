"""The configurations of the data file: their parameters, families and sources."""

from __future__ import annotations

import re

import pytest

from graphgen.ir import dtype
from graphgen.lowering.plan.measure import parameter_counts
from graphgen.models import SHAPES, SOURCES, build, read_model_config
from graphgen.models.named_shapes import PACKAGED
from tests.graphgen.cli.conftest import done, error, facts

# Parameters in millions, as the model cards state them.
PUBLISHED = {
    "qwen2.5-0.5b": 494,
    "qwen2.5-1.5b": 1544,
    "qwen2.5-3b": 3086,
    "qwen2.5-7b": 7616,
    "qwen3-0.6b": 596,
    "qwen3-1.7b": 1721,
    "qwen3-4b": 4022,
    "llama-3.2-3b": 3213,
    "smollm2-360m": 362,
    "smollm2-1.7b": 1711,
}


def millions(name: str) -> float:
    return parameter_counts(build(SHAPES[name], dtype("bf16"), phases=("decode",))).total / 1e6


@pytest.mark.parametrize("name", [*PACKAGED])
def test_a_size_has_the_parameters_of_its_name(name: str):
    found = re.search(r"([\d.]+)([mb])(?:-v|$)", name)
    stated = float(found[1]) * (1 if found[2] == "m" else 1000) if found else None
    # Names round: 0.494 B is 0.5b, 13.7 B is 13b, 1.67 B is falcon3-1b.
    if stated is not None and name != "falcon3-1b":
        assert millions(name) == pytest.approx(stated, rel=0.1)
    assert read_model_config(SHAPES[name]).to_hf()["model_type"] == SHAPES[name]["model_type"]
    assert SOURCES[name].startswith("https://huggingface.co/")


@pytest.mark.parametrize(("name", "count"), [*PUBLISHED.items()])
def test_a_size_has_the_parameters_of_its_card(name: str, count: int):
    """A tied embedding is counted once: it is a quarter of the smallest."""
    assert millions(name) == pytest.approx(count, abs=0.5)


def test_sources_are_of_known_models():
    assert {*SOURCES} <= {*SHAPES}


def test_models_lists_every_name_with_its_source():
    rows = {row["name"]: row for row in facts("models")}
    assert {*rows} == {*SHAPES}
    assert rows["qwen3-4b"]["source"] == SOURCES["qwen3-4b"]
    assert rows["dbrx-132b"]["source"] is None
    shown = done("models").stdout
    assert re.search(r"^qwen3-4b +4\.02 B +qwen3 +Qwen/Qwen3-4B$", shown, re.M)
    assert re.search(r"^dbrx-132b +\S+ B +dbrx +-$", shown, re.M)
    assert max(map(len, shown.splitlines())) <= 110


def test_one_model_shows_its_configuration():
    found = facts("models", "Qwen3-4B-Instruct")
    assert found["name"] == "qwen3-4b"
    assert found["config"] == dict(SHAPES["qwen3-4b"])
    assert "did you mean qwen3-4b" in error("models", "qwen3-4")
