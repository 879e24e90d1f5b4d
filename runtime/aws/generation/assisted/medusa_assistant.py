"""A model as its own assistant: its heads of Medusa propose trees of tokens."""

from __future__ import annotations

from typing import cast

from graphgen.runtime.aws.config.medusa.medusa_checks import tree_of
from graphgen.runtime.aws.config.neuron_config import NeuronConfig
from graphgen.runtime.speculation.medusa.medusa_proposer import MedusaProposer
from graphgen.runtime.speculation.tree.tree_speculator import TreeSpeculator


def has_medusa(model: object) -> bool:
    """True for an application with ``is_medusa``."""
    config = getattr(model, "neuron_config", None)
    return config is not None and bool(config.value("is_medusa"))


def medusa_of(model: object) -> TreeSpeculator:
    """The speculator of an application with ``is_medusa``."""
    tree = tree_of(cast(NeuronConfig, getattr(model, "neuron_config", None)))
    return TreeSpeculator(MedusaProposer(tree), tree.nodes)
