"""Applications on small random checkpoints, beside the same models in transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphgen.runtime.aws_config.inference_config import load_pretrained_config
from graphgen.runtime.aws_config.neuron_config import FusedSpecNeuronConfig, NeuronConfig
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from graphgen.runtime.progress import Silent
from tests.oracles.families import ORACLES, save

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BATCH = 3


def write_checkpoint(
    folder: Path, family: str = "llama", variant: str = "plain", **changes: Any
) -> Path:
    """A checkpoint of a family; see :class:`~tests.oracles.families.Oracle`."""
    folder.mkdir(parents=True, exist_ok=True)
    save(ORACLES[family].model(variant, **changes), folder)
    return folder


def open_application(checkpoint: Path, family: str = "llama", **options: Any) -> Any:
    """A loaded application in f32; ``options`` are attributes of its NeuronConfig."""
    kind = CAUSAL_LM[family]
    given = {"batch_size": BATCH, "seq_len": 128, "torch_dtype": "float32", **options}
    config = kind.get_config_cls()(
        NeuronConfig(**given), load_config=load_pretrained_config(checkpoint)
    )
    application: NeuronBaseForCausalLM = kind(str(checkpoint), config)
    application.progress = Silent()
    return application.to_cpu()


def with_draft(
    kind: type[NeuronBaseForCausalLM],
    folder: Path,
    draft: tuple[Path | None, Path],
    given: dict[str, Any],
    own: dict[str, Any],
) -> Any:
    """A target that is not built yet, configured as AWS's documents do.

    Args:
        kind: of both.
        folder: checkpoint of the target.
        draft: checkpoint of the draft, ``None`` for no draft, and that of its configuration.
        given: attributes of the target.
        own: attributes that the draft has otherwise.
    """
    attributes, (path, configured) = NeuronConfig(**given), draft
    make = kind.get_config_cls()
    config = make(attributes, load_config=load_pretrained_config(folder))
    if path is not None:
        of_draft = copy.deepcopy(attributes)
        for name, value in own.items():
            setattr(of_draft, name, value)
        draft_config = make(of_draft, load_config=load_pretrained_config(configured))
        config.fused_spec_config = FusedSpecNeuronConfig(
            kind._model_cls, draft_config=draft_config, draft_model_path=str(path)
        )
    made: Any = kind(str(folder), config)
    made.progress = Silent()
    return made


def open_reference(checkpoint: Path) -> PreTrainedModel:
    """The same model in transformers, in f32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
