"""``graphgen speculate``, and the flags of speculation of ``graphgen generate``."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphgen.lowering.plan.speculation_bound import StepSeconds, implied_acceptance
from graphgen.report.table import Table
from graphgen.runtime.benchmark.speedup import (
    SpeedAssumptions,
    bound_report,
    speedups,
    step_bound,
)
from tests.graphgen.cli.conftest import done, error, facts
from tests.graphgen.cli.speculation_model import ASK


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("the cat sat on the mat and the dog ran after the cat " * 8)
    return path


@pytest.mark.parametrize(
    "flags",
    [
        ("--prompt-lookup", 2),
        ("--draft-layers", 1, "--speculation-length", 3),
        ("--prompt-lookup", 2, "--speculative-adaptive"),
        ("--speculative-model", "MODEL", "--num-speculative-tokens", 3),
        ("--draft-layers", 1, "--enable-fused-speculation", "--tp", 2),
        ("--draft-model-path", "MODEL", "--enable-fused-speculation"),
    ],
)
@pytest.mark.one_in(2)
def test_answers_are_those_of_plain_decoding(small_gguf: Path, flags: tuple[object, ...]):
    given = [small_gguf if flag == "MODEL" else flag for flag in flags]
    plain = facts("generate", small_gguf, *ASK)
    found = facts("generate", small_gguf, *ASK, *given)
    assert [row["tokens"] for row in found["outputs"]] == [
        row["tokens"] for row in plain["outputs"]
    ]
    assert found["speculation"]["launches"] <= 11
    assert "speculation" not in plain
    # A row's steps take as long as its tokens, of which the first is the prompt's.
    each = found["timings"]["ms_per_token"] * found["speculation"]["tokens_per_step"]
    assert 0 < each * found["speculation"]["launches"] < 60_000
    if "MODEL" in flags:
        assert found["speculation"]["tokens_per_step"] > 3


def test_an_artifact_of_fused_programs_speculates_by_itself(small_gguf: Path, tmp_path: Path):
    kept, flags = (
        tmp_path / "kept",
        ("--draft-model-path", small_gguf, "--enable-fused-speculation"),
    )
    plain = facts("generate", small_gguf, *ASK)
    first = facts("generate", small_gguf, *ASK, *flags, "--artifact", kept)
    again = facts("generate", small_gguf, *ASK, *flags, "--artifact", kept)
    alone = facts("generate", kept, *ASK)
    for found in (first, again, alone):
        assert [row["tokens"] for row in found["outputs"]] == [
            row["tokens"] for row in plain["outputs"]
        ]
        assert found["speculation"]["tokens_per_step"] > 3
    other = error("generate", small_gguf, *ASK, "--on-device-sampling", "--artifact", kept)
    assert "was made from other weights" in " ".join(other.split())
    assert "programs that accept by themselves are for generate" in " ".join(
        error("serve", kept, "--port", 0).split()
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--speculation-length", 4), "--speculation-length has no effect: nothing proposes"),
        (("--num-speculative-tokens", 4), "--num-speculative-tokens has no effect"),
        (("--prompt-lookup", 2, "--draft-layers", 1), "exclude each other"),
        (("--prompt-lookup", 2, "--speculation-length", 1), "leaves no token to propose"),
        (
            ("--prompt-lookup", 2, "--speculation-length", 4, "--num-speculative-tokens", 4),
            "the length counts the last token too",
        ),
        (("--speculative-max-model-len", 64), "--speculative-max-model-len has no effect"),
        (("--speculative-adaptive",), "--speculative-adaptive has no effect: nothing proposes"),
        (("--prompt-lookup", 2, "--async-mode"), "speculation and async_mode exclude each other"),
        (("--enable-fused-speculation",), "--enable-fused-speculation has no effect: nothing"),
        (("--prompt-lookup", 2, "--enable-fused-speculation"), "its programs have a draft and one"),
        (
            ("--draft-layers", 1, "--enable-fused-speculation", "--weights", "kept"),
            "joins the checkpoints of a model and its draft",
        ),
        (("--draft-layers", 1, "--enable-fused-speculation", "--async-mode"), "exclude each other"),
        (("--draft-layers", 99), "99 layers of a model that has"),
    ],
)
def test_flags_that_say_nothing_are_refused(
    small_gguf: Path, flags: tuple[object, ...], message: str
):
    assert message in " ".join(error("generate", small_gguf, *ASK, *flags).split())


def test_a_draft_with_other_tokens_is_refused(small_gguf: Path):
    for fused in ((), ("--enable-fused-speculation",)):
        found = error("generate", small_gguf, *ASK, "--draft-model-path", "smollm2", *fused)
        assert "has another tokenizer" in " ".join(found.split())


def test_programs_of_an_artifact_verify_what_they_were_compiled_for(
    small_gguf: Path, tmp_path: Path
):
    kept = tmp_path / "kept"
    flags = ("--prompt-lookup", 2, "--speculation-length", 3)
    first = facts("generate", small_gguf, *ASK, *flags, "--artifact", kept)
    again = facts("generate", kept, *ASK, *flags)
    assert again["outputs"] == first["outputs"]
    found = error("generate", kept, *ASK, "--prompt-lookup", 2, "--speculation-length", 5)
    assert "speculation_length" in found


def test_acceptance_and_times_are_measured(small_gguf: Path, text: Path, tmp_path: Path):
    picture = tmp_path / "k.svg"
    options = ("--text", text, "--prompts", 2, "--prompt-tokens", 8, "--max-new-tokens", 10)
    flags = ("--draft-model-path", small_gguf, "--lengths", "2,3")
    found = facts("speculate", small_gguf, *flags, *options)
    # The small_gguf accepts its own proposals, but where an answer ends.
    assert found["accepted"][0] > 0.7
    assert [row["speculation_length"] for row in found["lengths"]] == [2, 3]
    for row in found["lengths"]:
        expected = 1 + sum(found["accepted"][: row["speculation_length"] - 1])
        assert row["tokens_per_step"] == pytest.approx(expected)
        assert row["ratio"] == pytest.approx(found["decode_s"] * expected / row["step_s"])
    shown = done("speculate", small_gguf, *flags, *options, "--plot", picture).stdout
    assert "tokens a step" in shown
    assert picture.read_text().lstrip().startswith("<?xml")


def test_an_accelerator_bounds_the_time_of_a_step():
    flags = ("--draft-model-path", "llama-3.2-1b", "--target", "trn2", "--tp", 64)
    (row,) = facts("speculate", "llama-3.1-405b", *flags, "--lengths", 7, "--token-ms", 8.27)
    # The published time a token, times the most tokens of a step, is above the bound.
    assert row["step_s"] < 7 * 8.27e-3
    assert row["step_s"] == pytest.approx(6 * row["draft_s"] + row["verify_s"])
    assert row["tokens"] == pytest.approx(row["step_s"] / 8.27e-3)
    assert sum(row["acceptance"] ** n for n in range(7)) == pytest.approx(row["tokens"])
    # Without --dtype the type is the one that devices run models in.
    (same,) = facts("speculate", "llama-3.1-405b", *flags, "--lengths", 7, "--dtype", "bf16")
    assert same["step_s"] == row["step_s"]
    # A bound: a decode step was measured with 37.93 ms.
    assert row["decode_s"] < 37.93e-3


# AWS's published run: 37.93 ms a token without proposals and quantization, 8.27 ms with them.
PUBLISHED = (
    *("llama-3.1-405b", "--draft-model-path", "llama-3.2-1b", "--target", "trn2", "--tp", 64),
    *("--lengths", 7, "--seq-len", 12800, "--quantized", "--quantization-dtype", "f8e4m3"),
    *("--modules-to-not-convert", "self_attn", "--modules-to-not-convert", "lm_head"),
)


def test_assumptions_are_apart_from_bounds():
    flags = ("--measured-decode-ms", 37.93, "--token-ms", 8.27, "--speedups", "4.02,4.59,12")
    (row,) = facts("speculate", *PUBLISHED, *flags, "--acceptance", 0.7)
    assert row["plain_s"] > row["decode_s"]
    assert row["efficiency"] == pytest.approx(row["plain_s"] / 37.93e-3)
    assert row["expected_step_s"] == pytest.approx(row["step_s"] / row["efficiency"])
    assert row["expected_tokens"] == pytest.approx(row["expected_step_s"] / 8.27e-3)
    # At the bound the same time a token needs fewer accepted proposals.
    assert row["acceptance"] < row["expected_acceptance"] < 1
    tokens = sum(0.7**place for place in range(7))
    assert row["predicted_token_s"] == pytest.approx(row["expected_step_s"] / tokens)
    assert row["predicted_ratio"] == pytest.approx(37.93e-3 / row["predicted_token_s"])
    # 37.93 / 8.27 = 4.59: the same acceptance, from the ratio alone.
    assert row["needed"]["4.59"] == pytest.approx(row["expected_acceptance"], abs=0.005)
    assert row["needed"]["4.02"] < row["needed"]["4.59"]
    assert row["needed"]["12"] is None
    # The bound of a stated efficiency is the same.
    stated = ("--efficiency", row["efficiency"], "--token-ms", 8.27)
    (same,) = facts("speculate", *PUBLISHED, *stated)
    assert same["expected_acceptance"] == pytest.approx(row["expected_acceptance"])
    assert same["predicted_token_s"] is None


def test_nothing_is_predicted_without_an_acceptance():
    shown = done("speculate", *PUBLISHED).stdout
    assert "At the bound (roofline)" in shown
    assert "Predicted" not in shown
    assert "Assumed" not in shown
    shown = done("speculate", *PUBLISHED, "--efficiency", 0.5, "--acceptance", 0.7).stdout
    assert "Assumed efficiency 50.0% of the bound" in shown
    assert "Predicted with an acceptance of 70% a proposal" in shown


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--measured-decode-ms", 2), "--measured-decode-ms 2 is below the bound of"),
        (("--measured-decode-ms", 38, "--efficiency", 0.5), "--efficiency has no effect as"),
        (("--efficiency", 0), "speculate: efficiency is 0.0, expected a number in (0, 1]"),
        (("--speedups", "4,x"), "--speedups 4,x: expected a number > 0"),
    ],
)
def test_assumptions_that_contradict_are_refused(flags: tuple[object, ...], message: str):
    assert message in " ".join(error("speculate", *PUBLISHED, *flags).split())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "nothing proposes tokens"),
        (("--prompt-lookup", 2), "there is no text to take prompts from"),
        (("--prompt-lookup", 2, "--token-ms", 3), "--token-ms has no effect without --target"),
        (("--prompt-lookup", 2, "--lengths", "1,2"), "a step verifies 2 tokens or more"),
        (("--prompt-lookup", 2, "--target", "trn2", "--plot", "x.svg"), "has no effect with"),
    ],
)
def test_questions_that_have_no_answer_are_refused(
    small_gguf: Path, flags: tuple[object, ...], message: str
):
    assert message in " ".join(error("speculate", small_gguf, *flags).split())


def test_the_expected_speed_of_each_length():
    seconds = StepSeconds(decode=10.0, draft=2.0, verify={2: 11.0, 3: 12.0, 9: 20.0})
    two, three = speedups([0.5, 0.25], seconds)
    assert (two.tokens, two.step_s, two.ratio) == (1.5, 13.0, pytest.approx(15 / 13))
    assert (three.tokens, three.step_s) == (1.75, 16.0)


@pytest.mark.parametrize(("tokens", "length"), [(0.99, 5), (3.01, 3)])
def test_no_acceptance_gives_fewer_tokens_than_one_or_more_than_k(tokens: float, length: int):
    assert implied_acceptance(tokens, length) is None
    times = StepSeconds(decode=1.0, draft=0.0, verify={length: 1.0})
    assumed = SpeedAssumptions(token_s=1 / tokens)
    made = step_bound(times, length, assumed)
    assert (made.tokens, made.acceptance) == (None, None)
    table = bound_report("m", "trn2", [made], assumed)[-1]
    assert isinstance(table, Table)
    assert table.rows[0][1:3] == ("none", "none")


@pytest.mark.parametrize(("tokens", "length", "expected"), [(1.0, 5, 0.0), (3.0, 3, 1.0)])
def test_the_implied_acceptance_at_its_ends(tokens: float, length: int, expected: float):
    assert implied_acceptance(tokens, length) == pytest.approx(expected, abs=1e-6)
