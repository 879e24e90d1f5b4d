"""``graphgen generate``: the sizes and the strategy that programs are compiled for."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from graphgen.cli.model_flags import read_buckets
from graphgen.errors import GraphgenError
from graphgen.runtime.artifact import open_artifact
from graphgen.runtime.session.pending_step import PendingStep
from graphgen.runtime.session.session import Session
from tests.graphgen.cli.conftest import error, facts
from tests.oracles.small_gguf import write_small_model

ASK = ("--prompt", "the cat", "--max-new-tokens", 2)


@cache
def model() -> Path:
    path = Path(mkdtemp()) / "small.gguf"
    write_small_model(path)
    return path


def test_ladders_of_prompts_and_of_sequences(tmp_path: Path):
    kept = tmp_path / "kept"
    sizes = ("--seq-len", 48, "--max-context-length", 24)
    buckets = ("--context-encoding-buckets", "8,24", "--token-generation-buckets", "32,48")
    first = facts("generate", model(), *ASK, "--artifact", kept, *sizes, *buckets)
    settings = open_artifact(kept).model.settings
    assert (settings.context, settings.tokens, settings.max_len) == ((8, 24), (32, 48), 48)
    # The same answers with one program a phase, with the folder alone, and with options it has.
    ones = facts("generate", model(), *ASK, "--seq-len", 48, "--no-bucketing")
    for again in (
        ones,
        facts("generate", kept, *ASK),
        facts("generate", model(), *ASK, "--artifact", kept, *sizes),
        facts("generate", model(), *ASK, "--artifact", kept, *buckets),
    ):
        assert answers(again) == answers(first)
    refused = error("generate", model(), *ASK, "--artifact", kept, *sizes[:2], "--no-bucketing")
    assert "GG0703" in refused
    assert "was compiled for context (8, 24), requested (48,); tokens (32, 48)" in one_line(refused)


def answers(found: dict[str, Any]) -> list[str]:
    return [row["text"] for row in found["outputs"]]


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--prompt", "the cat " * 9, "--seq-len", 64, "--max-context-length", 8),
            "tokens is longer than the largest bucket, 8 help: compile for longer prompts, e.g. "
            "--max-context-length 64,",
        ),
        (
            ("--prompt", "x", "--seq-len", 8, "--max-context-length", 9),
            "prompts of up to 9 tokens do not fit in sequences of up to 8",
        ),
        (
            ("--prompt", "x", "--context-encoding-buckets", "8 16"),
            "--context-encoding-buckets 8 16 is not a list of sizes",
        ),
        (
            ("--prompt", "x", "--token-generation-buckets", "8", "--no-bucketing"),
            "--token-generation-buckets 8 and --no-bucketing exclude each other",
        ),
        (
            ("--prompt", "x", "--group-query-attention", "CONVERT_TO_MHA"),
            "--group-query-attention CONVERT_TO_MHA has no effect on one rank",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options: tuple[object, ...], message: str):
    assert message in one_line(error("generate", model(), *options))


def test_a_strategy_for_heads_is_part_of_the_artifact(tmp_path: Path):
    kept = tmp_path / "kept"
    ranks = ("--tp", 2, "--max-len", 16)
    given = ("--group-query-attention", "CONVERT_TO_MHA")
    first = facts("generate", model(), *ASK, "--artifact", kept, *ranks, *given)
    assert open_artifact(kept).model.settings.heads == "CONVERT_TO_MHA"
    assert answers(facts("generate", model(), *ASK, "--artifact", kept, *ranks)) == answers(first)
    other = ("--group-query-attention", "REPLICATE_TO_TP_DEGREE")
    refused = error("generate", model(), *ASK, "--artifact", kept, *ranks, *other)
    assert "heads CONVERT_TO_MHA, requested REPLICATE_TO_TP_DEGREE" in one_line(refused)


def test_async_mode_gives_the_same_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kept, started = tmp_path / "kept", list[PendingStep]()

    def start(session: Session, *args: Any, **more: Any) -> PendingStep:
        started.append(plain(session, *args, **more))
        return started[-1]

    plain = Session.start
    monkeypatch.setattr(Session, "start", start)
    ask = ("--prompt", "the cat", "--prompt", "It's 2024", "--max-new-tokens", 9, "--ignore-eos")
    off = facts("generate", model(), *ask, "--artifact", kept, "--on-device-sampling")
    assert not started
    on = facts("generate", kept, *ask, "--async-mode")
    assert len(started) == 8
    assert [row["tokens"] for row in on["outputs"]] == [row["tokens"] for row in off["outputs"]]
    refused = one_line(error("generate", model(), *ASK, "--async-mode"))
    assert "async_mode needs programs that choose tokens" in refused
    assert "compile with --on-device-sampling" in refused


def test_a_list_of_sizes():
    assert read_buckets("--x", None) == ()
    assert read_buckets("--x", "128, 512") == (128, 512)
    for text in ("", "1,,2", "0", "-1", "1.5", "a"):
        with pytest.raises(GraphgenError, match="is not a list of sizes"):
            read_buckets("--x", text)
