"""What each switch of long contexts is predicted to gain: Llama 8B and 405B at 128k tokens on trn2.

For each switch alone, beside none: seconds of a prefill of the whole context, milliseconds of a
decode step that attends to all of it, bytes of caches on a core, and the most that intermediate
values take. Times are the roofline's lower bounds and memory is that of ``plan``: both come from
models of few layers, of which every further layer costs the same. Nothing is run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from graphgen.atomic_write import write_whole
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError
from graphgen.lowering.plan.bucket_seconds import program_bounds
from graphgen.lowering.plan.measure import estimate
from graphgen.models import known_shape
from graphgen.targets import accelerator

TOKENS = 128 << 10
TARGET = "trn2"
# Ranks of a model: of 16 chips of trn2, a logical core each of two.
MODELS: Mapping[str, int] = {"llama-3.1-8b": 16, "llama-3.1-405b": 64}
PHASES = ("prefill", "decode")
# Attention is whole except where tiles are the switch.
PLAIN = CompileConfig(
    target=TARGET, dtype="bf16", context=(TOKENS,), tokens=(TOKENS,), attention_block="off"
)
SWITCHES: Mapping[str, Mapping[str, object]] = {
    "none": {},
    "attention in tiles": {"attention_block": "auto"},
    "flash decoding": {"flash_decoding": True},
    "sequence parallel": {"rules": ("prefill:sequence:tp",)},
    "no weights gathered": {"weight_gather_length": 0},
    "context parallel over 2": {"cp_degree": 2},
    "8-bit caches": {"kv_cache_quant": True},
    "flash decoding, 8-bit caches": {"flash_decoding": True, "kv_cache_quant": True},
    "16-bit sums over ranks": {"rpl_reduce_dtype": "bf16"},
}


@dataclass(frozen=True, slots=True)
class Gain:
    """One model with one switch.

    Attributes:
        model, switch: which.
        prefill_s, decode_s: seconds of the programs, at least.
        prefill_links, decode_links: bytes that a rank sends in them.
        cache, activations: bytes on a core.
        refused: why the switch cannot be given; empty if it can.
    """

    model: str
    switch: str
    prefill_s: float = 0.0
    decode_s: float = 0.0
    prefill_links: int = 0
    decode_links: int = 0
    cache: int = 0
    activations: int = 0
    refused: str = ""


def gain(model: str, switch: str) -> Gain:
    """The figures of one switch."""
    changes = SWITCHES[switch]
    config = replace(PLAIN, tp=MODELS[model], **changes)  # pyright: ignore[reportArgumentType]
    shape, device = known_shape(model), accelerator(TARGET)
    try:
        found = program_bounds(shape, device, config, PHASES, 1)
    except GraphgenError as error:
        return Gain(model, switch, refused=f"{error.code}: {error.what}")
    use = estimate(shape, config, MODELS[model], 1)
    prefill, decode = (found[phase, TOKENS] for phase in PHASES)
    return Gain(
        model,
        switch,
        prefill.seconds,
        decode.seconds,
        prefill.link_bytes,
        decode.link_bytes,
        use.kv,
        use.activations,
    )


def table(rows: Sequence[Gain]) -> str:
    """The rows, each beside the model without switches."""
    lines = [
        f"{'model':15} {'switch':30} {'prefill s':>10} {'decode ms':>10} {'decode':>7} "
        f"{'cache GB':>9} {'values GB':>10}"
    ]
    plain: dict[str, Gain] = {}
    for row in rows:
        first = plain.setdefault(row.model, row)
        if row.refused:
            lines.append(f"{row.model:15} {row.switch:30} {row.refused}")
            continue
        lines.append(
            f"{row.model:15} {row.switch:30} {row.prefill_s:10.2f} {row.decode_s * 1e3:10.3f} "
            f"{first.decode_s / row.decode_s:6.2f}x {row.cache / 1e9:9.3f} "
            f"{row.activations / 1e9:10.2f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=[*MODELS], help="one model; by default both")
    parser.add_argument("--json", type=Path, help="write rows of JSON here")
    given = parser.parse_args()
    models = [given.only] if given.only else [*MODELS]
    rows = [gain(model, switch) for model in models for switch in SWITCHES]
    print(table(rows))
    if given.json:
        write_whole(given.json, json.dumps([asdict(row) for row in rows], indent=1).encode())


if __name__ == "__main__":
    main()
