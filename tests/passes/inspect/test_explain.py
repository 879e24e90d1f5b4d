"""explain: the reason that got furthest, the value it was found at, the pass that touched it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.cli.main import app
from graphgen.errors import GraphgenError
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.inspect.explain import ExplainQuery, Explanation, explain
from graphgen.passes.pipelines import parse
from graphgen.text import print_module

FUSE = "fuse-projections"


def of(place: ExplainQuery, pass_name: str = FUSE, pipeline: str = "default") -> Explanation:
    module = build(known_shape("smollm2-135m"), f32, mini=True)
    return explain(module, parse(pipeline), pass_name, place)


def test_a_scope_where_it_fired():
    found = of(ExplainQuery(scope="model.layers.0.mlp", function="decode.b1.c128"))
    assert [item.rule for item in found.applications] == ["fuse-siblings"] * 2
    assert {item.loc.scope for item in found.applications} == {
        "model.layers.0.mlp.gate_proj",
        "model.layers.0.mlp.up_proj",
    }


def test_a_scope_where_it_did_not():
    found = of(ExplainQuery(scope="model.layers.0.self_attn.o_proj"))
    assert found.applications == ()
    (reason,) = found.reasons
    assert reason.reason.startswith("1 product of this value with a weight")
    assert (reason.at, reason.touched) == ("%reshape = reshape(%attention)", "specialize")
    # Once in each program.
    assert reason.count == 2


def test_what_got_furthest_comes_first():
    reasons = of(ExplainQuery()).reasons
    by_rule: dict[str, list[str]] = {}
    for reason in reasons:
        by_rule.setdefault(reason.rule, []).append(reason.reason)
    assert by_rule["fuse-siblings"][0].startswith("1 product of this value with a weight")
    assert len(by_rule["fuse-siblings"]) > 1


def test_a_pass_that_is_not_in_the_pipeline():
    with pytest.raises(GraphgenError, match="the pipeline has no pass 'shard'") as caught:
        of(ExplainQuery(), "shard")
    assert "it has canonicalize" in caught.value.help


def test_the_command(tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(print_module(build(known_shape("smollm2-135m"), f32, mini=True)))
    args = ["explain", str(file), "-p", "default", "--pass", FUSE]
    shown = CliRunner().invoke(app, [*args, "--scope", "model.layers.1.self_attn.o_proj"])
    assert shown.exit_code == 0
    assert "not fuse-siblings: 1 product of this value with a weight" in shown.stdout
    assert "last touched by specialize" in shown.stdout
    facts = json.loads(CliRunner().invoke(app, [*args, "--rule", "fuse-siblings", "--json"]).stdout)
    assert {item["rule"] for item in facts["applications"]} == {"fuse-siblings"}
    nothing = CliRunner().invoke(app, [*args, "--at", "%rms_norm"])
    assert (nothing.exit_code, FUSE in nothing.stdout) == (0, True)


@pytest.mark.parametrize(
    ("option", "name", "near"),
    [
        ("--at", "%dot_genral", "dot_general"),
        ("--scope", "model.layer.1", "model.layers.1"),
        ("--rule", "fuse-sibling", "fuse-siblings"),
        ("--program", "decod", "decode"),
        ("--pass", "fuse-projection", "fuse-projections"),
    ],
)
def test_a_misspelled_name_is_refused(option: str, name: str, near: str, tmp_path: Path):
    file = tmp_path / "m.gg"
    file.write_text(print_module(build(known_shape("smollm2-135m"), f32, mini=True)))
    args = ["explain", str(file), "-p", "default", "--pass", FUSE, option, name]
    shown = CliRunner().invoke(app, args)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"'{name.removeprefix('%')}'" in shown.stderr
    assert re.search(rf"help: did you mean .*{re.escape(near)}", shown.stderr), shown.stderr
