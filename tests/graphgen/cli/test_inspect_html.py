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
from graphgen.build import Builder
from graphgen.ir import Function, tensor
from graphgen.ir.dtype import bf16, f32
from graphgen.models import build, known_shape
from graphgen.report.dump_data import op_chunks, program_index
from tests.graphgen.cli.conftest import done, error, facts
from tests.graphgen.cli.test_inspect_cmd import step
from tests.lowering.hlo.test_unmodelled import OTHERS
from tests.oracles.chromium import NO_BROWSER, Page, program
from tests.oracles.html_data import blocks, head, own_text

__all__ = ["step"]


def test_every_value_of_the_page_is_one_of_the_program(step: Path, tmp_path: Path):
    out = tmp_path / "step.html"
    result = done("inspect", step, "--html", out)
    assert re.fullmatch(r"note: wrote .*step\.html: 3 ops, \d+\.\d\d kB\n", result.stderr)
    (found,) = head(out)["programs"]
    assert found["facts"] == facts("inspect", step)["programs"][0]
    assert [(name, kind, size) for name, _, size, kind, *_ in found["args"]] == [
        ("x", "inputs", 32), ("w", "inputs", 2048), ("cache", "caches", 32)
    ]  # fmt: skip
    packed = blocks(out)
    rows = {row[1][0][0]: row for row in packed["ops-0-0"]["ops"]}
    opcode, results, _, reads, place, _ = rows["new"]
    assert (opcode, reads, results[0][1]) == ("add", [2, 4], "f32[8]")
    assert packed["ops-0-0"]["places"][place] == ["net.py", 10, "layers.1.add", ""]
    names = packed["names-0"]
    outputs = [[name, value] for name, value, _ in found["outputs"]]
    assert outputs == [["output0", names[1]], ["cache", "new"], ["output2", names[0]]]
    assert [label for label, *_ in found["parts"]] == ["layers.0", "layers.1"]


def test_nothing_is_fetched(step: Path, tmp_path: Path):
    out = tmp_path / "step.html"
    done("inspect", step, "--html", out)
    text = own_text(out)
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert "http" not in text
    assert "Permission is hereby granted" in text
    assert "GG0704" in error("inspect", step, "--html", tmp_path / "no" / "x.html")


def test_identical_layers_are_one_part(mini: Path, tmp_path: Path):
    out = tmp_path / "mini.html"
    written = facts("inspect", mini, "--html", out, "--model-explorer", tmp_path / "mini.json")
    assert [Path(item["file"]).name for item in written] == ["mini.html", "mini.json"]
    packed = blocks(out)
    for number, found in enumerate(head(out)["programs"]):
        (layers,) = [part for part in found["parts"] if part[1] > 1]
        assert layers[0] == "model.layers.0 to model.layers.1"
        parts = packed[f"parts-{number}"]
        (instances,) = [part for part in parts if len(part) > 1]
        assert [sum(runs[1::2]) for _, runs in instances] == [layers[2], layers[2]]
        runs = [runs for part in parts for _, runs in part]
        every = [
            op
            for run in runs
            for first, count in zip(run[::2], run[1::2], strict=True)
            for op in range(first, first + count)
        ]
        assert sorted(every) == list(range(found["count"]))


def test_a_chunk_names_what_is_outside_of_it():
    b = Builder(Function("main"))
    value = b.function.block.add_arg(tensor(f32, (4,)), "x")
    made = [value := b.op("negate", value) for _ in range(5)]
    b.function.outputs = [("out", made[-1])]
    index = program_index(b.function)
    chunks: list[Any] = list(op_chunks(b.function, index, {made[1]: "{tp}"}, size=2))
    assert [(chunk["first"], chunk["start"], len(chunk["ops"])) for chunk in chunks] == [
        (0, 1, 2), (2, 3, 2), (4, 5, 1)
    ]  # fmt: skip
    name = index.names[made[1]]
    assert chunks[1]["values"] == {"2": [name, "f32[4]", 1, "negate", "{tp}"]}
    assert chunks[0]["readers"] == {"2": [index.names[made[2]], "negate"]}
    assert chunks[0]["ops"][1][1] == [[name, "f32[4]", 16, [2], 1, "{tp}"]]


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
    ops = [row[0] for row in blocks(out)["ops-0-0"]["ops"]]
    assert {"rng", "opt-barrier", "custom_call"} <= set(ops)


# ---- in a browser --------------------------------------------------------------------------------


