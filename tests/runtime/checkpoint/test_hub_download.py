"""Downloads by name: which files, from the cache when offline, and every refusal."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.hub import is_plain_name, is_repository, locate
from graphgen.runtime.checkpoint.model_config import model_config
from graphgen.runtime.engine import locate_checkpoint
from graphgen.runtime.progress import Report
from tests.graphgen.cli.conftest import error
from tests.oracles.hub import NAME, FakeHub


class RepositoryNotFoundError(OSError):
    pass


class GatedRepoError(RepositoryNotFoundError):
    pass


class OfflineModeIsEnabled(ConnectionError):  # noqa: N818
    pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    monkeypatch.chdir(tmp_path)
    repository, cache = tmp_path / "remote" / "files", tmp_path / "cache" / "snapshot"
    repository.mkdir(parents=True)
    cache.mkdir(parents=True)
    (repository / "config.json").write_text('{"model_type": "llama"}')
    for name in ("tokenizer.json", "README.md", "model.safetensors", "pytorch_model.bin"):
        (repository / name).write_text("{}")
    (repository / "onnx").mkdir()
    (repository / "onnx" / "model.safetensors").write_text("{}")
    made = FakeHub(repository, cache)
    monkeypatch.setitem(sys.modules, "huggingface_hub", made)  # pyright: ignore[reportArgumentType]
    return made


class Recorder:
    def __init__(self) -> None:
        self.titles: list[str] = []
        self.parts: list[float] = []

    @contextmanager
    def task(self, title: str) -> Generator[Report]:
        self.titles.append(title)
        assert not self.parts
        yield self.parts.append


def test_only_files_that_are_read_are_downloaded(hub: FakeHub):
    progress = Recorder()
    assert locate(NAME, progress) == hub.cache
    assert hub.fetched == ["config.json", "tokenizer.json", "model.safetensors"]
    assert progress.titles == [f"downloading {NAME}"]
    assert progress.parts == sorted(progress.parts)
    assert progress.parts[-1] == 1


@pytest.mark.parametrize(
    "names",
    [
        ["model.safetensors.index.json", "model-00001-of-00002.safetensors"],
        ["pytorch_model.bin"],
        ["pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"],
    ],
)
def test_weights_of_one_format(hub: FakeHub, names: list[str]):
    (hub.repository / "model.safetensors").unlink()
    (hub.repository / "pytorch_model.bin").unlink()
    for name in names:
        (hub.repository / name).write_text("{}")
    locate(NAME)
    assert sorted(hub.fetched) == sorted(["config.json", "tokenizer.json", *names])


def test_a_configuration_needs_no_weights(hub: FakeHub):
    assert model_config(NAME) == {"model_type": "llama"}
    assert hub.fetched == ["config.json", "tokenizer.json"]


def test_a_checkpoint_is_opened(hub: FakeHub):
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    (hub.repository / "model.safetensors").write_bytes(data)
    assert [*locate_checkpoint(NAME).tensors()] == ["model.w"]


def test_a_local_folder_comes_first(hub: FakeHub, tmp_path: Path):
    (tmp_path / "acme" / "tiny-model").mkdir(parents=True)
    assert locate(NAME) is None
    assert hub.fetched == []


def test_what_was_downloaded_before_is_used_offline(hub: FakeHub):
    locate(NAME)
    hub.failure = OfflineModeIsEnabled("offline mode is enabled")
    assert locate(NAME) == hub.cache
    hub.failure = RepositoryNotFoundError("401")
    with pytest.raises(GraphgenError, match="not a public repository"):
        locate(NAME)


@pytest.mark.parametrize(
    ("failure", "what", "help"),
    [
        (
            RepositoryNotFoundError("401 Client Error"),
            f"'{NAME}' is not a file or folder, and not a public repository of the hub",
            "hf auth login",
        ),
        (GatedRepoError("403"), f"the repository '{NAME}' is gated", "accept its terms"),
        (
            OfflineModeIsEnabled("no"),
            f"'{NAME}' is not a file or folder, and the hub is offline",
            "give the folder",
        ),
        (
            ConnectionError("name or service not known"),
            f"'{NAME}' is not a file or folder, and downloading",
            "with a connection",
        ),
    ],
)
def test_failures_name_cause_and_remedy(hub: FakeHub, failure: Exception, what: str, help: str):
    hub.failure = failure
    with pytest.raises(GraphgenError) as caught:
        locate(NAME)
    assert caught.value.code == "GG0601"
    assert caught.value.what.startswith(what)
    assert help in caught.value.help
    assert str(failure) in caught.value.note


@pytest.mark.parametrize(
    ("gone", "what"),
    [
        (["config.json"], "has no config.json"),
        (["model.safetensors", "pytorch_model.bin"], "has no weights that can be read"),
    ],
)
def test_a_repository_of_something_else(hub: FakeHub, gone: list[str], what: str):
    for name in gone:
        (hub.repository / name).unlink()
    with pytest.raises(GraphgenError, match=what):
        locate(NAME)
    assert hub.fetched == []


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    text = error("generate", NAME, "--prompt", "x")
    assert f"'{NAME}' is not a file or folder, and downloading it needs huggingface_hub" in text
    assert "pip install huggingface_hub" in text


def test_the_package_itself_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    # conftest sets HF_HUB_OFFLINE.
    with pytest.raises(GraphgenError, match="the hub is offline"):
        locate("acme/never-there-4711")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Llama-3.1-8B", True),
        ("a/b", True),
        ("a/b/c", False),
        ("./model", False),
        ("/model", False),
        ("model", False),
        ("models/x.gguf", False),
        ("here/model", False),
    ],
)
def test_names_and_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, known: bool):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_repository(name) is known


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("gpt2", True),
        ("distil.gpt-2", True),
        ("acme/tiny-model", False),
        ("here", False),
        ("model.gguf", False),
        (".", False),
        ("", False),
    ],
)
def test_plain_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, known: bool):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_plain_name(name) is known


def test_plain_names_are_downloaded_where_an_interface_takes_them(hub: FakeHub):
    hub.name = "tiny-model"
    assert locate(hub.name) is None
    with pytest.raises(GraphgenError, match="unknown model 'tiny-model'"):
        model_config(hub.name)
    assert hub.fetched == []
    assert model_config(hub.name, plain_names=True) == {"model_type": "llama"}
    assert hub.fetched == ["config.json", "tokenizer.json"]
    assert locate(hub.name, plain_names=True) == hub.cache


def test_files_short_names_and_shapes_come_before_plain_names(hub: FakeHub, tmp_path: Path):
    (tmp_path / "here").mkdir()
    assert locate("here", plain_names=True) is None
    assert str(model_config("gpt2", plain_names=True)["model_type"]) == "gpt2"
    assert hub.fetched == []


def test_a_plain_name_that_is_not_there_names_every_remedy(hub: FakeHub):
    hub.failure = OfflineModeIsEnabled("no")
    with pytest.raises(
        GraphgenError, match="'gpt22' is not a file or folder, and the hub is"
    ) as made:
        model_config("gpt22", plain_names=True)
    assert made.value.code == "GG0601"
    assert "give the folder of the checkpoint" in made.value.help
    assert "did you mean gpt2" in made.value.help
