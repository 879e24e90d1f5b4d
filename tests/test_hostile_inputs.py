"""Files and arguments of strangers, one test a kind: each is refused, by counts and not by time.

The names of the tests are the kinds. Links point into the test's own folder.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import struct
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import typer
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers
from typer.testing import CliRunner

from graphgen.analysis.calls import require_bounded_calls
from graphgen.cli import console
from graphgen.cli.main import app
from graphgen.config.compile_config import CompileConfig
from graphgen.errors import GraphgenError, printable
from graphgen.exec.inputs import read_arrays
from graphgen.foreign_calls import ForeignCalls
from graphgen.ir import parse_dim
from graphgen.json_value import JsonError, parse_json
from graphgen.limits import LAYERS
from graphgen.lowering.mlir.generic_form import generic_text
from graphgen.lowering.neuron.neff import read_neff
from graphgen.lowering.open import open_module
from graphgen.models.config_reader import ConfigReader
from graphgen.name_pattern import name_pattern
from graphgen.numbers import finite, is_finite, is_whole, whole_number
from graphgen.ops.custom_calls import decode
from graphgen.passes.core import parse_pipeline
from graphgen.read_file import is_file, is_folder, is_there, read_file, read_json
from graphgen.report.table import Table, render
from graphgen.runtime.aws_config.value_kinds import COUNTS
from graphgen.runtime.checkpoint.safetensors_file import SafetensorsFile
from graphgen.runtime.checkpoint.torch_file import read_legacy
from graphgen.runtime.checkpoint.validate_tensors import check_sizes
from graphgen.runtime.lora.adapter_file import read_adapter_config
from graphgen.runtime.tokenizer import chat_template
from graphgen.runtime.tokenizer.chat_template import render_chat
from graphgen.runtime.tokenizer.normalizer_growth import require_bounded
from graphgen.text import parse
from graphgen.worker_process import WorkerProcess

ROOT = Path(__file__).parent.parent
PACKAGES = ("graphgen", "lowering", "passes", "runtime")
IR = """module @m level=logical {
}
func @f {
  arg %x : f32[2]
  %y = exponential(%x) : f32[2]  # a.py:3 x
  return y = %y
}
"""
STABLEHLO = """module @m {
  func.func public @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = stablehlo.exponential %arg0 : tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
"""
HLO = """HloModule m, entry_computation_layout={(f32[2]{0})->f32[2]{0}}

ENTRY main {
  p = f32[2]{0} parameter(0)
  ROOT r = f32[2]{0} exponential(p)
}
"""
LONG = "1" * 5000


def sources() -> list[Path]:
    """All files of the packages; those behind links once."""
    return [path for name in PACKAGES for path in sorted((ROOT / name).glob("**/*.py"))]


def refused(call: Callable[[], object]) -> GraphgenError:
    """The error of ours that a call raises."""
    with pytest.raises(GraphgenError) as caught:
        call()
    return caught.value


def refused_module(folder: Path, name: str, text: str) -> GraphgenError:
    """The error of a program's text, which names the file."""
    path = folder / name
    path.write_text(text)
    error = refused(lambda: open_module(path))
    assert name in error.where, error
    return error


# kind 6


@pytest.mark.parametrize("pattern", [r"(\w+\.?)+!", "(a|aa)+$", "((a*)*)*b", "(.*)*x"])
def test_patterns_that_backtrack(pattern: str):
    config = read_adapter_config({"r": 4, "target_modules": pattern, "rank_pattern": {}}, "a.json")
    assert not config.names("model.layers.0.self_attn." + "a" * 4000 + "?")
    ranks = read_adapter_config({"r": 4, "rank_pattern": {pattern: 2}}, "a.json")
    assert ranks.rank_of("model." + "a.a" * 1000 + "?") == 4


@pytest.mark.parametrize(
    "pattern", ["((a{1,1000}){1,1000}){1,1000}", "(", r"(a)\1", "(?=a)(b*)*", "\ud800", "a" * 70000]
)
def test_patterns_that_are_refused(pattern: str):
    for fields in ({"target_modules": pattern}, {"rank_pattern": {pattern: 1}}):
        error = refused(lambda fields=fields: read_adapter_config({"r": 4, **fields}, "a.json"))
        assert error.code == "GG0503"
    assert refused(lambda: read_adapter_config({"layers_pattern": "("}, "a")).code == "GG0503"


def test_patterns_of_published_adapters_are_read():
    swift = r"^(language_model(?=\.).*\.(o_proj|gate_proj))$"
    assert name_pattern(swift).fullmatch("language_model.layers.0.o_proj")
    assert not name_pattern(swift).fullmatch("language_model_2.o_proj")
    unsloth = r"(?:.*?(?:language|text).*?(?:self_attn|mlp).*?(?:q_proj|k_proj).*?)"
    assert name_pattern(unsloth).fullmatch("model.language_model.layers.3.self_attn.q_proj")
    layers = {"r": 1, "target_modules": ["q_proj"], "layers_to_transform": [1]}
    config = read_adapter_config(layers, "a.json")
    assert [config.names(f"model.layers.{n}.self_attn.q_proj") for n in (1, 2)] == [True, False]


# kind 7


def calls(depth: int) -> str:
    """A module of functions of which each calls the next one twice."""
    text = IR.replace("@f {", "@f0 {")
    for number in range(1, depth):
        callee = f"call(%x) to_apply=f{number - 1} results=[f32[2]]".replace("(%x)", "({})")
        text += (
            f"func @f{number} {{\n  arg %x : f32[2]\n  %a = {callee.format('%x')} : f32[2]\n"
            f"  %y = {callee.format('%a')} : f32[2]\n  return y = %y\n}}\n"
        )
    return text


def test_calls_that_double(tmp_path: Path):
    require_bounded_calls(parse(calls(12)))
    assert refused(lambda: require_bounded_calls(parse(calls(40)))).code == "GG1102"
    assert refused(lambda: open_module(_text(tmp_path, "a.gg", calls(40)))).code == "GG1102"


def _text(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_sizes_before_work(tmp_path: Path):
    many = STABLEHLO.replace("%0 =", "%0:99999999999 =")
    assert "number of results" in refused_module(tmp_path, "a.mlir", many).what
    for dim in ("*".join(["B"] * 20_000), "+".join([f"A{n}" for n in range(20_000)])):
        assert refused_module(tmp_path, "a.gg", IR.replace("[2]", f"[{dim}]")).code == "GG0102"
    wide = ",".join(["2"] * 100_000)
    assert refused_module(tmp_path, "b.gg", IR.replace("[2]", f"[{wide}]")).code == "GG0201"
    deep = "2x" * 100_000
    assert refused_module(tmp_path, "b.mlir", STABLEHLO.replace("2x", deep)).code == "GG0102"
    assert refused_module(tmp_path, "b.hlo", HLO.replace("[2]", f"[{wide}]")).code == "GG0201"
    for mesh in ("tp:0", "tp:99999999", ",".join(f"a{n}:1024" for n in range(6))):
        text = IR.replace("logical", f"logical mesh={mesh}")
        assert refused_module(tmp_path, "c.gg", text).code == "GG0201"


def test_dims_of_programs_are_read():
    assert str(parse_dim("+".join([f"A{n}*B" for n in range(100)]))).count("+") == 99
    assert parse_dim(str(2**62)) == 2**62


def write_safetensors(path: Path, header: Mapping[str, object]) -> None:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text)


def test_headers_of_many_tensors(tmp_path: Path):
    row = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {f"t{n}": row for n in range(300_000)})
    assert "lists and objects" in refused(lambda: SafetensorsFile(path)).what
    write_safetensors(path, {f"t{n}": row for n in range(1000)})
    assert len(SafetensorsFile(path).tensors()) == 1000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 9000),
        ("hidden_size", 10**9),
        ("head_dim", 10**9),
        ("vocab_size", 10**9),
        ("intermediate_size", 2**31 - 1),
    ],
)
def test_sizes_of_configurations(key: str, value: int, tmp_path: Path):
    info = SimpleNamespace(shape=(257, 32), dtype="f32")
    names = [f"model.layers.{n}.mlp.weight" for n in range(2)]
    found = dict.fromkeys(("model.embed_tokens.weight", *names), info)
    config = {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 257}
    held: Any = SimpleNamespace(config=config, path=tmp_path, tensors=lambda: found)
    check_sizes(held)
    config[key] = value
    error = refused(lambda: check_sizes(held))
    assert (error.code, str(value) in error.what) == ("GG0602", True)


