"""Whole compilations proved to refine the model, and faults that are not."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from graphgen.ir import Literal, Module, Op, attrs_of
from graphgen.ir.clone import clone_module
from graphgen.ir.dtype import bf16, s32
from graphgen.models import build
from graphgen.passes.core import run_pipeline
from graphgen.passes.core.pipeline import run_pass
from graphgen.passes.pipelines import parse
from graphgen.passes.proof.pass_proof import Status
from graphgen.passes.proof.prove_pass import prove_pass
from graphgen.passes.proof.refinement import prove_refinement
from graphgen.text import parse as parse_module
from tests.matrix.axes import config_of
from tests.planted.faults import Fault, given, planted

ROOT = Path(__file__).resolve().parents[3]
PROVED = (Status.PROVED, Status.REAL)


@cache
def model(family: str) -> Module:
    return build(config_of(family), bf16, mini=True)


@cache
def compiled(family: str, options: str) -> Module:
    module = clone_module(model(family))
    run_pipeline(module, parse(f"small{{context=[8],tokens=[8],{options}}}"))
    return module


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("llama", "tp=1,target=cpu"),
        ("llama", "tp=2,target=cpu"),
        ("llama", "tp=2,target=trn2"),
        ("bloom", "tp=2,target=cpu"),
        # Heads that do not divide; a norm over all of them.
        ("qwen2", "tp=4,target=cpu"),
        ("olmo2", "tp=4,target=cpu"),
        # Fewer heads of caches than ranks.
        ("qwen2_moe", "tp=4,target=trn2"),
        # Products of three matrices; one expert a token.
        ("deepseek_v2", "tp=2,target=cpu"),
        ("llama4_text", "tp=1,target=cpu"),
    ],
)
def test_a_whole_compilation_is_proved(family: str, options: str) -> None:
    found = prove_refinement(model(family), compiled(family, options))
    assert not found.open, found.open
    outputs = sum(len(f.outputs) for f in compiled(family, options).programs())
    assert len(found.claims) == outputs
    # Rows of a call are rows of the cache, as the pipeline promises to callers.
    assert found.assumptions == ("row b of a call is row b of the caches, or idle",)


@pytest.mark.parametrize("family", ["llama", "gpt_oss", "deepseek_v2"])
def test_a_model_is_its_own_refinement_with_the_same_rounding(family: str) -> None:
    found = prove_refinement(model(family), clone_module(model(family)))
    assert {claim.status for claim in found.claims} == {Status.PROVED}, [
        *found.open,
        *found.rounding_places(),
    ]


def changed(
    family: str, options: str, which: Callable[[Op], bool], change: Callable[[Op], None]
) -> Module:
    """The compiled module with the last op of its programs changed that is chosen."""
    module = clone_module(compiled(family, options))
    found = [op for f in module.programs() for op in f.block if which(op)]
    change(found[-1])
    return module


def set_attr(name: str, value: object) -> Callable[[Op], None]:
    def change(op: Op) -> None:
        op.attrs = attrs_of({**op.attrs, name: value})  # pyright: ignore[reportArgumentType]

    return change


def is_scale(op: Op) -> bool:
    """The epsilon of a norm, or the scale of scores, of the last layer."""
    literal = op.attrs.get("value")
    return op.name == "constant" and isinstance(literal, Literal) and literal.dtype.is_float


def test_one_changed_constant_is_not_proved() -> None:
    def change(op: Op) -> None:
        literal = op.attrs.literal("value")
        number = float(literal.values()[0]) * 1.5 + 1.0
        set_attr("value", Literal.of(literal.dtype, number))(op)

    def scalar(op: Op) -> bool:
        return is_scale(op) and not op.attrs.literal("value").shape and "norm" in op.loc.scope

    wrong = changed("llama", "tp=2,target=cpu", scalar, change)
    found = prove_refinement(model("llama"), wrong)
    assert not found.complete
    # What does not read it is proved all the same.
    assert found.having(*PROVED)


def test_a_sum_over_ranks_that_is_left_out_is_not_proved() -> None:
    module = clone_module(compiled("llama", "tp=2,target=cpu"))
    for function in module.programs():
        last = [op for op in function.block if op.name == "all_reduce"][-1]
        function.replace_uses(last.result, last.operands[0])
    found = prove_refinement(model("llama"), module)
    logits = [claim for claim in found.claims if claim.output == "logits"]
    assert logits
    assert all(claim.status not in PROVED for claim in logits)
    assert all(claim.reason and any(claim.pair) for claim in logits)


def test_parts_of_ranks_in_another_order_are_not_proved() -> None:
    wrong = changed(
        "llama",
        "tp=2,target=cpu",
        lambda op: op.name == "all_gather",
        set_attr("replica_groups", ((1, 0),)),
    )
    assert not prove_refinement(model("llama"), wrong).complete


def test_a_slice_of_weights_of_another_rank_is_not_proved() -> None:
    module = clone_module(compiled("llama", "tp=2,target=cpu"))
    maker = module.function("weights.rank")
    # The start is the rank times the size of its part.
    part = next(op for op in maker.block if op.name == "dynamic_slice" and "q_proj" in op.loc.scope)
    start = part.operands[1].op
    assert start is not None
    size = start.operands[1].op
    assert size is not None
    assert size.attrs.literal("value").values() == [32]
    set_attr("value", Literal.of(s32, 16))(size)
    assert not prove_refinement(model("llama"), module).complete


def test_a_state_that_is_not_kept_whole_is_not_proved() -> None:
    module = clone_module(compiled("llama", "tp=2,target=cpu"))
    for row in module.interface.values():
        if not row.pack:
            continue
        for function in (module.function(row.pack),):
            for op in function.block:
                if op.name == "dynamic_slice":
                    zero = op.operands[1]
                    op.set_operands((op.operands[0], *[zero for _ in op.operands[1:]]))
    found = prove_refinement(model("llama"), module)
    caches = [claim for claim in found.claims if "cache" in claim.output]
    assert all(claim.status not in PROVED for claim in caches)


def test_a_program_that_is_missing_is_not_proved() -> None:
    module = clone_module(compiled("llama", "tp=1,target=cpu"))
    for function in module.programs():
        if function.phase == "decode":
            del module.functions[function.name]
    found = prove_refinement(model("llama"), module)
    assert {claim.program for claim in found.open} == {"decode"}


def test_an_output_without_rows_is_compared_as_it_is() -> None:
    text = """module @m level=target {
  input %x : f32[8]
  output %y : f32[]
}

