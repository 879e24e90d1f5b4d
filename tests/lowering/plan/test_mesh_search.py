"""The search of a mesh tries every one, weighs prefill and steps, and leaves out what cannot be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphgen.cli.main import app
from graphgen.config.compile_config import CompileConfig
from graphgen.config.rank_config import AUTO
from graphgen.errors import GraphgenError
from graphgen.lowering.plan.bucket_seconds import program_bounds
from graphgen.lowering.plan.mesh_search import (
    PLAIN,
    SAME,
    MeshOption,
    cheapest,
    chosen_mesh,
    generated_tokens,
    meshes,
    search_meshes,
)
from graphgen.lowering.plan.short_bounds import short_bounds
from graphgen.models import known_shape
from graphgen.passes.core import Pass
from graphgen.passes.pipelines import default
from graphgen.targets import accelerator

# One layer, whose 4 heads share 1 key-value head.
SMALL = {
    **known_shape("smollm2-135m"),
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "vocab_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
DEMAND = CompileConfig(dtype="bf16", tp=2, context=(64,), tokens=(256,), slots=256)
LONG = 1 << 18


def test_every_mesh_of_the_ranks_is_named_once():
    names = [MeshOption(item).text for item in meshes(replace(DEMAND, tp=6, batch=(2,)))]
    assert len(names) == len({*names})
    # Flash decoding: by itself, and over 2, 3 and 6. Prompts over 2, 3 and 6 in three forms, with
    # the MLP and without; rows over 2, alone and with prompts over 2 and 6.
    assert len(names) == 1 + 4 + 3 * 6 + 1 + 2 * 6
    assert {"-", "flash_decoding=true,flash_decoding_ranks=3"} <= {*names}
    assert "attention_dp_degree=2,cp_degree=6,cp_form=ring,mlp_cp_degree=6" in names
    assert [*meshes(replace(DEMAND, tp=1))] == [PLAIN]


def test_the_cheapest_that_serves_with_the_fewest_settings():
    plain = MeshOption(PLAIN, seconds=2.0)
    flash = MeshOption({"flash_decoding": True}, seconds=1.0)
    named = MeshOption({"flash_decoding": True, "flash_decoding_ranks": 2}, seconds=1.0)
    assert cheapest([plain, named, flash]) is flash
    assert flash.flags == "--flash-decoding"
    assert named.flags == "--flash-decoding --flash-decoding-ranks 2"
    assert MeshOption({"rules": ("prefill:sequence:tp",)}).flags == ""
    # What takes a ten thousandth less is not worth a setting.
    assert cheapest([plain, MeshOption({"cp_degree": 2}, seconds=1.9998)]) is plain
    assert cheapest([plain, replace(flash, refused="needs 200 GB")]) is plain
    assert cheapest([replace(plain, refused="GG0304")]) is None


def test_an_answer_fills_the_row_after_the_prompt():
    assert generated_tokens(DEMAND) == 192
    assert generated_tokens(replace(DEMAND, context=(256,))) == 128


def test_a_request_is_one_prefill_and_its_steps():
    found = search_meshes(SMALL, accelerator("trn2"), DEMAND, 100)
    able = [item for item in found.options if not item.refused]
    assert found.chosen in able
    assert found.chosen.seconds <= min(item.seconds for item in able) * (1 + SAME)
    assert all(item.seconds == item.prefill_s + 100 * item.step_s for item in able)
    assert {*meshes_of(found.options)} >= {MeshOption(item).text for item in meshes(DEMAND)}
    ours = replace(DEMAND, target="trn2").updated(found.chosen.changes)
    bounds = program_bounds(SMALL, accelerator("trn2"), ours, ("prefill", "decode"), 1)
    assert bounds["decode", 256].seconds == found.chosen.step_s


@pytest.mark.parametrize("changes", [{}, {"flash_decoding": True}])
def test_a_deep_model_is_bounded_by_the_layers_of_one_short_model(changes: dict[str, object]):
    deep = {**SMALL, "num_hidden_layers": 9}
    demand = replace(DEMAND, target="trn2").updated(changes)
    phases, device = ("prefill", "decode"), accelerator("trn2")
    one = short_bounds(deep, device, demand, phases, 1)
    two = program_bounds(deep, device, demand, phases, 1)
    assert one.keys() == two.keys()
    for key, bound in two.items():
        assert one[key].seconds == pytest.approx(bound.seconds, rel=1e-12)
        assert (one[key].link_bytes, one[key].core_bytes) == (bound.link_bytes, bound.core_bytes)


def test_a_mesh_that_cannot_be_the_best_is_not_compiled():
    # Its steps wait for memory: slots that ranks divide take little more than half of the time of
    # copies, and no way to read 64 tokens makes up for it.
    demand = replace(DEMAND, tokens=(LONG,), slots=LONG)
    found = search_meshes(SMALL, accelerator("trn2"), demand)
    assert found.chosen is not None
    assert found.chosen.changes == {"flash_decoding": True}
    shared = [item for item in found.options if "cp_degree" in item.changes]
    # Their steps are those of the plain mesh.
    assert all("at least, another less" in item.refused for item in shared)


def test_auto_stands_for_what_the_search_chooses():
    demand = replace(DEMAND, target="trn2", tokens=(LONG,), slots=LONG)
    assert chosen_mesh(SMALL, demand).config is demand
    made = chosen_mesh(SMALL, replace(demand, parallelism=AUTO))
    assert made.config == replace(demand, flash_decoding=True)
    assert "flash_decoding=true" in made.remark
    assert "less time a request than the plain mesh" in made.remark
    # What the configuration says of the mesh is not used: the same is chosen again.
    again = replace(made.config, parallelism=AUTO, cp_degree=2)
    assert chosen_mesh(SMALL, again).config == made.config
    alone = chosen_mesh(SMALL, replace(demand, parallelism=AUTO, tp=1))
    assert alone.config == replace(demand, tp=1)


def test_a_mesh_that_other_programs_refuse_is_not_chosen(monkeypatch: pytest.MonkeyPatch):
    demand = replace(DEMAND, target="trn2", tokens=(LONG,), slots=LONG, chunk=(64,))
    monkeypatch.setattr("graphgen.lowering.plan.mesh_search.default", _no_chunks_of_flash)
    assert not chosen_mesh(SMALL, replace(demand, parallelism=AUTO)).config.flash_decoding


def _no_chunks_of_flash(config: CompileConfig) -> list[Pass]:
    if config.flash_decoding and config.chunk:
        raise GraphgenError("GG0302", "no chunks")
    return default(config)


def test_pipelines_do_not_choose():
    with pytest.raises(GraphgenError, match="pipelines do not know"):
        default(replace(DEMAND, parallelism=AUTO))


def meshes_of(options: tuple[MeshOption, ...]) -> list[str]:
    """Their texts."""
    return [item.text for item in options]


@pytest.mark.slow
def test_what_does_not_fit_is_left_out():
    small = replace(accelerator("trn2"), hbm_bytes=1000)
    found = search_meshes(SMALL, small, DEMAND)
    assert found.chosen is None
    assert "of 0.0 GB a core" in found.options[0].refused


def test_the_command_refuses_what_the_search_chooses():
    for words, said in (
        (["--search"], "--search needs ranks"),
        (["--tp", "2", "--search", "--flash-decoding"], "--flash-decoding has no meaning with"),
        (["--tp", "2", "--search", "--rules", "aws"], "--rules aws has no meaning with --search"),
        (["--parallelism", "auto"], "--parallelism auto needs ranks"),
        (["--tp", "2", "--search", "--parallelism", "auto"], "--parallelism auto has no meaning"),
        (["--tp", "2", "--parallelism", "auto", "--cp-degree", "2"], "--cp-degree has no meaning"),
        (["--answer-tokens", "9"], "--answer-tokens has no meaning without --search"),
    ):
        shown = CliRunner().invoke(app, ["plan", "smollm2-135m", *words])
        assert shown.exit_code != 0
        assert said in shown.stderr


def test_the_command_plans_the_mesh_that_it_chooses(tmp_path: Path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SMALL))
    sizes = ["--tp", "2", "--seq", str(LONG), "--context", "64", "--parallelism", "auto", "--json"]
    shown = CliRunner().invoke(app, ["plan", str(file), *sizes])
    assert shown.exit_code == 0, shown.stderr
    assert "parallelism auto: flash_decoding=true" in shown.stderr
    facts = json.loads(shown.stdout)["chosen"]["use"]
    # Keys and values of all slots, 16 numbers each in bf16, half of them and one more on a rank.
    assert 0 <= facts["kv"] - LONG * 2 * 16 * 2 // 2 < 128


@pytest.mark.slow
def test_the_command_prints_the_table_and_the_choice(tmp_path_factory: pytest.TempPathFactory):
    file = tmp_path_factory.mktemp("small") / "config.json"
    file.write_text(json.dumps(SMALL))
    sizes = ["--tp", "2", "--seq", "256", "--context", "64", "--search"]
    shown = CliRunner().invoke(app, ["plan", str(file), *sizes])
    assert shown.exit_code == 0, shown.stderr
    assert "one prefill of 64 tokens and 192 steps" in shown.stdout
    assert shown.stdout.count("chosen") == 1
    assert "options: default{tp=2" in shown.stdout
    facts = json.loads(CliRunner().invoke(app, ["plan", str(file), *sizes, "--json"]).stdout)
    assert facts["chosen"] in facts["meshes"]
    assert facts["generated"] == 192
