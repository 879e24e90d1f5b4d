"""Applications on small random checkpoints, beside the same models in transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphgen.runtime.aws.application.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws.application.model_classes import CAUSAL_LM
from graphgen.runtime.aws.config.neuron_config import NeuronConfig
from graphgen.runtime.aws.config.pretrained_config import load_pretrained_config
from graphgen.runtime.progress_callback import Silent
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


def open_reference(checkpoint: Path) -> PreTrainedModel:
    """The same model in transformers, in f32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
