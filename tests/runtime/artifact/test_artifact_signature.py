"""Machine code of an artifact is loaded only with a signature of this user's key."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import MANIFEST, open_artifact, write_weights
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import EngineOptions
from graphgen.runtime.folders import sealed
from graphgen.runtime.progress import Silent
from graphgen.runtime.signing import VARIABLE, is_signed, signing_key
from tests.runtime.artifact.test_artifact_folder import answer, made, start

pytestmark = pytest.mark.usefixtures("optimized_code")

NOTE = "has compiled programs that are not signed with your key"


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """A copy of an artifact that is signed with the key of the tests."""
    shutil.copytree(made()[0] / "artifact", tmp_path / "artifact")
    return tmp_path / "artifact"


@pytest.fixture
def other_key(tmp_path: Path) -> Path:
    """A file with a key that nothing is signed with."""
    path = tmp_path / "other.key"
    path.write_text("f" * 64)
    return path


def resealed(artifact: Path, **changes: object) -> None:
    """A manifest with other values and its checksum, by whoever has no key."""
    manifest = json.loads((artifact / MANIFEST).read_bytes())
    (artifact / MANIFEST).write_bytes(sealed({**manifest, **changes}))


def of_old_versions(artifact: Path) -> None:
    """Neither the manifest nor the programs have a signature."""
    manifest = json.loads((artifact / MANIFEST).read_bytes())
    del manifest["signature"]
    (artifact / MANIFEST).write_bytes(sealed(manifest))
    for file in (artifact / "compiled").iterdir():
        blob = file.read_bytes()
        file.write_bytes(blob[:32] + blob[64:])


def without_signature(artifact: Path) -> None:
    resealed(artifact, signature="")


def of_another_text(artifact: Path) -> None:
    """A manifest that gives a program under the name of another."""
    texts = json.loads((artifact / MANIFEST).read_bytes())["programs"]
    resealed(artifact, programs=dict(zip(texts, reversed(texts.values()), strict=True)))


def wrong_signature(artifact: Path) -> None:
    resealed(artifact, signature="not hexadecimal")


@pytest.mark.parametrize(
    "change", [of_old_versions, without_signature, of_another_text, wrong_signature]
)
def test_programs_without_a_signature_are_compiled_again_with_one_note(
    artifact: Path, change: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
):
    change(artifact)
    for loaded in (False, True):
        engine = start(artifact, None)
        assert answer(engine) == made()[1]
        assert [report.loaded for report in engine.programs.reports] == [loaded] * 2
        assert capsys.readouterr().err.count(NOTE) == (not loaded)


def test_programs_of_another_key_are_loaded_with_that_key_or_trust_alone(
    artifact: Path,
    other_key: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    kept = {file: file.read_bytes() for file in (artifact / "compiled").iterdir()}
    with monkeypatch.context() as patch:
        patch.setenv(VARIABLE, str(other_key))
        trusted = start(artifact, None, EngineOptions(trust_artifacts=True))
        assert answer(trusted) == made()[1]
        assert all(report.loaded for report in trusted.programs.reports)
        assert NOTE not in capsys.readouterr().err
        engine = start(artifact, None)
        assert answer(engine) == made()[1]
        assert not any(report.loaded for report in engine.programs.reports)
        assert capsys.readouterr().err.count(NOTE) == 1
    for file, data in kept.items():
        file.write_bytes(data)
    engine = start(artifact, None)
    assert answer(engine) == made()[1]
    assert all(report.loaded for report in engine.programs.reports)


def test_trust_does_not_load_another_program_under_a_name(artifact: Path):
    first, second = sorted((artifact / "compiled").iterdir())
    shutil.copyfile(first, second)
    engine = start(artifact, None, EngineOptions(trust_artifacts=True))
    assert answer(engine) == made()[1]
    assert sorted(report.loaded for report in engine.programs.reports) == [False, True]


def test_new_weights_are_signed_where_the_artifact_was(artifact: Path):
    checkpoint = open_checkpoint(made()[0] / "small.gguf")
    assert write_weights(open_artifact(artifact), checkpoint, Silent()).signed
    without_signature(artifact)
    assert not write_weights(open_artifact(artifact), checkpoint, Silent()).signed


def test_the_key_is_made_once_for_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert signing_key() is None
    key = signing_key(make=True)
    assert key is not None
    assert len(key) == 64
    assert signing_key(make=True) == signing_key() == key
    path = tmp_path / "config" / "graphgen" / "artifact.key"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    path.chmod(0o640)
    with pytest.raises(GraphgenError, match="is a key that other users can read") as caught:
        signing_key()
    assert caught.value.code == "GG0705"


def test_nothing_is_signed_where_no_key_can_be_made(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(VARIABLE)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    for _ in range(2):
        engine = start(artifact, None)
        assert answer(engine) == made()[1]
        assert not any(report.loaded for report in engine.programs.reports)


def test_a_user_without_a_home_has_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_home(path: Path) -> Path:
        raise RuntimeError(f"Could not determine home directory of {path}")

    for name in (VARIABLE, "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "expanduser", no_home)
    monkeypatch.chdir(tmp_path)
    assert signing_key(make=True) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (None, "No such file"),
        ("", "holds 0 bytes"),
        ("short\n", "holds 5 bytes"),
        ("x" * 5000, "at most 4096 are read"),
    ],
)
def test_a_file_that_is_no_key_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, what: str
):
    path = tmp_path / "key"
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(GraphgenError, match=what) as caught:
        signing_key()
    assert caught.value.code == "GG0705"
    assert "openssl rand -hex 32" in str(caught.value)


def test_an_empty_variable_is_not_a_missing_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, "")
    with pytest.raises(GraphgenError, match=f"{VARIABLE} is empty"):
        signing_key()


def test_a_pipe_in_place_of_the_key_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    os.mkfifo(tmp_path / "key")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "key"))
    with pytest.raises(GraphgenError, match="not a regular file"):
        signing_key()


def test_a_signature_is_of_the_whole_content():
    content: dict[str, object] = json.loads((made()[0] / "artifact" / MANIFEST).read_bytes())
    assert is_signed(content)
    for name, value in content.items():
        if name not in ("signature", "checksum"):
            assert not is_signed({**content, name: [value]})
    assert not is_signed({**content, "more": 1})
    assert is_signed(replace_checksum(content))


def replace_checksum(content: dict[str, object]) -> dict[str, object]:
    """The checksum follows from the rest, and is not signed."""
    return {**content, "checksum": ""}
