"""From a NeuronConfig to the compile configuration of a target."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from graphgen.errors import GraphgenError
from graphgen.passes.core import parse_pipeline
from graphgen.passes.pipelines import phases
from graphgen.runtime.aws_config.attribute import CompilerArgument, PartOf, RunTimeSetting
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.compile_settings import (
    compile_settings,
    kernel_notes,
    sampling_defaults,
)
from graphgen.runtime.aws_config.config_json import (
    config_json,
    config_text,
    read_config,
    read_object,
)
from graphgen.runtime.aws_config.expert_config import MoENeuronConfig
from graphgen.runtime.aws_config.neuron_config import NeuronConfig, OnDeviceSamplingConfig
from graphgen.runtime.aws_config.strict_config import StrictConfig, config_class
from graphgen.runtime.aws_nxdi.base_model import CONTEXT_ENCODING
from graphgen.runtime.aws_nxdi.compiler_args import default_compiler_args


def test_without_bucketing_each_phase_has_one_bucket():
    made = compile_settings(NeuronConfig(seq_len=640, max_context_length=384))
    assert (made.context, made.tokens, made.slots, made.dtype) == ((384,), (640,), 640, "bf16")


def test_with_bucketing_the_ladders_are_complete():
    made = compile_settings(NeuronConfig(seq_len=10240, enable_bucketing=True))
    # NxD Inference leaves out 8192.
    assert made.tokens == made.context == (128, 256, 512, 1024, 2048, 4096, 8192, 10240)


@pytest.mark.parametrize("degrees", [{}, {"moe_tp_degree": 2}])
def test_degrees_of_experts(degrees: dict[str, int]):
    config = MoENeuronConfig(tp_degree=4, moe_ep_degree=2, **degrees)
    assert (compile_settings(config).tp, compile_settings(config).moe_ep_degree) == (4, 2)
    # As configurations are saved that have no degrees of experts' own.
    plain = MoENeuronConfig(tp_degree=4, moe_ep_degree=1, moe_tp_degree=1)
    assert compile_settings(plain).moe_ep_degree == 1


def test_degrees_of_experts_are_read_back_from_their_file():
    written = config_json(MoENeuronConfig(tp_degree=4, moe_ep_degree=2))
    assert written["moe_tp_degree"] == 2
    read = read_config(MoENeuronConfig, written)
    assert compile_settings(read).moe_ep_degree == 2
    read.moe_ep_degree = 4
    assert read.value("moe_tp_degree") == 1


def test_tokens_that_a_step_verifies():
    assert compile_settings(NeuronConfig()).speculation_length == 0
    made = compile_settings(NeuronConfig(speculation_length=5), "trn2")
    assert made.speculation_length == 5


def test_explicit_buckets_are_sorted():
    made = compile_settings(
        NeuronConfig(
            seq_len=12800,
            max_context_length=12288,
            enable_bucketing=True,
            context_encoding_buckets=[4096, 1024, 12288],
            token_generation_buckets=[12800],
        )
    )
    assert (made.context, made.tokens) == ((1024, 4096, 12288), (12800,))


def test_batch_sizes_of_continuous_batching():
    made = compile_settings(
        NeuronConfig(batch_size=4, ctx_batch_size=1, is_continuous_batching=True)
    )
    assert (made.batch, made.prefill_batch, made.cache_rows) == ((4,), (1,), 4)
    made = compile_settings(NeuronConfig(batch_size=4, speculation_length=3, spec_batch_size=2))
    assert (made.batch, made.verify_batch) == ((4,), (2,))
    assert compile_settings(NeuronConfig(batch_size=4, speculation_length=3)).verify_batch == ()
    made = compile_settings(NeuronConfig(batch_size=2, max_batch_size=8))
    assert (made.batch, made.prefill_batch, made.cache_rows) == ((2,), (), 8)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ({"torch_dtype": "float32"}, "f32"),
        ({"torch_dtype": "torch.float16"}, "f16"),
        ({"cast_type": "as-declared"}, "as-declared"),
    ],
)
def test_element_types(values: dict[str, str], dtype: str):
    assert compile_settings(NeuronConfig(**values)).dtype == dtype


@pytest.mark.parametrize(
    ("values", "sums", "attention"),
    [
        ({}, "f32", "model"),
        ({"tp_degree": 2}, "bf16", "model"),
        ({"tp_degree": 2, "torch_dtype": "float16"}, "f16", "model"),
        ({"tp_degree": 2, "rpl_reduce_dtype": "float32"}, "f32", "model"),
        ({"attention_dtype": "float32"}, "f32", "f32"),
        ({"attention_dtype": "float16", "torch_dtype": "float16"}, "f32", "model"),
    ],
)
def test_types_of_sums_and_of_attention(values: dict[str, object], sums: str, attention: str):
    config = compile_settings(NeuronConfig(**values))
    assert (config.rpl_reduce_dtype, config.attention_dtype) == (sums, attention)


def test_quantization():
    config = NeuronConfig(
        quantized=True,
        quantized_checkpoints_path="folder",
        quantization_dtype="f8e4m3",
        quantization_type="per_channel_symmetric",
        modules_to_not_convert=["lm_head", "layers.0.mlp"],
    )
    made = compile_settings(config)
    (item,) = parse_pipeline(made.quantization)
    assert str(item) == "quantize-weights{dtype=f8e4m3,skip=[lm_head,layers.0.mlp]}"
    # None is for no module, which is not the default of the pass.
    everything = NeuronConfig(quantized=True, quantized_checkpoints_path="folder")
    assert "skip=[]" in compile_settings(everything).quantization


def test_scales_an_expert_and_channel_are_those_a_channel():
    """A stack of matrices has the scales of each matrix."""
    config = NeuronConfig(quantized=True, quantized_checkpoints_path="folder")
    config.quantization_type = "expert_wise_per_channel_symmetric"
    assert compile_settings(config).quantization == "quantize-weights{skip=[]}"


@pytest.mark.parametrize(
    ("sampling", "text"),
    [
        ({}, "on-device-sampling"),
        ({"do_sample": True, "deterministic": True}, "do_sample=true,deterministic=true"),
        ({"top_k": 5}, "do_sample=true"),
        ({"dynamic": True, "global_topk": 64}, "do_sample=true,global_topk=64"),
    ],
)
def test_sampling(sampling: dict[str, object], text: str):
    config = NeuronConfig(on_device_sampling_config=sampling)
    assert text in compile_settings(config).sampling
    assert "output_logits" not in compile_settings(config).sampling
    config.output_logits = True
    assert "output_logits=true" in compile_settings(config).sampling


def test_parameters_of_rows_that_give_none():
    assert sampling_defaults(NeuronConfig()) == (1, 1.0, 1.0)
    sampling = OnDeviceSamplingConfig(top_k=50, top_p=0.5, temperature=0.7)
    config = NeuronConfig(on_device_sampling_config=sampling)
    assert sampling_defaults(config) == (50, 0.5, 0.7)


def test_ranks_share_prompts_and_rows():
    config = NeuronConfig(
        tp_degree=8,
        cp_degree=4,
        attention_dp_degree=2,
        mlp_cp_degree=4,
        batch_size=4,
        ctx_batch_size=1,
        is_continuous_batching=True,
        sequence_parallel_enabled=True,
        max_context_length=8,
    )
    made = compile_settings(config)
    assert (made.tp, made.cp_degree, made.mlp_cp_degree, made.attention_dp_degree) == (8, 4, 4, 2)
    # A rank has tokens of its own between attention and MLP, of those that it shares.
    assert made.rules == ("prefill:sequence:cp*dp*tp",)
    assert made.weight_gather_length == 32768
    assert compile_settings(NeuronConfig(tp_degree=2)).weight_gather_length == 1024


def test_sequence_parallelism_splits_context_programs_along_tokens():
    config = NeuronConfig(sequence_parallel_enabled=True, tp_degree=2, max_context_length=8)
    for target in ("cpu", "trn2"):
        assert compile_settings(config, target).rules == ("prefill:sequence:tp",)
    assert config.notes() == ()
    assert compile_settings(NeuronConfig(tp_degree=2)).rules == ()


def test_the_settings_make_a_pipeline_for_each_target():
    config = NeuronConfig(tp_degree=2, on_device_sampling_config={"top_k": 5})
    for target in ("cpu", "trn1", "trn2", "inf2"):
        made = compile_settings(config, target)
        assert made.target == target
        assert phases(made)


@pytest.mark.parametrize(
    "values",
    [
        {"kv_cache_tiling": True},
        {"on_cpu": True},
        {"k_cache_transposed": True},
    ],
)
def test_switches_of_devices_are_noted_on_the_cpu_and_refused_on_devices(values: dict[str, object]):
    config = NeuronConfig(**values)
    compile_settings(config)
    assert any(next(iter(values)) in note for note in config.notes())
    with pytest.raises(GraphgenError, match=r"not built yet for trn2") as caught:
        compile_settings(config, "trn2")
    assert caught.value.code == "GG0904"


@pytest.mark.parametrize(
    ("values", "word", "kernel"),
    [
        ({"attn_kernel_enabled": True}, "attention", "attention_isa_kernel"),
        ({"mlp_kernel_enabled": True}, "mlp", "mlp_isa_kernel"),
        ({"qkv_kernel_enabled": True, "fused_qkv": True}, "qkv", "rmsnorm_qkv_isa_kernel"),
    ],
)
def test_a_kernel_in_nki_is_called_where_its_artifact_is_given(
    values: dict[str, object], word: str, kernel: str, monkeypatch: pytest.MonkeyPatch
):
    config = NeuronConfig(**values)
    assert compile_settings(config).native_kernels == ()
    assert any(next(iter(values)) in note for note in config.notes())
    assert compile_settings(config, "trn2").native_kernels == ()
    (note,) = kernel_notes(config, "trn2")
    assert f"{next(iter(values))} = True has no effect: {kernel} exists in NKI alone" in note
    monkeypatch.setenv("GRAPHGEN_KERNEL_ARTIFACTS", "kernels.json")
    made = compile_settings(config, "trn2")
    assert (made.native_kernels, made.kernel_artifacts) == ((word,), "kernels.json")
    assert compile_settings(NeuronConfig(attn_kernel_enabled=False), "trn2").native_kernels == ()


def test_the_quantized_mlp_multiplies_narrow_rows_everywhere(monkeypatch: pytest.MonkeyPatch):
    """The numbers are the kernel's on the CPU too; it stands in for that of the wide MLP."""
    values = {"mlp_kernel_enabled": True, "quantized_mlp_kernel_enabled": True}
    config = NeuronConfig(**values, rmsnorm_quantize_kernel_enabled=True)
    made = compile_settings(config)
    assert made.activation_quantization_type == "dynamic"
    assert made.activation_quantization_weights == ("*.mlp.*",)
    assert (made.quantize_clamp_bound, made.native_kernels) == (1200.0, ())
    bounded = NeuronConfig(**values, quantize_clamp_bound=2.5)
    assert compile_settings(bounded).quantize_clamp_bound == 2.5
    assert "quant_mlp_isa_kernel exists in NKI alone" in kernel_notes(config, "trn2")[0]
    alone = NeuronConfig(quantized_mlp_kernel_enabled=True, torch_dtype="float32")
    assert compile_settings(alone).activation_quantization_weights == ("*.mlp.*",)
    monkeypatch.setenv("GRAPHGEN_KERNEL_ARTIFACTS", "kernels.json")
    assert kernel_notes(config, "trn2") == ()
    words = compile_settings(config, "trn2").native_kernels
    assert words == ("quantized_mlp", "rmsnorm_quantize")


