"""graphgen explore: what is in the page, and what the page does in a browser."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.hlo_text_speed import text_of
from tests.graphgen.cli.conftest import done, error, facts
from tests.graphgen.cli.test_inspect_cmd import step
from tests.lowering.hlo.test_unmodelled import OTHERS
from tests.oracles.chromium import NO_BROWSER, Page, program
from tests.oracles.html_data import columns, head, own_text, tables
from tests.oracles.split_product import SPLIT, WHOLE

__all__ = ["step"]


# ---- the file ------------------------------------------------------------------------------------


def test_every_op_of_the_module_is_in_its_columns(step: Path, tmp_path: Path):
    out = tmp_path / "step.html"
    result = done("explore", step, "-o", out)
    assert re.fullmatch(r"note: wrote .*step\.html: 3 ops, \d+\.\d\d kB\n", result.stderr)
    (module,) = head(out)["modules"]
    assert module["programs"][0]["facts"] == facts("inspect", step)["programs"][0]
    assert module["programs"][0]["kinds"] == ["inputs", "inputs", "caches"]
    held = tables(out)
    column = columns(out, "columns-0", module["columns"])
    names = held["names"].split("\n")
    (main,) = held["functions"]
    assert names[:3] == ["x", "w", "cache"]
    assert (main["ops"], main["args"]) == (3, 3)
    assert [names[value] for _, value in main["outputs"]] == [names[4], "new", names[3]]
    # The operands of the last op, from the distance to its first result.
    last = main["args"] + main["ops"] - 1
    back = [-(z + 1) // 2 if z % 2 else z // 2 for z in column["operands"][-2:]]
    assert [names[last - 1 - each] for each in back] == ["cache", names[4]]
    assert held["codes"][column["code"][-1]] == ["add", "elementwise"]
    assert held["places"][column["place"][-1]] == ["net.py", 10, ""]
    assert held["scopes"].split("\n")[column["scope"][-1]] == "add"


def test_inspect_writes_the_same_page(step: Path, tmp_path: Path):
    done("explore", step, "-o", tmp_path / "one.html")
    done("inspect", step, "--html", tmp_path / "two.html")
    assert head(tmp_path / "one.html") == head(tmp_path / "two.html")
    assert tables(tmp_path / "one.html") == tables(tmp_path / "two.html")


def test_nothing_is_fetched_and_only_its_own_script_runs(step: Path, tmp_path: Path):
    out = tmp_path / "step.html"
    done("explore", step, "-o", out)
    text = own_text(out)
    assert not re.search(r'(src|href)="(?!data:|#)', text)
    assert "http:" not in text
    assert "https:" not in text
    assert "Permission is hereby granted" in text
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_errors(step: Path, tmp_path: Path):
    assert "GG0704" in error("explore", step, "-o", tmp_path / "no" / "x.html")
    assert "GG0705" in error("explore", step, "-o", "-", "--open")
    assert "GG0705" in error("explore", tmp_path / "nothing.hlo")


def test_work_is_counted_for_sizes_of_symbols(small: Path, tmp_path: Path):
    out = tmp_path / "small.html"
    assert "work is counted for N=128" in done("explore", small, "-o", out).stderr
    assert [128 * 3, 128 * 3 * 3 * 4] in tables(out)["work"]
    result = done("explore", small, "-o", out, "--dims", "N=5")
    assert "work is" not in result.stderr
    assert [5 * 3, 5 * 3 * 3 * 4] in tables(out)["work"]


def test_the_page_is_named_after_the_file(
    step: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    written = facts("explore", step, "--open")
    assert written["file"] == f"{step.stem}.html"
    assert opened == [(tmp_path / f"{step.stem}.html").as_uri()]


def test_foreign_dumps_have_a_page_too(tmp_path: Path):
    path, out = tmp_path / "o.hlo", tmp_path / "o.html"
    path.write_text(OTHERS)
    done("explore", path, "-o", out)
    assert {"rng", "opt-barrier", "custom_call"} <= {name for name, _ in tables(out)["codes"]}


# A loop, shardings, groups over two axes, and a fusion, in the order of a schedule.
LOOP = """HloModule loop, is_scheduled=true, num_partitions=4
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT r = f32[] add(p, q) }
fused { u = f32[8,8] parameter(0) v = f32[8,8] tanh(u) ROOT o = f32[8,8] multiply(v, u) }
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
  f = f32[8,8] fusion(a), kind=kLoop, calls=fused
  t = (s32[], f32[8,8]) tuple(zero, f)
  w = (s32[], f32[8,8]) while(t), condition=condition, body=body
  g = f32[8,8] get-tuple-element(w), index=1
  ROOT n = f32[8,8] negate(g), sharding={replicated}
}
"""


def test_regions_stay_functions_and_loops_count_their_turns(tmp_path: Path):
    path, out = tmp_path / "loop.hlo", tmp_path / "loop.html"
    path.write_text(LOOP)
    done("explore", path, "-o", out)
    held = tables(out)
    names = [row["name"] for row in held["functions"]]
    assert names[0] == "main"
    assert set(names) == {"main", "fused", "condition", "body"}
    runs = {run["op"]: run for run in held["runs"].values()}
    assert [role for role, _ in runs["while"]["runs"]] == ["condition", "body"]
    assert runs["while"]["turns"] == 3
    column = columns(out, "columns-0", head(out)["modules"][0]["columns"])
    codes = [held["codes"][at][0] for at in column["code"]]
    flops = dict(zip(codes, [held["work"][at][0] for at in column["work"]], strict=True))
    # A loop counts its body in each turn, and a fusion what is inside of it.
    assert flops["while"] >= 3 * flops["all_reduce"]
    assert flops["fusion kLoop"] == flops["multiply"]


def test_pairs_of_two_modules(tmp_path: Path):
    first, second, out = tmp_path / "a.hlo", tmp_path / "b.hlo", tmp_path / "x.html"
    first.write_text(LOOP)
    second.write_text(LOOP.replace("negate(g)", "abs(g)"))
    result = done("explore", first, second, "-o", out)
    assert "8 and 8 ops" not in result.stderr
    found = {tuple(row["names"]): row for row in head(out)["pairs"]}
    assert set(found) == {("main", "main"), ("condition", "condition"), ("body", "body")}
    row = found["main", "main"]
    pairs = columns(out, "pairs-0", row["columns"])
    # Position by position the same but for the last: the fusion counts with its two ops.
    assert pairs["first"] == pairs["second"]
    assert pairs["equal"] == [*[1] * (len(pairs["first"]) - 1), 0]
    assert any("negate / abs" in text for text in row["changes"])


# ---- in a browser --------------------------------------------------------------------------------


class Explorer(Page):
    """The page with what its script interface answers."""

    def state(self, side: int = 0) -> Any:
        """What a pane shows."""
        return self.run(f"explorer.settled().then(() => explorer.state({side}))")

    def go(self, address: str) -> None:
        """Follow an address and wait until it is drawn."""
        super().go(address)
        self.run("explorer.settled()")

    def key(self, key: str) -> None:
        """Press a key."""
        event = f"new KeyboardEvent('keydown', {{key: {key!r}, bubbles: true}})"
        self.run(f"document.body.dispatchEvent({event})")
        self.settle()
        self.run("explorer.settled()")

    def click(self, label: str, dx: float = 0.5, side: int = 0) -> None:
        """Click a unit: in its middle, or at another part of its width."""
        self.run(
            f"""(() => {{
              const one = panes[{side}];
              const unit = one.drawn.units.find((each) => labelOf(each) === {label!r});
              const box = one.canvas.getBoundingClientRect();
              const down = unit.open && unit.folds ? 8 : unit.height / 2;
              const at = {{ bubbles: true, button: 0,
                clientX: box.left + one.x + (unit.left + unit.width * {dx}) * one.scale,
                clientY: box.top + one.y + (unit.top + down) * one.scale }};
              one.canvas.dispatchEvent(new PointerEvent("pointerdown", at));
              one.canvas.dispatchEvent(new PointerEvent("pointerup", at));
            }})()"""
        )
        self.settle()
        self.run("explorer.settled()")


def opened(page: Path, folder: Path, address: str = "") -> Explorer:
    if program() is None:
        pytest.skip(NO_BROWSER)
    found = Explorer(page, folder, address)
    found.run("explorer.settled()")
    return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explorer]:
    if program() is None:
        pytest.skip(NO_BROWSER)
    folder = tmp_path_factory.mktemp("browser")
    built = ("--mini", "--tp", 2, "--phase", "decode", "-o", folder / "mini.gg")
    done("build", "llama-3.1-8b", *built)
    done("lower", folder / "mini.gg", "--to", "hlo", "-o", folder / "decode.pb")
    done("explore", folder / "decode.pb", "-o", folder / "d.html")
    found = opened(folder / "d.html", folder / "profile")
    yield found
    found.close()


@pytest.fixture
def page(browser: Explorer) -> Explorer:
    """The page as it opens: groups that another test has unfolded are folded again."""
    browser.reload()
    browser.run("explorer.settled()")
    return browser


def snap(page: Page, name: str) -> None:
    """Keep a picture, where GRAPHGEN_PICTURES names a folder."""
    if folder := os.environ.get("GRAPHGEN_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


DETAIL = "document.querySelector('#detail').innerText"


def test_groups_unfold_and_fold_in_place(page: Explorer):
    before = page.state()
    assert {"model", "lm_head"} <= {*before["folded"], *before["unfolded"]}
    page.click("model")
    after = page.state()
    assert "model" in after["unfolded"]
    assert {"layers.0", "layers.1"} <= set(after["folded"])
    assert len(after["drawn"]) > len(before["drawn"])
    # A title folds its box again, and an address keeps what is unfolded.
    assert "open=" in page.run("location.hash")
    page.click("model", 0.1)
    assert sorted(page.state()["drawn"]) == sorted(before["drawn"])
    snap(page, "explorer")


def test_what_is_unfolded_travels_with_the_address(page: Explorer):
    page.click("model")
    page.key("e")
    shown = sorted(page.state()["drawn"])
    address = page.run("location.hash")
    page.reload()
    assert len(page.state()["drawn"]) < len(shown)
    page.go(address[1:])
    assert sorted(page.state()["drawn"]) == shown
    page.key("E")
    assert page.state()["unfolded"] == []


def test_units_do_not_cover_each_other(page: Explorer):
    page.key("e")
    assert len(page.state()["drawn"]) > 100
    covered = page.run(
        """(() => {
          const units = panes[0].drawn.units;
          const inside = (a, b) => { for (let one = b.around; one; one = one.around) if (one === a) return true; return false; };
          const apart = (a, b) => a.left + a.width <= b.left + 1 || b.left + b.width <= a.left + 1
            || a.top + a.height <= b.top + 1 || b.top + b.height <= a.top + 1;
          const within = (a, b) => b.left >= a.left && b.top >= a.top
            && b.left + b.width <= a.left + a.width && b.top + b.height <= a.top + a.height;
          return units.filter((a, i) => units.some((b, j) => j > i
            && (inside(a, b) ? !within(a, b) : !apart(a, b)))).map(labelOf);
        })()"""  # noqa: E501
    )
    assert covered == []


def test_an_address_opens_its_op_where_it_is(page: Explorer):
    name = page.run(
        "(() => { const g = panes[0].graph; for (let op = 0; op < g.opCount; op += 1)"
        " if (g.groups_(op) && g.scopePath(g.scope[op]).startsWith('model.layers.1'))"
        " return g.nameOf(op); })()"
    )
    page.go(f"op=%{name}")
    state = page.state()
    assert (state["selected"], state["selectedInView"]) == (name, True)
    assert {"model", "layers.1"} <= set(state["unfolded"])
    assert "layers.0" in state["folded"]
    # On the mesh: both ranks in one group.
    assert page.run("document.querySelectorAll('#detail .mesh .rank').length") == 2
    assert "1 group of 2, on 2 ranks" in page.run(DETAIL)
    snap(page, "collective")
    page.go("op=model.layers.0.self_attn.k_cache")
    assert page.state()["selected"] == "model.layers.0.self_attn.k_cache"
    assert "caches" in page.run(DETAIL)
    page.go("op=no.such.op")
    assert "the page has no op %no.such.op" in page.run(DETAIL)
    page.go("program=nothing")
    assert "the page has no program @nothing" in page.run(DETAIL)


def test_a_layer_opens_by_its_address(page: Explorer):
    page.go("layer=model.layers.1")
    state = page.state()
    assert "layers.1" in state["unfolded"]
    assert {"layers.1", "mlp"} <= set(state["inView"])
    page.go("layer=model.layers.7")
    assert "the page has no layer model.layers.7" in page.run(DETAIL)


def test_a_click_and_keys_choose_ops(page: Explorer):
    page.go("op=dot.275")
    assert page.state()["lit"]["slice.276"] == "to"
    assert page.state()["lit"]["pad.274"] == "from"
    text = page.run(DETAIL)
    for word in ("type", "flops", "graphgen/nn/", "reads (2)", "read by (1)", "alive"):
        assert word in text
    page.click("slice.276")
    assert page.state()["selected"] == "slice.276"
    assert "op=slice.276" in page.run("location.hash")
    page.key("u")
    assert page.state()["selected"] == "dot.275"
    page.key("d")
    page.key("j")
    assert page.state()["selected"] == "all-gather.277"
    page.key("f")
    assert "lm_head" in page.state()["folded"]
    page.key("Escape")
    assert page.state()["selected"] is None
    assert page.state()["lit"] == {}


def test_neighbours_to_a_distance_and_alone(page: Explorer):
    page.go("op=dot.275&depth=3")
    near = page.state()["lit"]
    # What is folded is marked as a whole.
    assert [near[name] for name in ("pad.274", "main", "model")] == ["from"] * 3
    assert near["slice.278"] == "to"
    page.go("op=dot.275&near=1")
    assert sorted(page.state()["drawn"]) == [
        "dot.275", "lm_head.weight.prepared", "pad.274", "slice.276"
    ]  # fmt: skip
    page.go("")
    assert "lm_head" in page.state()["drawn"]


def test_a_path_from_one_op_to_another(page: Explorer):
    page.go("op=pad.274")
    page.run(
        "[...document.querySelectorAll('.tools button')].find((b) => /path/.test(b.innerText))"
        ".click()"
    )
    page.click("slice.278")
    assert "path of 4 steps" in page.run(DETAIL)
    assert [page.state()["lit"].get(name) for name in ("dot.275", "slice.276")] == ["path"] * 2
    # The address says it all.
    address = page.run("location.hash")
    page.reload()
    page.go(address[1:])
    assert "path of 4 steps" in page.run(DETAIL)


def test_colours_follow_a_rule(page: Explorer):
    def fill(name: str) -> str:
        found = f"panes[0].drawn.units.find((unit) => labelOf(unit) === '{name}')"
        return page.run(f"fillOf({found}, panes[0].rule, panes[0].whole)")

    page.go("op=dot.275")
    by_kind = fill("dot.275")
    fills = {by_kind}
    for rule in ("flops", "bytes", "memory", "sharding"):
        page.go(f"op=dot.275&color={rule}")
        assert page.state()["rule"] == rule
        assert page.run("document.querySelector('#legend').innerText.length") > 5
        fills.add(fill("dot.275"))
    assert len(fills) >= 4
    page.go("op=dot.275&color=flops")
    # A product has more than a slice, which has none.
    assert fill("dot.275") != fill("slice.276") == fill("slice.278")
    page.key("c")
    assert page.state()["rule"] == "bytes"
    assert "color=bytes" in page.run("location.hash")


def test_search_marks_and_goes_to_what_it_finds(page: Explorer):
    page.go("search=all_reduce linear.py")
    count = int(page.run("document.querySelector('#count').innerText").split()[0])
    rows = page.run("document.querySelectorAll('#detail tr').length")
    assert 0 < rows < count
    found: set[str] = set()
    for _ in range(count):
        page.key("n")
        state = page.state()
        assert state["selectedInView"]
        found.add(state["selected"])
    assert len(found) == count
    page.key("n")
    page.key("p")
    page.go("search=weights lm_head")
    assert "%lm_head.weight.prepared" in page.run(DETAIL)
    assert page.state()["marked"]
    page.go("search=nowhere to be found")
    assert page.state()["marked"] == []
    assert page.run("document.querySelector('#count').innerText") == "0 found"


def test_memory_says_what_is_alive_at_any_instant(page: Explorer):
    page.go("view=memory")
    peak = page.run("panes[0].graph.head.programs[0].facts.peak_bytes")
    assert peak == page.run("Math.max(...panes[0].graph.live[0].bytes)")
    assert ", the peak" in page.run("document.querySelector('.alive h3').innerText")
    snap(page, "memory")
    page.run(
        """(() => {
          const chart = document.querySelector(".chart");
          const box = chart.getBoundingClientRect();
          const at = { bubbles: true, clientX: box.left + box.width * 0.8, clientY: box.top + 40 };
          chart.dispatchEvent(new PointerEvent("pointerdown", at));
          dispatchEvent(new PointerEvent("pointerup", at));
        })()"""
    )
    place = int(page.run("readHash().at"))
    title = page.run("document.querySelector('.alive h3').innerText")
    assert title.startswith(f"Alive at {place}: ")
    rows = page.run(
        "[...document.querySelectorAll('.alive tbody tr')].map((row) =>"
        " [...row.cells].map((cell) => cell.innerText))"
    )
    assert rows
    for _, _, _, made, until in rows:
        assert int(made) <= place <= (10**9 if until == "the end" else int(until))
    # What makes the buffers is marked in the graph, where it is unfolded or in a folded box.
    assert 0 < len(page.state()["marked"]) <= len(rows)
    # The instant is in the address, and a buffer leads to its op.
    page.reload()
    page.go(f"view=memory&at={place}")
    assert page.run("document.querySelector('.alive h3').innerText") == title
    page.run("document.querySelector('.alive tbody a').click()")
    page.settle()
    assert page.state()["selectedInView"]


def test_tables_have_what_inspect_prints(page: Explorer):
    page.go("view=tables")
    text = page.run("document.querySelector('#tables').innerText")
    for word in ("Arguments", "caches", "Largest tensors", "takes over", "argument "):
        assert word in text
    page.run("document.querySelector('#tables td a').click()")
    page.settle()
    assert not page.run("document.querySelector('#panes').hidden")


def test_the_map_shows_and_moves_what_is_in_view(page: Explorer):
    page.key("e")
    page.run("panes[0].zoom(8); explorer.settled()")
    before = page.state()["inView"]
    assert len(before) < len(page.state()["drawn"])
    page.run(
        """(() => {
          const map = document.querySelector(".map");
          const { top, scale } = panes[0].mapPlace;
          const box = map.getBoundingClientRect();
          const unit = panes[0].drawn.units.findLast((one) => one.op >= 0);
          const at = { bubbles: true, clientY: box.top + top + (unit.top + 5) * scale,
            clientX: box.left + panes[0].mapPlace.left + (unit.left + 5) * scale };
          map.dispatchEvent(new PointerEvent("pointerdown", at));
          dispatchEvent(new PointerEvent("pointerup", at));
        })()"""
    )
    last = page.run("labelOf(panes[0].drawn.units.findLast((one) => one.op >= 0))")
    assert last in page.state()["inView"]


@pytest.mark.parametrize("width", [1280, 1920])
def test_the_page_is_readable_dark_and_light(page: Explorer, width: int):
    """Text on each colour has a contrast of 4.5 at least, and nothing is cut off."""
    page.resize(width, 900)
    for dark in (False, True):
        page.dark() if dark else page.light()
        page.run("explorer.settled()")
        low = page.run(
            """(() => {
              const box = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
              const light = (colour) => {
                box.fillStyle = colour;
                box.fillRect(0, 0, 1, 1);
                const parts = [...box.getImageData(0, 0, 1, 1).data].slice(0, 3).map((one) => one / 255);
                const [r, g, b] = parts.map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05);
              const fills = [...KINDS.map((kind) => theme[`kind-${kind}`]), theme.group, theme.box, theme.only, theme.same,
                theme.changed, ...[0, 0.5, 1].map(mixed), ...[1, 2, 3, 4, 5].map((n) => layoutHue(`{devices=[${n}]}`))];
              return fills.filter((fill) => Math.min(contrast(fill, theme.ink), contrast(fill, theme.small)) < 4.5);
            })()"""  # noqa: E501
        )
        assert low == [], dark
        assert page.run("document.documentElement.scrollWidth") <= width
        snap(page, f"{'dark' if dark else 'light'}-{width}")
    page.light()


def test_the_page_has_no_complaint_and_asks_for_nothing(page: Explorer):
    page.go("op=dot.275&view=memory")
    assert page.complaints == []
    assert len(page.requests) == 1


def test_loops_fusions_and_schedules_of_a_foreign_module(tmp_path: Path):
    path, out = tmp_path / "loop.hlo", tmp_path / "loop.html"
    path.write_text(LOOP)
    done("explore", path, "-o", out)
    page = opened(out, tmp_path / "profile", "#op=y")
    try:
        state = page.state()
        assert {"w.0", "body"} <= set(state["unfolded"])
        assert {"condition", "f"} <= set(state["folded"])
        assert state["selectedInView"]
        picture = "document.querySelectorAll('#detail .mesh .rank').length"
        assert page.run(picture) == 4
        # Where the state of the loop comes from: what it is given, and the turn before.
        page.go("op=x")
        assert re.search(r"comes from \(2\)\s+%f\s.*\s+%z\s", page.run(DETAIL))
        page.go("op=o")
        assert "f" in page.state()["unfolded"]
        page.go("program=body")
        assert "body" in page.state()["unfolded"]
        # The state goes through the fusion, the loop and what follows.
        page.go("op=n.1&path=0:a0")
        assert "path of" in page.run(DETAIL)
        page.go("op=n.1&color=sharding")
        assert "{replicated}" in page.run(DETAIL)
        page.go("view=memory")
        rows = page.run("document.querySelector('.alive').innerText")
        assert "padding" in rows
        assert "a" in page.state()["marked"]
        assert "parameter" in rows
        assert page.complaints == []
        assert len(page.requests) == 1
    finally:
        page.close()


def test_two_modules_move_in_step(tmp_path: Path):
    first, second, out = tmp_path / "a.hlo", tmp_path / "b.hlo", tmp_path / "x.html"
    first.write_text(LOOP)
    inlined = LOOP.replace("zero = s32[] constant(0)", (
        "zero = s32[] constant(0)\n  dead = f32[8,8] exponential(a)"
    )).replace("f = f32[8,8] fusion(a), kind=kLoop, calls=fused", (
        "v.1 = f32[8,8] tanh(a)\n  f = f32[8,8] multiply(v.1, a)"
    )).replace("negate(g)", "abs(g)")  # fmt: skip
    second.write_text(inlined)
    done("explore", first, second, "-o", out)
    page = opened(out, tmp_path / "profile")
    try:
        page.go("op=y")
        assert [page.state(side)["selected"] for side in (0, 1)] == ["y", "y"]
        assert "body" in page.state(1)["unfolded"]
        # An op inside of a fusion, and the same op outside of one.
        page.go("side=b&op=v.1")
        assert [page.state(side)["selected"] for side in (0, 1)] == ["v", "v.1"]
        assert "f" in page.state(0)["unfolded"]
        assert "the same as %v" in page.run(DETAIL)
        page.go("op=n.1&color=difference")
        assert "changed from" in page.run(DETAIL)
        fills = "['n.1', 'zero'].map((name) => fillOf(panes[0].drawn.units.find("
        fills += "(unit) => labelOf(unit) === name), 'difference', {}))"
        assert page.run(fills) == page.run("[theme.changed, theme.same]")
        # What no output depends on counts as no difference.
        page.go("side=b&op=dead")
        assert "not compared" in page.run(DETAIL)
        assert page.run("panes[1].root.units.filter((unit) => differing(unit)).map(labelOf)") == [
            "n.1"
        ]
        # Boxes fold in step as well.
        page.go("op=y")
        page.key("f")
        assert [("body" in page.state(side)["folded"]) for side in (0, 1)] == [True, True]
        assert page.complaints == []
    finally:
        page.close()


def test_a_proof_colours_ops_by_verdict_and_says_the_relation_of_each_value(tmp_path: Path):
    first, out = tmp_path / "a.gg", tmp_path / "page.html"
    second, narrow = tmp_path / "b.gg", tmp_path / "narrow.html"
    first.write_text(WHOLE)
    wrong = "%4 = tanh(%3) : f32[2,4]\n  return y = %3\n  return z = %4"
    text = SPLIT.replace("return y = %3", wrong).replace(
        "%y : f32[2,4]\n", "%y : f32[2,4]\n  output %z : f32[2,4]\n"
    )
    second.write_text(text)
    done("explore", first, second, "--prove", "-o", out)
    page = opened(out, tmp_path / "profile", "#side=b&op=3&color=proof")
    try:
        assert "proof" in page.run(
            "[...document.querySelectorAll('#rules option')].map((one) => one.value)"
        )
        detail = page.run(DETAIL)
        assert "equal in real arithmetic" in detail
        assert "equal to dot_general" in detail
        assert "on every rank" in detail
        page.go("side=b&op=2")
        assert "on the way to all_reduce" in page.run(DETAIL)
        # The first program has no such output.
        page.go("side=b&op=4&color=proof")
        assert "undecided" in page.run(DETAIL)
        fills = "['3', '4'].map((name) => fillOf(panes[1].root.units.find("
        fills += "(unit) => labelOf(unit) === name), 'proof', {}))"
        assert page.run(fills) == page.run("[theme.real, theme.unknown]")
        legend = page.run("document.querySelector('#legend').innerText")
        assert "equal in real arithmetic" in legend
        assert "undecided" in legend
        assert page.complaints == []
    finally:
        page.close()
    assert "one is given" in error("explore", first, "--prove", "-o", narrow)
    assert "has no effect" in error("explore", first, second, "--narrow", "s8", "-o", narrow)


def test_names_that_look_like_markup_stay_text(tmp_path: Path):
    path, out = tmp_path / "m.hlo", tmp_path / "m.html"
    evil = "</script><script>window.evil=1</script><img src=x onerror=window.evil=1>"
    path.write_text(f"""HloModule markup