def test_layers_of_configurations():
    assert ConfigReader({"num_hidden_layers": LAYERS.most}).integer("num_hidden_layers")
    for value in (LAYERS.most + 1, 10**400, True, 2.0, "2", -1):
        reader = ConfigReader({"num_hidden_layers": value})
        error = refused(lambda reader=reader: reader.integer("num_hidden_layers"))
        assert error.code == "GG0503"


def test_ranks_and_lists_of_options():
    assert CompileConfig(tp=64).tp == 64
    for tp, stages in ((1_000_000, 1), (4096, 64)):
        assert refused(lambda tp=tp, pp=stages: CompileConfig(tp=tp, pp_degree=pp)).code == "GG0705"
    with pytest.raises(GraphgenError):
        parse_pipeline("default{tp=99999999}")
    assert COUNTS.read([1] * 4096) == (1,) * 4096
    with pytest.raises(ValueError, match=r"100000"):
        COUNTS.read([1] * 100_000)


def test_pickles_that_double(tmp_path: Path):
    value: object = ()
    for _ in range(60):
        value = (value, value)
    from graphgen.runtime.checkpoint.mapped_file import MappedFile

    path = tmp_path / "model.bin"
    parts = (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}, value, [])
    path.write_bytes(b"".join(pickle.dumps(part, 2) for part in parts))
    assert read_legacy(MappedFile(path, "PyTorch"))[0] == {}


