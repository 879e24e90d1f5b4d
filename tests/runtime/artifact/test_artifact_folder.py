"""Artifacts: the same answers from a folder, without passes, compilation or the checkpoint."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.cpu.program import program_identity
from graphgen.runtime.artifact import (
    MANIFEST,
    is_artifact,
    open_artifact,
    save_artifact,
    write_weights,
)
from graphgen.runtime.checkpoint.interfaces import Checkpoint
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.model import BuiltModel, build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from graphgen.runtime.signing import signature
from graphgen.runtime.speculation.fused_model import FusedDraft
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer
from tests.oracles.small_gguf import CORPUS, write_small_model
from tests.oracles.smollm2 import smollm2_path
from tests.runtime.tokenizer.test_tokenizer import TRICKY

pytestmark = pytest.mark.usefixtures("optimized_code")

TEXTS = ("The llama said", "It's 2024")
WEIGHTS = "weights/tp0_sharded_checkpoint.safetensors"
AGAIN = "\n  help: delete the folder and make it again"


def again(flags: str) -> str:
    """The help of an artifact for which these flags ask."""
    return AGAIN.replace("help: ", f"help: give {flags}, or ") if flags else AGAIN


def start(model: Path, artifact: Path | None, options: EngineOptions | None = None) -> Engine:
    asked = options or EngineOptions(max_len=64)
    engine, _ = open_engine(
        str(model),
        replace(asked, artifact=artifact),
        lambda tokenizer: [tokenizer.encode(text) for text in TEXTS],
        8,
        Silent(),
    )
    return engine


def answer(engine: Engine) -> list[list[int]]:
    prompts = [engine.tokenizer.encode(text) for text in TEXTS]
    return [done.tokens for done in engine.generate(prompts, GenerationRequest(8)).completions]


def made() -> tuple[Path, list[list[int]]]:
    """A folder with a checkpoint and its artifact, never changed; and the answers."""
    return _made(os.environ.get("GRAPHGEN_XLA_CODE", ""))


@cache
def _made(kind_of_code: str) -> tuple[Path, list[list[int]]]:
    """Compiled programs are named by the kind of code, which is not the same in every test."""
    del kind_of_code
    folder = Path(mkdtemp())
    write_small_model(folder / "small.gguf")
    return folder, answer(start(folder / "small.gguf", folder / "artifact"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A copy of the folder, to be damaged."""
    shutil.copytree(made()[0], tmp_path, dirs_exist_ok=True)
    return tmp_path


def error_text(caught: pytest.ExceptionInfo[GraphgenError], folder: Path) -> str:
    return str(caught.value).replace(str(folder), "DIR")


def test_the_second_run_loads_what_the_first_compiled(place: Path):
    model, artifact = place / "small.gguf", place / "artifact"
    fresh = start(model, None)
    assert answer(fresh) == made()[1]
    assert not fresh.from_artifact
    for opened in (start(model, artifact), start(artifact, None)):
        assert opened.from_artifact
        assert answer(opened) == made()[1]
        reports = opened.programs.reports
        assert [report.name for report in reports] == ["prefill.b2.s64", "decode.b2.c64"]
        assert all(report.loaded for report in reports)


SCRIPT = """
import json, sys
for name in sys.argv[3:]:
    sys.modules[name] = None
from graphgen.runtime.engine import EngineOptions, open_engine
from graphgen.runtime.generation import GenerationRequest
from graphgen.runtime.progress import Silent
texts = json.loads(sys.argv[2])
engine, prompts = open_engine(
    sys.argv[1], EngineOptions(), lambda t: [t.encode(text) for text in texts], 8, Silent()
)
done = engine.generate(prompts, GenerationRequest(8)).completions
loaded = [report.loaded for report in engine.programs.reports]
print(json.dumps([[c.tokens for c in done], loaded, "networkx" in sys.modules]))
"""


# Each import delays the first token.
NEEDLESS = (
    "graphgen.composites",
    "graphgen.lowering.hlo",
    "graphgen.lowering.stablehlo",
    "graphgen.models",
    "graphgen.passes",
    "graphgen.runtime.checkpoint.hf_folder",
    "graphgen.runtime.checkpoint.quantized_checkpoint",
    "gguf",
    "torch",
    "transformers",
)


