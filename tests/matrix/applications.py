"""Compile applications of random configurations, open them elsewhere, and compare their tokens.

    python -m tests.matrix.applications     # goes on where it was interrupted
    python -m tests.matrix.applications --limit 4
    python -m tests.matrix.applications --number 17

A number gives a family, one of its models, prompts, and configurations, of which the first counts
that graphgen takes: that its checks pass, and that is in no hole of the matrix. It is saved and
loaded, the application is compiled into a folder and opened in another process, and its tokens are
those that transformers chooses in f32. Results are lines of JSON in a file. They hold until a
source of the packages, of the matrix or of the oracles changes. The exit code is 0 when every
number was tried and is right.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from graphgen.errors import GraphgenError
from graphgen.runtime.aws_config.inference_config import load_pretrained_config
from graphgen.runtime.aws_nxdi.model_classes import CAUSAL_LM
from graphgen.runtime.progress import Silent
from tests.json_lines import JsonLines, digest_of
from tests.matrix.holes import HOLES
from tests.oracles.families import ORACLES, save

if TYPE_CHECKING:
    from graphgen.runtime.aws_nxdi.causal_lm import NeuronBaseForCausalLM

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / ".cache" / "applications.jsonl"
SOURCES = ("graphgen", "passes", "lowering", "runtime", "tests/matrix", "tests/oracles")
NUMBERS = 60
STEPS = 6
# Logits of transformers that are as close are equal: either token is right.
TIE = 1e-4
FAMILIES = sorted(set(CAUSAL_LM) & set(ORACLES))
# Prime to the number of families: neighbors are not alike, and all families come in turn.
_STRIDE = 9
_TRIES = 1000
RIGHT, WRONG = "right", "wrong"
_SWITCHES = (
    "fused_qkv",
    "sequence_parallel_enabled",
    "flash_decoding_enabled",
    "is_continuous_batching",
    "vocab_parallel",
    "kv_cache_tiling",
    "k_cache_transposed",
    "async_mode",
    "output_logits",
    "skip_warmup",
)
_CHOICES: Mapping[str, tuple[object, ...]] = {
    "attn_kernel_enabled": (False, None),
    "padding_side": ("left", "right"),
    "cp_degree": (2, 4),
    "attention_dp_degree": (2,),
    "pp_degree": (2,),
    "ctx_batch_size": (1, 2),
    "logical_nc_config": (1, 2),
    "rpl_reduce_dtype": ("float32", None),
    "attention_dtype": ("float32", None),
    "weight_gather_seq_len_threshold": (8, 16),
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a number gives.

    Attributes:
        family: ``model_type`` of the application.
        variant: name of the model among those of the family's oracle.
        attributes: of the NeuronConfig.
        rounds: prompts that are run after each other, with the rows of the cache that they take.
    """

    family: str
    variant: str
    attributes: dict[str, Any]
    rounds: list[dict[str, Any]]


def _lengths(rng: random.Random) -> dict[str, Any]:
    """The lengths and buckets of a configuration."""
    unit = rng.choice((1, 4))
    longest = rng.randrange(20, 49, unit)
    prompt = rng.randrange(8, longest - STEPS + 1, unit)
    made: dict[str, Any] = {"seq_len": longest}
    if rng.random() < 0.7:
        made["max_context_length"] = prompt
    else:
        prompt = longest
    if rng.random() < 0.5:
        made["enable_bucketing"] = True
        if rng.random() < 0.8:
            made["context_encoding_buckets"] = [rng.randrange(4, prompt, unit), prompt]
        if rng.random() < 0.8:
            made["token_generation_buckets"] = [rng.randrange(8, longest, unit), longest]
    return made


