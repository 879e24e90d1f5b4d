"""The adapters of ``inference_demo``: its flags, and the adapter of each prompt."""

from __future__ import annotations

from typing import cast

from graphgen.cli.aws.demo_arguments import DemoArguments, no_effect
from graphgen.errors import GraphgenError
from graphgen.runtime.aws.attributes.demo_flags import DEMO_FLAGS

_SWITCH, _ID = "--enable-lora", "--adapter-id"
# Flags whose runs are not compared or proposed with adapters.
_WITHOUT = ("--draft-model-path", "--check-accuracy-mode")


def check_adapter_flags(given: DemoArguments) -> None:
    """Refuse flags of adapters without effect (GG0705), and modes without adapters (GG0904)."""
    for flag in given.values:
        row = DEMO_FLAGS.get(flag)
        if row is not None and row.group == "LoRA" and not given.get(_SWITCH):
            raise no_effect(flag, _SWITCH)
    if _ID not in given.values:
        return
    for flag in _WITHOUT:
        if given.get(flag) not in (None, "skip-accuracy-check"):
            what = f"{flag} with {_ID} is not built yet"
            raise GraphgenError("GG0904", what, help="leave one of them out")
    ids, prompts = adapter_ids(given), cast("list[str]", given.get("--prompt", []))
    if prompts and len(ids) not in (1, len(prompts)):
        raise GraphgenError(
            "GG0705",
            f"{len(ids)} times {_ID} for {len(prompts)} prompts",
            help="give it once, or once for each --prompt",
        )


def adapter_ids(given: DemoArguments) -> list[str | None]:
    """The adapters of ``--adapter-id``; ``None`` for the word none, the base model."""
    listed = cast("list[str]", given.get(_ID, []))
    return [None if name == "none" else name for name in listed]


def adapters_of_prompts(given: DemoArguments, prompts: int) -> list[str | None]:
    """The adapter of each prompt."""
    ids = adapter_ids(given)
    return ids * prompts if len(ids) == 1 else ids