def test_normalizers_that_double(tmp_path: Path):
    def made(*steps: normalizers.Normalizer) -> Backend:
        backend = Backend(models.BPE())
        backend.normalizer = normalizers.Sequence(list(steps))  # pyright: ignore[reportAttributeAccessIssue]
        return backend

    doubling = [normalizers.Replace("a", "aa")] * 32
    assert refused(lambda: require_bounded(tmp_path, made(*doubling))).code == "GG0603"
    several = [normalizers.Replace(c, f"<{n}>") for n, c in enumerate("abcdefghijklm")]
    require_bounded(tmp_path, made(*several, normalizers.NFC(), normalizers.Replace(" ", "▁")))


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'a'.ljust(10000000000) }}",
        "{{ [0] * 1000000000 }}",
        "{{ messages|tojson(indent=1000000000) }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ '%1000000000d' % 1 }}",
        "{% set ns = namespace(x='aa') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
        "{% endfor %}{{ ns.x|length }}",
        "{{ 'a' * 70000000 }}",
        "{{ 9 ** (9 ** 9) }}",
    ],
)
def test_templates_without_end(template: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GRAPHGEN_LIMITS", "template-ms=500")
    renderer = WorkerProcess(chat_template._command)
    monkeypatch.setattr(chat_template, "_RENDERER", renderer)
    turns = [{"role": "user", "content": "hi"}]
    try:
        error = refused(lambda: render_chat(template, turns, bos_token="<s>", eos_token=None))
        assert error.code == "GG0603"
        # The next one is not affected.
        plain = "{{ bos_token }}{{ messages[0].content }}"
        code = [{"role": "user", "content": '{"a": [' * 999 + "\\"}]
        said = render_chat(plain, code, bos_token="<s>", eos_token=None)
        assert said == "<s>" + code[0]["content"]
    finally:
        renderer.close()


# kind 9


class PanicException(BaseException):
    """As pyo3 has it: not an ``Exception``."""


def test_panics_of_libraries(tmp_path: Path):
    calls = ForeignCalls(lambda text: GraphgenError("GG0603", text))
    for raised in (PanicException("no\nway"), ValueError("no way"), Exception()):
        with pytest.raises(GraphgenError) as caught, calls:
            raise raised
        assert caught.value.what in ("no way", "Exception")
    for passed in (KeyboardInterrupt(), SystemExit(3), MemoryError(), GraphgenError("GG0705", "x")):
        with pytest.raises(type(passed)), calls:
            raise passed


def test_panics_of_tokenizers(tmp_path: Path):
    from graphgen.runtime.tokenizer.tokenizer import load_tokenizer

    plain = {"version": "1.0", "added_tokens": [], "pre_tokenizer": None, "decoder": None}
    word = {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "u"}
    charsmap = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    pattern = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"}
    damaged = [
        {"model": word, "normalizer": charsmap},
        {"model": word, "normalizer": None},
        {"model": word, "normalizer": None, "pre_tokenizer": {**pattern, "invert": False}},
    ]
    for number, parts in enumerate(damaged):
        folder = tmp_path / str(number)
        folder.mkdir()
        whole = {**plain, "post_processor": None, **parts}
        (folder / "tokenizer.json").write_text(json.dumps(whole))
        text = "b" if number < 2 else "a" * 40 + "b"
        error = refused(lambda folder=folder, text=text: load_tokenizer(folder).encode(text))
        assert error.code == "GG0603"


@pytest.mark.parametrize(
    "text",
    ["module { func.func @f(%a: " + "tuple<" * 200_000 + ") }", b"ML\xefR\x01\xff\xff\x00\xff"],
)
def test_files_that_end_the_process_of_a_native_reader(text: str | bytes):
    error = refused(lambda: generic_text(text, "a.mlir"))
    assert (error.code, error.where) == ("GG0201", "a.mlir")
    assert error.what.startswith("MLIR cannot read it: ")


# kind 10


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 1000, "[" * 201 + "]" * 201])
def test_nested_json(text: str, tmp_path: Path):
    with pytest.raises(JsonError):
        parse_json(text)
    path = _text(tmp_path, "config.json", text)
    error = refused(lambda: read_json(path, "GG0601"))
    assert (error.code, "config.json is not valid JSON" in error.what) == ("GG0601", True)


