"""``graphgen run``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphgen.eval import evaluate
from graphgen.exec import NumpyBackend
from graphgen.text import parse
from tests.graphgen.cli.conftest import done, error, facts, graphgen, process
from tests.oracles.saved_arrays import saved_arrays

DIMS = ("--dims", "B=2,S=5,R=3,C=8,M=12")


def saved(tmp_path: Path, *arguments: object) -> dict[str, Any]:
    path = tmp_path / "saved.npz"
    done("run", *arguments, "--save", path)
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def assert_close(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        scale = np.abs(a[name]).max()
        assert scale > 0, f"{name} is nothing but zeros"
        np.testing.assert_allclose(a[name], b[name], rtol=0, atol=2e-6 * scale, err_msg=name)


@pytest.mark.parametrize("program", ["prefill", "decode"])
def test_numpy_cpu_and_two_ranks_agree(mini: Path, split: Path, tmp_path: Path, program: str):
    dims = DIMS if program == "prefill" else ("--dims", "B=2,R=3,C=8,M=12")
    wanted = saved(tmp_path, mini, "--program", program, *dims)
    assert wanted["logits"].shape == (2, 257)
    assert wanted["model.layers.0.self_attn.k_cache"].shape == (3, 12, 2, 8)
    assert_close(wanted, saved(tmp_path, mini, "--program", program, *dims, "--on", "cpu"))
    assert_close(wanted, saved(tmp_path, split, "--program", program, *dims))


def test_two_ranks_on_the_cpu(mini: Path, split: Path, tmp_path: Path):
    # A process of its own: JAX takes the number of devices once.
    path = tmp_path / "out.npz"
    ran = process("run", split, "--program", "prefill", *DIMS, "--on", "cpu", "--save", path)
    assert ran.returncode == 0, ran.stderr
    with np.load(path) as file:
        assert_close(saved(tmp_path, mini, "--program", "prefill", *DIMS), dict(file))


def test_the_program_is_evaluated_on_what_the_help_says(mini: Path, tmp_path: Path):
    given = {
        "tokens": np.arange(5).reshape(1, 5),
        "positions": np.arange(5).reshape(1, 5),
        "lengths": np.array([5]),
        "seq_ids": np.array([0]),
    }
    np.savez(tmp_path / "in.npz", **given)
    small = ("--program", "prefill", "--dims", "B=1,S=5,R=1,C=16,M=16")
    stated = saved(tmp_path, mini, *small, "--inputs", tmp_path / "in.npz")
    assert_close(stated, saved(tmp_path, mini, *small, "--inputs", tmp_path / "in.npz"))
    # Positions, lengths and rows are the defaults: only the tokens make a difference.
    np.savez(tmp_path / "in.npz", tokens=given["tokens"])
    assert_close(stated, saved(tmp_path, mini, *small, "--inputs", tmp_path / "in.npz"))
    random = saved(tmp_path, mini, *small)
    assert not np.array_equal(stated["logits"], random["logits"])


def test_given_inputs_are_what_is_computed_with(small: Path, tmp_path: Path):
    x = np.array([[1.0, -2.0, 0.0], [5.0, 7.0, 9.0]], np.float32)
    y = np.array([[2.0, 0.0, 0.0], [1.0, 8.0, 3.0]], np.float32)
    np.savez(tmp_path / "in.npz", x=x, y=y)
    said = facts("run", small, "--dims", "N=2", "--inputs", tmp_path / "in.npz")
    ratio, less = said["outputs"]
    assert ratio["first"] == [0.5, "-inf", "nan", 5.0]
    assert (ratio["nan"], ratio["inf"]) == (1, 1)
    assert (ratio["min"], ratio["max"]) == (0.5, 5.0)
    assert ratio["mean"] == pytest.approx((0.5 + 5 + 0.875 + 3) / 4)
    assert ratio["std"] == pytest.approx(np.std([0.5, 5, 0.875, 3]))
    assert (less["type"], less["first"], less["mean"]) == ("pred[2,3]", [1, 1, 0, 0], 0.5)
    assert {key: said[key] for key in ("program", "level", "ranks", "on", "seed")} == {
        "program": "f",
        "level": "logical",
        "ranks": 1,
        "on": "numpy",
        "seed": 0,
    }


def test_the_table(small: Path, tmp_path: Path):
    np.savez(tmp_path / "in.npz", x=np.ones((1, 3)), y=np.array([[4.0, 0.0, 2.0]]))
    result = done("run", small, "--dims", "N=1", "--inputs", tmp_path / "in.npz")
    head, ratio, less = [line.split() for line in result.stdout.splitlines()]
    assert " ".join(head) == "output type min max mean std nan first values"
    assert " ".join(ratio) == "ratio f32[1,3] 0.25 0.5 0.375 0.125 0 (+1 inf) 0.25 inf 0.5"
    assert less[:2] == ["less", "pred[1,3]"]
    assert (
        result.stderr == f"note: 2 of 2 inputs from {tmp_path / 'in.npz'}, the others random "
        "(seed 0)\n"
    )


def test_a_long_table_is_not_cut(mini: Path):
    rows = done("run", mini, "--program", "decode").stdout.splitlines()
    assert rows[1].startswith("model.layers.0.self_attn.k_cache  f32[1,16,2,8]  ")
    assert len(rows) == 6


def test_saved_states_are_inputs_again(mini: Path, tmp_path: Path):
    path = tmp_path / "prefill.npz"
    done("run", mini, "--program", "prefill", *DIMS, "--save", path)
    with np.load(path) as file:
        arrays = dict(file)
    arrays |= {"positions": np.array([[5], [5]]), "lengths": np.array([6, 6])}
    np.savez(path, **arrays)
    decode = ("--program", "decode", "--dims", "B=2,R=3,C=8,M=12")
    after = saved(tmp_path, mini, *decode, "--inputs", path)
    key = "model.layers.0.self_attn.k_cache"
    np.testing.assert_array_equal(after[key][:2, :5], arrays[key][:2, :5])
    assert np.abs(after[key][:2, 5]).min() > 0
    note = done("run", mini, *decode, "--inputs", path).stderr
    assert "note: @decode does not take logits\n" in note


def test_bf16_leaves_and_comes_back(tmp_path: Path):
    path = tmp_path / "m.gg"
    done("build", "llama-3.1-8b", "--mini", "--dtype", "bf16", "-o", path)
    first = saved(tmp_path, path, "--program", "prefill")
    name = "model.layers.0.self_attn.k_cache"
    assert first[name].dtype == np.float32
    decode = ("--program", "decode", "--dims", "B=1,R=1,C=16,M=16")
    bits = {name: first[name].astype(ml_dtypes.bfloat16)}
    np.savez(tmp_path / "float.npz", **{name: first[name]})
    np.savez(tmp_path / "bits.npz", **bits)
    assert saved_arrays(tmp_path / "bits.npz")[name].dtype.kind == "V"
    one = saved(tmp_path, path, *decode, "--inputs", tmp_path / "float.npz")
    two = saved(tmp_path, path, *decode, "--inputs", tmp_path / "bits.npz")
    np.testing.assert_array_equal(one[name], two[name])
    np.testing.assert_array_equal(one[name][:, 1:], first[name][:, 1:])


def test_seeds(mini: Path, tmp_path: Path):
    run = (mini, "--program", "prefill", *DIMS)
    first, again = saved(tmp_path, *run), saved(tmp_path, *run)
    other = saved(tmp_path, *run, "--seed", 1)
    np.testing.assert_array_equal(first["logits"], again["logits"])
    assert not np.allclose(first["logits"], other["logits"])


def test_default_sizes_are_announced_and_go_together(mini: Path):
    result = done("run", mini, "--program", "prefill", "--dims", "B=3,S=20", "--json")
    assert result.stderr == "note: R=3, C=20, M=20 by default; --dims sets other sizes\n"
    assert json.loads(result.stdout)["dims"] == {"B": 3, "S": 20, "R": 3, "C": 20, "M": 20}


def test_default_sizes_are_the_same_at_every_level(mini: Path, split: Path, tmp_path: Path):
    found = done("run", split, "--program", "prefill", "--dims", "B=1,S=8")
    assert found.stderr == "note: R=1, C=16, M=16 by default; --dims sets other sizes\n"
    canonical = tmp_path / "canonical.gg"
    done("opt", mini, "-p", "canonicalize", "-o", canonical)
    assert done("run", canonical, "--program", "decode").stderr == (
        done("run", mini, "--program", "decode").stderr
    )


def test_a_symbol_without_a_default(small: Path):
    assert error("run", small) == (
        "error[GG0106]: no size for N\n  help: give them: --dims N=...\n"
    )


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        ("B", "--dims: 'B' is not a symbol and a size"),
        ("B=0", "--dims: 'B=0' is not a symbol and a size"),
        ("B=1,B=2", "--dims: B is given twice"),
        ("Q=1", "--dims: @decode has no symbol 'Q'"),
        ("S=8", "--dims: S = 8, but @decode has S = 1"),
        ("C=9,M=8", "--dims: C = 9 slots are read, but the cache has M = 8"),
    ],
)
def test_sizes_that_make_no_sense(mini: Path, dims: str, expected: str):
    text = error("run", mini, "--program", "decode", "--dims", dims)
    assert text.startswith(f"error[GG0705]: {expected}\n")


def test_a_specialized_module_knows_its_sizes(mini: Path, tmp_path: Path):
    path = tmp_path / "two.gg"
    pipeline = "specialize{batch=[1,2],context=[8],tokens=[8]},lift-weights,legalize"
    done("opt", mini, "-p", pipeline, "-o", path)
    result = done("run", path, "--program", "prefill.b2.s8", "--json")
    assert result.stderr == ""
    assert json.loads(result.stdout)["outputs"][-1]["type"] == "f32[2,257]"
    logical = saved(tmp_path, mini, "--program", "prefill", "--dims", "B=2,S=8,R=2,C=8,M=8")
    assert_close(logical, saved(tmp_path, path, "--program", "prefill.b2.s8"))


def test_several_programs(mini: Path):
    assert error("run", mini) == (
        "error[GG0705]: the module has 2 programs: prefill, decode\n"
        "  help: choose one: --program prefill\n"
    )


def test_a_function_that_prepares_weights(split: Path):
    said = facts("run", split, "--program", "weights.rank")
    assert said["ranks"] == 2
    names = [output["name"] for output in said["outputs"]]
    assert "model.layers.0.self_attn.q_proj.weight.prepared" in names
    assert all(output["ranks_differ"] for output in said["outputs"])


def write(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def test_inputs_that_do_not_fit(small: Path, mini: Path, tmp_path: Path):
    path = tmp_path / "in.npz"
    run = ("run", small, "--dims", "N=2", "--inputs", path)
    write(path, x=np.ones((3, 2)))
    assert error(*run) == (
        "error[GG0402]: input %x must be f32[2,3], given float64[3, 2]\n"
        "  help: --dims sets the sizes of the program's symbols\n"
    )
    write(path, x=np.ones((2, 3), np.int64))
    assert error(*run).startswith("error[GG0402]: input %x must be f32[2,3], given int64[2, 3]\n")
    write(path, x=np.full((2, 3), 1e300))
    assert error(*run) == "error[GG0402]: input %x: a value does not fit f32\n"
    write(path, z=np.ones((2, 3)))
    assert error(*run) == "error[GG0402]: @f has no input called z\n  help: it has x, y\n"
    write(path, token=np.ones((1, 8)))
    text = error("run", mini, "--program", "prefill", "--inputs", path)
    assert text.endswith("@prefill has no input called token\n  help: did you mean tokens?\n")
    write(path, tokens=np.full((1, 8), 2**40))
    text = error("run", mini, "--program", "prefill", "--inputs", path)
    assert text == "error[GG0402]: input %tokens: a value does not fit s32\n"


def test_files_that_are_no_arrays(small: Path, tmp_path: Path):
    run = ("run", small, "--dims", "N=2", "--inputs")
    assert error(*run, small).startswith(
        f"error[GG0705]: cannot read '{small}': it is not an .npz file\n"
    )
    missing = tmp_path / "no.npz"
    assert error(*run, missing).endswith(
        f"No such file or directory\n  --> --inputs {missing}\n"
        "  help: an .npz file is what --save or numpy.savez writes\n"
    )
    objects = write(tmp_path / "objects.npz", x=np.array([{}], object))
    assert error(*run, objects).startswith("error[GG0705]: ")
    broken = write(tmp_path / "broken.npz", x=np.ones((2, 3)))
    data = bytearray(broken.read_bytes())
    data[150] ^= 255
    broken.write_bytes(data)
    assert error(*run, broken).startswith("error[GG0705]: ")


def test_an_output_may_have_any_name(tmp_path: Path):
    path = tmp_path / "m.gg"
    path.write_text(
        "module @m level=logical {\n  input %x : f32[2]\n  output %file : f32[2]\n}\n\n"
        "func @f phase=decode {\n  arg %x : f32[2]\n  %y = negate(%x) : f32[2]\n"
        "  return file = %y\n}\n"
    )
    out = saved(tmp_path, path, "--seed", 3)
    # An input nobody knows is a small normal number.
    assert list(out) == ["file"]
    assert 0 < np.abs(out["file"]).max() < 0.2


def test_an_unwritable_file_is_refused_before_anything_runs(mini: Path, tmp_path: Path):
    text = error("run", mini, "--program", "prefill", "--save", tmp_path)
    assert text.startswith(f"error[GG0704]: cannot write '{tmp_path}': it is a folder\n")


def test_random_tokens_are_in_range(mini: Path, monkeypatch: pytest.MonkeyPatch):
    seen: dict[str, Any] = {}

    def spy(backend: NumpyBackend, module: Any, function: Any, inputs: Any) -> Any:
        seen.update(inputs[0])
        return [evaluate(function, inputs[0])]

    monkeypatch.setattr(NumpyBackend, "__call__", spy)
    done("run", mini, "--program", "prefill", "--dims", "B=4,S=64")
    assert seen["tokens"].min() >= 0
    assert 200 < seen["tokens"].max() < 257
    np.testing.assert_array_equal(seen["positions"], np.tile(np.arange(64), (4, 1)))
    np.testing.assert_array_equal(seen["lengths"], [64] * 4)
    np.testing.assert_array_equal(seen["seq_ids"], range(4))
    weight = seen["model.layers.0.mlp.up_proj.weight"]
    assert 0.018 < weight.std() < 0.022
    assert not seen["model.layers.0.self_attn.k_cache"].any()


def test_the_vocabulary_without_a_configuration(mini: Path, tmp_path: Path):
    from graphgen.exec.inputs import vocabulary

    module = parse(mini.read_text())
    module.meta["config"] = "not JSON"
    assert vocabulary(module, module.function("prefill")) == 257


def test_ranks_that_disagree_are_pointed_out(tmp_path: Path):
    path = tmp_path / "m.gg"
    path.write_text(
        "module @m level=sharded mesh=tp:2 {\n  output %y : s32[1]\n}\n\n"
        "func @f phase=decode {\n  arg %rank : s32[1]\n  %y = negate(%rank) : s32[1]\n"
        "  return y = %y\n}\n"
    )
    result = graphgen("run", path)
    assert result.stderr == "note: output y is not the same on all ranks; shown is rank 0\n"
    assert result.exit_code == 0


def test_a_cache_that_is_a_ring_takes_what_was_in_the_whole_one(tmp_path: Path):
    mini, rolled = tmp_path / "mini.gg", tmp_path / "rolled.gg"
    sizes = "canonicalize,specialize{batch=[2],context=[16],tokens=[16]}"
    done("build", "mistral-7b", "--mini", "--dtype", "f32", "-o", tmp_path / "all.gg")
    done("opt", tmp_path / "all.gg", "-p", sizes, "-o", mini)
    made = done("opt", mini, "-p", "roll-window-cache", "-o", rolled)
    assert "the caches of 2 layers hold 6 positions instead of 16" in made.stderr
    random = np.random.default_rng(1)
    given: dict[str, Any] = {
        "tokens": np.array([[3], [4]]),
        "positions": np.array([[11], [4]]),
        "lengths": np.array([12, 5]),
        "seq_ids": np.array([1, 0]),
    }
    for layer in range(2):
        for kind in "kv":
            name = f"model.layers.{layer}.self_attn.{kind}_cache"
            given[name] = random.standard_normal((2, 16, 2, 8)).astype(np.float32)
    np.savez(tmp_path / "given.npz", **given)
    asked = ["--program", "decode.b2.c16", "--inputs", tmp_path / "given.npz"]
    wanted, ours = (saved(tmp_path, module, *asked)["logits"] for module in (mini, rolled))
    assert_close({"logits": wanted}, {"logits": ours})
