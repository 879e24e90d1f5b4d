"""graphgen grep: layers folded, exit status, hints."""

from __future__ import annotations

from pathlib import Path

from tests.graphgen.cli.conftest import done, facts, graphgen
from tests.graphgen.cli.inspect.test_inspect_cmd import step

__all__ = ["step"]


def test_layers_are_folded_and_unfolded(mini: Path):
    pattern = "dot_general(_, weight){scope=*.mlp.*}"
    folded = done("grep", mini, pattern, "--program", "decode").stdout.splitlines()
    assert folded[0].split() == ["times", "program", "layers", "first", "match", "at"]
    assert [line.split()[:3] for line in folded[1:4]] == [
        ["2", "@decode", "model.layers.{0,1}"]
    ] * 3
    assert len([line for line in folded if line]) == 4
    whole = done("grep", mini, pattern, "--program", "decode", "--all").stdout
    assert len([line for line in whole.splitlines() if line]) == 7
    assert "graphgen/nn/linear.py:" in whole


def test_a_chain_with_lines(step: Path):
    text = done("grep", step, "custom_call -> add -> return").stdout
    assert (
        "%n = custom_call(%x, %cache) : f32[8] -> %new = add(%cache, %n) : f32[8] -> return cache"
        in text
    )
    assert text.rstrip().endswith("net.py:9, net.py:10")
    (found,) = facts("grep", step, "custom_call -> add -> return")
    assert (found["program"], found["layer"], found["output"]) == ("main", "layers.1", "cache")
    assert [op["where"] for op in found["ops"]] == ["net.py:9", "net.py:10"]


def test_no_match_and_why(step: Path):
    result = graphgen("grep", step, "dot_genral(_, param) -> reshape")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "note: no match\nnote: no op is called dot_genral; there is dot_general" in result.stderr
    assert graphgen("grep", step, "sort", "--json").stdout == "[]\n"


def test_a_mistake_has_exit_status_2(step: Path):
    result = graphgen("grep", step, "dot(")
    assert result.exit_code == 2
    assert "error[GG0705]: pattern:" in result.stderr
