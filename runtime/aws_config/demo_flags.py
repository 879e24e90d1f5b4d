"""The flags of ``inference_demo run``: each sets an attribute, or a setting of the run.

The type, the choices and the refusal of a flag that sets an attribute are those of the attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphgen.config.fields import ValueType, words
from graphgen.runtime.aws_config.attribute import Attribute, Refused
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.value_kinds import COUNT, INDEX, NUMBER, TEXT

# How a flag is written: with a value, alone, alone or as --no-..., with several values, several
# times with a value each, or with the path of a JSON file that holds the value.
FORMS = ("value", "switch", "negatable", "list", "repeated", "file")
SAMPLING = "OnDeviceSamplingConfig"


@dataclass(frozen=True, slots=True)
class DemoFlag:
    """One flag.

    Attributes:
        flag: as it is written.
        group: heading in the help.
        owner: the class whose attribute the flag sets; empty for a setting of the run.
        name: the attribute or the setting.
        form: one of :data:`FORMS`.
        kind: the accepted values of a setting of the run; an attribute has its own.
        doc: of a setting of the run.
        refused: the setting is not built.
        value: what the flag sets where it takes no value.
    """

    flag: str
    group: str
    owner: str
    name: str
    form: str
    kind: ValueType[Any] = TEXT
    doc: str = ""
    refused: Refused | None = None
    value: bool = True

    @property
    def attribute(self) -> Attribute | None:
        """The row of the attribute that the flag sets."""
        return attributes_of(self.owner)[self.name] if self.owner else None

    @property
    def accepted(self) -> ValueType[Any]:
        """The values that the flag takes."""
        return self.attribute.kind if self.attribute is not None else self.kind

    @property
    def help(self) -> str:
        """One line."""
        row = self.attribute
        return self.doc or (row.doc if row is not None else "")


def _named(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _attribute(flag: str, group: str, owner: str = "NeuronConfig", name: str = "") -> DemoFlag:
    """A flag of an attribute; its form follows from the attribute's type."""
    made = DemoFlag(flag, group, owner, name or _named(flag), "value")
    plain = made.accepted.plain
    if plain.get("type") == "boolean":
        return replace(made, form="switch")
    return replace(made, form="list") if plain.get("type") == "array" else made


def _attributes(group: str, flags: str, owner: str = "NeuronConfig") -> tuple[DemoFlag, ...]:
    return tuple(_attribute(flag, group, owner) for flag in flags.split())


def _run(
    flag: str,
    doc: str,
    kind: ValueType[Any] | None = TEXT,
    *,
    name: str = "",
    form: str = "value",
    group: str = "Run",
    refused: Refused | None = None,
) -> DemoFlag:
    """A flag of a setting of the run; a switch without a kind."""
    made = DemoFlag(flag, group, "", name or _named(flag), form, kind or TEXT, doc, refused)
    return made if kind is not None else replace(made, form="switch")


_CLUSTER = Refused("a run of several machines", "leave it out: all ranks run on this machine")
_OFFSETS = Refused(
    "a shift of the inputs", "leave it out: tokens do not depend on how a prompt is padded"
)
MODES = ("skip-accuracy-check", "token-matching", "logit-matching", "draft-logit-matching")
_EXPERTS = "MoENeuronConfig"
_QUANTIZED_CACHE = "KVQuantizationConfig"
_ADAPTERS = "LoraServingConfig"

