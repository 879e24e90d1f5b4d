"""``inference_demo`` with a draft: answers, compiled folders, and checks of its logits."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from unittest.mock import patch

import pytest

from graphgen.cli.demo_arguments import read_arguments
from graphgen.cli.demo_draft import make_draft
from graphgen.runtime import executable_cache
from graphgen.runtime.speculation.speculator import Speculator
from tests.graphgen.cli.demo_model import HEAD, Demo
from tests.oracles.eagle import SIZES as EAGLE
from tests.oracles.eagle import write_eagle
from tests.oracles.families import ORACLES, save, save_tokenizer

SIZES = "--torch-dtype float32 --batch-size 2 --max-context-length 32 --seq-len 48"
PROMPTS = '--prompt "What is" --prompt "I am" --max-new-tokens 14'


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another random Llama, of one layer, with the same tokenizer."""
    folder = tmp_path_factory.mktemp("draft") / "model"
    save(ORACLES["llama"].model(vocab_size=300, num_hidden_layers=1), folder)
    save_tokenizer(folder)
    return folder


def outputs(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("Output ")]


@pytest.mark.parametrize("own", [True, False])
def test_answers_are_those_without_a_draft(demo: Demo, draft: Path, own: bool):
    plain = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS}")
    flags = f"--draft-model-path {'MODEL' if own else draft} --speculation-length 4"
    with patch.object(Speculator, "note", autospec=True, side_effect=Speculator.note) as noted:
        made = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS} {flags}")
    assert made.status == 0, made.err
    assert outputs(made.out) == outputs(plain.out)
    assert len(outputs(made.out)) == 2
    taken = [call.args[3] for call in noted.call_args_list]
    # The model itself proposes what it takes, to the end of the answers.
    assert (min(taken[:6]) == 4) is own


@pytest.mark.parametrize("fused", ["", "--enable-fused-speculation"])
def test_a_draft_of_eagle(demo: Demo, demo_checkpoint: Path, tmp_path: Path, fused: str):
    config = json.loads((demo_checkpoint / "config.json").read_text())
    write_eagle(tmp_path / "eagle", version=1, **{n: config.get(n, EAGLE[n]) for n in EAGLE})
    plain = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS}")
    flags = f"--draft-model-path {tmp_path / 'eagle'} --speculation-length 4 {fused}"
    with patch.object(Speculator, "note", autospec=True, side_effect=Speculator.note) as noted:
        made = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS} {flags} --enable-eagle-speculation")
    assert made.status == 0, made.err
    assert outputs(made.out) == outputs(plain.out)
    assert noted.call_count > 4
    wrong = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS} --enable-eagle-speculation")
    assert "--enable-eagle-speculation has no effect without --draft-model-path" in wrong.err


@pytest.mark.slow
def test_a_draft_has_ranks_of_its_own(demo: Demo, draft: Path):
    plain = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS}")
    flags = f"--draft-model-path {draft} --speculation-length 4 --tp-degree 2"
    for ranks in ("", "--draft-model-tp-degree 1"):
        made = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS} {flags} {ranks}")
        assert made.status == 0, made.err
        assert outputs(made.out) == outputs(plain.out)


def test_both_are_compiled_into_folders_and_loaded_from_them(
    demo: Demo, draft: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folders = "--compiled-model-path target --compiled-draft-model-path small"
    more = f"--speculation-length 3 --draft-model-path {draft} --spec-batch-size 1"
    line = f"{HEAD} {SIZES} {PROMPTS} {folders} {more} --on-device-sampling"
    first = demo(f"{line} --benchmark --benchmark-report-path report.json")
    assert first.status == 0, first.err
    assert "Compiled the draft into small" in first.out
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["speculation_model"]["latency_ms_p50"] > 0
    config = json.loads((tmp_path / "target" / "neuron_config.json").read_text())
    assert config["neuron_config"]["spec_batch_size"] == 1
    assert (tmp_path / "small" / "neuron_config.json").is_file()

    def no_compilation(*_: object) -> None:
        raise AssertionError("a program was compiled")

    monkeypatch.setattr(executable_cache, "compile_program", no_compilation)
    again = demo(f"{line} --skip-compile")
    assert again.status == 0, again.err
    assert outputs(again.out) == outputs(first.out)


@pytest.mark.parametrize("mode", ["token-matching", "logit-matching", "draft-logit-matching"])
def test_checks_pass(demo: Demo, draft: Path, mode: str):
    flags = f"--draft-model-path {draft} --speculation-length 4 --check-accuracy-mode {mode}"
    made = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS} {flags}")
    assert made.status == 0, made.err
    # Six loops of three proposals, where the draft's logits are checked.
    count = 18 if mode == "draft-logit-matching" else 14
    assert f"The accuracy check passed: {mode} of {count} tokens" in made.out


def test_a_wrong_draft_is_found_with_its_layer(demo: Demo, draft: Path):
    from graphgen.runtime.accuracy.hugging_face_model import load_hugging_face

    def wrong(path: Path) -> object:
        found = load_hugging_face(path)
        layer = found._model.model.layers[0]  # pyright: ignore
        layer.mlp.down_proj.weight.data *= 1.5
        return found

    flags = f"--draft-model-path {draft} --speculation-length 4 --num-tokens-to-check 5"
    check = "--check-accuracy-mode draft-logit-matching"
    with patch("graphgen.cli.demo_run.load_hugging_face", wrong):
        made = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS} {flags} {check}")
        other = demo(f"{HEAD} --on-cpu {SIZES} {PROMPTS} {flags} --check-accuracy-mode {OTHER}")
    assert made.status == 1
    assert "error[GG0907]: logits differ at row" in made.err
    assert "the first wrong place is" in made.err
    assert "layer 0" in made.err
    assert other.status == 1


OTHER = "logit-matching"


def test_a_file_names_the_modules_of_each(demo: Demo, draft: Path, tmp_path: Path):
    listed = {
        "model": {"modules_to_not_convert": ["lm_head"]},
        "draft_model": {"modules_to_not_convert": ["lm_head", "layers.0"]},
    }
    (tmp_path / "kept.json").write_text(json.dumps(listed))
    words = (
        f"{HEAD} --on-cpu {SIZES} {PROMPTS} --draft-model-path {draft} --speculation-length 4 "
        "--quantized --quantized-checkpoints-path elsewhere --quantization-type "
        "per_channel_symmetric --modules-to-not-convert-file kept.json"
    )
    made = make_draft(read_arguments(shlex.split(words)))
    assert made is not None
    config = made.neuron_config
    assert config.value("modules_to_not_convert") == ("lm_head", "layers.0")
    assert config.value("quantized_checkpoints_path") == "none"
    answered = demo(words.replace("--quantized-checkpoints-path elsewhere", QUANTIZED))
    assert answered.status == 0, answered.err
    assert len(outputs(answered.out)) == 2


QUANTIZED = "--quantized-checkpoints-path none"
