"""The readers that are fuzzed, each with small right inputs."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from graphgen.json_value import Json

ROOT: Final = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Target:
    """A reader.

    Attributes:
        file: name of the file that holds an input, in a folder of its own.
        read: reads the file; errors of the house are right, other exceptions are defects.
        seeds: makes right inputs.
    """

    file: str
    read: Callable[[Path], object]
    seeds: Callable[[], Sequence[bytes]]


def _module(path: Path) -> None:
    from graphgen.lowering.open import open_module

    open_module(path)


def _texts() -> list[bytes]:
    """IR of the tests, small modules first."""
    files = sorted(ROOT.glob("filecheck/**/*.gg"), key=lambda path: (path.stat().st_size, path))
    return [path.read_bytes() for path in files[:12]]


def _checkpoint(path: Path) -> None:
    from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint

    open_checkpoint(path)


def _gguf() -> list[bytes]:
    from tests.oracles.small_gguf import write_small_model

    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.gguf"
        write_small_model(path)
        return [path.read_bytes()]


def _safetensors(path: Path) -> None:
    from graphgen.runtime.checkpoint.safetensors_file import SafetensorsFile

    SafetensorsFile(path)


def _tensors() -> list[bytes]:
    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]},
    }
    text = json.dumps(header).encode()
    return [struct.pack("<Q", len(text)) + text + bytes(32)]


def _tokenizer(path: Path) -> None:
    from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(path.parent)
    tokenizer.decode(tokenizer.encode("the cat sat"))


def _tokenizers() -> list[bytes]:
    from tests.oracles.families import save_tokenizer

    with TemporaryDirectory() as folder:
        save_tokenizer(Path(folder))
        return [(Path(folder) / "tokenizer.json").read_bytes()]


def _template(path: Path) -> None:
    from graphgen.runtime.tokenizer.chat_template import render_chat

    turns = [{"role": "user", "content": "<a>"}, {"role": "assistant", "content": "b"}]
    text = path.read_bytes().decode("utf-8", "replace")
    render_chat(text, turns, bos_token="<s>", eos_token="</s>")


def _templates() -> list[bytes]:
    return [
        b"{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}{% endfor %}",
        b"{% set ns = namespace(n=0) %}{% for m in messages %}{% if loop.first %}{{ bos_token }}"
        b"{% endif %}{{ m['content'].split('a')[-1] }}{% endfor %}"
        b"{{ messages | tojson(indent=2) }}",
    ]


def _adapter(path: Path) -> None:
    from graphgen.runtime.checkpoint.config_file import read_json_object
    from graphgen.runtime.lora.adapter_file import read_adapter_config

    read_adapter_config(read_json_object(path), "adapter_config.json")


def _body(path: Path) -> None:
    from graphgen.runtime.server.request_fields import CHAT_BODY, COMPLETION_BODY
    from graphgen.runtime.server.routes import read_json

    body = read_json(path.read_bytes())
    chat = isinstance(body, dict) and "messages" in body
    (CHAT_BODY if chat else COMPLETION_BODY).read(body)


def _json(*values: Json) -> Callable[[], list[bytes]]:
    return lambda: [json.dumps(value).encode() for value in values]


_ADAPTER: Final[Json] = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 8,
    "target_modules": ["q_proj", "v_proj"],
    "rank_pattern": {"q_proj": 2},
}
_CHAT: Final[Json] = {
    "model": "m",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    "temperature": 0.5,
    "logit_bias": {"1": -100},
    "stop": ["a"],
    "n": 2,
}
TARGETS: Final[dict[str, Target]] = {
    "ir": Target("module.gg", _module, _texts),
    "gguf": Target("model.gguf", _checkpoint, _gguf),
    "safetensors": Target("model.safetensors", _safetensors, _tensors),
    "tokenizer": Target("tokenizer.json", _tokenizer, _tokenizers),
    "template": Target("template.jinja", _template, _templates),
    "adapter": Target("adapter_config.json", _adapter, _json(_ADAPTER)),
    "body": Target("body.json", _body, _json(_CHAT, {"model": "m", "prompt": ["a", "b"]})),
}


@cache
def seeds_of(name: str) -> Sequence[bytes]:
    """The right inputs of a target."""
    return TARGETS[name].seeds()
