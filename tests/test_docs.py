"""The documentation is true: its files are written, its commands run, its outputs compared."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import chdir
from itertools import groupby
from pathlib import Path

import pytest

from graphgen.text import parse
from tests.graphgen.cli.conftest import graphgen

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
    "proving-shardings.md": 3,
    "sharding.md": 6,
    "targets.md": 3,
    "kernels.md": 5,
    "experts.md": 2,
    "latent-attention.md": 2,
    "accuracy.md": 4,
    "lowered-programs.md": 8,
    "triage.md": 3,
    "dumps.md": 16,
    "extending.md": 5,
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
    "dumps.md",
    "extending.md",
    "importing.md",
    "inspecting.md",
    "kernels.md",
    "lowered-programs.md",
    "proving-shardings.md",
    "sharding.md",
    "targets.md",
    "triage.md",
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
    shutil.copytree(ROOT / "docs/examples", tmp_path / "docs/examples")
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


PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    ROOT / "benchmarks" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path):
    assert [link for link in links(page) if not link.exists()] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_headings(page: Path):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    found = re.findall(r"\]\(([\w./-]*)#([^)\s]+)\)", text)
    lost = [
        (file, anchor)
        for file, anchor in found
        if anchor not in anchors((page.parent / file).resolve() if file else page)
    ]
    assert lost == []


def test_the_index_lists_every_guide_once():
    index = ROOT / "docs" / "index.md"
    listed = re.findall(r"^\* \[[^]]+\]\(([\w-]+\.md)\): \S.*\.$", index.read_text(), re.MULTILINE)
    guides = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md", "history.md"}
    assert sorted(listed) == sorted(guides)
    assert {ROOT / "docs" / "history.md", ROOT / "CHANGELOG.md"} <= set(links(index))
    assert index in links(ROOT / "README.md")


def test_the_readme_is_read_in_a_minute():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 150
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[1:6] == list(ENTRIES)
    for entry in ENTRIES:
        assert len(readme_commands(entry)) <= 6


@pytest.mark.parametrize("name", AWS_GUIDES)
def test_the_guides_of_aws_libraries_lead_to_each_other(name: str):
    linked = {link.name for link in links(ROOT / "docs" / name)}
    assert linked >= set(AWS_GUIDES) - {name}


def python_programs(page: Path) -> list[str]:
    return [text for language, text in blocks(page) if language == "python"]


def test_the_application_of_aws_compatibility_runs(tmp_path: Path):
    from tests.oracles.families import ORACLES, save, save_tokenizer

    application, *_ = python_programs(ROOT / "docs" / "aws-compatibility.md")
    # A folder comes before a name of the hub.
    folder = tmp_path / "HuggingFaceTB" / "SmolLM2-135M-Instruct"
    save(ORACLES["llama"].model(vocab_size=300, max_position_embeddings=128), folder)
    save_tokenizer(folder)
    ran = run([sys.executable, "-c", application], tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert (tmp_path / "compiled" / "neuron_config.json").is_file()
    assert ran.stdout.strip()


def test_the_program_of_the_readme_builds_runs_and_validates(tmp_path: Path):
    _, program = python_programs(ROOT / "README.md")
    ran = run([sys.executable, "-c", program], tmp_path)
    assert ran.returncode == 0, ran.stdout
    module, results = ran.stdout.split("[[")
    assert module.startswith("module @mlp level=logical {\n")
    assert " = silu(" in module
    numbers, *verdicts = results.splitlines()
    # x + silu(x) of [1, 2]
    assert [float(n) for n in numbers.strip("]").split()] == pytest.approx([1.7310586, 3.7615942])
    assert len(verdicts) > 10
    assert {line.split()[-1] for line in verdicts} == {"ok"}


@pytest.mark.slow
def test_the_first_program_of_the_readme_generates_the_text_of_the_command(tmp_path: Path):
    program, _ = python_programs(ROOT / "README.md")
    assert len(program.splitlines()) == 4
    found = run([sys.executable, "-W", "ignore", "-c", program], tmp_path)
    assert found.returncode == 0, found.stdout
    command = "generate smollm2 --dtype bf16 --max-new-tokens 20 --prompt"
    wanted = run([sys.executable, "-m", "graphgen", *command.split(), "The answer is"], tmp_path)
    answer = wanted.stdout[wanted.stdout.index(" yes") :] if " yes" in wanted.stdout else ""
    assert answer
    assert found.stdout.endswith(answer)


@pytest.mark.slow
def test_the_programs_of_the_guide_of_python_run(tmp_path: Path):
    generate, compiled = python_programs(ROOT / "docs" / "python.md")
    for program in (generate, compiled):
        ran = run([sys.executable, "-c", program], tmp_path)
        assert ran.returncode == 0, ran.stdout
    assert (tmp_path / "programs" / "decode.b1.c512.pb").is_file()


ENTRIES = (
    "Run a model",
    "Read a dump",
    "Write a pass",
    "Debug a miscompile",
    "Target Neuron",
)


def readme_commands(entry: str) -> list[str]:
    """The commands under a heading of the README."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {entry}\n\n```\n(.*?)^```\n", text, re.MULTILINE | re.DOTALL)
    assert found
    return found[1].splitlines()


