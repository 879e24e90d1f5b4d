"""graphgen run on dumps of others: loops and sorts through XLA, each rank with its own arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphgen.ir import Literal, dtype
from graphgen.lowering.hlo_proto import wire
from graphgen.lowering.hlo_proto.fields import SnapshotField, WrapperField
from graphgen.lowering.hlo_proto.literal import write_literal
from graphgen.lowering.hlo_text.hlo_parser import parse_hlo_text
from tests.graphgen.cli.conftest import done, error, facts, graphgen
from tests.lowering.hlo.test_unmodelled import OTHERS, REGIONS, numbers
from tests.oracles import xla_hlo
from tests.oracles.hlo_texts import SUM

ELIDED = """
HloModule elided
ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2] parameter(0)
  %c = f32[2] constant({...}), metadata={op_name="net/c" source_file="net.py" source_line=3}
  ROOT %y = f32[2] maximum(%c, %c)
}
"""


def test_what_only_xla_knows_runs_there(tmp_path: Path):
    path, given, saved = tmp_path / "r.hlo", tmp_path / "in.npz", tmp_path / "out.npz"
    path.write_text(REGIONS)
    names = ("x", "img", "cache", "flag")
    np.savez(given, **dict(zip(names, numbers(), strict=True)))
    result = done("run", path, "--inputs", given, "--save", saved)
    assert "compiling with XLA, which knows select-and-scatter\n" in result.stderr
    (wanted,) = xla_hlo.run(xla_hlo.from_text(REGIONS), [numbers()])
    with np.load(saved) as found:
        assert list(found) == ["output0", "cache", "output2", "output3"]
        for name, array in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(found[name], array)
    assert "hlo.opaque" in error("run", path, "--on", "numpy")


def test_a_kernel_of_neuron_is_named(tmp_path: Path):
    path = tmp_path / "o.hlo"
    path.write_text(OTHERS.replace("AwsNeuronTopK", "AwsNeuronMine"))
    text = error("run", path)
    assert "error[GG0403]: custom_call AwsNeuronMine cannot be run here\n" in text
    # The top-k has ops; the marker gives a tuple and has none.
    path.write_text(OTHERS)
    text = error("run", path)
    marker = "AwsNeuronModuleMarkerStart-Forward"
    assert f"error[GG0403]: custom_call {marker} cannot be run here\n" in text


def test_a_constant_whose_elements_were_left_out_is_named(tmp_path: Path):
    path = tmp_path / "e.hlo"
    path.write_text(ELIDED)
    assert facts("inspect", path)["programs"][0]["opaque"] == {"constant": 1}
    text = error("run", path)
    assert "error[GG0403]: the elements of the constant f32[2] were left out\n" in text
    assert "  --> net.py:3" in text
    path.write_text(ELIDED.replace("{...}", "{2, 3}"))
    (output,) = facts("run", path)["outputs"]
    assert (output["min"], output["max"]) == (2.0, 3.0)


@pytest.mark.parametrize("on", ["numpy", "cpu"])
def test_each_rank_has_its_own(tmp_path: Path, on: str):
    path, given, saved = tmp_path / "s.hlo", tmp_path / "in.npz", tmp_path / "out.npz"
    path.write_text(SUM)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(given, x=x)
    result = done("run", path, "--inputs", given, "--save", saved, "--on", on)
    assert "output output1 is not the same on all ranks; shown is rank 0" in result.stderr
    with np.load(saved) as found:
        np.testing.assert_array_equal(found["output0"], x.sum(0))
        np.testing.assert_array_equal(found["output1"], -x)


def test_one_array_for_all_ranks_and_random_ones_for_each(tmp_path: Path):
    path, given = tmp_path / "s.pb", tmp_path / "in.npz"
    path.write_bytes(parse_hlo_text(SUM))
    np.savez(given, x=np.ones(3, np.float32))
    alike = facts("run", path, "--inputs", given)
    assert [(o["mean"], o["ranks_differ"]) for o in alike["outputs"]] == [
        (2.0, False),
        (-1.0, False),
    ]
    same, own = facts("run", path), facts("run", path, "--per-rank")
    assert not any(output["ranks_differ"] for output in same["outputs"])
    assert [output["ranks_differ"] for output in own["outputs"]] == [False, True]
    assert own == facts("run", path, "--per-rank")
    assert own["outputs"] != facts("run", path, "--per-rank", "--seed", "1")["outputs"]


def test_a_collective_that_is_not_modelled_names_its_ranks(tmp_path: Path):
    path = tmp_path / "s.hlo"
    path.write_text(SUM.replace("f32[] add(", "f32[] multiply("))
    assert facts("inspect", path)["ranks"] == 2
    found = facts("run", path, "--per-rank")
    assert (found["on"], found["ranks"]) == ("cpu", 2)
    wrong = tmp_path / "in.npz"
    np.savez(wrong, x=np.ones((3, 3), np.float32))
    assert graphgen("run", path, "--inputs", wrong).exit_code == 1


def _snapshot(arguments: list[bytes], *, partitions: bool) -> bytes:
    """A snapshot of a module that negates f32[3]: of XLA's own, before optimization or not."""
    text = """HloModule m
ENTRY %main (x: f32[3]) -> f32[3] {
  %x = f32[3] parameter(0)
  ROOT %y = f32[3] negate(%x)
}
"""
    module = wire.delimited(WrapperField.MODULE, parse_hlo_text(text))
    if partitions:
        inputs = [wire.delimited(SnapshotField.OF_PARTITION, each) for each in arguments]
        return module + b"".join(wire.delimited(SnapshotField.ARGUMENTS, each) for each in inputs)
    whole = wire.delimited(WrapperField.MODULE, module)
    return whole + b"".join(wire.delimited(SnapshotField.ARGUMENTS, each) for each in arguments)


@pytest.mark.parametrize("partitions", [False, True])
def test_arguments_of_a_snapshot_are_taken(tmp_path: Path, partitions: bool):
    path, given = tmp_path / "s.pb", tmp_path / "in.npz"
    literal = b"".join(write_literal(Literal.of(dtype("f32"), [1, 2, 3])))
    path.write_bytes(_snapshot([literal], partitions=partitions))
    result = done("run", path)
    assert "note: 1 of 1 inputs from the snapshot" in result.stderr
    (output,) = facts("run", path)["outputs"]
    assert (output["min"], output["max"]) == (-3.0, -1.0)
    np.savez(given, x=np.full(3, 5, np.float32))
    (output,) = facts("run", path, "--inputs", given)["outputs"]
    assert output["mean"] == -5.0


def test_arguments_that_the_program_does_not_take_are_refused(tmp_path: Path):
    path = tmp_path / "s.pb"
    literal = b"".join(write_literal(Literal.of(dtype("f32"), [1, 2])))
    path.write_bytes(_snapshot([literal], partitions=False))
    assert "recorded is f32[2], and the program takes %x : f32[3]" in error("run", path)
    path.write_bytes(_snapshot([literal, literal], partitions=False))
    assert "2 arguments are recorded, and the program takes 1" in error("run", path)
