"""graphgen inspect --model-explorer: the graph in the file; identical layers."""

from __future__ import annotations

import json
from pathlib import Path

from graphgen.analysis.layers import identical_layers, layers_of
from graphgen.ir.dtype import bf16
from graphgen.models import build, known_shape
from tests.graphgen.cli.conftest import done
from tests.graphgen.cli.test_inspect_cmd import step

__all__ = ["step"]


def test_layers_that_differ_in_one_attribute_are_two():
    module = build(known_shape("llama-3.1-8b"), bf16)
    function = module.function("decode")
    layers = layers_of(function)
    assert set(identical_layers(layers).values()) == {"model.layers.0"}
    norm = next(op for op in layers["model.layers.7"] if op.name == "rms_norm")
    other = next(op for op in function.block if op.name == "dot_general")
    norm.attrs = other.attrs
    assert identical_layers(layers)["model.layers.7"] == "model.layers.7"


def test_the_graph_for_model_explorer(step: Path, tmp_path: Path):
    out = tmp_path / "step.json"
    done("inspect", step, "--model-explorer", out)
    (collection,) = json.loads(out.read_text())
    (graph,) = collection["graphs"]
    assert (collection["label"], graph["id"]) == ("step", "main")
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"]) == 3 + 3 + 3
    for node in nodes.values():
        assert {"id", "label", "namespace", "attrs", "incomingEdges", "outputsMetadata"} == set(
            node
        )
        for edge in node["incomingEdges"]:
            source = nodes[edge["sourceNodeId"]]
            known = {item["id"] for item in source["outputsMetadata"]}
            assert edge["sourceNodeOutputId"] in known
    (add,) = [node for node in nodes.values() if node["label"] == "add"]
    assert add["namespace"] == "layers/1/add"
    assert {"key": "line", "value": "net.py:10"} in add["attrs"]
    sources = [nodes[edge["sourceNodeId"]]["label"] for edge in add["incomingEdges"]]
    assert sources == ["cache", "custom_call"]
