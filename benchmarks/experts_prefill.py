"""How long the prefill of a mixture of experts takes, beside transformers without compilation.

A random Mixtral of 64 experts, of which each token has two, from one checkpoint in one process: its
first logits are compared, then both take turns, the best of several runs each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers

from benchmarks.rows import Row, table, write_json
from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.checkpoint.open_checkpoint import open_checkpoint
from graphgen.runtime.executable_cache import ExecutableCache
from graphgen.runtime.model import build_model
from graphgen.runtime.progress import Silent
from graphgen.runtime.session.session import Session
from graphgen.runtime.weights.rank_weights import RankWeights, put_weights, read_weight

_SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_local_experts": 64,
    "num_experts_per_tok": 2,
    "vocab_size": 1024,
    "initializer_range": 0.1,
}


def reference(experts: str) -> Any:
    """The model of transformers, in f32, with one of its implementations of experts."""
    torch.manual_seed(0)
    forms: dict[str, Any] = {"attn_implementation": "eager", "experts_implementation": experts}
    config = transformers.MixtralConfig(**_SIZES, **forms)
    return transformers.MixtralForCausalLM(config).eval()


def session_of(folder: Path, tokens: int) -> Session:
    """Ours on the checkpoint in ``folder``, for one prompt of ``tokens``."""
    checkpoint = open_checkpoint(folder)
    sizes = CompileConfig(dtype="f32", batch=(1,), context=(tokens,), tokens=(tokens,))
    built = build_model(checkpoint.config, sizes)
    weights = RankWeights(built.module, lambda row: read_weight(checkpoint, row))
    return Session(ExecutableCache(built.module, Silent()), put_weights(weights, Silent()))


def seconds(run: Callable[[], object]) -> float:
    """The time of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def row_of(model: Any, folder: Path, tokens: int, runs: int) -> Row:
    """Both, on one random prompt."""
    prompt = np.random.default_rng(tokens).integers(0, _SIZES["vocab_size"], tokens).tolist()
    session, given = session_of(folder, tokens), torch.tensor([prompt])

    def ours() -> np.ndarray:
        session.reset()
        return session.prefill([prompt])

    def theirs() -> np.ndarray:
        with torch.no_grad():
            return model(given, logits_to_keep=1).logits[:, -1].numpy()

    np.testing.assert_allclose(ours(), theirs(), rtol=0, atol=1e-3)
    best = [float("inf"), float("inf")]
    for _ in range(runs):
        best = [min(old, seconds(run)) for old, run in zip(best, (ours, theirs), strict=True)]
    return Row(
        f"f32.b1.p{tokens}.prefill", best[0], f"transformers {transformers.__version__}", best[1]
    )


def main() -> None:
    """Print a table, write JSON, and exit with 1 where transformers is faster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="*", default=(8, 128, 512))
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--experts", default="eager", help="transformers' experts_implementation")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(2)
    model = reference(args.experts)
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        rows = [row_of(model, Path(folder), tokens, args.runs) for tokens in args.tokens]
    print(table(rows))
    if args.json:
        write_json(rows, args.json)
    if any(row.ratio < 1 for row in rows):
        raise SystemExit("transformers is faster")


if __name__ == "__main__":
    main()
