"""One flipped bit anywhere in an artifact is found, and the file or the tensor is named."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import open_artifact
from graphgen.runtime.engine import EngineOptions
from graphgen.runtime.progress import Silent
from graphgen.runtime.weights.aligned_safetensors import read_header
from graphgen.runtime.weights.weight_reader import read_aligned
from tests.runtime.artifact.test_artifact_folder import WEIGHTS, answer, made, start

FILES = (
    "manifest.json",
    "module.gg",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "tokenizer/generation_config.json",
)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy to be damaged, and mended after each damage."""
    folder = tmp_path_factory.mktemp("damaged") / "artifact"
    shutil.copytree(made()[0] / "artifact", folder)
    return folder


def flipped(path: Path, places: list[int]) -> Iterator[int]:
    """Flip one random bit of the byte at each place, one after the other."""
    data = path.read_bytes()
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << random.randrange(8)
        path.write_bytes(changed)
        yield place
    path.write_bytes(data)


def load_error(artifact: Path) -> str:
    with pytest.raises(GraphgenError) as caught:
        open_artifact(artifact).weights(Silent())
    assert caught.value.code == "GG0703"
    return str(caught.value)


def test_every_file_is_known():
    folder = made()[0] / "artifact"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    programs = {name for name in found if re.fullmatch(r"compiled/.*\.xla", name)}
    # Damaged programs are compiled again: test_a_damaged_program_is_compiled_again.
    assert found == {*FILES, WEIGHTS, *programs}
    assert len(programs) == 2


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_a_file_is_found(artifact: Path, name: str):
    size = (artifact / name).stat().st_size
    places = [0, size // 2, size - 1, *(random.randrange(size) for _ in range(3))]
    for _ in flipped(artifact / name, places):
        text = load_error(artifact)
        assert f"the artifact {artifact} " in text
        # A change may leave a manifest that is not JSON, or of another version.
        assert name == "manifest.json" or f"is damaged: {name} was changed" in text
    open_artifact(artifact).weights(Silent())


def test_a_flipped_bit_in_a_tensor_is_found_and_named(artifact: Path):
    tensors = read_header(artifact / WEIGHTS)
    end = tensors[0].start
    for tensor in tensors:
        # The first and the last byte, one between, and the last of the zeros behind.
        assert tensor.start == end
        end = tensor.end
        inside = random.randrange(tensor.start, tensor.end)
        places = [tensor.start, inside, tensor.start + tensor.nbytes - 1, tensor.end - 1]
        for _ in flipped(artifact / WEIGHTS, places):
            with pytest.raises(GraphgenError) as caught:
                read_aligned(artifact / WEIGHTS)
            assert str(caught.value) == (
                f"error[GG0703]: {artifact / WEIGHTS} is damaged: the tensor {tensor.name} was "
                "changed\n  help: delete its folder and make it again"
            )
    assert end == (artifact / WEIGHTS).stat().st_size


def test_a_flipped_bit_in_the_header_of_weights_is_found(artifact: Path):
    first = read_header(artifact / WEIGHTS)[0].start
    places = [0, 7, first - 1, *(random.randrange(first) for _ in range(4))]
    for _ in flipped(artifact / WEIGHTS, places):
        assert "holds other weights than it was made with" in load_error(artifact)


def test_a_run_with_a_changed_tensor_gives_no_token(artifact: Path):
    tensor = read_header(artifact / WEIGHTS)[-1]
    for _ in flipped(artifact / WEIGHTS, [tensor.start]):
        with pytest.raises(GraphgenError, match=f"the tensor {tensor.name} was changed"):
            start(artifact, None, EngineOptions(max_len=64))
    assert answer(start(artifact, None)) == made()[1]
