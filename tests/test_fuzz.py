"""The fuzzer: inputs depend on their number alone, and a defect is found and told."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType

import pytest

from graphgen.errors import GraphgenError
from tests.fuzz.__main__ import defect, defects
from tests.fuzz.mutations import MUTATORS, mutated
from tests.fuzz.target import ROOT, Target
from tests.fuzz.targets import TARGETS, seeds_of


def test_an_input_is_made_of_its_number():
    seeds = [b'{"a": 12, "b": [3]}', b"other"]
    made = [mutated(seeds, "x", place) for place in range(200)]
    assert made == [mutated(seeds, "x", place) for place in range(200)]
    assert made[:2] == seeds
    assert len(set(made)) > 100
    assert made[5:] != [mutated(seeds, "y", place) for place in range(5, 200)]
    assert len(MUTATORS) > 5


QUICK = [name for name, target in TARGETS.items() if not target.slow]


@pytest.mark.parametrize("name", QUICK)
def test_right_inputs_are_read(name: str, tmp_path: Path):
    for seed in seeds_of(name):
        assert defect(name, tmp_path, seed) == ""
        path = tmp_path / TARGETS[name].file
        TARGETS[name].read(path)


def test_what_is_no_error_of_the_house_is_a_defect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    class PanicError(BaseException):
        pass

    def read(path: Path) -> None:
        data = path.read_bytes()
        if data == b"panic":
            raise PanicError("of a foreign library")
        if data == b"defect":
            raise KeyError("x")
        raise GraphgenError("GG0201", "refused")

    monkeypatch.setitem(TARGETS, "planted", Target("x", read, list))
    assert defect("planted", tmp_path, b"") == ""
    assert defect("planted", tmp_path, b"panic") == "PanicError: of a foreign library"
    assert defect("planted", tmp_path, b"defect").startswith("KeyError")


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_some_damaged_inputs_are_read_or_refused(name: str):
    assert defects(name, 0, 60) == {}


# Calls that read a file, or JSON of others; a module with one is a reader.
CALLS = frozenset(
    {
        *("read_json", "read_json_object", "read_file", "read_text_file", "read_regular"),
        *("read_named", "read_inside", "open_readable", "open_regular", "open_named"),
        *("parse_json", "MappedFile"),
    }
)
# Readers without a target, and why.
NOT_FUZZED = {
    "graphgen/cli/bisect_cmd.py": "the first bytes of a file of its own",
    "graphgen/cli/calibrate_cmd.py": "plain text",
    "graphgen/cli/compile_cmd.py": "the target 'neuron configuration'",
    "graphgen/cli/config_cmd.py": "the slow target 'neuron configuration'",
    "graphgen/cli/demo_arguments.py": "JSON of the command line, which is trusted",
    "graphgen/cli/files.py": "plain text",
    "graphgen/cli/generate_cmd.py": "JSON of the command line, which is trusted",
    "graphgen/cli/inspect_cmd.py": "the first bytes",
    "graphgen/cli/load_test_cmd.py": "JSON of the command line, which is trusted",
    "graphgen/cli/quantize_cmd.py": "plain text",
    "graphgen/cli/serve_cmd.py": "keys, one a line",
    "lowering/comparable.py": "attributes of IR, tests/graphgen/cli/test_optimized_forms.py",
    "lowering/cpu_kernels/kernel_calls.py": "attributes of IR, tests/lowering/cpu_kernels",
    "lowering/lowered_module.py": "IR, the target 'ir'",
    "runtime/accuracy/validate_model.py": "metadata of a module that graphgen built",
    "runtime/artifact/device_artifact.py": "files that the target 'device manifest' compares",
    "runtime/aws_config/lora_settings.py": "a table of names, read as the target 'index' is",
    "runtime/aws_tnx/tnx_folder.py": "config.json, the target 'configuration'",
    "runtime/file_kind.py": "the first bytes",
    "runtime/lora/merge_adapter.py": "config.json, the target 'configuration'",
    "runtime/server/adapter_routes.py": "read as the target 'body' is",
    "runtime/server/chat_tools.py": "read as the target 'body' is",
    "runtime/tool_calls/answer_reader.py": "text of a model, tests/runtime/tool_calls",
    "runtime/tool_calls/tagged_calls.py": "text of a model, tests/runtime/tool_calls",
    "lowering/aten/archive.py": "the slow target 'exported program'",
    "runtime/aws_config/inference_config.py": "the slow target 'neuron configuration'",
    "passes/lora/product_sites.py": "metadata of a module that graphgen built",
    "runtime/checkpoint/torch_file.py": "the slow target 'torch file'",
    "runtime/distributed/process_group.py": "tests/runtime/distributed/test_store_values.py",
    "lowering/cpu/isolated_run.py": "answers of a process of graphgen's own",
    "runtime/executable_cache.py": "programs, tests/runtime/artifact/test_artifact_folder.py",
    "runtime/session/launch.py": "metadata of a module that graphgen built",
    "runtime/tokenizer/token_bound.py": "the state of a tokenizer that was read",
    "runtime/aws_nxdi/configured_programs.py": "the slow target 'neuron configuration'",
    "runtime/benchmark/openai_client.py": "answers of a server that the user names",
    "runtime/distributed/launch_plan.py": "a secret",
    "runtime/distributed/led_session.py": "tests/runtime/distributed/test_store_values.py",
}


def readers() -> set[str]:
    """The modules that read files or JSON of others."""
    found: set[str] = set()
    for room in ("graphgen", "passes", "lowering", "runtime"):
        for path in sorted((ROOT.parent / room).glob("**/*.py")):
            for node in ast.walk(ast.parse(path.read_bytes())):
                call = node.func if isinstance(node, ast.Call) else None
                name = getattr(call, "id", getattr(call, "attr", ""))
                if name in CALLS:
                    found.add(path.relative_to(ROOT.parent).as_posix())
    return found - {"graphgen/atomic_write.py", "graphgen/read_file.py", "graphgen/json_value.py"}


def test_every_reader_has_a_target(tmp_path: Path):
    """A reader counts as fuzzed if a right input of a target runs a line of it."""
    ran: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if file not in ran and "/site-packages/" not in file:
            # The first import of a module runs its classes, which is not reading.
            here: FrameType | None = frame
            while here is not None and here.f_code.co_name != "<module>":
                here = here.f_back
            if here is None or here.f_code.co_filename != file:
                ran.add(file)

    for name in QUICK:
        seeds = seeds_of(name)
        for number, seed in enumerate(seeds):
            folder = tmp_path / f"{name} {number}"
            folder.mkdir()
            sys.setprofile(note)
            try:
                found = defect(name, folder, seed)
            finally:
                sys.setprofile(None)
            assert found == "", (name, found)
    known = {str(Path(file).resolve()) for file in ran}
    without = {name for name in readers() if str(ROOT.parent / name) not in known}
    assert without == set(NOT_FUZZED), without ^ set(NOT_FUZZED)
