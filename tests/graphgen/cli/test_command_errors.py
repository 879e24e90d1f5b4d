"""How commands end: user errors, defects, readers that leave, interruptions."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphgen.cli.console import write_error
from graphgen.errors import GraphgenError
from tests.graphgen.cli.conftest import ROOT, error, graphgen

MISSING = """\
error[GG0705]: cannot read 'no.gg': No such file or directory
  help: graphgen build MODEL -o FILE.gg writes one
"""


def test_a_user_error_is_its_text_on_stderr():
    assert error("lower", "no.gg") == MISSING


def test_with_json_it_is_one_object_on_stdout():
    result = graphgen("run", "no.gg", "--json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert json.loads(result.stdout) == {
        "error": {
            "code": "GG0705",
            "what": "cannot read 'no.gg': No such file or directory",
            "where": "",
            "note": "",
            "help": "graphgen build MODEL -o FILE.gg writes one",
        }
    }


def test_errors_in_a_file_name_the_line(tmp_path: Path):
    path = tmp_path / "bad.gg"
    path.write_text(
        "module @m level=logical {\n}\n\nfunc @f {\n  arg %x : f32[4]\n"
        "  %y = silu(%z) : f32[4]\n  return y = %y\n}\n"
    )
    assert error("opt", path, "-p", "dce") == (
        "error[GG0202]: %z is not defined before this line\n"
        f"  --> {path}:6:13\n"
        "   |    %y = silu(%z) : f32[4]\n"
        "   |              ^^\n"
    )


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "error[GG0201]: the file is empty\n"),
        (b"GGUF\xff\x00", "error[GG0201]: this is a checkpoint, not a module\n"),
        (b"\xff\x00", "error[GG0201]: this is not text\n"),
        (b"hello\n", "error[GG0201]: a module starts with: module @name level=logical {\n"),
    ],
)
def test_files_that_are_no_module(tmp_path: Path, content: bytes, expected: str):
    path = tmp_path / "what.gg"
    path.write_bytes(content)
    assert error("run", path).startswith(expected)
    assert str(path) in error("run", path)


def test_a_folder_is_no_module(tmp_path: Path):
    text = error("run", tmp_path)
    assert text.startswith("error[GG0802]: neither a compiler cache nor a work folder\n")
    assert str(tmp_path) in text


@pytest.mark.parametrize(
    ("file", "kind", "reader"),
    [
        ("config.json", "a checkpoint", "graphgen build"),
        ("model.safetensors", "a checkpoint", "graphgen build"),
        ("module_0001.jit_f.before_optimizations.txt", "a folder of XLA's dumps", "name one of"),
    ],
)
def test_a_folder_of_another_kind_is_named_with_its_reader(
    tmp_path: Path, file: str, kind: str, reader: str
):
    (tmp_path / file).write_bytes(b"{}" if file.endswith("json") else b"")
    for command, *options in (("explore",), ("run",), ("cost", "--target", "trn2")):
        text = error(command, tmp_path, *options)
        assert text.startswith(f"error[GG0201]: this is {kind}, not a module\n  --> {tmp_path}\n")
        assert reader in text
    if file == "config.json":
        text = error("inspect", tmp_path)
        assert text.startswith("error[GG0601]: config.json is there, but weights are missing\n")
        assert "graphgen build" in text


def test_not_enough_memory_is_the_users_error(mini: Path):
    text = error("run", mini, "--program", "prefill", "--dims", f"M={10**14}")
    assert text.startswith("error[GG1103]: not enough memory: ")


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EMFILE, "too many files are open: no room"),
        (errno.ENFILE, "too many files are open: no room"),
        (errno.ENOMEM, "not enough memory: "),
    ],
)
def test_what_the_machine_lacks_is_the_users_error(
    monkeypatch: pytest.MonkeyPatch, number: int, message: str
):
    def broken(files: object) -> None:
        raise OSError(number, "no room", "module.py")

    monkeypatch.setattr("graphgen.cli.passes_cmd.load_plugins", broken)
    assert error("passes").startswith(f"error[GG1103]: {message}")


def test_a_defect_keeps_its_traceback_and_asks_for_a_report(monkeypatch: pytest.MonkeyPatch):
    def broken(files: object) -> None:
        raise KeyError("the reason")

    monkeypatch.setattr("graphgen.cli.passes_cmd.load_plugins", broken)
    result = graphgen("passes")
    assert (result.exit_code, result.stdout) == (70, "")
    assert "Traceback (most recent call last):" in result.stderr
    assert "KeyError: 'the reason'" in result.stderr
    assert result.stderr.endswith("please report it with the lines above\n")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ERROR = GraphgenError("GG0302", "no such option", where="p:1", note="a\nb", help="look it up")


def written(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    write_error(ERROR)
    return stream.getvalue()


def test_colors_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    painted = written(monkeypatch, _Terminal())
    assert painted.startswith("\x1b[31m\x1b[1merror[GG0302]\x1b[0m: no such option\n")
    assert painted.count("\x1b[0m") == 5
    assert written(monkeypatch, io.StringIO()) == f"{ERROR}\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colors_where_they_are_not_wanted(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
):
    monkeypatch.setenv(name, value)
    assert written(monkeypatch, _Terminal()) == f"{ERROR}\n"


def ended(*arguments: str, stdout: int) -> tuple[int, bytes]:
    """Exit status and standard error of a process that writes to ``stdout``."""
    command = [sys.executable, "-m", "graphgen", *arguments]
    ran = subprocess.run(command, cwd=ROOT, stdout=stdout, stderr=subprocess.PIPE, check=False)
    return ran.returncode, ran.stderr


def test_a_reader_that_leaves_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    assert ended("ops", stdout=writing) == (141, b"")
    os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_the_users_error():
    with open("/dev/full", "wb") as full:
        status, stderr = ended("ops", stdout=full.fileno())
    assert status == 1
    assert stderr == b"error[GG0704]: cannot write to standard output: No space left on device\n"


def test_an_interruption_ends_with_130_and_no_traceback():
    # A process started in the background ignores interruptions: undo that first.
    program = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.argv = ['graphgen', 'opt', '-', '-p', 'dce']\n"
        "from graphgen.cli.main import main\n"
        "main()\n"
    )
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe) as running:
        assert running.stdin is not None
        # It waits for the rest of a module. More than a pipe holds is written only when it reads.
        running.stdin.write(b"# a comment\n" * 20_000)
        running.stdin.flush()
        running.send_signal(signal.SIGINT)
        try:
            status = running.wait(60)
        finally:
            running.kill()
        assert running.stdout is not None
        assert running.stderr is not None
        assert (status, running.stdout.read(), running.stderr.read()) == (130, b"", b"")
