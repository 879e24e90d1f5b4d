"""Damaged GGUF files: one exact error each, and never another exception or much memory."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from graphgen.errors import GraphgenError
from graphgen.runtime.checkpoint.gguf_checkpoint import GgufCheckpoint
from graphgen.runtime.checkpoint.gguf_header import read_header
from graphgen.runtime.checkpoint.interfaces import NUMPY_DTYPES
from graphgen.runtime.checkpoint.mapped_file import GET_IT_AGAIN
from graphgen.runtime.tokenizer.tokenizer import load_tokenizer
from tests.oracles.small_gguf import small_metadata, write_gguf, write_small_model


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    write_small_model(path)
    return path.read_bytes()


def header(*parts: bytes, version: int = 3, tensors: int = 0, entries: int = 0) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, entries) + b"".join(parts)


def string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return string(name) + sizes + struct.pack("<IQ", kind, offset)


U32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
KEY = string(b"key")


@pytest.mark.parametrize(
    ("data", "offset", "what"),
    [
        (
            b"",
            0,
            "the GGUF file is cut off: the magic number needs 4 bytes here, "
            "the file ends at byte 0",
        ),
        (b"PK\x03\x04rest", 0, "not a GGUF file: it starts with b'PK\\x03\\x04', not b'GGUF'"),
        (header(version=1), 4, "GGUF version 1 cannot be read; supported: 2, 3"),
        (
            header(version=3 << 24),
            4,
            "the GGUF file is big-endian; only little-endian files can be read",
        ),
        (
            header()[:15],
            8,
            "the GGUF file is cut off: the number of tensors needs 8 bytes here, "
            "the file ends at byte 15",
        ),
        (
            header(entries=1 << 60),
            16,
            "the number of metadata entries is 1152921504606846976, "
            "but the rest of the file has room for 0 at most",
        ),
        (
            header(KEY, struct.pack("<II", U32, 5)[:7], entries=1),
            39,
            "the GGUF file is cut off: the value of metadata 'key' needs 4 bytes here, "
            "the file ends at byte 42",
        ),
        (
            header(string(b"\xff"), bytes(20), entries=1),
            24,
            "the key of metadata entry 0 is not valid UTF-8",
        ),
        (
            header(KEY, struct.pack("<IQ", STRING, 1 << 40), entries=1),
            39,
            "the value of metadata 'key' is 1099511627776 bytes long; at most 67108864",
        ),
        (
            header(KEY, struct.pack("<II", 77, 5), entries=1),
            35,
            "the type of metadata 'key' is 77, which is not a GGUF type",
        ),
        (
            header(KEY, struct.pack("<IB", BOOL, 2), entries=1),
            39,
            "the value of metadata 'key' is a boolean of 2, neither 0 nor 1",
        ),
        (
            header(KEY, struct.pack("<IIQ", ARRAY, FLOAT32, 1 << 50), entries=1),
            43,
            "the number of elements of metadata 'key' is 1125899906842624, "
            "but the rest of the file has room for 0 at most",
        ),
        (
            header(KEY, struct.pack("<IIQ", ARRAY, ARRAY, 1), entries=1),
            39,
            "metadata 'key' is an array of arrays, which is not supported",
        ),
        (
            header(*[KEY + struct.pack("<II", U32, 5)] * 2, entries=2),
            43,
            "metadata key 'key' is there twice",
        ),
        (
            header(tensor(b"w", (1,) * 5, 0, 0), tensors=1),
            24,
            "tensor 'w' has rank 5; GGUF allows 1 to 4",
        ),
        (header(tensor(b"w", (4,), 99, 0), tensors=1), 24, "tensor 'w' has unknown type 99"),
        (
            header(tensor(b"w", (33,), GGMLQuantizationType.Q8_0, 0), tensors=1),
            24,
            "tensor 'w' has rows of 33, no multiple of Q8_0's block 32",
        ),
        (
            header(tensor(b"w", (4,), 0, 4), bytes(64), tensors=1),
            68,
            "the data of tensor 'w' is not aligned to 32 bytes",
        ),
        (
            header(tensor(b"w", (1 << 40, 1 << 40), 0, 0), bytes(64), tensors=1),
            96,
            "the GGUF file is cut off: the data of tensor 'w' needs 4835703278458516698824704 "
            "bytes here, the file ends at byte 129",
        ),
        (
            header(tensor(b"w", (0, 1 << 62), 0, 0), bytes(64), tensors=1),
            None,
            "tensor 'w' has an impossible shape (4611686018427387904, 0)",
        ),
        (
            header(*[tensor(b"w", (4,), 0, 0)] * 2, bytes(64), tensors=2),
            None,
            "tensor 'w' is there twice",
        ),
        (
            header(tensor(b"a", (16,), 0, 0), tensor(b"b", (4,), 0, 32), bytes(128), tensors=2),
            128,
            "the data of tensors 'a' and 'b' overlap",
        ),
        (
            header(string(b"general.alignment"), struct.pack("<II", U32, 24), entries=1),
            None,
            "general.alignment is 24; it must be a power of two",
        ),
    ],
    ids=lambda value: "bytes" if isinstance(value, bytes) else None,
)
def test_error_text(tmp_path: Path, data: bytes, offset: int | None, what: str):
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(GraphgenError) as caught:
        read_header(path)
    where = f"DIR/bad.gguf, byte {offset}" if offset is not None else "DIR/bad.gguf"
    shown = str(caught.value).replace(str(tmp_path), "DIR")
    help = f"\n  help: {GET_IT_AGAIN}" if "cut off" in what else ""
    assert shown == f"error[GG0601]: {what}\n  --> {where}{help}"


def test_file_that_cannot_be_opened(tmp_path: Path):
    with pytest.raises(GraphgenError) as caught:
        GgufCheckpoint(tmp_path)
    assert str(caught.value) == (
        f"error[GG0601]: cannot open the file: Is a directory\n  --> {tmp_path}"
    )


def test_type_without_a_dequantiser(tmp_path: Path):
    kind = GGMLQuantizationType.Q8_K
    data = {"w": np.zeros((1, 292), np.uint8)}
    path = write_gguf(tmp_path / "q.gguf", small_metadata(), data, kinds={"w": kind})
    with pytest.raises(GraphgenError) as caught:
        GgufCheckpoint(path).read("w")
    assert caught.value.code == "GG0601"
    assert caught.value.what == (
        "tensor 'w' is quantised as Q8_K, which the gguf package cannot dequantise"
    )


def test_quantised_tensor_without_elements(tmp_path: Path):
    data = {"w": np.zeros((0, 34), np.uint8)}
    kinds = {"w": GGMLQuantizationType.Q8_0}
    path = write_gguf(tmp_path / "empty.gguf", small_metadata(), data, kinds=kinds)
    assert GgufCheckpoint(path).read("w").shape == (0, 32)


def refusal(action: Callable[[], object]) -> GraphgenError | None:
    try:
        action()
    except GraphgenError as error:
        return error
    return None


def read_weights(path: Path) -> None:
    checkpoint = GgufCheckpoint(path)
    for name, info in checkpoint.tensors().items():
        got = checkpoint.read(name)
        assert (got.shape, got.dtype) == (info.shape, NUMPY_DTYPES[info.dtype])


def read_everything(path: Path) -> bool:
    """Whether the weights can be read; the tokenizer has its own say."""
    refused = refusal(lambda: load_tokenizer(path).encode("It's 12 llamas"))
    assert refused is None or refused.code in ("GG0601", "GG0603")
    refused = refusal(lambda: read_weights(path))
    if refused is None:
        return True
    assert refused.code in ("GG0601", "GG0501", "GG0502", "GG0503")
    assert str(path) in refused.where
    return False


def test_truncated_files(tmp_path: Path, small: bytes):
    path = tmp_path / "cut.gguf"
    for step in range(200):
        path.write_bytes(small[: len(small) * step // 200])
        assert not read_everything(path)


def test_flipped_header_bytes(tmp_path: Path, small: bytes):
    path = tmp_path / "flipped.gguf"
    path.write_bytes(small)
    data_offset = read_header(path).data_offset
    rng = random.Random(2024)
    readable = 0
    tracemalloc.start()
    for _ in range(200):
        data = bytearray(small)
        for _ in range(rng.choice((1, 1, 4))):
            data[rng.randrange(data_offset)] = rng.choice((0, 0x7F, 0xFF, rng.randrange(256)))
        path.write_bytes(data)
        readable += read_everything(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Changed names, merges and padding do no harm; changed counts, types and offsets must.
    assert 20 < readable < 180
    assert peak < 50 * len(small)