NODES = "document.querySelectorAll('.node').length"
TITLE = "document.querySelector('#content h2').innerText"
DETAIL = "document.querySelector('#detail').innerText"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if program() is None:
        pytest.skip(NO_BROWSER)
    folder = tmp_path_factory.mktemp("browser")
    built = ("--mini", "--tp", 2, "--phase", "decode", "-o", folder / "mini.gg")
    done("build", "llama-3.1-8b", *built)
    done("lower", folder / "mini.gg", "--to", "hlo", "-o", folder / "decode.pb")
    done("inspect", folder / "decode.pb", "--html", folder / "d.html")
    found = Page(folder / "d.html", folder / "profile")
    yield found
    found.close()


@pytest.fixture
def page(browser: Page) -> Page:
    """The page as it opens: groups that another test has unfolded are folded again."""
    browser.reload()
    return browser


def snap(page: Page, name: str) -> None:
    """Keep a picture, where GRAPHGEN_PICTURES names a folder."""
    if folder := os.environ.get("GRAPHGEN_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def test_the_first_page(page: Page):
    page.go("")
    text = page.run("document.querySelector('#content').innerText")
    for word in ("Arguments", "caches", "Largest tensors", "takes over", "argument "):
        assert word in text
    snap(page, "overview")


def test_a_layer_is_drawn_as_a_graph(page: Page):
    page.go("")
    page.run("document.querySelectorAll('#parts a')[3].click()")
    page.settle()
    assert page.run(TITLE) == "model.layers.0"
    drawn = page.run(NODES)
    assert drawn > 20
    labels = page.run("[...document.querySelectorAll('.labels text')].map(t => t.textContent)")
    assert {"bf16[1,1,64]", "f32[1,1]"} <= set(labels)
    assert page.run("document.querySelectorAll('.node.group').length") > 0
    snap(page, "layer")
    page.run("document.querySelector('.node.group').dispatchEvent(new Event('click'))")
    assert page.run(NODES) > drawn
    page.run("[...document.querySelectorAll('.head button')][1].click()")
    assert page.run(NODES) < drawn


def test_nodes_and_labels_do_not_cover_each_other(page: Page):
    page.go("layer=model.layers.0")
    page.run("[...document.querySelectorAll('.head button')][0].click()")
    covered = page.run(
        """(() => {
          const boxes = [...document.querySelectorAll('.node .shape, .labels rect')]
            .map((one) => one.getBoundingClientRect());
          const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1
            || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
          return boxes.filter((a, i) => boxes.some((b, j) => j < i && !apart(a, b))).length;
        })()"""
    )
    assert covered == 0
    snap(page, "unfolded")


def test_a_click_shows_what_an_op_is(page: Page):
    page.go("layer=model.layers.0")
    page.run("document.querySelector('.node.op:not(.plain)').dispatchEvent(new Event('click'))")
    page.settle()
    text = page.run(DETAIL)
    for word in ("type", "line", "graphgen/nn/", "reads (", "read by ("):
        assert word in text
    assert page.run("document.querySelectorAll('.node.on').length") == 1
    before = page.run("document.querySelector('#detail h2').innerText")
    assert f"op={before[1:]}" in page.run("location.hash")
    page.run("[...document.querySelectorAll('#detail table:last-of-type a.link')].pop().click()")
    page.settle()
    assert page.run("document.querySelector('#detail h2').innerText") != before
    snap(page, "value")


def test_a_deep_link_opens_its_op_where_it_is(page: Page):
    name = page.run(
        "programs[0].read(0).then(({ops}) => ops.find((op) => isCollective(op) && op.place[2]"
        ".startsWith('model.layers.1')).results[0].name)"
    )
    page.go(f"op=%{name}")
    assert page.run(TITLE) == "model.layers.1"
    assert page.run("document.querySelector('#detail h2').innerText") == f"%{name}"
    assert page.run("document.querySelector('.node.on').classList.contains('collective')")
    # On the mesh: both ranks in one group.
    assert page.run("document.querySelectorAll('#detail .mesh .rank').length") == 2
    assert "1 group of 2, on 2 ranks" in page.run(DETAIL)
    snap(page, "collective")
    page.go(f"op={name}&view=list")
    assert page.run("document.querySelectorAll('.row.on').length") == 1
    page.go("op=model.layers.0.self_attn.k_cache")
    assert "caches" in page.run(DETAIL)
    page.go("op=no.such.op")
    assert page.run(TITLE) == "the page has no op %no.such.op"


def test_the_curve_of_live_memory_says_what_is_alive_anywhere(page: Page):
    page.go("view=memory")
    peak = page.run("programs[0].facts.peak_bytes")
    held = page.run("programs[0].block('live-0').then((live) => Math.max(...live.bytes))")
    assert peak == held
    assert "the peak" in page.run("document.querySelector('#alive h3').innerText")
    rows = "[...document.querySelectorAll('#alive tbody tr')].map((row) => row.innerText)"
    assert len(page.run(rows)) > 3
    snap(page, "memory")
    page.run(
        "document.querySelector('.curve').dispatchEvent(new MouseEvent('click', {clientX: 700}))"
    )
    page.settle()
    assert "at=" in page.run("location.hash")
    place = int(page.run("location.hash").rpartition("=")[2])
    assert page.run("document.querySelector('#alive h3').innerText").startswith(
        f"Alive at op {place}:"
    )
    # Every value in the table was made before, and is read later or then.
    for row in page.run(rows):
        made, until = re.findall(r"op (\d+)", row + " op 99999")[:2]
        assert int(made) <= place <= int(until)
    page.run("document.querySelector('#alive a.link').click()")
    page.settle()
    assert page.run("document.querySelectorAll('.node.on').length") == 1


def test_search_finds_by_line_and_folds_layers(page: Page):
    page.go("search=all_reduce linear.py")
    count = int(page.run("document.querySelector('#count').innerText").split()[0])
    rows = page.run("document.querySelectorAll('.row').length")
    assert 0 < rows < count
    page.go("search=nowhere to be found")
    assert page.run("document.querySelector('#count').innerText") == "0 found"
    snap(page, "search")


def test_the_page_is_dark_where_the_screen_is(page: Page):
    paper = "getComputedStyle(document.body).backgroundColor"
    page.go("layer=model.layers.0")
    light = page.run(paper)
    page.dark()
    assert page.run(paper) != light
    snap(page, "dark")


def test_the_page_has_no_complaint_and_asks_for_nothing(page: Page):
    assert page.complaints == []
    assert len(page.requests) == 1


# A loop, shardings, and groups over two axes: a program before the partitioner, one after it.
FOREIGN = """HloModule loop, num_partitions=4
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
body {
  s = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[8,8] all-reduce(x), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=sum, channel_id=1,
    use_global_device_ids=true
  z = f32[8,8] collective-permute(y), source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, channel_id=2
  ROOT t = (s32[], f32[8,8]) tuple(j, z)
}
condition {
  s = (s32[], f32[8,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  a = f32[8,8] parameter(0), sharding={devices=[2,1,2]<=[4] last_tile_dim_replicate}
  zero = s32[] constant(0)
  t = (s32[], f32[8,8]) tuple(zero, a)
  w = (s32[], f32[8,8]) while(t), condition=condition, body=body
  g = f32[8,8] get-tuple-element(w), index=1
  ROOT n = f32[8,8] negate(g), sharding={replicated}
}
"""


def test_loops_and_shardings_of_a_foreign_module(tmp_path: Path):
    path, out = tmp_path / "loop.hlo", tmp_path / "loop.html"
    path.write_text(FOREIGN)
    done("inspect", path, "--html", out)
    found = head(out)
    names = [program["facts"]["name"] for program in found["programs"]]
    assert names[0] == "main"
    assert len(names) == 3
    assert [program["caller"] for program in found["programs"]] == ["", "main", "main"]
    assert found["module"]["partitioning"]["partitions"] == 4
    if program() is None:
        pytest.skip(NO_BROWSER)
    page = Page(out, tmp_path / "profile", "#op=n.1")
    try:
        page.settle()
        badges = page.run("[...document.querySelectorAll('.badge text')].map(t => t.textContent)")
        assert "{replicated}" in badges
        assert any(badge.startswith("{devices=[2,1,2]") for badge in badges)
        page.go("op=y")
        assert page.run(TITLE) == "outside of layers, 1"
        # The whole drawing is in sight beside the detail.
        rights = "[...document.querySelectorAll('.node')].map(n => n.getBoundingClientRect().right)"
        assert max(page.run(rights)) < page.run("detail.getBoundingClientRect().left")
        tones = page.run("[...document.querySelectorAll('#detail .rank')].map(r => r.style.fill)")
        assert tones[0] == tones[2] != tones[1] == tones[3]
        snap(page, "groups")
        page.go("op=z")
        assert page.run("document.querySelectorAll('#detail .transfer').length") == 4
        assert page.complaints == []
        snap(page, "permute")
    finally:
        page.close()
