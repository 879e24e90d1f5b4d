"""CompileConfig: one declaration is a flag, an option of the pipeline, and one of the runtime."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from graphgen.cli.flags import NO_OPTIONS, flag_fields, with_compile_flags
from graphgen.cli.main import app
from graphgen.config.compile_config import CompileConfig
from graphgen.config.fields import boolean, option
from graphgen.config.option_groups import GROUPS
from graphgen.config.option_words import HEAD_STRATEGIES
from graphgen.config.rank_config import CHOSEN_FIELDS
from graphgen.errors import GraphgenError
from graphgen.ir.dtype import f32
from graphgen.models import build, known_shape
from graphgen.passes.core import Pass, run_pipeline
from graphgen.passes.core.options import options_of, read_options
from graphgen.passes.core.registry import NamedPipeline
from graphgen.passes.gqa.head_strategies import STRATEGIES
from graphgen.passes.inspect.catalog import page_of
from graphgen.passes.pipelines import default, phases
from graphgen.runtime.engine import EngineOptions
from graphgen.runtime.model import config_of, settings_of


@dataclass(frozen=True, kw_only=True)
class Extended(CompileConfig):
    """One more option."""

    spare_cache: bool = option(boolean(), False, "whether caches are in pages.")


@dataclass(frozen=True, kw_only=True)
class ExtendedPipeline(Extended, NamedPipeline):
    """The default pipeline with one more option."""

    name: ClassVar[str] = "extended"

    def passes(self) -> list[Pass]:
        return default(self)


def given(*arguments: str) -> dict[str, object]:
    """What a command with the flags of the class above gets."""
    seen: dict[str, object] = {}

    @with_compile_flags(config=Extended)
    def command(model: str, compile_options: CompileConfig = NO_OPTIONS) -> None:
        """Take them."""
        seen.update(compile_options.asked)

    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, ["m", *arguments])
    assert result.exit_code == 0, result.output
    return seen


def test_a_new_option_is_a_flag():
    assert given() == {"tp": 1, "dtype": "f32"}
    assert given("--spare-cache", "--tp", "2") == {"tp": 2, "dtype": "f32", "spare_cache": True}
    quantized = given("--quantized", "--quantization-dtype", "f8e4m3")
    assert quantized["quantization"] == "quantize-weights{dtype=f8e4m3}"


def test_zero_is_a_value_of_a_flag():
    assert given("--weight-gather-length", "0")["weight_gather_length"] == 0


def test_a_new_option_is_one_of_the_pipeline():
    assert read_options("extended", ExtendedPipeline, "spare-cache=true") == {"spare_cache": True}
    assert page_of(ExtendedPipeline).options["spare_cache"] == "whether caches are in pages."
    assert str(ExtendedPipeline(spare_cache=True, tp=2)) == "extended{tp=2,spare_cache=true}"


def test_a_new_option_is_one_of_the_runtime():
    options = EngineOptions(Extended.of(spare_cache=True, tp=2))
    config = options.compile.serving(batch=3, max_len=300)
    assert isinstance(config, Extended)
    assert config.spare_cache
    assert (config.batch, config.tokens, config.slots) == ((3,), (128, 256, 300), 300)
    assert settings_of(config)["spare_cache"] is True


def test_settings_of_artifacts_are_as_they_were():
    config = CompileConfig(dtype="bf16", tp=2, sampling="on-device-sampling")
    settings = settings_of(config.serving(batch=4, max_len=512))
    assert list(settings.items()) == [
        ("dtype", "bf16"),
        ("batch", 4),
        ("max_len", 512),
        ("tp", 2),
        ("quantization", ""),
        ("sampling", "on-device-sampling"),
        ("roll_window_cache", False),
    ]
    assert settings_of(config_of(settings)) == settings


def test_what_the_pipeline_and_the_commands_have():
    assert set(options_of(CompileConfig)) == {
        *("target", "tp", "heads", "batch", "prefill_batch", "rows", "context", "tokens", "slots"),
        *("chunk", "dims", "rules", "min_rows", "roll_window_cache", "outline"),
        *("steps_per_launch", "speculation_length", "verify_lengths", "verify_batch", "tree_nodes"),
        *("kernels", "native_kernels", "kernel_artifacts"),
        *("page_cache", "cache_blocks"),
        *("flash_decoding", "flash_decoding_ranks"),
        *("expert_dispatch", "expert_block_size", "moe_ep_degree", "capacity_factor"),
        *("moe_prefill_ep_degree", "expert_exchange"),
        *("latent_attention", "attention_block"),
        *("cp_degree", "cp_form", "cp_balance", "mlp_cp_degree", "attention_dp_degree"),
        *("max_loras", "max_lora_rank", "lora_target_modules"),
        "weight_gather_length",
        *("pp_degree", "nodes"),
        *("kv_cache_quant", "kv_cache_dtype", "kv_cache_scale", "kv_cache_ranges"),
        *("activation_quantization_type", "activation_ranges", "quantize_clamp_bound"),
        "activation_quantization_weights",
        *("rpl_reduce_dtype", "attention_dtype", "softmax_dtype", "cast_logits_dtype"),
        "router_dtype",
    }
    flags = {
        *("tp", "pp_degree", "nodes"),
        "heads",
        "roll_window_cache",
        "page_cache",
        *("expert_dispatch", "moe_ep_degree", "moe_prefill_ep_degree", "capacity_factor"),
        "kernels",
        "dtype",
        *("steps_per_launch", "speculation_length"),
    }
    flags |= {"kv_cache_quant", "kv_cache_dtype", "kv_cache_scale", "kv_cache_ranges"}
    flags |= {"activation_quantization_type", "activation_ranges", "keep_quantized"}
    flags |= {
        "rpl_reduce_dtype",
        "attention_dtype",
        "softmax_dtype",
        "cast_logits_dtype",
        "router_dtype",
    }
    flags |= {"latent_attention", "flash_decoding", "attention_block"}
    flags |= {"parallelism", "cp_balance", *CHOSEN_FIELDS, "max_loras", "max_lora_rank"}
    assert set(flag_fields(CompileConfig)) == flags
    assert tuple(STRATEGIES) == HEAD_STRATEGIES


def test_the_phases_are_the_story_of_a_compilation():
    table = phases(CompileConfig(tp=2, quantization="quantize-weights", target="trn2"))
    assert [(phase.name, " ".join(item.name for item in phase.passes)) for phase in table] == [
        ("canonicalize", "canonicalize unfuse-projections"),
        ("quantize", "quantize-weights f8-formats"),
        ("specialize", "specialize"),
        ("shard", "heads shard pad-to-mesh partition merge-collectives pad-cache-slots"),
        ("fuse", "absorb-latent-projections dispatch-experts cse fuse-projections tile-attention"),
        ("weights", "lift-weights order-interface"),
        ("legalize", "legalize cse dce"),
        ("outline", ""),
        ("steps", ""),
        ("stages", ""),
    ]


def test_settings_hold_sizes_that_do_not_follow_from_others():
    config = CompileConfig(
        batch=(1, 4), prefill_batch=(1,), rows=6, context=(64, 96), tokens=(96, 128), slots=160
    )
    settings = settings_of(config)
    assert settings["batch"] == (1, 4)
    assert {key: settings[key] for key in ("prefill_batch", "rows", "context", "tokens")} == {
        "prefill_batch": (1,),
        "rows": 6,
        "context": (64, 96),
        "tokens": (96, 128),
    }
    assert config_of(settings) == config
    assert config_of(json.loads(json.dumps(settings))) == config


def test_ladders_of_both_phases():
    config = CompileConfig().serving(batch=2, max_len=500, max_context=300)
    assert (config.context, config.tokens) == ((128, 256, 300), (128, 256, 500))
    config = CompileConfig().serving(batch=2, max_len=500, context=(512 - 212, 64))
    assert (config.context, config.tokens) == ((64, 300), (128, 256, 500))
    config = CompileConfig().serving(batch=2, max_len=500, context=(1, 64), tokens=(1, 500))
    assert (config.context[0], config.tokens[0]) == (1, 1)
    one = CompileConfig().serving(batch=2, max_len=500, max_context=300, bucketing=False)
    assert (one.context, one.tokens, one.slots) == ((300,), (500,), 500)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"max_context": 600}, "prompts of up to 600 tokens do not fit in sequences of up to 500"),
        ({"context": (600,)}, "prompts of up to 600 tokens do not fit in sequences of up to 500"),
        (
            {"context": (64, 400), "max_context": 300},
            "--context-encoding-buckets 64,400: a bucket of 400 tokens is longer than "
            "--max-context-length 300",
        ),
        (
            {"tokens": (512,)},
            "--token-generation-buckets 512: a bucket of 512 tokens is longer than --seq-len 500",
        ),
        ({"tokens": (0, 64)}, "--token-generation-buckets 0,64: a bucket is at least 1 token"),
        ({"tokens": (64, 64)}, "--token-generation-buckets 64,64: a bucket is at least 1 token"),
        (
            {"tokens": (64,), "bucketing": False},
            "--token-generation-buckets 64 and --no-bucketing exclude each other",
        ),
    ],
)
def test_buckets_that_make_no_sense_are_refused(sizes: dict[str, Any], message: str):
    with pytest.raises(GraphgenError) as caught:
        CompileConfig().serving(batch=1, max_len=500, **sizes)
    assert (caught.value.code, caught.value.what) == ("GG0705", message)
    assert caught.value.help


def programs(config: CompileConfig) -> list[str]:
    """The names of a model's programs."""
    module = build(known_shape("gpt2"), f32, mini=True)
    run_pipeline(module, default(config))
    return [program.name for program in module.programs()]


