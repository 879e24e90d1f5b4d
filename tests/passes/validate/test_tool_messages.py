"""Passes that raise, vary, hide what they do: each ends in its own message, the others are kept."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from graphgen.exec.inputs import write_arrays
from graphgen.text import print_module
from tests.graphgen.cli.conftest import done, graphgen, process
from tests.oracles.planted_bugs import CONFIG, model

pytestmark = pytest.mark.usefixtures("registry")

HEAD = """
from dataclasses import dataclass
from typing import ClassVar

from graphgen.errors import GraphgenError
from graphgen.ir import Module
from graphgen.passes.core import Pass, Rewriter, no_match, register, rule


@rule("silu")
def forth(op, b):
    x = op.operands[0]
    return [b.binary("multiply", x, b.unary("logistic", x))]


@rule("multiply")
def back(op, b):
    if op.operands[1].op is None or op.operands[1].op.name != "logistic":
        return no_match("no logistic", op.operands[1])
    return [b.unary("silu", op.operands[0])]


@rule("silu")
def second_wrong(op, b):
    # Right for the first of a function only.
    x = op.operands[0]
    inlined = any(other.name == "logistic" for other in op.block)
    return [b.binary("multiply", x, b.unary("sine" if inlined else "logistic", x))]


def ops(module, name):
    return [(f, op) for f in module.programs() for op in list(f.block) if op.name == name]


"""
# One pass for each kind of fault; the name of the class is that of the pass.
BODIES = {
    "wrong": """
        for function, op in ops(module, "silu"):
            if not rewriter.exhausted:
                rewriter.replace(function, op, [op.operands[0]], "forget")
""",
    "raising": """
        raise KeyError("no such op")
""",
    "refusing": """
        raise GraphgenError("GG0304", "heads do not divide", where="@decode", help="use tp=2")
""",
    "random": """
        import random
        for function, op in ops(module, "silu"):
            name = f"drawn{random.random()}"
            with (b := rewriter.before(function, op)):
                made = b.unary("silu", op.operands[0])
            made.name = name
            rewriter.replace(function, op, [made], "again")
""",
    "silent": """
        for function, op in ops(module, "silu"):
            function.replace_uses(op.result, op.operands[0])
""",
    "undoing": """
        for function in module.programs():
            rewriter.apply_rules(function, [forth, back])
""",
    "together": """
        for function in module.programs():
            rewriter.apply_rules(function, [second_wrong])
""",
    # Four sums become differences and sums again; then an activation is left out.
    "two-step": """
        def step(function, op, name):
            with (b := rewriter.before(function, op)):
                made = b.binary(name, *op.operands)
            rewriter.replace(function, op, [made], name)
            return made.op
        for function, op in ops(module, "add")[:4]:
            for name in ("subtract", "add"):
                if not rewriter.exhausted:
                    op = step(function, op, name)
        for function, op in ops(module, "silu")[:1]:
            if not rewriter.exhausted and self.wrong:
                rewriter.replace(function, op, [op.operands[0]], "forget")
""",
    "rounded": """
        from graphgen.ir.dtype import bf16, f32
        for function, op in ops(module, "silu"):
            if not rewriter.exhausted:
                with (b := rewriter.before(function, op)):
                    coarse = b.convert(b.convert(op.operands[0], bf16), f32)
                    made = b.unary("silu", coarse)
                rewriter.replace(function, op, [made], "coarse")
""",
    "idle": """
        for function in module.programs():
            rewriter.note(function, "looked")
""",
}


def plugin_text(name: str) -> str:
    return f"""{HEAD}
