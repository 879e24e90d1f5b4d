"""``graphgen.load`` and ``graphgen.compile``: the text of the command line, from Python."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from pathlib import Path

import numpy as np
import pytest

import graphgen as gg
from graphgen.errors import GraphgenError
from graphgen.exec.bind import isolate
from graphgen.lowering.certificate import check_certificate
from graphgen.runtime.language_model import Answer, LanguageModel
from graphgen.runtime.sampling.processors import log_softmax
from tests.graphgen.cli.conftest import done
from tests.oracles.small_gguf import write_small_model

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{{ hint }}|{% endfor %}a:"
PROMPT, OTHER = "don't panic", "12 tokens"
SEQUENCE = 128


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    made = tmp_path_factory.mktemp("api") / "small.gguf"
    shape = {"tokenizer.chat_template": TEMPLATE, "llama.context_length": SEQUENCE}
    write_small_model(made, shape)
    return str(made)


@pytest.fixture(scope="module")
def model(path: str) -> Generator[LanguageModel]:
    with gg.load(path, batch=3, progress=False) as opened:
        yield opened


def by_command(path: str, *arguments: str) -> list[Mapping[str, object]]:
    ran = done("generate", path, "--max-new-tokens", "12", "--json", *arguments)
    return json.loads(ran.stdout)["outputs"]


def told(answer: Answer) -> tuple[str, list[int], str]:
    return answer.text, answer.tokens, answer.finish_reason


def test_texts_are_those_of_generate(model: LanguageModel, path: str):
    wanted = [
        (row["text"], row["tokens"], row["finish_reason"])
        for row in by_command(path, "--prompt", PROMPT, "--prompt", OTHER)
    ]
    both = model.generate([PROMPT, OTHER], max_new_tokens=12)
    assert [told(answer) for answer in both] == wanted
    alone = model.generate(PROMPT, max_new_tokens=12)
    assert (told(alone), str(alone)) == (wanted[0], wanted[0][0])
    ids = model.tokenizer.encode(PROMPT)
    assert alone.prompt_tokens == ids
    assert told(model.generate(ids, max_new_tokens=12)) == wanted[0]
    assert told(model.generate(np.array([ids]), max_new_tokens=12)[0]) == wanted[0]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_a_drawn_text_is_that_of_generate(model: LanguageModel, path: str):
    draws = ("--do-sample", "--top-k", "20", "--temperature", "1.5", "--seed", "7")
    (wanted,) = by_command(path, "--prompt", PROMPT, *draws)
    found = model.generate(PROMPT, max_new_tokens=12, temperature=1.5, top_k=20, seed=7)
    assert told(found) == (wanted["text"], wanted["tokens"], wanted["finish_reason"])
    one, two = model.generate(
        [PROMPT] * 2, max_new_tokens=12, temperature=1.5, top_k=20, seed=[7, 8]
    )
    assert one.text == found.text != two.text


def test_a_chat_is_that_of_generate(model: LanguageModel, path: str):
    (wanted,) = by_command(path, "--chat", "--prompt", PROMPT, "--template-arg", "hint=!")
    messages = [{"role": "user", "content": PROMPT}]
    found = model.chat(messages, template_args={"hint": "!"}, max_new_tokens=12)
    assert found.prompt_tokens == wanted["prompt_tokens"]
    assert told(found) == (wanted["text"], wanted["tokens"], wanted["finish_reason"])


def test_streams_of_one_model_go_on_beside_each_other(model: LanguageModel):
    whole = model.generate([PROMPT, OTHER], max_new_tokens=12)
    streams = [model.generate(text, max_new_tokens=12, stream=True) for text in (PROMPT, OTHER)]
    pieces: list[list[str]] = [[], []]
    for _ in range(20):
        for place, stream in enumerate(streams):
            pieces[place] += [piece for piece in [next(stream, "")] if piece]
    assert ["".join(row) for row in pieces] == [answer.text for answer in whole]
    assert all(len(row) > 1 for row in pieces)
    assert [stream.answer for stream in streams] == whole


def test_a_stream_that_is_left_frees_its_row(model: LanguageModel):
    streams = [model.generate(PROMPT, max_new_tokens=90, stream=True) for _ in range(3)]
    assert all(next(stream) for stream in streams)
    streams[0].close()
    streams.clear()
    assert model.generate(OTHER, max_new_tokens=2).text
    assert model.engine is not None
    assert model._queue._events == {}
    assert not model._queue._engine.busy


def test_more_prompts_than_rows_and_several_threads(model: LanguageModel):
    prompts = [f"{PROMPT} {number}" for number in range(8)]
    alone = [model.generate(prompt, max_new_tokens=6).text for prompt in prompts]
    assert [answer.text for answer in model.generate(prompts, max_new_tokens=6)] == alone
    found: dict[str, str] = {}

    def answer(prompt: str) -> None:
        found[prompt] = model.generate(prompt, max_new_tokens=6).text

    threads = [threading.Thread(target=answer, args=(prompt,)) for prompt in prompts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[prompt] for prompt in prompts] == alone


def test_stops_bias_and_schema(model: LanguageModel):
    whole = model.generate(PROMPT, max_new_tokens=12)
    cut = model.generate(PROMPT, max_new_tokens=12, stop=whole.text[4:7])
    assert (cut.text, cut.finish_reason) == (
        whole.text[: whole.text.index(whole.text[4:7])],
        "stop",
    )
    third = whole.tokens[2]
    ended = model.generate(PROMPT, max_new_tokens=12, stop_token_ids=[third])
    assert ended.finish_reason == "eos"
    assert ended.tokens == whole.tokens[: whole.tokens.index(third) + 1]
    biased = model.generate(PROMPT, max_new_tokens=1, logit_bias={whole.tokens[0]: -100})
    assert biased.tokens != whole.tokens[:1]
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form = {**schema, "additionalProperties": False}
    assert list(json.loads(str(model.generate(PROMPT, schema=form)))) == ["ok"]


def test_logits_are_those_that_tokens_are_chosen_from(model: LanguageModel):
    answer = model.generate(
        PROMPT, max_new_tokens=5, ignore_eos=True, logprobs=2, prompt_logprobs=0
    )
    ids = [*answer.prompt_tokens, *answer.tokens]
    logits = model.logits(ids)
    assert logits.shape[0] == len(ids)
    start = len(answer.prompt_tokens)
    assert logits[start - 1 : -1].argmax(-1).tolist() == answer.tokens
    assert answer.logprobs is not None
    assert answer.prompt_logprobs is not None
    rows = [*answer.prompt_logprobs, *answer.logprobs]
    for row, logit, token in zip(rows, logits, ids[1:], strict=False):
        assert row.chosen == pytest.approx(log_softmax(logit)[token], abs=1e-4)
    assert answer.logprobs[0].top[0][0] == answer.tokens[0]
    # A longer text has a larger program; its weights are those of the model.
    again = model.logits([*ids, *ids * 2])
    assert model._every_token is not None
    assert model.engine is not None
    name = next(iter(model.engine.session.weights))
    assert model._every_token.weights[name] is model.engine.session.weights[name]
    np.testing.assert_allclose(again[: len(ids)], logits, atol=1e-4)


def test_a_perplexity_is_that_of_the_command(model: LanguageModel, path: str, tmp_path: Path):
    text = "The llama said it's fine: 3.14159 and 12 tokens. " * 6
    (tmp_path / "text.txt").write_text(text)
    ran = done("perplexity", path, "--text", tmp_path / "text.txt", "--window", "40", "--json")
    wanted = json.loads(ran.stdout)["perplexity"]
    assert model.perplexity(text, window=40) == pytest.approx(wanted, rel=1e-4)


WRONG = [
    (lambda m: m.generate(""), "GG0702", "the prompt is empty"),
    (lambda m: m.generate([]), "GG0702", "there is no prompt"),
    (lambda m: m.generate([99999]), "GG0706", "token 99999"),
    (lambda m: m.generate("a" * 500), "GG0701", "max_len="),
    (lambda m: m.generate("a", topk=3), "GG0705", "did you mean top_k"),
    (lambda m: m.generate("a", top_k=3), "GG0705", "no effect at temperature 0"),
    (lambda m: m.generate("a", temperature=-1), "GG0705", "temperature"),
    (lambda m: m.generate("a", max_new_tokens=0), "GG0705", "max_new_tokens"),
    (lambda m: m.generate("a", seed=[1, 2]), "GG0705", "2 seeds for 1 prompt"),
    (lambda m: m.generate("a", schema={"type": "nothing"}), "GG0705", "Invalid schema"),
    (lambda m: m.generate(["a", "b"], stream=True), "GG0705", "for one prompt"),
    (
        lambda m: m.chat([{"role": "user", "content": "a"}], template_args={"messages": 1}),
        "GG0705",
        "messages",
    ),
    (lambda m: m.logits(""), "GG0702", "empty"),
    (lambda m: m.perplexity("a", window=1), "GG0705", "window"),
    (lambda m: gg.load(m.name, tp=0), "GG0705", "tp is 0"),
    (lambda m: gg.load(m.name, dtype="f64"), "GG0705", "expected f32"),
    (lambda m: gg.load(m.name, kv_cache_qaunt=True), "GG0705", "did you mean kv_cache_quant"),
    (lambda m: gg.load(m.name, kv_cache_dtype="x"), "GG0705", "expected f8e4m3"),
    (lambda m: gg.load("smolm2"), "GG0601", ""),
]


@pytest.mark.parametrize(("call", "code", "words"), WRONG, ids=range(len(WRONG)))
def test_a_mistake_has_a_code(model: LanguageModel, call, code: str, words: str):
    with pytest.raises(GraphgenError) as caught:
        call(model)
    assert caught.value.code == code
    assert words in str(caught.value)
    assert model.generate(OTHER, max_new_tokens=1).tokens


def test_a_closed_model_says_so(path: str):
    opened = gg.load(path, batch=1, progress=False)
    stream = opened.generate(PROMPT, stream=True)
    next(stream)
    opened.close()
    opened.close()
    assert repr(opened).endswith("closed>")
    for call in (lambda: opened.generate("a"), lambda: opened.logits("a")):
        with pytest.raises(GraphgenError, match="is closed"):
            call()
    with pytest.raises(GraphgenError) as caught:
        next(stream)
    assert caught.value.code == "GG0711"


def test_an_interrupt_ends_open_answers_and_leaves_a_model_that_works(path: str):
    with gg.load(path, batch=2, progress=False) as opened:
        whole = opened.generate(PROMPT, max_new_tokens=9)
        stream = opened.generate(OTHER, max_new_tokens=9, stream=True)
        next(stream)
        assert opened.engine is not None
        session = opened.engine.session
        start = session.start

        def interrupted(*_: object, **__: object) -> object:
            raise KeyboardInterrupt

        session.start = interrupted  # pyright: ignore[reportAttributeAccessIssue]
        with pytest.raises(KeyboardInterrupt):
            opened.generate(PROMPT, max_new_tokens=9)
        session.start = start
        with pytest.raises(GraphgenError, match="launch failed"):
            list(stream)
        assert opened.generate(PROMPT, max_new_tokens=9) == whole


def test_an_artifact_is_written_once_and_opened_again(path: str, tmp_path: Path):
    folder = tmp_path / "small.art"
    with gg.load(path, batch=2, artifact=folder, progress=False) as opened:
        whole = opened.generate(PROMPT, max_new_tokens=5)
    for again in (gg.load(path, batch=2, artifact=folder, progress=False), gg.load(folder)):
        with again:
            assert again.generate(PROMPT, max_new_tokens=5) == whole
    with gg.load(folder, progress=False) as opened, pytest.raises(GraphgenError, match="artifact"):
        opened.logits(PROMPT)


PROGRAM = """
import sys, graphgen
path = sys.argv[1]
one = graphgen.load(path, batch=1, progress=False)
first = one.generate("don't panic", max_new_tokens=8).text
with graphgen.load(path, tp=2, batch=1, progress=False) as two:
    assert two.generate("don't panic", max_new_tokens=8).text == first
