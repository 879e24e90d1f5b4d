"""Pictures of ``graphgen cost``: numbers against sums, files against readers of their formats."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from graphgen.cli.main import app
from graphgen.lowering.cost.roofline import op_groups, roofline
from graphgen.targets import accelerator
from graphgen.text import parse
from tests.oracles.chromium import NO_BROWSER, Page, program

TEXT = """
module @m level=target mesh=tp:8 {
  input %x : bf16[8,1024]
  weight %w : bf16[1024,1024]
  weight %v : bf16[1024,1024]
  output %y : bf16[8,1024]
}

func @f phase=decode {
  arg %x : bf16[8,1024]
  arg %w : bf16[1024,1024]
  arg %v : bf16[1024,1024]
  %a = dot_general(%x, %w) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 \
: bf16[8,1024]  # m.py:3 layers.0.mlp
  %b = tanh(%a) : bf16[8,1024]  # m.py:4 layers.0.act
  %c = dot_general(%b, %v) lhs_contracting_dims=[1] rhs_contracting_dims=[1] dtype=bf16 \
: bf16[8,1024]  # m.py:3 layers.1.mlp
  %d = add(%c, %a) : bf16[8,1024]  # m.py:5 layers.1.add
  %e = all_reduce(%d) kind=add replica_groups=[[0,1,2,3,4,5,6,7]] : bf16[8,1024]  # m.py:6 out
  return y = %e
}
"""
EMPTY = """
module @m level=target {
  input %x : f32[2]
  output %y : f32[2]
}

func @f {
  arg %x : f32[2]
  return y = %x
}
"""
SIZE = 8 * 1024 * 2

# Texts of a drawing that cover each other.
COVERED = """(() => {
  const texts = [...document.querySelectorAll('text')].filter((one) => one.textContent.trim());
  const boxes = texts.map((one) => one.getBoundingClientRect());
  const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1
    || a.bottom <= b.top + 2 || b.bottom <= a.top + 2;
  return texts.filter((_, i) => boxes.some((b, j) => j < i && !apart(boxes[i], b)))
    .map((one) => one.textContent);
})()"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "m.gg"
    path.write_text(TEXT)
    return path


def cost(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["cost", *map(str, arguments)])


def test_equal_ops_of_all_layers_are_one_group_and_their_costs_sum_up():
    module, device = parse(TEXT), accelerator("trn1")
    function = module.function("f")
    groups = op_groups(module, function, device)
    assert {(g.op, g.scope, g.count) for g in groups} == {
        ("dot_general", "layers.*.mlp", 2),
        ("tanh", "layers.*.act", 1),
        ("add", "layers.*.add", 1),
        ("all_reduce", "out", 1),
    }
    whole = roofline(module, function, device)
    assert sum(g.cost.flops for g in groups) == whole.total.flops
    assert sum(g.cost.bytes for g in groups) == whole.total.bytes
    assert sum(g.seconds for g in groups) >= whole.seconds
    product = next(g for g in groups if g.op == "dot_general")
    assert product.intensity == pytest.approx(2 * 2 * 8 * 1024**2 / (4 * 1024**2 + SIZE))
    assert product.rate == pytest.approx(product.intensity * device.hbm_bandwidth)


def test_the_curve_is_what_the_lifetimes_sum_up_to(file: Path):
    (program,) = json.loads(cost(file, "--json").stdout)["programs"]
    live = program["live"]
    sums = [
        sum(v["bytes"] for v in live["lifetimes"] if v["first"] <= place <= v["last"])
        for place in range(live["ops"])
    ]
    assert live["bytes"] == sums == [SIZE, 2 * SIZE, 3 * SIZE, 3 * SIZE, 2 * SIZE]
    assert live["peak"] == {"bytes": 3 * SIZE, "op": 2, "alive": ["a", "b", "c"]}
    assert live["arguments"] == {"inputs": SIZE, "weights": 2 * 2 * 1024**2, "caches": 0}
    assert program["memory_bytes"] == sum(live["arguments"].values()) + 3 * SIZE


def test_an_svg_is_xml_with_titles_units_and_names(file: Path, tmp_path: Path):
    out = tmp_path / "cost.svg"
    shown = cost(file, "--target", "trn1", "--plot", out)
    assert shown.exit_code == 0, shown.output
    assert f"wrote {out}" in shown.stderr
    root = ElementTree.parse(out).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    for text in ("FLOP/s", "op, in program order", "live temporaries (kB)", "%a", "@f: at least"):
        assert any(text in item for item in texts), (text, texts)
    assert any("dot_general in *.mlp x2" in item for item in texts)
    # trn1: 95 TFLOP/s of products, 2.3 of other ops, 820 GB/s and 32 GB for two cores.
    for text in (
        "matrix unit, bf16: 95 TFLOP/s",
        "vector unit: 2.3 TFLOP/s",
        "device memory, 410 GB/s",
        "us of one run of the program",
        "3  tanh in *.act x1",
        "peak 49.15 kB at op 2: dot_general in layers.1.mlp",
        "temporaries 49.15 kB",
        "capacity 17.18 GB",
        "2.5 GB",
    ):
        assert text in [item.strip() for item in texts], text
    before = out.read_bytes()
    cost(file, "--target", "trn1", "--plot", out)
    assert out.read_bytes() == before


@pytest.mark.slow
def test_texts_of_the_svg_do_not_cover_each_other_in_a_browser(file: Path, tmp_path: Path):
    if program() is None:
        pytest.skip(NO_BROWSER)
    out, shown = tmp_path / "cost.svg", tmp_path / "cost.html"
    assert cost(file, "--plot", out).exit_code == 0
    shown.write_text(f"<body>{out.read_text()}</body>")
    page = Page(shown, tmp_path / "profile")
    try:
        assert page.run("document.querySelectorAll('svg text').length") > 30
        assert page.run(COVERED) == []
        assert page.complaints == []
    finally:
        page.close()


def test_a_png_is_decoded_and_not_blank(file: Path, tmp_path: Path):
    from matplotlib.image import imread

    out = tmp_path / "cost.png"
    assert cost(file, "--program", "f", "--plot", out).exit_code == 0
    pixels = imread(out)
    assert pixels.shape[0] > 500
    assert pixels.shape[1] > 500
    inked = (pixels[..., :3] < 0.9).any(axis=-1)
    assert 0.005 < inked.mean() < 0.6
    # Each quarter of the picture has something in it.
    for half in np.array_split(inked, 2, axis=0):
        for quarter in np.array_split(half, 2, axis=1):
            assert quarter.any()


def test_an_empty_program_has_a_picture(tmp_path: Path):
    path, out = tmp_path / "e.gg", tmp_path / "e.svg"
    path.write_text(EMPTY)
    shown = cost(path, "--plot", out)
    assert shown.exit_code == 0, shown.output
    assert ElementTree.parse(out).getroot().tag.endswith("svg")


@pytest.mark.parametrize("name", ["cost.jpg", "-", "cost"])
def test_pictures_of_other_forms_are_refused(file: Path, name: str):
    shown = cost(file, "--plot", name)
    assert shown.exit_code == 1
    assert "GG0704" in shown.stderr
    assert ".svg or .png" in shown.stderr


def test_without_matplotlib_the_message_says_how_to_get_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    shown = cost(file, "--plot", "cost.svg")
    assert shown.exit_code == 1
    assert "GG0705" in shown.stderr
    assert "pip install 'matplotlib" in shown.stderr
