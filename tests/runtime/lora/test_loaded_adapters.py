"""Adapters in generate and in the server: each prompt is that of the merged checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import torch
from starlette.testclient import TestClient
from transformers import LlamaConfig, LlamaForCausalLM

from graphgen.config.compile_config import CompileConfig
from graphgen.runtime.engine import Engine, EngineOptions, open_engine
from graphgen.runtime.progress import Silent
from graphgen.runtime.server.application import make_application
from graphgen.runtime.server.http_server import make_service
from graphgen.runtime.server.server_options import ServerOptions
from tests.graphgen.cli.conftest import error, facts
from tests.oracles.families import save_tokenizer
from tests.oracles.lora_adapters import merged, random_factors, save_adapter
from tests.runtime.server.served import URL

# Of the adapters: their projections and ranks.
ADAPTERS = {"a": (["q_proj", "o_proj", "down_proj"], 4), "b": (["k_proj", "up_proj"], 2)}
PROMPT = "the lighthouse"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, two adapters, and the model with each of them merged."""
    made = tmp_path_factory.mktemp("adapters")
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = LlamaConfig(
        **sizes, vocab_size=512, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=64, initializer_range=0.2,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    model.save_pretrained(made / "base")
    save_tokenizer(made / "base")
    for seed, (name, (targets, rank)) in enumerate(ADAPTERS.items(), 1):
        factors = random_factors(model, targets, rank, seed)
        save_adapter(made / name, model, factors, r=rank, lora_alpha=2 * rank)
        merged(model, factors, 2.0).save_pretrained(made / f"{name}-merged")
        save_tokenizer(made / f"{name}-merged")
    return made


@pytest.fixture(scope="module")
def engine(folder: Path) -> Engine:
    """The model with one slot, which adapters take in turn."""
    options = EngineOptions(
        CompileConfig.of(max_loras=1, max_lora_rank=4), batch=2, max_len=32, bucketing=False
    )
    return open_engine(str(folder / "base"), options, lambda _: [[0]], 1, Silent())[0]


def answers(folder: Path, name: str, *options: object) -> list[list[int]]:
    told = facts("generate", folder / name, "--max-new-tokens", 6, "--ignore-eos", *options)
    return [each["tokens"] for each in told["outputs"]]


@pytest.mark.slow
def test_generate_answers_each_prompt_with_its_adapter(folder: Path):
    wanted = [
        answers(folder, name, "--prompt", PROMPT)[0] for name in ("a-merged", "base", "b-merged")
    ]
    assert len({tuple(tokens) for tokens in wanted}) == 3
    loras = ["--lora", f"a={folder / 'a'}", "--lora", f"b={folder / 'b'}"]
    ids = ["--adapter-id", "a", "--adapter-id", "none", "--adapter-id", "b"]
    prompts = ["--prompt", PROMPT] * 3
    assert answers(folder, "base", *prompts, *loras, *ids) == wanted
    one = answers(folder, "base", "--prompt", PROMPT, *loras[2:], "--adapter-id", "b")
    assert one == [wanted[2]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lora", "a={a}"], "--lora has no effect without --adapter-id"),
        (["--adapter-id", "a"], "--adapter-id a does not name a --lora"),
        (["--lora", "a", "--adapter-id", "a"], "--lora a is not NAME=PATH"),
        (["--lora", "a={a}", "--lora", "a={b}", "--adapter-id", "a"], "the name 'a' twice"),
        (
            ["--lora", "a={a}", "--adapter-id", "a", "--adapter-id", "none"],
            "2 times --adapter-id for 1 prompts",
        ),
        (["--lora", "a={base}", "--adapter-id", "a"], "none of adapter_model.safetensors"),
    ],
)
def test_what_generate_refuses(folder: Path, options: list[str], message: str):
    paths = {name: folder / name for name in ("a", "b", "base")}
    given = [option.format(**paths) for option in options]
    assert message in error("generate", folder / "base", "--prompt", PROMPT, *given)


def test_an_adapter_of_another_model_is_refused_by_tensor_name(folder: Path, tmp_path: Path):
    config = json.loads((folder / "base" / "config.json").read_text())
    config |= {"hidden_size": 16, "head_dim": 4}
    other = LlamaForCausalLM(LlamaConfig(**config))
    save_adapter(tmp_path / "x", other, random_factors(other, ["q_proj"]))
    shown = error(
        "generate", folder / "base", "--prompt", PROMPT, "--lora", f"x={tmp_path / 'x'}",
        "--adapter-id", "x",
    )  # fmt: skip
    assert "error[GG0602]: the adapter does not fit these programs" in shown
    assert "q_proj.lora_A.weight' [4, 16]" in shown


