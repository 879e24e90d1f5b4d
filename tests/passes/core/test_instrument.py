"""Looking on: diffs with names that stay, dumps, the debug ladder, settings and fuel."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.ir import Module, Value, dtype
from graphgen.models import build, known_shape
from graphgen.passes.core import debug, parse_pipeline, run_pipeline
from graphgen.passes.core.fuel import Fuel, labels, parse_fuel
from graphgen.passes.core.settings import Debugging, Level, Verify, debugging
from graphgen.passes.inspect.debug_log import CHANGED, Dump, PrintAfter, PrintBefore, pick
from graphgen.passes.inspect.stable_names import StableNames
from graphgen.passes.inspect.text_diff import changes, texts_of, unified
from graphgen.passes.pipelines import default
from graphgen.text import parse, print_module

TEXT = """\
module @m level=logical {
  meta note = "x"
}

func @f {
  arg %x : f32[2,3]
  %0 = negate(%x) : f32[2,3]  # m.py:1 layers.0
  %1 = reshape(%0) shape=[6] : f32[6]  # m.py:2 layers.0
  %2 = reshape(%1) shape=[2,3] : f32[2,3]  # m.py:3 layers.0
  %3 = exponential(%2) : f32[2,3]  # m.py:4 layers.0
  %4 = negate(%3) : f32[2,3]  # m.py:1 layers.1
  %5 = reshape(%4) shape=[6] : f32[6]  # m.py:2 layers.1
  %6 = reshape(%5) shape=[2,3] : f32[2,3]  # m.py:3 layers.1
  %7 = exponential(%6) : f32[2,3]  # m.py:4 layers.1
  %8 = exponential(%7) : f32[2,3]  # m.py:5 top
  return y = %8
}
"""


def mini(kind: str = "bf16") -> Module:
    return build(known_shape("llama-3.1-8b"), dtype(kind), mini=True)


def shown(text: str, pipeline: str) -> str:
    """What a user sees of a pipeline."""
    out: list[str] = []
    run_pipeline(
        parse(text), parse_pipeline(pipeline), instruments=[PrintAfter(CHANGED, out.append)]
    )
    return "".join(out)


def test_a_diff_names_what_changed_and_nothing_else():
    assert (
        shown(TEXT, "canonicalize,dce,cse")
        == """\
--- interface
+++ interface after canonicalize
@@ -1,2 +1,2 @@
-module @m level=logical {
+module @m level=canonical {
 }
--- @f
+++ @f after canonicalize
@@ -2,12 +2,10 @@
   arg %x : f32[2,3]
   %0 = negate(%x) : f32[2,3]  # m.py:1 layers.0
   %1 = reshape(%0) shape=[6] : f32[6]  # m.py:2 layers.0
-  %2 = reshape(%1) shape=[2,3] : f32[2,3]  # m.py:3 layers.0
-  %3 = exponential(%2) : f32[2,3]  # m.py:4 layers.0
+  %3 = exponential(%0) : f32[2,3]  # m.py:4 layers.0
   %4 = negate(%3) : f32[2,3]  # m.py:1 layers.1
   %5 = reshape(%4) shape=[6] : f32[6]  # m.py:2 layers.1
-  %6 = reshape(%5) shape=[2,3] : f32[2,3]  # m.py:3 layers.1
-  %7 = exponential(%6) : f32[2,3]  # m.py:4 layers.1
+  %7 = exponential(%4) : f32[2,3]  # m.py:4 layers.1
   %8 = exponential(%7) : f32[2,3]  # m.py:5 top
   return y = %8
 }
