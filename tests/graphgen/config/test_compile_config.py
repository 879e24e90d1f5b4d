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
from graphgen.config.fields import boolean, fields_of, option
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


def test_an_option_is_in_the_pipeline_and_a_flag_unless_it_says_otherwise():
    known = set(fields_of(CompileConfig))
    # These change the model before its first pass, or are texts of passes.
    assert known - set(options_of(CompileConfig)) == {
        *("parallelism", "dtype", "weight_dtypes", "keep_quantized", "quantization", "sampling"),
        *("hidden_states", "inputs_embeds", "feature_layers", "num_medusa_heads"),
        *("return_router_logits", "return_expert_index"),
    }
    # These have flags of another form, follow from other options, or are for pipelines alone.
    assert known - set(flag_fields(CompileConfig)) == {
        *("batch", "prefill_batch", "rows", "context", "tokens", "chunk", "slots", "dims", "rules"),
        *("target", "min_rows", "outline", "weight_dtypes", "quantization", "sampling"),
        *("hidden_states", "inputs_embeds", "feature_layers", "num_medusa_heads", "cache_blocks"),
        *("return_router_logits", "return_expert_index", "expert_block_size", "expert_exchange"),
        *("verify_lengths", "verify_batch", "tree_nodes", "native_kernels", "kernel_artifacts"),
        *("activation_quantization_weights", "quantize_clamp_bound", "lora_target_modules"),
    }
    assert set(CHOSEN_FIELDS) <= known
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


def test_every_option_has_a_section_of_help():
    groups = {name: item.extra["group"] for name, item in fields_of(CompileConfig).items()}
    assert {name for name, group in groups.items() if not group} == {"tp", "dtype"}
    assert {*groups.values()} <= {"", *GROUPS}


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
