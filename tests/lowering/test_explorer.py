"""graphgen.explore: the page in a notebook and as a file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import graphgen as gg
from tests.oracles.chromium import NO_BROWSER, Page, program
from tests.oracles.html_data import head, tables


def mlp(op: str = "silu") -> gg.Module:
    f32, module = gg.dtype("f32"), gg.Module("mlp")
    function = module.add(gg.Function("main", phase="main"))
    with gg.Builder(function, module) as b:
        x = b.input("x", f32, (1, gg.symbol("N")))
        hidden = getattr(b, op)(b.dot(x, b.weight("up", f32, (3, gg.symbol("N")))))
        b.output("y", hidden)
    return module


def test_a_page_is_saved_and_counts_for_sizes(tmp_path: Path):
    file = tmp_path / "page.html"
    gg.explore(mlp(), sizes={"N": 5}).save(file)
    (module,) = head(file)["modules"]
    assert (module["title"], module["module"]["sizes"]) == ("mlp", {"N": 5})
    # A product of 1 x 5 and 3 x 5, of which each number has four bytes.
    assert [2 * 3 * 5, 4 * (5 + 15 + 3)] in tables(file)["work"]


def test_two_modules_are_paired(tmp_path: Path):
    file = tmp_path / "page.html"
    gg.explore(mlp(), mlp("tanh")).save(file)
    (row,) = head(file)["pairs"]
    assert any("silu" in words for words in row["changes"])


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(gg.GraphgenError, match="GG0704"):
        gg.explore(mlp()).save(tmp_path / "no" / "page.html")


def test_a_frame_of_a_notebook_follows_its_own_links(tmp_path: Path):
    if program() is None:
        pytest.skip(NO_BROWSER)
    cell = gg.explore(mlp(), height=500)._repr_html_()
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!DOCTYPE html><meta charset=utf-8><p>a cell</p>{cell}")
    page = Page(notebook, tmp_path / "profile")
    frame = "document.querySelector('iframe').contentWindow"

    def detail(words: str) -> str:
        found = ""
        for _ in range(200):
            found = page.run(f"{frame}.document.querySelector('#detail')?.innerText ?? ''")
            if words in found:
                break
            time.sleep(0.05)
        assert words in found
        return page.run(f"{frame}.document.URL")

    try:
        assert detail("A click on a box unfolds it") == "about:srcdoc"
        page.run(f"{frame}.document.querySelector('#detail a').click()")
        assert detail("1 found").startswith("about:srcdoc#search=")
        page.run(f"{frame}.document.querySelector('#detail a').click()")
        address = detail("read by")
        assert address.startswith("about:srcdoc#program=main&op=")
        assert page.run("document.URL") == notebook.as_uri()
        assert page.complaints == []
        assert page.run("document.querySelector('iframe').clientHeight") == 500
    finally:
        page.close()
