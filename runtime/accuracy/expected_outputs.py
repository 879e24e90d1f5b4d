"""Expected outputs of prompts: greedy tokens and, if wanted, the logits of each step.

Files: ``.json`` holds prompts and tokens; ``.npz`` and ``.safetensors`` hold the arrays ``prompts``
s32 [N,P] and ``tokens`` s32 [N,T], filled up with -1, and ``logits`` f32 [T,N,V], steps first as in
NxD Inference's files.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import numpy.typing as npt

from graphgen.atomic_write import read_regular, unreadable, write_whole
from graphgen.errors import GraphgenError
from graphgen.eval import Array
from graphgen.exec.inputs import read_arrays, safetensors_bytes, write_arrays
from graphgen.json_value import parse_json
from graphgen.limits import JSON_BYTES
from graphgen.runtime.accuracy.step_model import StepModel

FORMAT = "graphgen-expected-outputs-1"
# Fills rows up that are shorter than the longest; not a token id.
_NONE = -1
_HELP = "'graphgen accuracy --save-expected FILE' writes one: .json, .npz or .safetensors"


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """The outputs of a reference for N prompts.

    Attributes:
        prompts: token ids of each prompt.
        tokens: the new tokens of each prompt; rows may differ in length.
        logits: f32 [T,N,V] of each step, where every row has T tokens; ``None`` for tokens only.
    """

    prompts: list[list[int]]
    tokens: list[list[int]]
    logits: npt.NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if not self.prompts or len(self.prompts) != len(self.tokens):
            raise GraphgenError(
                "GG0705",
                f"expected outputs of {len(self.tokens)} rows for {len(self.prompts)} prompts",
                help="each prompt needs the tokens expected after it",
            )
        empty = [row for row, prompt in enumerate(self.prompts) if not prompt]
        if empty:
            raise GraphgenError("GG0702", f"the prompt of row {empty[0]} has no token")
        if self.logits is not None:
            lengths = sorted({len(row) for row in self.tokens})
            shape = self.logits.shape
            if len(shape) != 3 or [shape[0]] != lengths or shape[1] != len(self.prompts):
                raise GraphgenError(
                    "GG0705",
                    f"expected logits have the shape {list(shape)}; {len(self.prompts)} prompts "
                    f"with {' to '.join(map(str, {lengths[0], lengths[-1]}))} new tokens need "
                    f"[{lengths[-1]}, {len(self.prompts)}, vocabulary]",
                )

    def first(self, steps: int) -> ExpectedOutputs:
        """The outputs of the first ``steps`` steps."""
        logits = None if self.logits is None else self.logits[:steps]
        return ExpectedOutputs(self.prompts, [row[:steps] for row in self.tokens], logits)


def expect(
    model: StepModel, prompts: Sequence[Sequence[int]], steps: int, *, with_logits: bool
) -> ExpectedOutputs:
    """Generate greedily with a reference; end tokens do not end a row.

    Args:
        model: the reference.
        prompts: token ids; none may be empty.
        steps: new tokens per prompt, at least 1.
        with_logits: keep the logits, 4 * steps * N * V bytes.
    """
    if steps < 1:
        raise GraphgenError("GG0705", f"{steps} tokens to check: at least 1 is needed")
    logits = model.start(prompts)
    kept, chosen = [logits], [logits.argmax(-1)]
    for _ in range(steps - 1):
        logits = model.step(chosen[-1].tolist())
        chosen.append(logits.argmax(-1))
        if with_logits:
            kept.append(logits)
    tokens = np.stack(chosen, 1).tolist()
    rows = [list(prompt) for prompt in prompts]
    return ExpectedOutputs(rows, tokens, np.stack(kept) if with_logits else None)


def check_ending(path: Path) -> None:
    """Refuse a file whose ending is none of the known formats (GG0705)."""
    if path.suffix not in (".json", ".npz", ".safetensors"):
        raise GraphgenError(
            "GG0705",
            f"expected outputs in {path.name}: the ending says no known format",
            help=_HELP,
        )


def write_expected(path: Path, expected: ExpectedOutputs) -> None:
    """Write a file of expected outputs, whole or not at all (GG0704; GG0705 for its ending)."""
    check_ending(path)
    if path.suffix == ".json":
        content = {"format": FORMAT, "prompts": expected.prompts, "tokens": expected.tokens}
        write_whole(path, (json.dumps(content) + "\n").encode())
        return
    arrays: dict[str, Array] = {
        "prompts": _filled(expected.prompts),
        "tokens": _filled(expected.tokens),
    }
    if expected.logits is not None:
        arrays["logits"] = expected.logits
    if path.suffix == ".npz":
        write_whole(path, lambda file: write_arrays(file, arrays))
    else:
        write_whole(path, safetensors_bytes(arrays))


def read_expected(path: Path) -> ExpectedOutputs:
    """Read a file of expected outputs (GG0705 for an unreadable one or another ending)."""
    check_ending(path)
    if path.suffix == ".json":
        return _from_json(path)
    arrays = read_arrays(str(path))
    missing = {"prompts", "tokens"} - arrays.keys()
    if missing:
        raise unreadable(str(path), ValueError(f"it has no array '{sorted(missing)[0]}'"), _HELP)
    logits = arrays.get("logits")
    return ExpectedOutputs(
        _rows(path, arrays["prompts"]),
        _rows(path, arrays["tokens"]),
        None if logits is None else logits.astype(np.float32),
    )


def _from_json(path: Path) -> ExpectedOutputs:
    try:
        content: object = parse_json(read_regular(path, JSON_BYTES))
    except (OSError, ValueError) as error:
        raise unreadable(str(path), error, _HELP) from error
    fields = cast("dict[str, object]", content if isinstance(content, dict) else {})
    if fields.get("format") != FORMAT:
        raise unreadable(str(path), ValueError(f"its format is not {FORMAT!r}"), _HELP)
    prompts, tokens = (_integers(path, name, fields.get(name)) for name in ("prompts", "tokens"))
    return ExpectedOutputs(prompts, tokens)


def _integers(path: Path, name: str, value: object) -> list[list[int]]:
    rows = cast("list[object]", value) if isinstance(value, list) else [None]
    for row in rows:
        items = cast("list[object]", row) if isinstance(row, list) else [None]
        if any(not isinstance(item, int) or isinstance(item, bool) or item < 0 for item in items):
            what = f"'{name}' must be a list of lists of token ids"
            raise unreadable(str(path), ValueError(what), _HELP)
    return cast("list[list[int]]", rows)


def _filled(rows: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
    out = np.full((len(rows), max(map(len, rows))), _NONE, np.int32)
    for number, row in enumerate(rows):
        out[number, : len(row)] = row
    return out


def _rows(path: Path, array: Array) -> list[list[int]]:
    if array.ndim != 2 or array.dtype.kind not in "iu":
        what = f"an array of token ids has the type {array.dtype} and the shape {array.shape}"
        raise unreadable(str(path), ValueError(what), _HELP)
    return [[token for token in row if token != _NONE] for row in array.tolist()]
