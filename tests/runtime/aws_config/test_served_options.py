"""The flags of vLLM's server as options to open a model with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config import served_options as served_options_module
from graphgen.runtime.aws_config.served_options import (
    ServedFlags,
    element_type,
    served_options,
    stated_artifact,
)
from graphgen.runtime.aws_config.served_override import read_override
from graphgen.text import parse
from tests.oracles.small_gguf import write_small_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("served") / "small.gguf"
    write_small_model(path, {"llama.context_length": 512})
    return str(path)


def test_the_model_limits_the_defaults(model: str):
    options = served_options(model, ServedFlags())
    assert (options.batch, options.max_len, options.chunk) == (8, 512, (128,))
    # One prompt a launch, in parts.
    assert options.compile.asked == {"prefill_batch": (1,)}
    assert options.max_context == 128


def test_flags_have_the_meaning_of_vllms(model: str):
    flags = ServedFlags(2, 256, CompileConfig.of(tp=4, nodes=2, dtype="bf16"), chunk=(32,))
    options = served_options(model, flags)
    assert (options.batch, options.max_len, options.chunk) == (2, 256, (32,))
    assert options.compile.asked == {"prefill_batch": (1,), "dtype": "bf16", "tp": 4, "nodes": 2}
    names = ("auto", "bfloat16", "half", "bf16", None)
    assert [element_type(name) for name in names] == ["as-declared", "bf16", "f16", "bf16", None]


def test_blocks_are_compiled_in(model: str):
    options = served_options(
        model, ServedFlags(compile=CompileConfig.of(page_cache=16, cache_blocks=40))
    )
    assert options.compile.asked["page_cache"] == 16
    assert options.compile.asked["cache_blocks"] == 40
    with pytest.raises(GraphgenError, match="without blocks"):
        served_options(model, ServedFlags(compile=CompileConfig.of(cache_blocks=40)))


def test_blocks_of_no_tokens_are_a_cache_without_blocks(model: str):
    none = CompileConfig.of(page_cache=0)
    for override in ("{}", '{"is_block_kv_layout": false}'):
        options = served_options(model, ServedFlags(compile=none, override=override))
        assert options.compile.asked["page_cache"] == 0
    with pytest.raises(GraphgenError, match="is_block_kv_layout = True, and blocks of 0 tokens"):
        served_options(model, ServedFlags(compile=none, override='{"is_block_kv_layout": true}'))
    both = CompileConfig.of(page_cache=0, cache_blocks=40)
    with pytest.raises(GraphgenError, match="--num-gpu-blocks-override 40 without blocks"):
        served_options(model, ServedFlags(compile=both))


def test_attributes_of_blocks_have_the_meaning_of_the_flags(model: str):
    def blocks(override: str, flags: ServedFlags | None = None) -> tuple[object, object]:
        given = served_options(
            model, replace(flags or ServedFlags(), override=override)
        ).compile.asked
        return given.get("page_cache"), given.get("cache_blocks")

    flags = ServedFlags(compile=CompileConfig.of(page_cache=16, cache_blocks=40))
    sizes = '"pa_block_size": 16, "pa-num-blocks": 40'
    assert blocks(f"{{{sizes}}}") == blocks("{}", flags) == (16, 40)
    assert blocks(f'{{"is_block_kv_layout": true, {sizes}}}') == (16, 40)
    assert blocks(
        '{"is_block_kv_layout": true}', ServedFlags(compile=CompileConfig.of(page_cache=8))
    ) == (8, None)
    # As in a NeuronConfig, a block is as long as a sequence.
    assert blocks('{"is_block_kv_layout": true}') == (512, None)
    assert blocks('{"is_block_kv_layout": true}', ServedFlags(max_model_len=256)) == (256, None)
    assert blocks('{"is_block_kv_layout": false}') == (None, None)
    with pytest.raises(GraphgenError, match="pa_block_size, which --block-size gives too"):
        blocks('{"pa_block_size": 16}', flags)


def test_caches_are_quantized_by_flags_or_attributes(model: str):
    caches = {"kv_cache_quant": True, "kv_cache_dtype": "int8"}
    wanted = {"prefill_batch": (1,), **caches}
    assert (
        served_options(model, ServedFlags(compile=CompileConfig.of(**caches))).compile.asked
        == wanted
    )
    attributes = '{"kv_cache_quant": true, "kv_quant_config": {"quant_dtype": "int8"}}'
    by_override = served_options(model, ServedFlags(override=attributes)).compile.asked
    assert caches.items() <= by_override.items()
    with pytest.raises(GraphgenError, match="kv_cache_quant, which --kv-cache-quant gives too"):
        served_options(model, ServedFlags(compile=CompileConfig.of(**caches), override=attributes))


@pytest.mark.parametrize(
    ("field", "value", "override", "flag"),
    [
        ("quantization", "quantize-weights", '{"quantized": true}', "--quantized"),
        ("flash_decoding", True, '{"flash_decoding_enabled": true}', "--flash-decoding"),
        ("heads", "auto", '{"torch_dtype": "float32"}', ""),
        ("dtype", "bf16", '{"torch_dtype": "float32"}', "--dtype"),
    ],
)
def test_a_flag_and_an_attribute_of_one_field_exclude_each_other(
    model: str, field: str, value: object, override: str, flag: str
):
    flags = ServedFlags(compile=CompileConfig.of(**{field: value}), override=override)
    if not flag:
        assert served_options(model, flags).compile.asked[field] == value
        return
    with pytest.raises(GraphgenError, match=f"which {flag} gives too"):
        served_options(model, flags)


def test_an_override_ends_the_sharing_of_prefixes():
    assert read_override("{}").prefix_sharing
    assert read_override('{"is_prefix_caching": true}').prefix_sharing
    assert not read_override('{"is-prefix-caching": false}').prefix_sharing


def test_an_override_changes_the_compilation(model: str):
    override = (
        '{"quantized": true, "quantization-type": "per_channel_symmetric", "batch_size": 3, '
        '"seq_len": 384, "token-generation-buckets": [192, 384]}'
    )
    options = served_options(model, ServedFlags(override=override))
    assert str(options.compile.asked["quantization"]).startswith("quantize-weights")
    assert (options.batch, options.max_len, options.tokens) == (3, 384, (192, 384))
    assert options.compile.asked["prefill_batch"] == (1,)


def test_an_override_asks_for_prompts_in_parts(model: str):
    parts = served_options(model, ServedFlags(override='{"is_chunked_prefill": true}'))
    assert parts.chunk == (128,)
    flags = ServedFlags(override='{"is_chunked_prefill": true}', chunk=(32,))
    assert served_options(model, flags).chunk == (32,)
    whole = served_options(model, ServedFlags(override='{"is-chunked-prefill": false}'))
    assert (whole.chunk, whole.max_context) == ((), None)
    several = '{"chunked_prefill_config": {"max_num_seqs": 4}}'
    options = served_options(model, ServedFlags(override=several))
    assert (options.chunk, options.compile.asked["prefill_batch"]) == ((128,), (4,))
    # Rows of a server share what begins alike without being asked.
    shares = served_options(model, ServedFlags(override='{"is_prefix_caching": true}'))
    assert shares == served_options(model, ServedFlags())


def test_an_override_may_state_the_ranks_of_the_only_process(model: str):
    stated = '{"world_size": 2, "start_rank_id": 0, "local-ranks-size": 2}'
    flags = ServedFlags(compile=CompileConfig.of(tp=2))
    wanted = served_options(model, flags)
    assert served_options(model, replace(flags, override=stated)) == wanted
    with pytest.raises(GraphgenError, match="the only process has 2 of 2 ranks") as caught:
        served_options(model, replace(flags, override='{"start_rank_id": 1}'))
    assert "graphgen launch" in (caught.value.help or "")
    stages = ServedFlags(compile=CompileConfig.of(pp_degree=2), override='{"local_ranks_size": 2}')
    assert served_options(model, stages).compile.asked["pp_degree"] == 2


def test_an_override_asks_for_steps_in_flight(model: str):
    override = '{"async_mode": true, "on_device_sampling_config": {"do_sample": true}}'
    options = served_options(model, ServedFlags(override=override))
    assert options.async_mode
    assert str(options.compile.asked["sampling"]).startswith("on-device-sampling")
    assert not served_options(model, ServedFlags(override='{"async_mode": false}')).async_mode


def test_an_artifact_without_parts_is_not_asked_for_them(
    model: str, monkeypatch: pytest.MonkeyPatch
):
    def compiled(chunk: tuple[int, ...]) -> None:
        made = CompileConfig().serving(batch=2, max_len=256, chunk=chunk)
        monkeypatch.setattr(served_options_module, "_compiled", lambda *_: made)

    flags = ServedFlags(override='{"is_chunked_prefill": true}')
    compiled((64,))
    assert served_options(model, ServedFlags()).chunk == ()
    assert served_options(model, flags).chunk == (64,)
    # The artifact is then refused, as it was compiled for whole prompts.
    compiled(())
    assert served_options(model, flags).chunk == (128,)


def test_parts_and_whole_prompts_exclude_each_other(model: str):
    flags = ServedFlags(override='{"is_chunked_prefill": false}', chunk=(32,))
    with pytest.raises(GraphgenError, match="--chunked-prefill-size") as caught:
        served_options(model, flags)
    assert caught.value.code == "GG0705"


@pytest.mark.parametrize(
    ("override", "code", "what"),
    [
        ('{"quantizd": true}', "GG0901", "did you mean quantized?"),
        ('{"tp_degree": 2}', "GG0705", "--tensor-parallel-size"),
        ('{"padding_side": "left"}', "GG0904", "padding_side"),
        ('{"is_block_kv_layout": false, "pa_block_size": 16}', "GG0705", "is_block_kv_layout"),
        ('{"pa_block_size": 0}', "GG0902", "pa_block_size"),
        ('{"pa_num_blocks": 64}', "GG0705", "pa_num_blocks 64 without blocks"),
        ('{"seq_len": "long"}', "GG0902", "seq_len"),
        ('{"async_mode": true}', "GG0903", "on_device_sampling_config"),
        ('{"speculation_length": 4}', "GG0904", "nothing proposes tokens"),
        ('{"is_prefix_caching": 1}', "GG0902", "is_prefix_caching"),
        ('{"is_chunked_prefill": "yes"}', "GG0902", "is_chunked_prefill"),
        ('{"chunked_prefill_config": {"max_seqs": 1}}', "GG0901", "max_num_seqs"),
        ('{"chunked_prefill_config": {"kernel_q_tile_size": 64}}', "GG0904", "kernel_q_tile_size"),
        ('{"chunked_prefill_config": {"tkg_model_enabled": false}}', "GG0904", "tkg_model_enabled"),
        ("[]", "GG0906", "JSON object"),
        ("{", "GG0906", "--override-neuron-config"),
    ],
)
def test_an_override_without_effect_is_an_error(model: str, override: str, code: str, what: str):
    with pytest.raises(GraphgenError) as caught:
        served_options(model, ServedFlags(compile=CompileConfig.of(tp=1), override=override))
    assert caught.value.code == code
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"heads": "CONVERT_TO_MHA"}, "--group-query-attention CONVERT_TO_MHA"),
        ({"parallelism": "auto"}, "--parallelism auto"),
        ({"rpl_reduce_dtype": "f32"}, "--rpl-reduce-dtype f32"),
    ],
)
def test_flags_of_ranks_are_refused_on_one(model: str, given: dict[str, object], flag: str):
    for tp in ({}, {"tp": 1}):
        flags = ServedFlags(compile=CompileConfig().updated({**given, **tp}))
        with pytest.raises(GraphgenError, match=f"{flag} has no effect on one rank") as caught:
            served_options(model, flags)
        assert caught.value.code == "GG0705"
    two = ServedFlags(compile=CompileConfig().updated(given), override='{"tp_degree": 2}')
    assert served_options(model, two).compile.tp == 2


def test_stages_have_a_group_of_the_rows_each(model: str):
    def rows(
        stages: int | None,
        override: str = "{}",
        seqs: int | None = None,
        verified: int | None = None,
    ) -> tuple[int | None, object]:
        asked = CompileConfig.of(pp_degree=stages, speculation_length=verified)
        options = served_options(model, ServedFlags(seqs, compile=asked, override=override))
        return options.batch, options.compile.asked.get("rows")

    assert rows(2) == (4, 8)
    assert rows(3, seqs=6) == (2, 6)
    # Rows that are not divided equally, given sizes and programs that verify keep all rows.
    assert rows(None) == rows(3) == rows(2, verified=4) == (8, None)
    given = '{"tkg_batch_size": 2, "kv_cache_batch_size": 8}'
    assert rows(2, given) == (2, 8)


def test_a_draft_of_the_server_stays_beside_the_model():
    override = '{"enable_fused_speculation": true, "quantized-mlp-kernel-enabled": true}'
    read = read_override(override, speculates=True)
    assert dict(read.programs) == {"quantized_mlp_kernel_enabled": True}
    assert "draft and model have programs of their own" in read.notes[0]
    with pytest.raises(GraphgenError, match="nothing proposes tokens"):
        read_override(override)
    assert not read_override('{"enable_fused_speculation": false}').notes


def test_all_errors_of_an_override_are_one():
    text = '{"tp_degre": 2, "is_eagle_draft": true, "pa_block_size": "a", "speculation_length": 4}'
    with pytest.raises(GraphgenError) as caught:
        read_override(text)
    assert caught.value.code == "GG0901"
    for words in (
        "has no attribute 'tp_degre'",
        "it is about the draft at draft_model_path, which proposes tokens, and the server has no",
        "pa_block_size = 'a': it must be",
        "speculation_length = 4: nothing proposes tokens",
    ):
        assert words in caught.value.what


def test_a_kernel_of_bfloat16_does_not_change_the_type(model: str):
    flags = ServedFlags(override='{"mlp_kernel_enabled": true}')
    assert (
        served_options(model, flags).compile.asked
        == served_options(model, ServedFlags()).compile.asked
    )


def test_a_server_is_not_one_of_several_nodes(model: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NEURON_RANK_ID", "1")
    with pytest.raises(GraphgenError, match="one of several nodes"):
        served_options(model, ServedFlags())


@pytest.mark.parametrize("owner", ["draft.", ""])
def test_the_servers_variable_leaves_out_programs_that_propose_by_themselves(
    owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    module = parse(
        f"module @m level=target {{\n  state %{owner}layers.0.k_cache : f32[1,8,2,4]\n}}\n"
    )
    opened = SimpleNamespace(model=SimpleNamespace(module=module))
    monkeypatch.setattr(served_options_module, "is_artifact", lambda path: path == tmp_path)
    monkeypatch.setattr(served_options_module, "open_artifact", lambda _: opened)
    found, remarks = stated_artifact({"NEURON_COMPILED_ARTIFACTS": str(tmp_path)})
    assert found == (None if owner else tmp_path)
    assert [str(tmp_path) in text for text in remarks] == [True] * bool(owner)
    assert stated_artifact({}) == (None, ())
    # A folder that is still to be written.
    absent = tmp_path / "later"
    assert stated_artifact({"NEURON_COMPILED_ARTIFACTS": str(absent)}) == (absent, ())