def test_the_server_names_adapters_as_models(folder: Path, engine: Engine):
    """Loaded at the start and while it answers; unloaded ones are not there any more."""
    options: Any = {"adapters": {"a": folder / "a"}, "lora_dir": folder}
    server = ServerOptions("base", dynamic_adapters=True, **options)
    wanted = {
        name: answers(folder, model, "--prompt", PROMPT)[0]
        for name, model in (("a", "a-merged"), ("base", "base"), ("b", "b-merged"))
    }
    with TestClient(make_application(make_service(engine, server)), base_url=URL) as client:

        def ask(model: str) -> Any:
            body = {"model": model, "prompt": PROMPT, "max_tokens": 6, "temperature": 0}
            return client.post("/v1/completions", json={**body, "ignore_eos": True})

        def check(model: str) -> None:
            answer = ask(model).json()
            assert answer["model"] == model
            text = engine.tokenizer.decode(wanted[model])
            assert answer["choices"][0]["text"] == text

        for model in ("a", "base"):
            check(model)
        unknown = ask("b")
        assert unknown.status_code == 404
        assert "'b' does not exist; this is 'base' with the adapters a" in unknown.text
        load = {"lora_name": "b", "lora_path": str(folder / "b")}
        assert client.post("/v1/load_lora_adapter", json=load).status_code == 200
        for model in ("b", "a", "base", "b"):
            check(model)
        listed = client.get("/v1/models").json()["data"]
        assert [(row["id"], row.get("parent")) for row in listed] == [
            ("base", None), ("a", "base"), ("b", "base"),
        ]  # fmt: skip
        document = client.get("/openapi.json").json()
        bodies = document["components"]["schemas"]
        assert bodies["CompletionRequest"]["properties"]["model"] == {"enum": ["base", "a", "b"]}
        assert jsonschema_rs.validator_for(bodies["LoadAdapterRequest"]).is_valid(load)
        assert {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"} <= document["paths"].keys()
        again = client.post("/v1/load_lora_adapter", json=load)
        assert (again.status_code, "already" in again.text) == (400, True)
        refusals = {
            refused(client, path) for path in ("nowhere", "/etc/passwd", "../x", ".", "b\0")
        }
        assert {code for _, code, _ in refusals} == {"adapter_not_found"}
        # What is elsewhere is told like what is nowhere.
        assert len(refusals) == 1
        for name, path in (("n" * 257, "b"), ("n", "b" * 1025)):
            long = client.post("/v1/load_lora_adapter", json={"lora_name": name, "lora_path": path})
            assert long.json()["error"]["code"] == "string_above_max_length"
        assert client.post("/v1/unload_lora_adapter", json={"lora_name": "a"}).status_code == 200
        assert ask("a").status_code == 404
        missing = client.post("/v1/unload_lora_adapter", json={"lora_name": "a"})
        assert missing.status_code == 404
        check("b")


def refused(client: TestClient, path: str) -> tuple[int, str, str]:
    body = {"lora_name": "c", "lora_path": path}
    response = client.post("/v1/load_lora_adapter", json=body)
    error = response.json()["error"]
    return response.status_code, error["code"], error["message"]


def test_a_link_out_of_the_folder_of_adapters_is_not_followed(
    folder: Path, engine: Engine, tmp_path: Path
):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    shutil.copytree(folder / "b", outside)
    (root / "link").symlink_to(outside)
    shutil.copytree(folder / "b", root / "real")
    (root / "inside").symlink_to(root / "real")
    options: Any = {"adapters": {"a": folder / "a"}, "dynamic_adapters": True}
    service = make_service(engine, ServerOptions("base", lora_dir=root, **options))
    with TestClient(make_application(service), base_url=URL) as client:
        assert (
            refused(client, "link") == refused(client, "missing") == refused(client, str(outside))
        )
        body = {"lora_name": "c", "lora_path": "inside"}
        assert client.post("/v1/load_lora_adapter", json=body).status_code == 200
    # Without a folder of adapters nothing is loaded.
    service = make_service(engine, ServerOptions("base", **options))
    with TestClient(make_application(service), base_url=URL) as client:
        status, code, message = refused(client, str(folder / "b"))
        assert (status, code) == (403, "unsupported_operation")
        assert "--lora-dir" in message


def test_a_server_with_fixed_adapters_refuses_changes(engine: Engine):
    service = make_service(engine, ServerOptions("base"))
    with TestClient(make_application(service), base_url=URL) as client:
        for path in ("load", "unload"):
            made = client.post(f"/v1/{path}_lora_adapter", json={"lora_name": "a"})
            assert made.status_code == 403
        document = client.get("/openapi.json").json()
        assert not any("lora" in path for path in document["paths"])
        assert document["components"]["schemas"]["ChatRequest"]["properties"]["model"] == {
            "const": "base"
        }