def test_json_within_limits():
    deep = "[" * 200 + "]" * 200
    assert parse_json(deep) == json.loads(deep)
    brackets = json.dumps([["[{" * 999, '"', "\\", "]"]] * 100)
    assert parse_json(brackets, objects=101) == json.loads(brackets)
    assert parse_json(b'\xef\xbb\xbf{"a": 0.10000000000000000555111512312578}') == {"a": 0.1}
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    # The length without a limit, as transformers writes it.
    assert parse_json(f"[{int(1e30)}]") == [1000000000000000019884624838656]
    bad = ('{"a": 1, "a": 2}', "NaN", f"[{LONG[:41]}]", f"[-{LONG}]", b"\xff", "", "[1,]")
    for text in bad:
        with pytest.raises(JsonError):
            parse_json(text, unique=True, finite=True)
    with pytest.raises(JsonError, match="at most 3 are read"):
        parse_json("[1, 2]", most=3)
    with pytest.raises(JsonError, match="lists and objects"):
        parse_json(json.dumps([[]] * 300), objects=300)


# Speak with processes of their own, or with what graphgen or its tools wrote a moment ago.
WITHIN = {
    "graphgen/cli/launched_inputs.py",
    "graphgen/cli/inspect_files.py",
    "graphgen/json_value.py",
    "graphgen/models/named_shapes.py",
    "graphgen/report/explore_data.py",
    "graphgen/targets/accelerator.py",
    "graphgen/targets/prices.py",
    "graphgen/targets/target.py",
    "lowering/check/compiler_rules.py",
    "lowering/neuronx_cc/compiler_failure.py",
    "lowering/revision_diff.py",
    "runtime/accuracy/check_model.py",
    "runtime/aws_config/config_json.py",
    "runtime/aws_config/model_checks.py",
    "runtime/distributed/led_session.py",
    "runtime/distributed/process_group.py",
    "runtime/model.py",
    "runtime/speculation/fused_model.py",
    "runtime/tokenizer/message_markup.py",
    "runtime/tokenizer/template_worker.py",
}


def test_json_goes_through_one_reader():
    """The runner of device kits travels without graphgen, and has a guard of its own."""
    found: set[str] = set()
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        if "runtime/kit_runner/" in name:
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            call = node.func if isinstance(node, ast.Call) else None
            if isinstance(call, ast.Attribute) and ast.unparse(call) in ("json.loads", "json.load"):
                found.add(name)
    assert found <= WITHIN, found - WITHIN
    assert len(sources()) > 900