@pytest.mark.parametrize(
    ("target", "values", "what"),
    [
        ("trn2", {"tp_degree": 24}, "1, 2, 4, 8, 16, 32, 64"),
        ("inf2", {"tp_degree": 16}, "1, 2, 4, 8, 24"),
        ("trn1", {"tp_degree": 4}, "1, 2, 8, 16, 32"),
        ("trn1", {"logical_nc_config": 2}, "cannot be joined"),
        ("trn2", {"target": "trn1"}, "compiles for trn2"),
    ],
)
def test_limits_of_targets(target: str, values: dict[str, object], what: str):
    config = NeuronConfig(**values)
    compile_settings(config)
    with pytest.raises(GraphgenError, match=what) as caught:
        compile_settings(config, target)
    assert caught.value.code == "GG0903"


@pytest.mark.parametrize(
    ("target", "degrees"),
    [
        ("trn2", (1, 2, 4, 8, 16, 32, 64)),
        ("inf2", (1, 2, 4, 8, 24)),
        ("trn1", (1, 2, 8, 16, 32)),
    ],
)
def test_the_degrees_of_the_guide_are_taken(target: str, degrees: tuple[int, ...]):
    for degree in degrees:
        config = NeuronConfig(tp_degree=degree)
        assert compile_settings(config, target).tp == degree
        assert config.logical_cores(target) == (2 if target == "trn2" else 1)


