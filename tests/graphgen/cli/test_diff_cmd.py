"""graphgen diff: one screen, exit status, any two forms."""

from __future__ import annotations

import json
import re
from pathlib import Path

from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from tests.graphgen.cli.conftest import done, graphgen
from tests.graphgen.cli.test_inspect_cmd import CALLS


def lowered(path: Path, folder: Path, to: str, name: str) -> Path:
    out = folder / name
    done("lower", path, "--program", "decode", "--to", to, "-o", out)
    return out


def test_the_same_in_three_forms(mini: Path, tmp_path: Path):
    proto = lowered(mini, tmp_path, "hlo", "a.pb")
    for to in ("hlo-text", "stablehlo"):
        other = lowered(mini, tmp_path, to, f"b.{to}")
        text = done("diff", proto, other).stdout
        assert re.match(r"equal: @decode\S* and @\S+, \d+ ops, names and places aside\n$", text)


def test_a_difference(tmp_path: Path):
    one, other = tmp_path / "a.pb", tmp_path / "b.hlo"
    one.write_bytes(parse_hlo_text(CALLS))
    other.write_text(
        CALLS.replace("add(%cache, %n)", "multiply(%cache, %n)").replace("net.py", "new.py")
    )
    result = graphgen("diff", one, other)
    assert result.exit_code == 1
    assert result.stdout == (
        "A @main: 3 ops    B @main: 3 ops, 2 of them equal\n"
        "\n"
        "first difference: add / multiply\n"
        "  A %new = add(%cache, %n) : f32[8]  # net.py:10 layers.1.add\n"
        "  B %new = multiply(%cache, %n) : f32[8]  # new.py:10 layers.1.add\n"
        "\n"
        "times  layers    A / B           A at       B at\n"
        "1      layers.1  add / multiply  net.py:10  new.py:10\n"
    )


def test_identical_layers_once(mini: Path, tmp_path: Path):
    other = tmp_path / "other.gg"
    other.write_text(mini.read_text().replace("silu(", "tanh("))
    result = graphgen("diff", mini, other, "--program", "decode", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert not found["equal"]
    (change,) = found["programs"][0]["changes"]
    assert (change["what"], change["times"]) == ("silu / tanh", 2)
    assert change["layers"] == ["model.layers.0", "model.layers.1"]
    text = graphgen("diff", mini, other).stdout
    assert text.count("first difference: silu / tanh") == 2  # prefill, decode
    assert "model.layers.{0,1}" in text


def test_interface_changes_alike_are_one_line(mini: Path, tmp_path: Path):
    other = tmp_path / "bf16.gg"
    done("build", "llama-3.1-8b", "--mini", "--dtype", "bf16", "-o", other)
    folded = graphgen("diff", mini, other, "--program", "decode").stdout
    whole = graphgen("diff", mini, other, "--program", "decode", "--all").stdout
    assert re.search(r"layers\.0\.input_layernorm.*\(and 1 like it\)", folded)
    assert "like it" not in whole
    assert len(whole.splitlines()) > len(folded.splitlines())


def test_programs_of_one_module_only(mini: Path, tmp_path: Path):
    other = tmp_path / "decode.gg"
    done("build", "llama-3.1-8b", "--mini", "--dtype", "f32", "--phase", "decode", "-o", other)
    result = graphgen("diff", mini, other)
    assert result.exit_code == 1
    assert result.stdout.startswith("program @prefill is in one of them only\nequal: @decode")


def test_a_mistake_has_exit_status_2(mini: Path, tmp_path: Path):
    result = graphgen("diff", mini, tmp_path / "none.gg")
    assert result.exit_code == 2
    assert "error[GG0705]" in result.stderr
