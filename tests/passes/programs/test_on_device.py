"""Tokens chosen in the graph are those the host chooses with the same random numbers."""

from __future__ import annotations

import numpy as np
import pytest

from graphgen.build import Builder
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.eval import evaluate, evaluate_ranks
from graphgen.exec.session import Runner
from graphgen.ir import Function, Module, Role, dtype
from graphgen.lowering.cpu import compile_program
from graphgen.models import build, known_shape
from graphgen.ops import verify
from graphgen.passes.core import parse_pipeline, run_pipeline
from graphgen.passes.pipelines import parse as pipeline
from graphgen.passes.programs.token_choice import sample
from graphgen.passes.workload.make_workload import make_workload
from graphgen.runtime.sampling import Sampling
from graphgen.runtime.sampling.choose_token import draw
from graphgen.runtime.sampling.processors import probabilities, process
from tests.oracles.minis import MINIS

ROWS, VOCABULARY = 24, 37
RNG = np.random.default_rng(5)
LOGITS = (3 * RNG.standard_normal((ROWS, VOCABULARY))).astype(np.float32)
PARAMS = np.stack(
    [
        RNG.choice([0, 1, 3, 10, 36, 37, 90], ROWS),
        RNG.choice([0.05, 0.3, 0.8, 0.97, 1.0], ROWS),
        RNG.choice([0.3, 1.0, 1.7], ROWS),
    ],
    1,
).astype(np.float32)


def program(global_topk: int = 0) -> Module:
    module = Module("m")
    function = module.add(Function("f", phase="decode"))
    with Builder(function, module) as b:
        logits = b.input("logits", dtype("f32"), (ROWS, VOCABULARY))
        params = b.input("params", dtype("f32"), (ROWS, 3))
        random = b.input("random", dtype("f32"), (ROWS,))
        b.output("tokens", sample(b, logits, params, random, global_topk))
    verify(module)
    return module


def on_numpy(module: Module, **given: np.ndarray) -> np.ndarray:
    return evaluate(module.function("f"), given)["tokens"]


def setting(row: int) -> Sampling:
    top_k, top_p, temperature = (float(value) for value in PARAMS[row])
    return Sampling(do_sample=True, top_k=int(top_k), top_p=top_p, temperature=temperature)


def wanted(row: int, number: float) -> int:
    return draw(process(LOGITS[row], [], setting(row)), number)


def borderline(row: int, number: float) -> bool:
    """Whether rounding may choose the neighbor: the number is next to the end of a token's part."""
    near = (number - 1e-5, number + 1e-5)
    return len({wanted(row, float(np.clip(n, 0, 1 - 1e-9))) for n in near}) > 1


@pytest.mark.parametrize("where", ["numpy", "xla"])
def test_host_and_device_agree(where: str):
    module = program()
    compiled = None
    if where == "xla":
        run_pipeline(module, parse_pipeline("legalize"))
        compiled = compile_program(module, module.function("f"))
    compared = 0
    for seed in range(12):
        random = np.random.default_rng(seed).random(ROWS).astype(np.float32)
        given = {"logits": LOGITS, "params": PARAMS, "random": random}
        got = (
            compiled.run_numpy([given])[0]["tokens"]
            if compiled is not None
            else on_numpy(module, **given)
        )
        for row in range(ROWS):
            if not borderline(row, float(random[row])):
                assert got[row] == wanted(row, float(random[row])), (seed, row)
                compared += 1
    assert compared > 0.95 * 12 * ROWS


def test_the_tokens_left_are_transformers_own():
    # Every number in [0, 1) falls on some token: those are the ones that are left.
    module = program()
    seen: list[set[int]] = [set() for _ in range(ROWS)]
    for number in np.linspace(0, 1, 400, endpoint=False, dtype=np.float32):
        random = np.full(ROWS, number)
        for row, token in enumerate(on_numpy(module, logits=LOGITS, params=PARAMS, random=random)):
            seen[row].add(int(token))
    for row in range(ROWS):
        left = probabilities(process(LOGITS[row], [], setting(row)))
        assert seen[row] <= set(np.flatnonzero(left).tolist())
        assert seen[row] >= set(np.flatnonzero(left > 0.01).tolist())


