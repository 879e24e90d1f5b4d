"""Command lines of neuronx-cc."""

from __future__ import annotations

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.attribute import CompilerArgument
from graphgen.runtime.aws_config.attribute_table import attributes_of
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.base_model import CONTEXT_ENCODING, TOKEN_GENERATION
from graphgen.runtime.aws_nxdi.compiler_args import default_compiler_args, merge_compiler_args


def test_defaults_per_sub_model():
    config = NeuronConfig(logical_nc_config=2, scratchpad_page_size=1024)
    context = default_compiler_args(config, CONTEXT_ENCODING, "trn2")
    assert context == (
        "--auto-cast=none --model-type=transformer "
        "--tensorizer-options='--enable-ccop-compute-overlap --cc-pipeline-tiling-factor=2 "
        "--vectorize-strided-dma' --lnc=2 -O1 --target=trn2 "
        "--internal-hlo2tensorizer-options='--modular-flow-mac-threshold=10 --verify-hlo=true' "
        "--hbm-scratchpad-page-size=1024"
    )
    tokens = default_compiler_args(config, TOKEN_GENERATION, "trn2")
    assert "-O2" in tokens
    assert "--cc-pipeline-tiling-factor=1" in tokens
    assert "modular-flow" not in tokens


def test_logical_cores_follow_the_target_unless_given(monkeypatch: pytest.MonkeyPatch):
    assert "--lnc=2" in default_compiler_args(NeuronConfig(), TOKEN_GENERATION, "trn2")
    assert "--lnc=1" in default_compiler_args(NeuronConfig(), TOKEN_GENERATION, "trn1")
    given = NeuronConfig(logical_nc_config=1)
    assert "--lnc=1" in default_compiler_args(given, TOKEN_GENERATION, "trn2")
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    over = NeuronConfig(logical_nc_config=1)
    assert "--lnc=2" in default_compiler_args(over, TOKEN_GENERATION, "trn2")


def test_long_context_and_tiling():
    config = NeuronConfig(seq_len=32768, cc_pipeline_tiling_factor=4)
    args = default_compiler_args(config, CONTEXT_ENCODING, "trn2")
    assert "--internal-disable-fma-on-ios --disable-mixed-precision-accumulation" in args
    assert "--enable-verifier" not in args
    assert "--cc-pipeline-tiling-factor=4" in args
    assert "--hbm-scratchpad-page-size=1024" in args


def test_more_arguments_drop_no_default():
    default = default_compiler_args(NeuronConfig(), CONTEXT_ENCODING, "trn2")
    merged = merge_compiler_args(
        default,
        "-O3 --enable-saturate-infinity --tensorizer-options='--cc-pipeline-tiling-factor=8 --x'",
    )
    assert "--lnc=2" in merged
    assert "-O3" in merged
    assert "-O1" not in merged
    assert merged.endswith("--enable-saturate-infinity")
    assert (
        "--tensorizer-options='--enable-ccop-compute-overlap --cc-pipeline-tiling-factor=8 "
        "--vectorize-strided-dma --x'"
    ) in merged
    assert merge_compiler_args(default, None) == default


@pytest.mark.parametrize("text", ["--a 'b", "value --a"])
def test_text_without_options_is_refused(text: str):
    with pytest.raises(GraphgenError) as error:
        merge_compiler_args("-O2", text)
    assert error.value.code == "GG0705"


@pytest.mark.parametrize(
    ("attributes", "argument"),
    [
        ({"cc_pipeline_tiling_factor": 4}, "--cc-pipeline-tiling-factor=4"),
        ({"scratchpad_page_size": 512}, "--hbm-scratchpad-page-size=512"),
        (
            {"enable_long_context_mode": True},
            "--internal-disable-fma-on-ios --disable-mixed-precision-accumulation",
        ),
        ({"enable_spill_reload_dge": True}, "--internal-enable-dge-levels=spill_reload"),
        (
            {"enable_output_completion_notifications": True},
            "--internal-backend-options='--enable-output-completion-notifications'",
        ),
        (
            {
                "is_block_kv_layout": True,
                "attn_block_tkg_nki_kernel_enabled": True,
                "qkv_nki_kernel_enabled": True,
            },
            "--internal-backend-options='--enable-verifier=false'",
        ),
    ],
)
def test_an_argument_has_its_condition(attributes: dict[str, object], argument: str):
    config = NeuronConfig(**attributes)
    assert argument in default_compiler_args(config, CONTEXT_ENCODING, "trn2")
    for left_out in attributes:
        rest = {name: value for name, value in attributes.items() if name != left_out}
        plain, _ = NeuronConfig.inspect(rest)
        assert argument not in default_compiler_args(plain, CONTEXT_ENCODING, "trn2") or (
            left_out == "qkv_nki_kernel_enabled"
        )


def test_every_row_with_an_argument_is_in_a_case():
    rows = attributes_of("NeuronConfig").values()
    named = {row.name for row in rows if isinstance(row.neuron, CompilerArgument) or row.beside}
    assert named == {
        *("logical_nc_config", "logical_neuron_cores", "cc_pipeline_tiling_factor"),
        *("scratchpad_page_size", "enable_long_context_mode", "enable_spill_reload_dge"),
        *("enable_output_completion_notifications", "attn_block_tkg_nki_kernel_enabled"),
    }
