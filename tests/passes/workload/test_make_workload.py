"""Workloads: calls fit every stage of a pipeline, are legal, and make the situations they name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.exec.session import ProgramCall, Runner, Workload
from graphgen.ir import Dim, Module, dtype
from graphgen.ir.clone import clone_module
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.pipelines import parse
from graphgen.passes.validate import validate
from graphgen.passes.workload.make_workload import workload_for
from graphgen.passes.workload.program_shapes import StagePrograms, dry_run
from graphgen.passes.workload.short_script import Script, choose_script
from tests.oracles.planted_bugs import Planted, model
from tests.oracles.planted_bugs_in_situations import SITUATION_BUGS

SMALL = CompileConfig(batch=(3,), context=(8,), tokens=(8, 16))
# Pipelines that make programs of many sizes.
VARIED = {
    "two batch sizes": "specialize{batch=[1,3],context=[8],tokens=[8,16]}",
    "several buckets": "specialize{batch=[2],context=[4,8,16],tokens=[8,16,32],rows=5,slots=40}",
    "one row": "specialize{batch=[1],context=[8],tokens=[8,16,32]}",
    "prompts of other batches": "specialize{batch=[4],prefill_batch=[1,2],context=[8],tokens=[8]}",
    "in place": "specialize{batch=[1,3],context=[8],tokens=[8,12],in_place=true},legalize",
    "rings": "specialize{batch=[3],context=[8,16],tokens=[8,16,32]},roll-window-cache",
    "rings of one row": "specialize{batch=[1],context=[8],tokens=[8,32]},roll-window-cache",
    "default": "default",
    "free sizes": "canonicalize",
}
SCRIPTS: tuple[Script, ...] = ("short", "adversarial")


@cache
def mini(name: str = "llama-3.1-8b", phases: tuple[str, ...] = ("prefill", "decode")) -> Module:
    return build(known_shape(name), dtype("f32"), mini=True, phases=phases)


@cache
def made(name: str, script: Script) -> Workload:
    return workload_for(source(name), passes(name), seed=2, script=script)


def source(name: str) -> Module:
    return model("", "f32", windowed=True) if "rings" in name else mini()


def passes(name: str) -> list[Pass]:
    return parse(VARIED[name], SMALL)


@cache
def stages(name: str) -> tuple[StagePrograms, ...]:
    return dry_run(source(name), passes(name)).stages


def after(name: str) -> Module:
    module = clone_module(source(name))
    run_pipeline(module, passes(name))
    return module


def fits(call: ProgramCall, dims: Mapping[str, Dim]) -> bool:
    return all(call.dims.get(name) == size for name, size in dims.items() if isinstance(size, int))


# ---- every program, legal calls ------------------------------------------------------------------


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", VARIED)
def test_every_program_of_every_stage_is_called(name: str, script: Script):
    workload = made(name, script)
    assert len(stages(name)) == len(passes(name)) + 1
    for stage in stages(name):
        for phase, dims, _ in stage.programs:
            called = [c for c in workload.calls if c.phase == phase and fits(c, dict(dims))]
            assert called, (phase, dims)
        for call in workload.calls:
            assert stage.has(call.phase, call.dims)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", VARIED)
def test_every_call_is_one_that_a_serving_system_could_make(name: str, script: Script):
    workload = made(name, script)
    (rows, slots), module = sizes(workload), after(name)
    rings = any(row.last for row in module.interface.values())
    in_place = [dict(dims) for stage in stages(name) for _, dims, fixed in stage.programs if fixed]
    held: dict[int, int] = {}
    for call in workload.calls:
        lengths, ids = call.inputs["lengths"], call.inputs["seq_ids"]
        idle = ids == rows
        assert lengths.max() <= min(int_of(call, "C"), slots)
        assert tuple(np.flatnonzero(~idle)) == call.active
        assert len(set(ids[~idle].tolist())) == int(sum(~idle)) > 0
        assert ((ids >= 0) & (ids <= rows)).all()
        if any(fits(call, dims) for dims in in_place):
            assert (idle | (ids == np.arange(len(ids)))).all()
        for row, positions in enumerate(call.inputs["positions"]):
            new = positions[positions >= 0]
            if idle[row]:
                assert (len(new), lengths[row]) == (0, 0)
                continue
            # Tokens of a row are neighbors, up to its length, padded on one side.
            assert new.tolist() == list(range(lengths[row] - len(new), lengths[row]))
            assert len(new) > 0
            assert -1 in (*positions[:1], *positions[-1:]) or len(new) == len(positions)
            start, cache_row = int(new[0]), int(ids[row])
            if rings:
                several = int_of(call, "S") - 1 if call.phase == "decode" else 0
                known = held.get(cache_row, start)
                assert start == 0 or known - several <= start <= known
            held[cache_row] = int(lengths[row])


def sizes(workload: Workload) -> tuple[int, int]:
    rows, slots = workload.dims["R"], workload.dims["M"]
    assert isinstance(rows, int)
    assert isinstance(slots, int)
    return rows, slots


def int_of(call: ProgramCall, name: str) -> int:
    size = call.dims[name]
    assert isinstance(size, int)
    return size


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("name", VARIED)
@pytest.mark.one_in(3)
def test_right_pipelines_are_right_over_both_scripts(name: str, script: Script):
    verdicts = validate(source(name), passes(name), made(name, script))
    assert [verdict.pass_text for verdict in verdicts if not verdict.ok] == []


def test_a_module_that_is_specialized_is_called_at_its_own_sizes():
    module = clone_module(mini())
    run_pipeline(module, parse(VARIED["several buckets"]))
    workload = workload_for(module, parse("canonicalize,cse,dce"), script="adversarial")
    found = {
        (call.phase, call.dims["B"], call.dims["S"], call.dims["C"]) for call in workload.calls
    }
    wanted = {(f.phase, f.dims["B"], f.dims["S"], f.dims["C"]) for f in module.programs()}
    assert found == wanted
    assert sizes(workload) == (5, 40)


def test_a_pass_that_raises_ends_the_stages():
    module = mini()
    # A cache with fewer slots than a bucket is refused.
    broken = parse("canonicalize,specialize{slots=4},cse")
    assert len(dry_run(module, broken).stages) == 2
    assert workload_for(module, broken, script="short").calls


def test_sampling_gets_the_inputs_of_later_stages():
    text = "on-device-sampling{do_sample=true,top_p_min_tokens=true,output_logits=true}"
    module, items = mini(), parse(text)
    workload = workload_for(module, items, seed=1, script="adversarial")
    changed = clone_module(module)
    run_pipeline(changed, items)
    for call, outcome in zip(workload.calls, Runner(changed, workload).outcomes(), strict=True):
        rows = int_of(call, "B")
        assert call.inputs["sampling_params"].shape == (rows, 3)
        assert ((call.inputs["random"] >= 0) & (call.inputs["random"] < 1)).all()
        assert call.inputs["top_p_min_tokens"].min() >= 1
        assert outcome["next_tokens"].shape == (len(call.active or ()),)


def test_the_calls_depend_on_seed_and_module_alone():
    once, again, other = (
        workload_for(mini(), [], seed, script="adversarial") for seed in (3, 3, 4)
    )
    for one, two in zip(once.calls, again.calls, strict=True):
        assert one.note == two.note
        for name, array in one.inputs.items():
            np.testing.assert_array_equal(array, two.inputs[name])
    assert any(
        (one.inputs["tokens"] != two.inputs["tokens"]).any()
        for one, two in zip(once.calls, other.calls, strict=True)
    )


# ---- situations ----------------------------------------------------------------------------------


def noted(words: str, name: str = "several buckets") -> list[ProgramCall]:
    calls = [call for call in made(name, "adversarial").calls if words in call.note]
    assert calls, words
    return calls


def starts(call: ProgramCall) -> list[int]:
    """Of each row that is not idle, the position of its first token."""
    return [int(row[row >= 0].min()) for row in call.inputs["positions"] if (row >= 0).any()]


def test_prompts_go_on_after_a_prefix_beside_an_idle_row():
    for call in noted("goes on after a prefix", "default"):
        assert call.phase == "prefill"
        assert max(starts(call)) > 0
        assert int(call.inputs["lengths"].max()) == call.dims["C"]
        assert len(call.active or ()) < int_of(call, "B")
    free = noted("goes on after a prefix", "free sizes")
    assert any(int_of(call, "C") > int_of(call, "S") for call in free)


def test_every_bucket_has_its_last_slot_and_the_one_after_it_written():
    steps = [c for c in made("several buckets", "adversarial").calls if c.phase == "decode"]
    seen = {(call.dims["C"], start) for call in steps for start in starts(call)}
    assert {(8, 7), (16, 8), (16, 15), (32, 16), (32, 31)} <= seen


def test_prompts_are_as_long_as_each_bucket_and_longer_than_the_one_before():
    prompts = [c for c in made("several buckets", "adversarial").calls if c.phase == "prefill"]
    new = {
        (call.dims["S"], int((row >= 0).sum()))
        for call in prompts
        for row in call.inputs["positions"]
    }
    assert {(4, 4), (8, 8), (16, 16), (8, 5), (16, 9), (4, 1), (8, 1), (16, 1)} <= new


def test_rows_are_padded_on_both_sides_and_by_all_but_one_token():
    rows = [row for call in noted("as long as its bucket") for row in call.inputs["positions"]]
    assert any(row[0] == -1 and row[-1] == 0 for row in rows)


def test_rows_are_used_again():
    for call in noted("rows used again"):
        assert set(starts(call)) == {0}


def test_batch_sizes_are_mixed_and_rows_shuffled():
    calls = made("two batch sizes", "adversarial").calls
    assert {call.dims["B"] for call in calls} == {1, 3}
    assert any(call.inputs["seq_ids"].tolist() not in ([0], [0, 1, 2]) for call in calls)


def test_token_ids_reach_both_ends_and_beyond():
    calls = made("default", "adversarial").calls
    real = [call.inputs["tokens"][call.inputs["positions"] >= 0] for call in calls]
    ids = set(np.concatenate(real).tolist())
    assert {0, 256, -1} <= ids
    assert ids - set(range(257))


def test_one_row_is_alone():
    (call,) = noted("one row alone", "default")
    assert len(call.active or ()) == 1


def test_two_rows_are_equal():
    (call,) = noted("same tokens", "default")
    first, second, *_ = call.inputs["tokens"].tolist()
    assert first == second
    assert call.inputs["positions"][0].tolist() == call.inputs["positions"][1].tolist()


def test_lengths_differ_widely():
    lengths = [call.inputs["lengths"] for call in noted("rows go on from", "default")]
    assert all(max(row) >= 4 * min(row[row > 0]) for row in lengths)


def test_a_window_is_passed_twice():
    calls = noted("with a window of 6", "rings")
    assert {max(starts(call)) for call in calls} == {11, 12}


def test_initial_caches_are_not_zeros():
    for script in SCRIPTS:
        states = made("default", script).states
        assert states
        assert all(np.count_nonzero(state) == state.size for state in states.values())


def verifying() -> Module:
    """Programs that take three tokens a decode step, with room for 16."""
    module = clone_module(model("", "f32", windowed=False))
    function = module.function("prefill")
    function.phase = "decode"
    function.dims = {**function.dims, "S": 3}
    del module.functions["decode"]
    return module


def test_decode_steps_take_several_tokens_and_take_them_back():
    calls = workload_for(verifying(), [], script="adversarial").calls
    together = [call for call in calls if "several tokens" in call.note]
    back = [call for call in calls if "taken back" in call.note]
    assert together
    assert [start + 1 for start in starts(together[0])] == starts(back[0])


# ---- planted bugs --------------------------------------------------------------------------------


@pytest.mark.parametrize("situation", SITUATION_BUGS)
def test_a_bug_in_a_situation_is_missed_by_the_short_script_and_caught_by_the_other(
    situation: str,
):
    bug = SITUATION_BUGS[situation]
    module, item = model(bug.after, bug.element, bug.windowed), Planted(bug)
    (missed,) = validate(module, [item], workload_for(module, [item], seed=3, script="short"))
    assert missed.ok
    (caught,) = validate(module, [item], workload_for(module, [item], seed=3))
    assert not caught.means_the_same
    assert caught.guilty is not None
    assert caught.guilty.rule == bug.name


# ---- choice of the script ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("canonicalize", "short"),
        ("fuse-projections", "adversarial"),
        ("specialize", "adversarial"),
        ("legalize", "adversarial"),
        ("dce", "short"),
    ],
)
def test_passes_that_touch_places_get_the_adversarial_script(text: str, wanted: str):
    assert choose_script(dry_run(mini(), parse(text)).journal) == wanted