def test_an_artifact_needs_no_model_no_passes_and_no_checkpoint_reader(place: Path):
    (place / "small.gguf").unlink()
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(place / "artifact"), json.dumps(TEXTS), *NEEDLESS],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert out.returncode == 0, out.stderr
    assert json.loads(out.stdout) == [made()[1], [True, True], False]


def test_the_tokenizer_of_an_artifact_is_the_original(place: Path, tmp_path: Path):
    from graphgen.runtime.tokenizer.tokenizer_folder import save_tokenizer

    ours = load_tokenizer(place / "artifact" / "tokenizer")
    small = load_tokenizer(place / "small.gguf")
    original = load_tokenizer(smollm2_path())
    save_tokenizer(original, tmp_path / "smollm2")
    for kept, first in ((ours, small), (load_tokenizer(tmp_path / "smollm2"), original)):
        for text in [*TRICKY, CORPUS]:
            ids = first.encode(text)
            assert kept.encode(text) == ids
            assert kept.encode(text, add_special=False) == first.encode(text, add_special=False)
            for skip in (True, False):
                assert kept.decode(ids, skip_special=skip) == first.decode(ids, skip_special=skip)
        assert (kept.bos_id, kept.eos_ids) == (first.bos_id, first.eos_ids)
        assert kept.chat_template == first.chat_template
        assert kept.vocab_size == first.vocab_size
    chat = [{"role": "user", "content": "hi <|im_end|>"}]
    assert load_tokenizer(tmp_path / "smollm2").encode_chat(chat) == original.encode_chat(chat)


