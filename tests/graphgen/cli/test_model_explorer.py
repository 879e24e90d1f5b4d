"""graphgen inspect --model-explorer: the graph in the file."""

from __future__ import annotations

import json
from pathlib import Path

from tests.graphgen.cli.conftest import done
from tests.graphgen.cli.test_explore_cmd import LOOP
from tests.graphgen.cli.test_inspect_cmd import step

__all__ = ["step"]


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


def test_loops_and_branches_are_in_the_graph_of_their_program(tmp_path: Path):
    file, out = tmp_path / "loop.hlo", tmp_path / "loop.json"
    file.write_text(LOOP)
    done("inspect", file, "--model-explorer", out)
    ((graph,),) = [collection["graphs"] for collection in json.loads(out.read_text())]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert len(nodes) == len(graph["nodes"])
    (loop,) = [node for node in nodes.values() if node["label"] == "while"]
    space = {label: node["namespace"] for node in nodes.values() for label in [node["label"]]}
    assert space["all_reduce"].endswith("/body")
    assert space["compare"] == space["all_reduce"].removesuffix("body") + "condition"
    # Edges lead from the operands to the body's arguments, and from its outputs to the loop.
    assert {edge["sourceNodeId"].rpartition(".")[0] for edge in loop["incomingEdges"]} == {
        "",
        f"{loop['id']}.condition",
        f"{loop['id']}.body",
    }
    order = list(nodes)
    for node in nodes.values():
        for edge in node["incomingEdges"]:
            assert order.index(edge["sourceNodeId"]) < order.index(node["id"])
            known = {item["id"] for item in nodes[edge["sourceNodeId"]]["outputsMetadata"]}
            assert edge["sourceNodeOutputId"] in known


def test_branches_take_their_own_operands(tmp_path: Path):
    file, out = tmp_path / "c.hlo", tmp_path / "c.json"
    file.write_text(
        "HloModule c\n\none { p = f32[2] parameter(0) ROOT n = f32[2] negate(p) }\n"
        "two { q = f32[2] parameter(0) ROOT t = f32[2] tanh(q) }\n"
        "ENTRY main { i = s32[] parameter(0) x = f32[2] parameter(1) y = f32[2] parameter(2)\n"
        "  ROOT r = f32[2] conditional(i, x, y), branch_computations={one, two} }\n"
    )
    done("inspect", file, "--model-explorer", out)
    (collection,) = json.loads(out.read_text())
    nodes = {node["id"]: node for node in collection["graphs"][0]["nodes"]}
    begins = {
        node["namespace"].rpartition("/")[2]: nodes[node["incomingEdges"][0]["sourceNodeId"]][
            "label"
        ]
        for node in nodes.values()
        if "argument" in node["id"] and node["incomingEdges"]
    }
    assert begins == {"branch 0": "x", "branch 1": "y"}
