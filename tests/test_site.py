"""The site of ``make docs``: its pages, its navigation, and the check of what is built.

``make docs``, which CI runs, builds the site itself: Sphinx is not among the tests' requirements.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from docs.source import dump_pictures, inspect_picture, notebook_pages, plot_pictures
from docs.source.api_pages import api_pages
from docs.source.check_site import faults
from docs.source.command_pages import command_pages, plain
from docs.source.public_names import public_objects
from docs.source.site_pages import INCLUDED, navigation, page_of
from graphgen.cli.command_table import commands
from graphgen.errors import CODES
from tests.graphgen.cli.conftest import graphgen
from tests.hashed_requirements import ROOT

DOCS = ROOT / "docs"


def test_the_navigation_lists_every_page_once():
    listed = re.findall(r"^(?!`|:)(\S+)$", navigation(), re.MULTILINE)
    guides = {path.stem for path in DOCS.glob("*.md")} - {"index"}
    notebooks = {f"notebooks/{path.stem}" for path in notebook_pages.notebooks()}
    files = {name.removesuffix(".md") for name in INCLUDED.values()}
    assert sorted(listed) == sorted({*guides, *files, *notebooks, "commands/index", "api/index"})


@pytest.mark.parametrize("file", [*INCLUDED, *(f"docs/{p.name}" for p in DOCS.glob("*.md"))])
def test_pages_show_no_pictures_of_other_hosts(file: str):
    text = page_of(file)
    assert re.findall(r"!\[[^\]]*\]\((?:https?:)?//|<(?:img|script|link|iframe)\b", text) == []


def test_every_picture_is_drawn_by_a_script():
    drawn = {inspect_picture.PICTURE.name, *plot_pictures.DRAWN.values()}
    drawn |= {f"{name}.webp" for name in dump_pictures.PICTURES_OF_THE_GUIDE}
    # Made of measurements, by the command that takes them.
    assert "--plot docs/pictures/compare" in (ROOT / "benchmarks/README.md").read_text("utf-8")
    assert {path.name for path in (DOCS / "pictures").iterdir()} == {*drawn, "compare.png"}
    commands = "\n".join(plot_pictures.commands())
    assert [file for file in plot_pictures.DRAWN if f"--plot {file} " not in commands] == []


def test_links_lead_to_pages_of_the_site():
    readme, benchmarks = page_of("README.md"), page_of("benchmarks/README.md")
    assert "](running.md)" in readme
    assert "](docs/" not in readme
    assert "](changelog.md)" in page_of("docs/index.md")
    assert "](pictures/compare.png)" in benchmarks
    assert "[mine.py](examples/mine.py)" in readme


def test_every_error_code_has_a_place():
    assert set(re.findall(r'<span id="(GG\d{4})">', page_of("docs/errors.md"))) == set(CODES)


@pytest.mark.slow
def test_every_command_has_a_page_with_all_of_its_help():
    pages = command_pages()
    assert set(pages) == {"index", *commands()}
    for name, page in pages.items():
        if name != "index":
            assert f"[`{name}`]({name}.md)" in pages["index"]
            options = re.findall(r"^  .*?(--[a-z][\w-]*)", graphgen(name, "--help").stdout, re.M)
            assert [option for option in options if option not in page] == []


def test_text_of_help_has_no_marks_of_markdown():
    assert plain("[default: a_b] <x> *") == r"\[default: a\_b\] &lt;x&gt; \*"


def test_every_public_name_is_on_one_page():
    text = "\n".join(api_pages().values())
    named = re.findall(r"^\.\. auto\w+:: [\w.]+\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(public_objects())


@pytest.mark.parametrize("path", notebook_pages.notebooks(), ids=lambda path: path.stem)
def test_notebooks_are_committed_without_outputs(path: Path):
    notebook = json.loads(path.read_text("utf-8"))
    assert notebook["nbformat"] == 4
    kinds = {cell["cell_type"] for cell in notebook["cells"]}
    assert kinds == {"code", "markdown"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all((cell["outputs"], cell["execution_count"]) == ([], None) for cell in code)


# What the notebooks promise in their texts, as their cells print it.
PRINTED = {
    "inspect_a_jax_program": ("29 ops: ", "['dot_general'] [", "equal: True", "rms_norm(", "silu("),
    "write_a_pass": ("reciprocal ok - no", "mistaken WRONG - mistaken #1: multiply-by-divisor at"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param("inspect_a_jax_program", marks=pytest.mark.slow), "write_a_pass"],
)
def test_notebooks_run(name: str):
    (path,) = (path for path in notebook_pages.notebooks() if path.stem == name)
    outputs = "".join(re.findall(r"^```text\n(.*?)^```", notebook_pages.page(path), re.M | re.S))
    assert [text for text in PRINTED[name] if text not in outputs] == []


def test_every_notebook_is_run():
    assert {path.stem for path in notebook_pages.notebooks()} == set(PRINTED)


PAGE = '<html><body id="top"><a href="{link}">x</a><img src="{picture}"></body></html>'


def site(folder: Path, link: str = "#top", picture: str = "a.png", style: str = "") -> Path:
    """A built site of one page with a picture, a style sheet and a script."""
    (folder / "index.html").write_text(PAGE.format(link=link, picture=picture), "utf-8")
    (folder / "a.png").write_bytes(b"")
    (folder / "a.css").write_text(style, "utf-8")
    return folder


def test_a_right_site_has_no_faults(tmp_path: Path):
    built = site(tmp_path, link="https://example.com/", style="a { background: url(a.png) }")
    assert faults(built, ["index"], ["index.html#top"]) == []
    assert faults(site(tmp_path, link="index.html?q=1#top"), ["index"]) == []


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"link": "gone.html"}, "index.html links to gone.html, which does not exist"),
        ({"link": "#gone"}, "index.html links to #gone, which has no such place"),
        ({"picture": "gone.png"}, "index.html links to gone.png, which does not exist"),
        ({"picture": "https://cdn.example/a.png"}, "index.html fetches https://cdn.example/a.png"),
        ({"picture": "//cdn.example/a.png"}, "index.html fetches //cdn.example/a.png"),
        ({"style": "@import 'https://f.example/x';"}, "a.css fetches https://f.example/x"),
        ({"style": "a { src: url(//f.example/x) }"}, "a.css fetches //f.example/x"),
    ],
)
def test_a_fault_of_a_site_is_found(tmp_path: Path, wrong: dict[str, str], fault: str):
    assert faults(site(tmp_path, **wrong), ["index"]) == [fault]


def test_missing_pages_and_places_are_found(tmp_path: Path):
    (tmp_path / "a.js").write_text("fetch('https://api.example/x')", "utf-8")
    found = faults(site(tmp_path), ["index", "other"], ["index.html#name"])
    assert found == [
        "there is no page other.html",
        "a.js fetches https://api.example/x",
        "there is no place index.html#name",
    ]
