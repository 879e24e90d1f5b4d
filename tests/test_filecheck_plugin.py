"""Checks of text hold where LLVM's FileCheck would let them, and a wrong one fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.filecheck_plugin import CheckError, Scan, output_of, read_checks

pytest_plugins = ["pytester"]
ROOT = Path(__file__).resolve().parent.parent

OUTPUT = """\
func @f {
  arg %x : f32[4]
  %a = negate(%x) : f32[4]
  %b = add(%a, %a) : f32[4]  # m.py:3 mlp
  return y = %b
}

func @g {
  %c = sine(%a) : f32[4]
  %d = cosine(%a) : f32[4]
}
"""


def scan(*checks: str) -> None:
    lines = ["# RUN: opt %s -p dce", *(f"# CHECK{check}" for check in checks)]
    Scan(OUTPUT).run(read_checks("\n".join(lines))[1])


HOLDS = {
    "a line": [": %a = negate(%x) : f32[4]"],
    "blanks are alike": [":   arg    %x : f32[4]"],
    "a place": [": %b = add(%a, %a) : f32[4] # m.py:3 mlp"],
    "a place left out": [": %b = add(%a, %a) : f32[4]", "-NEXT: return y = %b"],
    "lines in order": [": func @f {", ": return y = %b", ": %c = sine(%a) : f32[4]"],
    "the next line": [": func @f {", "-NEXT: arg %x : f32[4]", "-NEXT: %a = negate(%x) : f32[4]"],
    "a part by a pattern": [": %b = add({{.*}}) : {{f32|bf16}}[4]"],
    "a variable": [": [[A:%\\w+]] = negate(%x) : f32[4]", "-NEXT: %b = add([[A]], [[A]]) : f32[4]"],
    "a variable in its own line": [": %b = add([[A:%\\w+]], [[A]]) : f32[4]"],
    "any order": ["-DAG: %d = cosine(%a) : f32[4]", "-DAG: %c = sine(%a) : f32[4]"],
    "nothing between": [": func @f {", "-NOT: sine", ": }"],
    "nothing in this function": ["-LABEL: func @f {", "-NOT: sine", "-LABEL: func @g {"],
    "nothing to the end": [": %c = sine(%a) : f32[4]", "-NOT: negate"],
    "nothing before": ["-NOT: sine", ": func @g {"],
    "functions": ["-LABEL: func @g {", "-NEXT: %c = sine(%a) : f32[4]"],
}


@pytest.mark.parametrize("case", HOLDS)
def test_checks_that_hold(case: str):
    scan(*HOLDS[case])


FAILS = {
    "no such line": [": %a = negate(%y) : f32[4]"],
    "another place": [": %b = add(%a, %a) : f32[4] # m.py:4 mlp"],
    "a part of a line": [": %a = negate(%x)"],
    "lines in another order": [": return y = %b", ": func @f {"],
    "once more than it is there": [": %a = negate(%x) : f32[4]", ": %a = negate(%x) : f32[4]"],
    "not the next line": [": func @f {", "-NEXT: %a = negate(%x) : f32[4]"],
    "the same line again": [": func @f {", "-NEXT: func @f {"],
    "the first cannot be next": ["-NEXT: func @f {"],
    "another value of a variable": [
        ": [[A:%\\w+]] = negate(%x) : f32[4]",
        ": %c = sine([[A]]) : f32[4]",
        ": %d = cosine([[A:%b]]) : f32[4]",
    ],
    "an unbound variable": [": %c = sine([[A]]) : f32[4]"],
    "one line for two": ["-DAG: %c = sine({{.*}}", "-DAG: %c = {{.*}} : f32[4]"],
    "there after all": [": func @f {", "-NOT: negate", ": }"],
    "there after the last": [": func @f {", "-NOT: sine"],
    "there before the first": ["-NOT: negate", ": func @g {"],
    "in the next function": ["-LABEL: func @f {", ": %c = sine(%a) : f32[4]", "-LABEL: func @g {"],
    "in this function": ["-LABEL: func @f {", "-NOT: add", "-LABEL: func @g {"],
    "no such function": ["-LABEL: func @h {"],
    "no pattern where none is written": [": %a = negate(.x) : f32[4]"],
}


@pytest.mark.parametrize("case", FAILS)
def test_checks_that_fail(case: str):
    with pytest.raises(CheckError):
        scan(*FAILS[case])


@pytest.mark.parametrize(
    "text",
    [
        "# CHECK: a",
        "# RUN: opt %s",
        "# RUN: opt %s\n# CHECK-NOT: a",
        "# RUN: opt %s\n# CHECK-NXT: a\n# CHECK: a",
        "# RUN: opt %s\n# CHECK:\n# CHECK: a",
    ],
)
def test_files_that_check_nothing_or_misspell_it(text: str):
    with pytest.raises(CheckError):
        read_checks(text)


def test_a_failure_shows_the_check_the_place_and_the_output():
    with pytest.raises(CheckError) as caught:
        scan(": [[F:func]] @f {", "-NEXT: arg %y : f32[4]")
    text = str(caught.value)
    assert text.startswith("line 3: CHECK-NEXT: arg %y : f32[4]\n  with F = func\nnot found from")
    assert "\n>   2 |   arg %x : f32[4]\n" in text
    assert "\n   11 | }" in text


MODULE = """\
# RUN: opt %s -p cse
# RUN: opt %s -p dce
module @m level=logical {
}

# CHECK-LABEL: func @f {
# CHECK-NEXT:    arg %x : f32[4]
# CHECK-NEXT:    %a = negate(%x) : f32[4]
# CHECK-NEXT:    return y = %a
# CHECK-NEXT:  }
func @f {
  arg %x : f32[4]
  %a = negate(%x) : f32[4]
  %b = negate(%x) : f32[4]
  return y = %b
}
"""


def test_each_run_is_a_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    folder = pytester.mkdir("filecheck")
    (folder / "case.gg").write_text(MODULE)
    (folder / "broken.gg").write_text("# RUN: opt %s\n")
    pytester.path.joinpath("other.gg").write_text("")
    plugins = ["-p", "tests.filecheck_plugin", "-p", "no:randomly"]
    result = pytester.runpytest_subprocess(*plugins, "-v", "--continue-on-collection-errors")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*case.gg::opt %s -p cse PASSED*",
            "*broken.gg: a file needs a RUN*",
            "*case.gg: line 8: CHECK-NEXT: *",
        ]
    )


def test_a_command_ends_as_it_should(tmp_path: Path):
    path = tmp_path / "m.gg"
    path.write_text(MODULE)
    assert "func @f {" in output_of("opt %s -p cse", path)
    assert "error[GG0301]" in output_of("not opt %s -p nothing", path)
    for run in ("opt %s -p nothing", "not opt %s -p cse"):
        with pytest.raises(CheckError, match="exit status"):
            output_of(run, path)
