"""How transformers makes small random models of a family, and settings that many families have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True)
class Oracle:
    """How transformers makes a small model of one family.

    Attributes:
        name: of its classes, without ``Config`` and what the model class ends in.
        head: what the model class ends in.
        text: what stands before ``Config`` in the name of the configuration.
        sizes: of the configuration; the vocabulary is odd.
        variants: changes of the configuration, each a model of its own; ``plain`` is among them.
    """

    name: str
    sizes: dict[str, Any]
    variants: dict[str, dict[str, Any]] = field(default_factory=dict[str, Any])
    head: str = "ForCausalLM"
    text: str = ""

    @property
    def config(self) -> str:
        """Name of the configuration's class."""
        return f"{self.name}{self.text}Config"

    def model(self, variant: str = "plain", **changes: Any) -> PreTrainedModel:
        """A random model in which everything matters.

        Norm weights are not 1 and biases not 0, as they are in a new model: a forgotten one would
        not show. The weights are large enough for attention to choose between positions.
        """
        import torch
        import transformers

        torch.manual_seed(0)
        given = {"initializer_range": 0.3, **self.sizes, **self.variants[variant], **changes}
        # The plain forms: grouped products take no doubles.
        plain = {"attn_implementation": "eager", "experts_implementation": "eager"}
        config = getattr(transformers, self.config)(**{**plain, **given})
        model = getattr(transformers, f"{self.name}{self.head}")(config)
        with torch.no_grad():
            for name, tensor in model.named_parameters():
                if tensor.ndim == 1 and name.endswith("weight"):
                    tensor.uniform_(0.5, 1.5)
                elif name.endswith("bias"):
                    tensor.normal_(0, 0.3)
            for name, tensor in model.named_buffers():
                if name.endswith("correction_bias"):
                    tensor.normal_(0, 0.3)
        return model.eval()


# Of a decoder like Llama's.
DECODER = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 61,
}
# The second layer reads four tokens, and prompts are longer.
SECOND_SLIDES = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
# The first layer does.
SLIDES = {"use_sliding_window": True, "sliding_window": 4}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # Short, so that the blend is felt at the positions tried here.
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 500.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4,
    "beta_slow": 0.5,
}
# Not the default base of any family.
THETA = {"rope_type": "default", "rope_theta": 500.0}
# The variant that has at once all a family can have: a window below every prompt, another base of
# the positions, biases, heads that are not the hidden size over their number.
ALL_AT_ONCE = "all at once"