func @f phase=decode {
  arg %x : f32[8]
  %y = reduce(%x) dimensions=[0] kind=add : f32[]
  return y = %y
}
"""
    whole = parse_module(text, "case")
    largest = parse_module(text.replace("kind=add", "kind=maximum"), "case")
    verdicts = [prove_refinement(whole, module) for module in (clone_module(whole), largest)]
    assert [x.claims[0].status for x in verdicts] == [Status.PROVED, Status.UNDECIDED]


@pytest.mark.parametrize("item", ["specialize{batch=[2],context=[8],tokens=[8]}", "heads{tp=4}"])
def test_passes_that_change_sizes_and_layouts_are_proved(item: str) -> None:
    module = clone_module(model("llama"))
    (made,) = parse(item)
    before = clone_module(module)
    run_pass(made, module)
    proof = prove_pass(before, module)
    assert not proof.having(Status.UNDECIDED)


# Faults that are equal in real arithmetic: only ranges, rounding or NaN differ.
ROUNDING_ONLY = {"halved-before-doubled", "equal-to-itself", "rounded-twice"}


def faults() -> Iterator[Fault]:
    """The planted faults of all kinds."""
    for path in sorted((ROOT / "tests" / "planted").glob("test_*.py")):
        module = importlib.import_module(f"tests.planted.{path.stem}")
        for value in vars(module).values():
            rows = value if isinstance(value, list | tuple) else [value]
            yield from (row for row in rows if isinstance(row, Fault))


def _faults() -> list[Fault]:
    return list({fault.name: fault for fault in faults()}.values())


@pytest.mark.one_in(6)
@pytest.mark.parametrize("fault", _faults(), ids=lambda fault: fault.name)
def test_no_planted_fault_is_proved(fault: Fault) -> None:
    before = given(fault)
    after = clone_module(before)
    run_pass(planted(fault), after)
    found = prove_refinement(before, after)
    rounds = getattr(fault, "real", False) or fault.rounding or fault.name in ROUNDING_ONLY
    if rounds:
        assert not found.complete or found.having(Status.REAL)
    else:
        assert not found.complete, found.claims


def test_the_checker_imports_no_pass() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = [c for c in contracts["contracts"] if c["id"] == "proofs-know-no-passes"]
    rooms = {path.name.removesuffix(".py") for path in (ROOT / "passes").iterdir()}
    rooms = {name for name in rooms if not name.startswith("_")} - {"proof"}
    assert set(contract["forbidden_modules"]) == {f"graphgen.passes.{name}" for name in rooms}
