"""Files beside the weights of a checkpoint: links out of it are not copied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers.models import WordLevel

from graphgen.runtime.tokenizer.tokenizer import load_tokenizer
from graphgen.runtime.tokenizer.tokenizer_folder import copy_own, save_tokenizer

NAMES = ("notes.txt",)


def test_a_template_that_is_a_link_is_left_out_of_an_artifact(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "M").mkdir()
    backend = Backend(WordLevel({"a": 0, "</s>": 1}, unk_token="a"))
    (tmp_path / "M" / "tokenizer.json").write_text(backend.to_str())
    (tmp_path / "M" / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
    (tmp_path / "secret").write_text("SECRET")
    template = tmp_path / "M" / "chat_template.jinja"
    template.write_text("of the model")
    save_tokenizer(load_tokenizer(tmp_path / "M"), tmp_path / "own")
    assert load_tokenizer(tmp_path / "own").parts.chat_template == "of the model"
    assert capsys.readouterr().err == ""
    template.unlink()
    template.symlink_to(tmp_path / "secret")
    save_tokenizer(load_tokenizer(tmp_path / "M"), tmp_path / "linked")
    assert load_tokenizer(tmp_path / "linked").parts.chat_template is None
    assert not any("SECRET" in path.read_text() for path in (tmp_path / "linked").iterdir())
    assert "'chat_template.jinja'" in capsys.readouterr().err


def plain(home: Path) -> Path:
    (home / "M").mkdir()
    (home / "M" / "notes.txt").write_text("of the model")
    return home / "M"


def link_inside(home: Path) -> Path:
    (home / "M" / "sub").mkdir(parents=True)
    (home / "M" / "sub" / "notes").write_text("of the model")
    (home / "M" / "notes.txt").symlink_to("sub/notes")
    return home / "M"


def linked_checkpoint(home: Path) -> Path:
    (home / "link").symlink_to(link_inside(home))
    return home / "link"


def hub_cache(home: Path) -> Path:
    folder = home / "models--a--b" / "snapshots" / "0123"
    folder.mkdir(parents=True)
    (home / "models--a--b" / "blobs").mkdir()
    (home / "models--a--b" / "blobs" / "4567").write_text("of the model")
    (folder / "notes.txt").symlink_to("../../blobs/4567")
    return folder


def absolute_link(home: Path) -> Path:
    (home / "M").mkdir()
    (home / "M" / "notes.txt").symlink_to(home / "secret")
    return home / "M"


def relative_link(home: Path) -> Path:
    (home / "M").mkdir()
    (home / "M" / "notes.txt").symlink_to("../secret")
    return home / "M"


def link_to_a_link(home: Path) -> Path:
    (home / "M").mkdir()
    (home / "M" / "inner").symlink_to("../secret")
    (home / "M" / "notes.txt").symlink_to("inner")
    return home / "M"


def linked_folder(home: Path) -> Path:
    (home / "M").mkdir()
    (home / "away").mkdir()
    (home / "away" / "secret").write_text("SECRET")
    (home / "M" / "sub").symlink_to(home / "away")
    (home / "M" / "notes.txt").symlink_to("sub/secret")
    return home / "M"


def subfolder_of_the_hub_cache(home: Path) -> Path:
    folder = hub_cache(home) / "sub"
    folder.mkdir()
    (folder / "notes.txt").symlink_to("../../../blobs/4567")
    return folder


def out_of_the_hub_cache(home: Path) -> Path:
    folder = hub_cache(home)
    (folder / "notes.txt").unlink()
    (folder / "notes.txt").symlink_to("../../../secret")
    return folder


@pytest.mark.parametrize(
    "made", [plain, link_inside, linked_checkpoint, hub_cache, subfolder_of_the_hub_cache]
)
def test_a_file_of_the_checkpoint_is_copied(made: Callable[[Path], Path], tmp_path: Path):
    folder = made(tmp_path)
    (tmp_path / "out").mkdir()
    copy_own(folder, NAMES, tmp_path / "out")
    assert not (tmp_path / "out" / "notes.txt").is_symlink()
    assert (tmp_path / "out" / "notes.txt").read_text() == "of the model"


@pytest.mark.parametrize(
    "made", [absolute_link, relative_link, link_to_a_link, linked_folder, out_of_the_hub_cache]
)
def test_a_link_out_of_the_checkpoint_is_not(
    made: Callable[[Path], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "secret").write_text("SECRET")
    folder = made(tmp_path)
    (tmp_path / "out").mkdir()
    copy_own(folder, NAMES, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert capsys.readouterr().err == f"note: not copied, links out of {folder}: 'notes.txt'\n"
