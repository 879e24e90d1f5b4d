"""Advice on ladders and rows: the numbers against sums over single requests, and the command."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from graphgen.cli.main import app
from graphgen.cli.plan_report import ladder_report
from graphgen.config.bucket_ladder import powers
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.plan.bucket_seconds import bucket_seconds
from graphgen.lowering.plan.ladder_advice import LadderAdvice, advise_ladders
from graphgen.lowering.plan.measure import estimate
from graphgen.lowering.plan.request_lengths import RequestLengths
from graphgen.models import known_shape
from graphgen.report.table import render
from graphgen.targets import accelerator

SMOLLM2 = known_shape("smollm2-135m")
TRN1 = accelerator("trn1")
LENGTHS = RequestLengths({(700, 40): 30, (90, 200): 20, (1000, 20): 2, (300, 1): 5})


@cache
def advice(rows: int = 2, executable_bytes: int = 0) -> LadderAdvice:
    demand = CompileConfig(dtype="bf16")
    return advise_ladders(SMOLLM2, TRN1, demand, LENGTHS, 1, rows, executable_bytes)


def times(phase: str, sizes: tuple[int, ...], rows: int) -> Mapping[int, float]:
    demand = CompileConfig(
        dtype="bf16", tp=1, batch=(rows,), slots=1024, context=sizes, tokens=sizes
    )
    return bucket_seconds(SMOLLM2, TRN1, demand, phase, period=1)


def test_the_time_of_prompts_is_that_of_each_in_its_bucket():
    for option in advice().ladders:
        time = times("prefill", option.context, 1)
        alone = {p: min(b for b in option.context if b >= p) for p, _ in LENGTHS.counts}
        whole = sum(time[alone[p]] * n for (p, _), n in LENGTHS.counts.items())
        assert option.prefill_s == pytest.approx(whole / LENGTHS.requests)
        padded = sum(alone[p] * n for (p, _), n in LENGTHS.counts.items())
        held = sum(p * n for (p, _), n in LENGTHS.counts.items())
        assert option.context_padding == pytest.approx(1 - held / padded)


def test_the_time_of_steps_is_that_of_random_pairs_of_rows():
    option = advice().ladders[0]
    time = times("decode", option.tokens, 2)
    slots = [
        slot
        for (p, a), n in LENGTHS.counts.items()
        for slot in range(p + 1, p + a)
        for _ in [0] * n
    ]
    draw = random.Random(1)
    pairs = [max(draw.choice(slots), draw.choice(slots)) for _ in range(20000)]
    step = sum(time[min(b for b in option.tokens if b >= n)] for n in pairs) / len(pairs)
    per_request = len(slots) / LENGTHS.requests / 2
    assert option.decode_s == pytest.approx(step * per_request, rel=0.01)


def test_the_time_of_a_deep_model_is_that_of_all_its_layers():
    config = {**SMOLLM2, "num_hidden_layers": 6}
    demand = CompileConfig(dtype="bf16", tp=1, context=(128, 256), tokens=(128, 256), slots=256)
    for phase in ("prefill", "decode"):
        few = bucket_seconds(config, TRN1, demand, phase, period=1)
        assert few == pytest.approx(bucket_seconds(config, TRN1, demand, phase, period=0))


def test_memory_is_that_of_the_rows_and_of_each_executable():
    made = advice()
    demand = CompileConfig(
        target="trn1", dtype="bf16", batch=(2,), prefill_batch=(1,), context=(1024,), slots=1024
    )
    use = estimate(SMOLLM2, replace(demand, tokens=(1024,)), 1)
    assert [item.bytes for item in made.rows] == [use.total]
    for option in made.ladders:
        assert option.bytes == use.total + TRN1.code_bytes * option.executables
    assert made.demand.batch == (2,)


def test_no_rule_of_thumb_is_faster_with_as_many_buckets():
    advised, rule, close, one = advice().ladders
    assert (rule.context, rule.tokens) == (powers(1024), powers(1024))
    assert set(rule.context) < set(close.context)
    assert (one.context, one.tokens) == ((1024,), (1024,))
    assert advised.seconds <= 1.01 * min(rule.seconds, one.seconds)
    assert advised.executables < rule.executables


def test_buckets_every_256_tokens_around_a_length_as_the_guide_has_them():
    lengths = RequestLengths({(1000, 4): 1, (2000, 4): 1})
    made = advise_ladders(SMOLLM2, TRN1, CompileConfig(dtype="bf16"), lengths, 1, 1)
    assert made.ladders[2].context == (128, 256, 512, 1024, 1280, 1536, 1792, 2048)


def test_large_executables_leave_room_for_fewer():
    made = advice(2, 5 * 10**9)
    assert made.rows[0].executables == 3
    assert made.ladders[0].executables <= 3
    assert made.ladders[0].rows_fit == 2
    # The powers of two do not fit beside them.
    assert made.ladders[1].rows_fit == 0
    with pytest.raises(GraphgenError, match=r"does not hold 2 rows, each a row of 1024 positions"):
        advice(2, 9 * 10**9)


@pytest.mark.slow
def test_rows_are_powers_of_two_up_to_what_fits():
    made = advise_ladders(
        SMOLLM2, TRN1, CompileConfig(dtype="bf16"), LENGTHS, 1, executable_bytes=5 * 10**9
    )
    assert [item.rows for item in made.rows] == [1 << n for n in range(len(made.rows))]
    assert made.rows[-1].executables < 2 or made.rows[-1].rows == 256
    fitting = [item for item in made.rows if item.executables >= 2]
    best = min(item.seconds for item in fitting)
    (chosen,) = [item for item in made.rows if item.rows == made.demand.cache_rows]
    assert chosen.seconds <= 1.01 * best
    assert all(item.seconds > 1.01 * best for item in fitting if item.rows < chosen.rows)


def plan(file: Path, *arguments: str) -> Result:
    given = ["plan", "smollm2-135m", "--target", "trn1", "--tp", "1", "--lengths", str(file)]
    return CliRunner().invoke(app, [*given, *arguments])


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lengths") / "lengths.csv"
    rows = [f"{p},{a},{n}" for (p, a), n in LENGTHS.counts.items()]
    path.write_text("\n".join(["prompt,answer,count", *rows]), encoding="utf-8")
    return path


def test_the_table_and_the_flags(golden: Callable[[str, str], None]):
    shown = render(ladder_report("smollm2-135m", advice()), StringIO())
    golden("lowering/plan/smollm2-advice.txt", shown)


def test_json_has_the_same_numbers_and_flags_of_generate(file: Path):
    shown = plan(file, "--batch", "2", "--json")
    assert shown.exit_code == 0, shown.output
    found, made = json.loads(shown.stdout), advice()
    assert [item["seconds"] for item in found["ladders"]] == [item.seconds for item in made.ladders]
    assert found["advised"]["context"] == list(made.demand.context)
    assert found["requests"]["count"] == 57
    assert found["rows"][0]["fits"] is True
    help_text = CliRunner().invoke(app, ["generate", "--help"], env={"COLUMNS": "200"}).stdout
    names = [flag for flag in found["advised"]["flags"] if flag.startswith("--")]
    assert names
    assert all(name in help_text for name in names)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["--seq", "512"], "--seq has no meaning with --lengths"),
        (["--context", "512"], "--context has no meaning with --lengths"),
        (["--rules", "aws"], "--rules aws has no meaning with --lengths"),
    ],
    ids=["seq", "context", "rules"],
)
def test_options_that_the_file_replaces(file: Path, arguments: list[str], what: str):
    shown = plan(file, *arguments)
    assert shown.exit_code == 1
    assert what in shown.stderr


def test_executables_without_lengths():
    shown = CliRunner().invoke(app, ["plan", "smollm2-135m", "--executable-bytes", "5"])
    assert shown.exit_code == 1
    assert "--executable-bytes has no meaning without --lengths" in shown.stderr
