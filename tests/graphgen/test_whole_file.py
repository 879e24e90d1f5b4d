"""Names inside of a folder: no link, pipe or name that leaves the folder is written through."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from graphgen.atomic_write import (
    copy_inside,
    folder_inside,
    foreign_owner,
    move_inside,
    open_inside,
    open_readable,
    open_regular,
    places_of,
    plain_name,
    private_folder,
    read_inside,
    read_regular,
    remove_inside,
    require_no_link,
    require_place,
    write_inside,
    write_whole,
)
from graphgen.errors import GraphgenError


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder from elsewhere, and what is outside of it."""
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "file").write_text("mine")
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def outside(root: Path) -> list[str]:
    home = root.parent / "outside"
    assert (home / "file").read_text() == "mine"
    return sorted(path.relative_to(home).as_posix() for path in home.rglob("*"))


def linked(target: str) -> Callable[[Path], object]:
    return lambda root: (root / "f").symlink_to(root.parent / "outside" / target)


def linked_folder(root: Path) -> None:
    (root / "d").symlink_to(root.parent / "outside" / "folder")


def folder_inside_of_it(root: Path) -> None:
    (root / "real").mkdir()
    (root / "d").symlink_to("real")


def a_socket(root: Path) -> None:
    place = os.open(root, os.O_RDONLY)
    try:
        # The names of sockets are short: relative to the folder's descriptor.
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{place}/f")
    finally:
        os.close(place)


# What is in the way, and the name that is written.
IN_THE_WAY: dict[str, tuple[Callable[[Path], object], str]] = {
    "a link to a file": (linked("file"), "f"),
    "a dangling link": (linked("new"), "f"),
    "a link to a folder": (linked("folder"), "f"),
    "a link inside of the folder": (lambda root: (root / "f").symlink_to("g"), "f"),
    "a link to itself": (lambda root: (root / "f").symlink_to("f"), "f"),
    "a pipe": (lambda root: os.mkfifo(root / "f"), "f"),
    "a socket": (a_socket, "f"),
    "a folder": (lambda root: (root / "f").mkdir(), "f"),
    "a linked folder": (linked_folder, "d/f"),
    "a linked folder above": (linked_folder, "d/new/f"),
    "a dangling linked folder": (lambda root: (root / "d").symlink_to("../outside/x"), "d/f"),
    "a linked folder inside": (folder_inside_of_it, "d/f"),
    "a name that leaves the folder": (lambda root: None, "../outside/new"),
    "a name that leaves and comes back": (lambda root: (root / "d").mkdir(), "d/../f"),
    "an absolute name": (lambda root: None, "/f"),
    "a NUL character": (lambda root: None, "f\0"),
    "a long name": (lambda root: None, "f" * 300),
}


def write(root: Path, path: Path) -> None:
    write_inside(root, path, b"ours", parents=True)


def copy(root: Path, path: Path) -> None:
    (root.parent / "source").write_bytes(b"ours")
    copy_inside(root.parent / "source", root, path)


def move(root: Path, path: Path) -> None:
    (root.parent / "source").write_bytes(b"ours")
    move_inside(root.parent / "source", root, path)


def lock(root: Path, path: Path) -> None:
    os.close(open_inside(root, path, os.O_RDWR | os.O_CREAT, parents=True))


@pytest.mark.parametrize("writer", [write, copy, move, lock, require_place])
@pytest.mark.parametrize("member", IN_THE_WAY)
def test_what_is_in_the_way_is_refused(
    root: Path, member: str, writer: Callable[[Path, Path], object]
):
    prepare, name = IN_THE_WAY[member]
    prepare(root)
    before = sorted(root.rglob("*"))
    with pytest.raises(GraphgenError, match="cannot write") as caught:
        writer(root, root / name)
    assert caught.value.code == "GG0703"
    assert caught.value.help
    if "link" in member:
        assert "symbolic link" in caught.value.what
    assert sorted(root.rglob("*")) == before
    assert outside(root) == ["file", "folder"]