def test_logical_cores_are_those_of_the_target(monkeypatch: pytest.MonkeyPatch):
    assert NeuronConfig().logical_cores("trn2") == 2
    assert NeuronConfig().logical_cores("trn1") == 1
    assert NeuronConfig(logical_nc_config=1).logical_cores("trn2") == 1
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert NeuronConfig(logical_nc_config=2).logical_cores("trn2") == 1
    assert compile_settings(NeuronConfig(), "trn2").target == "trn2"


def test_compiling_changes_no_configuration():
    config = NeuronConfig(enable_bucketing=True, context_encoding_buckets=[128, 64])
    before = repr(config)
    compile_settings(config)
    assert repr(config) == before


def test_flash_decoding_divides_caches():
    asked = NeuronConfig(tp_degree=8, flash_decoding_enabled=True)
    assert compile_settings(asked, "trn1").flash_decoding
    assert compile_settings(asked).flash_decoding
    assert not compile_settings(NeuronConfig(tp_degree=8)).flash_decoding


SWITCHES = [
    row.name
    for row in attributes_of("NeuronConfig").values()
    if row.name.endswith("_kernel_enabled") and row.name != "moe_fused_nki_kernel_enabled"
]


@pytest.mark.parametrize("name", SWITCHES)
def test_no_switch_of_a_kernel_is_a_dead_end(name: str):
    others = {
        "fused_qkv": True,
        "qkv_kernel_enabled": True,
        # It stands in for the kernel of the MLP in floats.
        "quantized_mlp_kernel_enabled": name != "mlp_kernel_enabled",
        "modules_to_not_convert": ["self_attn"],
        "quantized": True,
        "quantized_checkpoints_path": "none",
        "attn_block_tkg_nki_kernel_enabled": name.startswith("attn_block"),
        "cp_degree": 2,
        "tp_degree": 2,
    }
    config = NeuronConfig(**{**others, name: True})
    for target in ("trn1", "trn2"):
        assert phases(compile_settings(config, target))
        notes = (*config.notes(target), *kernel_notes(config, target))
        assert any(f"NeuronConfig.{name} = True has no effect" in note for note in notes)


