"""Families of the installed transformers-neuronx against Hugging Face, on mini checkpoints.

Each model has random weights, is saved as Hugging Face saves it, and answers one prompt greedily:
by transformers, and by the library over the stand-ins. The tokens must be equal, but for families
that the library itself computes otherwise. The weights are those of the first seed by which no
choice is close: roundings of bf16, and sums in another order, do not change a token.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, cast

PROMPT: tuple[int, ...] = (3, 17, 9, 41, 5)
LENGTH, POSITIONS, VOCABULARY, SEED = 16, 32, 64, 11
END = VOCABULARY - 1
# The logit of a choice is this part of its own size, at least, above the next one.
CLEAR: Final = 1 / 32

# Standard deviation of weights, and distinct tokens of an answer: small weights repeat one token.
_SPREAD: Final = 0.3
VARIED: Final = 4

_WIDE: Final = {
    "vocab_size": VOCABULARY, "eos_token_id": END, "bos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
_LLAMA: Final = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
    "initializer_range": _SPREAD,
}  # fmt: skip
_GPT: Final = {
    "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "initializer_range": _SPREAD,
}  # fmt: skip
_OPT: Final = {
    "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "word_embed_proj_dim": 32, "max_position_embeddings": 64, "init_std": _SPREAD,
}  # fmt: skip
_NEOX: Final = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "hidden_act": "gelu_new", "initializer_range": _SPREAD,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CheckedFamily:
    """One family of models.

    Attributes:
        name: as on the command line.
        module, class_name: the library's class.
        config, model: transformers' classes.
        sizes: of the mini model.
        stops: the library ends at the token for the end; otherwise it never chooses that token.
        amp: the element type.
        differs: the library's program gives other tokens than transformers, as another interpreter
            of PyHLO confirms: the library is at fault.
    """

    name: str
    module: str
    class_name: str
    config: str
    model: str
    sizes: Mapping[str, object]
    stops: bool = False
    amp: str = "f32"
    differs: bool = False

    @property
    def heads(self) -> int:
        """The number of attention heads."""
        return cast(int, self.sizes.get("num_attention_heads", self.sizes.get("n_head")))


FAMILIES: Final = (
    CheckedFamily("llama", "llama.model", "LlamaForSampling", "LlamaConfig", "LlamaForCausalLM",
           _LLAMA, stops=True),
    CheckedFamily("mistral", "mistral.model", "MistralForSampling", "MistralConfig",
           "MistralForCausalLM", {**_LLAMA, "sliding_window": None}, stops=True),
    CheckedFamily("mixtral", "mixtral.model", "MixtralForSampling", "MixtralConfig",
           "MixtralForCausalLM",
           {**_LLAMA, "sliding_window": None, "num_local_experts": 4, "num_experts_per_tok": 2},
           stops=True, amp="bf16"),
    CheckedFamily("bloom", "bloom.model", "BloomForSampling", "BloomConfig", "BloomForCausalLM",
           {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": _SPREAD}),
    CheckedFamily("gpt2", "gpt2.model", "GPT2ForSampling", "GPT2Config", "GPT2LMHeadModel", _GPT),
    CheckedFamily("opt", "opt.model", "OPTForSampling", "OPTConfig", "OPTForCausalLM", _OPT),
    CheckedFamily("gpt-neox", "gptneox.model", "GPTNeoXForSampling", "GPTNeoXConfig",
           "GPTNeoXForCausalLM", _NEOX),
    CheckedFamily("gpt-j", "gptj.model", "GPTJForSampling", "GPTJConfig", "GPTJForCausalLM",
           {**_GPT, "rotary_dim": 8}, differs=True),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """One family on one number of ranks.

    Attributes:
        family: it.
        tp: the number of ranks.
        tokens: the library's, after the prompt.
        wanted: transformers'.
        seconds: from the checkpoint to the last token.
        error: of a model that did not run.
    """

    family: CheckedFamily
    tp: int
    tokens: tuple[int, ...]
    wanted: tuple[int, ...]
    seconds: float
    error: str = ""

    @property
    def state(self) -> str:
        """``equal``, ``different``, ``failed``, ``refused`` or ``library differs``.

        Refused are ranks that do not divide the heads, which the library has no programs for.
        """
        if self.error:
            return "refused" if self.family.heads % self.tp else "failed"
        if self.tokens == self.wanted:
            return "equal"
        return "library differs" if self.family.differs else "different"


def check_families(
    names: Sequence[str], degrees: Sequence[int], progress: Callable[[str], None]
) -> Iterator[FamilyResult]:
    """Run each family on each number of ranks; the stand-ins are installed and the library found.

    Args:
        names: families; empty for all.
        degrees: numbers of ranks.
        progress: called with a text before each run.
    """
    from graphgen.lowering.cpu import pjrt

    pjrt.configure(max(degrees))
    for family in FAMILIES:
        if names and family.name not in names:
            continue
        with tempfile.TemporaryDirectory(prefix=f"graphgen-{family.name}-") as folder:
            wanted = _wanted(family, folder)
            for tp in degrees:
                progress(f"{family.name}, tp {tp}")
                yield _checked(family, folder, tp, wanted)


def _wanted(family: CheckedFamily, folder: str) -> tuple[int, ...]:
    """Save a mini model whose choices are clear into ``folder``; returns its greedy tokens."""
    import torch
    import transformers

    config: Any = getattr(transformers, family.config)(**{**_WIDE, **family.sizes})
    seed = SEED
    while True:
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType]
        model: Any = getattr(transformers, family.model)(config).eval()
        if family.amp == "bf16":
            model = model.to(torch.bfloat16)
        tokens, is_clear = _greedy(model, family)
        if is_clear:
            model.save_pretrained(folder)
            return tokens
        seed += 1


def _greedy(model: Any, family: CheckedFamily) -> tuple[tuple[int, ...], bool]:
    """Transformers' tokens after the prompt; whether they vary, and each is chosen clearly."""
    import torch

    tokens, is_clear = list(PROMPT), True
    with torch.no_grad():
        while len(tokens) < LENGTH:
            logits = model(torch.tensor([tokens])).logits[0, -1].float()
            if not family.stops:
                logits[END] = float("-inf")
            best, second = logits.topk(2).values.tolist()
            is_clear = is_clear and best - second > CLEAR * abs(best)
            tokens.append(int(logits.argmax()))
            if tokens[-1] == END:
                break
    made = tuple(tokens[len(PROMPT) :])
    return made, is_clear and len({*made}) >= VARIED


def _checked(family: CheckedFamily, folder: str, tp: int, wanted: tuple[int, ...]) -> FamilyResult:
    start = time.perf_counter()
    tokens: tuple[int, ...] = ()
    error = ""
    try:
        tokens = _tokens(family, folder, tp)
    # The library raises whatever it likes, and the other families are still to be run.
    except Exception as caught:
        error = f"{type(caught).__name__}: {caught}".splitlines()[0]
    return FamilyResult(family, tp, tokens, wanted, time.perf_counter() - start, error)


def _tokens(family: CheckedFamily, folder: str, tp: int) -> tuple[int, ...]:
    """The library's greedy tokens after the prompt, up to that for the end."""
    import torch

    kind: Any = getattr(import_module(f"transformers_neuronx.{family.module}"), family.class_name)
    model = kind.from_pretrained(
        folder, batch_size=1, amp=family.amp, tp_degree=tp, n_positions=POSITIONS
    )
    model.to_neuron()
    found = model.sample(torch.tensor([PROMPT]), sequence_length=LENGTH, top_k=1)
    made = [int(token) for token in found[0]][len(PROMPT) :]
    return tuple(made[: made.index(END) + 1] if family.stops and END in made else made)
