"""graphgen inspect --html and --model-explorer: what is in the files, and the page in a browser."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphgen.analysis.layers import identical_layers, layers_of
from graphgen.ir.dtype import bf16
from graphgen.models import build, known_shape
from tests.graphgen.cli.conftest import done, error, facts
from tests.graphgen.cli.inspect.test_inspect_cmd import step
from tests.lowering.hlo.test_unmodelled import OTHERS
from tests.oracles.chromium import Page, program

__all__ = ["step"]


def data(page: Path) -> Any:
    found = re.search(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


def test_every_value_of_the_page_is_one_of_the_program(step: Path, tmp_path: Path):
    out = tmp_path / "step.html"
    result = done("inspect", step, "--html", out)
    assert re.fullmatch(r"note: wrote .*step\.html: 3 ops, \d+\.\d\d kB\n", result.stderr)
    (found,) = data(out)["programs"]
    assert found["facts"] == facts("inspect", step)["programs"][0]
    assert [(arg["name"], arg["kind"], arg["bytes"]) for arg in found["args"]] == [
        ("x", "inputs", 32), ("w", "inputs", 2048), ("cache", "caches", 32)
    ]  # fmt: skip
    ops = {op["names"][0]: op for op in found["ops"]}
    assert (ops["new"]["op"], ops["new"]["reads"], ops["new"]["types"]) == (
        "add",
        [2, 4],
        ["f32[8]"],
    )
    assert data(out)["locs"][ops["new"]["loc"]] == ["net.py", 10, "layers.1.add", ""]
    assert found["outputs"] == [["output0", 4], ["cache", 5], ["output2", 3]]
    assert [part["label"] for part in found["parts"]] == ["layers.0", "layers.1"]


def test_nothing_is_fetched(step: Path, tmp_path: Path):
    out = tmp_path / "step.html"
    done("inspect", step, "--html", out)
    text = out.read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert "http" not in text
    assert "GG0704" in error("inspect", step, "--html", tmp_path / "no" / "x.html")


def test_identical_layers_are_one_part(mini: Path, tmp_path: Path):
    out = tmp_path / "mini.html"
    written = facts("inspect", mini, "--html", out, "--model-explorer", tmp_path / "mini.json")
    assert [Path(item["file"]).name for item in written] == ["mini.html", "mini.json"]
    prefill, decode = data(out)["programs"]
    for found in (prefill, decode):
        (layers,) = [part for part in found["parts"] if len(part["instances"]) > 1]
        assert layers["label"] == "model.layers.0 to model.layers.1"
        one, two = layers["instances"]
        assert len(one["ops"]) == len(two["ops"])
        every = sorted(
            i for part in found["parts"] for item in part["instances"] for i in item["ops"]
        )
        assert every == list(range(len(found["ops"])))


def test_layers_that_differ_in_one_attribute_are_two():
    module = build(known_shape("llama-3.1-8b"), bf16)
    function = module.function("decode")
    layers = layers_of(function)
    assert set(identical_layers(layers).values()) == {"model.layers.0"}
    norm = next(op for op in layers["model.layers.7"] if op.name == "rms_norm")
    other = next(op for op in function.block if op.name == "dot_general")
    norm.attrs = other.attrs
    assert identical_layers(layers)["model.layers.7"] == "model.layers.7"


def test_the_graph_for_model_explorer(step: Path, tmp_path: Path):
    out = tmp_path / "step.json"
    done("inspect", step, "--model-explorer", out)
    (collection,) = json.loads(out.read_text())
    (graph,) = collection["graphs"]
    assert (collection["label"], graph["id"]) == ("step", "main")
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"]) == 3 + 3 + 3
    for node in nodes.values():
        assert {"id", "label", "namespace", "attrs", "incomingEdges", "outputsMetadata"} == set(
            node
        )
        for edge in node["incomingEdges"]:
            source = nodes[edge["sourceNodeId"]]
            known = {item["id"] for item in source["outputsMetadata"]}
            assert edge["sourceNodeOutputId"] in known
    (add,) = [node for node in nodes.values() if node["label"] == "add"]
    assert add["namespace"] == "layers/1/add"
    assert {"key": "line", "value": "net.py:10"} in add["attrs"]
    sources = [nodes[edge["sourceNodeId"]]["label"] for edge in add["incomingEdges"]]
    assert sources == ["cache", "custom_call"]


def test_foreign_dumps_have_a_page_too(tmp_path: Path):
    path, out = tmp_path / "o.hlo", tmp_path / "o.html"
    path.write_text(OTHERS)
    done("inspect", path, "--html", out)
    ops = [op["op"] for op in data(out)["programs"][0]["ops"]]
    assert {"rng", "opt-barrier", "custom_call"} <= set(ops)


# ---- in a browser --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(mini: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if program() is None:
        pytest.skip("no Chromium is installed (Debian: apt-get install chromium)")
    folder = tmp_path_factory.mktemp("browser")
    done("lower", mini, "--program", "decode", "--to", "hlo", "-o", folder / "decode.pb")
    done("inspect", folder / "decode.pb", "--html", folder / "d.html")
    found = Page(folder / "d.html", folder / "profile")
    yield found
    found.close()


def snap(page: Page, name: str) -> None:
    """Keep a picture, where GRAPHGEN_PICTURES names a folder."""
    if folder := os.environ.get("GRAPHGEN_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def test_the_first_page_and_a_layer(page: Page):
    text = page.run("document.querySelector('#content').innerText")
    for word in ("Arguments", "caches", "Largest tensors", "takes over", "argument "):
        assert word in text
    snap(page, "overview")
    page.run("document.querySelectorAll('#parts button')[2].click()")
    assert page.run("document.querySelector('#content h2').innerText") == "model.layers.0"
    assert page.run("document.querySelectorAll('.row').length") > 50
    snap(page, "layer")


def test_a_value_leads_to_what_it_reads_and_who_reads_it(page: Page):
    page.run("document.querySelectorAll('#parts button')[2].click()")
    page.run("document.querySelectorAll('.row')[3].click()")
    detail = page.run("document.querySelector('#detail').innerText")
    for word in ("type", "line", "graphgen/nn/linear.py:", "reads (", "read by ("):
        assert word in detail
    before = page.run("document.querySelector('#detail h2').innerText")
    page.run(
        "[...document.querySelectorAll('#detail table:last-of-type button.link')].pop().click()"
    )
    assert page.run("document.querySelector('#detail h2').innerText") != before
    assert page.run("document.querySelectorAll('.row.on').length") == 1
    snap(page, "value")


def test_search_finds_by_line_and_folds_layers(page: Page):
    page.run("find('dot_general layers.py')")
    count = int(page.run("document.querySelector('#count').innerText").split()[0])
    rows = page.run("document.querySelectorAll('.row').length")
    assert 0 < rows <= count
    page.run("find('nowhere to be found')")
    assert page.run("document.querySelector('#count').innerText") == "0 found"
    snap(page, "search")


def test_the_page_has_no_complaint_and_asks_for_nothing(page: Page):
    assert page.complaints == []
    assert len(page.requests) == 1
