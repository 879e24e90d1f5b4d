"""Readers of settings, manifests, results and requests that are fuzzed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, cast

from graphgen.json_value import Json
from graphgen.version import __version__
from tests.fuzz.target import Target, command, json_seeds
from tests.runtime.device_kit.test_reading import case, results

_CHAT: Final[Json] = {
    "model": "m",
    "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
    "temperature": 0.5,
    "logit_bias": {"1": -100},
    "stop": ["a"],
    "n": 2,
}
_NEURON: Final[Json] = {
    "hidden_size": 32,
    "neuron_config": {"tp_degree": 2, "batch_size": 1, "seq_len": 64, "buckets": [16, 64],
                      "torch_dtype": "bfloat16", "on_device_sampling_config": {"top_k": 1}},
}  # fmt: skip


_MODULE: Final = "module @m level=logical {\n}\n"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


_ARTIFACT: Final[Json] = {
    "graphgen": __version__, "format": 2, "kind": "artifact", "source": "x", "weights": [],
    "settings": {"batch": [1], "max_len": 16, "tp": 1}, "passes": [],
    "config": {"model_type": "llama"}, "programs": {},
    "files": {"module.gg": _digest(_MODULE.encode()), "config.json": _digest(b"{}")},
}  # fmt: skip
_DEVICE: Final[Json] = {
    "kind": "programs for a Neuron device", "format": 1, "programs": [],
    "files": {"config.json": _digest(b"{}")},
}  # fmt: skip
_SHARDS: Final[Json] = {"format": 1, "source": "x", "files": {}, "tensors": {}, "ranks": 2}
_REPRODUCER: Final[Json] = {
    "pipeline": "cse", "fuel": None, "verify": 1, "failed": "cse", "whole": "cse",
    "reproduces": True, "hash_seed": "0", "versions": {"graphgen": "0"}, "plugins": [],
    "failure": {"type": "KeyError", "code": "", "what": "x"}, "traceback": "",
}  # fmt: skip


def _body(path: Path) -> None:
    from graphgen.runtime.server.request_fields import CHAT_BODY, COMPLETION_BODY
    from graphgen.runtime.server.routes import read_json

    body = read_json(path.read_bytes())
    chat = isinstance(body, dict) and "messages" in body
    (CHAT_BODY if chat else COMPLETION_BODY).read(body)


def _override(path: Path) -> None:
    from graphgen.runtime.aws_config.served_override import read_override

    read_override(path.read_bytes().decode("utf-8", "replace"))


def _kit_results(path: Path) -> None:
    from graphgen.runtime.device_kit.reading import read_kit_results

    read_kit_results(path)


def _evidence(path: Path) -> None:
    from graphgen.lowering.check.evidence import read_evidence

    read_evidence(path)


@cache
def _evidences() -> list[bytes]:
    with TemporaryDirectory() as folder:
        home, out = Path(folder) / "results.json", Path(folder) / "evidence.json"
        made = results(case("op/a/f32", "refused", "refused", ("NCC_E1",), code="NCC_E1"))
        home.write_text(json.dumps(made))
        command("device-kit", "read", "-o", str(out))(home)
        return [out.read_bytes()]


def _ranges(path: Path) -> None:
    from graphgen.passes.quantization.cache_ranges import read_input_ranges, read_ranges

    read_ranges(path)
    read_input_ranges(path)


def _reproducer(path: Path) -> None:
    from graphgen.passes.validate.reproducer import replay

    (path.parent / "repro.gg").write_text(_MODULE)
    replay(path.parent)


def _sealed(path: Path, files: Mapping[str, bytes]) -> Path:
    """The folder of a manifest, with a right checksum and right digests of its files."""
    from graphgen.runtime.folders import sealed

    for name, data in files.items():
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).write_bytes(data)
    text = path.read_bytes()
    with suppress(ValueError, RecursionError):
        content: object = json.loads(text)
        if isinstance(content, dict):
            path.write_bytes(sealed(cast("dict[str, object]", content)))
    return path.parent


def _manifest(path: Path) -> None:
    from graphgen.runtime.artifact.open_artifact import open_artifact

    open_artifact(_sealed(path, {"module.gg": _MODULE.encode(), "config.json": b"{}"}))


def _device_manifest(path: Path) -> None:
    from graphgen.runtime.artifact.device_folder import open_device_folder

    open_device_folder(_sealed(path, {"config.json": b"{}"}))


def _shards(path: Path) -> None:
    from graphgen.runtime.weights.presharded import source_of

    source_of(_sealed(path, {}))


def _kit(path: Path) -> None:
    from graphgen.errors import GraphgenError
    from graphgen.runtime.kit_runner.run_kit import KitError, read_manifest, require_files

    try:
        require_files(path.parent, read_manifest(path.parent)[0])
    except KitError as error:
        raise GraphgenError("GG1004", str(error)) from error


_PROVED: Final = """
module @m level=logical {
  input %x : f32[2]
  output %y : f32[2]
}
func @decode phase=decode {
  arg %x : f32[2]
  %y = negate(%x) : f32[2]
  return y = %y
}
"""


def _certify(home: Path) -> Path:
    """The certificate that a module is proved to be itself, beside the modules."""
    from graphgen.lowering.certificate import CertificateFiles, write_certificate
    from graphgen.text import parse

    files = CertificateFiles(home, "source.gg", "target.gg", {})
    return write_certificate(parse(_PROVED), parse(_PROVED), files, "certificate.json")[0]


def _certificates() -> list[bytes]:
    with TemporaryDirectory() as folder:
        return [_certify(Path(folder)).read_bytes()]


def _certificate(path: Path) -> None:
    from graphgen.lowering.certificate import check_certificate

    given = path.read_bytes()
    _certify(path.parent).write_bytes(given)
    check_certificate(path)


def _tolerances(path: Path) -> None:
    from graphgen.runtime.accuracy.tolerances import parse_tolerance_map

    parse_tolerance_map(path.read_bytes().decode("utf-8", "replace"))


SETTINGS: Final[dict[str, Target]] = {
    "body": Target("body.json", _body, json_seeds(_CHAT, {"model": "m", "prompt": ["a", "b"]})),
    "neuron configuration": Target(
        "neuron_config.json", command("config"), json_seeds(_NEURON), slow=True
    ),
    "served override": Target(
        "override.json", _override, json_seeds({"tp_degree": 2, "seq_len": 64, "buckets": [16]})
    ),
    "kit results": Target(
        "results.json",
        _kit_results,
        json_seeds(results(case("op/a/f32", "refused", "refused", ("NCC_E1",), code="NCC_E1"))),
    ),
    "evidence": Target("evidence.json", _evidence, _evidences),
    "ranges": Target(
        "ranges.json",
        _ranges,
        json_seeds({"format": 1, "largest": {"k.0": [[1.0, 2.0]]}, "inputs": {"a": 3.0}}),
    ),
    "reproducer": Target("repro.json", _reproducer, json_seeds(_REPRODUCER)),
    "artifact manifest": Target("manifest.json", _manifest, json_seeds(_ARTIFACT)),
    "device manifest": Target("manifest.json", _device_manifest, json_seeds(_DEVICE)),
    "shard manifest": Target("weights.json", _shards, json_seeds(_SHARDS)),
    "kit manifest": Target(
        "manifest.json",
        _kit,
        json_seeds({"kind": "graphgen device kit", "format": 1, "files": {}, "targets": {}}),
    ),
    "certificate": Target("certificate.json", _certificate, _certificates),
    "tolerances": Target("tol.json", _tolerances, json_seeds({"5": [1e-5, 0.01], "all": [0, 1]})),
}  # fmt: skip
