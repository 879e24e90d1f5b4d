"""What transformers makes of the packaged SmolLM2 file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.hub import locate
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.session.session import Session
from tests.oracles.sessions import open_session, session_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast


@cache
def smollm2_path() -> Path:
    """The GGUF file; a missing one is an error, not a skip: it is a test dependency."""
    path = locate("smollm2")
    assert path is not None
    return path


@cache
def reference_model() -> PreTrainedModel:
    """The model as transformers loads it from the GGUF file, in f32 (14 s, once a session)."""
    import torch
    from transformers import AutoModelForCausalLM

    path = smollm2_path()
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )


def reference_tokenizer(folder: Path, *, digits: bool = True) -> PreTrainedTokenizerFast:
    """SmolLM2's tokenizer in transformers, from a ``tokenizer.json`` written into ``folder``.

    It is written here as the model's publisher wrote it. transformers' own GGUF conversion makes a
    GPT2Tokenizer, which lacks the Digits step; ``digits=False`` gives that wrong one.
    """
    from transformers import PreTrainedTokenizerFast

    tokens, kinds, merges, template = _vocabulary()
    byte_level: dict[str, Any] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    steps = [{"type": "Digits", "individual_digits": True}, byte_level]
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    text = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": tokens[i], "special": True, **special}
            for i, kind in enumerate(kinds)
            if kind == 3
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps if digits else steps[1:]},
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in merges],
        },
    }
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(text))
    names = {"bos_token": tokens[1], "eos_token": tokens[2], "unk_token": tokens[0]}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), **names)
    tokenizer.chat_template = template
    return tokenizer


@cache
def _vocabulary() -> tuple[list[str], list[int], list[str], str]:
    """Tokens, token types, merges and chat template, by the gguf package's own reader."""
    from gguf import GGUFReader

    fields = GGUFReader(smollm2_path()).fields
    names = ("ggml.tokens", "ggml.token_type", "ggml.merges", "chat_template")
    tokens, kinds, merges, template = (fields[f"tokenizer.{name}"].contents() for name in names)
    return tokens, kinds, merges, template


@cache
def arrays_model() -> PreTrainedModel:
    """transformers' Llama given the very arrays that our reader makes of the file (2 s)."""
    import numpy as np
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    checkpoint = open_checkpoint(smollm2_path())
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig.from_dict(dict(checkpoint.config)))
    arrays = {name: np.array(checkpoint.read(name), np.float32) for name in checkpoint.tensors()}
    arrays["lm_head.weight"] = arrays["model.embed_tokens.weight"]
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    model.load_state_dict(tensors, assign=True)
    # The rotary frequencies are not a parameter: computed again, outside the device without memory.
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    return model.eval()


@cache
def smollm2_session(dtype: str, batch: int, max_len: int) -> Session:
    """Our session on the packaged file; tests that share it empty its rows themselves."""
    return open_session(
        smollm2_path(), CompileConfig(dtype=dtype).serving(batch=batch, max_len=max_len)
    )


@cache
def first_layers_session(dtype: str, batch: int, max_len: int) -> Session:
    """The same on three layers of thirty: all widths of the model in a tenth of its time."""
    settings = CompileConfig(dtype=dtype).serving(batch=batch, max_len=max_len)
    return session_of(open_checkpoint(smollm2_path()), settings, layers=3)
