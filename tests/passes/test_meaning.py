"""Every stage of the pipeline means what the model means, call after call.

The script is what a serving system does: a ragged prefill with padding on either side, then steps
of one token, of which one leaves a row idle, one crosses into the next bucket and one calls fewer
rows in another order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.eval import MEANING, NATIVE, Arithmetic, Array, evaluate, evaluate_ranks
from graphgen.ir import (
    RANK,
    WEIGHTS_GLOBAL,
    WEIGHTS_RANK,
    Dim,
    Entry,
    Function,
    Module,
    Role,
    attrs_of,
    dtype,
)
from graphgen.ir.clone import Cloner
from graphgen.lowering.cpu import compile_program
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.pipelines import default

pytestmark = pytest.mark.usefixtures("optimized_code")

ROWS, SLOTS = 3, 16
IDLE = ROWS
BUCKETS = CompileConfig(batch=(2, 3), context=(8,), tokens=(8, 16))
VOCABULARY = 257


@dataclass(frozen=True)
class Call:
    """One call, and the rows whose logits mean something."""

    phase: str
    dims: Mapping[str, Dim]
    inputs: Mapping[str, Array]
    active: Sequence[int]


def call(
    phase: str, slots: int, positions: list[list[int]], lengths: list[int], seq_ids: list[int]
) -> Call:
    at = np.array(positions, np.int32)
    random = np.random.default_rng(len(positions) * slots + sum(lengths))
    inputs = {
        "tokens": random.integers(0, VOCABULARY, at.shape).astype(np.int32),
        "positions": at,
        "lengths": np.array(lengths, np.int32),
        "seq_ids": np.array(seq_ids, np.int32),
    }
    dims = {"B": at.shape[0], "S": at.shape[1], "C": slots, "R": ROWS, "M": SLOTS}
    active = [row for row, seq_id in enumerate(seq_ids) if seq_id != IDLE]
    return Call(phase, dims, inputs, active)


SCRIPT = (
    # Five tokens with padding behind, three with padding in front, seven of eight.
    call(
        "prefill",
        8,
        [[0, 1, 2, 3, 4, -1, -1, -1], [-1, -1, -1, -1, -1, 0, 1, 2], [0, 1, 2, 3, 4, 5, 6, -1]],
        [5, 3, 7],
        [0, 1, 2],
    ),
    call("decode", 8, [[5], [3], [7]], [6, 4, 8], [0, 1, 2]),
    # The second row is idle; the third needs the next bucket.
    call("decode", 16, [[6], [0], [8]], [7, 0, 9], [0, IDLE, 2]),
    # Two rows, in another order: their cache rows are looked up.
    call("decode", 16, [[9], [7]], [10, 8], [2, 0]),
)


def weights_of(module: Module, kind: type[np.floating]) -> dict[str, Array]:
    random = np.random.default_rng(7)
    out: dict[str, Array] = {}
    for row in module.entries(Role.WEIGHT):
        values = random.standard_normal(row.logical.dims)
        scale = 0.5 if row.logical.rank > 1 else 0.2
        # Norm weights lie around one.
        out[row.name] = (scale * values + (row.logical.rank == 1)).astype(kind)
    return out


class Runner:
    """Runs the script over a module at any stage: logical in, logical out."""

    def __init__(self, module: Module, how: Arithmetic) -> None:
        self.module = module
        self.how = how
        kind = np.float64 if how is MEANING else np.float32
        weights = weights_of(module, kind)
        shared = self.weights_program(WEIGHTS_GLOBAL, weights)
        self.ranks: list[dict[str, Array]] = []
        for rank in range(module.ranks):
            given = {**weights, **shared, RANK: np.array([rank], np.int32)}
            self.ranks.append({**given, **self.weights_program(WEIGHTS_RANK, given)})
        for row in module.entries(Role.STATE):
            shape = [{"R": ROWS, "M": SLOTS}.get(str(dim), dim) for dim in row.logical.shape]
            whole = np.zeros([int(str(dim)) for dim in shape], kind)
            for rank, part in enumerate(self.packed(row, whole)):
                self.ranks[rank][row.name] = part

    def weights_program(self, name: str, given: Mapping[str, Array]) -> dict[str, Array]:
        function = self.module.functions.get(name)
        return evaluate(function, given, self.how) if function else {}

    def packed(self, row: Entry, whole: Array) -> list[Array]:
        ranks = range(self.module.ranks)
        if not row.pack:
            return [whole for _ in ranks]
        pack = self.module.function(row.pack)
        given = [{"whole": whole, RANK: np.array([rank], np.int32)} for rank in ranks]
        return [evaluate(pack, each, self.how)["part"] for each in given]

    def unpacked(self, row: Entry) -> Array:
        parts = [rank[row.name] for rank in self.ranks]
        if not row.unpack:
            for part in parts:
                np.testing.assert_array_equal(part, parts[0])
            return parts[0]
        function = self.module.function(row.unpack)
        return evaluate(function, {"parts": np.stack(parts)}, self.how)["whole"]

    def program(self, each: Call) -> Function:
        """The program of this phase and these sizes, bound where it still has symbols."""
        for function in self.module.programs():
            fits = all(each.dims[name] == size for name, size in function.dims.items())
            if function.phase == each.phase and fits:
                bound = Function(function.name, function.phase)
                Cloner(symbols=each.dims).function(function, bound)
                return bound
        raise AssertionError(f"no program for {each}")

    def launch(self, each: Call) -> list[dict[str, Array]]:
        ranks = [{**rank, **each.inputs} for rank in self.ranks]
        return evaluate_ranks(self.program(each), ranks, self.how)

    def run(self) -> list[dict[str, Array]]:
        """Per call, the logits of active rows and every state, all as the user knows them."""
        results: list[dict[str, Array]] = []
        states = self.module.entries(Role.STATE)
        for each in SCRIPT:
            outs = self.launch(each)
            for rank, out in enumerate(outs):
                self.ranks[rank] |= {row.name: out[row.name] for row in states}
                np.testing.assert_array_equal(out["logits"], outs[0]["logits"])
            result = {row.name: self.unpacked(row) for row in states}
            results.append({**result, "logits": outs[0]["logits"][list(each.active)]})
        return results


class OnDevices(Runner):
    """The same, compiled by XLA for virtual devices."""

    def launch(self, each: Call) -> list[dict[str, Array]]:
        name = next(
            f.name
            for f in self.module.programs()
            if f.phase == each.phase and all(each.dims[k] == size for k, size in f.dims.items())
        )
        program = compile_program(self.module, self.module.function(name))
        return program.run_numpy([{**rank, **each.inputs} for rank in self.ranks])


def assert_close(
    ours: list[dict[str, Array]], wanted: list[dict[str, Array]], tolerance: float
) -> None:
    for number, (mine, theirs) in enumerate(zip(ours, wanted, strict=True)):
        assert mine.keys() == theirs.keys()
        for name, array in theirs.items():
            scale = max(float(np.abs(array).max()), 1.0)
            pair = [x.astype(np.float64) for x in (mine[name], array)]
            where = f"call {number}, {name}"
            np.testing.assert_allclose(*pair, rtol=0, atol=tolerance * scale, err_msg=where)


MODELS = {
    "llama": {**known_shape("llama-3.1-8b")},
    "tied": {**known_shape("smollm2-135m")},
    "biased": {
        **known_shape("llama-3.1-8b"),
        "attention_bias": True,
        "mlp_bias": True,
        "head_dim": 64,
    },
    "gpt2": known_shape("gpt2"),
    "bloom": known_shape("bloom-560m"),
}


def logical(model: str, kind: str) -> Module:
    return build(MODELS[model], dtype(kind), mini=True)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.one_in(7)
def test_every_stage_means_the_same(model: str, tp: int, kind: str):
    wanted = Runner(logical(model, kind), MEANING).run()
    assert all(np.isfinite(array).all() for result in wanted for array in result.values())
    stages: list[str] = []

    def after(item: Pass, module: Module) -> None:
        stages.append(item.name)
        assert_close(Runner(module, MEANING).run(), wanted, 1e-9)

    run_pipeline(logical(model, kind), default(replace(BUCKETS, tp=tp)), after=after)
    assert len(stages) == len(default(replace(BUCKETS, tp=tp)))


@pytest.mark.parametrize(
    ("tp", "kind", "tolerance"), [(1, "f32", 1e-5), (2, "f32", 1e-5), (1, "bf16", 0.05)]
)
@pytest.mark.one_in(3)
def test_xla_computes_the_same(tp: int, kind: str, tolerance: float):
    # Rounded weights make a difference of their own, so 16 bits are compared with 16 bits.
    wanted = Runner(logical("llama", kind), MEANING if kind == "f32" else NATIVE).run()
    module = logical("llama", kind)
    run_pipeline(module, default(replace(BUCKETS, tp=tp)))
    ours = OnDevices(module, NATIVE).run()
    assert_close(ours, wanted, tolerance)
    check_idle_rows(ours)


def check_idle_rows(results: list[dict[str, Array]]) -> None:
    """Rows that a call does not name keep their cache, bit for bit."""
    for number in range(1, len(SCRIPT)):
        untouched = set(range(ROWS)) - set(SCRIPT[number].inputs["seq_ids"].tolist())
        for name, array in results[number].items():
            if name == "logits":
                continue
            for row in range(ROWS):
                before, now = results[number - 1][name][row], array[row]
                same = np.array_equal(before.view(np.uint8), now.view(np.uint8))
                assert same == (row in untouched), f"call {number}, {name}, row {row}"


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("tp", [1, 2])
def test_an_idle_row_keeps_its_cache(tp: int, kind: str):
    module = logical("llama", kind)
    check_idle_rows(Runner(logical("llama", kind), NATIVE).run())
    run_pipeline(module, default(replace(BUCKETS, tp=tp)))
    check_idle_rows(Runner(module, NATIVE).run())


def test_the_script_is_as_ragged_as_it_says():
    first = SCRIPT[0].inputs["positions"]
    assert (first[0, -1], first[1, 0]) == (-1, -1)
    assert [each.dims["C"] for each in SCRIPT] == [8, 8, 16, 16]
    assert [len(each.active) for each in SCRIPT] == [3, 3, 2, 2]
    assert SCRIPT[3].dims["B"] == 2


def test_the_comparison_can_fail():
    module = logical("llama", "f32")
    wanted = Runner(module, MEANING).run()
    changed = logical("llama", "f32")
    op = next(op for op in changed.function("decode").ops if op.name == "attention")
    op.attrs = attrs_of({**op.attrs, "scale": op.attrs.number("scale") * (1 + 1e-6)})
    with pytest.raises(AssertionError, match=r"call 1, .*"):
        assert_close(Runner(changed, MEANING).run(), wanted, 1e-9)
