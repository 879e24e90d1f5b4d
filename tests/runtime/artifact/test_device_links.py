"""Links in a folder for a device, and names in its manifest that leave it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import device_folder
from graphgen.runtime.artifact.artifact_folder import DEVICE_KIND
from graphgen.runtime.artifact.device_folder import (
    CONFIG,
    ENVIRONMENT,
    INTERFACES,
    MANIFEST,
    MODULE,
    NEURON_CONFIG,
    begin_device_folder,
    open_device_folder,
    require_trust,
    write_device_folder,
)
from graphgen.runtime.folders import sealed

PROGRAMS = SimpleNamespace(
    built=SimpleNamespace(config={}, settings=CompileConfig()),
    modules=[],
    module=SimpleNamespace(ranks=1),
    options=SimpleNamespace(device=SimpleNamespace(name="trn2", lnc=2)),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(device_folder, "runtime_variables", lambda programs, made: {})
    (tmp_path / "outside").write_text("mine")
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def write(folder: Path) -> None:
    write_device_folder(folder, cast(Any, PROGRAMS), [], "2.27", "{}")


@pytest.mark.parametrize("target", ["outside", "new"])
@pytest.mark.parametrize("name", [INTERFACES, CONFIG, ENVIRONMENT, NEURON_CONFIG, MANIFEST])
def test_no_file_is_written_through_a_link(folder: Path, name: str, target: str):
    (folder / name).symlink_to(folder.parent / target)
    with pytest.raises(GraphgenError, match="it is a symbolic link") as caught:
        write(folder)
    assert caught.value.code == "GG0703"
    assert (folder.parent / "outside").read_text() == "mine"
    assert not (folder.parent / "new").exists()


def test_the_marks_of_completeness_are_removed_as_links(folder: Path):
    for name in (MANIFEST, MODULE):
        (folder / name).symlink_to(folder.parent / "outside")
    begin_device_folder(folder)
    assert list(folder.iterdir()) == []
    assert (folder.parent / "outside").read_text() == "mine"
    begin_device_folder(folder.parent / "not-there")
    write(folder)
    assert open_device_folder(folder).manifest["target"] == "trn2"


@pytest.mark.parametrize(
    "content",
    [
        {"files": {"../outside": "0" * 64}},
        {"files": {"/outside": "0" * 64}},
        {"files": {}, "programs": [{"name": "p", "folder": "../p"}]},
        {"files": {}, "programs": [{"name": "p", "folder": "/p"}]},
        {"files": {}, "programs": [{"name": "p", "folder": 3}]},
    ],
)
def test_a_manifest_names_files_of_the_folder(folder: Path, content: dict[str, object]):
    (folder / MANIFEST).write_bytes(sealed({"kind": DEVICE_KIND, **content}))
    with pytest.raises(GraphgenError, match="is not the name of a file") as caught:
        open_device_folder(folder)
    assert caught.value.code == "GG0703"


def test_programs_that_are_not_signed_are_refused(folder: Path):
    write(folder)
    require_trust(open_device_folder(folder), trust=False)
    manifest = {**open_device_folder(folder).manifest, "compiler": "2.28"}
    (folder / MANIFEST).write_bytes(sealed(manifest))
    with pytest.raises(GraphgenError, match="not signed with your key") as caught:
        require_trust(open_device_folder(folder), trust=False)
    assert caught.value.code == "GG0703"
    assert "--trust-artifacts" in str(caught.value)
    require_trust(open_device_folder(folder), trust=True)
