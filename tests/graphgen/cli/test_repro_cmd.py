"""A pass that fails leaves a folder that fails again, in a fresh process and another folder."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, Rewriter, debug, parse_pipeline, run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import reproducer, validate
from graphgen.passes.validate.reproducer import replay
from graphgen.passes.workload.make_workload import make_workload
from tests.graphgen.cli.conftest import facts, graphgen, process

PURPOSE = "on purpose"
PLUGIN = '''
"""Passes that fail."""

from dataclasses import dataclass
from typing import ClassVar

from graphgen.passes.core import Pass, register


@register
@dataclass(frozen=True)
class ThirdOperand(Pass):
    """Read an operand of every sum that is not there."""

    name: ClassVar[str] = "third-operand"
    at: int = 2

    def run(self, module, rewriter):
        for function in module.functions.values():
            for op in function.block:
                if op.name == "add" and module.level == "canonical":
                    op.operands[self.at]


@register
@dataclass(frozen=True)
class WrongType(Pass):
    """Leave a module that is not well formed."""

    name: ClassVar[str] = "wrong-type"

    def run(self, module, rewriter):
        for function in module.functions.values():
            op = function.block.last
            op.results[0].type = op.operands[0].type
            rewriter.note(function, "broken", op)
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "my plugin.py"
    path.write_text(PLUGIN)
    return path


def crashes(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_a_defect_is_replayed_in_another_process_and_folder(
    mini: Path, plugin: Path, tmp_path: Path
):
    home = tmp_path / "crashes"
    pipeline = "canonicalize,specialize,third-operand{at=5},dce"
    command = ["opt", mini, "-p", pipeline, "--plugin", plugin, "-o", tmp_path / "out.gg"]
    ran = process(*command, env_more={"GRAPHGEN_CRASH": str(home)})
    (folder,) = crashes(home)
    assert ran.returncode == 70
    assert ran.stderr.splitlines()[-1] == f"note: graphgen repro {folder}"
    assert not (tmp_path / "out.gg").exists()
    known = json.loads((folder / "repro.json").read_text())
    assert (known["pipeline"], known["whole"]) == ("third-operand{at=5}", pipeline)
    assert known["reproduces"] is True
    assert known["versions"]["graphgen"]
    assert "IndexError" in known["traceback"]
    moved = tmp_path / "else" / "where"
    moved.parent.mkdir()
    shutil.move(folder, moved)
    plugin.unlink()
    again = process("repro", "where", cwd=moved.parent)
    assert again.returncode == 1
    assert again.stdout.startswith("third-operand{at=5} on repro.gg\nfails as it did:\n")
    assert "IndexError: tuple index out of range" in again.stdout
    found = json.loads(process("repro", "where", "--json", cwd=moved.parent).stdout)
    assert (found["fails"], found["same"], found["versions"]) == (True, True, {})


def test_a_module_that_is_not_well_formed(mini: Path, plugin: Path, tmp_path: Path):
    home = tmp_path / "crashes"
    command = ["opt", mini, "-p", "wrong-type", "--plugin", plugin, "-o", tmp_path / "out.gg"]
    ran = process(*command, env_more={"GRAPHGEN_CRASH": str(home)})
    (folder,) = crashes(home)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == f"  help: graphgen repro {folder}"
    again = process("repro", folder)
    assert (again.returncode, "fails as it did" in again.stdout) == (1, True)


def test_two_plugins_of_one_name(mini: Path, plugin: Path, tmp_path: Path):
    home, other = tmp_path / "crashes", tmp_path / "sub" / plugin.name
    other.parent.mkdir()
    other.write_text(PLUGIN.replace("third-operand", "third-again").replace("wrong-", "other-"))
    words = ["opt", mini, "-p", "wrong-type,other-type", "-o", tmp_path / "out.gg"]
    words += ["--plugin", plugin, "--plugin", other]
    process(*words, env_more={"GRAPHGEN_CRASH": str(home)})
    (folder,) = crashes(home)
    assert json.loads((folder / "repro.json").read_text())["plugins"] == [
        plugin.name,
        f"1_{plugin.name}",
    ]
    assert "fails as it did" in process("repro", folder).stdout


NEIGHBOURS = {
    "neighbour_rules.py": "from neighbour_package.depth import PLACE\n",
    "neighbour_package/__init__.py": "",
    "neighbour_package/depth.py": "from .width import WIDTH\n\nPLACE = WIDTH\n",
    "neighbour_package/width.py": "WIDTH = 2\n",
    "unread.py": "",
}


def test_modules_beside_a_plugin_are_in_its_reproducers(mini: Path, tmp_path: Path):
    home, beside = tmp_path / "crashes", tmp_path / "beside"
    for name, text in NEIGHBOURS.items():
        (beside / name).parent.mkdir(parents=True, exist_ok=True)
        (beside / name).write_text(text)
    plugin = beside / "plugin.py"
    plugin.write_text(f"from neighbour_rules import PLACE\n{PLUGIN}".replace("= 2", "= PLACE"))
    words = ["opt", mini, "-p", "canonicalize,third-operand", "--plugin", plugin]
    ran = process(*words, "-o", tmp_path / "out.gg", env_more={"GRAPHGEN_CRASH": str(home)})
    assert "IndexError" in ran.stderr
    (folder,) = crashes(home)
    shutil.move(str(folder), tmp_path / "moved")
    shutil.rmtree(beside)
    names = {str(p.relative_to(tmp_path / "moved")) for p in (tmp_path / "moved").rglob("*.py")}
    assert names == {*NEIGHBOURS, "plugin.py"} - {"unread.py"}
    again = process("repro", tmp_path / "moved")
    assert (again.returncode, "fails as it did" in again.stdout) == (1, True), again.stderr


def model() -> Module:
    return build(known_shape("llama-3.1-8b"), f32, mini=True)


def refused(folder: Path) -> Path:
    """What partition leaves when it refuses a degree."""
    with (
        debug(crash=str(folder)),
        pytest.raises(GraphgenError, match="does not divide over tp = 3") as caught,
    ):
        run_pipeline(model(), parse("canonicalize,shard{tp=3},partition,dce"))
    (found,) = crashes(folder)
    assert caught.value.help.endswith(f"\n  help: graphgen repro {found}")
    return found


def test_a_refusal_leaves_a_folder_too_and_the_same_one_twice(tmp_path: Path):
    folder = refused(tmp_path)
    assert refused(tmp_path) == folder
    found = replay(folder)
    assert (found.recorded.pipeline, found.recorded.failed) == ("partition", "partition")
    assert found.same


def test_a_folder_that_does_not_fail_any_more(tmp_path: Path):
    folder = refused(tmp_path)
    path = folder / "repro.json"
    path.write_text(path.read_text().replace('"pipeline": "partition"', '"pipeline": "dce"'))
    result = graphgen("repro", folder)
    assert result.exit_code == 0
    assert "does not fail any more; it was GG0304: " in result.stdout
    assert facts("repro", folder)["fails"] is False


def test_another_version_is_told(tmp_path: Path):
    folder = refused(tmp_path)
    path = folder / "repro.json"
    known = json.loads(path.read_text())
    known["versions"]["numpy"] = "1.0"
    path.write_text(json.dumps(known))
    result = graphgen("repro", folder)
    assert "note: numpy was 1.0 and is " in result.stderr


@dataclass(frozen=True)
class Unregistered(Pass):
    """Fail, without being known by name."""

    name: ClassVar[str] = "unregistered"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        raise ValueError(PURPOSE)


def test_a_pass_without_a_name_is_kept_with_all_that_ran(tmp_path: Path):
    with debug(crash=str(tmp_path)), pytest.raises(ValueError, match=PURPOSE) as caught:
        run_pipeline(model(), [*parse_pipeline("canonicalize"), Unregistered()])
    (folder,) = crashes(tmp_path)
    assert caught.value.__notes__ == [f"graphgen repro {folder}"]
    known = json.loads((folder / "repro.json").read_text())
    assert (known["reproduces"], known["pipeline"]) == (False, "canonicalize,unregistered")
    found = replay(folder)
    assert (found.same, found.now is not None and found.now.code) == (False, "GG0301")


def test_a_deleted_plugin_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reproducer, "LOADED", [tmp_path / "deleted.py"])
    with debug(crash=str(tmp_path / "crashes")), pytest.raises(ValueError, match=PURPOSE):
        run_pipeline(model(), [Unregistered()])
    (folder,) = crashes(tmp_path / "crashes")
    assert json.loads((folder / "repro.json").read_text())["plugins"] == []


def test_fuel_is_part_of_it(tmp_path: Path):
    with (
        debug(crash=str(tmp_path), fuel="canonicalize=3"),
        pytest.raises(ValueError, match=PURPOSE),
    ):
        run_pipeline(model(), [*parse_pipeline("canonicalize"), Unregistered()])
    with (
        debug(crash=str(tmp_path / "b"), fuel="unregistered=3"),
        pytest.raises(ValueError, match=PURPOSE),
    ):
        run_pipeline(model(), [Unregistered()])
    (folder,) = crashes(tmp_path / "b")
    assert json.loads((folder / "repro.json").read_text())["fuel"] == 3


def test_validate_leaves_one_too(tmp_path: Path):
    module = model()
    with debug(crash=str(tmp_path)):
        (verdict,) = validate(module, [Unregistered()], make_workload(module))
    (folder,) = crashes(tmp_path)
    assert verdict.raised is not None
    assert (verdict.ok, verdict.raised.failure.what) == (False, PURPOSE)
    assert verdict.raised.help == f"graphgen repro {folder}"


def test_nothing_is_left_where_nobody_wants_it_or_it_cannot_be_written(tmp_path: Path):
    with debug(crash="off"), pytest.raises(ValueError, match=PURPOSE) as caught:
        run_pipeline(model(), [Unregistered()])
    assert not hasattr(caught.value, "__notes__")
    (tmp_path / "file").write_text("in the way")
    with (
        debug(crash=str(tmp_path / "file")),
        pytest.raises(ValueError, match=PURPOSE) as caught,
    ):
        run_pipeline(model(), [Unregistered()])
    assert caught.value.__notes__[0].startswith("no reproducer was written: cannot write '")
    assert crashes(tmp_path) == [tmp_path / "file"]


def test_what_is_no_folder_of_a_crash(tmp_path: Path):
    result = graphgen("repro", tmp_path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "is not the folder of a crash: No such file or directory" in result.stderr
    for text in ("[]", "{}", '{"failure": 1}', "no json"):
        (tmp_path / "repro.json").write_text(text)
        (tmp_path / "repro.gg").write_text("")
        assert "is not the folder of a crash: " in graphgen("repro", tmp_path).stderr