def drawn_attributes(rng: random.Random, *, experts: bool) -> dict[str, Any]:
    """Attributes of a NeuronConfig, not all of which go together."""
    made = {
        "torch_dtype": "float32",
        "tp_degree": rng.choice((1, 2, 4)),
        "batch_size": rng.randrange(1, 4),
        **_lengths(rng),
    }
    made.update({name: True for name in _SWITCHES if rng.random() < 0.25})
    made.update({n: rng.choice(values) for n, values in _CHOICES.items() if rng.random() < 0.2})
    if rng.random() < 0.5:
        made["on_device_sampling_config"] = {"do_sample": False, "dynamic": rng.random() < 0.5}
    if rng.random() < 0.2:
        made["kv_cache_batch_size"] = made["batch_size"] + 1
    if rng.random() < 0.3:
        size = rng.choice((4, 8, 16))
        rows = made.get("kv_cache_batch_size", made["batch_size"])
        blocks = rows * -(-made["seq_len"] // size) + rng.randrange(3)
        made.update(is_block_kv_layout=True, pa_block_size=size, pa_num_blocks=blocks)
    if experts and rng.random() < 0.3:
        made["moe_ep_degree"] = 2
    return made


def drawn_rounds(rng: random.Random, attributes: Mapping[str, Any], words: int) -> list[Any]:
    """A round of as many prompts as a batch has, then one prompt that replaces a row."""
    longest = attributes["seq_len"] - STEPS
    most = min(attributes.get("max_context_length", longest), longest)
    batch = attributes["batch_size"]
    rows = rng.sample(range(attributes.get("kv_cache_batch_size", batch)), batch)
    return [
        {
            "rows": chosen,
            "prompts": [
                [rng.randrange(words) for _ in range(rng.randint(1, most))] for _ in chosen
            ],
        }
        for chosen in (rows, [rng.choice(rows)])
    ]


def application_of(family: str, checkpoint: Path, attributes: Mapping[str, Any]) -> Any:
    """An application that is not built yet (GG0902 to GG0904 for what is refused)."""
    kind: type[NeuronBaseForCausalLM] = CAUSAL_LM[family]
    configured = kind.get_config_cls()
    neuron = configured.get_neuron_config_cls()(**attributes)
    config = configured(neuron, load_config=load_pretrained_config(checkpoint))
    application = kind(str(checkpoint), config)
    application.progress = Silent()
    application.compile_config()
    return application


def compiled(draw: Drawn, checkpoint: Path, folder: Path) -> None:
    """Save and load the configuration, and compile the application into a folder.

    Raises:
        GraphgenError: for what is refused.
        ValueError: for another configuration than the one that was saved.
    """
    config = application_of(draw.family, checkpoint, draw.attributes).config
    config.save(folder / "saved")
    loaded = type(config).load(folder / "saved")
    if loaded != config or loaded.to_json_string() != config.to_json_string():
        raise ValueError("the configuration that was loaded is not the one that was saved")
    application = CAUSAL_LM[draw.family](str(checkpoint), loaded)
    application.progress = Silent()
    application.compile(folder / "compiled")


def is_refused(draw: Drawn, checkpoint: Path) -> str:
    """The code of what makes the configuration impossible; empty for one that is taken."""
    try:
        application_of(draw.family, checkpoint, draw.attributes)
    except GraphgenError as error:
        return error.code
    return ""


def in_hole(error: GraphgenError) -> bool:
    """Whether a compilation is refused because its cell of the matrix is in a hole."""
    return any(hole.code == error.code and hole.words in error.what for hole in HOLES)


def draws(number: int) -> Iterator[Drawn]:
    """What a number gives, one after the other until one is taken."""
    rng = random.Random(number)
    family = FAMILIES[number * _STRIDE % len(FAMILIES)]
    variant = rng.choice(sorted(ORACLES[family].variants))
    kind = CAUSAL_LM[family].get_config_cls().get_neuron_config_cls()
    experts = kind.owner == "MoENeuronConfig"
    for _ in range(_TRIES):
        attributes = drawn_attributes(rng, experts=experts)
        rounds = drawn_rounds(rng, attributes, ORACLES[family].sizes["vocab_size"])
        yield Drawn(family, variant, attributes, rounds)


def first_compiled(
    number: int, checkpoint: Path, folder: Path
) -> tuple[Drawn, dict[str, int], str]:
    """The first draw of a number that is not refused, compiled into a folder.

    Returns:
        The draw, how many were refused before it, by code, and an error of its compilation.
    """
    refused: Counter[str] = Counter()
    for draw in draws(number):
        if code := is_refused(draw, checkpoint):
            refused[code] += 1
            continue
        try:
            compiled(draw, checkpoint, folder)
        except GraphgenError as error:
            if in_hole(error):
                refused[error.code] += 1
                continue
            return draw, refused, f"{error.code}: {error.what}"
        except Exception as raised:  # a defect of one number; the others are tried all the same
            return draw, refused, _first_line(raised)
        return draw, refused, ""
    raise AssertionError(f"number {number}: {_TRIES} configurations are refused: {refused}")


def _first_line(raised: Exception) -> str:
    return f"{type(raised).__name__}: {[*str(raised).splitlines(), ''][0]}"


def tokens_elsewhere(folder: Path, draw: Drawn) -> list[list[list[int]]]:
    """The tokens of each round and prompt, from a process of its own that opens the folder."""
    asked = {"family": draw.family, "steps": STEPS, "rounds": draw.rounds}
    done = subprocess.run(
        [sys.executable, "-m", "tests.matrix.opened_application", str(folder)],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    if done.returncode:
        told = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise RuntimeError(f"in the new process: {told[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def wrong_tokens(model: Any, draw: Drawn, found: Sequence[Sequence[Sequence[int]]]) -> list[str]:
    """Where tokens are not the best of transformers, nor as good, after the same text."""
    import torch

    wrong: list[str] = []
    for place, (given, made) in enumerate(zip(draw.rounds, found, strict=True)):
        for row, (prompt, tokens) in enumerate(zip(given["prompts"], made, strict=True)):
            assert len(tokens) == STEPS + 1
            text = torch.tensor([[*prompt, *tokens[:-1]]])
            with torch.no_grad():
                logits = model(text, use_cache=False).logits[0, len(prompt) - 1 :].numpy()
            lost = logits.max(axis=-1) - logits[np.arange(len(tokens)), tokens]
            if (lost > TIE).any():
                step = int((lost > TIE).argmax())
                best = int(logits[step].argmax())
                wrong.append(
                    f"round {place}, prompt {row} of {len(prompt)}, step {step}: "
                    f"{tokens[step]}, not {best} by {lost[step]:.2g}"
                )
    return wrong


def _cpu_seconds() -> float:
    """Of this process and of those that it waited for."""
    return sum(os.times()[:4])


def tried(number: int) -> dict[str, object]:
    """The result of one number."""
    start = _cpu_seconds()
    # Notes on attributes without an effect are of no interest here.
    with (
        TemporaryDirectory(prefix="graphgen-applications-") as home,
        redirect_stderr(io.StringIO()),
    ):
        checkpoint, folder = Path(home, "checkpoint"), Path(home)
        first = next(draws(number))
        model = ORACLES[first.family].model(first.variant)
        save(model, checkpoint)
        draw, refused, error = first_compiled(number, checkpoint, folder)
        errors = [error] if error else []
        # The folder has all that is needed.
        checkpoint.rename(folder / "elsewhere")
        if not error:
            try:
                errors = wrong_tokens(model, draw, tokens_elsewhere(folder / "compiled", draw))
            except RuntimeError as raised:
                errors = [_first_line(raised)]
    return {
        "number": number,
        "family": draw.family,
        "variant": draw.variant,
        "attributes": draw.attributes,
        "refused": refused,
        "state": WRONG if errors else RIGHT,
        "errors": errors,
        "seconds": round(_cpu_seconds() - start, 1),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Try the numbers without a result; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix.applications")
    parser.description, parser.formatter_class = __doc__, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to go on with")
    parser.add_argument("--limit", type=int, help="numbers to try at most this time")
    parser.add_argument("--number", type=int, help="try this one, and print its row")
    parser.add_argument("--again", action="store_true", help="try anew what is wrong")
    args = parser.parse_args(arguments)
    # As in tests: small programs take XLA longer to optimize than to run.
    os.environ.setdefault("GRAPHGEN_XLA_CODE", "quick")
    # JAX fixes the number when it starts.
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
    if args.number is not None:
        row = tried(args.number)
        print(json.dumps(row, indent=1))
        return 1 if row["errors"] else 0
    file, digest = JsonLines(args.results), digest_of(ROOT, SOURCES)
    rows = [row for row in file.read() if row["digest"] == digest]
    known = {cast(int, r["number"]): r for r in rows if not (args.again and r["errors"])}
    waiting = [number for number in range(NUMBERS) if number not in known][: args.limit]
    for number in waiting:
        row = known[number] = {**tried(number), "digest": digest}
        told = f"{number} {row['family']}, {row['variant']}: {row['state']}, {row['seconds']} s"
        print("; ".join([told, *cast("list[str]", row["errors"])]), file=sys.stderr, flush=True)
        file.write(known.values())
    return _report([known[number] for number in sorted(known)])


def _report(rows: Sequence[Mapping[str, Any]]) -> int:
    refused: Counter[str] = Counter()
    for row in rows:
        refused.update(row["refused"])
        for error in row["errors"]:
            shown = f"{row['number']} {row['family']}, {row['variant']} {row['attributes']}"
            print(f"{shown}: {error}")
    right = sum(row["state"] == RIGHT for row in rows)
    codes = ", ".join(f"{count} {code}" for code, count in sorted(refused.items()))
    print(f"applications: {right} right of {len(rows)}, {NUMBERS - len(rows)} left")
    print(f"configurations refused before them: {codes or 'none'}")
    return 0 if right == NUMBERS else 1


if __name__ == "__main__":
    sys.exit(main())
