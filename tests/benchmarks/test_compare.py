"""Engines as plugins: found, left out, failing; their rows, tables, goals and pictures."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.comparison.agreement import agreement
from benchmarks.comparison.engine_process import EngineFailedError, EngineProcess
from benchmarks.comparison.goals import goal_lines
from benchmarks.comparison.interfaces import Case, ModelFiles, Turn, UnsupportedError
from benchmarks.comparison.measured import Measured, markdown, rows_of
from benchmarks.comparison.picture import write_pictures
from benchmarks.comparison.rivals import best_tokens, surprise
from benchmarks.comparison.rounds import Rounds, close_all, prompts_of, start_engines, windows_of
from benchmarks.engines import ENGINES, OURS, Listed
from benchmarks.real_time_priority import threads_of
from benchmarks.rows import write_json
from graphgen.runtime.accuracy import perplexity

FAKE, MISSING = "tests.benchmarks.fake_engine", "tests.benchmarks.missing_engine"
FILES = ModelFiles("", {}, "/nowhere")
CASE = Case("bf16", 8, 16)
Start = Callable[..., EngineProcess]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    started: list[EngineProcess] = []

    def starts(failure: str = "") -> EngineProcess:
        monkeypatch.setenv("FAKE_ENGINE", failure)
        started.append(EngineProcess("fake", FAKE))
        return started[-1]

    yield starts
    close_all(started)


def test_an_engine_answers_from_its_own_process_and_waits_stopped(start: Start):
    engine = start()
    assert engine.version == "fake 1.0"
    engine.open(CASE, FILES, 2)
    turn = engine.turn([[1] * 16] * 8, 3)
    assert turn.steps_s == [0.08] * 3
    assert turn.tokens == [[16, 17, 18, 19]] * 8
    (child,) = set(threads_of(engine.pid))
    assert child != os.getpid()
    state = Path(f"/proc/{child}/stat").read_text().rsplit(")", 1)[1].split()[0]
    assert state == "T"


def test_what_an_engine_does_not_support_is_told(start: Start):
    with pytest.raises(UnsupportedError, match="no weights in int4"):
        start().open(Case("int4", 1, 16), FILES, 2)


def test_an_error_of_an_engine_is_told_and_the_process_goes_on(start: Start):
    engine = start("raises")
    for _ in range(2):
        with pytest.raises(EngineFailedError, match="ValueError: cannot open /nowhere"):
            engine.open(CASE, FILES, 2)
    assert not engine.ended


def test_a_process_that_ends_is_told_with_its_last_words(start: Start):
    engine = start("ends")
    engine.open(CASE, FILES, 2)
    with pytest.raises(EngineFailedError, match=r"ended with 3: loading bf16.*out of luck"):
        engine.turn([[1] * 16], 3)
    assert engine.ended


def test_what_is_not_installed_is_left_out_with_a_message(capsys: pytest.CaptureFixture[str]):
    engines = start_engines([FAKE, MISSING], {})
    close_all(engines.values())
    assert list(engines) == [FAKE]
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(
        f"{MISSING} is left out: No module named 'a_package_that_nobody_has' ({sys.executable})"
    )


def test_an_interpreter_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]):
    assert not start_engines([FAKE], {FAKE: "/no/python"})
    assert "does not start (/no/python)" in capsys.readouterr().err
    with pytest.raises(ValueError, match="no engine is called lama; known: graphgen"):
        start_engines(["lama"], {})


def test_every_listed_engine_is_a_module_that_creates_one():
    for entry in ENGINES.values():
        path = Path(__file__).parents[2] / (entry.module.replace(".", "/") + ".py")
        assert "\ndef create() -> " in path.read_text()


def test_modules_for_other_environments_need_no_more_than_the_standard_library():
    """Engines run where neither graphgen nor what it depends on is installed."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['graphgen', 'numpy']))\n"
        "import benchmarks.comparison.worker, benchmarks.comparison.interfaces"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


