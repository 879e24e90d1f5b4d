"""Applications as folders: compile, load, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphgen.errors import GraphgenError
from graphgen.lowering.hlo import read_hlo
from graphgen.lowering.neuron import read_neff
from graphgen.runtime import executable_cache
from graphgen.runtime.artifact import is_artifact
from graphgen.runtime.aws_config.neuron_config import NeuronConfig
from graphgen.runtime.aws_nxdi.base_model import ModelWrapper
from graphgen.runtime.aws_nxdi.model_classes import NeuronLlamaForCausalLM, NeuronMistralForCausalLM
from graphgen.runtime.session.buckets import ProgramTable
from tests.fake_compiler.fake_neuron import FakeNeuron
from tests.oracles.families import ORACLES, save
from tests.runtime.aws_nxdi.conftest import Checkpoint

IDS = np.array([[5, 6, 7]])


def no_compilation(*_: object) -> None:
    raise AssertionError("a program was compiled")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_folder_has_aws_s_files_and_an_artifact(compiled: Path):
    names = {str(path.relative_to(compiled)) for path in compiled.rglob("*") if path.is_file()}
    assert {
        "neuron_config.json",
        "weights/tp0_sharded_checkpoint.safetensors",
        "tokenizer.json",
        "manifest.json",
        "module.gg",
    } <= names
    assert json.loads((compiled / "neuron_config.json").read_text())["model_type"] == "llama"


def test_load_compiles_nothing(llama: Checkpoint, compiled: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    application: Any = NeuronLlamaForCausalLM(compiled)
    assert not application.is_compiled
    application.load(compiled)
    assert application.is_compiled
    assert application.is_loaded_to_neuron
    logits = application.forward(input_ids=IDS).logits
    np.testing.assert_allclose(logits[0, 0], llama.logits([5, 6, 7]), atol=2e-5)


def test_a_second_compilation_uses_the_programs_of_the_first(
    llama: Checkpoint, compiled: Path, monkeypatch: pytest.MonkeyPatch
):
    (compiled / "notes.txt").write_text("of the user")
    before = snapshot(compiled)
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    NeuronLlamaForCausalLM(llama.path, llama.config()).compile(compiled)
    after = snapshot(compiled)
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    # Seconds of passes are in the manifest.
    assert changed <= {"manifest.json"}


def test_a_compilation_that_fails_leaves_the_folder_as_it_was(
    llama: Checkpoint, compiled: Path, monkeypatch: pytest.MonkeyPatch
):
    before = snapshot(compiled)
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    with pytest.raises(AssertionError, match="a program was compiled"):
        NeuronLlamaForCausalLM(llama.path, llama.config(batch_size=2)).compile(compiled)
    assert snapshot(compiled) == before
    assert [path.name for path in compiled.parent.iterdir()] == [compiled.name]


def test_a_folder_of_another_configuration_is_refused(llama: Checkpoint, compiled: Path):
    application = NeuronLlamaForCausalLM(llama.path, llama.config(batch_size=2))
    with pytest.raises(GraphgenError, match="was compiled for batch 3") as error:
        application.load(compiled)
    assert error.value.code == "GG0703"
    application = NeuronLlamaForCausalLM(llama.path, llama.config(tp_degree=2))
    with pytest.raises(GraphgenError, match="was compiled for tp 1, requested 2") as error:
        application.load(compiled)
    assert error.value.help.startswith("give tp_degree=1, or ")


def test_a_folder_without_programs_is_refused(llama: Checkpoint, tmp_path: Path):
    application = NeuronLlamaForCausalLM(llama.path, llama.config())
    with pytest.raises(GraphgenError, match="has no compiled model") as error:
        application.load(tmp_path)
    assert error.value.code == "GG0908"


@pytest.fixture
def other(llama: Checkpoint, tmp_path: Path) -> Checkpoint:
    """The same model with other weights."""
    import torch

    model = ORACLES["llama"].model(vocab_size=300)
    with torch.no_grad():
        model.lm_head.weight.mul_(2)
    save(model, tmp_path / "other")
    return Checkpoint(tmp_path / "other", model)


def close(application: Any, checkpoint: Checkpoint) -> None:
    logits = application.forward(input_ids=IDS).logits
    np.testing.assert_allclose(logits[0, 0], checkpoint.logits([5, 6, 7]), atol=2e-5)


@pytest.fixture
def folder(compiled: Path, tmp_path: Path) -> Path:
    """A copy of the compiled folder, to change."""
    return Path(shutil.copytree(compiled, tmp_path / "compiled"))


def test_weights_are_replaced_and_programs_stay(
    llama: Checkpoint, other: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    application = NeuronLlamaForCausalLM(llama.path, llama.config()).load(folder)
    close(application, llama)
    NeuronLlamaForCausalLM(other.path, other.config()).shard_weights(folder)
    close(application, llama)
    application.load_weights(folder)
    close(application, other)
    close(NeuronLlamaForCausalLM(folder).load(folder), other)


def test_without_sharded_weights_load_reads_the_checkpoint(
    llama: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    config = llama.config(save_sharded_checkpoint=False)
    application = NeuronLlamaForCausalLM(llama.path, config)
    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    application.compile(folder)
    assert not (folder / "weights").exists()
    close(application.load(folder), llama)
    with pytest.raises(GraphgenError) as error:
        NeuronLlamaForCausalLM(folder).load(folder)
    assert error.value.code == "GG0601"


def test_skip_sharding_keeps_the_weights_of_the_folder(
    llama: Checkpoint, other: Checkpoint, folder: Path, tmp_path: Path
):
    NeuronLlamaForCausalLM(other.path, other.config()).shard_weights(folder)
    application = NeuronLlamaForCausalLM(llama.path, llama.config(skip_sharding=True))
    application.compile(folder)
    close(application.load(folder), other)
    with pytest.raises(GraphgenError) as error:
        application.compile(tmp_path / "new")
    assert error.value.code == "GG0908"
    assert not (tmp_path / "new").exists()


def test_shard_weights_begins_a_folder(llama: Checkpoint, tmp_path: Path):
    application = NeuronLlamaForCausalLM(llama.path, llama.config())
    application.shard_weights(tmp_path / "new")
    assert (tmp_path / "new" / "weights" / "tp0_sharded_checkpoint.safetensors").is_file()
    assert not list((tmp_path / "new").glob("compiled/*"))


def test_load_weights_needs_the_configuration_of_the_loaded_model(
    llama: Checkpoint, folder: Path, tmp_path: Path
):
    application = NeuronLlamaForCausalLM(llama.path, llama.config()).load(folder)
    halves = NeuronLlamaForCausalLM(llama.path, llama.config(torch_dtype="bfloat16"))
    halves.shard_weights(tmp_path / "halves")
    with pytest.raises(GraphgenError, match="another layout") as error:
        application.load_weights(tmp_path / "halves")
    assert error.value.code == "GG0703"


@pytest.mark.parametrize(("start", "count"), [(1, None), (0, 1)])
def test_part_of_the_ranks_is_refused(
    start: int, count: int | None, llama: Checkpoint, compiled: Path
):
    # Two stages of one rank.
    application = NeuronLlamaForCausalLM(llama.path, llama.config(pp_degree=2))
    with pytest.raises(GraphgenError, match="runs all of them in its own process") as error:
        application.load(compiled, start, count)
    assert error.value.code == "GG0904"


@pytest.mark.parametrize("debug", [False, True])
def test_a_neuron_target_gets_its_hlo(llama: Checkpoint, folder: Path, debug: bool):
    config = llama.config(target="trn2", speculation_length=4)
    application = NeuronLlamaForCausalLM(llama.path, config)
    application.compile(folder, debug=debug)
    for tag in ("context_encoding_model", "token_generation_model", "speculation_model"):
        home = folder / "hlo" / tag / "_tp0_bk0"
        proto = (home / "model" / "graph.hlo").read_bytes()
        assert (b".py" in proto) is debug
        assert read_hlo(proto).programs()
        args = (home / "compiler_args.txt").read_text()
        assert "--lnc=2" in args
        assert "--target=trn2" in args
    close(application.load(folder), llama)


def test_more_compiler_arguments_drop_no_default(llama: Checkpoint):
    class Tuned(NeuronLlamaForCausalLM):
        def get_compiler_args(self) -> str:
            return "--enable-mixed-precision-accumulation -O1"

    args = [str(model.compiler_args) for model in Tuned(llama.path, llama.config()).models]
    assert all("--enable-mixed-precision-accumulation" in text for text in args)
    assert all("--lnc=" in text and "-O2" not in text for text in args)


def test_a_model_of_another_family_is_refused(llama: Checkpoint):
    with pytest.raises(GraphgenError, match="runs model_type 'mistral', this is 'llama'") as error:
        NeuronMistralForCausalLM(llama.path, llama.config())
    assert error.value.code == "GG0902"


def test_a_configuration_has_to_come_from_somewhere(llama: Checkpoint):
    with pytest.raises(GraphgenError, match="no configuration is given") as error:
        NeuronLlamaForCausalLM(llama.path)
    assert error.value.code == "GG0908"
    made = NeuronLlamaForCausalLM(llama.path, neuron_config=NeuronConfig(batch_size=2))
    assert made.config.hidden_size == 32
    assert made.neuron_config.value("batch_size") == 2


def test_models_are_the_sub_models_with_their_buckets(llama: Checkpoint):
    config = llama.config(seq_len=256, max_context_length=128, enable_bucketing=True)
    models = NeuronLlamaForCausalLM(llama.path, config).models
    assert [(model.tag, [*model.buckets]) for model in models] == [
        ("context_encoding_model", [128]),
        ("token_generation_model", [128, 256]),
    ]
    shapes = [[tuple(array.shape) for array in arrays] for arrays in models[1].input_generator()]
    assert shapes == [
        [(3, 1), (3, 128), (3, 1), (3,), (3, 3)],
        [(3, 1), (3, 256), (3, 1), (3,), (3, 3)],
    ]
    one = NeuronLlamaForCausalLM(llama.path, llama.config(seq_len=256)).models
    assert [[*model.buckets] for model in one] == [[256], [256]]


def test_a_target_of_speculation_has_a_third_sub_model(llama: Checkpoint):
    config = llama.config(
        seq_len=64,
        enable_bucketing=True,
        token_generation_buckets=[4, 32, 64],
        speculation_length=5,
    )
    application = NeuronLlamaForCausalLM(llama.path, config)
    last = application.models[2]
    assert (last.tag, [*last.buckets]) == ("speculation_model", [32, 64])
    shapes = [tuple(array.shape) for array in last.input_generator()[0]]
    assert shapes == [(3, 5), (3, 32), (3, 5), (3,), (3, 3)]
    table = ProgramTable(application.build().module)
    assert table.buckets("verify") == [32, 64]


def test_notes_are_printed_once(llama: Checkpoint, capsys: pytest.CaptureFixture[str]):
    config = llama.config(mlp_kernel_enabled=True, torch_dtype="bfloat16")
    application = NeuronLlamaForCausalLM(llama.path, config)
    application.build()
    application.build()
    err = capsys.readouterr().err
    assert err.count("note: NeuronConfig.mlp_kernel_enabled = True has no effect") == 1


@pytest.mark.parametrize(
    ("attributes", "note"),
    [
        ({"quantize_clamp_bound": 2.0}, "activations are not quantized"),
        ({"sequence_parallel_enabled": True}, "one rank has the whole sequence"),
        ({"flash_decoding_enabled": True}, "some of the 2 KV heads to itself"),
        ({"draft_model_modules_to_not_convert": ["lm_head"]}, "no draft is quantized"),
    ],
)
def test_what_has_no_effect_on_a_model_is_noted(
    llama: Checkpoint,
    attributes: dict[str, Any],
    note: str,
    capsys: pytest.CaptureFixture[str],
):
    NeuronLlamaForCausalLM(llama.path, llama.config(**attributes)).build()
    (line,) = [line for line in capsys.readouterr().err.splitlines() if note in line]
    assert next(iter(attributes)) in line


@pytest.mark.parametrize(
    "variables",
    [
        {"NEURON_RANK_ID": "1", "NEURON_RT_ROOT_COMM_ID": "10.0.0.1:63423"},
        {"NEURON_RANK_ID": "0", "NEURON_LOCAL_TP": "1"},
        {"NEURON_PP_STAGES": "2", "CPU_COMM_ID": "10.0.0.1:8989"},
    ],
)
def test_a_process_does_not_answer_for_one_of_several_nodes(
    llama: Checkpoint, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(GraphgenError, match="would be one of several nodes") as caught:
        NeuronLlamaForCausalLM(llama.path, llama.config(tp_degree=2)).build()
    assert caught.value.code == "GG0904"
    stated = [f"{name}={value}" for name, value in variables.items() if "ROOT" not in name]
    assert all(text in caught.value.what for text in stated)


def test_variables_of_the_only_node_are_noted(
    llama: Checkpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("NEURON_RANK_ID", "0")
    monkeypatch.setenv("NEURON_LOCAL_TP", "2")
    NeuronLlamaForCausalLM(llama.path, llama.config(tp_degree=2)).build()
    assert capsys.readouterr().err.count("note: the variable NEURON_") == 2


def test_sub_models_that_would_be_left_out_are_refused_by_their_tag(
    llama: Checkpoint, tmp_path: Path
):
    class OwnInputs(ModelWrapper):
        def input_generator(self) -> list[Any]:
            return []

    def refused(change: Callable[[list[ModelWrapper], Any], None]) -> str:
        application = NeuronLlamaForCausalLM(llama.path, llama.config())
        change(application.models, application.config)
        with pytest.raises(GraphgenError) as caught:
            application.compile(tmp_path / "never")
        assert caught.value.code == "GG0904"
        return caught.value.what

    kind = NeuronLlamaForCausalLM._model_cls
    added = refused(lambda models, config: models.append(ModelWrapper(config, kind, "second")))
    assert "'second' is a sub-model beside those of the family without inputs" in added
    left_out = refused(lambda models, _: models.__delitem__(slice(1, None)))
    assert "models: context_encoding_model, and" in left_out
    own = refused(
        lambda models, config: models.__setitem__(0, OwnInputs(config, kind, models[0].tag))
    )
    assert "the input_generator of 'context_encoding_model' is never called" in own
    assert not (tmp_path / "never").exists()
    with pytest.raises(GraphgenError, match="NeuronLlamaModel names a model's family"):
        kind(llama.config())


def test_names_of_modules_are_checked_before_any_pass(llama: Checkpoint, tmp_path: Path):
    options = {"quantized": True, "quantized_checkpoints_path": str(tmp_path / "none")}
    config = llama.config(**options, modules_to_not_convert=["lmm_head"])
    with pytest.raises(GraphgenError) as caught:
        NeuronLlamaForCausalLM(llama.path, config).build()
    text = str(caught.value)
    assert "modules_to_not_convert: 'lmm_head' names no weight" in text
    assert "did you mean lm_head?" in text
    assert "graphgen repro" not in text


def test_8_bit_products_need_weights_of_8_bits(llama: Checkpoint):
    with pytest.raises(GraphgenError, match="weights of the MLP are not quantized") as caught:
        NeuronLlamaForCausalLM(llama.path, llama.config(quantized_mlp_kernel_enabled=True))
    assert caught.value.code == "GG0903"


def test_a_neuron_target_is_compiled_where_its_compiler_is(
    llama: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "device"
    fake = FakeNeuron(tmp_path / "fake")
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("NEURON_COMPILE_CACHE_URL", str(tmp_path / "cache"))
    monkeypatch.setenv("BASE_COMPILE_WORK_DIR", str(tmp_path / "work"))
    monkeypatch.setenv("NEURON_CC_FLAGS", "--enable-saturate-infinity")
    config = llama.config(target="trn2", logical_nc_config=1)
    fake.order({"program": "decode", "how": "NCC_EBVF030"})
    with pytest.raises(GraphgenError, match="1 of 2 programs did not compile") as error:
        NeuronLlamaForCausalLM(llama.path, config).compile(folder)
    assert error.value.code == "GG1002"
    assert not is_artifact(folder)
    assert [*(tmp_path / "work").rglob("log-neuron-cc.txt")], "the logs of failures stay"
    fake.order()
    shutil.rmtree(tmp_path / "cache")
    application = NeuronLlamaForCausalLM(llama.path, config)
    application.compile(folder)
    homes = [*(folder / "hlo").glob("*/_tp0_bk*")]
    assert len(homes) == len(fake.calls) - 2 == 2
    for home in homes:
        assert read_neff(home / "graph.neff").members
        command = (home / "command.txt").read_text()
        assert "--lnc=1" in command
        assert "--enable-saturate-infinity" in command
    # What is saved is read back as it is, whatever the target has by default.
    assert NeuronLlamaForCausalLM(folder).neuron_config.logical_cores("trn2") == 1
    close(application.load(folder), llama)


def test_a_switch_has_one_note_where_a_device_is_configured(
    llama: Checkpoint, capsys: pytest.CaptureFixture[str]
):
    config = llama.config(
        target="trn2", qkv_kernel_enabled=True, fused_qkv=True, torch_dtype="bfloat16"
    )
    NeuronLlamaForCausalLM(llama.path, config).build()
    notes = [line for line in capsys.readouterr().err.splitlines() if "qkv_kernel_en" in line]
    assert len(notes) == 1
    assert "exists in NKI alone" in notes[0]
