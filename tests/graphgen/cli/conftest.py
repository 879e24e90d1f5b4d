"""The command line in process, and modules to work on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from graphgen.cli.main import app
from tests.graphgen.cli.demo_model import demo, demo_checkpoint
from tests.graphgen.cli.speculation_model import small_gguf

# Fixtures of several files of tests.
__all__ = ["demo", "demo_checkpoint", "small_gguf"]

ROOT = Path(__file__).resolve().parents[3]


def graphgen(*arguments: object, input: str | None = None) -> Result:
    """Run ``graphgen`` in this process."""
    return CliRunner().invoke(app, [str(item) for item in arguments], input=input)


def done(*arguments: object, input: str | None = None) -> Result:
    """Run ``graphgen``, which must succeed."""
    result = graphgen(*arguments, input=input)
    assert result.exit_code == 0, result.output
    return result


def facts(*arguments: object) -> Any:
    """What ``graphgen ... --json`` prints, which must be one JSON value and nothing else."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(done(*arguments, "--json").stdout, parse_constant=refuse)


def error(*arguments: object) -> str:
    """The text of the user error that ``graphgen ...`` ends with; stdout must be empty."""
    result = graphgen(*arguments)
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    at = result.stderr.index("error[")
    return result.stderr[at:]


def process(
    *arguments: object, env_more: Mapping[str, str] | None = None, **settings: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m graphgen`` as a process of its own."""
    command = [sys.executable, "-m", "graphgen", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    environment |= env_more or {}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, **settings
    )


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mini Llama in f32 with both programs."""
    path = tmp_path_factory.mktemp("modules") / "mini.gg"
    done("build", "llama-3.1-8b", "--mini", "--dtype", "f32", "-o", path)
    return path


@pytest.fixture(scope="session")
def split(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, split over two ranks."""
    path = tmp_path_factory.mktemp("modules") / "split.gg"
    done("build", "llama-3.1-8b", "--mini", "--dtype", "f32", "--tp", 2, "-o", path)
    return path


# Two outputs, an op that makes infinities and NaN, and no model behind it.
SMALL = """\
module @small level=logical {
  input %x : f32[N,3]
  input %y : f32[N,3]
  output %ratio : f32[N,3]
  output %less : pred[N,3]
}

func @f phase=prefill {
  arg %x : f32[N,3]
  arg %y : f32[N,3]
  %ratio = divide(%x, %y) : f32[N,3]
  %less = compare(%x, %y) direction=LT : pred[N,3]
  return ratio = %ratio
  return less = %less
}
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """``x / y`` and ``x < y``."""
    path = tmp_path / "small.gg"
    path.write_text(SMALL)
    return path