@register
@dataclass(frozen=True)
class Faulty(Pass):
    name: ClassVar[str] = "{name}"
    wrong: bool = True

    def run(self, module: Module, rewriter: Rewriter) -> None:{BODIES[name]}"""


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("modules") / "mini.gg"
    path.write_text(print_module(model()))
    return path


@pytest.fixture
def faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Options that load every faulty pass; reproducers go to a folder of the test."""
    monkeypatch.setenv("GRAPHGEN_CRASH", str(tmp_path / "crashes"))
    # The default of users; the suite runs with contracts, which refuse silent passes.
    monkeypatch.setenv("GRAPHGEN_VERIFY", "1")
    path = tmp_path / "faulty_passes.py"
    path.write_text("\n\n".join(plugin_text(name) for name in BODIES))
    return ["--plugin", path]


@pytest.mark.parametrize(
    ("name", "message", "help"),
    [
        ("raising", "raised: raising: KeyError: 'no such op'\n  raised by: the pass\n", ""),
        ("refusing", "raised: refusing: GG0304: heads do not divide\n", "  help: use tp=2\n"),
    ],
)
def test_a_pass_that_raises_ends_as_a_verdict(
    name: str, message: str, help: str, mini: Path, faulty: list[object], tmp_path: Path
):
    result = graphgen("validate", mini, "-p", f"canonicalize,wrong,{name},cse,dce", *faulty)
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    rows = [line.split() for line in result.stdout.splitlines()[1:4]]
    assert [(row[0], row[-1]) for row in rows] == [
        ("canonicalize", "ok"),
        ("wrong", "WRONG"),
        (name, "raised"),
    ]
    assert "first wrong rewrite: wrong #1: forget at %silu" in result.stdout
    assert message in result.stdout
    assert help in result.stdout
    (folder,) = (tmp_path / "crashes").iterdir()
    assert f"  help: graphgen repro {folder}\n" in result.stdout
    assert "\n  not run: cse, dce\n" in result.stdout
    again = graphgen("validate", mini, "-p", f"canonicalize,{name},cse", *faulty, "--json")
    found = json.loads(again.stdout)
    assert found["not_run"] == ["cse"]
    assert [item["ok"] for item in found["passes"]] == [True, False]
    assert found["passes"][1]["raised"]["during"] == "the pass"


def test_a_pass_that_draws_names_is_not_repeatable(mini: Path, faulty: list[object]):
    result = graphgen("validate", mini, "-p", "canonicalize,random,dce", *faulty)
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()[1:4]]
    assert [row[-1] for row in rows][::2] == ["ok", "ok"]
    assert rows[1][-2:] == ["not", "repeatable"]
    assert "not repeatable: random run twice on one module differs in line " in result.stdout
    assert "  first run:  %drawn0." in result.stdout
    assert "  second run: %drawn0." in result.stdout


def test_a_pass_that_records_no_rewrite_is_at_fault(mini: Path, faulty: list[object]):
    result = graphgen("validate", mini, "-p", "canonicalize,silent", *faulty)
    assert result.exit_code == 1
    assert "silent: silent changed the module and recorded no rewrite\n" in result.stdout
    assert "  help: change graphs through the Rewriter" in result.stdout
    # Its numbers are wrong besides; it has no rewrite that could be named.
    assert "first wrong rewrite: silent, as a whole\n" in result.stdout


def test_a_pass_that_records_rewrites_and_changes_nothing_is_right(
    mini: Path, faulty: list[object]
):
    done("validate", mini, "-p", "idle", *faulty)


def test_the_first_call_that_differs_is_named_and_the_worst(mini: Path, faulty: list[object]):
    result = graphgen("validate", mini, "-p", "wrong", *faulty, "--json")
    (found,) = json.loads(result.stdout)["passes"]
    assert found["first"]["call"] == 0
    text = graphgen("validate", mini, "-p", "wrong", *faulty).stdout
    assert f"  seen at: {found['first']['where']} of call 0" in text


