"""Several nodes: levels of links, ranks of each, and what there are no figures for."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.targets import accelerator, over_nodes


def test_one_node_has_the_links_of_its_chips_alone():
    device = accelerator("trn2")
    assert over_nodes(device, 1) is device
    assert [(level.name, level.part, level.unit) for level in device.levels] == [("node", 4, 0)]


def test_ranks_fill_one_node_after_the_other():
    device = over_nodes(accelerator("trn2"), 4)
    node, network = device.levels
    assert (node.part, node.unit, device.node_ranks) == (4, 64, 64)
    # 3,200 Gbps of a node; 15 us from point to point.
    assert (network.name, network.part, network.bandwidth) == ("network", 64, 400e9)
    assert network.hop_seconds == 15e-6
    assert "EFAv3" in device.sources["levels"]
    assert "internode" in device.sources["levels"]


def test_nodes_of_an_ultraserver_are_linked_twice():
    def levels(nodes: int) -> list[tuple[str, int, int]]:
        device = over_nodes(accelerator("trn2"), nodes, "trn2u.48xlarge")
        return [(level.name, level.part, level.unit) for level in device.levels]

    assert levels(2) == [("node", 4, 64), ("server", 64, 128)]
    assert levels(4) == [("node", 4, 64), ("server", 64, 256)]
    assert levels(8) == [("node", 4, 64), ("server", 64, 256), ("network", 256, 0)]
    _, server, network = over_nodes(accelerator("trn2"), 8, "trn2u.48xlarge").levels
    assert (server.bandwidth, network.bandwidth) == (16 * 256e9, 4 * 400e9)


def test_a_program_is_spread_evenly():
    device = over_nodes(accelerator("trn1"), 2, "trn1n.32xlarge", 16)
    assert [(level.part, level.unit) for level in device.levels] == [(2, 8), (8, 0)]
    assert device.levels[1].bandwidth == 200e9


@pytest.mark.parametrize(
    ("target", "instance", "ranks", "code", "message"),
    [
        ("inf2", "", 0, "GG0302", "no network is published for any instance of inf2"),
        ("trn2", "trn2.3xlarge", 0, "GG0302", "no network is published for 'trn2.3xlarge'"),
        ("trn1", "", 63, "GG0705", "2 nodes of 32 logical cores .* cannot share 63 ranks"),
        ("trn1", "", 128, "GG0705", "2 nodes of 32 logical cores .* cannot share 128 ranks"),
    ],
)
def test_nodes_that_there_are_no_figures_for(
    target: str, instance: str, ranks: int, code: str, message: str
):
    with pytest.raises(GraphgenError, match=message) as caught:
        over_nodes(accelerator(target), 2, instance, ranks)
    assert caught.value.code == code