ENTRY main {{
  a = f32[4] parameter(0)
  b = f32[4] negate(a), metadata={{op_name="{evil}/neg" source_file="{evil}" source_line=3}}
  ROOT c = f32[4] custom-call(b), custom_call_target="{evil}", backend_config="{evil}"
}}
""")
    done("explore", path, path, "-o", out)
    assert own_text(out).count("</script>") == len(re.findall(r"<script[ >]", own_text(out)))
    page = opened(out, tmp_path / "profile")
    try:
        page.go("op=c")
        assert "</script><script>window.evil=1</script><img" in page.run(DETAIL)
        page.go("op=b")
        assert "</script><script>window.evil=1</script><img" in page.run(DETAIL)
        page.go(f"search={evil.split()[0]}")
        page.go("view=tables")
        assert page.run("typeof window.evil") == "undefined"
        assert page.complaints == []
        assert len(page.requests) == 1
    finally:
        page.close()


@pytest.mark.slow
def test_a_large_module_is_laid_out_only_where_it_is_unfolded(tmp_path: Path):
    path, out = tmp_path / "big.hlo", tmp_path / "big.html"
    path.write_text(text_of(60_000))
    done("explore", path, "-o", out)
    assert out.stat().st_size < 2_000_000
    page = opened(out, tmp_path / "profile")
    try:
        assert len(page.state()["drawn"]) < 100
        page.go("op=m.5000")
        state = page.state()
        assert (state["selected"], state["selectedInView"]) == ("m.5000", True)
        assert len(state["drawn"]) < 200
        page.go("layer=jit(step).layers.9000")
        assert "layers.9000" in page.state()["unfolded"]
        page.go("search=layers.777 tanh")
        assert page.run("document.querySelector('#count').innerText") == "11 found"
        assert page.complaints == []
    finally:
        page.close()