def test_recursion_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def nested(*_: object, **__: object) -> None:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("graphgen.lowering.open.verify", nested, raising=False)
    monkeypatch.setattr("graphgen.ops.verify", nested)
    path = _text(tmp_path, "a.gg", IR)
    ran = CliRunner().invoke(cast(typer.Typer, app), ["inspect", str(path)])
    assert (ran.exit_code, "error[GG1103]" in ran.stderr) == (1, True)


# kind 11


def test_numbers_of_other_kinds():
    assert (whole_number("007"), whole_number("5", 5)) == (7, 5)
    for text in ("²", "٣", "--5", "-1", "", " 1", "1_0", "+1", LONG, "6", None, 3, True):
        with pytest.raises(ValueError, match=r"."):
            whole_number(text, 5)
    assert (finite("1e3"), finite(2)) == (1000.0, 2.0)
    for value in ("nan", "inf", "1e999", "1_0", "٣", 10**400, float("nan"), True, None, [1]):
        with pytest.raises(ValueError, match=r"."):
            finite(value)
    assert [is_finite(value) for value in (1, 1.0, 10**400, False, "1")] == [
        True,
        True,
        *[False] * 3,
    ]
    assert [is_whole(value, 5) for value in (5, 6, -1, True, 1.0)] == [True, *[False] * 4]


NUMBERS = {
    "mesh ².gg": IR.replace("logical", "logical mesh=tp:²"),
    "dim.gg": IR.replace("f32[2]", f"f32[{LONG}]"),
    "three.gg": IR.replace("f32[2]", "f32[٣]"),
    "line.gg": IR.replace("a.py:3", f"a.py:{LONG}"),
    "last.gg": IR.replace("}\nfunc", f"  input %x : f32[2] last={LONG}\n}}\nfunc"),
    "dim.mlir": STABLEHLO.replace("2xf32", f"{LONG}xf32"),
    "results.mlir": STABLEHLO.replace("%0 =", f"%0:{LONG} ="),
    "dim.hlo": HLO.replace("f32[2]", f"f32[{LONG}]"),
    "three.hlo": HLO.replace("f32[2]", "f32[٣]"),
    "parameter.hlo": HLO.replace("parameter(0)", f"parameter({LONG})"),
    "name.hlo": HLO.replace("ROOT r", f"ROOT r.{LONG}"),
    "layout.hlo": HLO.replace("{0} exp", f"{{{LONG}}} exp"),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_programs(name: str, tmp_path: Path):
    error = refused_module(tmp_path, name, NUMBERS[name])
    # A place in the file, not the file alone.
    assert ":" in error.where.partition(name)[2] or "%" in error.where


def test_numbers_in_names_and_settings(tmp_path: Path):
    open_module(_text(tmp_path, "a.hlo", HLO))
    for config in (LONG, "²", "--5", "-"):
        assert decode("AwsNeuronTransfer", config) in ({}, {"config": config})
    for key, value in (("hlo.num_partitions", LONG), ("stages", "²")):
        module = parse(IR)
        module.meta[key] = value
        error = refused(lambda module=module, key=key: module.stated_number(key, 1))
        assert error.code == "GG0204"
    ran = CliRunner().invoke(
        cast(typer.Typer, app), ["lower", str(tmp_path / "a.hlo"), "--dims", f"B={LONG}"]
    )
    assert (ran.exit_code, "error[GG0705]" in ran.stderr) == (1, True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, True, 0, -1.0, "1"])
def test_numbers_of_configurations(value: object):
    assert refused(lambda: ConfigReader({"rope_theta": value}).number("rope_theta")).code
    for key in ("lora_alpha", "r"):
        if value not in (0, -1.0):
            fields = {key: value}
            assert refused(lambda fields=fields: read_adapter_config(fields, "a")).code == "GG0503"


def test_numbers_of_options():
    for words in (["--max-loras", "9" * 400], ["--seed", f"-{'9' * 30}"], ["--max-len", "9" * 25]):
        ran = CliRunner().invoke(cast(typer.Typer, app), ["generate", "m", "--prompt", "x", *words])
        assert (ran.exit_code, f"{words[0]}: the number" in ran.stderr) == (1, True), ran.stderr
    assert refused(lambda: CompileConfig(rows=1 << 40)).code == "GG0705"
    assert refused(lambda: CompileConfig(batch=(1, 1 << 40))).code == "GG0705"
    for text in ("9" * 30, "٣", "1_0", "1e3"):
        error = refused(lambda text=text: parse_pipeline(f"multi-lora{{max_loras={text}}}"))
        assert error.code == "GG0302"


