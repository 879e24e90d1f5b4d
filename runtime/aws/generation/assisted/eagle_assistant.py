"""The EAGLE draft of an application's ``fused_spec_config``, which ``generate`` takes by itself."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from graphgen.errors import GraphgenError
from graphgen.runtime.aws.config.eagle_checks import draft_attributes, draft_path
from graphgen.runtime.aws.fused.fused_checks import is_fused
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.session import Session
from graphgen.runtime.speculation.eagle.eagle_checkpoint import EagleCheckpoint, is_eagle
from graphgen.runtime.speculation.eagle.eagle_draft import EagleDraft
from graphgen.runtime.speculation.eagle.open_eagle import eagle_draft

if TYPE_CHECKING:
    from graphgen.runtime.aws.application.application_base import NeuronApplicationBase

_drafts: WeakKeyDictionary[Session, EagleDraft] = WeakKeyDictionary()


def has_eagle(model: object) -> bool:
    """True for an application whose ``generate`` proposes tokens by an EAGLE draft."""
    config = getattr(model, "neuron_config", None)
    return config is not None and bool(config.value("enable_eagle_speculation"))


def has_fused(model: object) -> bool:
    """True for an application whose programs propose and accept by themselves."""
    config = getattr(model, "neuron_config", None)
    return config is not None and is_fused(config)


def eagle_of(model: NeuronApplicationBase) -> EagleDraft:
    """The draft of a loaded application, opened at its first use.

    Raises:
        GraphgenError: GG0903 for a draft of another kind than the attributes say, GG05xx and
            GG06xx for its files, GG0705 for one that does not fit the target.
    """
    running = model.running()
    if running.session not in _drafts:
        checkpoint = _checked(model)
        made = eagle_draft(running.session, running.model.settings, checkpoint, model.progress)
        _drafts[running.session] = made
    return _drafts[running.session]


def _checked(model: NeuronApplicationBase) -> EagleCheckpoint:
    """The draft with its target's tensors, if it is what the attributes say (GG0903)."""
    fused = model.config.fused_spec_config
    path = cast(str, draft_path(fused))
    own = open_checkpoint(locate(path, plain_names=True) or Path(path))
    if not is_eagle(own):
        raise GraphgenError(
            "GG0903",
            f"draft_model_path={path} is not an EAGLE draft: it has no tensor fc.weight",
            help="give a draft of EAGLE, or set enable_eagle_speculation=False",
        )
    target = open_checkpoint(locate(model.model_path, plain_names=True) or Path(model.model_path))
    made = EagleCheckpoint(own, target)
    attributes = draft_attributes(fused) or model.neuron_config
    third = made.config["eagle_version"] == 3
    expected = {"is_eagle3": third}
    if not third:
        expected["enable_eagle_draft_input_norm"] = bool(made.config["input_norm"])
    for name, value in expected.items():
        if bool(attributes.value(name)) is not value:
            raise GraphgenError(
                "GG0903",
                f"the draft at {path} has {name}={value} by its tensors, and the configuration "
                f"says {not value}",
                help=f"set {name}={value} for draft and target",
            )
    return made
