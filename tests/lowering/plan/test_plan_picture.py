"""Pictures of ``graphgen plan``, and the numbers they show, against sums."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from graphgen.cli.main import app


def plan(*arguments: str | Path) -> Result:
    given = ["plan", "smollm2-135m", "--target", "trn1", "--seq", "256", "--tp", "1"]
    return CliRunner().invoke(app, [*given, *map(str, arguments)])


def test_programs_and_items_sum_up_to_what_a_core_holds():
    chosen = json.loads(plan("--json").stdout)["chosen"]["use"]
    assert [program["name"] for program in chosen["programs"]] == [
        "prefill.b1.s256",
        "decode.b1.c256",
    ]
    assert max(program["activations"] for program in chosen["programs"]) == chosen["activations"]
    assert all(program["kv"] == chosen["kv"] for program in chosen["programs"])
    assert all(program["weights"] <= chosen["weights"] for program in chosen["programs"])
    for kind, key in (("weights", "weights"), ("caches", "kv")):
        assert sum(i["bytes"] for i in chosen["items"] if i["kind"] == kind) == chosen[key]
    (gate,) = [item for item in chosen["items"] if "gate" in item["name"]]
    # Gate and up projections of 30 layers, joined, of 576 to 1536 in bf16.
    assert (gate["count"], gate["bytes"]) == (30, 30 * 2 * 576 * 1536 * 2)


@pytest.mark.parametrize(
    "more",
    [[], pytest.param(["--rules", "aws"], marks=pytest.mark.slow)],
    ids=["graphgen", "aws"],
)
def test_an_svg_names_degrees_programs_and_items(tmp_path: Path, more: list[str]):
    out = tmp_path / "plan.svg"
    shown = plan("--plot", out, *more)
    assert shown.exit_code == 0, shown.output
    root = ElementTree.parse(out).getroot()
    texts = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}text")]
    for text in (
        "GB on one core",
        "decode.b1.c256",
        "memory by item",
        "a core has 17.18 GB",
        "batch 1,",
    ):
        assert any(text in item for item in texts), (text, texts)


@pytest.mark.slow
def test_a_png_is_decoded_and_not_blank(tmp_path: Path):
    from matplotlib.image import imread

    out = tmp_path / "plan.png"
    assert plan("--plot", out).exit_code == 0
    inked = (imread(out)[..., :3] < 0.9).any(axis=-1)
    assert 0.005 < inked.mean() < 0.6
