"""An installed graphgen does not collide with a user's modules, whatever they are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COLLIDING = ("passes", "lowering", "runtime", "tests")
FAILS = "raise RuntimeError('the module of the user was imported')\n"
PROGRAM = """
import json, sys
import graphgen.runtime.engine, graphgen.lowering.regression
from graphgen.passes.core.registry import load_all
load_all()
print(json.dumps(sorted({module.__file__ for module in list(sys.modules.values())
                         if getattr(module, "__file__", None) and "graphgen" in module.__name__})))
"""
USERS_MODEL = """
import jax, jax.numpy as jnp
import passes

def lowered():
    x = jax.ShapeDtypeStruct((4,), "float32")
    return jax.jit(lambda x: jnp.tanh(x) * passes.FACTOR).lower(x)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contents of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d"]
    subprocess.run([*command, str(folder)], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(*arguments: str, cwd: Path, site: Path) -> str:
    # The user's folder comes first, as it does for a script or `python -m`.
    path = os.pathsep.join((str(cwd), str(site)))
    ran = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_wheel_holds_every_module_once_under_graphgen(site: Path):
    top = {path.name for path in site.iterdir()}
    assert {name for name in top if not name.endswith(".dist-info")} == {"graphgen"}
    held = {str(path.relative_to(site / "graphgen")) for path in site.rglob("*.py")}
    ours = {
        str(path.relative_to(ROOT)).removeprefix("graphgen/")
        for name in ("graphgen", "passes", "lowering", "runtime")
        for path in (ROOT / name).rglob("*.py")
    }
    assert held == ours
    data = {p.suffix for p in site.rglob("*") if p.is_file() and ".dist-info" not in str(p)}
    assert {".py", ".json"} <= data


def test_every_module_is_imported_from_the_wheel_beside_a_users_modules(site: Path, tmp_path: Path):
    for name in COLLIDING:
        (tmp_path / f"{name}.py").write_text(FAILS)
    files: list[str] = json.loads(run("-c", PROGRAM, cwd=tmp_path, site=site))
    assert len(files) > 200
    assert [name for name in files if not Path(name).is_relative_to(site)] == []


def test_the_command_line_runs_beside_a_users_packages(site: Path, tmp_path: Path):
    for name in COLLIDING:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(FAILS)
    build = ("-m", "graphgen", "build", "smollm2", "--mini", "-o", "mini.gg")
    run(*build, cwd=tmp_path, site=site)
    run("-m", "graphgen", "opt", "mini.gg", "-p", "default", "-o", "o.gg", cwd=tmp_path, site=site)
    assert "run_pipeline" not in (tmp_path / "o.gg").read_text()


def test_a_users_model_imports_the_users_own_passes(site: Path, tmp_path: Path):
    (tmp_path / "passes.py").write_text("FACTOR = 3.0\n")
    (tmp_path / "model.py").write_text(USERS_MODEL)
    command = ("-m", "graphgen", "import", "model.py:lowered", "-o", "mine.gg")
    run(*command, cwd=tmp_path, site=site)
    assert "3.0" in (tmp_path / "mine.gg").read_text()


def test_in_a_checkout_the_folders_are_imported_as_parts_of_graphgen():
    for name in ("passes", "lowering", "runtime"):
        link = ROOT / "graphgen" / name
        assert not link.is_symlink() or link.readlink() == Path("..") / name
        assert link.resolve() == ROOT / name