--- @f
+++ @f after dce
@@ -1,10 +1,8 @@
 func @f {
   arg %x : f32[2,3]
   %0 = negate(%x) : f32[2,3]  # m.py:1 layers.0
-  %1 = reshape(%0) shape=[6] : f32[6]  # m.py:2 layers.0
   %3 = exponential(%0) : f32[2,3]  # m.py:4 layers.0
   %4 = negate(%3) : f32[2,3]  # m.py:1 layers.1
-  %5 = reshape(%4) shape=[6] : f32[6]  # m.py:2 layers.1
   %7 = exponential(%4) : f32[2,3]  # m.py:4 layers.1
   %8 = exponential(%7) : f32[2,3]  # m.py:5 top
   return y = %8
"""
    )


def test_the_same_change_in_every_layer_is_shown_once():
    module = build({**known_shape("llama-3.1-8b"), "num_hidden_layers": 7}, dtype("bf16"))
    buckets = CompileConfig(context=(8,), tokens=(8,))
    passes = default(buckets)
    at = [item.name for item in passes].index("fuse-projections")
    run_pipeline(module, passes[:at])
    names = StableNames()
    before = texts_of(module, names)
    run_pipeline(module, [passes[at]])
    after = texts_of(module, names)
    every, folded = changes(before, after, fold=False), changes(before, after)
    # The first attention, six times an MLP and the attention behind it, the last MLP; twice.
    assert len(every) == 2 * (1 + 6 + 1)
    assert len(folded) == 2 * 3
    assert sum(1 + len(hunk.again) for hunk in folded) == len(every)
    text = unified(before, after, "fuse-projections")
    assert re.search(r"^# 5 more like this: @prefill\S+ model\.layers\.1\.", text, re.MULTILINE)


def test_a_specialized_program_is_compared_with_the_one_it_was_made_from():
    module, names = mini(), StableNames()
    before = texts_of(module, names)
    run_pipeline(module, parse_pipeline("specialize{context=[8],tokens=[8,16]}"))
    after = texts_of(module, names)
    text = unified(before, after, "specialize")
    assert "--- @decode\n+++ @decode.b1.c16 after specialize\n" in text
    assert "+++ @decode after" not in text
    (old,) = [line for line in before["@decode"] if " = silu(" in line and "layers.1" in line]
    (new,) = [line for line in after["@decode.b1.c8"] if " = silu(" in line and "layers.1" in line]
    assert old.replace("B", "1") == new


def test_names_stay_unique_and_with_their_values():
    module, names = mini(), StableNames()
    seen: dict[str, dict[Value, str]] = {}
    for item in default(CompileConfig(context=(8,), tokens=(8,), tp=2)):
        run_pipeline(module, [item])
        for function in module.functions.values():
            known = names.of(function)
            assert len(set(known.values())) == len(known)
            before = seen.get(function.name, {})
            assert {known[v] for v in known if v in before} <= set(before.values())
            assert all(known[v] == before[v] for v in known if v in before)
            seen[function.name] = dict(known)


def test_printing_before_and_after():
    out: list[str] = []
    watch = [PrintBefore(2, out.append), PrintAfter("ALL", out.append)]
    module = parse(TEXT)
    run_pipeline(module, parse_pipeline("canonicalize,dce"), instruments=watch)
    heads = [text.splitlines()[0] for text in out]
    assert heads == ["# after canonicalize", "# before dce", "# after dce"]
    assert out[0].partition("\n")[2] == out[1].partition("\n")[2]
    assert out[2].partition("\n")[2] == print_module(module) + "\n"


def test_only_what_changed_is_dumped(tmp_path: Path):
    (tmp_path / "007.left-over.gg").write_text("old")
    (tmp_path / "mine.gg").write_text("mine")
    module = parse(TEXT)
    run_pipeline(module, parse_pipeline("canonicalize,cse,dce,dce"), instruments=[Dump(tmp_path)])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["000.input.gg", "001.canonicalize.gg", "003.dce.gg", "mine.gg"]
    assert (tmp_path / "000.input.gg").read_text() == TEXT
    assert (tmp_path / "003.dce.gg").read_text() == print_module(module)


def test_a_folder_that_cannot_be_written(tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(
            parse(TEXT), parse_pipeline("dce"), instruments=[Dump(tmp_path / "file" / "in")]
        )
    assert caught.value.code == "GG0704"


LADDER = {
    0: r"",
    1: r"graphgen: 1/2 canonicalize: \d+\.\d ms\ngraphgen: 2/2 dce: \d+\.\d ms\n",
    2: r"graphgen: 1/2 canonicalize: \d+\.\d ms, ops 9 -> 7, 2 rewrites\n"
    r"graphgen: 2/2 dce: \d+\.\d ms, ops 7 -> 5, 2 rewrites\n",
    3: r"graphgen: 1/2 .*\n  2 x reshape-of-reshape\ngraphgen: 2/2 .*\n  2 x erase\n",
}


@pytest.mark.parametrize("level", LADDER)
def test_the_debug_ladder(
    level: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("GRAPHGEN_DEBUG", str(level))
    run_pipeline(parse(TEXT), parse_pipeline("canonicalize,dce"))
    said = capsys.readouterr()
    assert re.fullmatch(LADDER[level], said.err), said.err
    assert said.out == ""


def test_the_upper_end_of_the_ladder(capsys: pytest.CaptureFixture[str]):
    with debug(level=4):
        run_pipeline(parse(TEXT), parse_pipeline("canonicalize,dce"))
    four = capsys.readouterr().err
    assert "\n+++ @f after canonicalize\n" in four
    assert "canonicalize #1" not in four
    with debug(level=5):
        run_pipeline(parse(TEXT), parse_pipeline("canonicalize,dce"))
    five = capsys.readouterr().err
    rewrite = (
        "  canonicalize #1: reshape-of-reshape at %reshape = reshape(%reshape) (m.py:3 layers.0)"
    )
    assert rewrite in five.splitlines()
    assert "  not identity at %reshape = reshape(%negate): the type changes" in five.splitlines()


def test_the_environment_dumps_every_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHGEN_DUMP", str(tmp_path / "dump"))
    for _ in range(2):
        run_pipeline(parse(TEXT), parse_pipeline("canonicalize,dce"))
    runs = sorted((tmp_path / "dump").iterdir())
    assert len(runs) == 2
    wanted = ["000.input.gg", "001.canonicalize.gg", "002.dce.gg"]
    assert [sorted(path.name for path in run.iterdir()) for run in runs] == [wanted, wanted]


def test_settings_nest_and_end():
    with debug(level=2, verify=0):
        with debug(fuel=3):
            assert debugging() == Debugging(Level.COUNTS, "", Verify.NOTHING, Fuel(3), "off")
        assert debugging().fuel == Fuel()
    assert debugging().level is Level.NOTHING


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("GRAPHGEN_DEBUG", "6", "GRAPHGEN_DEBUG=6 is not an integer from 0 to 5"),
        ("GRAPHGEN_DEBUG", "much", "GRAPHGEN_DEBUG=much is not an integer from 0 to 5"),
        ("GRAPHGEN_VERIFY", "-1", "GRAPHGEN_VERIFY=-1 is not an integer from 0 to 3"),
        ("GRAPHGEN_FUEL", "cse", "GRAPHGEN_FUEL=cse is not an amount of fuel"),
        ("GRAPHGEN_FUEL", "1,cse=2", "GRAPHGEN_FUEL=1,cse=2 is not an amount of fuel"),
        ("GRAPHGEN_FUEL", "csee=2", "fuel for 'csee'"),
    ],
)
def test_a_variable_that_makes_no_sense(
    variable: str, value: str, message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(parse(TEXT), parse_pipeline("dce"))
    assert (caught.value.code, caught.value.what) == ("GG0705", message)


# ---- fuel of a pipeline --------------------------------------------------------------------------


def test_passes_of_one_name_have_labels():
    passes = parse_pipeline("cse,dce,cse,cse")
    assert labels(passes) == ["cse", "dce", "cse#2", "cse#3"]
    assert pick(passes, "cse#2", "--start-at") == 2
    with pytest.raises(GraphgenError) as caught:
        pick(passes, "dce#2", "--start-at")
    assert caught.value.help == "the pipeline has cse, dce, cse#2, cse#3"


def test_fuel_is_read():
    assert parse_fuel("", "fuel") == Fuel()
    assert parse_fuel("17", "fuel") == Fuel(17)
    assert parse_fuel("cse=3, cse#2=0", "fuel") == Fuel(None, {"cse": 3, "cse#2": 0})


@pytest.mark.parametrize("total", range(5))
def test_the_fuel_of_a_pipeline_ends_it(total: int):
    passes = parse_pipeline("canonicalize,dce")
    reports = run_pipeline(parse(TEXT), passes, fuel=Fuel(total))
    assert [r.applications for r in reports] == [min(total, 2), max(total - 2, 0)][: len(reports)]
    assert len(reports) == (1 if total <= 2 else 2)
    assert reports[-1].stopped
    assert sum(report.applications for report in reports) == total


def test_the_fuel_of_a_pass_lets_the_others_run():
    module = mini()
    passes = default(CompileConfig(context=(8,), tokens=(8,)))
    full = run_pipeline(mini(), passes)
    reports = run_pipeline(module, passes, fuel=Fuel(None, {"fuse-projections": 3, "cse#2": 4}))
    made = dict(zip(labels(passes), reports, strict=True))
    assert (made["fuse-projections"].applications, made["cse#2"].applications) == (3, 4)
    assert [r.stopped for r in reports].count(True) == 2
    assert made["legalize"].applications > full[labels(passes).index("legalize")].applications
    assert module.level == "target"


def test_a_pass_that_was_stopped_may_be_needed_by_a_later_one():
    passes = default(CompileConfig(context=(8,), tokens=(8,)))
    with pytest.raises(GraphgenError) as caught:
        run_pipeline(mini(), passes, fuel=Fuel(None, {"specialize": 1}))
    assert caught.value.what == (
        "absorb-latent-projections needs 'specialized': every size is a number"
    )
    with debug(fuel="legalize=2"):
        module = mini()
        run_pipeline(module, passes)
        assert module.level == "canonical"
