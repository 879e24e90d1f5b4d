"""Plugins of which a pipeline names no pass are refused by every command with ``--plugin``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphgen.composites import DECOMPOSITIONS
from graphgen.ops import OPS
from graphgen.passes.core import PASSES
from graphgen.passes.core.registry import LOADED, PIPELINES, all_passes
from graphgen.targets import target as targets
from tests.graphgen.cli.conftest import done, error, process

TEXT = """\
module @m level=logical {
}

func @f {
  arg %x : f32[4]
  %y = negate(%x) : f32[4]
  return y = %y
}
"""
PASS = """
from dataclasses import dataclass
from typing import ClassVar
from graphgen.passes.core import Pass, register
from graphgen.passes.core.registry import NamedPipeline, register_pipeline


@register
@dataclass(frozen=True)
class Kept(Pass):
    \"\"\"Change nothing.\"\"\"

    name: ClassVar[str] = "kept"

    def run(self, module, rewriter):
        pass
"""
MORE = PASS.replace("Kept(", "Other(").replace('"kept"', '"other"')
PIPELINE = """

@register_pipeline
@dataclass(frozen=True)
class Own(NamedPipeline):
    \"\"\"Keep all.\"\"\"

    name: ClassVar[str] = "own"

    def passes(self):
        return [Kept()]
"""
TARGET = """
from graphgen.targets import Target, register_target

register_target(Target(name="shelf", rules=(), legality="cpu"))
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A folder with a module; what plugins register is taken away at the end."""
    all_passes()
    tables: list[dict[str, Any]] = [PASSES, PIPELINES, OPS, DECOMPOSITIONS]
    kept, loaded = [(table, dict(table)) for table in tables], list(LOADED)
    monkeypatch.setattr(targets, "_REGISTERED", {})
    monkeypatch.chdir(tmp_path)
    Path("m.gg").write_text(TEXT)
    Path("mine.py").write_text(PASS)
    yield tmp_path
    for table, entries in kept:
        table.clear()
        table.update(entries)
    # Reproducers of later tests would run these plugins again.
    LOADED[:] = loaded


COMMANDS = {
    "validate": "validate m.gg -p dce",
    "validate a model": "validate llama-3.1-8b -p dce",
    "opt": "opt m.gg -p dce -o out.gg",
    "bisect": "bisect m.gg -p dce",
    "minify": "minify m.gg -p dce -o out.gg",
    "minify by a command": "minify m.gg -p dce --command false -o out.gg",
    "trace": "trace m.gg -p dce -o out.html",
    "explain": "explain m.gg -p dce --pass dce",
    "why": "why m.gg %y -p dce",
    "pipeline": "pipeline dce",
    "pipeline --show": "pipeline dce --show",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=list(COMMANDS))
def test_a_plugin_that_the_pipeline_does_not_name(command: str, work: Path):
    text = error(*command.split(), "--plugin", "mine.py")
    assert text.startswith(
        "error[GG0705]: the pipeline 'dce' runs no pass of the plugin 'mine.py', which registers "
        "the pass kept\n"
    )
    assert "'dce,kept'" in text
    assert not list(work.glob("out*"))


def test_the_pipeline_of_the_help_is_accepted(work: Path):
    done("validate", "m.gg", "-p", "dce,kept", "--plugin", "mine.py")
    done("pipeline", "dce,kept", "--plugin", "mine.py")
    done("opt", "m.gg", "-p", "kept,dce", "--stop-after", "kept", "--plugin", "mine.py")


def test_each_plugin_is_named(work: Path):
    Path("more.py").write_text(MORE)
    words = ("opt", "m.gg", "--plugin", "mine.py", "--plugin", "more.py")
    assert "plugin 'more.py'" in error(*words, "-p", "kept")
    assert "plugin 'mine.py'" in error(*words, "-p", "other,dce")
    done(*words, "-p", "kept,other")


def test_one_pass_of_several_is_enough(work: Path):
    Path("mine.py").write_text(PASS + MORE)
    done("opt", "m.gg", "-p", "other", "--plugin", "mine.py")
    text = error("opt", "m.gg", "-p", "", "--plugin", "mine.py")
    assert "registers the passes kept, other\n" in text
    assert "-p 'kept'" in text


def test_a_pipeline_of_the_plugin_names_its_passes(work: Path):
    Path("mine.py").write_text(PASS + PIPELINE)
    done("opt", "m.gg", "-p", "own", "--plugin", "mine.py")


def test_a_pass_that_the_plugin_imports(work: Path):
    Path("beside_of_mine.py").write_text(PASS)
    Path("mine.py").write_text("from beside_of_mine import Kept\n")
    assert "registers the pass kept" in error("opt", "m.gg", "-p", "dce", "--plugin", "mine.py")
    # Python does not run the module beside it once more.
    assert "registers the pass kept" in error("opt", "m.gg", "-p", "dce", "--plugin", "mine.py")
    done("opt", "m.gg", "-p", "kept", "--plugin", "mine.py")


def test_passes_of_graphgen_are_not_those_of_a_plugin_that_imports_them(work: Path):
    imported = "from graphgen.passes.canonical.cse import CommonSubexpressions\n"
    Path("mine.py").write_text(imported + PASS)
    assert "registers the pass kept\n" in error("opt", "m.gg", "-p", "cse", "--plugin", "mine.py")


def test_a_plugin_without_passes_is_not_named(work: Path):
    Path("mine.py").write_text(TARGET)
    done("opt", "m.gg", "-p", "dce", "--plugin", "mine.py")
    done("pipeline", "default{target=shelf}", "--plugin", "mine.py")


def test_a_target_that_the_pipeline_names_is_enough(work: Path):
    Path("mine.py").write_text(PASS + TARGET)
    done("pipeline", "default{target=shelf}", "--show", "--plugin", "mine.py")
    assert "runs no pass" in error("pipeline", "default", "--show", "--plugin", "mine.py")


@pytest.mark.parametrize("command", ["opt m.gg -p dce", "passes", "pipeline"])
def test_a_plugin_that_registers_nothing(command: str, work: Path):
    Path("mine.py").write_text(PASS.replace("@register\n", ""))
    text = error(*command.split(), "--plugin", "mine.py")
    assert text == (
        "error[GG0705]: the plugin 'mine.py' registers nothing\n"
        "  help: decorate the class of a pass with @register of graphgen.passes.core\n"
    )


def test_repro_with_a_plugin_that_the_recorded_pass_is_not_in(work: Path):
    Path("mine.py").write_text(PASS.replace("pass\n", "raise ValueError('on purpose')\n"))
    Path("more.py").write_text(MORE)
    crashes = work / "crashes"
    words = ("opt", "m.gg", "-p", "kept", "--plugin", "mine.py", "-o", "out.gg")
    process(*words, env_more={"GRAPHGEN_CRASH": str(crashes)})
    (folder,) = crashes.iterdir()
    assert json.loads((folder / "repro.json").read_text())["pipeline"] == "kept"
    assert "plugin 'more.py'" in error("repro", folder, "--plugin", "more.py")
