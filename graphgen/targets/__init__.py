"""Compilation targets as data: one JSON file per target; read :mod:`graphgen.targets.target` first.

A file holds the passes a target adds to the phases of the default pipeline, the rules of
``legalize`` that its compiler needs, and the published figures of its hardware, each with a source.
``neuron/legality.json`` holds the rules of neuronx-cc that ``graphgen check`` predicts, and
``neuron/common.json`` the figures that all Neuron devices share.
"""

from graphgen.targets.accelerator import Accelerator, LinkLevel, accelerator
from graphgen.targets.target import (
    DEFAULT_ACCELERATOR,
    Target,
    accelerator_names,
    find_target,
    register_target,
    target_names,
)
from graphgen.targets.topology import node_levels, over_nodes

__all__ = [
    "DEFAULT_ACCELERATOR",
    "Accelerator",
    "LinkLevel",
    "Target",
    "accelerator",
    "accelerator_names",
    "find_target",
    "node_levels",
    "over_nodes",
    "register_target",
    "target_names",
]