RUN = (
    _run("--model-path", "the checkpoint: a folder, a file, or a name of the hub"),
    _run("--compiled-model-path", "the folder of the compiled model"),
    _run("--prompt", "a text to go on with; once for each row", name="prompts", form="repeated"),
    _run("--pad-token-id", "token between prompt and bucket; masked, so it changes nothing", INDEX),
    _run("--on-cpu", "build and load in memory, in place of compiling and loading", None),
    _run("--skip-compile", "load the folder that an earlier run compiled", None),
    _run("--compile-only", "compile and end", None),
    _run("--compile-dry-run", "build the programs and end; nothing is compiled or written", None),
    _run("--hlo-debug", "keep the sources of ops in HLO files", None),
    _run("--benchmark", "measure latencies, print and write a report", None),
    _run("--benchmark-report-path", "file of the report; default: benchmark_report.json"),
    _run(
        "--capture-indices",
        "steps whose inputs are captured, or auto: the step at which logit-matching fails",
        form="list",
    ),
    _run("--input-capture-save-dir", "folder of captured inputs; default: captured_inputs"),
    _run("--input-start-offsets", "shift of each row", INDEX, form="list", refused=_OFFSETS),
    _run("--enable-torch-dist", "torch.distributed", None, refused=_CLUSTER),
)
ACCURACY = (
    _run("--check-accuracy-mode", "the check before the answer", words(*MODES), group="Accuracy"),
    _run("--expected-outputs-path", "file of the reference's outputs", group="Accuracy"),
    _run("--num-tokens-to-check", "first tokens to compare", COUNT, group="Accuracy"),
    _run(
        "--divergence-difference-tol",
        "accepted gap between the best and the expected token, in logits",
        NUMBER,
        group="Accuracy",
    ),
    _run("--tol-map", "k to (atol, rtol), as JSON or Python", group="Accuracy"),
)
SAMPLING_FLAGS = (
    DemoFlag(
        "--on-device-sampling",
        "Sampling",
        "NeuronConfig",
        "on_device_sampling_config",
        "switch",
        doc="programs choose the tokens, by the settings below",
    ),
    *_attributes("Sampling", "--do-sample --top-k --top-p --temperature", SAMPLING),
    *_attributes("Sampling", "--global-topk --dynamic --top-k-kernel-enabled", SAMPLING),
    *_attributes("Sampling", "--sampling-dp-degree --output-logits"),
)
MODEL = (
    *_attributes(
        "Sizes",
        "--torch-dtype --batch-size --padding-side --allow-input-truncation --seq-len "
        "--n-active-tokens --n-positions --max-context-length --max-new-tokens --max-length "
        "--rpl-reduce-dtype --attention-dtype --cast-type --ctx-batch-size --tkg-batch-size "
        "--max-batch-size --is-continuous-batching --kv-cache-batch-size --kv-cache-padding-size "
        "--apply-seq-ids-mask",
    ),
    *_attributes(
        "Buckets",
        "--enable-bucketing --bucket-n-active-tokens --context-encoding-buckets --prefix-buckets "
        "--token-generation-buckets",
    ),
    *_attributes(
        "Parallelism",
        "--tp-degree --cp-degree --mlp-cp-degree --attention-dp-degree --pp-degree --ep-degree "
        "--world-size --sequence-parallel-enabled --weight-gather-seq-len-threshold "
        "--vocab-parallel --fused-qkv --flash-decoding-enabled --k-cache-transposed "
        "--disable-kv-cache-tiling",
    ),
    _attribute("--start_rank_id", "Parallelism", name="start_rank_id"),
    _attribute("--local_ranks_size", "Parallelism", name="local_ranks_size"),
    *_attributes("Loading", "--save-sharded-checkpoint --skip-sharding --skip-warmup --async-mode"),
)
QUANTIZATION = (
    *_attributes(
        "Quantization",
        "--quantized --quantized-checkpoints-path --quantization-type --quantization-dtype "
        "--kv-cache-quant --activation-quantization-type --quantize-clamp-bound "
        "--quantized-mlp-kernel-enabled --rmsnorm-quantize-kernel-enabled",
    ),
    *_attributes("Quantization", "--k-quant-method --v-quant-method", _QUANTIZED_CACHE),
    _attribute("--kv-quant-dtype", "Quantization", _QUANTIZED_CACHE, "quant_dtype"),
    replace(
        _attribute("--kv-direct-cast", "Quantization", _QUANTIZED_CACHE, "direct_cast"),
        form="negatable",
    ),
    replace(
        _attribute("--modules-to-not-convert-file", "Quantization", name="modules_to_not_convert"),
        form="file",
        doc="JSON file with the list modules_to_not_convert, of model and draft_model",
    ),
)
KERNELS = (
    *_attributes(
        "Kernels and the Neuron compiler",
        "--qkv-kernel-enabled --qkv-nki-kernel-enabled --qkv-cte-nki-kernel-fuse-rope "
        "--qkv-kernel-nbsd-layout --strided-context-parallel-kernel-enabled --mlp-kernel-enabled "
        "--fused-rmsnorm-skip-gamma --mlp-kernel-fuse-residual-add --qkv-kernel-fuse-residual-add "
        "--attn-block-tkg-nki-kernel-enabled --attn-block-tkg-nki-kernel-cascaded-attention "
        "--attn-block-tkg-nki-kernel-cache-update --logical-neuron-cores --logical-nc-config "
        "--cc-pipeline-tiling-factor --enable-spill-reload-dge --scratchpad-page-size "
        "--layer-boundary-markers --enable-output-completion-notifications",
    ),
    replace(
        _attribute("--attn-kernel-enabled", "Kernels and the Neuron compiler"), form="negatable"
    ),
)
EXPERTS = (
    *_attributes(
        "Experts",
        "--capacity-factor --early-expert-affinity-modulation "
        "--disable-normalize-top-k-affinities --fused-shared-experts --moe-tp-degree "
        "--moe-ep-degree",
        _EXPERTS,
    ),
    *_attributes("Experts", "--router-act-fn --router-dtype", "RouterConfig"),
)
SPECULATION = (
    _run("--draft-model-path", "checkpoint of the draft", group="Speculation"),
    _run("--compiled-draft-model-path", "folder of the compiled draft", group="Speculation"),
    _run(
        "--draft-model-tp-degree",
        "ranks of the draft; default: those of the model",
        COUNT,
        group="Speculation",
    ),
    *_attributes(
        "Speculation",
        "--enable-fused-speculation --enable-eagle-speculation --enable-eagle-draft-input-norm "
        "--is-eagle3 --speculation-length --spec-batch-size --is-medusa "
        "--medusa-speculation-length --num-medusa-heads",
    ),
    replace(_attribute("--medusa-tree-json", "Speculation", name="medusa_tree"), form="file"),
    replace(_attribute("--token-tree-json", "Speculation", name="token_tree_config"), form="file"),
    replace(
        _attribute("--no-trace-tokengen-model", "Speculation", name="trace_tokengen_model"),
        value=False,
    ),
)
SERVING = (
    _attribute("--enable-block-kv-layout", "Serving", name="is_block_kv_layout"),
    _attribute("--enable-chunked-prefill", "Serving", name="is_chunked_prefill"),
    _attribute("--enable-prefix-caching", "Serving", name="is_prefix_caching"),
    *_attributes("Serving", "--pa-num-blocks --pa-block-size --windowed-context-encoding-size"),
    _attribute("--max-num-seqs", "Serving", "ChunkedPrefillConfig"),
    _run("--enable-lora", "answer with adapters", None, group="LoRA"),
    _attribute("--enable-dynamic-multi-lora", "LoRA", _ADAPTERS, "dynamic_multi_lora"),
    *_attributes("LoRA", "--max-loras --max-lora-rank --target-modules --max-cpu-loras", _ADAPTERS),
    replace(_attribute("--lora-ckpt-path", "LoRA", _ADAPTERS, "lora_ckpt_paths"), form="repeated"),
    replace(
        _attribute("--lora-ckpt-path-cpu", "LoRA", _ADAPTERS, "lora_ckpt_paths_cpu"),
        form="repeated",
    ),
    _attribute("--lora-ckpt-json", "LoRA", _ADAPTERS),
    _run(
        "--adapter-id",
        "adapter of all prompts, or once for each; none is the base model",
        form="repeated",
        group="LoRA",
    ),
)
# Flags before the word run.
CHOICES = (
    _run("--model-type", "the model's family", group="Model", kind=TEXT),
    _run("--task-type", "causal-lm", group="Model", kind=TEXT),
)
DEMO_FLAGS: Mapping[str, DemoFlag] = {
    row.flag: row
    for row in (
        *RUN,
        *ACCURACY,
        *SAMPLING_FLAGS,
        *MODEL,
        *QUANTIZATION,
        *KERNELS,
        *EXPERTS,
        *SPECULATION,
        *SERVING,
    )
}