assert one.generate("don't panic", max_new_tokens=8).text == first
one.close()
try:
    graphgen.load(path, tp=16, progress=False)
except graphgen.GraphgenError as error:
    print(error)
"""


def test_models_of_other_ranks_in_one_process(path: str, monkeypatch: pytest.MonkeyPatch):
    # In a process of its own: JAX has started in this one, with the devices of the tests.
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "16 CPU devices are needed, and JAX has started with 8" in ran.stdout
    assert "JAX_NUM_CPU_DEVICES=16" in ran.stdout


def mlp() -> gg.Module:
    f32, module = gg.dtype("f32"), gg.Module("mlp")
    with gg.Builder(module.add(gg.Function("main", phase="main")), module) as b:
        x = b.input("x", f32, (gg.symbol("N"), 2))
        hidden = b.silu(b.dot(x, b.weight("up", f32, (3, 2))))
        b.output("y", x + b.dot(hidden, b.weight("down", f32, (2, 3))))
    return module


@pytest.mark.parametrize(("target", "ending"), [("cpu", ".mlir"), ("trn2", ".pb")])
def test_a_module_is_compiled_and_proved(target: str, ending: str, tmp_path: Path):
    module = mlp()
    before = str(module)
    made = gg.compile(module, target=target, dims={"N": 4}, prove=True)
    assert str(module) == before == str(made.source)
    assert list(made.programs) == ["main.n4"]
    assert made.journal.applications
    assert made.passes[0].name == "canonicalize"
    assert made.proof is not None
    assert made.proof.complete
    files = made.write(tmp_path)
    assert sorted(file.name for file in files) == sorted(
        [f"main.n4{ending}", "lowered.gg", "source.gg", "certificate.json"]
    )
    assert check_certificate(tmp_path / "certificate.json").complete
    read = gg.compile(str(tmp_path / "lowered.gg"), target=target)
    assert read.programs == made.programs


def test_a_model_is_compiled_for_ranks():
    made = gg.compile("smollm2-135m", tp=3, max_len=128, outline=True)
    assert (made.target, made.module.ranks) == ("trn2", 3)
    assert set(made.programs) == {"prefill.b1.s128", "decode.b1.c128"}
    assert made.proof is None
    assert "trn2" in repr(made)
    assert isolate(made.module, made.module.function("decode.b1.c128")).programs()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"tp": 2}, "tp is for models"),
        ({"dims": {"T": 5}}, "no symbol 'T'"),
        ({"dims": {"N": 5}, "pipeline": "default"}, "both say the sizes"),
        ({"target": "trn9"}, "unknown target 'trn9'"),
    ],
    ids=["ranks", "symbol", "twice", "target"],
)
def test_a_wrong_compilation_has_a_code(arguments: dict[str, object], words: str):
    with pytest.raises(GraphgenError, match=words):
        gg.compile(mlp(), **arguments)  # pyright: ignore[reportArgumentType]
    for name, value in {"dims": {"N": 2}, "pipeline": "cse", "dtype": "f64", "bacth": 2}.items():
        with pytest.raises(GraphgenError):
            gg.compile("smollm2-135m", **{name: value})  # pyright: ignore[reportArgumentType]


def test_a_notebook_gets_a_moving_line(monkeypatch: pytest.MonkeyPatch):
    from types import ModuleType

    from graphgen.runtime.progress import TerminalProgress

    assert not TerminalProgress().terminal
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert TerminalProgress().terminal


def test_the_stub_has_the_names_of_the_package():
    stub = (Path(gg.__file__).parent / "__init__.pyi").read_text()
    named = {line.split()[-1] for line in stub.splitlines() if " as " in line}
    assert named == {*gg.__all__, "compile"}
    assert "compile" not in gg.__all__
    assert "compile" in dir(gg)