def outcome(line: str, folder: Path, status: int = 0) -> str:
    """What a line of the README prints, run in this process; it ends with that status."""
    words, printed = shlex.split(line, comments=True), ""
    for after, command in groupby(words, lambda word: word == "&&"):
        if after:
            continue
        program, *arguments = command
        assert program == "graphgen"
        with chdir(folder):
            ran = graphgen(*arguments)
        assert ran.exit_code == status, f"{line}\n{ran.output}"
        printed += ran.output
    return printed


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples of docs, and with the module that the README builds."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "docs" / "examples", folder / "docs" / "examples")
    build, *_ = readme_commands("Write a pass")
    outcome(build, folder)
    return folder


def verdicts_of(printed: str) -> dict[str, str]:
    """The verdict of each pass of a table of ``validate``; of passes of one name, the last."""
    rows = re.findall(r"^([\w-]+)(?:\{.*?\})?  .* (ok|WRONG|raised)$", printed, re.MULTILINE)
    return dict(rows)


@pytest.mark.usefixtures("registry")
def test_the_pass_of_the_readme_is_run_and_right(checkout: Path):
    _, opt, validate = readme_commands("Write a pass")
    last = outcome(opt, checkout).splitlines()[-1].split()
    assert last[0] == "mine"
    assert int(last[-1]) > 0
    verdicts = verdicts_of(outcome(validate, checkout))
    assert list(verdicts)[-1] == "mine"
    assert len(verdicts) > 10
    assert set(verdicts.values()) == {"ok"}


@pytest.mark.usefixtures("registry")
def test_the_planted_bug_of_the_readme_is_found(checkout: Path):
    validate, bisect, minify = readme_commands("Debug a miscompile")
    verdicts = verdicts_of(outcome(validate, checkout, status=1))
    assert verdicts.pop("planted") == "WRONG"
    assert set(verdicts.values()) == {"ok"}
    found = outcome(bisect, checkout, status=1)
    assert re.search(r"^wrong after pass \d+: planted$", found, re.MULTILINE)
    assert re.search(r"^  guilty: planted #1: drop-the-gate at .*layers\.1", found, re.MULTILINE)
    assert "first wrong op: " in found
    assert "planted changes the meaning" in outcome(minify, checkout)
    before, after = (
        sum(len(function.block) for function in parse(path.read_text()).programs())
        for path in (checkout / "mini.gg", checkout / "small.gg")
    )
    assert minify.endswith(f"# {before} ops to {after}")
    small = minify.replace("minify mini.gg", "validate small.gg").split(" -o ")[0]
    assert verdicts_of(outcome(small, checkout, status=1))["planted"] == "WRONG"


def test_the_dump_of_the_readme_is_read(checkout: Path):
    for command in (
        "graphgen build llama-3.1-8b --mini --tp 4 --phase decode -o sharded.gg",
        "graphgen lower sharded.gg --target trn2 --to hlo -o FILE.pb",
        "graphgen lower FILE.pb --target trn2 --to hlo-text -o OTHER.hlo",
    ):
        outcome(command, checkout)
    inspect, inspect_page, profile, diff, grep, part = readme_commands("Read a dump")
    assert re.search(r"^all_reduce +4 ", outcome(inspect, checkout), re.MULTILINE)
    outcome(inspect_page, checkout)
    page = (checkout / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!")
    assert "decode.b1.c128" in page
    recorded = profile.replace("RECORDING", "docs/examples/recurrent.xplane.pb.gz")
    assert "ynn_fusion.3" in outcome(recorded, checkout)
    assert re.search(r"^equal: ", outcome(diff, checkout), re.MULTILINE)
    assert "mlp.down_proj.weight" in outcome(grep, checkout)
    values = outcome(part, checkout)
    assert re.search(r"^model\.layers\.1\.self_attn\.k_cache ", values, re.MULTILINE)


def test_the_programs_of_the_readme_are_lowered_and_checked(checkout: Path):
    lower, check, cost, _, _ = readme_commands("Target Neuron")
    outcome(lower, checkout)
    assert (checkout / "programs" / "prefill.b1.s128.pb").is_file()
    assert outcome(check, checkout).endswith("; no compiler ran\n")
    assert "@decode.b1.c128: " in outcome(cost, checkout)


@pytest.mark.slow
def test_the_models_of_the_readme_are_planned_and_compiled(checkout: Path):
    *_, plan, compilation = readme_commands("Target Neuron")
    degrees = re.findall(r"^(\d+) .* (yes|no)\b", outcome(plan, checkout), re.MULTILINE)
    assert ("1", "no") in degrees
    assert ("64", "yes") in degrees
    assert "--target=trn2" in outcome(compilation, checkout)
