"""``graphgen trace``: what is in the page, and how it behaves in a browser."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphgen.ir.dtype import bf16
from graphgen.models import build, known_shape
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.journal import Journal
from graphgen.passes.inspect.recording import record
from graphgen.passes.inspect.report import fold, report
from graphgen.passes.pipelines import parse
from graphgen.report import trace_page
from graphgen.text import print_module
from tests.graphgen.cli.conftest import done, error, facts, graphgen
from tests.oracles.chromium import NO_BROWSER, Page, program

PIPELINE = "default{context=[8],tokens=[8],tp=2}"


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("trace") / "mini.gg"
    done("build", "llama-3.1-8b", "--mini", "--dtype", "f32", "-o", path)
    return facts("trace", path, "-p", PIPELINE)


def test_every_rewrite_is_in_it(told: Any, mini: Path):
    module = build(known_shape("llama-3.1-8b"), bf16, mini=True)
    journal = Journal()
    reports = run_pipeline(module, parse(PIPELINE), journal=journal)
    assert [stage["name"] for stage in told["stages"]] == [item.name for item in reports]
    for stage in told["stages"]:
        # Passes that count without a journal entry, as shard does, tell no rewrites.
        numbers = [place[0] for item in stage["rewrites"] for place in item["places"]]
        if numbers:
            assert sorted(numbers) == list(range(1, stage["applications"] + 1))
        assert len(stage["cost"]) == 2
    fused = next(stage for stage in told["stages"] if stage["label"] == "fuse-projections")
    item, other, *_ = [i for i in fused["rewrites"] if i["function"].startswith("decode")]
    assert item["rule"] == "fuse-siblings"
    file, line = item["source"].split(":")
    assert file == "passes/canonical/fuse_projections.py"
    assert "@rule" in Path(file).read_text().splitlines()[int(line) - 1]
    assert any(" = dot_general(" in text for text in item["before"])
    assert any(" = concatenate(" in text for text in item["after"])
    scopes = [f"model.layers.{n}.self_attn.k_proj" for n in (0, 1)]
    assert [scope for _, scope in other["places"]] == scopes
    assert fused["misses"]


def test_costs_and_collectives_come_with_the_passes(told: Any):
    stages = {stage["label"]: stage["cost"] for stage in told["stages"]}
    assert "B" in stages["canonicalize"][0]["flops"]
    assert isinstance(stages["specialize"][0]["flops"], int)
    assert [cost["collectives"] for cost in stages["heads"]] == [0, 0]
    assert all(cost["collectives"] > 0 and cost["sent"] > 0 for cost in stages["partition"])


def test_provenance_goes_both_ways(told: Any):
    sources = {op["source"] for op in told["ops"]}
    assert any(source.startswith("graphgen/nn/attention.py:") for source in sources)
    known = [op for op in told["lowered"] if op["from"] and op["line"]]
    assert len(known) > 0.9 * len([op for op in told["lowered"] if op["line"]])
    reached = {origin for op in known for origin in op["from"]}
    assert len(reached) > 0.7 * len(told["ops"])
    assert all(op["text"].count("stablehlo.") >= 1 for op in known)


def test_identical_layers_are_told_once():
    module = build(known_shape("llama-3.1-8b"), bf16)
    recording = record(module, parse("canonicalize,specialize"))
    folding = fold(recording)
    assert set(folding.shown.values()) == {"model.layers.0"}
    data = report(recording, {})
    assert len(data["ops"]) < 200  # pyright: ignore[reportArgumentType]
    assert len(trace_page("t", data)) < 1_000_000


def test_data_cannot_end_the_script():
    page = trace_page("<b>", {"text": "</script><!-- {{title}}"})
    assert "<title>&lt;b&gt;</title>" in page
    assert page.count("</script>") == 2
    found = re.search(r'id="data">(.*?)</script>', page)
    assert found is not None
    assert json.loads(found[1]) == {"text": "</script><!-- {{title}}"}


def test_nothing_is_fetched_and_nothing_else_is_written(mini: Path, tmp_path: Path):
    result = done("trace", mini, "-p", PIPELINE, "-o", tmp_path / "t.html")
    assert re.search(r"note: wrote .*t\.html: \d+ passes, \d+ rewrites, 0\.\d MB\n", result.stderr)
    text = (tmp_path / "t.html").read_text()
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert "http" not in text.replace("http-equiv", "")
    assert [path.name for path in tmp_path.iterdir()] == ["t.html"]
    assert "GG0704" in error("trace", mini, "-p", "dce", "-o", tmp_path / "no" / "t.html")


# ---- in a browser --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if program() is None:
        pytest.skip(NO_BROWSER)
    folder = tmp_path_factory.mktemp("browser")
    module = folder / "mini.gg"
    module.write_text(print_module(build(known_shape("llama-3.1-8b"), bf16, mini=True)))
    done("trace", module, "-p", PIPELINE, "-o", folder / "t.html")
    found = Page(folder / "t.html", folder / "profile")
    yield found
    found.close()


def snap(page: Page, name: str) -> None:
    """Keep a picture, where GRAPHGEN_PICTURES names a folder."""
    if folder := os.environ.get("GRAPHGEN_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


CLICK = (
    "[...document.querySelectorAll('#timeline button')]"
    ".find(b => b.querySelector('.name').innerText.split(/\\s+/)[1] === '%s').click()"
)
LIT = (
    "[...document.querySelectorAll('.columns > div')]"
    ".map(column => column.querySelectorAll('.lit').length)"
)


def test_a_pass_is_chosen_and_a_rewrite_opened(page: Page):
    page.run(CLICK % "fuse-projections")
    page.settle()
    assert page.run("document.querySelector('#content h2').innerText") == "fuse-projections"
    assert page.run("document.querySelectorAll('#content details').length") >= 4
    page.run("document.querySelector('#content details summary').click()")
    page.run("new Promise(done => setTimeout(done, 50))")
    text = page.run("document.querySelector('#content details').innerText")
    assert "rule at passes/canonical/fuse_projections.py:" in text
    assert "- %" in text
    assert "+ %" in text
    assert page.run("search.value") == ""
    assert page.run("document.querySelectorAll('#content .box .add').length") > 0
    page.run("document.querySelector('#content details').scrollIntoView()")
    snap(page, "rewrite")
    assert page.complaints == []


def test_search_finds_and_leads_to_a_pass(page: Page):
    page.run("search.value = 'fuse-siblings'; search.dispatchEvent(new Event('input'))")
    page.settle()
    assert "for “fuse-siblings”" in page.run("document.querySelector('#content h2').innerText")
    assert page.run("document.querySelectorAll('#content details').length") >= 4
    snap(page, "search")
    page.run("document.querySelector('#content h3 a').click()")
    page.settle()
    assert page.run("document.querySelector('#content h2').innerText") == "fuse-projections"
    page.run("search.value = 'no such thing'; search.dispatchEvent(new Event('input'))")
    page.settle()
    assert page.run("document.querySelector('#content h2').innerText").startswith("0 matches")
    assert page.complaints == []


def test_a_click_lights_up_what_belongs_together(page: Page):
    page.run("document.getElementById('provenance').click()")
    page.settle()
    assert page.run(LIT) == [0, 0, 0]
    # A product of the model: its line, itself, and what it became.
    page.run(
        "[...document.querySelectorAll('.columns > div:nth-child(2) .row')]"
        ".find(r => r.innerText.includes('q_proj.weight')).click()"
    )
    source, ops, lowered = page.run(LIT)
    assert (source, ops) == (1, 1)
    assert lowered >= 1
    snap(page, "provenance")
    text = page.run("document.querySelector('.columns > div:nth-child(3) .lit').innerText")
    assert "stablehlo." in text
    # Back from there.
    page.run("document.querySelector('.columns > div:nth-child(3) .lit').click()")
    source, ops, lowered = page.run(LIT)
    assert source >= 1
    assert ops >= 1
    # And from the source line, to every op it wrote.
    page.run("document.querySelector('.columns > div:nth-child(1) .lit').click()")
    assert page.run(LIT)[1] > 1
    assert page.complaints == []


HEADING = "document.querySelector('#content h2').innerText"


def test_deep_links_open_their_places(page: Page):
    page.go("pass=fuse-projections&rewrite=2")
    assert page.run(HEADING) == "fuse-projections"
    opened = "[...document.querySelectorAll('#content details[open]')].map((one) => one.innerText)"
    (text,) = page.run(opened)
    assert "#2 " in text
    assert "- %" in text
    page.go("pass=cse%232")
    assert page.run(HEADING) == "cse#2"
    page.go("pass=3")
    assert page.run("document.querySelector('#timeline .on .name').innerText").startswith("3 ")
    page.go("op=%23")
    assert page.run("document.querySelector('.picked').innerText").startswith("%23 =")
    page.go("view=provenance")
    assert page.run("document.querySelectorAll('.columns > div').length") == 3
    page.go("pass=no-such-pass")
    assert page.run(HEADING) == "the page has no pass no-such-pass"
    page.go("search=fuse-siblings")
    assert page.run("search.value") == "fuse-siblings"
    assert page.complaints == []


def test_explain_prints_addresses_in_its_page(mini: Path, tmp_path: Path):
    out = tmp_path / "e.html"
    passes = ("-p", "canonicalize,fuse-projections", "--pass", "fuse-projections")
    shown = done("explain", mini, *passes, "--trace", out)
    assert "e.html: 2 passes" in shown.stderr
    rewrites = re.findall(r"page: .*e\.html#pass=fuse-projections&rewrite=(\d+)", shown.stdout)
    assert rewrites == [str(number + 1) for number in range(len(rewrites))] != []
    assert "GG0704" in error("explain", mini, *passes, "--trace", tmp_path / "no" / "e.html")


def test_the_page_asks_for_nothing(page: Page):
    asked = [url for url in page.requests if not url.startswith(("file:", "data:"))]
    assert asked == []
    assert page.complaints == []


def test_a_run_without_passes_shows_the_ops(mini: Path, tmp_path: Path):
    if program() is None:
        pytest.skip(NO_BROWSER)
    done("trace", mini, "-p", "", "-o", tmp_path / "t.html")
    page = Page(tmp_path / "t.html", tmp_path / "profile")
    try:
        assert page.run("document.querySelectorAll('.columns .row').length") > 100
        assert page.complaints == []
    finally:
        page.close()


def test_validation_adds_verdicts_and_coverage(mini: Path, tmp_path: Path):
    out = tmp_path / "v.html"
    calls = ("--script", "short", "--no-rewrites", "--allow", "not-covered")
    result = done("validate", mini, "-p", "canonicalize,fuse-projections", *calls, "--trace", out)
    assert "v.html: 2 verdicts" in result.stderr
    found = re.search(r'id="data">(.*?)</script>', out.read_text())
    assert found is not None
    data = json.loads(found[1])
    assert [stage["label"] for stage in data["stages"]] == ["canonicalize", "fuse-projections"]
    view = data["validation"]
    tried = "ok of what was tried"
    assert (view["states"], view["faults"], view["not_run"]) == ([tried] * 2, [[], []], [])
    assert [row[0] for row in view["verdicts"]["rows"]] == ["canonicalize", "fuse-projections"]
    assert view["coverage"]["complete"]
    assert view["summary"].startswith("coverage: programs 2 of 2")
    programs = view["tables"][0]["rows"]
    assert [row[0].split()[0] for row in programs] == ["@prefill", "@decode"]
    assert len(view["calls"]) == sum(int(row[1]) for row in programs)
    assert "GG0704" in error("validate", mini, "-p", "dce", "--trace", tmp_path / "no" / "v.html")
    if program() is None:
        pytest.skip(NO_BROWSER)
    page = Page(out, tmp_path / "profile")
    try:
        heading = "document.querySelector('#content h2').innerText"
        assert page.run(heading) == "Validation"
        assert (
            page.run("document.querySelectorAll('#content td .bad, #content .marked').length") == 0
        )
        page.run("document.getElementById('coverage').click()")
        page.settle()
        assert page.run(heading) == "Coverage"
        assert "@decode" in page.run("document.querySelector('#content table').innerText")
        # Situations that the short script does not make.
        assert page.run("document.querySelectorAll('#content .marked').length") > 3
        snap(page, "coverage")
        page.run(CLICK % "fuse-projections")
        page.settle()
        assert page.run("document.getElementById('verdict').innerText") == f"validation: {tried}"
        assert page.complaints == []
    finally:
        page.close()


def test_a_pass_that_raises_is_a_verdict_of_the_page_and_has_no_stage(mini: Path, tmp_path: Path):
    out = tmp_path / "v.html"
    passes = "cse,on-device-sampling{global_topk=-1},dce"
    result = graphgen("validate", mini, "-p", passes, "--script", "short", "--trace", out)
    assert result.exit_code == 1
    found = re.search(r'id="data">(.*?)</script>', out.read_text())
    assert found is not None
    data = json.loads(found[1])
    assert [stage["label"] for stage in data["stages"]] == ["cse"]
    view = data["validation"]
    assert view["states"] == ["ok of what was tried", "raised"]
    assert view["not_run"] == ["dce"]
    assert "global_topk" in view["faults"][1][0]


@pytest.mark.slow
def test_the_largest_model_stays_usable(tmp_path: Path):
    path, out = tmp_path / "big.gg", tmp_path / "big.html"
    path.write_text(print_module(build(known_shape("llama-3.1-405b"), bf16)))
    done("trace", path, "-p", "default{tp=64,target=trn2}", "-o", out)
    assert out.stat().st_size < 20_000_000
    if program() is None:
        return
    page = Page(out, tmp_path / "profile")
    try:
        page.run(CLICK % "legalize")
        page.settle()
        assert page.run("document.querySelectorAll('#content details').length") < 500
        snap(page, "big")
        page.run("document.getElementById('provenance').click()")
        page.settle()
        assert "stands for" in page.run("document.querySelector('#content p').innerText")
        snap(page, "big-provenance")
        assert page.complaints == []
    finally:
        page.close()
