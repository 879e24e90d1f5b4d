"""The configuration and the application that the flags of ``inference_demo`` request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from graphgen.cli.demo_arguments import USAGE, DemoArguments, no_effect
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute import Refused
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.demo_flags import DEMO_FLAGS, SAMPLING, DemoFlag
from graphgen.runtime.aws_config.expert_config import MoENeuronConfig
from graphgen.runtime.aws_config.inference_config import InferenceConfig, load_pretrained_config
from graphgen.runtime.aws_config.neuron_config import FusedSpecNeuronConfig
from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM

_SWITCH, _ID, _CHECK = "--enable-lora", "--adapter-id", "--check-accuracy-mode"


def check_adapter_flags(given: DemoArguments) -> None:
    """Refuse flags of adapters without effect (GG0705), and checks with adapters (GG0904)."""
    for flag in given.values:
        row = DEMO_FLAGS.get(flag)
        if row is not None and row.group == "LoRA" and not given.get(_SWITCH):
            raise no_effect(flag, _SWITCH)
    if _ID not in given.values:
        return
    if given.get(_CHECK) not in (None, "skip-accuracy-check"):
        what = f"{_CHECK} with {_ID} is not built yet"
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


# NxD Inference says gemma3 for the text model of Gemma 3.
MODEL_TYPES: Mapping[str, type[NeuronBaseForCausalLM]] = {
    name.removesuffix("_text"): kind for name, kind in CAUSAL_LM.items()
}
_TASK = "causal-lm"
# Nested configurations, and the attribute of NeuronConfig that holds each.
_HOLDERS = {
    "KVQuantizationConfig": "kv_quant_config",
    "LoraServingConfig": "lora_config",
    "ChunkedPrefillConfig": "chunked_prefill_config",
    "RouterConfig": "router_config",
}
_OF_EXPERTS = ("MoENeuronConfig", "RouterConfig")
# Flags that only programs that choose tokens know.
_PROGRAMS_ONLY = ("--dynamic", "--top-k-kernel-enabled")
_CHECKING = ("--expected-outputs-path", "--num-tokens-to-check")
_MATCHING = ("--divergence-difference-tol", "--tol-map")


def check_arguments(given: DemoArguments) -> None:
    """Refuse missing flags, flags without effect, and features that are not built.

    Raises:
        GraphgenError: GG0705, GG0904.
    """
    needed = ["--model-type", "--task-type", "--model-path"]
    needed += [] if given.get("--on-cpu") else ["--compiled-model-path"]
    ends = given.get("--compile-only") or given.get("--compile-dry-run")
    needed += [] if ends else ["--prompt"]
    missing = [flag for flag in needed if flag not in given.values]
    if missing:
        raise GraphgenError(
            "GG0705", f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            help=f"usage: {USAGE}",
        )  # fmt: skip
    for flag in given.values:
        if flag in DEMO_FLAGS:
            _check_built(DEMO_FLAGS[flag], given)
    _check_modes(given)
    _check_checks(given)
    if given.get("--is-medusa") and not ends:
        raise GraphgenError(
            "GG0705",
            "--is-medusa has no effect: the heads propose nothing here",
            help="add --compile-only, and give generate the model as its assistant_model, or use "
            "graphgen generate --medusa-heads",
        )
    default = attributes_of(SAMPLING)["global_topk"].default if on_device(given) else 0
    top_k, most = given.get("--top-k", 0), given.get("--global-topk", default)
    if 0 < cast(int, most) < cast(int, top_k):
        raise GraphgenError(
            "GG0705",
            f"--top-k {top_k} is above --global-topk {most}: only that many best tokens are seen",
            help="lower --top-k, or raise --global-topk",
        )


def on_device(given: DemoArguments) -> bool:
    """True if the programs choose the tokens."""
    return bool(given.get("--on-device-sampling"))


def _check_built(row: DemoFlag, given: DemoArguments) -> None:
    """Refuse a setting of the run, or an attribute of experts, that is not built (GG0904)."""
    refused, value = row.refused, given.values[row.flag]
    if row.owner in _OF_EXPERTS:
        wanted = model_class(given).get_config_cls().get_neuron_config_cls()
        if not issubclass(wanted, MoENeuronConfig):
            raise GraphgenError(
                "GG0705",
                f"{given.texts[row.flag]}: a model of type {given.get('--model-type')} has no "
                "experts",
                help="leave it out",
            )
        attribute = attributes_of(row.owner)[row.name]
        if isinstance(attribute.cpu, Refused) and not attribute.requests_nothing(
            value, attribute.default
        ):
            refused = attribute.cpu
    if refused is not None:
        raise GraphgenError(
            "GG0904",
            f"{given.texts[row.flag]}: {refused.feature} is not built yet",
            help=refused.remedy,
        )


def _check_modes(given: DemoArguments) -> None:
    """Refuse modes that exclude each other (GG0705)."""
    modes = [
        flag
        for flag in ("--on-cpu", "--skip-compile", "--compile-only", "--compile-dry-run")
        if given.get(flag)
    ]
    if len(modes) > 1:
        raise GraphgenError(
            "GG0705", f"{modes[0]} and {modes[1]} exclude each other", help="leave one of them out"
        )
    if "--benchmark-report-path" in given.values and not given.get("--benchmark"):
        raise no_effect("--benchmark-report-path", "--benchmark")
    if "--input-capture-save-dir" in given.values and "--capture-indices" not in given.values:
        raise no_effect("--input-capture-save-dir", "--capture-indices")
    if not on_device(given):
        for flag in _PROGRAMS_ONLY:
            if flag in given.values:
                raise no_effect(flag, "--on-device-sampling")


def _check_checks(given: DemoArguments) -> None:
    """Refuse flags of a check that is not requested."""
    mode = given.get("--check-accuracy-mode", "skip-accuracy-check")
    for flag in (*_CHECKING, *_MATCHING):
        if flag in given.values and mode == "skip-accuracy-check":
            raise no_effect(flag, "--check-accuracy-mode")
    for flag in _MATCHING:
        if flag in given.values and mode not in ("logit-matching", "draft-logit-matching"):
            raise no_effect(flag, "--check-accuracy-mode logit-matching")
    indices = cast("list[object]", given.get("--capture-indices", []))
    if "auto" in indices and (len(indices) > 1 or mode != "logit-matching"):
        raise no_effect("--capture-indices auto", "--check-accuracy-mode logit-matching")
    wrong = [one for one in indices if one != "auto" and (not isinstance(one, int) or one < 0)]
    if wrong:
        raise GraphgenError(
            "GG0902",
            f"--capture-indices {wrong[0]}: it must be auto or integers of at least 0",
            help="0 is the launch of the prompts, 1 the first step after it",
        )


def model_class(given: DemoArguments) -> type[NeuronBaseForCausalLM]:
    """The class of the model type (GG0904 if it is not built, GG0705 if unknown)."""
    task, kind = given.get("--task-type"), str(given.get("--model-type"))
    if task != _TASK:
        raise GraphgenError("GG0705", f"--task-type {task} is unknown", help=f"the task is {_TASK}")
    if kind not in MODEL_TYPES:
        raise GraphgenError(
            "GG0705",
            f"--model-type {kind} is unknown",
            help=f"one of {', '.join(MODEL_TYPES)}",
        )
    return MODEL_TYPES[kind]


def neuron_values(given: DemoArguments) -> dict[str, object]:
    """The attributes of NeuronConfig that the flags set, nested ones as dictionaries."""
    values: dict[str, object] = {}
    sampling: dict[str, object] = {}
    for flag, value in given.values.items():
        row = DEMO_FLAGS.get(flag)
        if row is None or flag == "--on-device-sampling":
            continue
        if row.owner in ("NeuronConfig", "MoENeuronConfig"):
            values |= _listed(value) if row.name == "modules_to_not_convert" else {row.name: value}
        elif row.owner == SAMPLING:
            sampling[row.name] = value
        elif row.owner in _HOLDERS:
            nested = cast("dict[str, object]", values.setdefault(_HOLDERS[row.owner], {}))
            nested[row.name] = value
    if given.get("--enable-lora"):
        values.setdefault("lora_config", {})
    if on_device(given):
        values["on_device_sampling_config"] = sampling
    return values


def _listed(value: object) -> dict[str, object]:
    """The attributes that a file of modules sets.

    It is a list, or has lists under the keys ``model`` and ``draft_model``, or in objects of a key
    ``modules_to_not_convert`` there.
    """
    name = "modules_to_not_convert"
    if not isinstance(value, dict):
        return {name: value}
    given = cast("dict[str, object]", value)
    parts = {
        name: given.get("model", given.get(name)),
        f"draft_model_{name}": given.get("draft_model"),
    }
    found = {key: _inner(part, name) for key, part in parts.items() if part is not None}
    return found or {name: value}


def _inner(part: object, name: str) -> object:
    if not isinstance(part, dict):
        return part
    nested = cast("dict[str, object]", part)
    return nested.get(name, nested)


def make_config(given: DemoArguments) -> InferenceConfig:
    """The configuration; errors about an attribute name the flag that set it.

    Raises:
        GraphgenError: GG0902, GG0903, GG0904 of NeuronConfig, GG06xx for the model, GG0705 for more
            prompts than rows.
    """
    kind = model_class(given).get_config_cls()
    load = load_pretrained_config(str(given.get("--model-path")))
    try:
        made = kind(kind.get_neuron_config_cls()(**neuron_values(given)), load_config=load)
    except GraphgenError as error:
        error.where = error.where or _flag_of(error.what, given)
        raise
    if (
        made.neuron_config.value("enable_fused_speculation")
        and "--draft-model-path" in given.values
    ):
        path = str(given.get("--draft-model-path"))
        worker = model_class(given)._model_cls  # pyright: ignore[reportPrivateUsage] - AWS's name
        made.fused_spec_config = FusedSpecNeuronConfig(worker, draft_model_path=path)
    prompts, rows = cast("list[str]", given.get("--prompt", [])), made.neuron_config.batch_size
    if len(prompts) > cast(int, rows):
        raise GraphgenError(
            "GG0705",
            f"--prompt is given {len(prompts)} times for a batch of {rows}",
            help=f"--batch-size {len(prompts)}, or fewer prompts",
        )
    return made


def _flag_of(what: str, given: DemoArguments) -> str:
    """The flag whose attribute an error starts with, as it was given."""
    for flag, text in given.texts.items():
        row = DEMO_FLAGS.get(flag)
        if row is None or not row.owner:
            continue
        holder = f"NeuronConfig.{_HOLDERS.get(row.owner, row.name)} "
        if what.startswith((f"{row.owner}.{row.name} ", holder)):
            return text
    return ""