def test_rules_that_undo_each_other_are_shown(mini: Path, faulty: list[object]):
    result = graphgen("validate", mini, "-p", "canonicalize,undoing,dce", *faulty)
    assert result.exit_code == 1
    assert [line.split()[-1] for line in result.stdout.splitlines()[1:3]] == ["ok", "raised"]
    assert "raised: undoing: GG0306: undoing: the rules still apply after " in result.stdout
    assert ": back and forth undo each other\n" in result.stdout
    assert "   |  in turn:\n   |  back: %multiply = multiply(" in result.stdout
    assert "   |  forth: %silu = silu(" in result.stdout
    assert "  not run: dce\n" in result.stdout
    found = graphgen("bisect", mini, "-p", "canonicalize,undoing,dce", *faulty)
    assert found.exit_code == 1
    assert found.stdout.startswith("pass 2 raises an exception; nothing is wrong before it\n")
    assert ": back and forth undo each other\n" in found.stdout


@pytest.mark.parametrize("command", ["validate", "bisect"])
def test_two_rewrites_that_are_wrong_only_together(
    command: str, mini: Path, faulty: list[object], tmp_path: Path
):
    more = ("-o", tmp_path / "out") if command == "bisect" else ()
    result = graphgen(command, mini, "-p", "canonicalize,together", *faulty, *more)
    assert result.exit_code == 1
    assert "together #2: second-wrong at %silu" in result.stdout
    assert "  wrong only together: #1 and #2\n    together #1: second-wrong" in result.stdout
    assert "  only these are made with --fuel 'together=[1-2]'\n" in result.stdout


@pytest.mark.parametrize("command", ["validate", "bisect"])
def test_what_is_wrong_in_between_is_not_to_blame(
    command: str, mini: Path, faulty: list[object], tmp_path: Path
):
    more = ("-o", tmp_path / "out") if command == "bisect" else ()
    result = graphgen(command, mini, "-p", "two-step", *faulty, *more)
    assert result.exit_code == 1
    assert ": two-step #9: forget at %silu" in result.stdout
    assert "  wrong in between as well: with the first 8 it is right again\n" in result.stdout
    assert "wrong only together" not in result.stdout
    done(command, mini, "-p", "two-step{wrong=false}", *faulty)


def test_bisect_finds_what_is_wrong_before_a_pass_that_raises(
    mini: Path, faulty: list[object], tmp_path: Path
):
    words = ("bisect", mini, "-p", "canonicalize,wrong,cse,raising,dce", *faulty)
    result = graphgen(*words, "-o", tmp_path / "out")
    assert (result.exit_code, type(result.exception)) == (1, SystemExit)
    head, rest = result.stdout.split("pass 4 raises an exception\n")
    assert head.startswith("wrong after pass 2: wrong\n  guilty: wrong #1: forget at %silu")
    assert rest.startswith("raised: raising: KeyError: 'no such op'\n")
    found = json.loads(graphgen(*words, "--json").stdout)
    assert (found["guilty"]["place"], found["raised"]["place"]) == (2, 4)


def test_bisect_reports_a_silent_pass_and_one_that_is_not_repeatable(
    mini: Path, faulty: list[object], tmp_path: Path
):
    result = graphgen("bisect", mini, "-p", "silent", *faulty, "-o", tmp_path / "silent")
    assert "  the pass as a whole is to blame: it records no rewrite\n" in result.stdout
    assert "silent: silent changed the module and recorded no rewrite\n" in result.stdout
    check = f"{sys.executable} -c \"import sys; sys.exit('drawn' in open('{{}}').read())\""
    words = ("bisect", mini, "-p", "random", *faulty, "-o", tmp_path / "random")
    result = graphgen(*words, "--check", check)
    assert result.exit_code == 1
    assert "not repeatable: random run twice on one module differs in line " in result.stdout


