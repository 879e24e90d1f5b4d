"""``graphgen`` itself: help, version, unknown commands, and how little it imports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from graphgen.cli.command_table import (
    PANELS,
    command_function,
    command_module,
    commands,
    find_command,
)
from graphgen.version import __version__
from tests.graphgen.cli.conftest import ROOT, done, graphgen, process

# What a help text must not wait for. pydantic is what typer reads arguments with.
SLOW = ("rich", "numpy", "jax", "jaxlib", "torch", "pydantic", "graphgen.ir", "passes", "runtime")


def test_help_lists_every_command_with_its_one_line_help_by_panel():
    shown: dict[str, list[list[str]]] = {}
    rows: list[list[str]] = []
    for line in done("--help").stdout.splitlines():
        if line.endswith(":"):
            rows = shown.setdefault(line[:-1], [])
        elif line and shown:
            rows.append(line.split(None, 1))
    expected = {
        title: [[name, entry.help] for name, entry in commands().items() if entry.panel == panel]
        for panel, title in PANELS.items()
    }
    assert {title: shown.get(title) for title in expected} == expected


def test_the_declaration_of_a_command_is_what_its_module_has():
    for name, declared in commands().items():
        assert declared == import_module(command_module(name)).COMMAND
        assert command_function(name)


def test_a_name_of_python_is_no_command():
    for name in ("load_test", "../cache", "Cache", ""):
        with pytest.raises(KeyError):
            find_command(name)


def test_generate_is_the_first_command():
    assert commands()["generate"].help == "Generate text from prompts."


def test_no_arguments_is_help():
    assert done().stdout == done("--help").stdout


def test_help_imports_no_command_and_nothing_slow():
    program = (
        "import sys; sys.argv = ['graphgen', '--help']\n"
        "from graphgen.cli.command_table import command_module, commands\n"
        "from graphgen.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        f"slow = {{*{SLOW!r}, *map(command_module, commands())}}\n"
        "print('imported:', *sorted(slow & sys.modules.keys()), file=sys.stderr)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("Usage: graphgen ")
    assert ran.stderr == "imported:\n"


@pytest.mark.parametrize("name", commands())
def test_every_command_shows_an_example_and_has_json(name: str):
    text = done(name, "--help").stdout
    assert f"  graphgen {name}" in text
    assert "--json" in text


def test_version():
    assert done("--version").stdout == f"graphgen {__version__}\n"


def test_unknown_command_is_a_usage_error_with_a_suggestion():
    result = graphgen("buld")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "No such command 'buld'. Did you mean 'build'?" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["build"],
        ["build", "llama-3.1-8b", "--dtype", "int3"],
        ["build", "llama-3.1-8b", "--tp", "0"],
        ["build", "llama-3.1-8b", "--json"],
        ["opt", "m.gg"],
        ["opt", "m.gg", "-p", "dce", "--json"],
        ["lower", "m.gg", "--json"],
        ["lower", "m.gg", "--to", "cobol"],
        ["run", "m.gg", "--seed", "-1"],
        ["run", "m.gg", "--no-such-option"],
    ],
)
def test_usage_errors_end_with_2(arguments: list[str]):
    result = graphgen(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("error[GG0705]: ")
    assert result.stderr.endswith(f"help: root {arguments[0]} --help\n")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("graphgen ", list(commands())),
        ("graphgen ins", ["inspect"]),
        ("graphgen inspect x --la", ["--largest"]),
        ("graphgen build x --dtype b", ["bf16"]),
        ("graphgen inspect x --nothing", []),
    ],
)
def test_a_shell_completes_commands_options_and_values(words: str, offered: list[str]):
    shell = {
        "_GRAPHGEN_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(f"{words}.".split()) - 1),
    }
    program = "from graphgen.cli.main import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True,
        env={**os.environ, **shell},
    )  # fmt: skip
    assert ran.stdout.split() == offered


def test_completion_is_installed_where_the_shell_looks(tmp_path: Path):
    # Which shell it is would be guessed from the processes above, among which there may be none.
    told = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ran = process("--install-completion", "bash", env_more=told)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ".bash_completions/graphgen.sh" in (tmp_path / ".bashrc").read_text()
    script = (tmp_path / ".bash_completions/graphgen.sh").read_text()
    assert "_GRAPHGEN_COMPLETE=complete_bash" in script
    shown = process("--show-completion", "bash", env_more=told)
    assert shown.stdout.strip() == script.strip()


# A terminal in which zsh runs, one Tab, and what it then shows.
IN_ZSH = """\
zmodload zsh/zpty
zpty shell "zsh -i"
read_to() {
  local out="" chunk="" tries=0
  while (( tries++ < 300 )) && [[ $out != *$1* ]]; do
    zpty -r -t shell chunk && out+=$chunk || sleep 0.1
  done
  print -r -- "$out"
}
zpty -w shell "PS1='read''y> '"
read_to 'ready> '
zpty -w -n shell $'graphgen insp\\t'
read_to 'ect'
zpty -d shell
"""


def installed(shell: str, home: Path) -> dict[str, str]:
    """The environment of a shell that has been taught; ``graphgen`` is a program there."""
    told = {"HOME": str(home), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1", "TERM": "xterm"}
    assert process("--install-completion", shell, env_more=told).returncode == 0
    program = home / "graphgen"
    code = "from graphgen.cli.main import main; main()"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{code}" "$@"\n')
    program.chmod(0o755)
    path = f"{home}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, **told, "PATH": path, "PYTHONPATH": str(ROOT)}


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
def test_zsh_completes_at_the_first_tab(tmp_path: Path):
    home = installed("zsh", tmp_path)
    ran = subprocess.run(
        ["zsh", "-f", "-c", IN_ZSH],
        capture_output=True, text=True, check=False, env=home, timeout=240,
    )  # fmt: skip
    assert "graphgen inspect" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", ran.stdout).replace("\b", "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish")
@pytest.mark.parametrize(
    ("words", "offered"),
    [("graphgen insp", "inspect"), ("graphgen build x --dtype b", "bf16")],
)
def test_fish_completes(words: str, offered: str, tmp_path: Path):
    home = installed("fish", tmp_path)
    ran = subprocess.run(
        ["fish", "-c", f"complete -C '{words}'"],
        capture_output=True, text=True, check=True, env=home, timeout=240,
    )  # fmt: skip
    assert ran.stdout.split()[0] == offered


def test_runs_as_a_python_module():
    ran = process("ops", "silu")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.startswith("silu(operand)")