def edit_manifest(folder: Path, change: Callable[[dict[str, object]], object]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "another version": (
        lambda f: edit_manifest(f, lambda m: m.update(graphgen="0.0.9")),
        "was made by graphgen 0.0.9 (format 2), this is 0.1.0 (format 2)",
    ),
    "another format": (
        lambda f: edit_manifest(f, lambda m: m.update(format=1)),
        "was made by graphgen 0.1.0 (format 1), this is 0.1.0 (format 2)",
    ),
    "manifest cut off": (
        lambda f: (f / MANIFEST).write_text('{"format": 1, '),
        "is damaged: Expecting property name enclosed in double quotes: line 1 column 15 (char 14)",
    ),
    "manifest empty": (
        lambda f: (f / MANIFEST).write_text(""),
        "is damaged: Expecting value: line 1 column 1 (char 0)",
    ),
    "manifest no object": (
        lambda f: (f / MANIFEST).write_text("[]"),
        "is damaged: a JSON object is expected, not list",
    ),
    "manifest without a key": (
        lambda f: edit_manifest(f, lambda m: m.pop("source")),
        "is damaged: manifest.json was changed",
    ),
    "weights cut off": (
        lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-64]),
        "holds other weights than it was made with: tp0_sharded_checkpoint.safetensors",
    ),
    "header of weights changed": (
        lambda f: flip(f / WEIGHTS, 99),
        "holds other weights than it was made with: tp0_sharded_checkpoint.safetensors",
    ),
    "weights missing": (
        lambda f: (f / WEIGHTS).unlink(),
        "is damaged: [Errno 2] No such file or directory: 'DIR/artifact/" + WEIGHTS + "'",
    ),
    "module missing": (
        lambda f: (f / "module.gg").unlink(),
        "is damaged: [Errno 2] No such file or directory: 'DIR/artifact/module.gg'",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_artifact_is_refused(name: str, place: Path):
    damage, text = DAMAGE[name]
    damage(place / "artifact")
    for model, artifact in ((place / "artifact", None), (place / "small.gguf", place / "artifact")):
        with pytest.raises(GraphgenError) as caught:
            start(model, artifact)
        assert (
            error_text(caught, place) == f"error[GG0703]: the artifact DIR/artifact {text}{AGAIN}"
        )


@pytest.mark.parametrize("half", ["one line", "one function"])
def test_a_damaged_module_is_refused(half: str, place: Path):
    path = place / "artifact" / "module.gg"
    text = path.read_text()
    cut = text[: text.index("func @", 9)] if half == "one function" else text.rsplit("\n", 3)[0]
    path.write_text(cut)
    with pytest.raises(GraphgenError) as caught:
        open_artifact(place / "artifact")
    assert error_text(caught, place) == (
        "error[GG0703]: the artifact DIR/artifact is damaged: module.gg was changed" + AGAIN
    )


def test_a_missing_tokenizer_is_refused(place: Path):
    shutil.rmtree(place / "artifact" / "tokenizer")
    with pytest.raises(GraphgenError) as caught:
        start(place / "artifact", None)
    assert error_text(caught, place) == (
        "error[GG0703]: the artifact DIR/artifact is damaged: [Errno 2] No such file or directory: "
        f"'DIR/artifact/tokenizer/generation_config.json'{AGAIN}"
    )


def test_an_artifact_of_other_weights_is_refused(place: Path):
    artifact = open_artifact(place / "artifact")
    write_small_model(place / "small.gguf", tied=False)
    with pytest.raises(GraphgenError) as caught:
        start(place / "small.gguf", place / "artifact")
    text, other = error_text(caught, place).split(", the checkpoint is ")
    assert text == (
        "error[GG0703]: the artifact DIR/artifact was made from other weights: "
        + artifact.source[:12]
    )
    assert other == other[:12] + AGAIN
    assert other[:12] != artifact.source[:12]


@pytest.mark.parametrize(
    ("options", "text", "flags"),
    [
        (EngineOptions(CompileConfig.of(dtype="bf16")), "dtype f32, requested bf16", "--dtype f32"),
        (EngineOptions(batch=5), "batch 2, requested 5", ""),
        (EngineOptions(max_len=32), "max_len 64, requested 32", "--max-len 64"),
        (EngineOptions(CompileConfig.of(tp=2)), "tp 1, requested 2", "--tp 1"),
        (
            EngineOptions(CompileConfig.of(tp=2), max_len=32),
            "max_len 64, requested 32; tp 1, requested 2",
            "--max-len 64 --tp 1",
        ),
        # A batch follows from the prompts, and has no flag.
        (
            EngineOptions(CompileConfig.of(dtype="bf16", tp=2), batch=1, max_len=128),
            "dtype f32, requested bf16; batch 2, requested 1; max_len 64, requested 128; "
            "tp 1, requested 2",
            "",
        ),
    ],
)
def test_an_artifact_of_other_settings_is_refused(
    place: Path, options: EngineOptions, text: str, flags: str
):
    for model, kept in ((place / "artifact", None), (place / "small.gguf", place / "artifact")):
        with pytest.raises(GraphgenError) as caught:
            start(model, kept, options)
        assert error_text(caught, place) == (
            f"error[GG0703]: the artifact DIR/artifact was compiled for {text}{again(flags)}"
        )


def test_a_draft_cannot_be_joined_to_an_artifact(place: Path):
    checkpoint = open_checkpoint(place / "small.gguf")
    fused = FusedDraft(checkpoint, checkpoint.config)
    for model, weights, says in (
        ("artifact", None, "give the checkpoint instead of the artifact"),
        ("small.gguf", place / "presharded", "leave --weights out"),
    ):
        with pytest.raises(GraphgenError, match="joins the checkpoints") as caught:
            start(place / model, None, EngineOptions(fused=fused, weights=weights))
        assert says in caught.value.help
        # It names what was given alone.
        assert ("--weights" in caught.value.help) == (weights is not None)


def clear(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def damage_each(change: Callable[[Path], object]) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        for file in folder.iterdir():
            change(file)

    return run


@pytest.mark.parametrize(
    "damage",
    [
        clear,
        shutil.rmtree,
        damage_each(lambda file: flip(file, file.stat().st_size // 2)),
        damage_each(lambda file: file.write_bytes(file.read_bytes()[:100])),
        damage_each(lambda file: file.write_bytes(b"")),
    ],
    ids=["no files", "no folder", "flipped", "cut off", "empty"],
)
def test_a_damaged_program_is_compiled_again(place: Path, damage: Callable[[Path], object]):
    damage(place / "artifact" / "compiled")
    for loaded in (False, True):
        engine = start(place / "artifact", None)
        assert answer(engine) == made()[1]
        assert [report.loaded for report in engine.programs.reports] == [loaded] * 2


def exchanged(folder: Path) -> None:
    """Each program under the name of the other."""
    first, second = sorted(folder.iterdir())
    kept = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(kept)


def of_another_model(folder: Path) -> None:
    """The programs of a model of the same shapes, under these names."""
    other = folder.parents[1] / "other"
    other.mkdir()
    write_small_model(other / "small.gguf", {"llama.rope.freq_base": 3.0})
    assert answer(start(other / "small.gguf", other / "artifact")) != made()[1]
    for file in folder.iterdir():
        (found,) = (other / "artifact" / "compiled").glob(f"{file.name.rpartition('.b2')[0]}*")
        assert found.name != file.name
        shutil.copyfile(found, file)


def without_identity(folder: Path) -> None:
    """As versions wrote programs whose digest was that of the content alone."""
    for file in folder.iterdir():
        data = file.read_bytes()[64:]
        file.write_bytes(hashlib.sha256(data).digest() + data)


def bound(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Other contents, each with the signed digest of the program that has the name."""
    texts = json.loads((folder.parent / MANIFEST).read_text())["programs"]
    for name, content in contents.items():
        (file,) = folder.glob(f"{name}.*")
        identity = program_identity(name, texts[name])
        digest = hashlib.sha256(identity + b"\0" + content).digest()
        file.write_bytes(digest + signature("program", digest) + content)


def exchanged_with_digests(folder: Path) -> None:
    contents = [file.read_bytes()[64:] for file in sorted(folder.iterdir())]
    bound(folder, dict(zip(("decode.b2.c64", "prefill.b2.s64"), reversed(contents), strict=True)))


def no_program_with_digests(folder: Path) -> None:
    bound(folder, {"decode.b2.c64": b"no program", "prefill.b2.s64": b""})


@pytest.mark.parametrize(
    "damage",
    [
        exchanged,
        of_another_model,
        without_identity,
        exchanged_with_digests,
        no_program_with_digests,
    ],
)
def test_another_program_under_a_name_is_compiled_again(
    place: Path, damage: Callable[[Path], object]
):
    damage(place / "artifact" / "compiled")
    for loaded in (False, True):
        engine = start(place / "artifact", None)
        assert answer(engine) == made()[1]
        assert [report.loaded for report in engine.programs.reports] == [loaded] * 2


def test_a_program_bound_to_its_name_is_loaded(place: Path):
    folder = place / "artifact" / "compiled"
    decode, prefill = [file.read_bytes()[64:] for file in sorted(folder.iterdir())]
    bound(folder, {"decode.b2.c64": decode, "prefill.b2.s64": prefill})
    engine = start(place / "artifact", None)
    assert answer(engine) == made()[1]
    assert [report.loaded for report in engine.programs.reports] == [True] * 2


def test_an_artifact_that_cannot_be_written_to_still_runs(place: Path):
    # A file where the folder of compiled programs belongs: also root cannot write there.
    folder = place / "artifact" / "compiled"
    shutil.rmtree(folder)
    folder.write_text("in the way")
    engine = start(place / "artifact", None)
    assert answer(engine) == made()[1]
    assert not any(report.loaded for report in engine.programs.reports)


def test_a_destination_that_is_no_artifact_is_left_alone(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("keep")
    (tmp_path / "file").write_text("keep")
    for name in ("folder", "file"):
        with pytest.raises(GraphgenError) as caught:
            start(tmp_path / "small.gguf", tmp_path / name)
        assert error_text(caught, tmp_path) == (
            f"error[GG0704]: DIR/{name} exists and is not an artifact\n"
            "  help: choose a new or empty folder"
        )
    assert (tmp_path / "folder" / "mine.txt").read_text() == "keep"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "small.gguf"]


def test_an_empty_destination_and_missing_parents_are_fine(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    (tmp_path / "empty").mkdir()
    for name in ("empty", "a/b/c"):
        start(tmp_path / "small.gguf", tmp_path / name)
        assert is_artifact(tmp_path / name)


def test_a_place_that_cannot_be_written(tmp_path: Path):
    write_small_model(tmp_path / "small.gguf")
    (tmp_path / "file").write_text("keep")
    with pytest.raises(GraphgenError) as caught:
        start(tmp_path / "small.gguf", tmp_path / "file" / "artifact")
    assert error_text(caught, tmp_path) == (
        "error[GG0704]: cannot write the artifact DIR/file/artifact: File exists\n"
        "  help: nothing was written; free some space or choose another folder"
    )


def programs_alone(place: Path) -> tuple[BuiltModel, Path]:
    """An artifact of the model's programs, without weights and tokenizer."""
    checkpoint = open_checkpoint(place / "small.gguf")
    config = CompileConfig(batch=(2,), prefill_batch=(1,), context=(32, 48), tokens=(40, 64))
    built = build_model(checkpoint.config, config)
    save_artifact(place / "alone", built, checkpoint, None, Silent(), weights=False)
    return built, place / "alone"


def logits(session: Session) -> npt.NDArray[np.float32]:
    return session.prefill([[3, 4, 5], [6]]).copy()


def with_another_norm(place: Path) -> Checkpoint:
    """The same model with another last norm, as a folder."""
    weights = write_small_model(place / "small.gguf")
    folder = place / "other"
    folder.mkdir()
    config = dict(open_checkpoint(place / "small.gguf").config)
    (folder / "config.json").write_text(json.dumps(config))
    name = "model.norm.weight"
    save_file({**weights, name: weights[name][::-1].copy()}, folder / "model.safetensors")
    return open_checkpoint(folder)


def test_programs_without_weights_run_with_those_of_a_checkpoint(place: Path):
    built, folder = programs_alone(place)
    checkpoint = open_checkpoint(place / "small.gguf")
    artifact = open_artifact(folder)
    assert artifact.model.settings == replace(built.settings, slots=64)
    assert not artifact.has_weights
    assert not (folder / "weights").exists()
    with pytest.raises(GraphgenError, match="alone has no weights"):
        artifact.weights(Silent())
    programs = artifact.programs(Silent())
    names = [function.name for function in built.module.programs()]
    for name in names:
        programs.get(name)
    assert [report.name for report in programs.reports] == names
    assert names == ["prefill.b1.s32", "prefill.b1.s48", "decode.b2.c40", "decode.b2.c64"]
    again = artifact.programs(Silent())
    assert all(again.compiled(name) for name in names)
    session = Session(again, artifact.weights_from(checkpoint, Silent()))
    wanted = logits(session)
    assert all(report.loaded for report in again.reports)
    # Weights written later, and other weights in the place of these.
    held = write_weights(artifact, checkpoint, Silent())
    assert held.has_weights
    np.testing.assert_array_equal(
        logits(Session(held.programs(Silent()), held.weights(Silent()))), wanted
    )
    other = with_another_norm(place)
    session.load_weights(artifact.weights_from(other, Silent()))
    changed = logits(session)
    assert np.abs(changed - wanted).max() > 1e-3
    held = write_weights(held, other, Silent())
    assert held.source == other.fingerprint() != checkpoint.fingerprint()
    np.testing.assert_array_equal(
        logits(Session(held.programs(Silent()), held.weights(Silent()))), changed
    )
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_weights_of_another_model_do_not_get_into_an_artifact(place: Path):
    _, folder = programs_alone(place)
    write_small_model(place / "other.gguf", tied=False)
    other = open_checkpoint(place / "other.gguf")
    before = (folder / MANIFEST).read_bytes()
    with pytest.raises(GraphgenError) as caught:
        write_weights(open_artifact(folder), other, Silent())
    assert caught.value.code == "GG0602"
    assert (folder / MANIFEST).read_bytes() == before
    assert not (folder / "weights").exists()


def test_buckets_of_an_artifact(place: Path):
    options = EngineOptions(max_len=64, context=(24, 40), tokens=(48, 64))
    model, kept = place / "small.gguf", place / "laddered"
    engine = start(model, kept, options)
    table = engine.session.table
    assert (table.buckets("prefill"), table.buckets("decode")) == ([24, 40], [48, 64])
    assert answer(engine) == made()[1]
    for asked in (
        EngineOptions(),
        options,
        EngineOptions(max_context=40),
        EngineOptions(max_len=64, batch=2),
        EngineOptions(tokens=(64, 48)),
    ):
        assert start(model, kept, asked).model.settings.context == (24, 40)
    for asked, text in (
        (EngineOptions(context=(40,)), "context (24, 40), requested (40,)" + AGAIN),
        (EngineOptions(max_context=32), "context (24, 40), requested (32,)" + AGAIN),
        (
            EngineOptions(bucketing=False, max_context=40),
            "context (24, 40), requested (40,); tokens (48, 64), requested (64,)" + AGAIN,
        ),
        (
            EngineOptions(CompileConfig.of(heads="CONVERT_TO_MHA")),
            "heads auto, requested CONVERT_TO_MHA" + again("--group-query-attention auto"),
        ),
    ):
        with pytest.raises(GraphgenError) as caught:
            start(model, kept, asked)
        assert error_text(caught, place) == (
            f"error[GG0703]: the artifact DIR/laddered was compiled for {text}"
        )