@pytest.mark.parametrize("name", ["f", "d/f", "d/e/f"])
def test_a_file_is_written_and_replaced(root: Path, name: str):
    for content in (b"one", b"two"):
        write_inside(root, root / name, content, parents=True)
        assert (root / name).read_bytes() == content
    copy(root, root / name)
    assert (root / name).read_bytes() == b"ours"
    move(root, root / name)
    assert [path.name for path in (root / name).parent.iterdir()] == ["f"]


def test_the_folder_itself_may_be_reached_through_links(root: Path):
    (root.parent / "link").symlink_to(root)
    write_inside(root.parent / "link", root.parent / "link" / "f", b"ours")
    assert (root / "f").read_bytes() == b"ours"


def test_a_file_that_the_user_names_may_be_a_link(root: Path):
    (root / "f").symlink_to(root / "g")
    write_whole(root / "f", b"ours")
    assert (root / "f").is_symlink()
    assert (root / "g").read_bytes() == b"ours"


def test_a_folder_that_is_not_there_is_gg0704(root: Path):
    with pytest.raises(GraphgenError, match="No such file") as caught:
        write_inside(root, root / "d" / "f", b"ours")
    assert caught.value.code == "GG0704"


def test_folders_are_made_without_following_links(root: Path):
    folder_inside(root, root / "a" / "b")
    folder_inside(root, root / "a" / "b")
    assert (root / "a" / "b").is_dir()
    linked_folder(root)
    for name in ("d", "d/new"):
        with pytest.raises(GraphgenError, match="symbolic link"):
            folder_inside(root, root / name)
    with pytest.raises(GraphgenError, match="symbolic link"):
        require_no_link(root, root / "d")
    require_no_link(root, root / "a")
    assert outside(root) == ["file", "folder"]


def test_a_link_itself_is_removed(root: Path):
    linked("file")(root)
    remove_inside(root, root / "f")
    remove_inside(root, root / "f")
    assert list(root.iterdir()) == []
    (root / "d").symlink_to(root.parent / "outside")
    with pytest.raises(GraphgenError, match="symbolic link"):
        remove_inside(root, root / "d" / "file")
    assert outside(root) == ["file", "folder"]


@pytest.mark.parametrize("target", ["file", "new", "folder"])
def test_links_and_pipes_that_look_like_temporary_files_stay(root: Path, target: str):
    (root / ".graphgen-a.part").symlink_to(root.parent / "outside" / target)
    os.mkfifo(root / ".graphgen-b.part")
    left = root / ".graphgen-c.part"
    left.touch()
    write_inside(root, root / "f", b"ours")
    names = [path.name for path in sorted(root.iterdir())]
    assert names == [".graphgen-a.part", ".graphgen-b.part", "f"]
    assert outside(root) == ["file", "folder"]


def test_a_reader_does_not_wait_for_a_pipe(root: Path):
    os.mkfifo(root / "f")
    (root / "link").symlink_to("f")
    for name in ("f", "link"):
        with pytest.raises(OSError, match="not a regular file"):
            open_regular(root / name)
    with pytest.raises(IsADirectoryError):
        open_regular(root)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(Path(os.devnull))


def test_a_reader_follows_links_and_stops_at_its_bound(root: Path):
    linked("file")(root)
    assert read_regular(root / "f", 4) == b"mine"
    with pytest.raises(OSError, match="4 bytes, and at most 3 are read"):
        read_regular(root / "f", 3)


def readable(root: Path, name: str) -> bytes:
    return read_inside(root, root / name)


# Members that are of this machine or no regular file, and the name that is read.
UNREADABLE = {name: row for name, row in IN_THE_WAY.items() if name != "a linked folder inside"} | {
    "a link out through two links": (
        lambda root: [linked("file")(root), (root / "g").symlink_to("f")],
        "g",
    ),
    "a link to the folder above": (lambda root: (root / "f").symlink_to(".."), "f"),
    "a link to the folder itself": (lambda root: (root / "f").symlink_to("."), "f"),
    "a link to a device": (lambda root: (root / "f").symlink_to(os.devnull), "f"),
    "blobs that are not of the hub's cache": (
        lambda root: [
            (root.parent / "blobs").mkdir(),
            (root.parent / "blobs" / "b").touch(),
            (root / "f").symlink_to("../blobs/b"),
        ],
        "f",
    ),
}


