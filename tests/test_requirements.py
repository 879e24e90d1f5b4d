"""Hashed requirements, and the bill of materials that is made of them."""

from __future__ import annotations

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.hashed_requirements import FILES, ROOT, pinned
from tests.lowest import lowest
from tests.sbom import bill, packages


@pytest.mark.parametrize("name", FILES)
def test_every_pin_has_the_hashes_of_its_files(name: str):
    wanted = {canonicalize_name(pin.split("==")[0]): pin.split("==")[1] for pin in pinned(name)}
    found = packages(name)
    assert {
        canonicalize_name(package): version for package, (version, _) in found.items()
    } == wanted
    for package, (_, hashes) in found.items():
        assert hashes, package
        assert len(hashes) == len(set(hashes)), package


def test_packages_with_machine_code_have_hashes_for_every_python():
    """A wheel a Python and machine: a file that one of them takes may not be missing."""
    of = {name: len(hashes) for name, (_, hashes) in packages().items()}
    # Three Pythons on four kinds of machines, at least, and an sdist.
    assert min(of["numpy"], of["scipy"], of["pydantic-core"], of["ml-dtypes"]) > 12


def test_make_installs_by_hashes():
    text = (ROOT / "Makefile").read_text("utf-8")
    rules = re.findall(r"^\$\((\w+)_STAMP\): .*\n((?:\t.*\n)+)", text, re.M)
    installs = {name: body for name, body in rules if "_INSTALL)" in body}
    for name in ("RUNTIME", "MODEL", "DEV", "DOCS"):
        assert "$(HASHED_INSTALL)" in installs[name]
    # Only torch and the checkout itself have no hashes.
    plain = [
        line for body in installs.values() for line in body.splitlines() if "PIP_INSTALL" in line
    ]
    assert all("$(TORCH)" in line or "--editable ." in line for line in plain)


def test_the_bill_names_what_is_installed_and_what_is_vendored():
    made = bill()
    assert isinstance(made, dict)
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    rows = made["components"]
    assert isinstance(rows, list)
    named = {row["name"]: row for row in rows if isinstance(row, dict)}
    assert set(named) == {*packages(), "@dagrejs/dagre", "dompurify", "marked"}
    assert named["numpy"]["version"] == packages()["numpy"][0]
    assert named["@dagrejs/dagre"]["purl"] == "pkg:npm/%40dagrejs/dagre@3.1.3"
    assert named["marked"]["licenses"] == [{"expression": "MIT"}]
    assert named["dompurify"]["licenses"] == [{"expression": "MPL-2.0 OR Apache-2.0"}]
    assert all(row["licenses"] for row in named.values())


def test_every_dependency_is_justified():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    stated = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    names = {Requirement(text).name for text in stated} - {project["name"]}
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    assert set(re.findall(r"`([\w.-]+)`", page)) >= names


def test_the_lowest_versions_are_those_of_uv_without_torch(tmp_path: Path):
    uv = tmp_path / "uv"
    uv.write_text(
        '#!/bin/sh\nprintf "%s\\n" "$*" numpy==2.2.0 nvidia-nccl-cu13==2.29 torch==2.13.0\n'
    )
    uv.chmod(0o755)
    command, *pins = lowest(str(uv))
    assert "pip compile pyproject.toml --extra test" in command
    assert "--resolution lowest-direct" in command
    assert pins == ["numpy==2.2.0"]


def test_every_range_has_a_lowest_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    stated = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    for requirement in map(Requirement, stated):
        if requirement.name != project["name"]:
            operators = {each.operator for each in requirement.specifier}
            assert operators & {">=", "=="}, requirement