def given_alone(owner: str) -> Iterator[tuple[str, object, StrictConfig]]:
    """Name, value and configuration of each attribute that can be set to a value of its kind."""
    values = (True, False, 2, 3, 16, 64, 0.5, "a", "float16", "int8", ["a"], [16, 64], {"a": 1})
    for name, row in attributes_of(owner).items():
        for value in values:
            try:
                accepted = row.kind.read(value)
            except (TypeError, ValueError):
                continue
            if row.nested or row.replaces:
                continue
            made, problems = config_class(owner).inspect({name: value})
            for problem in problems:
                words = f"{problem.what} {problem.help}"
                assert name in problem.what, f"{name} = {value!r}: {words}"
            if not problems and not row.requests_nothing(accepted, made.default(name)):
                yield name, value, made


@pytest.mark.parametrize("owner", ["NeuronConfig", "MoENeuronConfig"])
def test_an_error_about_one_attribute_is_about_it(owner: str):
    """Defaults that follow from it break no rule of their own."""
    assert len({name for name, _, _ in given_alone(owner)}) > 60


@pytest.mark.parametrize("owner", ["NeuronConfig", "MoENeuronConfig"])
def test_what_is_accepted_can_be_read_back(owner: str):
    """A file has all attributes, derived ones too, which then count as given."""
    for _, _, made in given_alone(owner):
        if not made.problems():
            assert read_config(type(made), read_object(config_text(made))) == made


def test_the_draft_of_eagle_is_a_copy_that_verifies_nothing():
    draft = NeuronConfig(enable_eagle_speculation=True, speculation_length=5)
    draft.speculation_length = 0
    draft.is_eagle_draft = True
    draft.check()
    assert read_config(NeuronConfig, read_object(config_text(draft))) == draft
    draft.is_eagle_draft = False
    with pytest.raises(GraphgenError, match="enable_eagle_speculation needs speculation_length"):
        draft.check()


def test_no_attribute_is_without_effect_in_silence():
    silent: list[str] = []
    for name, value, made in given_alone("NeuronConfig"):
        assert isinstance(made, NeuronConfig)
        made, plain = copy.deepcopy(made), NeuronConfig(seq_len=256)
        made.seq_len = 256 if name != "seq_len" else made.seq_len
        row = made.attribute(name)
        for target in ("cpu", "trn2"):
            if made.problems(target):
                continue
            effect = row.effect(target)
            # What these change when a model is opened or runs has tests of its own.
            elsewhere = isinstance(effect, RunTimeSetting | PartOf)
            noted = any(name in note for note in made.notes(target) + kernel_notes(made, target))
            changes = compile_settings(made, target) != compile_settings(plain, target)
            flags = [default_compiler_args(c, CONTEXT_ENCODING, "trn1") for c in (made, plain)]
            also = isinstance(effect, CompilerArgument) and flags[0] != flags[1]
            if not (elsewhere or noted or changes or also):
                silent.append(f"{name} = {value!r} for {target}")
    assert silent == []
