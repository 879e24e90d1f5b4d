"""Devices as data: one JSON file a target, figures of accelerators, their links.

The file of a target holds the passes it adds to the phases of the default pipeline, the rules of
``legalize`` that its compiler needs, and the published figures of its hardware, each with a source.
``neuron_legality.json`` holds the rules of neuronx-cc that ``graphgen check`` predicts,
``neuron_error_codes.json`` its errors, and ``neuron_common.json`` the figures that all Neuron
devices share; ``neuron_prices.json`` those of instances, with region, day and source.
``target.py`` reads the targets.
"""

from graphgen.targets.accelerator import Accelerator, LinkLevel, accelerator
from graphgen.targets.prices import Prices, published_prices
from graphgen.targets.target import (
    DEFAULT_ACCELERATOR,
    Target,
    accelerator_names,
    find_target,
    register_target,
    target_names,
)
from graphgen.targets.throughput import Throughput, throughput
from graphgen.targets.topology import node_levels, over_nodes

__all__ = [
    "DEFAULT_ACCELERATOR",
    "Accelerator",
    "LinkLevel",
    "Prices",
    "Target",
    "Throughput",
    "accelerator",
    "accelerator_names",
    "find_target",
    "node_levels",
    "over_nodes",
    "published_prices",
    "register_target",
    "target_names",
    "throughput",
]