# kind 12


def test_pipes_that_a_user_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    os.mkfifo(tmp_path / "pipe.gg")
    monkeypatch.setattr("graphgen.read_file._PATIENCE", 0.05)
    error = refused(lambda: open_module(tmp_path / "pipe.gg"))
    assert "nothing writes to the pipe" in error.what
    assert "not a regular file" in refused(lambda: open_module("/dev/zero")).what
    # As <(command) of a shell, whose writer may take longer.
    read, write = os.pipe()
    writer = threading.Timer(0.2, lambda: (os.write(write, IR.encode()), os.close(write)))
    writer.start()
    assert open_module(f"/dev/fd/{read}").name == "m"
    writer.join()
    os.close(read)


def test_arrays_that_state_more_than_they_have(tmp_path: Path):
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros(3, np.float32))
    assert read_arrays(str(path))["a"].shape == (3,)
    for shape in ("(9999999999999,)", "(99999, 99999, 99999)", "(4,)"):
        text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
        header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text + b"\n"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", header + bytes(12))
        assert re.search("is cut off|EOF", refused(lambda: read_arrays(str(path))).what)


def test_archives_that_unpack_to_more(tmp_path: Path):
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for number in range(64):
            item = tarfile.TarInfo(f"f{number}")
            item.size = 1 << 20
            archive.addfile(item, BytesIO(bytes(1 << 20)))
    path = tmp_path / "a.neff"
    path.write_bytes(bytes(1024) + packed.getvalue())
    error = refused(lambda: read_neff(path))
    assert (error.code, "unpacks to more" in error.what) == ("GG0802", True)


def test_files_that_are_no_regular_files(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    odd = (tmp_path, tmp_path / "pipe", tmp_path / "sparse", tmp_path / "loop", tmp_path / "none")
    for path in (*odd, Path("/dev/zero"), tmp_path / ("x" * 300), tmp_path / "a\0b"):
        error = refused(lambda path=path: read_file(path, 1 << 20, "GG0601"))
        assert (error.code, error.what.startswith("cannot open the file: ")) == ("GG0601", True)
    (tmp_path / "small").write_bytes(b"abc")
    assert read_file(tmp_path / "small", 3) == b"abc"
    refused(lambda: read_file(tmp_path / "small", 2))


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "a\0b", ""])
def test_names_that_no_file_has(name: str, tmp_path: Path):
    path = f"{tmp_path}/{name}/config.json"
    assert not (is_there(path) or is_file(path) or is_folder(path)) or name == ""
    for command in (["inspect", name], ["generate", name, "--prompt", "x"], ["config", name]):
        if "\0" not in name and name:
            ran = CliRunner().invoke(cast(typer.Typer, app), command)
            assert (ran.exit_code, "error[GG" in ran.stderr) == (1, True), ran.output


def test_a_closed_standard_output(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stdout", None)
    for write in (
        lambda: console.write_stdout("x"),
        lambda: console.write_report("x"),
        lambda: console.write_stdout_bytes([b"x"]),
    ):
        assert refused(write).code == "GG0704"


# kind 13


def test_terminal_escapes():
    hostile = "a\x1b[2J\x07\x9b\u202eb\ud800\x7f\r"
    shown = printable(hostile)
    assert shown == r"a\x1b[2J\x07\x9b\u202eb\ud800\x7f\r"
    assert printable("a\tb\n√ 日本 …") == "a\tb\n√ 日本 …"
    error = str(
        GraphgenError("GG0601", f"{hostile}\nerror[GG9999]: x", where=hostile, note=hostile)
    )
    assert "\x1b" not in error
    assert [line for line in error.split("\n") if line.startswith("error[")] == error.split("\n")[
        :1
    ]
    stream = open(os.devnull, "w")  # noqa: SIM115
    with stream:
        for report in (hostile, Table(["name"], [[hostile]]), [hostile, Table(["n"], [[hostile]])]):
            assert not set(render(report, stream)) & set("\x1b\x07\x9b\u202e\ud800\x7f\r")