def test_phases_have_batches_and_buckets_of_their_own():
    config = CompileConfig(batch=(4,), prefill_batch=(1, 2), context=(8,), tokens=(16, 24))
    assert programs(config) == [
        *("prefill.b1.s8", "prefill.b2.s8", "decode.b4.c16", "decode.b4.c24"),
    ]
    assert programs(replace(config, context=())) == ["decode.b4.c16", "decode.b4.c24"]


def test_ranks_that_divide_rows_need_calls_of_all_rows():
    config = CompileConfig(tp=2, heads="SHARD_OVER_BATCH", batch=(4,), prefill_batch=(1,))
    with pytest.raises(GraphgenError, match="needs calls and caches of as many rows, not 1, 4"):
        phases(config)


def test_every_flag_has_a_section_of_help():
    grouped = {name for name, item in flag_fields(CompileConfig).items() if "group" in item.extra}
    assert set(flag_fields(CompileConfig)) - grouped == {"tp", "dtype"}
    assert {
        item.extra["group"]
        for item in flag_fields(CompileConfig).values()
        if item.extra.get("group")
    } <= {*GROUPS}


@pytest.mark.parametrize("command", ["generate", "serve", "compile", "plan"])
def test_help_shows_a_section_a_group(command: str):
    shown = CliRunner().invoke(app, [command, "--help"]).output
    titles = re.findall(r"^([A-Z].*):$", shown, re.MULTILINE)
    named = [title for title in titles if title in GROUPS]
    assert len(named) > 3
    # In one order, after the options that most calls have.
    assert named == [group for group in GROUPS if group in named]
    assert titles[titles.index(named[0]) - 1] == "Options"


def test_generate_shows_ten_options_first():
    shown = CliRunner().invoke(app, ["generate", "--help"]).output
    first = re.split(r"^\S.*:$", shown, flags=re.MULTILINE)
    options = next(part for part in first if "--prompt " in part and "--help" in part)
    # And --limits and --help, which every command has.
    assert len(re.findall(r"^  --", options, re.MULTILINE)) == 12
