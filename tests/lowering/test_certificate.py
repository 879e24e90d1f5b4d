"""Certificates of proofs: what they state, and that no edit of them or their files is accepted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.certificate import (
    ENDING,
    SAME,
    CertificateFiles,
    check_certificate,
    write_certificate,
)
from graphgen.lowering.open import open_module
from graphgen.lowering.program_file import program_bytes
from graphgen.text import parse
from tests.oracles.split_product import SPLIT, WHOLE


def certified(home: Path, ending: str = ".pb", target: str = SPLIT) -> Path:
    """A certificate in ``home`` of a product that is divided over two ranks."""
    module = parse(target, "target")
    file = home / f"main{ending}"
    file.write_bytes(b"".join(program_bytes(module, module.function("main"), ending)))
    files = CertificateFiles(home, "source.gg", "target.gg", {"main": file.name})
    path, found = write_certificate(parse(WHOLE, "source"), module, files, f"main{ENDING}")
    assert found.complete
    return path


def refusal(path: Path) -> GraphgenError:
    """The error of a certificate or files that were changed."""
    with pytest.raises(GraphgenError) as caught:
        check_certificate(path)
    return caught.value


@pytest.mark.parametrize("ending", [".pb", ".hlo", ".mlir"])
def test_a_certificate_is_proved_again_from_its_files(tmp_path: Path, ending: str) -> None:
    path = certified(tmp_path, ending)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in [*tmp_path.iterdir()]:
        if file.is_file():
            file.rename(moved / file.name)
    found = check_certificate(moved / path.name)
    assert [str(claim.status) for claim in found.claims] == ["equal in real arithmetic"]
    stated = json.loads((moved / path.name).read_text())
    assert stated["programs"][0]["read back"] == SAME
    assert {"element all_reduce", "element dot_general"} <= {*stated["rules"]}
    assert any("neuronx-cc" in text for text in stated["not covered"])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON value, from the root."""
    if path:
        yield path
    if isinstance(value, dict | list):
        keys: list[Any] = [*value] if isinstance(value, dict) else [*range(len(value))]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        for key in keys:
            yield from places(value[key], (*path, key))


def changed(value: Any, random: Random) -> Any:
    """Another JSON value in the place of one."""
    match value:
        case bool():
            return not value
        case int():
            return value + random.choice((-1, 1, 1000))
        case str() if value:
            at = random.randrange(len(value))
            other = random.choice([x for x in "a0/ {é" if x != value[at]])
            return value[:at] + other + value[at + 1 :]
        case list() if value:
            return random.choice((value[:-1], [*value, value[0]], None))
        case dict() if value:
            key = random.choice([*value])
            return {k: v for k, v in value.items() if k != key}
        case _:
            return random.choice(("other", 1, True))


def digested(content: dict[str, Any]) -> dict[str, Any]:
    """The content with its own hash, as somebody would write it who knows the form."""
    text = json.dumps({**content, "sha256": None}, sort_keys=True)
    return {**content, "sha256": sha256(text.encode()).hexdigest()}


def test_a_hundred_random_edits_of_a_certificate_are_refused(tmp_path: Path) -> None:
    path = certified(tmp_path)
    text = path.read_text()
    for number in range(100):
        random, content = Random(number), json.loads(text)
        place = random.choice([*places(content)])
        inner = content
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = changed(inner[place[-1]], random)
        # Every second one has the hash of what was edited.
        content = digested(content) if number % 2 and place != ("sha256",) else content
        path.write_text(json.dumps(content))
        found = refusal(path)
        assert found.code in ("GG0710", "GG0705"), (place, found)
    path.write_text(text)
    check_certificate(path)


_ATTRIBUTE = re.compile(r"(?<=[=\[,(])\d+(?=[\],)\s])|(?<=kind=)\w+")


def edited(text: str, number: int) -> str:
    """A module with one number or word of an op's attributes changed."""
    random = Random(number)
    lines = text.splitlines(keepends=True)
    ops = [n for n, line in enumerate(lines) if line.lstrip().startswith("%")]
    while True:
        at = random.choice(ops)
        found = [*_ATTRIBUTE.finditer(lines[at].split(" : ")[0])]
        if found:
            break
    spot = random.choice(found)
    old = spot[0]
    new = random.choice(("maximum", "minimum")) if old.isalpha() else str(int(old) + 1)
    lines[at] = lines[at][: spot.start()] + new + lines[at][spot.end() :]
    return "".join(lines)


def rehashed(path: Path, key: str, file: Path) -> None:
    """State the hash of a file that was edited."""
    content = json.loads(path.read_text())
    content[key]["sha256"] = sha256(file.read_bytes()).hexdigest()
    path.write_text(json.dumps(digested(content)))


@pytest.mark.parametrize("which", ["source", "target"])
def test_fifty_modules_with_one_attribute_changed_are_refused(tmp_path: Path, which: str) -> None:
    path = certified(tmp_path)
    file, stated = tmp_path / f"{which}.gg", path.read_text()
    text = file.read_text()
    for number in range(50):
        file.write_text(edited(text, number))
        assert file.read_text() != text
        path.write_text(stated)
        if number % 2:
            rehashed(path, which, file)
            # The module itself may be refused by its reader.
            refusal(path)
        else:
            assert refusal(path).code == "GG0710"


def test_a_program_of_other_numbers_is_not_certified(tmp_path: Path) -> None:
    module = parse(SPLIT.replace("kind=add", "kind=maximum"), "target")
    file = tmp_path / "main.pb"
    file.write_bytes(b"".join(program_bytes(module, module.function("main"), ".pb")))
    files = CertificateFiles(tmp_path, "source.gg", "target.gg", {"main": "main.pb"})
    with pytest.raises(GraphgenError) as caught:
        write_certificate(parse(WHOLE, "a"), parse(SPLIT, "b"), files, "c.json")
    assert caught.value.code == "GG0710"
    assert "all_reduce" in caught.value.what
    assert not (tmp_path / "c.json").exists()


def test_a_key_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = certified(tmp_path)
    path.write_text(path.read_text().replace('"ranks": 2', '"ranks": 4, "ranks": 2'))
    assert "twice" in refusal(path).what


def _linked(home: Path) -> None:
    (home / "target.gg").rename(home.parent / "target.gg")
    (home / "target.gg").symlink_to(home.parent / "target.gg")


def _gone(home: Path) -> None:
    (home / "main.pb").unlink()


@pytest.mark.parametrize("change", [_linked, _gone])
def test_files_that_are_not_there_are_errors(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = certified(home)
    change(home)
    assert refusal(path).code == "GG0705"


def test_the_program_of_another_form_is_read_back(tmp_path: Path) -> None:
    certified(tmp_path, ".mlir")
    assert open_module(tmp_path / "main.mlir").ranks == 2
