"""An installed graphgen does not collide with a user's modules, whatever they are called."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from graphgen.lowering.cpu_kernels.build_kernels import LIBRARY, compiler, is_current, source_files
from graphgen.lowering.cpu_kernels.kernel_library import HANDLERS
from graphgen.version import FOREIGN, __version__
from tests.wheels import WheelError, compare, serves

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


KERNELS = """
from graphgen.lowering.cpu_kernels.kernel_library import kernel_library
found = kernel_library()
print(*sorted(found.targets), found.missing)
"""


def build(kind: str, source: Path, folder: Path, **more: str) -> Path:
    """Build the ``wheel`` or the ``sdist`` of a source tree; returns its file."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    ran = subprocess.run(
        command, cwd=source, env={**os.environ, **more}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (made,) = (path for path in folder.iterdir() if path.is_file())
    return made


def unpacked(wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(wheel.parent / "site")
    return wheel.parent / "site"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, with kernels where a compiler is installed or has made them before."""
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path) -> Path:
    """The contents of the wheel."""
    return unpacked(wheel)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contents of the source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", ROOT, folder)) as archive:
        archive.extractall(folder / "tree", filter="data")
    (tree,) = (folder / "tree").iterdir()
    return tree


def purity(site: Path) -> str:
    """The line of the wheel's own description that says whether it runs on any machine."""
    (description,) = site.glob("*.dist-info/WHEEL")
    (line,) = [x for x in description.read_text().splitlines() if x.startswith("Root-Is-Purelib")]
    return line.partition(": ")[2]


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


def test_the_wheel_holds_the_kernels_of_this_machine(wheel: Path, site: Path, tmp_path: Path):
    if compiler() is None and not is_current():
        pytest.skip("there is no C++ compiler")
    (held,) = site.rglob("*.so")
    assert held == site / "graphgen" / LIBRARY.relative_to(ROOT)
    assert held.read_bytes() == LIBRARY.read_bytes()
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name == f"graphgen_compiler-{__version__}-py3-none-{platform}.whl"
    assert purity(site) == "false"
    said = run("-c", KERNELS, cwd=tmp_path, site=site)
    assert said.split() == sorted(HANDLERS)


def test_the_sources_of_the_kernels_are_distributed(site: Path, sdist: Path):
    ours = {path.name for path in source_files()}
    for tree in (site, sdist):
        folder = tree / "graphgen" / LIBRARY.parent.relative_to(ROOT)
        assert ours <= {path.name for path in folder.iterdir()}
    # A library of another machine must not come with sources.
    assert not list(sdist.rglob("*.so"))


@pytest.mark.parametrize("cxx", ["/nowhere/g++", "false"])
def test_without_a_working_compiler_the_wheel_is_of_python_alone(
    cxx: str, sdist: Path, tmp_path: Path
):
    old = sdist / "graphgen" / LIBRARY.relative_to(ROOT)
    if cxx == "false":
        old.write_bytes(b"a library of other sources")
    try:
        wheel = build("wheel", sdist, tmp_path, CXX=cxx)
    finally:
        old.unlink(missing_ok=True)
    site = unpacked(wheel)
    assert wheel.name.endswith("-py3-none-any.whl")
    assert purity(site) == "true"
    assert not list(site.rglob("*.so"))
    said = run("-c", KERNELS, cwd=tmp_path, site=site)
    assert said == "they are not built: graphgen doctor --build-kernels\n"


@pytest.mark.slow
@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_a_wheel_from_the_source_distribution_has_kernels(sdist: Path, tmp_path: Path):
    try:
        wheel = build("wheel", sdist, tmp_path)
    finally:
        for made in sdist.rglob("*.so"):
            made.unlink()
    said = run("-c", KERNELS, cwd=tmp_path, site=unpacked(wheel))
    assert said.split() == sorted(HANDLERS)


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


def test_the_import_names_another_projects_package_in_its_folder(tmp_path: Path):
    package = tmp_path / "graphgen"
    (package / "metric").mkdir(parents=True)
    for name in ("__init__.py", "version.py"):
        shutil.copy(ROOT / "graphgen" / name, package)
    program = "import warnings; warnings.simplefilter('error'); import graphgen"
    assert run("-c", program, cwd=tmp_path, site=tmp_path) == ""
    (package / "metric" / "metric.py").touch()
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.stderr.splitlines()[-1] == f"UserWarning: {FOREIGN}"


@pytest.mark.parametrize(
    ("shown", "answer"),
    [
        ('consistent with the following platform\ntag: "manylinux_2_24_aarch64".', True),
        ('platform tag: "manylinux_2_28_aarch64".', True),
        ('platform tag: "manylinux_2_34_aarch64".', False),
        ('platform tag: "manylinux_2_24_x86_64".', False),
        ('platform tag: "linux_aarch64".', False),
    ],
)
def test_a_wheel_serves_the_platforms_of_its_glibc_and_newer_ones(shown: str, answer: bool):
    assert serves(shown, "aarch64") is answer


def test_builds_that_differ_are_named(tmp_path: Path):
    one, other = tmp_path / "a.whl", tmp_path / "b.whl"
    one.write_bytes(b"1")
    other.write_bytes(b"1")
    compare([one], [other])
    other.write_bytes(b"2")
    with pytest.raises(WheelError, match=r"two builds of a\.whl differ"):
        compare([one], [other])
