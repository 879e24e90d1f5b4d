"""The documentation is true: its files are written, its commands run, its outputs compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# Guides, and the least number of commands each shows.
GUIDES = {
    "building-graphs.md": 12,
    "writing-a-pass.md": 8,
    "debugging.md": 7,
    "inspecting.md": 4,
    "cost.md": 5,
    "compiling.md": 1,
    "importing.md": 4,
    "pyhlo.md": 1,
    "sharding.md": 6,
    "targets.md": 3,
    "kernels.md": 5,
    "experts.md": 2,
    "latent-attention.md": 2,
    "accuracy.md": 4,
    "lowered-programs.md": 8,
}
# Tests of runtime/aws run their programs on small checkpoints.
AWS_GUIDES = ("aws-compatibility.md", "aws-transformers-neuronx.md", "aws-configuration.md")
# Their commands take long, most for whole models; tests of the commands do that for minis.
SLOW_GUIDES = (
    "accuracy.md",
    "building-graphs.md",
    "compiling.md",
    "cost.md",
    "debugging.md",
    "importing.md",
    "inspecting.md",
    "kernels.md",
    "lowered-programs.md",
    "sharding.md",
    "targets.md",
    "writing-a-pass.md",
)
FENCE = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
# Steps that take long are told with their time; on a fast machine there are none.
PROGRESS = re.compile(r"note: .* \(after \d+ s\)")
# What may differ from machine to machine or with every edit: measured numbers, lines of a file.
MEASURED = re.compile(r"\b\d+(\.\d+)?e[+-]\d+\b|\b\d+\.\d+s?\b")
LINE = re.compile(r"\.py:\d+")


def blocks(path: Path) -> list[tuple[str, str]]:
    """Language and text of each fenced block."""
    return [(found[1], found[2]) for found in FENCE.finditer(path.read_text(encoding="utf-8"))]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run as a reader would, in a folder that is not the checkout."""
    scripts = str(Path(sys.executable).parent)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "GRAPHGEN_XLA_CODE"},
        "PATH": scripts + os.pathsep + os.environ["PATH"],
        # This checkout, whichever is installed.
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INDEX": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
        "PYTEST_ADDOPTS": "-p no:cacheprovider",
    }
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def session(commands: str, folder: Path) -> str:
    """What a terminal shows: each command behind ``$``, and what it prints."""
    shown: list[str] = []
    for line in commands.splitlines():
        if line.startswith("$ "):
            ran = run(["bash", "-c", line[2:]], folder)
            assert ran.returncode == 0, f"{line}\n{ran.stdout}"
            shown.append(f"{line}\n{ran.stdout}")
    return "".join(shown)


def comparable(text: str) -> str:
    """The text without what is measured, and without the width of columns that follows from it."""
    lines: list[str] = []
    for line in text.splitlines():
        if PROGRESS.fullmatch(line):
            continue
        # The row of a verdict has units in the last place, which may be a whole number.
        row = MEASURED.search(line) and re.search(r" (ok|WRONG|over budget)$", line)
        plain = re.sub(r"\b\d+\b", "N", MEASURED.sub("N", line)) if row else line
        plain = LINE.sub(".py:N", MEASURED.sub("N", plain))
        lines.append(re.sub(r"  +", "  ", plain).rstrip())
    return "\n".join(lines)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name in SLOW_GUIDES else name
        for name in GUIDES
    ],
)
def test_a_guide_shows_what_happens(name: str, tmp_path: Path):
    guide = ROOT / "docs" / name
    text = guide.read_text(encoding="utf-8")
    commands = 0
    for language, block in blocks(guide):
        if language == "console":
            commands += block.count("$ ")
            actual = session(block, tmp_path)
            if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
                text = text.replace(block, actual)
            else:
                assert comparable(actual) == comparable(block)
        else:
            named = re.match(r"# ([\w.]+)\n", block)
            assert named, f"a {language} block that names no file"
            (tmp_path / named[1]).write_text(block, encoding="utf-8")
    if os.environ.get("GRAPHGEN_UPDATE_GOLDEN"):
        guide.write_text(text, encoding="utf-8")
    assert commands >= GUIDES[name]


def test_wrong_numbers_and_words_in_the_guide_would_show():
    assert comparable("dce  0.0e+00  12  1.000000  ok") == comparable("dce   1.5e-16   3  0.9  ok")
    assert comparable("dce  0.0e+00  ok") != comparable("dce  0.0e+00  WRONG")
    assert comparable("dce   678  666  12") != comparable("dce   678  666  13")


def links(page: Path) -> list[Path]:
    """The files that a page links to."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = re.findall(r"\]\(([^)#\s]+)", re.sub(r"^```\n.*?^```\n", "", text, flags=re.M | re.S))
    return [(page.parent / link).resolve() for link in found if "://" not in link]


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))])
def test_links_lead_to_files(page: Path):
    assert [link for link in links(page) if not link.exists()] == []


def test_the_readme_leads_to_every_guide():
    linked = set(links(ROOT / "README.md"))
    assert [name for name in (*GUIDES, *AWS_GUIDES) if ROOT / "docs" / name not in linked] == []


@pytest.mark.parametrize("name", AWS_GUIDES)
def test_the_guides_of_aws_libraries_lead_to_each_other(name: str):
    linked = {link.name for link in links(ROOT / "docs" / name)}
    assert linked >= set(AWS_GUIDES) - {name}


@pytest.fixture(scope="module")
def programs() -> tuple[str, str]:
    """The Python programs of the README: a graph, and an application of NxD Inference's."""
    graph, application = [
        text for language, text in blocks(ROOT / "README.md") if language == "python"
    ]
    return graph, application


def test_the_application_of_the_readme_runs(programs: tuple[str, str], tmp_path: Path):
    from tests.oracles.families import ORACLES, save, save_tokenizer

    # A folder comes before a name of the hub.
    folder = tmp_path / "HuggingFaceTB" / "SmolLM2-135M-Instruct"
    save(ORACLES["llama"].model(vocab_size=300, max_position_embeddings=128), folder)
    save_tokenizer(folder)
    ran = run([sys.executable, "-c", programs[1]], tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert (tmp_path / "compiled" / "neuron_config.json").is_file()
    assert ran.stdout.strip()


def test_the_program_of_the_readme_runs(programs: tuple[str, str], tmp_path: Path):
    ran = run([sys.executable, "-c", programs[0]], tmp_path)
    assert ran.returncode == 0, ran.stdout
    before, ours, lowered = re.split(r"^(?=module @)", ran.stdout, flags=re.MULTILINE)
    assert before == ""
    assert ours.startswith("module @block level=logical {\n")
    assert " = rms_norm(" in ours
    assert "bf16[B,S,64]" in ours
    assert "func.func public @main" in lowered
    assert "stablehlo.dot_general" in lowered