def test_no_row_sees_another():
    module, random = program(), np.linspace(0, 0.99, ROWS).astype(np.float32)
    alone = on_numpy(module, logits=LOGITS, params=PARAMS, random=random)
    others = LOGITS.copy()
    others[1:] = LOGITS[:-1]
    params = PARAMS.copy()
    params[1:] = [1, 0.01, 0.1]
    assert on_numpy(module, logits=others, params=params, random=random)[0] == alone[0]


def test_only_the_best_tokens_are_looked_at():
    params = np.tile(np.array([0, 1, 5], np.float32), (ROWS, 1))
    best = np.argsort(-LOGITS, 1)[:, :4]
    for number in (0.0, 0.4, 0.9999999):
        random = np.full(ROWS, number, np.float32)
        got = on_numpy(program(4), logits=LOGITS, params=params, random=random)
        assert all(token in row for token, row in zip(got, best, strict=True))


# ---- as a pass -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", MINIS)
@pytest.mark.one_in(9)
def test_every_family_gives_its_best_tokens(name: str, tp: int):
    module = build(known_shape(name), dtype("f32"), mini=True)
    first = pipeline("canonicalize,on-device-sampling{output_logits=true}")
    run_pipeline(module, first)
    script = make_workload(module, seed=2)
    run_pipeline(
        module,
        pipeline(f"default{{tp={tp}}}", CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))),
    )
    for call, outcome in zip(script.calls, Runner(module, script).outcomes(), strict=True):
        assert outcome["logits"].shape[0] == len(call.active or range(3))
        np.testing.assert_array_equal(outcome["next_tokens"], outcome["logits"].argmax(-1))


@pytest.mark.parametrize("tp", [1, 2])
def test_drawn_tokens_through_the_default_pipeline(tp: int):
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), phases=("decode",), mini=True)
    text = "canonicalize,on-device-sampling{do_sample=true,global_topk=0,output_logits=true}"
    run_pipeline(module, pipeline(text))
    run_pipeline(
        module,
        pipeline(f"default{{tp={tp}}}", CompileConfig(batch=(3,), context=(8,), tokens=(8,))),
    )
    (function,) = module.programs()
    rng = np.random.default_rng(3)
    ranks = []
    for rank in range(tp):
        given = {}
        for value in function.args:
            name = value.name or ""
            if name == "rank":
                given[name] = np.array([rank], np.int32)
            elif value.dtype.is_float:
                given[name] = (
                    np.random.default_rng(len(name))
                    .standard_normal(value.type.dims)
                    .astype(np.float32)
                )
            else:
                given[name] = np.zeros(value.type.dims, np.int32)
        given |= {
            "lengths": np.ones(3, np.int32),
            "seq_ids": np.arange(3, dtype=np.int32),
            "sampling_params": np.array([[5, 0.9, 1], [0, 1, 2], [1, 1, 1]], np.float32),
            "random": np.array([0.3, 0.7, 0.9], np.float32),
        }
        ranks.append(given)
    del rng
    found = evaluate_ranks(function, ranks)
    # Ranks of transformers-neuronx draw with generators of their own, and choose different tokens.
    for results in found:
        np.testing.assert_array_equal(results["next_tokens"], found[0]["next_tokens"])
    for results in found:
        for row, (top_k, top_p, temperature) in enumerate(ranks[0]["sampling_params"].tolist()):
            how = Sampling(do_sample=True, top_k=int(top_k), top_p=top_p, temperature=temperature)
            scores = process(results["logits"][row], [], how)
            number = float(ranks[0]["random"][row])
            assert results["next_tokens"][row] == draw(scores, number)


def test_the_same_number_each_time_takes_no_input_for_it():
    module = build(known_shape("llama-3.1-8b"), dtype("f32"), mini=True)
    run_pipeline(module, parse_pipeline("on-device-sampling{do_sample=true,deterministic=true}"))
    verify(module)
    assert "random" not in module.interface
    assert module.interface["sampling_params"].role is Role.INPUT
    assert "logits" not in module.interface
    assert [name for name, _ in module.function("decode").outputs if name == "logits"] == []


def test_what_gives_no_logits_is_refused():
    with pytest.raises(GraphgenError, match="no program gives logits"):
        run_pipeline(program(), parse_pipeline("on-device-sampling"))
