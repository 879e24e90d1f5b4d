"""The draft of ``inference_demo``: its flags, its configuration, and how it is opened."""

from __future__ import annotations

from typing import cast

from graphgen.cli.console import write_stdout
from graphgen.cli.demo_arguments import DemoArguments, no_effect
from graphgen.cli.demo_settings import model_class, neuron_values
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.inference_config import load_pretrained_config
from graphgen.runtime.aws_nxdi.assisted_decoding import draft_of, eagle_of
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.speculation.speculator import Speculator

_KEPT = "draft_model_modules_to_not_convert"
# Attributes of the target that its draft does not have: a draft's programs give logits, and have no
# adapters.
_OF_TARGET = (
    *("on_device_sampling_config", "output_logits", "spec_batch_size", "lora_config"),
    _KEPT,
)


def make_draft(given: DemoArguments) -> NeuronBaseForCausalLM | None:
    """The application of the draft; ``None`` where no flag names one or the model has it.

    It has the attributes of the target, but for its own ranks, the modules that it does not
    quantize, adapters, and sampling, as the host accepts.

    Raises:
        GraphgenError: GG09xx for the configuration, GG06xx for the checkpoint.
    """
    path = given.get("--draft-model-path")
    if path is None or is_part(given):
        return None
    values = {name: value for name, value in neuron_values(given).items() if name not in _OF_TARGET}
    if "--draft-model-tp-degree" in given.values:
        values["tp_degree"] = given.get("--draft-model-tp-degree")
    kept = neuron_values(given).get(_KEPT)
    if kept:
        values["modules_to_not_convert"] = kept
    if values.get("quantized"):
        # The path is that of the target's weights; the draft's are quantized when they are read.
        values["quantized_checkpoints_path"] = "none"
    kind = model_class(given)
    neuron_config = kind.get_config_cls().get_neuron_config_cls()(**values)
    load = load_pretrained_config(str(path))
    return kind(str(path), kind.get_config_cls()(neuron_config, load_config=load))


def prepare_draft(draft: NeuronBaseForCausalLM, given: DemoArguments) -> None:
    """Compile a draft and load it, as far as the flags say."""
    if given.get("--compile-dry-run"):
        names = ", ".join(function.name for function in draft.build().module.programs())
        write_stdout(f"Dry run of the draft: the programs {names} were built\n")
        return
    if given.get("--on-cpu"):
        draft.to_cpu()
        return
    folder = str(given.get("--compiled-draft-model-path"))
    if not given.get("--skip-compile"):
        draft.compile(folder, debug=bool(given.get("--hlo-debug")))
        write_stdout(f"Compiled the draft into {folder}\n")
    if not given.get("--compile-only"):
        draft.load(folder)


def is_eagle(given: DemoArguments) -> bool:
    """True if the draft is one of EAGLE, which is opened with the model and has no folder."""
    return bool(given.get("--enable-eagle-speculation"))


def is_part(given: DemoArguments) -> bool:
    """True if the draft is opened with the model: one of EAGLE, or that of fused programs."""
    return is_eagle(given) or bool(given.get("--enable-fused-speculation"))


def draft_speculator(
    app: NeuronBaseForCausalLM, draft: NeuronBaseForCausalLM | None, rows: int
) -> Speculator:
    """The speculator of an application and its draft.

    Args:
        app: the loaded target.
        draft: loaded too; ``None`` for the draft of EAGLE that ``app`` is configured with.
        rows: of the prompts.

    Raises:
        GraphgenError: GG0705 for a draft with fewer rows or another tokenizer; GG0903 for a draft
            that is not of EAGLE.
    """
    session = app.running().session
    proposer = eagle_of(app) if draft is None else draft_of(app, draft, [session.limit] * rows)
    return Speculator(proposer, session.table.verifies)


def check_draft_flags(given: DemoArguments) -> None:
    """Refuse flags of a draft without effect, and a length without a draft (GG0705)."""
    ends = given.get("--compile-only") or given.get("--compile-dry-run")
    path = given.get("--draft-model-path")
    for flag in ("--compiled-draft-model-path", "--draft-model-tp-degree"):
        if flag in given.values and path is None:
            raise no_effect(flag, "--draft-model-path")
    if is_part(given):
        _check_part_flags(given)
    if path is not None and not given.get("--speculation-length"):
        raise no_effect("--draft-model-path", "--speculation-length")
    if path is None and given.get("--speculation-length") and not ends:
        raise GraphgenError(
            "GG0705",
            "--speculation-length has no effect: nothing proposes tokens here",
            help="add --draft-model-path, or --compile-only for generate and its assistant_model",
        )
    in_memory = given.get("--on-cpu") or given.get("--compile-dry-run") or is_part(given)
    if path is not None and not in_memory and "--compiled-draft-model-path" not in given.values:
        raise GraphgenError(
            "GG0705",
            "--compiled-draft-model-path is missing",
            help="give the folder of the compiled draft, beside that of the model",
        )
    if given.get("--check-accuracy-mode") == "draft-logit-matching" and path is None:
        raise no_effect("--check-accuracy-mode draft-logit-matching", "--draft-model-path")


def _check_part_flags(given: DemoArguments) -> None:
    """Refuse what a draft that is opened with the model does not have (GG0705, GG0904)."""
    kind = "--enable-eagle-speculation" if is_eagle(given) else "--enable-fused-speculation"
    if "--draft-model-path" not in given.values:
        raise no_effect(kind, "--draft-model-path")
    for flag in ("--compiled-draft-model-path", "--draft-model-tp-degree"):
        if flag in given.values:
            raise GraphgenError(
                "GG0705",
                f"{flag} has no effect: with {kind} the draft is opened with the model, on one "
                "rank",
                help="leave it out",
            )
    if given.get("--check-accuracy-mode") == "draft-logit-matching":
        raise GraphgenError(
            "GG0904",
            "--check-accuracy-mode draft-logit-matching: a check of a draft that is opened with "
            "the model is not built yet",
            help="give token-matching or logit-matching",
        )


def loops_to_tokens(given: DemoArguments) -> int:
    """Tokens of as many draft loops as AWS's check has by default: six of k - 1 each."""
    return _LOOPS * (cast(int, given.get("--speculation-length")) - 1)


_LOOPS = 6
