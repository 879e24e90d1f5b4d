"""Configurations of custom calls, decoded: kernels of every age, numbers, pairs."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from graphgen.analysis.work import work_of
from graphgen.ir import Op
from graphgen.ops.custom_calls import NKI, calls_of, decode
from graphgen.text import parse

# As the guide to framework custom ops shows it, decoded.
KERNEL = {
    "kernel_version": 1,
    "klir_binary": {
        "binary": "/tmp/nki_tensor_add.klir",
        "input_names": ["a_input", "b_input", "tmp.4"],
        "output_names": ["c_output.35"],
    },
    "func_name": "nki_tensor_add",
    "grid": [],
    "has_collectives": False,
}


def packed(config: object) -> str:
    return base64.b64encode(json.dumps(config).encode()).decode()


def test_a_kernel():
    assert decode(NKI, packed(KERNEL)) == {
        "kernel": "nki_tensor_add",
        "artifact": "/tmp/nki_tensor_add.klir",
        "there": False,
        "inputs": ["a_input", "b_input", "tmp.4"],
        "outputs": ["c_output.35"],
        "kernel_version": 1,
        "grid": [],
        "has_collectives": False,
    }


def test_a_newer_and_an_older_kernel(tmp_path: Path):
    artifact = tmp_path / "k.bir"
    artifact.write_bytes(b"")
    newer = {
        "func_name": "f",
        "kernel_format": "bir",
        "klir_binary": {"binary": str(artifact), "version_identifier": "3"},
        "mac_count": 1000,
    }
    found = decode(NKI, packed(newer))
    assert (found["there"], found["kernel_format"], found["version_identifier"]) == (
        True,
        "bir",
        "3",
    )
    assert decode(NKI, packed({"func_literal": "g", "kernel_attrs": "x"})) == {
        "kernel": "g",
        "kernel_attrs": "x",
    }


@pytest.mark.parametrize(
    ("target", "config", "facts"),
    [
        ("AwsNeuronRmsNorm", "2", {"dim": 2}),
        ("AwsNeuronTopK", "8", {"k": 8}),
        ("Other", "-1", {"config": -1}),
        ("Other", "", {}),
        ("AwsNeuronCollectiveMatmul", "rhs_contracting_dim=0,tp_degree=8",
         {"rhs_contracting_dim": "0", "tp_degree": "8"}),
        ("AwsNeuronCustomOp", "version=1.0;name=relu;", {"version": "1.0", "name": "relu"}),
        ("QuantizeMX", '{"dtype": "x"}', {"dtype": "x"}),
        ("Other", "no form at all", {"config": "no form at all"}),
        (NKI, "%%%", {"config": "%%%"}),
        (NKI, packed([1]), {"config": packed([1])}),
    ],
)  # fmt: skip
def test_others(target: str, config: str, facts: dict[str, object]):
    assert decode(target, config) == facts


def calling(*configs: str) -> list[Op]:
    lines = [
        f'  %y{i} = custom_call(%x) target="{NKI}" config="{config}" results=[f32[4]] : f32[4]'
        for i, config in enumerate(configs)
    ]
    body = "\n".join(lines)
    text = f"module @m level=target {{\n}}\n\nfunc @f {{\n  arg %x : f32[4]\n{body}\n}}\n"
    return list(parse(text).function("f").block)


def test_equal_calls_are_together_and_on_one_line():
    one, other = packed(KERNEL), packed({**KERNEL, "grid": [2]})
    found = calls_of(calling(one, other, one))
    assert [call.count for call in found] == [2, 1]
    assert found[0].text.startswith(
        "kernel nki_tensor_add, artifact /tmp/nki_tensor_add.klir, there no"
    )


def test_a_kernel_counts_its_own_work():
    (known, unknown) = calling(packed({"func_name": "f", "mac_count": 1000}), packed(KERNEL))
    assert (work_of(known).flops, work_of(unknown).flops) == (2000, 0)
