"""``graphgen why``: text, JSON, what it refuses."""

from __future__ import annotations

from pathlib import Path

from tests.graphgen.cli.conftest import done, error, facts

SIZES = "default{context=[8],tokens=[8],tp=2}"


def test_from_the_line_to_the_lowered_op_and_back(mini: Path, tmp_path: Path):
    text = done("why", mini, "%5", "--program", "decode", "-p", SIZES).stdout
    assert text.startswith("@decode  %5 = dot_general(%4, %model.layers.0.self_attn.q_proj.weight)")
    assert "\n  written at graphgen/nn/linear.py:" in text
    assert "\nfuse-projections #" in text
    assert "\nlowered to, StableHLO of @decode.b1.c8:\n  line " in text
    found = facts("why", mini, "%5", "--program", "decode", "-p", SIZES)
    (now,) = found["now"]
    # What it is lowered to stands where it says, in what `lower` writes.
    done("opt", mini, "-p", SIZES, "-o", tmp_path / "out.gg")
    lowered = tmp_path / "out.mlir"
    done("lower", tmp_path / "out.gg", "--program", "decode.b1.c8", "-o", lowered)
    line = lowered.read_text().splitlines()[now["line"] - 1].strip()
    assert line.startswith(f"{now['stablehlo']} loc(")
    for place in (now["line"], line.split()[0]):
        back = facts("why", mini, place, "--lowered", "--program", "decode.b1.c8", "-p", SIZES)
        assert back["origins"] == found["origins"]
        assert [event["what"] for event in back["events"]] == [
            event["what"] for event in found["events"]
        ]


def test_what_is_not_lowered_says_so(mini: Path):
    text = done("why", mini, "%5", "--program", "decode", "-p", "canonicalize,dce").stdout
    assert text.endswith(
        "at the end, level canonical: %5; nothing is lowered before level target\n"
    )


def test_a_weight_is_prepared(mini: Path):
    name = "%model.layers.0.mlp.up_proj.weight"
    text = done("why", mini, name, "--program", "decode", "-p", SIZES).stdout
    assert f"prepared, or an argument: @weights.rank {name}" in text


def test_values_that_are_not_there(mini: Path):
    assert "no value %nope in any function" in error("why", mini, "%nope", "-p", "dce")
    assert "no function @other" in error("why", mini, "%5", "--program", "other", "-p", "dce")
    text = error("why", mini, "90000", "--lowered", "-p", SIZES)
    assert "nothing is called, or stands on, '90000' after the passes" in text
    assert "@decode.b1.c8" in text