def test_bisect_by_a_command_runs_no_module(
    mini: Path, faulty: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(*arguments: object, **more: object) -> None:
        raise AssertionError("a module was run")

    monkeypatch.setattr("graphgen.exec.session.Runner.__init__", refuse)
    check = f"{sys.executable} -c \"import sys; sys.exit('silu(' not in open('{{}}').read())\""
    words = ("bisect", mini, "-p", "canonicalize,together", *faulty, "--check", check)
    result = graphgen(*words, "-o", tmp_path / "out")
    assert result.exit_code == 1, result.output
    assert "wrong after pass 2: together\n  guilty: together #4: second-wrong" in result.stdout
    assert "first wrong op" not in result.stdout
    refused = graphgen(*words, "--rounding")
    assert (refused.exit_code, "runs no module" in refused.output) == (2, True)


def test_bisect_finds_what_exceeds_a_rounding_budget(
    mini: Path, faulty: list[object], tmp_path: Path
):
    arrays = tmp_path / "case.npz"
    with arrays.open("wb") as file:
        write_arrays(file, {"model.norm.weight": np.full(CONFIG.hidden_size, 0.5, np.float32)})
    words = ("bisect", mini, "-p", "canonicalize,rounded,raising", *faulty, "--inputs", arrays)
    folder = tmp_path / "out"
    result = graphgen(*words, "--rounding", "-o", folder)
    assert result.exit_code == 1, result.output
    head = "over its rounding budget after pass 2: rounded\n  guilty: rounded #1: coarse at %silu"
    assert result.stdout.startswith(head)
    assert "pass 3 raises an exception\n" in result.stdout
    command = (folder / "command.txt").read_text()
    assert "--rounding --on numpy --seed 0 --inputs case.npz --plugin" in command
    again = process(*shlex.split(command)[1:], "-o", "again", cwd=folder)
    assert again.stdout.startswith("over its rounding budget after pass 1: rounded\n"), again
    # The checks of a validation have the budget, too.
    found = graphgen(*words, "-o", tmp_path / "whole")
    assert found.stdout.startswith(head)


MASK_IN_16_BITS = """
from dataclasses import dataclass
from typing import ClassVar

from graphgen.ir import Module
from graphgen.ir.dtype import s16, s32
from graphgen.passes.core import Pass, Rewriter, register


@register
@dataclass(frozen=True)
class MaskIn16Bits(Pass):
    name: ClassVar[str] = "mask-in-16-bits"

    def run(self, module: Module, rewriter: Rewriter) -> None:
        for function in module.programs():
            for op in [op for op in function.block if op.name == "attention_mask"]:
                if rewriter.exhausted:
                    return
                with rewriter.before(function, op) as b:
                    narrow = [b.convert(b.convert(value, s16), s32) for value in op.operands]
                    made = b.emit(op.name, narrow, dict(op.attrs)).results
                rewriter.replace(function, op, made, "narrow")
"""


@pytest.mark.slow
def test_bisect_goes_on_with_the_wide_twin(tmp_path: Path):
    path, folder, page = tmp_path / "mini.gg", tmp_path / "out", tmp_path / "page.html"
    plugin = tmp_path / "narrow.py"
    plugin.write_text(MASK_IN_16_BITS)
    done("build", "llama-3.1-8b", "--mini", "--dtype", "f32", "-o", path)
    given = ("-p", "cse,mask-in-16-bits,dce", "--plugin", plugin, "--json")
    found = graphgen("bisect", path, *given, "-o", folder, "--trace", page)
    assert found.exit_code == 1, found.output
    facts = json.loads(found.stdout)
    assert facts["twin"] == "wide"
    assert facts["guilty"]["pass"] == "mask-in-16-bits"
    assert (facts["guilty"]["place"], facts["guilty"]["application"]["rule"]) == (2, "narrow")
    assert "mask-in-16-bits" in page.read_text()
    command = shlex.split((folder / "command.txt").read_text())
    assert process(*command[1:], "-o", "again", cwd=folder).returncode == 1
    # Fewer calls than by default are made of the module alone.
    assert graphgen("bisect", path, *given, "--script", "short").exit_code == 0


def test_bisect_of_what_is_right_on_both_twins(tmp_path: Path):
    path = tmp_path / "mini.gg"
    done("build", "llama-3.1-8b", "--mini", "--dtype", "f32", "-o", path)
    found = done("bisect", path, "-p", "dce", "--json")
    assert json.loads(found.stdout) == {"guilty": None, "raised": None}