@pytest.fixture
def fake_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake engine under our name, beside itself."""
    monkeypatch.setitem(ENGINES, OURS, Listed(FAKE, "graphgen"))


@pytest.mark.usefixtures("fake_is_ours")
def test_rounds_measure_all_engines_and_their_perplexity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    engines = start_engines([OURS], {})
    monkeypatch.setenv("FAKE_ENGINE", "other")
    engines |= start_engines([FAKE], {})
    text = list(range(100))
    try:
        rounds = Rounds(engines, FILES, 1 << 18, text, rounds=2, steps=4)
        measured = rounds.measure(CASE)
        assert rounds.measure(Case("int4", 1, 16)) is None
        found = rounds.perplexities("bf16", windows_of(text, 30))
    finally:
        close_all(engines.values())
    assert measured is not None
    assert measured.seconds[FAKE] == {"prefill": 0.08 * 16, "decode": 0.08}
    assert 0 < measured.floor_s < 1
    assert str(measured.tokens[FAKE]) == "0/8, 8 near ties (0.1)"
    assert found == {OURS: pytest.approx(math.e), FAKE: pytest.approx(math.e)}
    assert "int4.b1.p16 without graphgen: no weights in int4" in capsys.readouterr().err


@pytest.mark.usefixtures("fake_is_ours")
def test_a_peer_that_ends_is_left_out_from_then_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    engines = start_engines([OURS], {})
    monkeypatch.setenv("FAKE_ENGINE", "ends")
    engines |= start_engines([FAKE], {})
    try:
        measured = Rounds(engines, FILES, 1 << 18, list(range(100)), 2, 4).measure(CASE)
    finally:
        close_all(engines.values())
    assert measured is not None
    assert list(measured.seconds) == list(engines) == [OURS]
    assert f"bf16.b8.p16 without {FAKE}: it ended with 3" in capsys.readouterr().err


def turn_of(*rows: list[int]) -> Turn:
    rivals = [[[(token, 5.0), (9, 4.9), (8, 3.0)] for token in row] for row in rows]
    return Turn(1.0, [1.0], [*rows], rivals)


def test_tokens_are_compared_up_to_the_first_difference():
    ours = turn_of([1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3])
    theirs = turn_of([1, 2, 3], [1, 9, 7], [8, 2, 3], [1, 2, 6])
    found = agreement(ours, theirs, "bf16")
    assert (found.rows, found.equal) == (4, 1)
    assert found.near == (pytest.approx(0.1),)
    assert found.apart == (2.0, math.inf)
    assert str(found) == "1/4, 1 near tie (0.1), 2 differ (inf)"
    # f32 rounds far less than a tenth.
    assert agreement(ours, theirs, "f32").near == ()


def measured_case(weights: str, ours: float, peer: float) -> Measured:
    out = Measured(Case(weights, 1, 128), floor_s=0.008)
    out.note(OURS, "decode", 2 * ours)
    for name, seconds in ((OURS, ours), ("llama-cpp", peer)):
        out.note(name, "prefill", 10 * seconds)
        out.note(name, "decode", seconds)
    out.tokens["llama-cpp"] = agreement(turn_of([1]), turn_of([1]), weights)
    return out


def test_rows_have_the_names_of_generate_and_one_form(tmp_path: Path):
    values = {"int8": {OURS: 28.4, "llama-cpp": 28.5}}
    rows = rows_of([measured_case("int8", 0.01, 0.02)], {"llama-cpp": "llama.cpp 1"}, values)
    write_json(rows, tmp_path / "rows.json")
    prefill, decode = json.loads((tmp_path / "rows.json").read_text())
    assert prefill["case"] == "int8.b1.p128.prefill"
    assert decode == {
        "case": "int8.b1.p128.decode",
        "ours_s": 0.01,
        "peer": "llama.cpp 1",
        "peer_s": 0.02,
        "ratio": 2.0,
        "engine": "llama-cpp",
        "tokens": "1/1",
        "floor_s": 0.008,
        "perplexity": 28.4,
        "peer_perplexity": 28.5,
    }


def test_the_table_has_the_fastest_in_bold_and_gaps_where_nothing_was_measured():
    cases = [measured_case("bf16", 0.01, 0.02), measured_case("f32", 0.03, 0.02)]
    del cases[0].seconds["llama-cpp"]
    lines = markdown(cases, [OURS, "llama-cpp"]).splitlines()
    assert lines[0] == "| ms | graphgen | llama-cpp | read of the weights |"
    assert "| bf16.b1.p128.decode | **10.0** |  | 8.0 |" in lines
    assert "| f32.b1.p128.prefill | 300.0 | **200.0** |  |" in lines


def test_each_case_has_a_line_when_it_is_done():
    line = measured_case("bf16", 0.01, 0.02).line()
    assert line == "bf16.b1.p128, ms: graphgen 100.0 and 10.0, llama-cpp 200.0 and 20.0; read 8.0"


def test_goals_are_judged_where_both_sides_were_measured():
    cases = [measured_case("bf16", 0.01, 0.011), measured_case("int8", 0.01, 0.011)]
    lines = goal_lines(cases, {"int8": {OURS: 28.6, "llama-cpp": 28.5}})
    assert "| bf16.b1.p128.decode | llama-cpp | 0.95 | 0.91 | met |" in lines
    assert "| bf16.b1.p128.decode | read of the weights | 1.35 | 1.25 | met |" in lines
    assert "| bf16.b1.p128.prefill | best peer | 0.9 | 0.91 | **not met** |" in lines
    assert "| int8.b1.p128.decode | llama-cpp | 0.9 | 0.91 | **not met** |" in lines
    assert lines[-1] == "| int8 perplexity | llama-cpp | 1.0 | 1.0035 | **not met** |"
    del cases[0].seconds["llama-cpp"]
    assert not any("best peer" in line for line in goal_lines(cases[:1], {}))


def test_pictures_are_written_and_the_same_each_time(tmp_path: Path):
    cases = [measured_case("bf16", 0.01, 0.02), measured_case("int8", 0.01, 0.02)]
    del cases[1].seconds["llama-cpp"]
    png, svg = write_pictures(cases, [OURS, "llama-cpp"], "today", tmp_path / "a")
    assert png.read_bytes().startswith(b"\x89PNG")
    first = svg.read_bytes()
    assert b"llama-cpp" in first or b"<path" in first
    _, again = write_pictures(cases, [OURS, "llama-cpp"], "today", tmp_path / "a")
    assert again.read_bytes() == first


def test_prompts_are_as_long_as_the_case_and_differ():
    prompts = prompts_of(list(range(600)), Case("f32", 8, 512))
    assert {len(prompt) for prompt in prompts} == {512}
    assert len({prompt[0] for prompt in prompts}) == 8


def test_the_surprise_of_peers_is_computed_as_ours():
    logits = np.random.default_rng(0).normal(size=(7, 20)).astype(np.float32)
    tokens = [3, 1, 4, 1, 5, 9]
    assert surprise(logits, tokens) == pytest.approx(perplexity.surprise(logits, tokens))
    best = best_tokens(logits[0])
    assert best[0] == (int(logits[0].argmax()), pytest.approx(float(logits[0].max())))
    assert [logit for _, logit in best] == sorted(logits[0].tolist())[:-9:-1]
