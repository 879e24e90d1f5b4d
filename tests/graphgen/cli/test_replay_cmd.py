"""``graphgen replay`` reports no difference for equal trees, and a changed decomposition."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.graphgen.cli.conftest import ROOT

PACKAGES = ("graphgen", "passes", "lowering", "runtime")
MODEL = "llama-3.1-8b"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages as they are here, as the only commit of a repository."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder = tmp_path_factory.mktemp("checkout")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for words in ("init -q", "add -A", "-c user.name=x -c user.email=x@x commit -q -m all"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    return folder


def replay(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "graphgen", "replay", "--quick", "--model", MODEL, *arguments],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.slow
def test_what_is_as_it_was_and_what_is_not(checkout: Path):
    same = replay(checkout)
    count = int(same.stdout.partition(" ")[0])
    assert (same.returncode, same.stdout) == (0, f"{count} lowered texts are as at HEAD\n")
    assert count > 50
    changed = checkout / "graphgen" / "composites" / "basics.py"
    text = changed.read_text()
    at = text.index("def silu(")
    assert '"logistic"' in text[at : at + 300]
    changed.write_text(text[:at] + text[at:].replace('"logistic"', '"tanh"', 1))
    found = replay(checkout)
    assert found.returncode == 1, found.stdout + found.stderr
    assert f" of {count} lowered texts differ from HEAD\n  llama-3.1-8b tp=1 cpu @" in found.stdout
    assert "\n+" in found.stdout
    assert "stablehlo.tanh" in found.stdout
    told = json.loads(replay(checkout, "--json").stdout)
    assert (told["texts"], told["gone"], told["new"]) == (count, [], [])
    forms = {key.rpartition(" ")[2] for key in told["changed"]}
    assert forms == {"stablehlo", "hlo", "key"}
    changed.write_text(text)


def test_revisions_and_models_that_are_not_there(checkout: Path):
    missing = replay(checkout, "--since", "no-such-revision")
    assert missing.returncode == 1
    assert "error[GG0705]: --since no-such-revision: " in missing.stderr
    unknown = replay(checkout, "--model", "no-such-model")
    assert "error[GG0504]" in unknown.stderr
