"""The questions of docs/xla-dumps.md, asked of a folder that JAX wrote pass by pass.

The answers are read from XLA's texts without graphgen.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.graphgen.cli.conftest import done
from tests.graphgen.cli.test_xla_dumps import questions
from tests.oracles.jax_dump import DumpFacts, write_jax_dump

# Per question, expressions that its answer fits.
Answers = Callable[[DumpFacts], list[str]]


def _product(facts: DumpFacts) -> str:
    """The buffer of the product, whatever XLA makes of it."""
    text = (
        facts.folder / f"{facts.step}.cpu_after_optimizations-buffer-assignment.txt"
    ).read_text()
    (temporary,) = re.findall(r"preallocated-temp:\n value: <\d+ (\S+) @", text)
    return str(temporary)


ANSWERS: dict[str, Answers] = {
    "Which programs are there?": lambda f: [f"^XLA dump: {len(f.modules)} programs", f.step],
    "Which of them only convert or broadcast for another?": lambda f: [
        name.partition(".")[2] for name in f.modules if name != f.step
    ],
    "How many ops did XLA make of how many?": lambda f: [
        f'"ops_before": {len(f.before)},',
        f'"ops_after": {len(f.after)},',
    ],
    "Which files belong to no program?": lambda _: [r"of no program: 1 unknown \(notes.txt\)"],
    "How many bytes did XLA assign?": lambda f: [rf"XLA's total .*\({f.total:,} B\)"],
    "What does graphgen compute from the schedule?": lambda f: [rf"computed .*\({f.total:,} B\)"],
    "How much of that is temporary?": lambda f: [rf"{f.temporary / 1000:.2f} kB temp"],
    "When is most in use?": lambda f: [rf"live .* live at \d+: ({'|'.join(dict(f.after))})"],
    "Where is the peak of XLA's live ranges?": lambda f: [
        rf"XLA's peak .* live at {f.peak[0]}: {re.escape(f.peak[1])}"
    ],
    "Which layer made the largest temporary buffer?": lambda _: [
        r" temp .*jit\(step\)/dot_general$"
    ],
    "Which parameters does an output take over?": lambda f: [
        f"outputs take the buffers of {f.named('parameter')[0]}$"
    ],
    "How much do tiles add?": lambda _: ["padding      0 B"],
    "What is in use when it begins?": lambda f: [f"%{name} " for name in f.named("parameter")],
    "What has to go so that 2 KiB are enough?": lambda f: [
        r"to fit 2.05 kB, free 3 buffers of 49.15 kB"
    ],
    "In which allocation is `d`, and at which offset?": lambda f: [f"%{_product(f)} @0"],
    "Until when does `d` live?": lambda f: [f"%{_product(f)} .* {f.lives(_product(f))} "],
    "Which passes changed the program?": lambda f: [
        rf"{f.records} records, \d+ with changes",
        "^algsimp +simplification",
    ],
    "Which pass removed `m`?": lambda f: [f"^algsimp .* removes {f.named('negate')[1]}$"],
    "Into which fusion went `t`?": lambda f: [f"fuses {f.named('tanh')[0]} into \\S+"],
    "Does the optimized program compute the same?": lambda _: ["^equal: "],
    "Which flags was it compiled with?": lambda _: [r"^xla_dump_hlo_pass_re +\.\*"],
}


@pytest.fixture(scope="module")
def facts_of_jax(tmp_path_factory: pytest.TempPathFactory) -> DumpFacts:
    return DumpFacts(write_jax_dump(tmp_path_factory.mktemp("dump") / "d"))


def test_every_question_is_asked_here():
    assert list(ANSWERS) == [row[0].strip("| ") for row in questions()]


@pytest.mark.parametrize("row", questions(), ids=[row[0] for row in questions()])
def test_a_question_about_a_dump_of_jax(facts_of_jax: DumpFacts, row: list[str]):
    names = {"m": facts_of_jax.named("negate")[1], "t": facts_of_jax.named("tanh")[0]}
    words = row[1].strip(" `").removeprefix("graphgen ").split()
    stem = str(facts_of_jax.folder / facts_of_jax.step)
    if words[:2] == ["diff", "dump"] and len(words) == 4:
        words[3] = names[words[3]]
    words = [
        str(facts_of_jax.folder) if word == "dump" else re.sub(r"^.*?STEP", stem, word)
        for word in words
    ]
    said = done(*words).stdout
    for wanted in ANSWERS[row[0].strip("| ")](facts_of_jax):
        assert re.search(wanted, said, re.MULTILINE), (wanted, said)
