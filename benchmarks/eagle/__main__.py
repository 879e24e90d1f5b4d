"""Train a draft of EAGLE for SmolLM2 on text that it wrote itself, and judge it on other prompts.

    python -m benchmarks.eagle --folder eagle-smollm2

The text is kept in the folder: with ``--again`` a second run trains on it. The draft in the folder
is one for ``graphgen generate smollm2 --draft-model-path``.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import torch

from benchmarks.eagle.collect import Answer, collect, load, open_target, save
from benchmarks.eagle.judge import Judged, judge
from benchmarks.eagle.prompts import kept_prompts, training_prompts
from benchmarks.eagle.train import Recipe, frequent_words, network_of, train
from graphgen.models.eagle import target_layers
from graphgen.runtime.engine import locate_checkpoint
from graphgen.runtime.speculation.eagle_checkpoint import layers_of

MODEL, LEAST = "smollm2", 1.5


def main() -> int:
    """Collect, train, judge; 1 for fewer tokens a step than a useful draft gives."""
    given = _flags().parse_args()
    torch.set_num_threads(given.threads)
    recipe = Recipe(**{item.name: getattr(given, item.name) for item in fields(Recipe)})
    given.folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    target = locate_checkpoint(MODEL)
    layers = target_layers(1, layers_of(target))
    answers = _answers(layers, given)
    minutes = {"text": _minutes(start)}
    size = sum(len(answer.tokens) - answer.prompt for answer in answers)
    print(f"{len(answers)} answers of {size} tokens: {minutes['text']} minutes", flush=True)
    start = time.perf_counter()
    network = network_of(target, recipe.seed)
    words = frequent_words(answers, recipe.words, len(network.embedding))
    train(network, answers, words, recipe, lambda line: print(line, flush=True))
    draft = given.folder / "draft"
    network.save(draft, target.config, words)
    minutes["training"] = _minutes(start)
    print(f"seed {recipe.seed}: {minutes['training']} minutes of training", flush=True)
    groups, size = kept_prompts(), given.judged_tokens
    rows = max(map(len, groups.values()))
    engine = open_target(MODEL, given.length, layers, size, rows)
    judged = judge(engine, MODEL, draft, groups, given.length, size)
    _report(judged, minutes, recipe, given.json)
    return 0 if judged[-1].same and judged[-1].tokens_per_step > LEAST else 1


def _flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for the text and the draft")
    parser.add_argument("--again", action="store_true", help="train on the text in the folder")
    parser.add_argument("--length", type=int, default=4, help="tokens that a step verifies")
    parser.add_argument("--prompts", type=int, default=160, help="prompts to train on")
    parser.add_argument("--new-tokens", type=int, default=96, help="of each answer")
    parser.add_argument("--judged-tokens", type=int, default=48, help="of each judged answer")
    parser.add_argument("--threads", type=int, default=2, help="of PyTorch")
    parser.add_argument("--json", action="store_true", help="a row of JSON at the end")
    for item in fields(Recipe):
        default = item.default
        parser.add_argument(f"--{item.name}", type=type(default), default=default)
    return parser


def _answers(layers: Sequence[int], given: argparse.Namespace) -> list[Answer]:
    file = given.folder / "text.npz"
    if given.again and file.exists():
        return load(file)
    prompts = training_prompts()
    random.Random(given.seed).shuffle(prompts)
    engine = open_target(MODEL, given.length, layers, given.new_tokens)
    answers = collect(engine, prompts[: given.prompts], given.new_tokens)
    save(file, answers)
    return answers


def _minutes(start: float) -> float:
    return round((time.perf_counter() - start) / 60, 1)


def _report(judged: list[Judged], minutes: dict[str, float], recipe: Recipe, as_json: bool) -> None:
    for each in judged:
        places = " ".join(f"{share:.2f}" for share in each.acceptance)
        same = "" if each.same else "  OTHER TOKENS THAN PLAIN DECODING"
        print(f"{each.group:10} {each.tokens_per_step:.2f} tokens a step  {places}{same}")
    if as_json:
        rows = [asdict(each) for each in judged]
        print(json.dumps({"minutes": minutes, "recipe": asdict(recipe), "judged": rows}))


if __name__ == "__main__":
    raise SystemExit(main())
