"""Planted bugs by ``--plugin FILE``, through the command line: validate and bisect find each."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from graphgen.ir.clone import clone_module
from graphgen.passes.core import PASSES, parse_pipeline, run_pipeline
from graphgen.text import print_module
from tests.graphgen.cli.conftest import ROOT, done, graphgen
from tests.oracles.chromium import NO_BROWSER, Page, program
from tests.oracles.planted_bugs import BUGS, Bug, Planted, model
from tests.oracles.planted_bugs_on_ranks import RANK_BUGS

pytestmark = pytest.mark.usefixtures("registry")

PLUGIN = ROOT / "tests/oracles/planted_bugs_plugin.py"
# Twenty that one program and one call show, and those that need several ranks or several calls.
TWENTY = [bug for bug in BUGS if not bug.after and not bug.rounding][:20]
QUICK = ("swap-kv", "row-of-another", "window-off-by-one")
CASES = [
    pytest.param(bug, id=bug.name, marks=() if bug.name in QUICK else pytest.mark.slow)
    for bug in (*TWENTY, *RANK_BUGS)
]


def command(name: str, *arguments: object) -> Any:
    """Run a command that loads the plugin, in a process that has not."""
    PASSES.pop("planted", None)
    return graphgen(name, *arguments, "--plugin", PLUGIN)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("bug", CASES)
def test_it_is_caught_and_named_exactly(bug: Bug, tmp_path: Path):
    path = tmp_path / "m.gg"
    path.write_text(print_module(model(windowed=bug.windowed)))
    front = f"{bug.after}," if bug.after else ""
    pipeline = f"{front}planted{{bug={bug.name}}},dce"
    shown = command("validate", path, "-p", pipeline)
    assert shown.exit_code == 1, shown.output
    verdicts = {line.split()[0]: line.split()[-1] for line in shown.stdout.splitlines() if line}
    wrong = [name for name, verdict in verdicts.items() if verdict == "WRONG"]
    assert wrong == [f"planted{{bug={bug.name}}}"]
    found = command("bisect", path, "-p", pipeline, "--json")
    assert found.exit_code == 1, found.output
    guilty = json.loads(found.stdout)["guilty"]
    assert guilty["pass"] == f"planted{{bug={bug.name}}}"
    application = guilty["application"]
    assert (application["rule"], application["function"]) == (bug.name, bug.program)
    assert application["number"] == guilty["fuel"] == expected(bug)
    assert f" = {bug.root}(" in application["op"]
    harmless = pipeline.replace(f"bug={bug.name}", f"bug={bug.name},harmless=true")
    assert command("validate", path, "-p", harmless).exit_code == 0


def expected(bug: Bug) -> int:
    """The number of the wrong rewrite among those the planted pass makes."""
    module = clone_module(model(windowed=bug.windowed))
    planted = Planted(bug)
    run_pipeline(module, [*parse_pipeline(bug.after), planted])
    assert planted.history.count(True) == 1
    return planted.history.index(True) + 1


def test_there_are_thirty():
    assert len(TWENTY) == 20
    assert len(RANK_BUGS) >= 10


def test_a_reproducer_is_moved_and_still_finds_it(tmp_path: Path):
    path, plugin = tmp_path / "m.gg", tmp_path / "mine.py"
    path.write_text(print_module(model()))
    plugin.write_text("from tests.oracles.planted_bugs_plugin import Plant\n")
    folder = tmp_path / "repro"
    found = graphgen(
        *("bisect", path, "-p", "canonicalize,planted{bug=eps}"),
        *("--plugin", plugin, "-o", folder, "--seed", 5),
    )
    assert "first wrong op: " in found.stdout
    assert {item.name for item in folder.iterdir()} == {
        *("before.gg", "good.gg", "bad.gg", "command.txt", "mine.py")
    }
    moved = folder.rename(tmp_path / "moved")
    words = (moved / "command.txt").read_text().split()
    assert words == (
        "graphgen bisect before.gg -p planted{bug=eps} --seed 5 --plugin mine.py".replace(
            "planted{bug=eps}", "'planted{bug=eps}'"
        ).split()
    )
    plugin.unlink()
    again = graphgen("bisect", moved / "before.gg", "-p", "planted{bug=eps}", "--seed", 5)
    assert again.stdout.splitlines()[1:] == found.stdout.splitlines()[1:]
    # Both sides of the guilty rewrite are there to be compared.
    parted = graphgen("equiv", moved / "good.gg", moved / "bad.gg")
    assert (parted.exit_code, "first difference" in parted.stdout) == (1, True)
    done("validate", moved / "good.gg", "-p", "dce")


def test_the_page_of_a_bisection_opens_at_the_guilty_rewrite(tmp_path: Path):
    path, out = tmp_path / "m.gg", tmp_path / "page.html"
    path.write_text(print_module(model()))
    found = command("bisect", path, "-p", "canonicalize,planted{bug=eps},dce", "--trace", out)
    assert (found.exit_code, "2 passes" in found.stderr) == (1, True)
    # The reproducer goes to its own folder; the addresses say where in the page the fault is.
    addresses = re.findall(r"note: (guilty|first wrong op): .*page\.html(#\S+)", found.stderr)
    assert [what for what, _ in addresses] == ["guilty", "first wrong op"]
    assert re.fullmatch(r"#pass=planted&rewrite=\d+", addresses[0][1])
    if program() is None:
        pytest.skip(NO_BROWSER)
    page = Page(out, tmp_path / "profile", addresses[0][1])
    try:
        opened = "document.querySelector('#content details[open]').innerText"
        assert page.run(opened).startswith("eps @")
        page.go(addresses[1][1].removeprefix("#"))
        name = addresses[1][1].removeprefix("#op=")
        assert f"%{name}" in page.run("document.querySelector('#content').innerText")
        assert page.complaints == []
    finally:
        page.close()