@pytest.mark.parametrize("member", UNREADABLE)
def test_what_is_not_of_the_folder_is_not_read(root: Path, member: str):
    prepare, name = UNREADABLE[member]
    prepare(root)
    with pytest.raises(OSError, match=r"\w") as caught:
        readable(root, name)
    assert caught.value.filename
    if "a link out" in member:
        assert "symbolic link out of its folder" in str(caught.value)


def test_links_inside_of_the_folder_are_read(root: Path):
    (root / "d").mkdir()
    (root / "d" / "file").write_bytes(b"ours")
    (root / "e").symlink_to("d")
    (root / "f").symlink_to("e/file")
    (root / "g").symlink_to(root / "f")
    for name in ("d/file", "e/file", "f", "g"):
        assert readable(root, name) == b"ours"
    (root.parent / "link").symlink_to(root)
    assert readable(root.parent / "link", "f") == b"ours"
    with pytest.raises(OSError, match="4 bytes, and at most 3 are read"):
        read_inside(root, root / "f", 3)


def test_links_of_the_hubs_cache_are_read(root: Path):
    (root / "blobs").mkdir()
    (root / "blobs" / "b").write_bytes(b"ours")
    snapshot = root / "snapshots" / "revision"
    (snapshot / "d").mkdir(parents=True)
    (snapshot / "f").symlink_to("../../blobs/b")
    (snapshot / "d" / "f").symlink_to("../../../blobs/b")
    (snapshot / "out").symlink_to("../../../outside/file")
    assert places_of(snapshot) == [snapshot.resolve(), root.resolve() / "blobs"]
    for folder, name in ((snapshot, "f"), (snapshot, "d/f"), (snapshot / "d", "f")):
        assert readable(folder, name) == b"ours"
        with open_readable(folder, folder / name) as file:
            assert file.read() == b"ours"
    with pytest.raises(OSError, match="out of its folder"):
        readable(snapshot, "out")


def test_a_link_is_not_copied_out_of_a_folder(root: Path):
    linked("file")(root)
    (root.parent / "new").mkdir()
    with pytest.raises(GraphgenError, match="out of its folder"):
        copy_inside(root / "f", root.parent / "new", root.parent / "new" / "f", root)
    assert list((root.parent / "new").iterdir()) == []


def test_a_private_folder_is_of_this_user_alone(root: Path):
    for _ in range(2):
        private_folder(root / "a" / "b")
    assert (root / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert not foreign_owner(root / "a" / "b")
    (root / "a" / "b").chmod(0o777)
    assert foreign_owner(root / "a" / "b").startswith("can be written by every user")


@pytest.mark.parametrize(
    "name",
    [
        *("", "/", "/a", "a/", "a//b", ".", "./a", "a/.", "..", "../a", "a/../b", "a\0b", "\0"),
        *("a" * 256, "é" * 128, "\ud800", 3, None, ["a"]),
    ],
)
def test_other_names_are_refused(name: object):
    with pytest.raises(ValueError, match="is not the name of a file"):
        plain_name(name)


@pytest.mark.parametrize("name", ["a", "a/b", "..a", "a..", ".a", "a b", "a" * 255, "é" * 127])
def test_plain_names(name: str):
    assert plain_name(name) == name


def test_the_folder_of_another_user(root: Path, monkeypatch: pytest.MonkeyPatch):
    assert not foreign_owner(root)
    assert not foreign_owner(root / "new")
    give_away(root, monkeypatch)
    assert foreign_owner(root)
    monkeypatch.undo()


def give_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a folder belong to another user: root may do so, others become another one."""
    if os.geteuid():
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
    else:
        os.chown(folder, 54321, -1)
